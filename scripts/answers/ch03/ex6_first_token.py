"""Special tokens cut out, and losses."""

import re


def cut(text, special):
    longest_first = sorted(special, key=len, reverse=True)
    if not special:
        return [[text, False]] if text else []
    parts = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text)
    return [[part, i % 2 == 1] for i, part in enumerate(parts) if part]


def nats(logits, ids):
    logits = logits.double()
    return logits.logsumexp(-1) - logits.gather(-1, ids[:, None])[:, 0]


def window_losses(logits, ids, tokens):
    losses = nats(logits[:-1], ids[1:])
    behind = losses[1:]
    return [behind[:n].mean().item() for n in tokens]
