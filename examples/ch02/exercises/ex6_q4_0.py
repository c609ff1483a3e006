r"""Q4_0.

This format has a float16 scale and 32 numbers of four bits, and no minimum. Write it and Q4_1 both ways, and compare with
`gguf.quantize`. *Hand in:* code, numbers, and whether the bytes agree. *A right answer shows* for which blocks the minimum of Q4_1
is worth its two bytes.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch02.6",
    "difficulty": 3,
    "minutes": 80,
    "points": {"code": 6, "numbers": 2, "paragraph": 2},
    "numbers": {
        "error_in_block": "Q4_0: the largest error by the block's largest number, of the embedded model's matrices",
        "relative_error": "Q4_0: the largest error by the number's own size, of those other than 0",
    },
}


def to_q4_0(x: Tensor) -> Tensor:
    """[blocks, 18] uint8: the bytes of float32 numbers x [blocks, 32] in Q4_0.

    Of a block, m is the number of largest size, the first of them, with its sign; the scale is m / -8 in float32. A whole number is
    x over the scale, plus 8.5, cut off to a whole number, and 15 where it would be 16; of a block of zeros it is 8, the scale 0.
    Stored are the scale as float16, its lower byte first, then 16 bytes: byte i has number i in its lower four bits and
    number i + 16 in its upper four.
    """
    raise NotImplementedError


def from_q4_0(stored: Tensor) -> Tensor:
    """[blocks, 32] float32 from the bytes [blocks, 18]: (whole number - 8) times the scale."""
    raise NotImplementedError


def to_q4_1(x: Tensor) -> Tensor:
    """[blocks, 20] uint8: the same in Q4_1, whose scale is (largest - smallest) / 15.

    A whole number is (x - smallest) over the scale, plus 0.5, cut off, at most 15; where all numbers are one it is 0, and the scale
    0. Stored are scale and smallest number as float16, then the 16 bytes as in Q4_0.
    """
    raise NotImplementedError


def from_q4_1(stored: Tensor) -> Tensor:
    """[blocks, 32] float32 from the bytes [blocks, 20]: smallest number + whole number times the scale."""
    raise NotImplementedError
