"""Checks of ch02.6: Q4_0 and Q4_1, both ways."""

import torch

from scripts.grading.answers import Mutant


def blocks(draw):
    """[6, 32]: the largest number positive and negative, one block of one sign, far from 0."""
    x = draw.normal(6, 32, scale=0.3)
    x[0, 5], x[1, 20] = 2.0, -2.0
    x[3] = x[3].abs() + 1
    x[4] = -x[4].abs() - 1
    return x


def stored(draw, width, scales):
    """[5, width] bytes with float16 numbers of some size at their start."""
    numbers = draw.normal(5, scales).to(torch.float16).view(torch.uint8)
    return torch.cat([numbers, draw.ids(256, 5, width - 2 * scales).to(torch.uint8)], 1)


def cases(draw):
    for name, width, scales in (("q4_0", 18, 1), ("q4_1", 20, 2)):
        what = name.upper()
        yield f"bytes of {what}", f"to_{name}", {"x": blocks(draw)}
        yield f"bytes of {what}", f"to_{name}", {"x": draw.normal(1, 32, scale=20.0)}
        same = torch.cat([torch.zeros(1, 32), draw.normal(1, 32), torch.zeros(1, 32)])
        yield f"a block of zeros in {what}", f"to_{name}", {"x": same}
        yield f"numbers back from {what}", f"from_{name}", {"stored": stored(draw, width, scales)}
        yield f"numbers back from {what}", f"from_{name}", {"stored": stored(draw, width, scales)[:1]}
    tie = draw.normal(2, 32, scale=0.1)
    tie[0, 3], tie[0, 9], tie[1, 3], tie[1, 9] = 4.0, -4.0, -4.0, 4.0
    yield "two numbers of largest size in Q4_0", "to_q4_0", {"x": tie}
    yield "a block of one number in Q4_1", "to_q4_1", {"x": torch.full((2, 32), 0.5) * torch.tensor([[1.0], [-3.0]])}


MUTANTS = [
    Mutant("the scale loses the sign of the number of largest size", "x.gather(1, at) / -8", "x.gather(1, at).abs() / -8"),
    Mutant("the scale has the wrong sign", "x.gather(1, at) / -8", "x.gather(1, at) / 8"),
    Mutant("the scale is over 7, as if both signs had as many numbers", "x.gather(1, at) / -8", "x.gather(1, at) / -7"),
    Mutant(
        "the largest number is taken, not the one of largest size", "x.abs().argmax(1, keepdim=True)", "x.argmax(1, keepdim=True)"
    ),
    Mutant(
        "of two numbers of largest size the last is taken",
        "x.abs().argmax(1, keepdim=True)",
        "31 - x.flip(1).abs().argmax(1, keepdim=True)",
    ),
    Mutant(
        "there is one scale for all blocks", "scale = x.gather(1, at) / -8", "scale = (x.gather(1, at) / -8)[:1].expand(len(x), 1)"
    ),
    Mutant("a whole number is cut off, not rounded: 8 is added, not 8.5", "steps + 8.5", "steps + 8.0"),
    Mutant("16 does not fit into four bits, and runs over into the number beside it", "steps + 8.5).clamp(max=15)", "steps + 8.5)"),
    Mutant(
        "neighbours share a byte; it is number i and number i + 16",
        "whole[:, :16] | whole[:, 16:] << 4",
        "whole[:, ::2] | whole[:, 1::2] << 4",
        (("torch.cat([pairs & 15, pairs >> 4], 1)", "torch.stack([pairs & 15, pairs >> 4], 2).flatten(1)"),),
    ),
    Mutant(
        "neighbours are taken from a byte that number i and number i + 16 share",
        "torch.cat([pairs & 15, pairs >> 4], 1)",
        "torch.stack([pairs & 15, pairs >> 4], 2).flatten(1)",
    ),
    Mutant(
        "number i stands in the upper four bits, where number i + 16 belongs",
        "whole[:, :16] | whole[:, 16:] << 4",
        "whole[:, 16:] | whole[:, :16] << 4",
    ),
    Mutant("the upper four bits are read first", "[pairs & 15, pairs >> 4]", "[pairs >> 4, pairs & 15]"),
    Mutant(
        "the float16's higher byte stands first",
        "x.to(torch.float16).contiguous().view(torch.uint8)",
        "x.to(torch.float16).contiguous().view(torch.uint8).flip(1)",
    ),
    Mutant("a block of zeros divides by 0", "torch.where(scale != 0, x / scale, 0.0)", "(x / scale).nan_to_num(nan=-8.0)"),
    Mutant("the 8 is not taken off again", "(unpacked(stored[:, 2:]) - 8) * scale", "unpacked(stored[:, 2:]) * scale"),
    Mutant(
        "8.5 is taken off again; the half was for rounding alone",
        "(unpacked(stored[:, 2:]) - 8) * scale",
        "(unpacked(stored[:, 2:]) - 8.5) * scale",
    ),
    Mutant(
        "what comes back is float16",
        "return stored.contiguous().view(torch.float16).float()",
        "return stored.contiguous().view(torch.float16)",
        (("return torch.cat([pairs & 15, pairs >> 4], 1).float()", "return torch.cat([pairs & 15, pairs >> 4], 1).half()"),),
    ),
    Mutant(
        "the scale of Q4_1 is over 16; there are fifteen steps between sixteen values", "(most - least) / 15", "(most - least) / 16"
    ),
    Mutant("a whole number of Q4_1 is cut off, not rounded", "levels + 0.5", "levels"),
    Mutant(
        "scale and smallest number are stored in the other order",
        "[two_bytes(scale), two_bytes(least), packed(whole)]",
        "[two_bytes(least), two_bytes(scale), packed(whole)]",
    ),
    Mutant(
        "the scale of Q4_1 is that of the largest size, as if it had no minimum",
        "(most - least) / 15",
        "x.abs().amax(1, keepdim=True) / 15",
    ),
    Mutant(
        "a block of one number divides by 0",
        "torch.where(scale > 0, (x - least) / scale, 0.0)",
        "((x - least) / scale).nan_to_num(nan=15.0)",
    ),
    Mutant("the smallest number is not added again", "return least + unpacked", "return unpacked"),
    Mutant(
        "scale and smallest number are read in the other order",
        "scale, least = from_two_bytes(stored[:, :2])",
        "least, scale = from_two_bytes(stored[:, :2])",
    ),
]

RANGES = {"error_in_block": (0.1245, 0.1258), "relative_error": (0.9995, 1.0030)}
MISTAKES = {
    "error_in_block": [
        (0.0670, 0.0680, "this is Q4_1's own"),
        (0.0620, 0.0630, "half a step is a sixteenth, but the sign that has no 8 is cut off at 7: a whole step can be lost there"),
    ],
}

RUBRIC = """
1 point: the bytes beside the package's, and where they differ, if they do: halves, and the arithmetic on the way.
1 point: the minimum pays where a block lies far from 0 or on one side; where it lies evenly around 0 it gains little for two bytes.
"""
