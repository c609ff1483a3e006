r"""Another token at the start.

Put a newline, a full stop and five other ids in the place of `<|endoftext|>` in `examples/ch03/special_tokens.py`. *Hand in:* the
code, and the loss at the second token and over the whole window, for each. *A right answer shows* whether any token in front helps
or that one alone, and describes the training run that would test the hypothesis.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch03.6",
    "difficulty": 2,
    "minutes": 60,
    "points": {"code": 5, "numbers": 2, "paragraph": 3},
    "numbers": {
        "newline_second": "nats of the play's second token with a newline before its first, the embedded model",
        "newline_window": "mean nats of all tokens of the window but the first, with a newline before it",
        "stop_second": "the same as the first of these with a full stop",
        "stop_window": "the same as the second with a full stop",
    },
}


def cut(text: str, special: list[str]) -> list[list]:
    """[[part, whether it is a special token], ...] of a text, in its order, which joined are the text again; no part is empty.

    A special token is cut out wherever it stands; where two of `special` begin at one place, the longer. What it is cut out of is
    not looked at again. Signs that mean something in a regular expression mean nothing here.
    """
    raise NotImplementedError


def nats(logits: Tensor, ids: Tensor) -> Tensor:
    """[T] float64: -ln p of each of the ids [T], where p is what the logits [T, V] of the position before it give. Row t of the
    logits is for id t. Large logits, 1,000 say, make no infinity."""
    raise NotImplementedError


def window_losses(logits: Tensor, ids: Tensor, tokens: list[int]) -> list[float]:
    """The mean loss of the first n tokens behind the first one, for each n of `tokens`.

    ids [T] is a window with a token put before it, and logits [T, V] is what a model makes of it: row t is for id t + 1, the last
    row for what comes behind. The token in front is not predicted, and the first of the window is left out.
    """
    raise NotImplementedError
