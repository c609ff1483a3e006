r"""When masks outweigh the weights.

For GPT-2 small's width and depth, find the number of positions from which masks outweigh the parameters, by a formula and with
`sizes` in `examples/ch02/buffers.py`. *Hand in:* code, numbers and formula. *A right answer shows* that the position table grows as
well, in proportion, and the masks with the square.
"""

EXERCISE = {
    "id": "ch02.2",
    "difficulty": 1,
    "minutes": 30,
    "points": {"code": 4, "numbers": 2, "paragraph": 2},
    "numbers": {
        "positions_float32": "the least number of positions at which GPT-2 small's masks in float32 outweigh its parameters",
        "positions_uint8": "the same with masks of one byte a number",
    },
}


def parameters(positions: int, layers: int, d: int, vocabulary: int) -> int:
    """Parameters of a GPT-2 with a tied head: vocabulary times d in the token table, d for each position, 12 d^2 + 13 d in each
    layer, 2 d in the last norm."""
    raise NotImplementedError


def mask_bytes(positions: int, layers: int, each: int = 4) -> int:
    """Bytes of the masks of all layers, positions times positions numbers of `each` bytes."""
    raise NotImplementedError


def outweighed_from(layers: int, d: int, vocabulary: int, each: int = 4) -> int:
    """The least number of positions, 1 or more, at which the masks take more bytes than the parameters in float32; where both take
    the same it is not reached yet. Exact whole numbers, and quick for any shape: within 100 steps."""
    raise NotImplementedError
