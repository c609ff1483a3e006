"""Chapter 10: the KV cache. Old keys and values do not change, so keep them and compute only what is new.

    python examples/ch10/kv_cache.py               # the tour
    python examples/ch10/kv_cache.py splits        # also: invariants, failures, cost, memory; each takes --help

Shapes as in chapter 4, and S for the positions attended over: those in the cache and the T new ones. The pass is chapter 4's
own block; what is new is where the positions start, how the mask is aligned, and where keys and values are kept.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch01.command import BadInput, command
from examples.ch02.artefact import require
from examples.ch04 import gpt2_from_scratch as gpt2


class KVCache:
    """Keys and values of the positions that were fed, for B sequences of the same length, in tensors made once.

    keys, values [L, B, g, capacity, dh] for the g heads that have them, in GPT-2 all h; the first `length` positions are live.
    ids [B, capacity], what was fed there. Slots behind `length` hold what was there before, and nothing reads them.
    """

    def __init__(self, config, batch=1, capacity=None, dtype=torch.float32, device="cpu"):
        """capacity: positions to hold, by default all n_positions. Raises BadInput for one that the model does not have."""
        self.config, self.length = config, 0
        capacity = config.n_positions if capacity is None else capacity
        for what, n, most in (("batch", batch, None), ("capacity", capacity, config.n_positions)):
            if type(n) is not int or n < 1 or (most and n > most):
                bounds = f"1 to n_positions {most}" if most else "1 or more"
                raise BadInput(f"{what} {n!r} is not a whole number, {bounds}; give a cache that the model can fill")
        shape = (config.n_layer, batch, config.kv_heads, capacity, config.head_width)
        with torch.inference_mode(False):  # so that a cache made within it can be written outside
            self.keys = torch.zeros(shape, dtype=dtype, device=device)
            self.values = torch.zeros(shape, dtype=dtype, device=device)
            self.ids = torch.zeros(batch, capacity, dtype=torch.int64, device=device)

    @classmethod
    def of(cls, model, batch=1, capacity=None):
        """An empty cache for an `Artefact`, in its weights' dtype and on their device."""
        w = next(iter(model.weights.values()))
        return cls(model.config, batch, capacity, w.dtype, w.device)

    @property
    def batch(self):
        """B, the sequences it holds."""
        return self.ids.shape[0]

    @property
    def capacity(self):
        """The positions that it can hold."""
        return self.ids.shape[1]

    @property
    def nbytes(self):
        """Bytes of keys and values, full or not, as `cache_bytes` counts them; the ids, 8 bytes a token, are not in it."""
        return self.keys.nbytes + self.values.nbytes

    def __bool__(self):
        # `if cache` would ask either whether there is one or whether it holds anything, and an empty cache tells them apart
        raise TypeError("the truth of a cache is ambiguous: ask `cache is not None` or `cache.length > 0`")

    def check_room(self, new):
        """Raises BadInput where `new` more positions do not fit: a cache never wraps and never grows."""
        if self.length + new > self.capacity:
            raise BadInput(
                f"the cache holds {self.length} positions and has room for {self.capacity}, so {new} more do not fit; "
                "make it larger or truncate it"
            )

    def extend(self, layer, k, v):
        """Keep the new k and v [B, h, T, dh] of one layer behind the old; all keys and values [B, h, length + T, dh], as views.

        `length` moves only once all layers have been through: see `advance`. Raises BadInput like `check_room`, with nothing
        written.
        """
        new = k.shape[2]
        self.check_room(new)
        keys, values = self.keys[layer], self.values[layer]  # each [B, h, capacity, dh]
        keys.narrow(2, self.length, new).copy_(k)
        values.narrow(2, self.length, new).copy_(v)
        return keys.narrow(2, 0, self.length + new), values.narrow(2, 0, self.length + new)

    def advance(self, ids):
        """Count the positions of `ids` [B, T] as held, now that every layer has extended them."""
        self.ids[:, self.length : self.length + ids.shape[1]] = ids
        self.length += ids.shape[1]

    def truncate(self, length):
        """Forget all but the first `length` positions. Nothing is erased: the next tokens overwrite."""
        if type(length) is not int or not 0 <= length <= self.length:
            raise BadInput(f"cannot truncate to {length}: the cache holds {self.length} positions; give 0 to {self.length}")
        self.length = length

    def copy(self, batch=None, capacity=None):
        """A cache of its own with the same live positions; `batch` repeats a single sequence, for answers that share a prefix.

        Raises BadInput for a capacity below the length, or where a batch of several would have to be repeated.
        """
        batch, capacity = self.batch if batch is None else batch, self.capacity if capacity is None else capacity
        other = KVCache(self.config, batch, capacity, self.keys.dtype, self.keys.device)
        if capacity < self.length:
            raise BadInput(f"{self.length} positions do not fit a capacity of {capacity}; truncate first")
        if batch != self.batch and self.batch != 1:
            raise BadInput(
                f"a cache of {self.batch} sequences cannot become one of {batch}; only a single sequence can be repeated"
            )
        other.keys[..., : self.length, :] = self.keys[..., : self.length, :]
        other.values[..., : self.length, :] = self.values[..., : self.length, :]
        other.ids[:, : self.length] = self.ids[:, : self.length]
        other.length = self.length
        return other

    def shared_prefix(self, ids):
        """How many of the first positions of `ids` [B, t] the cache already holds, the same in every row."""
        if ids.shape[0] != self.batch:
            return 0
        n = min(self.length, ids.shape[1])
        if torch.equal(self.ids[:, :n], ids[:, :n]):
            return n
        return int((self.ids[:, :n] == ids[:, :n]).all(0).int().argmin())  # the first column that differs


