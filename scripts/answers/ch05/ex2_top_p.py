"""Top-p, the mass summed from below."""

import math

import torch


def keep_top_p(logits, p):
    order = logits.argsort(dim=-1, descending=True, stable=True).flip(-1)
    from_below = torch.softmax(logits.gather(-1, order), dim=-1).cumsum(-1)
    cut = from_below <= 1 - p
    cut[..., -1] = False
    return logits.masked_fill(cut.scatter(-1, order, cut), -math.inf)
