"""The measurements of chapter 10, each a function that returns plain values: no printing, no files, no global state.

`model` is always a chapter 2 `Model` of any family, whose weights decide dtype and device.
"""

import itertools
import math
import time

import torch

from examples.ch02.config import GPT2Config
from examples.ch02.families import formulas, program
from examples.ch02.model import random_model, require, run
from examples.ch03.tokens import decode, default_ids, random_ids
from examples.ch04.agreement import agreement
from examples.ch04.library import library_model
from examples.ch05.generate import generate, whole_text
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes, check, feed, forward_cached, mask_after, positions
from examples.lab.experiment import largest, median_after, worst
from examples.lab.script import BadInput

GPT3 = GPT2Config(vocab_size=50257, n_positions=2048, n_embd=12288, n_layer=96, n_head=96)
# four layers and width 64, as published
TOY = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 4, "n_head": 4}
BOUND = 1e-5  # of the largest logit


def toy(seed=0):
    """The toy as a `Model` with random weights."""
    return random_model(TOY, seed, source="toy")


def some_ids(model, tokens, seed=0):
    """ids [1, tokens]: the start of chapter 4's long text, or random ids without a tokenizer or where that is too short."""
    ids = default_ids(model, tokens, seed)
    return ids if ids.shape[1] == tokens else random_ids(model, tokens, seed=seed)


# ----------------------------------------------------------------------------------------------------------------- agreement


