"""Windows: mask, ring, reach, bytes."""

import math

import torch


def window_mask(T, S, window):
    back = torch.arange(S - T, S)[:, None] - torch.arange(S)
    hidden = back < 0
    if window is not None:
        hidden = hidden | (back >= window)
    return torch.zeros(T, S).masked_fill(hidden, -math.inf)


def held_positions(seen, slots):
    held = [-1] * slots
    for p in range(seen):
        held[p % slots] = p
    return held


def write(ring, seen, new):
    ring = ring.clone()
    for i in range(new.shape[2]):
        ring[:, :, (seen + i) % ring.shape[2]] = new[:, :, i]
    return ring


def attend(q, keys, values, seen):
    scores = (keys @ q[..., None])[..., 0] / math.sqrt(q.shape[-1])
    empty = torch.arange(keys.shape[2]) >= seen
    A = torch.softmax(scores.masked_fill(empty, -math.inf), dim=-1)
    return (A[..., None] * values).sum(2)


def first_reached(windows, position):
    if None in windows:
        return 0
    return max(0, position - sum(W - 1 for W in windows))


def cache_bytes(windows, context, g, dh, bytes_per_number):
    kept = sum(context if W is None else min(context, W) for W in windows)
    return 2 * kept * g * dh * bytes_per_number


def requests(memory_bytes, weight_bytes, request_bytes):
    return max(0, memory_bytes - weight_bytes) // request_bytes
