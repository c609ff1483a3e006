r"""A file that was cut.

Write `append` and `read` for a file of records. Append three, cut the file within the second line, and append a fourth; read after
each step, with yours and with `examples/ch01/record.py`. *Hand in:* the code, and what was read. *A right answer shows* which
records are lost, and why the fourth starts a line of its own.
"""

EXERCISE = {"id": "ch01.5", "difficulty": 2, "minutes": 50, "points": {"code": 6, "paragraph": 2}}


def append(path: str, record: dict) -> None:
    """Add a record to the file at `path`, which need not be there, as one line of JSON in ASCII that ends with a newline.

    Lines that are there stay as they are. Where the last of them has no newline, which a program that was killed may have left, the
    record starts a line of its own behind it. Raises ValueError for NaN and infinity, which are no JSON, and then leaves the file
    as it was. Several programs may append at once: one write, to the end of the file.
    """
    raise NotImplementedError


def read(path: str) -> tuple[list[dict], list[int]]:
    """(the records, the numbers of the lines that hold none) of the file at `path`; lines are counted from 1.

    A line holds a record when it is strict JSON, without NaN and infinity, and an object. Lines of nothing but blanks count as
    lines, and are in neither list. A line need not be UTF-8.
    """
    raise NotImplementedError