def splits(tokens):
    """Ways to feed so many tokens: {name: sizes of the chunks}."""
    third = max(1, tokens // 3)
    uneven, sizes = tokens, []
    for size in (3, 1, 5, 2, 8, 13):
        sizes.append(min(size, uneven))
        uneven -= sizes[-1]
    return {
        "all at once": [tokens],
        "one by one": [1] * tokens,
        "a prompt, then one by one": [third] + [1] * (tokens - third),
        "one, then the rest": [1, tokens - 1] if tokens > 1 else [1],
        "uneven chunks": [s for s in (*sizes, uneven) if s],
    }


def in_chunks(model, ids, sizes, capacity=None, trace=None):
    """Logits [B, T, V] of `ids` [B, T] fed in chunks of these sizes through one cache; and that cache."""
    cache = KVCache(model, ids.shape[0], capacity)
    logits, start = [], 0
    for size in sizes:
        logits.append(forward_cached(ids[:, start : start + size], model, cache, trace))
        start += size
    return torch.cat(logits, dim=1), cache


def compare_splits(model, ids):
    """Each of `splits` beside the oracle: [{split, chunks, ...agreement}]."""
    whole = run(model, ids)
    rows = []
    for name, sizes in splits(ids.shape[1]).items():
        rows.append({"split": name, "chunks": len(sizes), **agreement(in_chunks(model, ids, sizes)[0], whole)})
    return rows


ROWS_AND_KEYS = ("scores", "A")  # [B, h, T, S]: a chunk has fewer keys than the oracle, which masks the others


def traced(model, ids, sizes=None):
    """{(point, layer): tensor} of a pass over `ids` [B, T], the chunks put together along the positions; None is the oracle.

    The oracle's scores are minus infinity and its entries of A 0 where the mask hides, and so is what a chunk does not have.
    """
    kept = {}

    def trace(point, layer, x):
        kept.setdefault((point, layer), []).append(x)

    if sizes is None:
        run(model, ids, trace=trace)
    else:
        in_chunks(model, ids, sizes, trace=trace)
    T, ends, found = ids.shape[1], list(itertools.accumulate(sizes or [ids.shape[1]])), {}
    for (point, layer), parts in kept.items():
        if point in ROWS_AND_KEYS:
            fill = -float("inf") if point == "scores" else 0.0
            # a chunk's keys end where it ends; of a layer with a window they are the last ones
            pads = [(end - x.shape[-1], T - end) for x, end in zip(parts, ends, strict=True)]
            parts = [torch.nn.functional.pad(x, pad, value=fill) for x, pad in zip(parts, pads, strict=True)]
        along = 2 if parts[0].ndim == 4 else 1  # [B, h, T, .] or [B, T, .]
        found[point, layer] = torch.cat(parts, dim=along)
    return found


def compare_layers(model, ids, sizes):
    """Point by point, in chunks beside the oracle: [{point, layer, largest_difference, largest_value}]."""
    ours, theirs = traced(model, ids, sizes), traced(model, ids)
    rows = []
    for (point, layer), right in theirs.items():
        left = ours[point, layer]
        visible = right > -float("inf")
        if torch.equal(left > -float("inf"), visible):
            difference = largest(left[visible].double() - right[visible].double())
        else:  # another mask: wrong by all there is
            difference = largest(right[visible])
        rows.append({"point": point, "layer": layer, "largest_difference": difference, "largest_value": largest(right[visible])})
    return rows


# ---------------------------------------------------------------------------------------------------------------- invariants


def invariants(model, ids, sizes):
    """What holds exactly of a cache that `ids` [1, T] are fed to in chunks: {holds_t_pairs, old_pairs_kept, ...}, booleans.

    causal: with the last id of the text changed, the logits and pairs before it keep their bits.
    """
    cache = KVCache(model)
    layers = range(model.config.n_layer)
    counted, kept, fed = [], [], 0
    for size in sizes:
        old = [[x.clone() for x in cache.live(layer)] for layer in layers]
        forward_cached(ids[:, fed : fed + size], model, cache)
        for layer in layers:
            kept += [_same_old_pairs(new, x, size) for new, x in zip(cache.live(layer), old[layer], strict=True)]
        fed += size
        live = [cache.live(layer)[0] for layer in layers]  # keys, each [1, g, n, dh], which are not 0
        counted.append(cache.length == fed and all(x.shape[2] == min(fed, cache.room(i)) for i, x in enumerate(live)))
        counted.append(all(bool((x != 0).any(-1).all()) for x in live))
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % model.config.vocab_size
    (a, one), (b, two) = (in_chunks(model, x, sizes) for x in (ids, other))
    last = ids.shape[1] - 1
    behind = [x[:, :, fed:] for x in (*cache.keys, *cache.values)]
    pairs = [(x[:, :, :-1], y[:, :, :-1]) for layer in layers for x, y in zip(one.live(layer), two.live(layer), strict=True)]
    return {
        "holds_t_pairs": all(counted),
        "nothing_behind_them": not any(x.any() for x in behind),
        "old_pairs_kept": all(kept),
        "causal_logits": torch.equal(a[:, :last], b[:, :last]) and not torch.equal(a[:, last], b[:, last]),
        "causal_pairs": all(torch.equal(x, y) for x, y in pairs),
        "bytes_as_counted": cache.nbytes == cache_bytes(model.config, cache.capacity, cache.batch, model.dtype.itemsize),
    }


def _same_old_pairs(new, old, size):
    """Whether what `new` [1, g, n, dh] still has of the positions in `old`, before `size` new ones, has the same bits."""
    both = max(0, new.shape[2] - size)
    return torch.equal(new[:, :, :both], old[:, :, old.shape[2] - both :])


def reuse(model, prefix, endings):
    """A shared prefix computed once: [{ending, computed, same}] for each ending of ids [T], beside each text from nothing.

    computed: positions that this ending cost. same: whether the logits are the oracle's within BOUND.
    """
    first = Cached(model)
    first(prefix)
    rows = []
    for ending in endings:
        text = torch.cat([prefix, ending[None]], dim=1)
        second = Cached(model, cache=first.cache.copy())
        logits, whole = second(text)[:, -1], run(model, text)[:, -1]
        near = largest(logits - whole) <= BOUND * largest(whole)
        rows.append({"ending": len(ending), "computed": second.computed, "from_nothing": text.shape[1], "same": near})
    return rows


# ------------------------------------------------------------------------------------------------------------------ failures


class RingCache(KVCache):
    """A cache that does not end: position t goes to slot t mod capacity, over whatever lives there. Here to be shown wrong.

    A layer with a window is left as it is: there it would be right to drop the oldest.
    """

    def check_room(self, new):
        pass

    def extend(self, layer, k, v):
        if self.room(layer) < self.capacity:
            return super().extend(layer, k, v)
        for i in range(k.shape[2]):
            slot = (self.length + i) % self.capacity
            self.keys[layer][:, :, slot] = k[:, :, i]
            self.values[layer][:, :, slot] = v[:, :, i]
        end = min(self.length + k.shape[2], self.capacity)
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, ids):
        self.keep_windows()
        for i in range(ids.shape[1]):
            self.ids[:, (self.length + i) % self.capacity] = ids[:, i]
        self.length += ids.shape[1]


