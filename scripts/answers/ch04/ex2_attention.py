"""The mask, attention and its entropy."""

import math

import torch


def causal_mask(T):
    return torch.full((T, T), -math.inf).triu(1)


def attention(q, k, v, scaled=True):
    scores = q @ k.transpose(-1, -2)
    if scaled:
        scores = scores / math.sqrt(q.shape[-1])
    scores = scores + causal_mask(q.shape[-2]).to(q.dtype)
    A = torch.softmax(scores, dim=-1)
    return A @ v, A


def entropy(A):
    return -torch.where(A > 0, A * torch.log(A), 0.0).sum(-1)
