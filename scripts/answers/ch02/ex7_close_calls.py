"""Gaps between the two best logits."""

import torch


def gaps(logits):
    best = logits.topk(2, dim=-1).values
    return best[:, 0] - best[:, 1]


def by_change(before, after):
    other = before.argmax(-1) != after.argmax(-1)
    found = gaps(before)
    return found[other], found[~other]


def overlap(changed, kept):
    above = (changed[:, None] > kept[None]).double()
    equal = (changed[:, None] == kept[None]).double()
    return (above + equal / 2).mean().item()


def can_change(before, after):
    most = (after - before).abs().amax(-1)
    return torch.gt(2 * most, gaps(before))
