"""Temperature, top-k and the mass before each token."""

import math

import torch


def softmax_at(logits, temperature):
    if temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1.0)
    below = logits - logits.amax(-1, keepdim=True)
    return torch.softmax((below.double() / temperature).to(logits.dtype), dim=-1)


def keep_top_k(logits, k):
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return logits.scatter(-1, order[..., k:], -math.inf)


def mass_before(probabilities):
    order = probabilities.argsort(descending=True, stable=True)
    ranked = probabilities[order]
    before = ranked.cumsum(0) - ranked
    return torch.zeros_like(before).scatter(0, order, before)
