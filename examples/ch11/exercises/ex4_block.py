r"""A four-bit block.

Write `unpack`, which makes the 32 numbers of a Q4_1 block, and `times`, which multiplies a matrix of such blocks by a vector
and never makes the matrix, by the formula of the section on four bits. Compare the two on matrices of your own. *Hand in:*
both functions, and a paragraph. *A right answer shows* that the two agree to rounding, counts the multiplications that the
formula saves for each block, and says why a fast program wants that sum in another order than the file has.
"""

from torch import Tensor

EXERCISE = {"id": "ch11.4", "difficulty": 3, "minutes": 60, "points": {"code": 7, "paragraph": 3}}


def unpack(block: Tensor) -> Tensor:
    """[32] float32: the numbers of one Q4_1 block, uint8 [20].

    Bytes 0 and 1 are the scale and bytes 2 and 3 the minimum, each a half-precision number as memory holds it
    (`view(torch.float16)`). Of the 16 bytes behind them byte i holds the whole number of place i in its low four bits, and
    that of place i + 16 in its high four. A number is scale times whole number plus minimum, in float32.
    """
    raise NotImplementedError


def times(blocks: Tensor, x: Tensor) -> Tensor:
    """[N] float32: the product of the matrix [N, K] that is stored as blocks, uint8 [N, K / 32, 20], with x [K] float32.

    Block b of a row holds its columns 32 b to 32 b + 31. The inputs stay as they are.
    """
    raise NotImplementedError
