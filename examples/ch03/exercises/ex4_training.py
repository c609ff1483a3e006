r"""A tokenizer of your own.

Write the training of a BPE. Train 500 merges on a long text of yours, and count bytes per token on it, on another of its kind, and
on one in another language. *Hand in:* the code, and the three counts for 50, 200 and 500 merges. *A right answer shows* which count
stops rising first, and separates the text that was trained on from the one of its kind.
"""

EXERCISE = {"id": "ch03.4", "difficulty": 3, "minutes": 80, "points": {"code": 6, "paragraph": 3}}


def pair_counts(cut: list[list[str]], times: list[int]) -> dict[str, int]:
    """{"left right": how often}: how often each pair of neighbours stands in the words `cut`, each a list of pieces that stands in
    the text so many `times`. Left and right have one blank between them; no piece holds a blank."""
    raise NotImplementedError


def joined(pieces: list[str], left: str, right: str) -> list[str]:
    """The pieces with that pair made one wherever it stands, from the left, each piece in one pair at most. `pieces` stays."""
    raise NotImplementedError


def train(words: dict[str, int], merges: int) -> list[list[str]]:
    """The first `merges` merges [left, right] that a text teaches, in their order; fewer where no pair is left.

    words: {word, spelt in letters: how often it stands in the text}. Each round joins the most frequent pair in all words. Of
    equally frequent ones the first by the id of its left piece, then by that of its right: letters, all 256, have the first ids in
    the order of their code points, and each new piece the next; a piece that is there already keeps its id.
    """
    raise NotImplementedError


def vocabulary(letters: list[str], merges: list[list[str]]) -> dict[str, int]:
    """{piece: id}: the 256 letters in the order of their code points, whatever that of `letters` is, then what each merge makes, in
    their order, where it is not there already."""
    raise NotImplementedError
