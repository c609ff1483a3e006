"""Checks of ch04.7: RMS norm."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for shape in ((1, 1, 8), (2, 5, 6), (3, 1, 7), (4, 9)):
        x = 0.7 + draw.normal(*shape, scale=draw.uniform(0.2, 3.0))
        yield "float32", "rms_norm", {"x": x, "gain": 1 + draw.normal(shape[-1], scale=0.4), "epsilon": 1e-5}
    for epsilon in (0.1, 1.0):
        yield "a large epsilon", "rms_norm", {"x": draw.normal(2, 3, 5, scale=0.5), "gain": 1 + draw.normal(5), "epsilon": epsilon}
    for scale in (1.0, 900.0):  # the squares of the second are beyond float16
        x, gain = draw.normal(2, 3, 8, scale=scale, dtype=torch.float16), (1 + draw.normal(8)).to(torch.float16)
        yield f"float16, numbers of about {scale:g}", "rms_norm", {"x": x, "gain": gain, "epsilon": 1e-5}
    x, gain = (draw.normal(*shape, dtype=torch.float64) for shape in ((2, 3, 4), (4,)))
    yield "float64", "rms_norm", {"x": x, "gain": gain, "epsilon": 1e-6}


TOLERANCE = {"float16, numbers of about 1": 2e-4, "float16, numbers of about 900": 2e-4, "float64": 1e-8}

MUTANTS = [
    Mutant("the mean is taken off, as in layer norm", "    mean =", "    wide = wide - wide.mean(-1, keepdim=True)\n    mean ="),
    Mutant("epsilon is added to the root, not within it", "torch.rsqrt(mean + epsilon)", "(1 / (torch.sqrt(mean) + epsilon))"),
    Mutant("epsilon is missing", "mean + epsilon", "mean"),
    Mutant("this divides by the root of the sum, not of the mean", ".mean(-1, keepdim=True)", ".sum(-1, keepdim=True)"),
    Mutant("this divides by the mean of the squares, without the root", "torch.rsqrt(mean + epsilon)", "(1 / (mean + epsilon))"),
    Mutant("the mean runs over the positions, not over the width", ".mean(-1, keepdim=True)", ".mean(-2, keepdim=True)"),
    Mutant("the mean runs over all positions at once, not over each by itself", ".mean(-1, keepdim=True)", ".mean()"),
    Mutant(
        "the mean is that of a sample, over d - 1",
        "(wide * wide).mean(-1, keepdim=True)",
        "(wide * wide).sum(-1, keepdim=True) / (x.shape[-1] - 1)",
    ),
    Mutant("the gain is missing", " * gain).to", ").to"),
    Mutant("one is added to the gain, as Gemma's norm has it", "* gain)", "* (1 + gain))"),
    Mutant(
        "the squares are made in the input's own dtype, and those of half precision overflow",
        "wide = x.to(torch.promote_types(x.dtype, torch.float32))",
        "wide = x",
    ),
    Mutant(
        "the result has not the dtype of x",
        "(wide * torch.rsqrt(mean + epsilon) * gain).to(x.dtype)",
        "(wide * torch.rsqrt(mean + epsilon) * gain).float()",
    ),
    Mutant(
        "x is changed in place, and whoever called has another now",
        "(wide * torch.rsqrt(mean + epsilon) * gain).to(x.dtype)",
        "x.copy_(wide * torch.rsqrt(mean + epsilon) * gain)",
    ),
]

RUBRIC = """
1 point: the logits change throughout and the text falls apart; the shifts have no place in the new norm and are unused.
1 point: gains were trained on centred vectors; uncentred ones have another spread in each dimension, so the gains do not fit.
1 point: the config must name the norm (as model families do), and the bundle loses the shifts; such a model wants training.
"""
