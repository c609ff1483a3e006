r"""The longest piece first.

Write an encoder that takes, at each place of a word, the longest piece of the vocabulary that fits. *Hand in:* the code; how many
words of the held-out play and essay it cuts otherwise than `examples/ch03/bpe.py`, with five of them; the tokens. *A right answer
shows* that every text comes back from both, and says what a test of the round trip is worth.
"""

import regex

EXERCISE = {
    "id": "ch03.2",
    "difficulty": 2,
    "minutes": 60,
    "points": {"code": 6, "numbers": 2, "paragraph": 2},
    "numbers": {
        "play_otherwise": "words of the held-out play that are cut otherwise, each as often as it stands there",
        "essay_otherwise": "the same of the essay",
        "play_tokens": "tokens of the play, the longest piece first",
        "essay_tokens": "the same of the essay",
    },
}


def words(text: str) -> list[str]:
    """The words of a text, by GPT-2's rule, which joined are the text again. At each place the first of these that fits:

    one of 's 't 're 've 'm 'll 'd; letters of any script; digits of any script; signs that are no letter, digit or blank; each of
    the last three with one space before it, if there is one; blanks that have no other sign directly behind them, so that of
    several before a word the last is left over; blanks.
    """
    raise NotImplementedError


def longest_first(word: str, pieces: list[str]) -> list[str]:
    """The pieces of a word that is spelt in letters: from its start on, each time the longest of `pieces` that fits. Every letter
    of the word is a piece."""
    raise NotImplementedError


def encode(text: str, letters: list[str], ids: dict[str, int]) -> list[int]:
    """The ids of a text, word by word, the longest piece first. letters: of the bytes 0 to 255. ids: {piece: id}."""
    raise NotImplementedError


def decode(found: list[int], letters: list[str], ids: dict[str, int]) -> str:
    """The text of ids. What is no UTF-8 becomes U+FFFD, as Python's errors="replace" has it."""
    raise NotImplementedError
