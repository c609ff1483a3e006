r"""A budget for the vocabulary.

Write both uses of the table, and its share. For GPT-2 small's width and depth compute the share for $V$ from 1,000 to 200,000.
*Hand in:* code, numbers, the curve. *A right answer shows* the formula, what becomes of it when the head is not tied, and what
would have to be measured to choose $V$.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch03.5",
    "difficulty": 1,
    "minutes": 50,
    "points": {"code": 5, "numbers": 2, "paragraph": 2},
    "numbers": {
        "half_tied": "V at which the table is half of a model of GPT-2 small's width, depth and positions",
        "half_untied": "V at which table and head together are, where the head is a second table",
        "share_200000_percent": "the tied table's share at V = 200,000, in per cent",
    },
}


def embedding_share(V: int, d: int, layers: int, positions: int, tied: bool = True) -> list[int]:
    """[parameters of the embedding table, parameters of the whole model] of a GPT-2.

    Beside the table of V d it has the position table, d for each position, 12 d^2 + 13 d in each layer, 2 d in the last norm, and,
    where the head is not tied, a second table of V d.
    """
    raise NotImplementedError


def vocabulary_for(share: float, d: int, layers: int, positions: int, tied: bool = True) -> float:
    """The V, as a number with a fraction, at which the embedding table, and where it is not tied table and head together, are this
    `share` of the model's parameters, above 0 and below 1."""
    raise NotImplementedError


def one_hot(ids: Tensor, V: int) -> Tensor:
    """[T, V] float32 of ids [T]: in each row a 1 at the id and 0 elsewhere."""
    raise NotImplementedError


def look_up(ids: Tensor, table: Tensor) -> Tensor:
    """[B, T, d]: the rows of the table [V, d] that the ids [B, T] select. No product; the table stays as it is."""
    raise NotImplementedError


def scores(x: Tensor, table: Tensor) -> Tensor:
    """[B, T, V]: the logits by a tied head: the product of each x [B, T, d] with every row of the table [V, d]."""
    raise NotImplementedError
