"""Chapter 10: the KV cache. Old keys and values do not change, so keep them and compute only what is new.

    python examples/ch10/kv_cache.py
    python examples/ch10/kv_cache.py --model smollm2 --prompt "The capital of France is" --tokens 20   # a model of any family

Shapes as in chapter 4, and S for the positions attended over: those in the cache and the T new ones. The pass is that of the
model's own program; what is new is where the positions start, how the mask is aligned, and where keys and values are kept.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.ch02.config import Config, GPT2Config, general
from examples.ch02.families import program
from examples.ch02.model import Model, load_for
from examples.ch03.tokens import decode, ids_for, shown
from examples.ch04.gpt2_from_scratch import causal_mask, check_ids
from examples.ch05.generate import generate
from examples.lab.script import BadInput, Parser, answer, as_whole, command, progress_bar, whole_number


class KVCache:
    """Keys and values of the positions that were fed, for B sequences of the same length, in tensors made once.

    keys, values: of each layer one tensor [B, g, capacity, dh] for the g heads that have them, in GPT-2 all h; the first `length`
    positions are live. ids [B, capacity], what was fed there. Slots behind `length` hold what was there before, and nothing reads
    them. What a layer keeps is the program's to say (`new_cache`); one with a window has room for its last W positions only.
    """

    def __init__(self, model: Model, batch: int = 1, capacity: int | None = None):
        """An empty cache, in the model's dtype and on its device. capacity: positions to hold, by default all n_positions.

        Raises BadInput for a capacity that the model does not have, or a batch below 1.
        """
        self.model, self.length, most = model, 0, model.config.n_positions
        self.batch, self.capacity = batch, most if capacity is None else capacity
        for what, n, bounds in (("batch", batch, "1 or more"), ("capacity", self.capacity, f"1 to n_positions {most}")):
            if (as_whole(n) or 0) < 1 or (what == "capacity" and n > most):
                raise BadInput(f"{what} {n!r} is not a whole number, {bounds}; give a cache that the model can fill")
        self.batch, self.capacity = int(batch), int(self.capacity)
        with torch.inference_mode(False):  # so that a cache made within it can be written outside
            room = program(model).new_cache(model.config, self.batch, self.capacity, dtype=model.dtype, device=model.device)
            self.keys, self.values = (list(tensors) for tensors in zip(*room, strict=True))
            self.ids = torch.zeros(self.batch, self.capacity, dtype=torch.int64, device=model.device)
        self.pending = {}  # of layers with a window, what they will keep once the pass is through

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values, full or not, as `cache_bytes` counts them; the ids, 8 bytes per token, are not in it."""
        return sum(x.nbytes for x in (*self.keys, *self.values))

    def __bool__(self):
        # `if cache` would ask either whether there is one or whether it holds anything, and an empty cache tells them apart
        raise TypeError("the truth of a cache is ambiguous: ask `cache is not None` or `cache.length > 0`")

    def room(self, layer: int) -> int:
        """The positions that a layer can hold: all `capacity`, or its window."""
        return self.keys[layer].shape[2]

    def live(self, layer: int) -> tuple[Tensor, Tensor]:
        """The keys and values that a layer holds, [B, g, n, dh] each, as views: of the last n positions, mostly all."""
        n = min(self.length, self.room(layer))
        return self.keys[layer][:, :, :n], self.values[layer][:, :, :n]

    def check_room(self, new: int) -> None:
        """Raises BadInput where `new` more positions do not fit: a cache never wraps and never grows."""
        if self.length + new > self.capacity:
            raise BadInput(
                f"the cache holds {self.length} positions and has room for {self.capacity}, so {new} more do not fit; "
                "make it larger or truncate it"
            )

    def check_batch(self, batch: int) -> None:
        """Raises BadInput for another number of sequences than the cache's."""
        if batch != self.batch:
            raise BadInput(f"{batch} sequences of ids for a cache of {self.batch}; make a cache for as many")

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the new k and v [B, g, T, dh] of one layer behind the old; all keys and values [B, g, S, dh] that there are.

        `length` moves only once all layers have been through: see `advance`. Raises BadInput like `check_room`, with nothing
        written.
        """
        new = k.shape[2]
        self.check_room(new)
        if self.room(layer) < self.capacity:  # a window: what the new positions push out, they may still have to see
            old_keys, old_values = self.live(layer)
            k, v = torch.cat([old_keys, k], dim=2), torch.cat([old_values, v], dim=2)
            self.pending[layer] = k[:, :, -self.room(layer) :], v[:, :, -self.room(layer) :]
            return k, v
        keys, values = self.keys[layer], self.values[layer]  # each [B, g, capacity, dh]
        keys.narrow(2, self.length, new).copy_(k)
        values.narrow(2, self.length, new).copy_(v)
        return keys.narrow(2, 0, self.length + new), values.narrow(2, 0, self.length + new)

    def advance(self, ids: Tensor) -> None:
        """Count the positions of `ids` [B, T] as held, now that every layer has extended them."""
        self.keep_windows()
        self.ids[:, self.length : self.length + ids.shape[1]] = ids
        self.length += ids.shape[1]

    def keep_windows(self) -> None:
        """Put what the layers with a window are to keep in the place of what they kept."""
        for layer, (k, v) in self.pending.items():
            self.keys[layer][:, :, : k.shape[2]], self.values[layer][:, :, : v.shape[2]] = k, v
        self.pending = {}

    def can_truncate(self, length: int) -> bool:
        """Whether the first `length` positions are all there: always, but where a window has pushed some of them out."""
        lost = any(self.room(layer) < self.length for layer in range(len(self.keys)))
        return length in (0, self.length) or not lost

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` positions. Nothing is erased: the next tokens overwrite.

        Raises BadInput for more than there are, and like `can_truncate`.
        """
        if as_whole(length) is None or not 0 <= length <= self.length:
            raise BadInput(f"cannot truncate to {length}: the cache holds {self.length} positions; give 0 to {self.length}")
        if not self.can_truncate(length):
            raise BadInput(f"cannot truncate to {length}: a window has pushed out what is before it; give 0 and begin anew")
        self.length = int(length)

    def copy(self, batch: int | None = None, capacity: int | None = None) -> "KVCache":
        """A cache of its own with the same live positions; `batch` repeats a single sequence, for answers that share a prefix.

        Raises BadInput for a capacity below the length, or where a batch of several would have to be repeated.
        """
        batch, capacity = self.batch if batch is None else batch, self.capacity if capacity is None else capacity
        other = KVCache(self.model, batch, capacity)
        if capacity < self.length:
            raise BadInput(f"{self.length} positions do not fit a capacity of {capacity}; truncate first")
        if batch != self.batch and self.batch != 1:
            raise BadInput(
                f"a cache of {self.batch} sequences cannot become one of {batch}; only a single sequence can be repeated"
            )
        other.length = self.length
        for layer in range(len(self.keys)):
            for new, old in zip(other.live(layer), self.live(layer), strict=True):
                new.copy_(old)
        other.ids[:, : self.length] = self.ids[:, : self.length]
        return other

    def shared_prefix(self, ids: Tensor) -> int:
        """How many of the first positions of `ids` [B, t] the cache was fed already, the same in every sequence."""
        if ids.shape[0] != self.batch:
            return 0
        n = min(self.length, ids.shape[1])
        if torch.equal(self.ids[:, :n], ids[:, :n]):
            return n
        return int((self.ids[:, :n] == ids[:, :n]).all(0).int().argmin())  # the first column that differs


