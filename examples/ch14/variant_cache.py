"""A cache for every family of `variants`: what each layer has to keep is itself a choice.

Keys and values of g heads; or, of latent attention, one short vector and one turned key a position; and of a layer with a window
only its last W positions. Tensors grow by concatenation here, so that three kinds of layers fit on a page; chapter 10's cache,
which is made once for its capacity, serves GPT-2 and Llama.
"""

import torch

from examples.ch10 import kv_cache
from examples.ch14 import variants


class VariantCache:
    """What a model keeps of the positions it was fed: for each layer two tensors and the positions that they are of."""

    def __init__(self, config, batch=1):
        self.choices, self.batch = config, batch
        self.length = 0  # positions fed
        self.kept = [None] * config.n_layer  # of each layer (first, second, positions [S]), tensors [..., S, width]
        self.pending = list(self.kept)

    def extend(self, layer, first, second, at):
        """All that the new positions `at` [T] may see, (first, second, positions [S]); kept once `advance` is called."""
        if self.kept[layer] is not None:
            old_first, old_second, old_at = self.kept[layer]
            first, second = torch.cat([old_first, first], dim=-2), torch.cat([old_second, second], dim=-2)
            at = torch.cat([old_at, at])
        window = self.choices.window(layer)
        kept = (first, second, at)
        if window is not None and window < len(at):  # it never needs more than its last W; copied, or a view would hold all
            kept = (first[..., -window:, :].clone(), second[..., -window:, :].clone(), at[-window:])
        self.pending[layer] = kept
        return first, second, at

    def advance(self, tokens):
        """Keep what a whole pass over `tokens` new positions has left; a pass that is broken off leaves the cache as it was."""
        self.kept = list(self.pending)
        self.length += tokens

    @property
    def nbytes(self):
        """Bytes of the numbers that are kept: `counts.cache_bytes` of as many positions."""
        return sum(first.nbytes + second.nbytes for first, second, _ in filter(None, self.kept))


def forward_cached(ids, weights, config, cache, trace=None):
    """Logits [B, T, V] of the new `ids` [B, T], which follow what `cache` holds; it holds them afterwards.

    Raises BadInput for ids that the model does not take, for more positions than it has, and for another batch than the cache's.
    """
    kv_cache.check(ids, config, cache)
    at = kv_cache.positions(cache.length, ids.shape[1], ids.device)  # [T]
    x = variants.residual_stream(ids, weights, config, trace=trace, at=at, cache=cache)  # [B, T, d]
    cache.advance(ids.shape[1])
    return variants.unembed(x, weights, config, trace)  # [B, T, V]


class Cached:
    """A `forward` for chapter 5's loop that computes only what is new.

    It is called with the whole text so far, ids [B, t], and returns the logits [B, 1, V] of the last position. A text that does not
    go on from what was fed is computed anew: a window has forgotten what a shorter prefix would need.
    """

    def __init__(self, config, weights):
        self.choices, self.weights = config, weights
        self.fed, self.cache = None, None

    def __call__(self, ids):
        held = 0 if self.fed is None else self.fed.shape[1]
        if held == 0 or held >= ids.shape[1] or not torch.equal(self.fed, ids[:, :held]):
            self.cache, held = VariantCache(self.choices, ids.shape[0]), 0
        logits = forward_cached(ids[:, held:], self.weights, self.choices, self.cache)  # [B, T, V]
        self.fed = ids.clone()
        return logits[:, -1:]
