"""Checks of ch04.5: logits at the last position, and the FLOPs that are saved."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for B, T, d, V in ((1, 1, 4, 9), (2, 5, 6, 11), (3, 4, 8, 5), (1, 9, 3, 7)):
        like = {"gain": 1 + draw.normal(d, scale=0.3), "shift": draw.normal(d), "table": draw.normal(V, d)}
        yield "the logits", "last_logits", {"x": 1 + draw.normal(B, T, d), **like, "epsilon": draw.choice((1e-5, 0.1))}
    like = {name: draw.normal(*shape, dtype=torch.float64) for name, shape in (("gain", (4,)), ("shift", (4,)), ("table", (6, 4)))}
    yield "the logits in float64", "last_logits", {"x": draw.normal(2, 3, 4, dtype=torch.float64), **like, "epsilon": 1e-5}
    for T in (1, 2, 5, 16, 128, 512, 1000, 1024, 2048):
        sizes = {"d": draw.whole(60, 1600), "f": draw.whole(60, 6400), "L": draw.whole(1, 48), "V": draw.whole(200, 60_000)}
        yield "the saving", "saving_percent", {"T": T, **sizes}


TOLERANCE = {"the saving": 1e-6}

MUTANTS = [
    Mutant("the final norm is left out", "normed @ table.T", "last @ table.T"),
    Mutant("these are the logits of the first position", "x[:, -1]", "x[:, 0]"),
    Mutant("these are the logits of all positions, not of the last", "x[:, -1]", "x"),
    Mutant("the position's axis is still there: [B, 1, V] where [B, V] is asked for", "x[:, -1]", "x[:, -1:]"),
    Mutant("the mean is not taken off", "last - last.mean(-1, keepdim=True)", "last"),
    Mutant(
        "the variance is that of a sample, over d - 1",
        "(centred**2).mean(-1, keepdim=True)",
        "(centred**2).sum(-1, keepdim=True) / max(1, centred.shape[-1] - 1)",
    ),
    Mutant(
        "epsilon is added to the root, not within it", "torch.rsqrt(variance + epsilon)", "(1 / (torch.sqrt(variance) + epsilon))"
    ),
    Mutant("the gain is missing", " * gain + shift", " + shift"),
    Mutant("the shift is missing", " * gain + shift", " * gain"),
    Mutant(
        "the norm runs over the batch, not over the width",
        "last.mean(-1, keepdim=True)",
        "last.mean(0, keepdim=True)",
        (("(centred**2).mean(-1, keepdim=True)", "(centred**2).mean(0, keepdim=True)"),),
    ),
    Mutant("only the first sequence of a batch gets its logits", "return normed @ table.T", "return normed[:1] @ table.T"),
    Mutant("all positions' logits are taken for saved; those at the last are still made", "head * (T - 1) / T /", "head /"),
    Mutant("the attention over T x T is missing from the whole", " + 4 * T * T * d", ""),
    Mutant("scores and mixture are counted over the visible half of the square", "4 * T * T * d", "2 * T * (T + 1) * d"),
    Mutant("this is the saving beside what is left, not beside the whole", "/ (layers + head)", "/ (layers + head / T)"),
    Mutant("the feed-forward network is counted with one matrix", "2 * d * f", "d * f"),
    Mutant("this is a share, not per cent", "100 * head", "head"),
]

RANGES = {"saving_16_percent": (29.15, 29.3), "saving_128_percent": (30.35, 30.5), "saving_512_percent": (28.94, 29.0)}
ALL = "this is the whole of the output matrix; the last position's part of it is still computed"
MISTAKES = {
    "saving_16_percent": [(31.1, 31.25, ALL)],
    "saving_128_percent": [(30.63, 30.7, ALL)],
    "saving_512_percent": [(29.02, 29.035, ALL)],
}

RUBRIC = """
1 point: the logits at the last position are the same, with the difference that was allowed stated beforehand.
1 point: the time saved beside the FLOPs saved, at all three lengths, threads and machine stated.
1 point: an account of where they part, marked as a hypothesis: the head's matrix product runs at another rate than the rest.
"""