class Wrong:
    """A `forward` for chapter 5's loop that feeds only the new ids, with one fault; it never complains.

    at, mask: functions that give positions and mask, as those of `kv_cache` do. cache: what to start with; its length is taken
    for a prefix of whatever text comes.
    """

    def __init__(self, model, at=positions, mask=mask_after, cache=None):
        self.model, self.at, self.mask = model, at, mask
        self.cache = KVCache(model) if cache is None else cache

    def __call__(self, ids):
        past = self.cache.length
        new = ids[:, past:]  # [1, T]: the prompt at first, then one token
        T, held = new.shape[1], min(past, self.cache.capacity)
        x = feed(new, self.model, self.cache, self.at(past, T), self.mask(held, T))
        return program(self.model).unembed(x, self.model.weights, self.model.config)


def always_zero(past, new):
    """Positions 0 for every token after the prompt."""
    return torch.zeros(new, dtype=torch.int64) if past else torch.arange(new)


def one_too_far(past, new):
    """Positions one too large after the prompt: the count of tokens in place of the position of the last."""
    return torch.arange(past, past + new) + (1 if past else 0)


def top_left(past, new):
    """The square causal mask of `new` tokens laid on the first columns of [new, past + new]; for a first chunk it is right."""
    return torch.full((new, past + new), -math.inf).triu(1)


FAILURES = ("position always 0", "position off by one", "ring buffer", "another prefix", "mask aligned top left")
GUARDS = {
    "position always 0": "positions come from the cache's length alone; `guarded` compares them with it",
    "position off by one": "positions come from the cache's length alone; `guarded` compares them with it",
    "ring buffer": "the cache refuses what does not fit",
    "another prefix": "the cache keeps the ids it was fed; `Cached` compares them",
    "mask aligned top left": "each new position must see itself and all before it; `guarded` counts them",
}


def wrong(model, name, ids, prompt, capacity):
    """The `Wrong` forward of this name for the text `ids` [1, T], whose first `prompt` tokens are the prompt."""
    if name == "position always 0":
        return Wrong(model, at=always_zero)
    if name == "position off by one":
        return Wrong(model, at=one_too_far)
    if name == "ring buffer":
        return Wrong(model, cache=RingCache(model, capacity=capacity))
    if name == "another prefix":
        cache, other = KVCache(model), ids[:, :prompt].clone()
        other[0, 0] = (ids[0, 0] + 1) % model.config.vocab_size  # a prompt of the same length that begins with another token
        forward_cached(other[:, : prompt - 1], model, cache)
        return Wrong(model, cache=cache)
    if name == "mask aligned top left":
        return Wrong(model, mask=top_left)
    raise KeyError(name)


def failure(model, name, ids, prompt, capacity, tolerance=1e-3):
    """What one failure does to the logits of `ids` [1, T], fed the prompt and then one by one: where, how much, how loudly.

    first: the first position whose logits leave the oracle's by more than `tolerance` of the largest. at_first, at_last: how far
    the logits are from the oracle's there, of the largest logit; moved: positions whose argmax is another. raised: the exception
    that it ended with, or None.
    """
    whole = run(model, ids)[0]  # [T, V]
    forward, found, raised = wrong(model, name, ids, prompt, capacity), {}, None
    try:
        for t in range(prompt, ids.shape[1] + 1):
            logits = forward(ids[:, :t])[0]  # [T of the call, V]
            for i, row in enumerate(logits):
                found[t - len(logits) + i] = row
    except Exception as error:  # whatever it is: the point is to see whether there is one
        raised = f"{type(error).__name__}: {error}"
    top = largest(whole)
    off = {t: largest(row - whole[t]) / top for t, row in found.items()}
    first = next((t for t in sorted(off) if not off[t] <= tolerance), None)
    return {
        "failure": name,
        "first": first,
        "at_first": None if first is None else off[first],
        "at_last": off[max(off)] if off else None,
        "largest": worst(off.values()),
        "moved": sum(not row.isfinite().all() or bool(row.argmax() != whole[t].argmax()) for t, row in found.items()),
        "positions": len(found),
        "raised": raised,
        "by_position": [off.get(t) for t in range(ids.shape[1])],
    }


