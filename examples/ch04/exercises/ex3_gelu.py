r"""The exact GELU.

Write both forms of GELU, and what compares two sets of logits. Then replace `gelu_new` by the exact one, `gelu`, in the embedded
model; `mlp` in `examples/ch04/gpt2_from_scratch.py` finds both in `ACTIVATIONS`. *Hand in:* the three functions, the numbers for
the four prompts (`PROMPTS` in `examples/ch03/tokens.py`), and a paragraph on these and on a text at full context. *A right answer
shows* a change far above rounding and few argmaxes moved or none, and says why a tolerance must be chosen before looking.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch04.3",
    "difficulty": 1,
    "minutes": 40,
    "points": {"code": 4, "numbers": 2, "paragraph": 2},
    "numbers": {
        "largest_change": "the largest change of a logit, absolute, over all positions of the four prompts, in float32",
        "argmaxes_moved": "at how many positions of the four prompts the most probable token is another",
    },
}


def gelu_new(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), of the shape and dtype of x, which stays as it is."""
    raise NotImplementedError


def gelu(x: Tensor) -> Tensor:
    """0.5 x (1 + erf(x / sqrt(2))), of the shape and dtype of x, which stays as it is."""
    raise NotImplementedError


def change(a: Tensor, b: Tensor) -> tuple[float, list[list[int]]]:
    """Of two sets of logits [B, T, V]: the largest absolute difference, and the [sequence, position] of each place where the most
    probable token differs, in order of the sequences and within these of the positions."""
    raise NotImplementedError
