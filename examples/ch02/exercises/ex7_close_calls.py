r"""Nearly equal candidates.

Test the hypothesis above: compare the gap between the two best logits where Q4_1 changes the best token with the gap elsewhere.
`examples/ch14/stored_weights.py` has the parts. *Hand in:* code, numbers, and both distributions. *A right answer shows* whether
they overlap, and what the change of a logit has to do with it.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch02.7",
    "difficulty": 2,
    "minutes": 60,
    "points": {"code": 5, "numbers": 2, "paragraph": 3},
    "numbers": {
        "changed_median": "the median gap where Q4_1 changes the embedded model's best token on the held-out play, all windows",
        "kept_median": "the median gap at all other positions",
        "changed_largest": "the largest gap where Q4_1 changes it",
    },
}


def gaps(logits: Tensor) -> Tensor:
    """[T]: by how much the largest of the logits [T, V] is above the second largest; 0 where two are the largest."""
    raise NotImplementedError


def by_change(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """The gaps of the logits `before` [T, V] where the best token of `after` [T, V] is another one, and where it is the same: two
    tensors, each in the order of the positions."""
    raise NotImplementedError


def overlap(changed: Tensor, kept: Tensor) -> float:
    """The share, 0 to 1, of the pairs of one gap from each in which the changed one is the larger; two equal ones count half. 0
    where all changed ones are smaller, a half where the two kinds are alike."""
    raise NotImplementedError


def can_change(before: Tensor, after: Tensor) -> Tensor:
    """[T] bool: whether a change as large as the largest of this position's logits, sign aside, could have made another token the
    best: whether twice that is more than the gap of `before`."""
    raise NotImplementedError
