r"""Half the bytes.

Write the cache, with a dtype of its own. Then keep the book's cache in bfloat16 while the weights stay in float32: convert back
in `KVCache.extend` of `examples/ch10/kv_cache.py`, and drop the check in `stream_cached` that refuses it. *Hand in:* the class,
the bytes and the largest difference of a logit over a full context, and a paragraph on these and on the first greedy token that
changes, if one does. *A right answer shows* the difference beside that of computing everything in bfloat16.
"""

import torch
from torch import Tensor

EXERCISE = {
    "id": "ch10.4",
    "difficulty": 3,
    "minutes": 90,
    "points": {"code": 8, "numbers": 2, "paragraph": 2},
    "numbers": {
        "cache_bytes": "bytes of keys and values of the embedded model's cache in bfloat16, one sequence of its full context",
        "largest_difference_percent": "largest difference of a logit, 256 random ids, per cent of the largest logit of the oracle",
    },
}


class Cache:
    """Keys and values of what was fed to a model, in tensors made once, for `batch` sequences of the same length.

    layers, batch, heads, capacity, width: sizes; a layer's keys are [batch, heads, capacity, width], and so are its values.
    store: the dtype in which both are kept, whatever that of the keys and values that come.
    """

    def __init__(self, layers: int, batch: int, heads: int, capacity: int, width: int, store: torch.dtype):
        self.length = 0  # positions held
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values, for the whole capacity, whether it is used or not; the ids are not in it."""
        raise NotImplementedError

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep k and v [B, h, T, dh] of the next T positions of a layer; all keys and values of that layer so far, old and new, as
        they are kept, [B, h, length + T, dh] each, in the dtype of k. `length` does not move. Raises ValueError, with nothing
        written, where `length` + T is more than the capacity."""
        raise NotImplementedError

    def advance(self, ids: Tensor) -> None:
        """Count the T positions of ids [B, T] as held, once every layer has extended them, and note the ids."""
        raise NotImplementedError

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions. Raises ValueError for less than 0 or more than are held."""
        raise NotImplementedError

    def shared_prefix(self, ids: Tensor) -> int:
        """How many of the first positions of ids [B, t] are held, the same in every sequence."""
        raise NotImplementedError
