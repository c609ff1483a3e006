"""Checks of ch11.4: blocks of four bits, unpacked and multiplied."""

import torch

from scripts.grading.answers import Mutant


def some_blocks(draw, *shape):
    """uint8 [*shape, 20] with scales around 0.1 and minima around -1."""
    halves = torch.stack([draw.normal(*shape, scale=0.1), draw.normal(*shape) - 1], dim=-1).half()  # [*shape, 2]
    return torch.cat([halves.view(torch.uint8), draw.ids(256, *shape, 16).to(torch.uint8)], dim=-1)


def cases(draw):
    for _ in range(3):
        yield "a block", "unpack", {"block": some_blocks(draw, 1)[0]}
    for rows, count in ((1, 1), (5, 1), (3, 2), (4, 5), (2, 9)):
        yield "the product", "times", {"blocks": some_blocks(draw, rows, count), "x": draw.normal(32 * count)}


MUTANTS = [
    Mutant("the low and the high halves of the bytes are exchanged", "[packed & 15, packed >> 4]", "[packed >> 4, packed & 15]"),
    Mutant(
        "the two numbers of a byte stand side by side; they are 16 places apart",
        "torch.cat([packed & 15, packed >> 4], dim=-1)",
        "torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)",
    ),
    Mutant("whole numbers are read as signed, -8 to 7; they are 0 to 15", "dim=-1).float()", "dim=-1).float() - 8"),
    Mutant(
        "scale and minimum are exchanged",
        "return halves[..., :1], halves[..., 1:], whole",
        "return halves[..., 1:], halves[..., :1], whole",
    ),
    Mutant("only three bits of the low half are kept", "packed & 15", "packed & 7"),
    Mutant("the minimum is subtracted, not added", "scale * whole + minimum", "scale * whole - minimum"),
    Mutant("the minimum is scaled too", "scale * whole + minimum", "scale * (whole + minimum)"),
    Mutant(
        "the minimum is added once for a block; it belongs to each of the 32 numbers",
        "minimum[..., 0] * x.sum(-1)",
        "minimum[..., 0]",
    ),
    Mutant("the minimum is left out of the product", " + minimum[..., 0] * x.sum(-1)", ""),
    Mutant("the minimum meets the mean of x, not its sum", "minimum[..., 0] * x.sum(-1)", "minimum[..., 0] * x.mean(-1)"),
    Mutant("it is right for rows of one block only", "return of_each.sum(-1)", "return of_each[..., 0]"),
    Mutant("the sum over blocks is a mean", "return of_each.sum(-1)", "return of_each.mean(-1)"),
    Mutant("the vector is cut the wrong way: every so many numbers, not 32 in a row", "x = x.view(-1, 32)", "x = x.view(32, -1).T"),
    Mutant(
        "x is changed in place, and whoever called has another now",
        "x = x.view(-1, 32)",
        "x = x.mul_(1.0000001).add_(1e-6).view(-1, 32)",
    ),
]

RUBRIC = """
1 point: the largest difference of the two ways, as a part of the largest result, is that of rounding in float32.
1 point: the scale is multiplied once a block in place of 32 times, and the sum of x is the same for every row.
1 point: a register wants the same place of many rows side by side, while the file has a row's places side by side.
"""
