"""A cache with a window."""

import math

import torch


def window_mask(past, new, window):
    mask = torch.full((new, past + new), -math.inf)
    for i in range(new):
        mask[i, max(0, past + i - window + 1) : past + i + 1] = 0.0
    return mask


def slide(old, new, window):
    return torch.cat([old, new], dim=2)[:, :, -window:].clone()


def places(t, window):
    n = min(t, window)
    return list(range(n)), list(range(t - n, t))


def distance(ours, oracle):
    return (ours - oracle).abs().amax(-1) / oracle.abs().amax(-1)
