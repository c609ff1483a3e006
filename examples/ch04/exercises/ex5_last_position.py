r"""The last position only.

Write the end of the pass for the last position alone, and what it saves. Then use `pass_over` and `unembed` of
`examples/ch04/gpt2_from_scratch.py` to compute one position's logits of `random:gpt2`, at $T = 16$, $128$ and $512$, and compare
with `examples/ch04/last_position.py`. *Hand in:* the two functions, the FLOPs saved, and a paragraph with the time saved and the
check that the logits are the same. *A right answer shows* both savings, where they part, and what might explain it.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch04.5",
    "difficulty": 2,
    "minutes": 50,
    "points": {"code": 4, "numbers": 2, "paragraph": 3},
    "numbers": {
        "saving_16_percent": "share of the FLOPs of GPT-2 small's pass over 16 tokens that is saved, in per cent",
        "saving_128_percent": "the same at 128 tokens",
        "saving_512_percent": "the same at 512 tokens",
    },
}


def last_logits(x: Tensor, gain: Tensor, shift: Tensor, table: Tensor, epsilon: float) -> Tensor:
    """Logits [B, V] at the last position of the stream x [B, T, d]: the final layer norm with gain and shift [d], then the token
    table [V, d] as output matrix. Nothing is computed for the other positions, and x stays as it is."""
    raise NotImplementedError


def saving_percent(T: int, d: int, f: int, L: int, V: int) -> float:
    """Share in per cent of the FLOPs of a pass over T tokens that is saved when the logits are made at the last position alone.

    Only products of matrices count, a multiplication and an addition each: four d x d matrices and two d x f a layer, scores and
    mixture over the full square of T x T, and the output matrix.
    """
    raise NotImplementedError
