r"""Left padding.

Write the batch of unequal prompts, which `generate` in `examples/ch05/generate.py` runs without padding, in the usual way: with
padding on the left, a mask and shifted positions. `forward` in `examples/ch04/gpt2_from_scratch.py` is the pass to change. *Hand
in:* the three functions, and a paragraph with the batch's tokens beside those of each row alone, with the mask and without. *A
right answer shows* the fully masked row and what softmax makes of it.
"""

import torch
from torch import Tensor

EXERCISE = {"id": "ch05.4", "difficulty": 3, "minutes": 90, "points": {"code": 6, "paragraph": 3}}


def padded(prompts: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """ids and positions, both [B, T] int64, of prompts of B lengths, the longest of T; no prompt is empty.

    Each row of ids is a prompt behind as many `pad` as it lacks. Positions are counted from 0 at a row's first own token, and are 0
    at its padding.
    """
    raise NotImplementedError


def padding_mask(lengths: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """[B, 1, T, T] in `dtype`, T the largest of `lengths`: 0 where position i may look at position j, minus infinity elsewhere.

    i may look at itself and at what stands before it, but at no padding, which fills the first T - length positions of a row; so a
    position in the padding may look at nothing.
    """
    raise NotImplementedError


def masked_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis of scores [..., T], in their dtype; where all of a row is minus infinity all its weights are 0.

    Scores stay as they are, and may be as large as 1e30.
    """
    raise NotImplementedError
