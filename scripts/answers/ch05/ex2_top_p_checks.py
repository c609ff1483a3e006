"""Checks of ch05.2: top-p and its edges."""

import torch

from scripts.grading.answers import Mutant


def row(draw, *shape, dtype=torch.float32):
    return draw.normal(*shape, scale=1.5, dtype=dtype)


def cases(draw):
    for V in (5, 9, 30):
        for p in (0.3, 0.6, 0.9, 0.97):
            yield "one row", "keep_top_p", {"logits": row(draw, V), "p": p}
    for shape in ((4, 7), (2, 3, 6), (6, 1)):
        yield "many rows", "keep_top_p", {"logits": row(draw, *shape), "p": draw.uniform(0.4, 0.9)}
    yield "float64", "keep_top_p", {"logits": row(draw, 3, 8, dtype=torch.float64), "p": 0.8}
    for p in (1e-9, 1e-4, 0.05):
        yield "the best token stays", "keep_top_p", {"logits": row(draw, 3, 6), "p": p}
    for _ in range(2):
        flat = torch.zeros(8) + draw.uniform(-3, 3)
        for p in (0.3, 0.5625, 0.8):  # equal ones, and never at a border
            yield "equal logits", "keep_top_p", {"logits": flat, "p": p}
    for _ in range(3):
        logits = row(draw, 2, 8)
        logits[:, draw.whole(0, 7)] = logits.max() + draw.uniform(18, 40)  # the others have hardly a thousandth of a millionth
        yield "p = 1", "keep_top_p", {"logits": logits, "p": 1.0}
    for _ in range(3):
        logits = row(draw, 2, 9)
        logits[:, draw.order(9)[:4]] = -torch.inf
        yield "what top-k has cut", "keep_top_p", {"logits": logits, "p": draw.uniform(0.5, 0.9)}


ABOVE = (
    "    order = logits.argsort(dim=-1, descending=True, stable=True)\n"
    "    ranked = torch.softmax(logits.gather(-1, order), dim=-1)\n"
    "    cut = {}\n    cut[..., 0] = False\n"
)
BELOW = (
    "    order = logits.argsort(dim=-1, descending=True, stable=True).flip(-1)\n"
    "    from_below = torch.softmax(logits.gather(-1, order), dim=-1).cumsum(-1)\n"
    "    cut = from_below <= 1 - p\n    cut[..., -1] = False\n"
)

MUTANTS = [
    Mutant("the token that crosses p is dropped; it has to stay", BELOW, ABOVE.format("ranked.cumsum(-1) > p")),
    Mutant(
        "the best token may be cut; where p is small nothing is left",
        BELOW,
        ABOVE.format("ranked.cumsum(-1) > p").replace("    cut[..., 0] = False\n", ""),
    ),
    Mutant(
        "one token more than the one that crosses is kept",
        BELOW,
        ABOVE.format("ranked.cumsum(-1) - ranked - ranked.roll(1, -1) >= p"),
    ),
    Mutant("what stands below 1 - p is kept, and the rest is cut", "from_below <= 1 - p", "from_below > 1 - p"),
    Mutant("p and 1 - p are exchanged", "from_below <= 1 - p", "from_below <= p"),
    Mutant(
        "the mass is summed by id; the row has to be sorted first",
        "logits.argsort(dim=-1, descending=True, stable=True).flip(-1)",
        "torch.arange(logits.shape[-1]).expand(logits.shape).flip(-1)",
    ),
    Mutant("the marks are not put back at the places of their ids", "cut.scatter(-1, order, cut)", "cut"),
    Mutant(
        "the marks go back to the wrong ids: the order is used where its inverse is needed",
        "cut.scatter(-1, order, cut)",
        "cut.gather(-1, order)",
    ),
    Mutant("what is cut is set to 0, which is a logit like any other", "-math.inf)", "0.0)"),
    Mutant("this cuts tokens whose own probability is below 1 - p", "dim=-1).cumsum(-1)", "dim=-1)"),
    Mutant("the sum runs over the rows, not over the tokens of a row", ".cumsum(-1)", ".cumsum(0)"),
    Mutant(
        "of equal logits the higher ids stay; the lower ones should",
        "logits.argsort(dim=-1, descending=True, stable=True).flip(-1)",
        "logits.argsort(dim=-1, stable=True)",
    ),
    Mutant(
        "at p = 1 tokens of tiny probability are cut: a sum from above is rounded to 1 before it reaches them",
        BELOW,
        ABOVE.format("ranked.cumsum(-1) - ranked >= p"),
    ),
    Mutant(
        "the kept set of the first row is taken for every row",
        "cut[..., -1] = False",
        "cut[..., -1] = False\n    cut = cut.reshape(-1, cut.shape[-1])[0].expand(cut.shape).clone()",
    ),
    Mutant("everything is turned to float32 on the way", "return logits.masked_fill", "return logits.float().masked_fill"),
    Mutant("the logits that were given are changed in place", "logits.masked_fill(", "logits.masked_fill_("),
    Mutant(
        "these are probabilities; the logits are asked for",
        "return logits.masked_fill",
        "return torch.softmax(logits, -1).masked_fill",
    ),
]

# the rule may be broken at its border in several ways: with the token that reaches p exactly cut as well, or not, and at p = 1
RANGES = {"rows_that_notice": (165, 335)}
MISTAKES = {
    "rows_that_notice": [
        (600, 800, "these are the rows in which the same tokens are kept; those are asked for in which others are"),
        (900, 1000, "these are the rows that are compared; those are asked for in which other tokens are kept"),
    ]
}

RUBRIC = """
1 point: rows with one token kept cannot notice, since the best stays by its own line; p = 1 and top-p off cannot either.
1 point: where nothing is kept, all logits are minus infinity and softmax gives NaN, zero divided by zero.
"""
