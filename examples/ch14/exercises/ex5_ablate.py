r"""Ablate.

Give your own pass from exercise 1 three switches, for the causal mask, RoPE and the residual connections, and write what tells of
what breaks. Then turn each off alone, on SmolLM2 and a page of your own; `examples/ch14/ablations.py` does the same, and without
room for SmolLM2 does so on the embedded model. *Hand in:* the functions, the four losses, and a paragraph with a prediction made
before each run, a text from each, and the loss by position. *A right answer shows* what broke, why, and for the mask why its loss
is no evidence.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch14.5",
    "difficulty": 2,
    "minutes": 90,
    "points": {"code": 6, "numbers": 2, "paragraph": 4},
    "numbers": {
        "loss_as_it_is": "nats per token on your page, of the model as it is",
        "loss_no_mask": "the same without the causal mask",
        "loss_no_positions": "the same without RoPE (of the embedded model without its table of positions)",
        "loss_no_residual": "the same without the residual connections",
    },
}


def forward(ids: Tensor, weights: dict, config: dict, causal: bool = True, rotated: bool = True, residual: bool = True) -> Tensor:
    """Logits [B, T, V] of ids [B, T] by a Llama; weights, config and all else as in exercise 1's `forward`.

    causal off: each position sees all T. rotated off: queries and keys are not turned. residual off: what a sublayer makes replaces
    the stream in place of being added to it. The weights stay as they are.
    """
    raise NotImplementedError


def loss_by_position(logits: Tensor, ids: Tensor) -> Tensor:
    """[T - 1] float64: the loss in nats of predicting, from the logits [B, T, V] at position t, the token at t + 1 of ids [B, T];
    its mean over the batch."""
    raise NotImplementedError


def kept_percent(before: Tensor, after: Tensor) -> float:
    """Of all positions of two tensors of logits [B, T, V], those with the same most probable token, in per cent."""
    raise NotImplementedError


def change_before(before: Tensor, after: Tensor, position: int) -> float:
    """The largest magnitude by which logits [B, T, V] at positions before `position` differ; 0.0 for position 0.

    With `before` and `after` of two texts that differ from `position` on it says whether the past sees the future.
    """
    raise NotImplementedError
