"""A chunk behind a cache."""

import math

import torch


def positions(past, new):
    return torch.arange(past, past + new)


def mask_after(past, new):
    return torch.full((new, past + new), -math.inf).triu(past + 1)


def attention_after(q, K, V):
    T, S = q.shape[2], K.shape[2]
    scores = q @ K.transpose(-1, -2) / math.sqrt(q.shape[-1])
    A = torch.softmax(scores + mask_after(S - T, T).to(q.dtype), dim=-1)
    return A @ V