def cache_bytes(layers, heads, head_width, tokens, batch=1, bytes_per_number=4):
    """Bytes of keys and values: 2 L heads dh T B bytes. `heads` are those that have keys, which is all of them in GPT-2.

    Pope et al., "Efficiently Scaling Transformer Inference" (2022), section 2.1.
    """
    return 2 * layers * heads * head_width * tokens * batch * bytes_per_number


# -------------------------------------------------------------------------------------------------------- the cached pass


def forward_cached(ids, weights, config, cache, trace=None):
    """Logits [B, T, V] of the new `ids` [B, T], which follow what `cache` holds; afterwards it holds them too.

    trace: as in chapter 4, of the new positions; scores and weights are [B, h, T, S]. Raises BadInput for ids that chapter 4
    refuses, for more sequences or positions than the cache has, and for more than the model has: past + new, not new alone.
    """
    x = stream_cached(ids, weights, config, cache, trace)  # [B, T, d]
    return gpt2.unembed(x, weights, config, trace)  # [B, T, V]


def stream_cached(ids, weights, config, cache, trace=None):
    """The stream [B, T, d] of the new positions after the last layer, not yet normalised; as `forward_cached`."""
    require(config, "gpt2", "chapter 10's cached pass")
    check(ids, config, cache)
    if weights["wte.weight"].dtype != cache.keys.dtype:
        raise BadInput(f"the cache is {cache.keys.dtype} and the weights are {weights['wte.weight'].dtype}; make it by KVCache.of")
    past, T = cache.length, ids.shape[1]
    return pass_over(ids, weights, config, cache, positions(past, T, ids.device), mask_after(past, T, ids.device), trace)


def positions(past, new, device="cpu"):
    """The positions [T] of the new tokens: they start where the cache ends."""
    return torch.arange(past, past + new, device=device)


def mask_after(past, new, device="cpu"):
    """The mask [T, S] of `new` positions after `past` others; None for one, which sees everything.

    It is the last T rows of chapter 4's square, so it is aligned bottom right.
    """
    return gpt2.causal_mask(new, past + new, device) if new > 1 else None


def pass_over(ids, weights, config, cache, at, mask, trace=None):
    """Chapter 4's layers over the new `ids` [B, T] at positions `at` [T] with mask `mask` [T, S]; then the cache holds them.

    `stream_cached` gives it the right positions and mask. The failures of this chapter give it others, and nothing complains.
    """
    trace = gpt2.no_trace if trace is None else trace
    x = weights["wte.weight"][ids] + weights["wpe.weight"][at]  # [B, T, d]
    trace("embedding", None, x)
    for layer in range(config.n_layer):
        x = gpt2.block(x, weights, config, layer, mask, -math.inf, trace, cache)  # [B, T, d]
    cache.advance(ids)
    return x


def check(ids, config, cache):
    """Raise BadInput unless the new `ids` [B, T] are the model's, of as many sequences as the cache, and within n_positions."""
    gpt2.check_ids(ids, config)
    past, (batch, new) = cache.length, ids.shape
    if batch != cache.batch:
        raise BadInput(f"{batch} sequences of ids for a cache of {cache.batch}; make a cache for as many")
    if past + new > config.n_positions:
        raise BadInput(
            f"{past} cached and {new} new tokens are {past + new}, more than n_positions {config.n_positions}; give fewer"
        )


class Cached:
    """A `forward` for chapter 5's loop that computes only what its cache does not hold.

    It is called with the whole text so far, ids [B, t], and returns the logits [B, 1, V] of the last position. The text is
    compared with what the cache was fed: where they part, the cache is cut back to what they share and goes on from there. So
    a prefix is reused when it is one, and a cache of another text is not.
    """

    def __init__(self, model, batch=1, capacity=None, cache=None):
        """cache: one of the same model to start with, say a copy of a shared prefix's; else an empty one is made."""
        self.model = model
        self.cache = KVCache.of(model, batch, capacity) if cache is None else cache
        self.computed = 0  # positions so far

    def __call__(self, ids):
        held = min(self.cache.shared_prefix(ids), ids.shape[1] - 1)  # one position at least is computed, for its logits
        self.cache.truncate(held)
        self.computed += ids.shape[1] - held
        return self.last_logits(ids[:, held:])

    def last_logits(self, new):
        """Logits [B, 1, V] of the last of the `new` ids [B, T]; a family with another pass has another one of these."""
        x = stream_cached(new, self.model.weights, self.model.config, self.cache)  # [B, T, d]
        return gpt2.unembed(x[:, -1:], self.model.weights, self.model.config)


def options():
    """The script's argument parser."""
    from examples.ch10 import commands

    return commands.options()


@command
def main(argv=None):
    """Run one of the chapter's commands; the tour when none is named."""
    from examples.ch10 import commands

    commands.run(argv)


if __name__ == "__main__":
    sys.exit(main())
