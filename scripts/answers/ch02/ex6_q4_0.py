"""Blocks of four bits, with a minimum and without."""

import torch


def two_bytes(x):
    return x.to(torch.float16).contiguous().view(torch.uint8)


def from_two_bytes(stored):
    return stored.contiguous().view(torch.float16).float()


def packed(whole):
    whole = whole.to(torch.uint8)
    return whole[:, :16] | whole[:, 16:] << 4


def unpacked(pairs):
    return torch.cat([pairs & 15, pairs >> 4], 1).float()


def to_q4_0(x):
    at = x.abs().argmax(1, keepdim=True)
    scale = x.gather(1, at) / -8
    steps = torch.where(scale != 0, x / scale, 0.0)
    whole = torch.trunc(steps + 8.5).clamp(max=15)
    return torch.cat([two_bytes(scale), packed(whole)], 1)


def from_q4_0(stored):
    scale = from_two_bytes(stored[:, :2])
    return (unpacked(stored[:, 2:]) - 8) * scale


def to_q4_1(x):
    least, most = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    scale = (most - least) / 15
    levels = torch.where(scale > 0, (x - least) / scale, 0.0)
    whole = torch.trunc(levels + 0.5).clamp(max=15)
    return torch.cat([two_bytes(scale), two_bytes(least), packed(whole)], 1)


def from_q4_1(stored):
    scale, least = from_two_bytes(stored[:, :2]), from_two_bytes(stored[:, 2:4])
    return least + unpacked(stored[:, 4:]) * scale
