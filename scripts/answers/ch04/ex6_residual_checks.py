"""Checks of ch04.6: where the largest value stands, and how far it stands out."""

import torch

from scripts.grading.answers import Mutant

SHAPES = ((1, 8), (5, 3), (7, 8), (4, 4), (3, 16), (9, 1))


def stream(draw, T, d, sign):
    x = draw.normal(T, d)
    x[draw.whole(0, T - 1), draw.whole(0, d - 1)] = sign * draw.uniform(5, 9)
    return x


def cases(draw):
    for check, function in (("the place", "place"), ("the ratio", "ratio")):
        for sign in (1, -1):
            for T, d in SHAPES:
                yield check, function, {"x": stream(draw, T, d, sign)}
    for T, d in ((3, 4), (4, 3), (6, 2), (2, 6)):
        x = torch.round(draw.normal(T, d).clamp(-3, 3))
        x[1, 1], x[1, 0], x[0, d - 1] = 7, -7, -7
        yield "the place of equal values", "place", {"x": x}


TOLERANCE = {"the ratio": 1e-7}

MUTANTS = [
    Mutant(
        "the largest value is sought, not the largest magnitude: a negative one is overlooked",
        "at = x.abs()",
        "at = x",
        (
            ("x.double().abs().flatten().sort().values", "x.double().flatten()"),
            ("n = len(sizes)", "top, sizes = sizes.max(), sizes.abs().sort().values\n    n = len(sizes)"),
            ("sizes[-1] / median", "top / median"),
        ),
    ),
    Mutant("position and dimension are exchanged", "[at // x.shape[1], at % x.shape[1]]", "[at % x.shape[1], at // x.shape[1]]"),
    Mutant("the index is divided by T, not by d", "[at // x.shape[1], at % x.shape[1]]", "[at // x.shape[0], at % x.shape[0]]"),
    Mutant(
        "positions and dimensions are counted from 1, not from 0",
        "[at // x.shape[1], at % x.shape[1]]",
        "[at // x.shape[1] + 1, at % x.shape[1] + 1]",
    ),
    Mutant(
        "of equal values the last is taken, not the first",
        "x.abs().flatten().argmax().item()",
        "x.numel() - 1 - x.abs().flatten().flip(0).argmax().item()",
    ),
    Mutant(
        "of equal values the first dimension is taken, not the first position",
        "at = x.abs().flatten().argmax().item()",
        "at = x.abs().T.flatten().argmax().item()",
        (("[at // x.shape[1], at % x.shape[1]]", "[at % x.shape[0], at // x.shape[0]]"),),
    ),
    Mutant(
        "the median is the lower of the two in the middle, as torch.median has it, not their mean",
        "sizes[n // 2]",
        "sizes[(n - 1) // 2]",
    ),
    Mutant("this is the largest over the mean, not over the median", "(sizes[(n - 1) // 2] + sizes[n // 2]) / 2", "sizes.mean()"),
    Mutant(
        "this is the largest over the root mean square, not over the median",
        "(sizes[(n - 1) // 2] + sizes[n // 2]) / 2",
        "(sizes**2).mean().sqrt()",
    ),
    Mutant(
        "the median is that of the values, not of their magnitudes",
        "    n = len(sizes)\n",
        "    n = len(sizes)\n    top, sizes = sizes[-1], x.double().flatten().sort().values\n",
        (("sizes[-1] / median", "top / median"),),
    ),
    Mutant("the ratio is upside down", "sizes[-1] / median", "median / sizes[-1]"),
    Mutant("the magnitudes are made in place, and whoever called has another stream now", "x.double().abs()", "x.abs_().double()"),
]

RUBRIC = """
1 point: position, dimension and ratio of the largest value for each of five texts, and the model named.
1 point: says of these five whether the place is the same, and says nothing of texts that were not run.
"""
