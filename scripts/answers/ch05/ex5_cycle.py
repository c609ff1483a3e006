"""The greedy loop, and the cycle in its text."""

import torch


def greedy(forward, ids, tokens, window, ends):
    text = list(ids)
    made = []
    while len(made) < tokens:
        logits = forward(torch.tensor([text[-window:]]))[0, -1]
        id = int(logits.argmax())
        text.append(id)
        made.append(id)
        if id in ends:
            break
    return made


def cycle(ids, window):
    seen = {}
    for t in range(window, len(ids) + 1):
        state = tuple(ids[t - window : t])
        if state in seen:
            length = t - seen[state]
            start = t - length
            while start > 0 and ids[start - 1] == ids[start - 1 + length]:
                start -= 1
            return [start, length]
        seen[state] = t
    return None
