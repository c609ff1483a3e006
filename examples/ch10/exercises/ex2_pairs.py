r"""One pair too many.

Write this chapter's loop, and beside it one that feeds the last token as well; and count what both compute and hold. *Hand in:* the
loop and the three counts, and a paragraph on its tokens, its pairs after $t$ emitted tokens, and what it costs at the model's last
position. *A right answer shows* the same tokens, one more pair, and one new token fewer before the end.
"""

from collections.abc import Callable

EXERCISE = {"id": "ch10.2", "difficulty": 1, "minutes": 40, "points": {"code": 6, "paragraph": 2}}


def loop(feed: Callable, prompt: list[int], tokens: int, feed_last: bool) -> list[int]:
    """The `tokens` new ids, 1 or more, that greedy decoding with a cache puts behind the prompt.

    feed: takes the ids that the cache does not hold yet, a list of T, gives their logits [T, V], and keeps their pairs. Each id is
    fed once: first the prompt in one piece, then each new one by itself; the last new one only where feed_last says so. Of equal
    logits the lower id is taken. The prompt stays as it is.
    """
    raise NotImplementedError


def positions_naive(P: int, m: int) -> int:
    """Positions that a loop without a cache computes for m new tokens behind a prompt of P: each step the whole text so far."""
    raise NotImplementedError


def pairs_held(P: int, m: int, feed_last: bool) -> int:
    """Pairs that each layer and head holds after m new tokens, 1 or more, behind a prompt of P; also the positions computed."""
    raise NotImplementedError


def most_new(n: int, P: int, feed_last: bool) -> int:
    """New tokens that a model of n positions can write behind a prompt of P tokens, P at most n: each one fed needs a position."""
    raise NotImplementedError
