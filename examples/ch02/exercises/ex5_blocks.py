r"""Other blocks.

Write float16 and bfloat16 bit by bit, and blocks of $n$ numbers. Make Q8_0's block $16$, $64$ and $256$ numbers long (`BLOCK` in
`examples/ch02/storage_formats.py`; leave Q4_1 out). *Hand in:* code, numbers, and your reading. *A right answer shows* the formula
$1 + 2 / n$, and how the error moves.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch02.5",
    "difficulty": 2,
    "minutes": 60,
    "points": {"code": 6, "numbers": 2, "paragraph": 2},
    "numbers": {
        "bytes_per_weight_16": "bytes per weight of Q8_0 in blocks of 16 numbers",
        "bytes_per_weight_256": "the same in blocks of 256",
        "error_in_block_16": "the largest error by the block's largest number, of the embedded model's matrices in blocks of 16",
        "error_in_block_256": "the same in blocks of 256",
    },
}


def float16_value(bits: int) -> float:
    """The number that 16 bits stand for as a float16: sign, 5 bits of exponent, 10 of mantissa, the sign highest.

    An exponent of 1 to 30 stands for 2 to the power exponent - 15, and the mantissa for what 1.0 has behind its point; an exponent
    of 0 is for numbers near 0, in steps of 2**-24. Of the exponent 31 only the two infinities are asked for. By arithmetic alone.
    """
    raise NotImplementedError


def bfloat16_bits(x: Tensor) -> Tensor:
    """[n] int64, 0 to 65535: the bits of the bfloat16 next to each float32 of x [n]: its upper half, rounded to the nearest, and in
    the middle between two to the one whose last bit is 0. x is finite and stays as it is. Convert to no 16-bit dtype."""
    raise NotImplementedError


def to_blocks(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """(scales [..., k / n] float16, whole numbers [..., k] int8) of float32 numbers x [..., k], in blocks of n next to each other.

    The scale is the block's largest number, its sign aside, over 127. A whole number is x over the scale in float32, before that is
    rounded to float16, to the nearest, and halves away from 0. A block of zeros has the scale 0 and whole numbers 0.
    """
    raise NotImplementedError


def from_blocks(scales: Tensor, whole: Tensor) -> Tensor:
    """[..., k] float32: what comes back of scales [..., k / n] and whole numbers [..., k]."""
    raise NotImplementedError


def bytes_per_weight(n: int) -> float:
    """Of blocks of n numbers: a float16 scale, and a byte for each number."""
    raise NotImplementedError


def error_in_block(x: Tensor, n: int) -> float:
    """The largest difference between x [..., k] and what comes back of it in blocks of n, each over the largest number of its own
    block, signs aside; a block of zeros has none."""
    raise NotImplementedError
