r"""Several draws.

Write a loop that draws some tokens and goes on greedily, what says whether two cycles are the same, and the counts. Then draw $n$
tokens in a row inside a cycle, for $n$ from 1 to 20, and go on greedily; `one_sampled_step` in `examples/ch05/cycles.py` does it
for one. *Hand in:* the three functions, and a paragraph on how often the text is in a cycle again within $200$ tokens, and in
which. *A right answer shows* counts over several seeds, and does not call a share of few draws a probability.
"""

from collections.abc import Callable

EXERCISE = {"id": "ch05.6", "difficulty": 2, "minutes": 90, "points": {"code": 6, "paragraph": 3}}


def drawn_then_greedy(forward: Callable, ids: list[int], uniforms: list[float], tokens: int, window: int) -> list[int]:
    """The new ids behind the text `ids`: one is drawn for each of `uniforms`, then `tokens` more are taken greedily.

    A draw is made from the probabilities at temperature 1 with no filter, in float64: the first id whose cumulative sum is strictly
    above its uniform number, which is in [0, 1). forward: takes ids [1, t], int64, gives logits [1, t, V], and is called once for
    each new id with the last `window` ids of the text so far. `ids` stays as it is.
    """
    raise NotImplementedError


def same_cycle(a: list[int], b: list[int]) -> bool:
    """Whether two cycles, each given as one round, are the same from some place of it: 1 2 3 and 3 1 2 are, 1 2 3 and 3 2 1 are
    not."""
    raise NotImplementedError


def counts(outcomes: list[tuple[int, bool, list[int], list[int] | None]]) -> dict[str, list[int]]:
    """{n as a text: [runs, in a cycle again, of them in the old one]} of outcomes (n, whether a draw differed from the greedy
    token, a round of the old cycle, one of the new cycle or None where there was none). A run in which no draw differed is not
    counted; an n with no run that counts is left out."""
    raise NotImplementedError
