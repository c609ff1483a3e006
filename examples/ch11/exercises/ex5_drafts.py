r"""Look it up.

Write drafts by a rule that is not quite the chapter's: the *earliest* place counts, and a draft ends where the text ends.
Write what a pass makes of a draft, and replay both on the ids of a greedy text of your own, for drafts of one to six tokens.
*Hand in:* the three functions, and a paragraph with the table. *A right answer shows* tokens per pass by the length of the
draft, says why the text is the same for every rule, and names a text on which longer drafts make decoding slower.
"""

EXERCISE = {"id": "ch11.5", "difficulty": 2, "minutes": 60, "points": {"code": 6, "paragraph": 3}}


def draft(text: list[int], most: int, longest: int) -> list[int]:
    """Up to `most` ids that followed the last ids of `text` where these stood before; [] where they never did.

    The last `longest` ids are looked for first, then fewer, down to one. Of several places the earliest counts. A place has
    to begin before the last ids themselves do; it may overlap them. The draft is what follows the place within `text`, so it
    may be shorter than `most`.
    """
    raise NotImplementedError


def accept(guessed: list[int], chosen: list[int]) -> list[int]:
    """The ids that a pass makes: the guesses up to the first wrong one, and one id more, which the pass chose in the place
    behind them.

    chosen has one id more than guessed: chosen[i] is what the model chooses in the place of guess i, and the last behind all
    of them.
    """
    raise NotImplementedError


def replay(prompt: list[int], made: list[int], most: int, longest: int) -> list[list[int]]:
    """[how many ids it drafts, how many it makes] of each pass until `made` stands behind `prompt`, if the model chooses those.

    No pass drafts more than is still wanted after its own id: with r ids to go at most r - 1, and at most `most`. With most =
    0 every pass makes one.
    """
    raise NotImplementedError
