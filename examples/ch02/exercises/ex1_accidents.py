r"""Six accidents of your own.

Write a manifest, and a comparison of two. Do six things to copies of the embedded folder that `FAULTS` in
`examples/ch02/manifest.py` lacks, such as swapping two tensors of one shape. *Hand in:* the code, and a table of what was done and
what `verify` names. *A right answer shows* a change that reaches the file alone, one that reaches the meaning, and one that would
load and run unnoticed.
"""

EXERCISE = {"id": "ch02.1", "difficulty": 1, "minutes": 50, "points": {"code": 5, "paragraph": 3}}


def file_digest(data: bytes) -> str:
    """The sha256 of the bytes, 64 hexadecimal digits in small letters."""
    raise NotImplementedError


def meaning_digest(value) -> str:
    """The sha256 of a value of JSON, the same however a file spells it: of its JSON text with the keys of all objects sorted, no
    blanks between its parts, and other signs than ASCII as \\u escapes, as Python's `json` writes them."""
    raise NotImplementedError


def manifest(files: dict[str, bytes]) -> dict[str, dict]:
    """{name: {"bytes": size, "sha256": digest of the bytes, "meaning": digest}} of the files of a folder.

    "meaning" is the digest of the value in a file whose name ends in ".json", and None of any other file, or of one that is no
    JSON. The names are in the order of their letters.
    """
    raise NotImplementedError


def changes(old: dict[str, dict], new: dict[str, dict]) -> list[list[str]]:
    """[name, what] of each file that differs from one manifest to the next, in the order of the names' letters.

    what: "missing" or "added"; of a file in both "size" where its length differs, "content" where only its bytes do. "meaning"
    stands behind size or content as one more text where both have a meaning and these differ: ["config.json", "size", "meaning"].
    """
    raise NotImplementedError
