"""Checks of ch04.3: both GELUs, and the comparison of logits."""

import torch

from scripts.grading.answers import Mutant

SHAPES = ((1, 1, 9), (2, 5, 7), (3, 1, 4))  # B, T, f


def cases(draw):
    for name in ("gelu_new", "gelu"):
        for shape in SHAPES:
            yield name, name, {"x": draw.normal(*shape, scale=2.0)}
        yield f"{name} in float64", name, {"x": draw.normal(2, 3, 4, dtype=torch.float64)}
    for i, (B, T, V) in enumerate(((1, 1, 5), (2, 6, 5), (3, 4, 9), (1, 7, 3))):
        a = draw.normal(B, T, V)
        b = a + draw.normal(B, T, V, scale=0.8)
        b[draw.whole(0, B - 1), draw.whole(0, T - 1), draw.whole(0, V - 1)] += 9 * (-1) ** i  # the largest change, up or down
        yield "the comparison", "change", {"a": a, "b": b}


# The two forms differ by 5e-4 at most, so a check that told them apart no better than 1e-4 of all would be of no use.
TOLERANCE = {"gelu_new": 1e-6, "gelu": 1e-6, "gelu_new in float64": 1e-7, "gelu in float64": 1e-7, "the comparison": 1e-5}

MUTANTS = [
    Mutant(
        "the two functions are exchanged",
        "def gelu_new(x):",
        "def gelu_other(x):",
        (("def gelu(x):", "def gelu_new(x):"), ("def change(a, b):", "gelu = gelu_other\n\n\ndef change(a, b):")),
    ),
    Mutant("gelu is the form with tanh, and should be that with erf", "0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "gelu_new(x)"),
    Mutant(
        "the factor 0.5 is missing",
        "return 0.5 * x * (1 + torch.tanh",
        "return x * (1 + torch.tanh",
        (("return 0.5 * x * (1 + torch.erf", "return x * (1 + torch.erf"),),
    ),
    Mutant("the cube is missing: x squared stands in its place", "x**3", "x**2"),
    Mutant("the factor is 2 / pi, not its root", "math.sqrt(2 / math.pi)", "(2 / math.pi)"),
    Mutant("erf gets x, not x over the root of 2", "x / math.sqrt(2)", "x"),
    Mutant(
        "gelu_new is the short form x sigmoid(1.702 x)",
        "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
        "x * torch.sigmoid(1.702 * x)",
    ),
    Mutant(
        "x is changed in place, and whoever called has another now",
        "return 0.5 * x * (1 + torch.erf",
        "return x.mul_(0.5) * (1 + torch.erf",
        (("torch.erf(x / math", "torch.erf(2 * x / math"),),
    ),
    Mutant(
        "everything is turned to float32 on the way",
        "torch.tanh(math.sqrt(2 / math.pi) * (x",
        "torch.tanh(math.sqrt(2 / math.pi) * (x.float()",
        (
            ("torch.erf(x /", "torch.erf(x.float() /"),
            ("return 0.5 * x * (1 + torch.tanh", "return 0.5 * x.float() * (1 + torch.tanh"),
            ("return 0.5 * x * (1 + torch.erf", "return 0.5 * x.float() * (1 + torch.erf"),
        ),
    ),
    Mutant("the largest difference is not that of absolute values", "(a - b).abs().max()", "(a - b).max()"),
    Mutant("the difference is the mean, not the largest", ".abs().max().item()", ".abs().mean().item()"),
    Mutant(
        "only the last position is compared",
        "moved = a.argmax(-1) != b.argmax(-1)",
        "a, b = a[:, -1:], b[:, -1:]\n    moved = a.argmax(-1) != b.argmax(-1)",
    ),
    Mutant(
        "the positions are those where the argmax stays, not those where it moves",
        "a.argmax(-1) != b.argmax(-1)",
        "a.argmax(-1) == b.argmax(-1)",
    ),
    Mutant(
        "the argmax is taken over the positions, not over the vocabulary",
        "a.argmax(-1) != b.argmax(-1)",
        "a.argmax(1) != b.argmax(1)",
    ),
    Mutant("only the first sequence of a batch is looked at", "moved.nonzero()", "moved[:1].nonzero()"),
]

RANGES = {"largest_change": (0.0057, 0.0064), "argmaxes_moved": (0, 0)}
MISTAKES = {
    "largest_change": [
        (
            0.0005,
            0.0012,
            "this looks like a mean over the logits, or the change of the activation itself; ask for the largest of a logit",
        ),
        (0.0113, 0.0123, "this is what a text at full context gives; the four prompts are asked for"),
    ],
    "argmaxes_moved": [(42, 48, "these are all positions; count those at which the most probable token differs")],
}

RUBRIC = """
1 point: the change is hundreds of times what rounding does in float32, and hardly an argmax moves, also at full context.
1 point: a tolerance chosen after looking can be made to pass anything; it has to come from what the dtype and the sums explain.
"""