def cached_numbers(config: GPT2Config | Config) -> int:
    """Numbers that one layer keeps of one position: the keys and values of g heads, 2 g dh, or what stands for them in MLA."""
    config = general(config)
    return config.latent.kv_rank + config.latent.turned if config.latent else 2 * config.kv_heads * config.head_width


def cache_bytes(config: GPT2Config | Config, tokens: int, batch: int = 1, bytes_per_number: int = 4) -> int:
    """Bytes of a cache of `batch` sequences of `tokens` positions: 2 L g dh T B numbers, in GPT-2 with g = h.

    A layer with a window keeps as many positions as that at most. Pope et al., "Efficiently Scaling Transformer Inference" (2022),
    section 2.1. Raises BadInput for fewer than no tokens or sequences.
    """
    if tokens < 0 or batch < 0:
        raise BadInput(f"a cache of {batch} sequences of {tokens} tokens; neither can be below 0")
    windows = general(config).windows or (None,) * config.n_layer
    positions = sum(tokens if window is None else min(tokens, window) for window in windows)
    return batch * positions * cached_numbers(config) * bytes_per_number


# -------------------------------------------------------------------------------------------------------- the cached pass


def forward_cached(ids: Tensor, model: Model, cache: KVCache, trace=None) -> Tensor:
    """Logits [B, T, V] of the new `ids` [B, T], which follow what `cache` holds; afterwards it holds them too.

    trace: as in chapter 4, of the new positions; scores and A are [B, h, T, S]. Raises BadInput for ids that chapter 4 refuses,
    for more sequences or positions than the cache has, and for more than the model has: past + new, not new alone.
    """
    x = stream_cached(ids, model, cache, trace)  # [B, T, d]
    return program(model).unembed(x, model.weights, model.config, trace)  # [B, T, V]


