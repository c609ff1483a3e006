r"""One row by hand.

With `seek`, `read` and `struct` only, read row $379$ of the embedded model's token table. *Hand in:* code and numbers. *A right
answer shows* the same $256$ numbers as `load("embedded").weights["wte.weight"][379]`, and how few bytes were read.
"""

from typing import BinaryIO

EXERCISE = {
    "id": "ch02.4",
    "difficulty": 2,
    "minutes": 50,
    "points": {"code": 6, "numbers": 3},
    "numbers": {
        "row_begins_at": "the byte of the file at which row 379 of transformer.wte.weight begins, counted from 0",
        "bytes_read": "how many bytes were read for it in all: length, header and row",
        "largest": "the largest of the row's 256 numbers",
    },
}


def tensors(file: BinaryIO) -> list[dict]:
    """What the header says of each tensor, in the order in which their bytes lie: "name", "dtype", "shape", "begin", "end".

    begin and end are bytes of the file: the first of the tensor's, and the one behind its last. The header's "__metadata__" is no
    tensor. `file` stands anywhere; it has seek and read, and nothing but the first eight bytes and the header is read.
    """
    raise NotImplementedError


def read_row(file: BinaryIO, name: str, row: int) -> list[float]:
    """The numbers of one row, counted from 0, of the matrix `name`, whose dtype is F32 or F16. Reads the row's bytes and what
    `tensors` reads, and nothing else. Raises KeyError for a tensor, and IndexError for a row, that is not there."""
    raise NotImplementedError
