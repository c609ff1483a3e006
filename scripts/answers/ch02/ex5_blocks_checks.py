"""Checks of ch02.5: the bits of float16 and bfloat16, and blocks with a scale."""

import torch

from scripts.grading.answers import Mutant


def near_middle(draw):
    """[40] float32 that lie in the middle between two bfloat16, and a last bit beside it."""
    upper = draw.ids(0x7F00, 40).to(torch.int32) << 16
    bits = upper + 0x8000 + torch.tensor([0, 1, -1, 0], dtype=torch.int32).repeat(10)
    return bits.view(torch.float32) * torch.tensor([1.0, -1.0]).repeat(20)


def halves(draw):
    """[2, 64] whole numbers and halves; the largest of each 16 is 127, so that the scale is 1."""
    x = (draw.ids(252, 2, 64) - 126) + 0.5 * (draw.ids(4, 2, 64) > 0)
    x[:, ::16] = 127.0
    x[1, 16::16] = -127.0
    return x.float()


def cases(draw):
    for low, high in ((0x0400, 0x3C00), (0x3C00, 0x7BFF), (0x8400, 0xFBFF)) * 4:
        yield "float16", "float16_value", {"bits": draw.whole(low, high)}
    yield "float16", "float16_value", {"bits": 0x7C00}
    yield "float16", "float16_value", {"bits": 0xFC00}
    for bits in (0, 0x8000, 1, 0x3FF, 0x83FF, *(draw.whole(2, 1000) for _ in range(5))):
        yield "float16 next to 0", "float16_value", {"bits": bits}
    yield "bfloat16", "bfloat16_bits", {"x": draw.normal(50, scale=3.0)}
    yield "bfloat16", "bfloat16_bits", {"x": torch.tensor([0.0, -0.0, 1.0, 3.0e38, -1e-40, 2.0**-130, 65504.0, 1e30])}
    yield "bfloat16 in the middle between two", "bfloat16_bits", {"x": near_middle(draw)}
    for shape, n in (((32,), 32), ((3, 64), 16), ((2, 2, 48), 8), ((4, 6), 3)):
        yield "blocks", "to_blocks", {"x": draw.normal(*shape, scale=0.2), "n": n}
    yield "halves within blocks", "to_blocks", {"x": halves(draw), "n": 16}
    zeros = draw.normal(3, 32)
    zeros[1, :16] = 0
    zeros[2] = -zeros[2].abs()
    yield "a block of zeros", "to_blocks", {"x": zeros, "n": 16}
    for shape, n in (((32,), 32), ((3, 64), 16), ((2, 2, 48), 8)):
        scales = draw.normal(*shape[:-1], shape[-1] // n, scale=0.1).to(torch.float16)
        yield "back from blocks", "from_blocks", {"scales": scales, "whole": (draw.ids(255, *shape) - 127).to(torch.int8)}
    for n in (1, 2, 16, 32, 64, 256, 3, 5, 1000):
        yield "bytes per weight", "bytes_per_weight", {"n": n}
    for n in (4, 8, 16, 32, 64):
        like = draw.normal(8, 1, scale=1.0).exp() * draw.normal(8, 64, scale=0.1)
        yield "the error in the block", "error_in_block", {"x": like, "n": n}
        like[3] = 0
        yield "the error in the block", "error_in_block", {"x": like, "n": n}


TOLERANCE = {"float16": 1e-9, "float16 next to 0": 1e-9, "bytes per weight": 1e-9, "the error in the block": 1e-3}

MUTANTS = [
    Mutant("the exponent is that of float32: 127 is taken off, not 15", "exponent - 15", "exponent - 127"),
    Mutant("the exponent is off by one", "exponent - 15", "exponent - 16"),
    Mutant("the 1 before the mantissa's point is missing", "(1 + mantissa / 1024)", "(mantissa / 1024)"),
    Mutant("the mantissa is taken for one of 7 bits", "mantissa / 1024", "mantissa / 128"),
    Mutant("the sign is left out", "return -size if sign else size", "return size"),
    Mutant("numbers next to 0 get the 1 before the point like all others", "elif exponent == 0:", "elif bits == 0:"),
    Mutant("numbers next to 0 are taken for 0", "mantissa * 2.0**-24", "0.0"),
    Mutant("infinity is taken for a number like others", "if exponent == 31:", "if exponent == 32:"),
    Mutant("the lower half is cut off without rounding", "(bits + 0x7FFF + (bits >> 16 & 1)) >> 16", "bits >> 16"),
    Mutant("the middle between two is always rounded up", "0x7FFF + (bits >> 16 & 1)", "0x8000"),
    Mutant("the middle between two is always rounded towards 0", "0x7FFF + (bits >> 16 & 1)", "0x7FFF"),
    Mutant("a negative number's bits come out negative", " & 0xFFFFFFFF", ""),
    Mutant("this is the lower half", "(bits >> 16 & 1)) >> 16", "(bits >> 16 & 1)) & 0xFFFF"),
    Mutant("there is one scale for the whole tensor", "amax(1, keepdim=True) / 127", "amax().expand(len(blocks), 1) / 127"),
    Mutant("the scale is over 128", "keepdim=True) / 127", "keepdim=True) / 128"),
    Mutant(
        "the largest number is taken with its sign, and a block of negative numbers is lost",
        "blocks.abs().amax(1, keepdim=True)",
        "blocks.amax(1, keepdim=True).clamp(min=0)",
    ),
    Mutant("whole numbers are cut off, not rounded", "torch.floor(steps.abs() + 0.5)", "torch.floor(steps.abs())"),
    Mutant("halves go to the even neighbour", "torch.sign(steps) * torch.floor(steps.abs() + 0.5)", "steps.round()"),
    Mutant(
        "negative halves go upwards, not away from 0",
        "torch.sign(steps) * torch.floor(steps.abs() + 0.5)",
        "torch.floor(steps + 0.5)",
    ),
    Mutant(
        "the whole numbers are found with the scale that is rounded already",
        "steps = torch.where(scale > 0, blocks / scale, 0.0)",
        "steps = torch.where(scale > 0, blocks / scale.half().float(), 0.0)",
    ),
    Mutant(
        "a block of zeros gives NaN or infinity where its scale is divided by",
        "steps = torch.where(scale > 0, blocks / scale, 0.0)",
        "steps = (blocks / scale).nan_to_num(nan=1.0)",
    ),
    Mutant("the scale is kept in float32", "scale.to(torch.float16)", "scale"),
    Mutant("the blocks go across the rows, not along them", "blocks = x.reshape(-1, n)", "blocks = x.reshape(n, -1).T"),
    Mutant(
        "the scales are not laid over their own blocks",
        "whole.reshape(*scales.shape, -1).float() * scales.float()[..., None]",
        "whole.reshape(*scales.shape[:-1], -1, scales.shape[-1]).float() * scales.float()[..., None, :]",
    ),
    Mutant("what comes back is float16", "return blocks.reshape(whole.shape)", "return blocks.reshape(whole.shape).half()"),
    Mutant("these are bytes per weight without the scale", "1 + 2 / n", "1.0 + 0 / n"),
    Mutant("a float16 scale is counted with four bytes", "1 + 2 / n", "1 + 4 / n"),
    Mutant("these are bytes of a block", "1 + 2 / n", "n + 2.0"),
    Mutant(
        "the error is by the largest number of all, not by that of its block",
        "(off[most > 0] / most[most > 0]).max()",
        "(off.max() / most.max())",
    ),
    Mutant(
        "this is the mean error, not the largest",
        "(off[most > 0] / most[most > 0]).max()",
        "(off[most > 0] / most[most > 0]).mean()",
    ),
    Mutant(
        "the error is by the block's scale, not by its largest number", "/ most[most > 0]).max()", "/ most[most > 0] * 127).max()"
    ),
    Mutant("a block of zeros makes the error NaN", "(off[most > 0] / most[most > 0]).max()", "(off / most).max()"),
]

RANGES = {
    "bytes_per_weight_16": (1.1249, 1.1251),
    "bytes_per_weight_256": (1.0078, 1.0079),
    "error_in_block_16": (4.2e-3, 4.5e-3),
    "error_in_block_256": (4.2e-3, 4.5e-3),
}
WHOLE = "this is by each number's own size; the error in the block is by the block's largest number"
MISTAKES = {
    "bytes_per_weight_16": [
        (18, 18, "these are the bytes of a block"),
        (1.25, 1.25, "the scale is a float16, of two bytes"),
    ],
    "bytes_per_weight_256": [
        (258, 258, "these are the bytes of a block"),
        (1.015625, 1.015625, "the scale is a float16, of two bytes"),
    ],
    "error_in_block_16": [(1.0, 1.0045, WHOLE)],
    "error_in_block_256": [(1.0, 1.0045, WHOLE)],
}

RUBRIC = """
1 point: the formula, from a byte for each number and two for the scale.
1 point: by the block's largest number the error hardly moves: half a step and the scale's rounding. In absolute size it grows with
longer blocks, whose largest number is larger.
"""
