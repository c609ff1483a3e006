r"""A window with a cache.

Write what a cache with a window needs, and how far two sets of logits are apart. Then give the embedded model a window of 64, the
argument `window` of `generate` in `examples/ch05/generate.py`, and keep the cache without recomputing when the window moves.
*Hand in:* the four functions, and a paragraph on how far the logits are from the windowed oracle's at each step. *A right answer
shows* that they are not equal, and names both reasons.
"""

from torch import Tensor

EXERCISE = {"id": "ch10.5", "difficulty": 3, "minutes": 90, "points": {"code": 6, "paragraph": 3}}


def window_mask(past: int, new: int, window: int) -> Tensor:
    """[new, past + new] float32: row i, at position past + i, is 0 at itself and at the window - 1 positions before it, as far as
    there are as many, and minus infinity elsewhere."""
    raise NotImplementedError


def slide(old: Tensor, new: Tensor, window: int) -> Tensor:
    """The last `window` positions, or all where there are fewer, of the keys (or values) old [B, h, S, dh] and behind them new
    [B, h, T, dh], as a tensor of its own; S may be 0, and T above the window. What is given stays as it is."""
    raise NotImplementedError


def places(t: int, window: int) -> tuple[list[int], list[int]]:
    """For the tokens that a window shows at a text of t tokens, oldest first: the positions that the windowed oracle gives them,
    which counts from 0 in each window, and those at which a cache computed their pairs that kept on counting and never
    recomputed."""
    raise NotImplementedError


def distance(ours: Tensor, oracle: Tensor) -> Tensor:
    """[T]: for each step the largest difference between logits [T, V] and the oracle's, over the largest magnitude of the oracle's
    at that step."""
    raise NotImplementedError
