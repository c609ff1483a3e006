r"""Entropy without the scale.

Write the causal mask, the attention weights of one head, and their entropy: that of a row is $-\sum_j A_{ij} \ln A_{ij}$, which is
0 when all weight is on one position and $\ln n$ when it is spread evenly over $n$; a weight of 0 adds nothing. Then take
$1/\sqrt{d_h}$ out of the scores (`attention_scale` in `examples/ch04/gpt2_from_scratch.py`) and compare the mean entropy, layer by
layer, through the trace; on the embedded model, and on a real one, `smollm2`, after `make real-model` (its scale is `dh**-0.5` in
`examples/ch14/llama_from_scratch.py`). *Hand in:* the three functions, and your reading of a table by layer. *A right answer shows*
what happens to the entropy, and two reasons why the text suffers, one in the softmax and one in the training.
"""

import torch
from torch import Tensor

EXERCISE = {"id": "ch04.2", "difficulty": 2, "minutes": 60, "points": {"code": 6, "paragraph": 3}}


def causal_mask(T: int) -> Tensor:
    """[T, T] float32: row i is 0 where position i may look, at itself and at all before it, and minus infinity elsewhere."""
    raise NotImplementedError


def attention(q: Tensor, k: Tensor, v: Tensor, scaled: bool = True) -> tuple[Tensor, Tensor]:
    """Causal attention of q, k and v [B, h, T, dh]: the result [B, h, T, dh] and the weights A [B, h, T, T].

    scaled: whether the scores are multiplied by 1 / sqrt(dh). The inputs stay as they are; the results have the dtype of q.
    """
    raise NotImplementedError


def entropy(A: Tensor) -> Tensor:
    """[B, h, T]: the entropy in nats of each row of the weights A [B, h, T, T]; 0 ln 0 counts as 0."""
    raise NotImplementedError
