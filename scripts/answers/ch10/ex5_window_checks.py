"""Checks of ch10.5: mask, cache and positions of a window, and the distance of logits."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for past, new, window in ((0, 6, 3), (5, 3, 4), (4, 5, 2), (draw.whole(6, 9), 2, 5)):
        yield "the mask", "window_mask", {"past": past, "new": new, "window": window}
    for past, new, window in ((0, 4, 9), (2, 3, 5)):
        yield "the mask of a window that shows all", "window_mask", {"past": past, "new": new, "window": window}
    for past, window in ((8, 3), (2, 4), (4, 1), (5, 5)):
        yield "the mask of one token", "window_mask", {"past": past, "new": 1, "window": window}
    for S, T, window in ((4, 1, 4), (3, 2, 4), (2, 6, 4), (5, 1, 3), (0, 7, 4)):
        B, h, dh = draw.whole(1, 3), draw.whole(1, 3), draw.whole(2, 5)
        yield "the last positions", "slide", {"old": draw.normal(B, h, S, dh), "new": draw.normal(B, h, T, dh), "window": window}
    for S, T, window in ((2, 1, 6), (0, 3, 4), (3, 2, 5)):
        yield "fewer than the window", "slide", {"old": draw.normal(2, 1, S, 3), "new": draw.normal(2, 1, T, 3), "window": window}
    for t, window in ((1, 4), (3, 4), (4, 4), (5, 4), (draw.whole(20, 30), 6), (9, 1)):
        yield "the positions", "places", {"t": t, "window": window}
    for T, V in ((1, 5), (4, 7), (6, 3)):
        oracle = draw.normal(T, V) * torch.arange(1, T + 1)[:, None] - 0.5
        yield "the distance", "distance", {"ours": oracle + draw.normal(T, V, scale=0.3), "oracle": oracle}


MUTANTS = [
    Mutant("the window shows one position too many", "past + i - window + 1)", "past + i - window)"),
    Mutant("the window shows one position too few", "past + i - window + 1)", "min(past + i, past + i - window + 2))"),
    Mutant("the mask is only causal: the window is not used", "max(0, past + i - window + 1)", "0"),
    Mutant("what comes can be seen", ": past + i + 1] = 0.0", ":] = 0.0"),
    Mutant("the position itself is hidden", ": past + i + 1] = 0.0", ": past + i] = 0.0"),
    Mutant(
        "the mask is aligned top left: the cache is not counted",
        "mask[i, max(0, past + i - window + 1) : past + i + 1]",
        "mask[i, max(0, i - window + 1) : i + 1]",
    ),
    Mutant("all rows have the last one's window", "max(0, past + i - window + 1)", "min(past + i, max(0, past + new - window))"),
    Mutant(
        "a negative start counts from the end: a window that is not full shows nothing",
        "max(0, past + i - window + 1)",
        "past + i - window + 1",
    ),
    Mutant("the first positions are kept, not the last", "[:, :, -window:]", "[:, :, :window]"),
    Mutant("nothing is dropped: the cache grows", "[:, :, -window:]", ""),
    Mutant("one position more than the window is kept", "[:, :, -window:]", "[:, :, -window - 1 :]"),
    Mutant("the new positions stand before the old ones", "torch.cat([old, new], dim=2)", "torch.cat([new, old], dim=2)"),
    Mutant("only the new positions are kept", "torch.cat([old, new], dim=2)", "new"),
    Mutant(
        "the heads are put behind one another, not the positions",
        "torch.cat([old, new], dim=2)[:, :, -window:]",
        "torch.cat([old, new], dim=1)[:, :, -window:]",
    ),
    Mutant(
        "the window is cut from the old ones before the new are there",
        "torch.cat([old, new], dim=2)[:, :, -window:]",
        "torch.cat([old[:, :, -window:], new], dim=2)",
    ),
    Mutant("the old keys are changed in place", "torch.cat([old, new], dim=2)", "torch.cat([old.mul_(1.001), new], dim=2)"),
    Mutant("the oracle counts from 0 in each window; these go on", "return list(range(n)), ", "return list(range(t - n, t)), "),
    Mutant(
        "the cache's positions are taken to move with the window; they stay in its pairs", "list(range(t - n, t))", "list(range(n))"
    ),
    Mutant(
        "the positions are listed newest first",
        "return list(range(n)), list(range(t - n, t))",
        "return list(range(n))[::-1], list(range(t - n, t))[::-1]",
    ),
    Mutant("the cache's positions are one too large", "list(range(t - n, t))", "list(range(t - n + 1, t + 1))"),
    Mutant(
        "oracle and cache are exchanged",
        "return list(range(n)), list(range(t - n, t))",
        "return list(range(t - n, t)), list(range(n))",
    ),
    Mutant("the window is taken for full though the text is shorter", "n = min(t, window)", "n = window"),
    Mutant("the difference is not set beside the largest logit", " / oracle.abs().amax(-1)", ""),
    Mutant("the largest logit is that of all steps, not of each", "/ oracle.abs().amax(-1)", "/ oracle.abs().max()"),
    Mutant("this is the mean difference, not the largest", ".abs().amax(-1) / oracle", ".abs().mean(-1) / oracle"),
    Mutant(
        "the largest logit is taken without its magnitude: a large negative one is overlooked",
        "oracle.abs().amax(-1)",
        "oracle.amax(-1)",
    ),
    Mutant("it is divided by our own logits, not by the oracle's", "/ oracle.abs()", "/ ours.abs()"),
    Mutant(
        "this is one number for all steps",
        "(ours - oracle).abs().amax(-1) / oracle.abs().amax(-1)",
        "(ours - oracle).abs().max() / oracle.abs().max()",
    ),
]

RUBRIC = """
1 point: the distance at each step: rounding until the window moves, far above it from then on, in a table or figure.
1 point: learned positions are in the keys and values already, and the oracle counts from 0 in each window.
1 point: keys and values of the upper layers come from a stream that has read tokens which the window no longer shows.
"""
