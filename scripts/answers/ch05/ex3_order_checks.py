"""Checks of ch05.3: filters in the order asked for, and the draw."""

import itertools

import torch

from scripts.grading.answers import Mutant

NAMES = ("temperature", "top_k", "top_p")


def settings(draw, names, V, temperature=None):
    return {
        "logits": draw.normal(V, scale=2.0),
        "order": list(names),
        "temperature": temperature or draw.uniform(0.4, 3.0),
        "top_k": draw.whole(2, V),
        "top_p": draw.uniform(0.5, 0.95),
    }


def cases(draw):
    for name in NAMES:
        for V in (2, 6, 12):
            yield f"{name} alone", "filtered", settings(draw, [name], V)
    for order in itertools.permutations(NAMES):
        for V in (7, 15):
            yield "all three, in each order", "filtered", settings(draw, order, V, draw.uniform(1.8, 3.0))
    for _ in range(2):
        yield "no filter", "filtered", settings(draw, [], 8)
    for k in (1, 3, 5):
        equal = {"logits": torch.round(draw.normal(9)), "order": ["top_k"], "temperature": 1.0, "top_k": k, "top_p": 1.0}
        yield "top_k of equal logits", "filtered", equal
    yield "top_k of equal logits", "filtered", {**equal, "logits": torch.zeros(50) + draw.uniform(), "top_k": 7}
    for p in (1e-9, 1e-3, 0.1):
        yield "a small p", "filtered", {**settings(draw, ["top_p"], 6), "top_p": p}
    for V in (1, 2, 5, 9, 20, 20, 20, 20):
        yield "the draw", "drawn", {"probabilities": torch.softmax(draw.normal(V), dim=0), "u": draw.uniform()}
    for i in range(4):
        yield "the draw at the border", "drawn", {"probabilities": torch.tensor([0.25, 0.25, 0.0, 0.0, 0.5]), "u": i / 4}
        yield (
            "the draw at the border",
            "drawn",
            {"probabilities": torch.tensor([0.0] * (i + 1) + [0.5, 0.5]), "u": draw.choice((0.0, 0.5))},
        )
    for _ in range(8):
        rest = torch.softmax(draw.normal(6), dim=0) * draw.uniform(0.2, 0.5)
        yield "the draw where the sum is not 1", "drawn", {"probabilities": rest, "u": draw.uniform(0.6, 0.99)}


MUTANTS = [
    Mutant(
        "the filters run in an order of their own, not in the one asked for",
        "for name in order:",
        'for name in [n for n in ("temperature", "top_k", "top_p") if n in order]:',
    ),
    Mutant("the order is taken from its end", "for name in order:", "for name in order[::-1]:"),
    Mutant(
        "the filters all look at the first logits, not at what the earlier ones left",
        "    for name in order:",
        "    first, masks = logits, []\n    for name in order:",
        (("ranked = torch.softmax(logits[ranking], dim=0)", "ranked = torch.softmax(first[ranking], dim=0)"),),
    ),
    Mutant("the logits are multiplied by the temperature, not divided", "/ temperature", "* temperature"),
    Mutant("the temperature is not used", "(logits - logits.max()) / temperature", "logits"),
    Mutant("top_k keeps one too many", "ranking[top_k:]", "ranking[top_k + 1 :]"),
    Mutant("top_k cuts the best and keeps the rest", "ranking[top_k:]", "ranking[: len(ranking) - top_k]"),
    Mutant(
        "of equal logits top_k keeps the higher ids",
        "logits.argsort(descending=True, stable=True)",
        "logits.argsort(stable=True).flip(0)",
    ),
    Mutant(
        "top_p drops the token that crosses p; it has to stay", "ranked.cumsum(0) - ranked >= top_p", "ranked.cumsum(0) > top_p"
    ),
    Mutant(
        "top_p keeps one token more than the one that crosses",
        "ranked.cumsum(0) - ranked >= top_p",
        "ranked.cumsum(0) - ranked - ranked.roll(1) >= top_p",
    ),
    Mutant(
        "the best token may be cut where p is small",
        "            cut[0] = False\n",
        "",
        (("ranked.cumsum(0) - ranked >= top_p", "ranked.cumsum(0) > top_p"),),
    ),
    Mutant("the places by rank are taken for ids", "ranking[cut]", "cut.nonzero().flatten()"),
    Mutant(
        "what is cut keeps its share: the rest does not sum to 1 again",
        "return torch.softmax(logits, dim=0)",
        "return torch.where(logits == -math.inf, 0.0, torch.softmax(whole, dim=0))",
        (
            ("    for name in order:", "    whole = logits\n    for name in order:"),
            ("/ temperature", "/ temperature\n            whole = logits"),
        ),
    ),
    Mutant(
        "the last id whose sum is at most u is taken, not the first above it",
        "int((cumulative > u * cumulative[-1]).int().argmax())",
        "max(0, int((cumulative <= u * cumulative[-1]).sum()) - 1)",
    ),
    Mutant("the border is taken for above: an id of probability 0 can be drawn", "cumulative > u", "cumulative >= u"),
    Mutant("the sum is taken for 1; it is 1 only where nothing is missing", "u * cumulative[-1]", "u"),
    Mutant(
        "the most probable id is taken; u has to choose",
        "int((cumulative > u * cumulative[-1]).int().argmax())",
        "int(probabilities.argmax())",
    ),
    Mutant(
        "the ids are sorted by probability before the sum, which is to run by id",
        "probabilities.double().cumsum(0)",
        "probabilities.double().sort(descending=True).values.cumsum(0)",
    ),
    Mutant(
        "u is compared with the probabilities, not with their sum",
        "cumulative = probabilities.double().cumsum(0)",
        "cumulative = probabilities.double()",
    ),
]

RUBRIC = """
1 point: a row and settings whose kept sets differ between the two orders, both sets stated, and both texts from one seed.
1 point: neither order is wrong; the same numbers for temperature and p mean another choice until the order is stated.
"""