def stream_cached(ids: Tensor, model: Model, cache: KVCache, trace=None) -> Tensor:
    """The stream [B, T, d] of the new positions after the last layer, not yet normalised; as `forward_cached`."""
    check(ids, model.config, cache)
    if model.dtype != cache.keys[0].dtype:
        raise BadInput(f"the cache is {cache.keys[0].dtype} and the weights are {model.dtype}; make it for this model")
    past, T = cache.length, ids.shape[1]
    return feed(ids, model, cache, positions(past, T, ids.device), mask_after(past, T, ids.device), trace)


def feed(ids: Tensor, model: Model, cache: KVCache, at: Tensor, mask: Tensor | None, trace=None) -> Tensor:
    """The program's pass over the new `ids` [B, T] at positions `at` [T] with mask [T, S]; then the cache holds them.

    `stream_cached` gives it the right positions and mask. The failures of this chapter give it others, and nothing complains.
    """
    x = program(model).pass_over(ids, model.weights, model.config, at, mask, trace, cache)  # [B, T, d]
    cache.advance(ids)
    return x


def positions(past: int, new: int, device="cpu") -> Tensor:
    """The positions [T] of the new tokens: they start where the cache ends."""
    return torch.arange(past, past + new, device=device)


def mask_after(past: int, new: int, device="cpu") -> Tensor | None:
    """The mask [T, S] of `new` positions after `past` others; None for one, which sees everything.

    It is the last T rows of chapter 4's square, so it is aligned bottom right.
    """
    return causal_mask(new, past + new, device) if new > 1 else None


def check(ids: Tensor, config: GPT2Config | Config, cache: KVCache) -> None:
    """Raise BadInput unless the new `ids` [B, T] are the model's, of as many sequences as the cache, and within n_positions."""
    check_ids(ids, config)
    cache.check_batch(ids.shape[0])
    past, new = cache.length, ids.shape[1]
    if past + new > config.n_positions:
        raise BadInput(
            f"{past} cached and {new} new tokens are {past + new}, more than n_positions {config.n_positions}; give fewer"
        )


class Cached:
    """A `forward` for chapter 5's loop that computes only what its cache does not hold.

    It is called with the whole text so far, ids [B, t], and returns the logits [B, 1, V] of the last position. The text is
    compared with what the cache was fed: where they part, the cache is cut back to what they share and goes on from there. So
    a prefix is reused when it is one, and a cache of another text is not. Where a window has pushed out what would be needed, it
    begins anew. given: positions of the texts that it was called with so far; computed: how many of them it computed.
    """

    def __init__(self, model: Model, batch: int = 1, capacity: int | None = None, cache: KVCache | None = None):
        """cache: one of the same model to start with, say a copy of a shared prefix's, instead of an empty one."""
        if cache is not None and cache.model.weights is not model.weights:
            raise BadInput("the cache is of another model; make one for this model")
        self.model = model
        self.cache = KVCache(model, batch, capacity) if cache is None else cache
        self.given = self.computed = 0

    def __call__(self, ids: Tensor) -> Tensor:
        check_ids(ids, self.model.config)  # before anything is forgotten
        self.cache.check_batch(ids.shape[0])
        held = min(self.cache.shared_prefix(ids), ids.shape[1] - 1)  # one position at least is computed, for its logits
        held = held if self.cache.can_truncate(held) else 0
        self.cache.truncate(held)
        x = stream_cached(ids[:, held:], self.model, self.cache)  # [B, T, d]
        self.given += ids.shape[1]
        self.computed += ids.shape[1] - held
        return program(self.model).unembed(x[:, -1:], self.model.weights, self.model.config)


