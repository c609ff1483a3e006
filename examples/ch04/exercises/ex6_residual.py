r"""Five other prompts.

Write what finds the largest value of a stream, and how far it stands out. Then run `examples/ch04/residual_trace.py` on five texts
of your own; on GPT-2 small where you have it. *Hand in:* the two functions, and a paragraph with position, dimension and ratio for
each text. *A right answer shows* whether the place is the same every time, and claims nothing for a sixth text.
"""

from torch import Tensor

EXERCISE = {"id": "ch04.6", "difficulty": 1, "minutes": 30, "points": {"code": 3, "paragraph": 2}}


def place(x: Tensor) -> list[int]:
    """[position, dimension] of the value of the largest magnitude in a stream x [T, d]; of equal ones the first position, and in it
    the first dimension."""
    raise NotImplementedError


def ratio(x: Tensor) -> float:
    """The largest magnitude in a stream x [T, d] over the median of all magnitudes; the median of an even number of values is the
    mean of the two in the middle. Computed in float64; x stays as it is."""
    raise NotImplementedError
