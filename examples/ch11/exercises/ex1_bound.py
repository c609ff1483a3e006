r"""The bound of an operation.

Write the arithmetic intensity of a product of two matrices, the bound that two rates give, and the fewest rows with which a
matrix earns a machine's ridge. Find that number for a matrix of $768 \times 3072$ in float32 and in bfloat16, with the rates
that `examples/ch11/machine.py` measures on your machine. *Hand in:* the three functions, the numbers for float32, and a
paragraph. *A right answer shows* the bound on both sides of the ridge, and says why the rows are more than the ridge alone
would give.
"""

EXERCISE = {
    "id": "ch11.1",
    "difficulty": 1,
    "minutes": 40,
    "points": {"code": 5, "numbers": 1, "paragraph": 3},
    "numbers": {
        "ridge": "FLOPs a byte at your machine's ridge, one thread, float32",
        "rows": "the fewest rows with which the matrix of 768 x 3072 in float32 earns it",
    },
}


def intensity(rows: int, n: int, m: int, number: float) -> float:
    """FLOPs per byte of a product of [rows, n] with [n, m]: a multiply-add is two FLOPs; both operands are read once and the
    result is written once, `number` bytes each."""
    raise NotImplementedError


def bound(flops: float, moved: float, flop_per_s: float, bytes_per_s: float) -> tuple[float, str]:
    """The least seconds of work of `flops` FLOPs and `moved` bytes, and what limits it: "arithmetic" or "memory"; where both
    take as long, "memory"."""
    raise NotImplementedError


def rows_at_ridge(n: int, m: int, number: float, ridge: float) -> int:
    """The fewest rows at which `intensity` is `ridge` or more; 0 where no number of rows reaches it."""
    raise NotImplementedError
