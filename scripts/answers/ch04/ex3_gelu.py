"""Two forms of GELU, and what they change."""

import math

import torch


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def change(a, b):
    moved = a.argmax(-1) != b.argmax(-1)
    return (a - b).abs().max().item(), moved.nonzero().tolist()
