"""The loop of a greedy request."""

import torch


def serve(forward, prompt, tokens, end=None, cached=True):
    new, fed, cache, step = [], [], None, list(prompt)
    while True:
        logits, cache = forward(torch.tensor([step]), cache if cached else None)
        fed.append(("decode" if new else "prefill", len(step)))
        new.append(int(logits[0, -1].argmax()))
        if len(new) == tokens or new[-1] == end:
            return new, fed
        step = [new[-1]] if cached else [*prompt, *new]


def step_growth(times):
    n = max(1, len(times) // 4)
    return (sum(times[-n:]) / n) / (sum(times[:n]) / n)
