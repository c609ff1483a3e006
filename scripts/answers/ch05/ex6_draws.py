"""Some draws, greedy text behind them, and what it came to."""

import torch


def drawn_then_greedy(forward, ids, uniforms, tokens, window):
    made = []
    for u in [*uniforms, *[None] * tokens]:
        seen = (ids + made)[-window:]
        logits = forward(torch.tensor([seen]))[0, -1]
        if u is None:
            made.append(int(logits.argmax()))
        else:
            cumulative = torch.softmax(logits.double(), dim=-1).cumsum(-1)
            made.append(int((cumulative > u).int().argmax()))
    return made


def same_cycle(a, b):
    if len(a) != len(b):
        return False
    return any(a[i:] + a[:i] == b for i in range(len(a)))


def counts(outcomes):
    found = {}
    for n, differed, old, new in outcomes:
        if differed:
            row = found.setdefault(str(n), [0, 0, 0])
            row[0] += 1
            row[1] += new is not None
            row[2] += new is not None and same_cycle(old, new)
    return found
