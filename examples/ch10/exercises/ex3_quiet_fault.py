r"""A quiet fault of your own.

Write what a ring buffer's slots hold, and what finds the place where a cache leaves the oracle. Then build a sixth wrong cache in
`examples/ch10/wrong_caches.py`, beside `RingCache`, `Wrong` and `GUARDS`: one whose `extend` gives a layer the values of the layer
below, say. *Hand in:* the four functions, and a paragraph with the row for the table of failures, its greedy text, and a guard. *A
right answer shows* that the guard is cheaper than the comparison with the oracle, and stops it at the first step.
"""

from torch import Tensor

EXERCISE = {"id": "ch10.3", "difficulty": 2, "minutes": 90, "points": {"code": 6, "paragraph": 3}}


def ring_slots(fed: int, capacity: int) -> list[int]:
    """The position that each of `capacity` slots of a ring buffer holds after `fed` positions, -1 for a slot that is empty;
    position t goes to slot t modulo the capacity, over what is there."""
    raise NotImplementedError


def first_wrong(ours: Tensor, oracle: Tensor, bound: float) -> int:
    """The first position whose logits, of [T, V], differ from the oracle's somewhere by more than `bound` times the largest
    magnitude in all of the oracle's; -1 where none does."""
    raise NotImplementedError


def argmax_changed(ours: Tensor, oracle: Tensor) -> int:
    """At how many positions of logits [T, V] the most probable token is another than the oracle's."""
    raise NotImplementedError


def shared_prefix(held: Tensor, ids: Tensor) -> int:
    """How many of the first positions of ids [B, t] a cache that was fed held [B, n] has already, the same in every sequence: what
    guards against a cache of another text. 0 where the batches differ."""
    raise NotImplementedError
