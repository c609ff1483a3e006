r"""RMS norm in place of layer norm.

Write $x / \sqrt{\mathrm{mean}(x^2) + \varepsilon} \odot g$, put it in place of `layer_norm` in
`examples/ch04/gpt2_from_scratch.py`, and run the embedded model with it. *Hand in:* the function, and a paragraph on what changes
in the logits, and on what in the bundle would have to change. *A right answer shows* what becomes of the shifts, why gains trained
for one norm do not fit the other, and what the config must name.
"""

from torch import Tensor

EXERCISE = {"id": "ch04.7", "difficulty": 2, "minutes": 40, "points": {"code": 3, "paragraph": 3}}


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """x [..., d] over the root of the mean of its squares plus epsilon, for each position over its d entries, times gain [d].

    Computed in float32 at least, since squares of half precision overflow, and rounded to the dtype of x once, at the end. x stays
    as it is.
    """
    raise NotImplementedError