def failure_text(model, name, ids, tokens, capacity):
    """The greedy continuation of the prompt `ids` [1, T] with this failure, as text; or why there is none."""
    try:
        made = generate(ids, model, tokens, end=None, forward=wrong(model, name, ids, ids.shape[1], capacity))
    except BadInput as error:  # a row that sees nothing has no numbers
        return f"({error})"
    return decode(made.sequence(), model) if model.tokenizer else str(made.sequence())


def guarded(ids, config, cache, at, mask):
    """What `stream_cached` takes for granted, as checks of what a pass is about to do: raises BadInput for a wrong one.

    Positions are the cache's length and on; row i of the mask shows exactly the past, itself and the i before it; the ids fit.
    """
    check(ids, config, cache)
    past, T = cache.length, ids.shape[1]
    if at.tolist() != list(range(past, past + T)):
        raise BadInput(f"positions {at.tolist()[:3]} for new tokens, and the cache holds {past}; take them from its length")
    right = torch.arange(past + T) <= torch.arange(past, past + T)[:, None]  # [T, S], True: to be seen
    seen = torch.ones_like(right) if mask is None else mask == 0
    if not torch.equal(seen, right):
        raise BadInput(f"the first new position sees {int(seen[0].sum())} positions, not {past + 1}; align the mask bottom right")


def guard(model, name, ids, prompt, capacity):
    """The message with which this failure's guard stops it at the first wrong step, or None if it does not."""
    forward = wrong(model, name, ids, prompt, capacity)
    try:
        if name == "another prefix":
            held = forward.cache.shared_prefix(ids[:, :prompt])
            if held < forward.cache.length:
                raise BadInput(f"the cache holds {forward.cache.length} positions, and only {held} are of this text; truncate it")
        for t in range(prompt, ids.shape[1] + 1):
            past = forward.cache.length
            new = ids[:, past:t]
            if name == "ring buffer":
                KVCache.check_room(forward.cache, new.shape[1])
            else:
                guarded(new, model.config, forward.cache, forward.at(past, t - past), forward.mask(past, t - past))
            forward(ids[:, :t])
    except BadInput as error:
        return str(error)
    return None


# ---------------------------------------------------------------------------------------------------------------------- cost


def tokens_processed(prompt, new):
    """Positions that a loop computes for `new` tokens after a prompt: {naive, cached, without_prefill, ...}.

    naive: the whole text at each step. cached: the prompt once, and then each new token but the last, which is never fed.
    without_prefill: one for each new token, which is what the published ratios divide by.
    """
    naive = new * prompt + new * (new - 1) // 2
    cached = prompt + new - 1
    return {
        "new": new,
        "naive": naive,
        "cached": cached,
        "without_prefill": new,
        "ratio": naive / cached,
        "ratio_without_prefill": naive / new,
    }


def flops_of_loop(config, prompt, new):
    """(naive, cached): FLOPs of the model's matmuls for `new` tokens after a prompt, logits at the last position only.

    Each pass over T positions of which `past` are cached: T columns of matmuls, T (past + T) pairs of query and key, which is the
    full rectangle that the program executes, and one row of the output projection. Of other families it is what `flops_per_token`
    counts: within a window only, of a mixture the experts that a token takes, of latent attention the absorbed form. There the
    programs do more.
    """

    def step(past, T):
        parts = formulas(config).flops_per_token(config, past + T)
        return T * (parts["total"] - parts["output_projection"]) + parts["output_projection"]

    naive = sum(step(0, prompt + j) for j in range(new))
    return naive, step(0, prompt) + sum(step(prompt + j, 1) for j in range(new - 1))


