"""Filters in any order, and the draw."""

import math

import torch


def filtered(logits, order, temperature, top_k, top_p):
    for name in order:
        ranking = logits.argsort(descending=True, stable=True)
        if name == "temperature":
            logits = (logits - logits.max()) / temperature
        elif name == "top_k":
            logits = logits.scatter(0, ranking[top_k:], -math.inf)
        else:
            ranked = torch.softmax(logits[ranking], dim=0)
            cut = ranked.cumsum(0) - ranked >= top_p
            cut[0] = False
            logits = logits.scatter(0, ranking[cut], -math.inf)
    return torch.softmax(logits, dim=0)


def drawn(probabilities, u):
    cumulative = probabilities.double().cumsum(0)
    return int((cumulative > u * cumulative[-1]).int().argmax())
