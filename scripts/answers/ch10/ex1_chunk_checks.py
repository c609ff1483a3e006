"""Checks of ch10.1: positions, mask and attention of a chunk behind a cache."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for past, new in ((0, 1), (0, 5), (7, 1), (draw.whole(3, 20), 4)):
        yield "positions", "positions", {"past": past, "new": new}
    for past, new in ((3, 2), (1, 4), (draw.whole(4, 9), 3)):
        yield "the mask behind a cache", "mask_after", {"past": past, "new": new}
    for new in (1, 2, draw.whole(3, 6)):
        yield "the mask of a first chunk", "mask_after", {"past": 0, "new": new}
    for past in (3, 9):
        yield "the mask of one token", "mask_after", {"past": past, "new": 1}
    for check, shapes in (
        ("attention of a first chunk", ((1, 2, 4, 4, 6), (2, 1, 1, 1, 8))),
        ("attention of one token", ((1, 2, 1, 5, 4), (3, 2, 1, 2, 6))),
        ("attention of a chunk", ((1, 1, 2, 5, 4), (2, 3, 4, 7, 6), (3, 2, 3, 4, 8))),
    ):
        for B, h, T, S, dh in shapes:
            K, V = draw.normal(B, h, S, dh), draw.normal(B, h, S, dh)
            yield check, "attention_after", {"q": draw.normal(B, h, T, dh, scale=2.0), "K": K, "V": V}
    K, V = (draw.normal(1, 2, 5, 4, dtype=torch.float64) for _ in "KV")
    yield "attention in float64", "attention_after", {"q": draw.normal(1, 2, 2, 4, dtype=torch.float64), "K": K, "V": V}


MUTANTS = [
    Mutant("positions begin at 0 for each chunk", "torch.arange(past, past + new)", "torch.arange(new)"),
    Mutant("positions are one too large", "torch.arange(past, past + new)", "torch.arange(past, past + new) + 1"),
    Mutant(
        "positions behind a cache are one too large, those of a first chunk are right",
        "torch.arange(past, past + new)",
        "torch.arange(past, past + new) + (past > 0)",
    ),
    Mutant("every new token has the position of the first", "torch.arange(past, past + new)", "torch.full((new,), past)"),
    Mutant("the mask is aligned top left: the newest token sees the beginning", "triu(past + 1)", "triu(1)"),
    Mutant("the mask hides the token itself", "triu(past + 1)", "triu(past)"),
    Mutant("the mask shows the next token", "triu(past + 1)", "triu(past + 2)"),
    Mutant(
        "the mask hides the cache, and shows the new tokens",
        ".triu(past + 1)",
        ".triu(past + 1) + torch.cat([torch.full((new, past), -math.inf), torch.zeros(new, new)], 1)",
    ),
    Mutant("the mask hides nothing", "torch.full((new, past + new), -math.inf).triu(past + 1)", "torch.zeros(new, past + new)"),
    Mutant(
        "the mask has no columns for the cache",
        "torch.full((new, past + new), -math.inf).triu(past + 1)",
        "torch.full((new, new), -math.inf).triu(1)",
    ),
    Mutant(
        "the mask is of the whole text, with the rows of the cache",
        "torch.full((new, past + new), -math.inf).triu(past + 1)",
        "torch.full((past + new, past + new), -math.inf).triu(1)",
    ),
    Mutant(
        "the attention takes all keys for new ones: its mask begins at the first",
        "mask_after(S - T, T)",
        "torch.full((T, S), -math.inf).triu(1)",
    ),
    Mutant("the attention has no mask", " + mask_after(S - T, T).to(q.dtype)", ""),
    Mutant("the scores are not scaled", " / math.sqrt(q.shape[-1])", ""),
    Mutant("the scores are divided by dh, not by its root", "math.sqrt(q.shape[-1])", "q.shape[-1]"),
    Mutant("the scale is the root of S, not of dh", "math.sqrt(q.shape[-1])", "math.sqrt(S)"),
    Mutant("softmax runs over the new tokens, not over the keys", "dim=-1)", "dim=-2)"),
    Mutant("what is summed is the keys, not the values", "return A @ V", "return A @ K"),
    Mutant("only the first sequence of a batch is computed", "return A @ V", "return A[:1] @ V[:1]"),
    Mutant("everything is turned to float32 on the way", "return A @ V", "return A.float() @ V.float()"),
    Mutant("the queries are changed in place", "q @ K.transpose(-1, -2)", "q.mul_(1.0000001).add_(1e-6) @ K.transpose(-1, -2)"),
]

RANGES = {"ways_that_notice": (2, 2)}
MISTAKES = {
    "ways_that_notice": [
        (3, 3, "one of these does not notice: feeding the rest one by one, or all at once"),
        (5, 5, "`None` is to stay for a single token"),
    ]
}

RUBRIC = """
1 point: those with a chunk of several tokens behind a cache notice; all at once has no past, and one token has nothing to hide.
1 point: a test with one split may be one in which the fault cannot show; the splits have to differ in kind.
"""
