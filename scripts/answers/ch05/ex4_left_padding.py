"""Prompts padded on the left."""

import math

import torch


def padded(prompts, pad):
    T = max(map(len, prompts))
    ids = [[pad] * (T - len(p)) + p for p in prompts]
    at = [[0] * (T - len(p)) + list(range(len(p))) for p in prompts]
    return torch.tensor(ids), torch.tensor(at)


def padding_mask(lengths, dtype=torch.float32):
    T = max(lengths)
    first = T - torch.tensor(lengths)[:, None, None]
    i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    seen = (j <= i) & (j >= first)
    return torch.where(seen, 0.0, -math.inf).to(dtype)[:, None]


def masked_softmax(scores):
    return torch.softmax(scores, dim=-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