def loop_times(model, prompt, new, marks, runs=3, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Seconds until the m-th new token, naive and cached, for each m in `marks`: medians of `runs` after a discarded one.

    [{new, naive_s, cached_s, ratio, ratio_without_prefill, ...}]: the latter leaves the prefill out, as counts of positions may: it
    divides the naive time by m decode steps at their mean time. Beside them the same ratios of positions, and that of FLOPs.
    """
    ids = random_ids(model, prompt, seed=seed)
    times = {"naive": [], "cached": []}
    for _ in range(runs + 1):
        for name in times:
            forward = whole_text(model) if name == "naive" else Cached(model, capacity=min(prompt + new, model.config.n_positions))
            stamps, start = [], timer()
            generate(ids, model, new, end=None, forward=forward, on_token=lambda *_, stamps=stamps: stamps.append(timer()))
            times[name].append([t - start for t in stamps])
            progress()
    rows = []
    for m in marks:
        naive, cached = (median_after(run[m - 1] for run in times[name]) for name in ("naive", "cached"))
        after = median_after(run[m - 1] - run[0] for run in times["cached"])
        counted, (naive_flops, cached_flops) = tokens_processed(prompt, m), flops_of_loop(model.config, prompt, m)
        rows.append(
            {
                "new": m,
                "naive_s": naive,
                "cached_s": cached,
                "ratio": naive / cached,
                "ratio_without_prefill": naive / (after * m / (m - 1)) if m > 1 else None,
                "positions_ratio": counted["ratio"],
                "positions_ratio_without_prefill": counted["ratio_without_prefill"],
                "flop_ratio": naive_flops / cached_flops,
            }
        )
    return rows


# -------------------------------------------------------------------------------------------------------------------- memory


def memory(config, tokens, bytes_per_number=2):
    """Bytes of one sequence's cache at so many tokens, beside those of the weights, and how many sequences outweigh them."""
    one = cache_bytes(config, tokens, 1, bytes_per_number)
    weights = formulas(config).parameter_count(config)["total"] * bytes_per_number
    return {"tokens": tokens, "cache_bytes": one, "weight_bytes": weights, "sequences_to_outweigh": weights // one + 1}


# ------------------------------------------------------------------------------------------------------------ speed of decoding


def matrices(model):
    """The weight matrices that a decode step reads whole: all but the position table; the token table as the head."""
    require(model.config, "gpt2", "the floor of decoding")
    tied = model.config.tie_word_embeddings
    skip = {"wpe.weight"} | (set() if tied else {"wte.weight"})
    return [
        w if name in ("wte.weight", "lm_head.weight") else w.t()
        for name, w in model.weights.items()
        if w.ndim == 2 and name not in skip
    ]


def decode_rates(model, tokens=64, runs=5, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Tokens a second of greedy decoding, batch 1, from a prompt of one token: ours, the library's, and the bare floor.

    Ours is `generate` with `Cached`; the library's its own `generate` with its cache and its default, fused attention; the floor
    multiplies every matrix of the model by a vector, once for each token, and does nothing else. They take turns, in another
    order each time; the first turn is discarded, and medians of `runs` are taken.
    """
    library = library_model(model)
    library.set_attn_implementation("sdpa")
    ids = random_ids(model, 1, seed=seed)
    pairs = [(w, torch.randn(w.shape[1], dtype=w.dtype)) for w in matrices(model)]

    def floor():
        for _ in range(tokens):
            for w, x in pairs:
                torch.mv(w, x)

    settings = dict(max_new_tokens=tokens, do_sample=False, use_cache=True, pad_token_id=0, eos_token_id=None)
    calls = {
        "ours": lambda: generate(ids, model, tokens, end=None, forward=Cached(model, capacity=tokens)),
        "library": lambda: library.generate(ids, attention_mask=torch.ones_like(ids), **settings),
        "floor": floor,
    }
    times = {name: [] for name in calls}
    with torch.inference_mode():
        for turn in range(runs + 1):
            order = list(calls)
            for name in order[turn % 3 :] + order[: turn % 3]:
                start = timer()
                calls[name]()
                times[name].append(timer() - start)
                progress()
    rate = {name: tokens / median_after(times[name]) for name in calls}
    return {
        "tokens": tokens,
        **{f"{name}_per_s": rate[name] for name in calls},
        "over_library": rate["ours"] / rate["library"],
        "over_floor": rate["ours"] / rate["floor"],
        "library_over_floor": rate["library"] / rate["floor"],
    }
