"""Checks of ch02.2: parameters, bytes of masks, and where the one outweighs the other."""

from scripts.grading.answers import Mutant


def shape(draw):
    return {"layers": draw.whole(1, 48), "d": draw.whole(8, 900), "vocabulary": draw.whole(50, 60_000)}


def even(draw):
    """A shape whose masks and parameters take the same at some number of positions, in four bytes a number."""
    d, k, layers = draw.whole(4, 40), draw.whole(5, 9), draw.whole(1, 6)
    return {"layers": layers, "d": d, "vocabulary": layers * k * k * d - 12 * layers * d - 13 * layers - 2 - k * d}


def cases(draw):
    for positions in (1, 2, 17, 256, 1024, 3000, 9, 64, 100):
        yield "the parameters", "parameters", {"positions": positions, **shape(draw)}
        yield "bytes of masks", "mask_bytes", {"positions": positions, "layers": draw.whole(2, 48)}
        yield "bytes of masks in one byte a number", "mask_bytes", {"positions": positions, "layers": draw.whole(2, 9), "each": 1}
    for _ in range(9):
        yield "where they outweigh", "outweighed_from", shape(draw)
        yield "where masks in one or two bytes outweigh", "outweighed_from", {**shape(draw), "each": draw.choice((1, 2))}
        yield "where both take the same", "outweighed_from", even(draw)


MUTANTS = [
    Mutant("the position table is missing from the parameters", " + positions * d", ""),
    Mutant("the position table has the positions of GPT-2, whatever is given", "positions * d", "1024 * d"),
    Mutant("the head is counted beside the token table; they are one", "vocabulary * d +", "2 * vocabulary * d +"),
    Mutant("biases and norms of the layers are missing", " + 13 * d", ""),
    Mutant("the last norm is missing", " + 2 * d\n", "\n"),
    Mutant("this is one layer's mask, not that of all", "layers * positions**2 * each", "positions**2 * each"),
    Mutant("a mask has a number for each pair of positions: the square", "positions**2", "positions"),
    Mutant(
        "only the half of a mask that is ones is counted; the zeros are stored as well",
        "positions**2 * each",
        "positions * (positions + 1) // 2 * each",
    ),
    Mutant("these are numbers, not bytes", "layers * positions**2 * each", "layers * positions**2"),
    Mutant("the parameters are counted, not their bytes", "> 4 * parameters", "> parameters"),
    Mutant(
        "it is reached one step too early: there both take the same, or the masks less",
        "> 4 * parameters(middle",
        ">= 4 * parameters(middle",
    ),
    Mutant("this is the last number at which the masks do not outweigh yet", "    return high", "    return low"),
    Mutant("the position table is taken to stay as it is while the masks grow", "4 * parameters(middle,", "4 * parameters(1024,"),
    Mutant(
        "the masks are taken in four bytes a number, whatever is given",
        "mask_bytes(middle, layers, each)",
        "mask_bytes(middle, layers)",
    ),
]

RANGES = {"positions_float32": (3243, 3243), "positions_uint8": (6550, 6550)}
MISTAKES = {
    "positions_float32": [
        (3242, 3242, "there the masks do not outweigh yet"),
        (3221, 3221, "the position table is taken to stay as it is while the masks grow"),
        (6550, 6550, "these are masks of one byte a number"),
    ],
    "positions_uint8": [
        (6549, 6549, "there the masks do not outweigh yet"),
        (3243, 3243, "these are masks of four bytes a number"),
    ],
}

RUBRIC = """
1 point: the formula: 12 n^2 > P + 768 n with P all parameters but the position table's, solved for n; the program agrees.
1 point: the position table grows in proportion to n, the masks with its square; so every shape has such a number.
"""
