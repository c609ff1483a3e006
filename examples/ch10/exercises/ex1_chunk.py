r"""The split that hurts.

Write positions, mask and attention of a chunk behind a cache. Then change `mask_after` in `examples/ch10/kv_cache.py` so that the
mask is aligned top left, and run `compare_splits` in `examples/ch10/cache_parity.py`. Let it keep `None` for a single token.
*Hand in:* the three functions, how many of the five ways notice, and a paragraph on which do and which do not. *A right answer
shows* that neither feeding all at once nor feeding single tokens after a prompt can notice, and says why a test with one split is
not enough.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch10.1",
    "difficulty": 2,
    "minutes": 60,
    "points": {"code": 6, "numbers": 1, "paragraph": 2},
    "numbers": {"ways_that_notice": "ways of feeding, of the five, whose logits leave the oracle's"},
}


def positions(past: int, new: int) -> Tensor:
    """[new] int64: the positions of `new` tokens behind a cache that holds `past`."""
    raise NotImplementedError


def mask_after(past: int, new: int) -> Tensor:
    """[new, past + new] float32: row i is 0 where the i-th new token may look, at all of the cache, at the new tokens before it and
    at itself, and minus infinity elsewhere. For one new token too there is a mask, of zeros."""
    raise NotImplementedError


def attention_after(q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Attention [B, h, T, dh] of the queries q [B, h, T, dh] of T new tokens over all keys and values K, V [B, h, S, dh], of which
    the last T are the new tokens' own; scores are scaled by 1 / sqrt(dh). In the dtype of q; what is given stays as it is."""
    raise NotImplementedError
