"""Unigram, bigram and trigram baselines for the embedded model, counted on the same token ids.

The bigram and the trigram are interpolated with absolute discounting (Ney, Essen and Kneser, 1994): every seen count gives up
a discount D, and the mass so freed is handed to the shorter history,

    P(w | h) = max(c(h w) - D, 0) / c(h)  +  D * N(h) / c(h) * P(w | h'),

where c(h) counts the history h, N(h) the different words seen after it, and h' is h without its first word. A history never
seen passes straight on to h'. The unigram at the bottom adds one to every count. Each D is tuned on text held back from the
counting, never on the text that is scored.
"""

from dataclasses import dataclass

import numpy as np

DISCOUNTS = tuple(round(0.05 * i, 2) for i in range(1, 20))


def _lookup(keys, values, wanted):
    """Values of the sorted int64 `keys` at `wanted` [N], zero where a key is absent."""
    if len(keys) == 0:
        return np.zeros(len(wanted), dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)


@dataclass(frozen=True)
class _Counts:
    """Counts of one order: of each n-gram, and per history its occurrences and its number of distinct successors."""

    grams: np.ndarray
    gram_counts: np.ndarray
    histories: np.ndarray
    history_counts: np.ndarray
    history_types: np.ndarray


def _count(ids, order, vocab_size):
    keys = _keys(ids, order, vocab_size)
    grams, gram_counts = np.unique(keys, return_counts=True)
    histories, start, types = np.unique(grams // vocab_size, return_index=True, return_counts=True)
    return _Counts(grams, gram_counts, histories, np.add.reduceat(gram_counts, start), types)


def _keys(ids, order, vocab_size):
    """One int64 per n-gram of `ids` [N]: the ids as digits of a number in base V. [N - order + 1]"""
    ids = np.asarray(ids, dtype=np.int64)
    keys = np.zeros(len(ids) - order + 1, dtype=np.int64)
    for i in range(order):
        keys = keys * vocab_size + ids[i : len(ids) - order + 1 + i]
    return keys


class NgramModel:
    """An interpolated n-gram model of `order` 1, 2 or 3 over ids 0..V-1.

    `discounts` holds one D for each order from 2 up, each strictly between 0 and 1.
    """

    def __init__(self, ids, vocab_size, order, discounts=()):
        if order < 1 or len(discounts) != order - 1:
            raise ValueError(f"order {order} wants {order - 1} discounts, got {len(discounts)}")
        self.vocab_size, self.order, self.discounts = vocab_size, order, tuple(discounts)
        self.unigram = np.bincount(ids, minlength=vocab_size) + 1.0
        self.unigram /= self.unigram.sum()
        self.counts = {n: _count(ids, n, vocab_size) for n in range(2, order + 1)}

    def probabilities(self, ids):
        """P(ids[i] | the order-1 ids before it) for every i >= order-1 of `ids` [N]. [N - order + 1]"""
        ids = np.asarray(ids, dtype=np.int64)
        p = self.unigram[ids[self.order - 1 :]]
        for n, discount in zip(range(2, self.order + 1), self.discounts, strict=True):
            c = self.counts[n]
            keys = _keys(ids, n, self.vocab_size)[self.order - n :]
            gram = _lookup(c.grams, c.gram_counts, keys)
            history = _lookup(c.histories, c.history_counts, keys // self.vocab_size)
            types = _lookup(c.histories, c.history_types, keys // self.vocab_size)
            seen = np.maximum(history, 1)
            p = np.where(history > 0, np.maximum(gram - discount, 0) / seen + discount * types / seen * p, p)
        return p

    def loss(self, ids, skip):
        """Mean negative log-likelihood in nats of ids[skip:], each given what stands before it; skip >= order-1."""
        return float(-np.log(self.probabilities(ids)[skip - self.order + 1 :]).mean())


def tune(ids, vocab_size, order, held_out=0.05):
    """A model of `order` counted on all of `ids`, its discounts chosen on the last `held_out` share of them.

    The bigram's discount is chosen first, then the trigram's above it.
    """
    cut = int(len(ids) * (1 - held_out))
    discounts = ()
    for n in range(2, order + 1):
        trial = NgramModel(ids[:cut], vocab_size, n, (*discounts, DISCOUNTS[0]))
        losses = {}
        for d in DISCOUNTS:
            trial.discounts = (*discounts, d)
            losses[d] = trial.loss(ids[cut:], skip=n - 1)
        discounts = (*discounts, min(losses, key=losses.get))
    return NgramModel(ids, vocab_size, order, discounts)
