"""Checks of ch01.1: weights, FLOPs and the head's share."""

from scripts.grading.answers import Mutant


def shape(draw):
    return {"layers": draw.whole(2, 30), "d": draw.whole(20, 200), "vocabulary": draw.whole(1000, 9000)}


def cases(draw):
    for layers, d, vocabulary in ((1, 1, 1), (1, 8, 3)):
        yield "the weights", "weights", {"layers": layers, "d": d, "vocabulary": vocabulary, "positions": draw.whole(1, 9)}
    for _ in range(4):
        yield "the weights", "weights", {**shape(draw), "positions": draw.whole(10, 3000)}
    for _ in range(9):
        yield "FLOPs, none seen", "position_gflop", shape(draw)
        yield "FLOPs with positions seen", "position_gflop", {**shape(draw), "seen": draw.whole(100, 4000)}
        yield "the head's share, none seen", "head_percent", shape(draw)
        yield "the head's share with positions seen", "head_percent", {**shape(draw), "seen": draw.whole(100, 4000)}


TOLERANCE = 1e-9

MUTANTS = [
    Mutant(
        "a layer has 12 d^2 weights in its matrices; these are attention's 4 d^2 alone",
        "matrices, head = layers * 12",
        "matrices, head = layers * 4",
    ),
    Mutant(
        'the head\'s table is counted twice in "all"; it is the one that ids are looked up in',
        '"all": matrices + head + rest',
        '"all": matrices + 2 * head + rest',
    ),
    Mutant("the head is missing from what is multiplied", '"multiplied": matrices + head', '"multiplied": matrices'),
    Mutant('"all" has nothing but what is multiplied', '"all": matrices + head + rest', '"all": matrices + head'),
    Mutant('the position table is missing from "all"', "positions * d + layers", "layers"),
    Mutant('the last norm is missing from "all"', " + 2 * d\n", "\n"),
    Mutant("biases and norms are counted for one layer only", "layers * 13 * d", "13 * d"),
    Mutant(
        "each weight is one FLOP here; it takes a multiplication and an addition",
        "(2 * (layers * 12 * d**2 + vocabulary * d) + attention)",
        "(layers * 12 * d**2 + vocabulary * d + attention)",
    ),
    Mutant("the head's work is left out of a position's FLOPs", "12 * d**2 + vocabulary * d)", "12 * d**2)"),
    Mutant("attention to the positions seen is counted for one layer only", "layers * 4 * d * seen", "4 * d * seen"),
    Mutant(
        "attention is counted with 2 d for each position seen: scores or mixture, not both",
        "layers * 4 * d * seen",
        "layers * 2 * d * seen",
    ),
    Mutant("the positions seen are left out", "layers * 4 * d * seen", "0"),
    Mutant(
        "the share is taken of the layers alone, not of the whole",
        "position_gflop(layers, d, vocabulary, seen)\n",
        "position_gflop(layers, d, 0, seen)\n",
    ),
    Mutant(
        "the share is that of a position that looks at none, whatever `seen` says",
        "position_gflop(layers, d, vocabulary, seen)\n",
        "position_gflop(layers, d, vocabulary)\n",
    ),
    Mutant("the share is a part of 1, not per cent", "100 * (2", "(2"),
    Mutant("the result is in FLOP or MFLOP, not in GFLOP", "attention) / 1e9", "attention) / 1e6"),
    Mutant(
        "the sizes are those of GPT-2, whatever is given",
        "    attention = layers",
        "    d, vocabulary = 768, 50257\n    attention = layers",
    ),
]

RANGES = {"all_weights": (104_866_944, 104_866_944), "position_gflop": (0.2080, 0.2089), "head_percent": (18.4, 18.6)}
MISTAKES = {
    "all_weights": [
        (104_233_344, 104_233_344, "these are the weights that are multiplied; table of positions, biases and norms are missing"),
        (124_439_808, 124_439_808, "these are GPT-2's own"),
    ],
    "position_gflop": [(0.104, 0.1048, "this is one FLOP a weight"), (0.246, 0.249, "this is GPT-2's own")],
    "head_percent": [(30.9, 31.5, "this is GPT-2's own"), (22.6, 22.9, "this is the head beside the layers, not beside the whole")],
}

RUBRIC = """
1 point: the arithmetic beside the row: layers as in GPT-2, since 48 times 384^2 is 12 times 768^2; the head halved.
1 point: the counts of weights differ by the position table, biases and norms, which no matrix product has.
"""