# -------------------------------------------------------------------------------------------------------------- the script

PROMPT_TOKENS, NEW = 12, 60  # of the text where no prompt is given, and new ones


def measure(model, ids, tokens=NEW, progress=lambda: None):
    """What the loop writes behind `ids` [1, T], greedily and with a cache, and what that cost: plain values.

    tokens: fewer where the model has no room for them. without_cache: the positions of all texts that the loop asked for, which it
    computes when nothing is kept. pairs: what the cache holds at the end, all but the last token, which is chosen and never fed.
    """
    config, prompt = general(model.config), ids.shape[1]
    forward = Cached(model, capacity=max(1, min(prompt + tokens - 1, config.n_positions)))
    room = min(tokens, config.n_positions - prompt + 1)
    made = generate(ids, model, max(1, room), end=None, forward=forward, on_token=lambda *_: progress()).sequence()
    return {
        "prompt_tokens": prompt,
        "new_tokens": len(made),
        "ids": made,
        "text": decode(made, model) if model.tokenizer else None,
        "computed": forward.computed,
        "without_cache": forward.given,
        "ratio": forward.given / forward.computed,
        "pairs": forward.cache.length,
        "latent": config.latent is not None,
        "shortest_window": min(filter(None, config.windows), default=None),
        "bytes_per_token": cache_bytes(config, 1, bytes_per_number=model.dtype.itemsize),
        "full_context": config.n_positions,
        "full_context_bytes": cache_bytes(config, config.n_positions, bytes_per_number=model.dtype.itemsize),
    }


def report(values):
    """Text of {"kv-cache": ...}."""
    v = values["kv-cache"]
    window, what = v["shortest_window"], "short vectors per layer" if v["latent"] else "pairs per layer and head"
    but = f" A layer with a window keeps only the last {window} of these." if window and window < v["pairs"] else ""
    return "\n".join(
        [
            f"{v['new_tokens']} new tokens, greedy:",
            "",
            str(v["ids"]) if v["text"] is None else v["text"].strip("\n"),
            "",
            f"The cache holds {v['pairs']:,} {what}, those of the prompt's {v['prompt_tokens']} tokens and of "
            f"{v['new_tokens'] - 1} new ones:",
            f"the last token was chosen and not yet fed.{but}",
            f"It takes {v['bytes_per_token']:,} bytes per token{', while no window is full' if window else ''}, "
            f"{v['full_context_bytes']:,} for all {v['full_context']:,} positions.",
            "",
            f"Positions computed: {v['computed']:,} with the cache; without it {v['without_cache']:,}, {v['ratio']:.1f} times "
            "as many.",
            "",
            "Next, in the same folder: cache_parity.py and cache_invariants.py show that it is the same",
            "computation, wrong_caches.py five ways to get it wrong, and cache_cost.py, cache_memory.py and",
            "decode_rate.py what it saves and what it takes.",
        ]
    )


def options():
    """The script's argument parser."""
    parser = Parser(prog="kv_cache.py", description=__doc__, keys=__file__)
    about = "new tokens, as far as the model reaches"
    parser.add_argument("--tokens", type=whole_number(1), default=NEW, metavar="N", help=about)
    return parser.add("model", "dtype", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Write a text with the cache, and print what it spared."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = ids_for(args, model, PROMPT_TOKENS)
    with progress_bar("token", args.tokens) as bar:
        found = measure(model, ids, args.tokens, bar.update)
    head = f"{args.model}: {shown(ids, model)}, {ids.shape[1]} tokens\n\n"
    answer(args, {"kv-cache": found}, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
