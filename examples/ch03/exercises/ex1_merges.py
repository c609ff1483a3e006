r"""Merges on paper.

Write a list of five merges that turns ` banana` into two pieces, another order of the same five that leaves four, and the program
that makes merges. *Hand in:* the code, and every step. *A right answer shows* which merge took away what another needed, and what
happens to a pair that stands in the word twice.
"""

EXERCISE = {"id": "ch03.1", "difficulty": 1, "minutes": 60, "points": {"code": 6, "paragraph": 2}}


def byte_letters() -> list[str]:
    """The 256 letters that bytes are written in, byte 0 first.

    The bytes from 33 to 126, from 161 to 172 and from 174 to 255 have the sign of that number in Unicode; the others, in their
    order, those of the numbers 256, 257 and so on.
    """
    raise NotImplementedError


def spelt(text: str) -> str:
    """The UTF-8 bytes of a text, each as its letter."""
    raise NotImplementedError


def merging(word: str, merges: list[list[str]]) -> list[list]:
    """[[rank, pieces], ...] after each merge of a word that is spelt in letters; [] where there is none.

    merges: pairs [left, right]; a pair's rank is its place in the list, from 0. The word starts as its letters. Of all pairs of
    neighbours the one of lowest rank is joined, once, where it stands first, and then all are looked at anew, until no pair of
    neighbours is in the list. `merges` stays as it is.
    """
    raise NotImplementedError


def on_paper() -> tuple[list[list[str]], list[list[str]]]:
    """Your two lists: five merges [left, right] that turn ` banana`, whose blank is written Ġ, into two pieces, and the same five
    in an order that leaves four."""
    raise NotImplementedError
