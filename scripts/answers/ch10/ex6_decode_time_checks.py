"""Checks of ch10.6: the FLOPs of a pass behind a cache, and shares."""

from scripts.grading.answers import Mutant

DRIVER = '''
def ranked(module, parts):
    """The shares with the order in which they stand."""
    found = module.shares(parts)
    return [list(found), list(found.values())]
'''


def sizes(draw):
    return {"d": draw.whole(10, 90), "f": draw.whole(100, 300), "L": draw.whole(2, 12), "V": draw.whole(400, 900)}


def cases(draw):
    for _ in range(4):
        yield "a decode step", "step_flops", {"S": draw.whole(2, 900), "new": 1, **sizes(draw)}
    for _ in range(4):
        new = draw.whole(2, 40)
        yield "a chunk", "step_flops", {"S": new + draw.whole(1, 300), "new": new, **sizes(draw)}
        yield "a whole pass", "step_flops", {"S": new, "new": new, **sizes(draw)}
    for count in (1, 3, 5, 8):
        names = [f"part{i}" for i in draw.order(count)]
        yield "shares", "ranked", {"parts": {name: draw.uniform(0.1, 9.0) for name in names}}
    for _ in range(3):
        yield "shares of equal parts", "ranked", {"parts": {f"p{i}": float(i % 2) for i in draw.order(6)}}
    for count in (2, 4, 3):
        yield "shares of nothing", "ranked", {"parts": {f"p{i}": 0.0 for i in draw.order(count)}}


MUTANTS = [
    Mutant(
        "a multiplication and its addition are counted as one",
        "2 * 4 * d * d",
        "4 * d * d",
        (("2 * 2 * new * S", "2 * new * S"), ("2 * 2 * d * f", "2 * d * f"), ("2 * d * V", "d * V")),
    ),
    Mutant(
        "every position is projected anew; those in the cache are not",
        "d * d * new * L",
        "d * d * S * L",
        (("d * f * new * L", "d * f * S * L"),),
    ),
    Mutant("scores are counted as S x S; the queries are those of the new tokens", "new * S * d", "S * S * d"),
    Mutant("scores are counted among the new tokens alone; the cache is read too", "new * S * d", "new * new * d"),
    Mutant("the mixture is missing: the scores alone are counted", "2 * 2 * new * S", "2 * new * S"),
    Mutant(
        "a decode step's count is given whatever `new` is",
        "2 * 2 * new * S",
        "2 * 2 * S",
        (("d * d * new * L", "d * d * L"), ("d * f * new * L", "d * f * L")),
    ),
    Mutant("attention has four matrices, not three: the output projection is one", "2 * 4 * d * d", "2 * 3 * d * d"),
    Mutant("the feed-forward network has two matrices", "2 * 2 * d * f", "2 * d * f"),
    Mutant("the feed-forward width is taken for 4 d", "2 * 2 * d * f", "2 * 2 * d * 4 * d"),
    Mutant("the head is counted at every new position; its logits are wanted at the last alone", "2 * d * V", "2 * d * V * new"),
    Mutant("the head is counted in every layer", "2 * d * V", "2 * d * V * L"),
    Mutant(
        "one layer is counted, not all",
        "new * S * d * L",
        "new * S * d",
        (("d * d * new * L", "d * d * new"), ("d * f * new * L", "d * f * new")),
    ),
    Mutant("these are shares of 1, not per cent", "100 * parts", "parts"),
    Mutant("this is a share beside the largest, not beside the whole", "sum(parts.values())", "max(parts.values())"),
    Mutant(
        "the components stand in the order in which they came",
        "sorted(parts, key=lambda name: (-parts[name], name))",
        "list(parts)",
    ),
    Mutant("the components stand smallest first", "(-parts[name], name)", "(parts[name], name)"),
    Mutant("the components stand by name", "(-parts[name], name)", "name"),
    Mutant("equal ones stand in the order in which they came, not by name", "(-parts[name], name)", "-parts[name]"),
    Mutant("where the whole is 0, this divides by it", " if whole else 0.0", ""),
]

RANGES = {"scores_16_percent": (0.236, 0.24), "scores_128_percent": (1.86, 1.885), "scores_512_percent": (7.08, 7.11)}
HEADLESS = "the head is missing from the whole"
HALF = "the scores alone are counted, without the mixture"
MISTAKES = {
    "scores_16_percent": [(0.344, 0.348, HEADLESS), (0.118, 0.12, HALF)],
    "scores_128_percent": [(2.68, 2.72, HEADLESS), (0.94, 0.955, HALF)],
    "scores_512_percent": [(9.95, 10.05, HEADLESS), (3.66, 3.7, HALF), (28.0, 28.6, "this is attention's share of a whole pass")],
}

RUBRIC = """
1 point: the table of times at the three lengths, medians, threads and machine stated; scores and mixture grow with the cache.
1 point: beside a whole pass: the head has a larger share, scores and mixture a smaller; the others hardly depend on S in a step.
"""
