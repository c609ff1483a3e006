r"""Another size.

Take a shape half as wide as GPT-2 with four times its layers. Estimate its weights, its GFLOP for a position, and the head's share
by hand and in code, then add it to `SIZES` in `examples/ch01/library.py` and run `examples/ch01/estimate.py`. *Hand in:* code,
numbers, and your arithmetic beside the program's row. *A right answer shows* that the layers' work stays the same, that the head's
is halved, and where the two counts of weights differ.
"""

EXERCISE = {
    "id": "ch01.1",
    "difficulty": 1,
    "minutes": 30,
    "points": {"code": 4, "numbers": 3, "paragraph": 2},
    "numbers": {
        "all_weights": "all weights of a GPT-2 of 48 layers of width 384, with GPT-2's vocabulary and 1,024 positions",
        "position_gflop": "its GFLOP for one position, attention's part left out",
        "head_percent": "the head's share of these, in per cent",
    },
}


def weights(layers: int, d: int, vocabulary: int, positions: int) -> dict[str, int]:
    """Weights of a GPT-2 by part, whole numbers.

    "layers": those of the matrices of all layers, 12 d^2 in each. "head": vocabulary times d. "multiplied": these two together.
    "all": "multiplied", and what no product of matrices has: the position table, d for each position; biases and norms, 13 d in
    each layer; the last norm, 2 d. The head's table is the one that ids are looked up in, and counts once.
    """
    raise NotImplementedError


def position_gflop(layers: int, d: int, vocabulary: int, seen: int = 0) -> float:
    """GFLOP of one position, 10^9 each: two FLOPs a weight that is multiplied, and 4 d in each layer for each position `seen`."""
    raise NotImplementedError


def head_percent(layers: int, d: int, vocabulary: int, seen: int = 0) -> float:
    """The head's share of the FLOPs of one position, in per cent."""
    raise NotImplementedError
