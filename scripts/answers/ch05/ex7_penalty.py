"""A penalty, wrong and right, and the measure of repetition."""

import torch


def divided(logits, ids, constant):
    new = logits.clone()
    new[ids] = logits[ids] / constant
    return new


def penalised(logits, ids, constant):
    smaller = torch.where(logits > 0, logits / constant, logits * constant)
    there = torch.zeros(len(logits), dtype=torch.bool)
    there[ids] = True
    return torch.where(there, smaller, logits)


def repeated(ids, n):
    flags, seen = [], set()
    for t in range(len(ids)):
        gram = tuple(ids[t - n + 1 : t + 1]) if t >= n - 1 else None
        flags.append(gram in seen)
        if gram is not None:
            seen.add(gram)
    return flags
