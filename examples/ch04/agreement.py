"""The measurements of chapter 4, each a function that returns plain values: no printing, no files, no global state.

`model` is always a chapter 2 `Model`, whose weights decide dtype and device.
"""

import math
import re
import statistics
import time
from dataclasses import replace

import torch

from examples.ch02.families import program
from examples.ch02.model import require, run
from examples.ch03.tokens import PROMPTS, decode, prompt_batches, random_ids
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.gpt2_from_scratch import LAYER_POINTS, Trace, causal_mask, no_trace
from examples.ch04.library import library_model, library_trace, refuses_float64
from examples.lab.script import BadInput

PREDICT = "Good morrow, my"  # the tour's prompt
OTHERS = (  # five more texts for the residual stream, of other kinds and lengths
    "If music be the food of love, play on; give me excess of it",
    "HAMLET:\nAlas, poor Yorick! I knew him, Horatio: a fellow of infinite jest",
    "The committee will meet again on Tuesday to discuss the new budget.",
    "for i in range(10): print(i * i)",
    "a a a a a a a a a a a a",
)
LONGEST = 2048  # tokens of the longest comparison: of the 8,192 that SmolLM2 takes, the scores are 4.8 GB a layer in float64
HALF_WORK = 4e9  # tokens times parameters: 1,100 tokens of the embedded model, 32 of GPT-2 small
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def largest(tensor):
    """Largest absolute value, as a float; NaN when there is one."""
    return tensor.abs().max().item()


def worst(values):
    """The largest of some floats, 0.0 of none; NaN when there is one, which Python's own max would hide."""
    values = list(values)
    return float("nan") if any(math.isnan(x) for x in values) else max(values, default=0.0)


def check_finite(model, source):
    """Raise BadInput when a weight of the model, loaded from `source`, is NaN or infinite."""
    for name, w in model.weights.items():
        if not w.isfinite().all():
            dtype = str(w.dtype).removeprefix("torch.")
            raise BadInput(f"{source}: {name} holds NaN or infinity in {dtype}; take another dtype or model")


# ------------------------------------------------------------------------------------------------------------- prediction


def next_tokens(model, ids, count=5):
    """The `count` most probable next tokens after `ids` [1, T]: [{id, piece, probability}], the lower id first on a tie."""
    probabilities = torch.softmax(run(model, ids)[0, -1].double(), dim=-1)  # [V]
    order = torch.argsort(probabilities, descending=True, stable=True)[:count].tolist()
    pieces = [decode([i], model) if model.tokenizer else None for i in order]
    return [{"id": i, "piece": p, "probability": probabilities[i].item()} for i, p in zip(order, pieces, strict=True)]


# -------------------------------------------------------------------------------------------------------------- agreement


def agreement(ours, theirs):
    """How far two logits tensors [B, T, V] are apart: largest difference, largest logit, and where the argmax is the same."""
    finite = ours.isfinite().all(-1) & theirs.isfinite().all(-1)  # [B, T]; among NaNs no argmax means anything
    same = (ours.argmax(-1) == theirs.argmax(-1)) & finite
    top = largest(theirs)
    difference = largest(ours.double() - theirs.double())
    return {
        "batch": ours.shape[0],
        "tokens": ours.shape[1],
        "largest_difference": difference,
        "largest_logit": top,
        "relative_difference": difference / top if top != 0 else difference,
        "same_argmax": int(same.sum()),
        "positions": same.numel(),
    }


def compare_prompts(model, library, texts=PROMPTS, seed=0, progress=lambda: None):
    """Agreement with the library on each text, or on random ids where the model has no tokenizer."""
    rows = []
    for text, ids in zip(texts, prompt_batches(model, texts, seed), strict=True):
        rows.append({"text": text if model.tokenizer else None} | _agree(model, library, ids))
        progress()
    return rows


def edge_shapes(config):
    """(B, T) at the edges of what the model takes: 1, 2, the last but one, the full context, a batch of four.

    Of a context beyond LONGEST, LONGEST and the last but one before it.
    """
    full = min(config.n_positions, LONGEST)
    shapes = [(1, 1), (1, 2), (1, full - 1), (1, full), (4, min(64, full))]
    return sorted({(b, t) for b, t in shapes if 1 <= t <= full})


def compare_edges(model, library, seed=0):
    """Agreement with the library on random ids of each of `edge_shapes`."""
    return [_agree(model, library, ids) for ids in edge_batches(model, seed)]


@torch.no_grad()
def _agree(model, library, ids):
    return agreement(run(model, ids), library(ids, use_cache=False).logits)


def compare_layers(model, library, ids):
    """Point by point of one pass: [{point, layer, largest_difference, largest_value}], of the points that the family's trace finds
    in the library: all but the scores, of a Llama all but them and q, of the others the stream, the weights and the logits."""
    ours = Trace()
    run(model, ids, trace=ours)
    return [
        {
            "point": point,
            "layer": layer,
            "largest_difference": largest(ours[point, layer].double() - theirs.double()),
            "largest_value": largest(theirs),
        }
        for (point, layer), theirs in library_trace(library, ids).items()
    ]


@torch.no_grad()
def distance_from_float64(model, batches, dtypes=tuple(DTYPES), progress=lambda: None):
    """How far both programs, in each of `dtypes`, are from our pass in float64 over `batches` of ids; the worst over all of them.

    The library in float64 is compared as well: two programs that agree there share no rounding that could hide a difference.
    That holds where the library computes in float64 throughout. Its Llama does not: norms, softmax and angles are of float32 in
    any dtype, so that its distance is float32's, which grows with the position, and only our pass is a reference. `library` is
    None where the library refuses: it takes no float64 with reorder_and_upcast_attn. Half precision is tens of times slower on a
    CPU, so there only the batches up to HALF_WORK run; `positions` says how many that were.
    """
    exact = model.to(dtype=torch.float64)
    references = [run(exact, ids) for ids in batches]
    top = worst(largest(r) for r in references)
    size = sum(w.numel() for w in model.weights.values())
    rows = []
    for name in dtypes:
        dtype = DTYPES[name]
        ours = model.to(dtype=dtype)
        refused = dtype == torch.float64 and refuses_float64(model)
        theirs = None if refused else library_model(model, dtype, model.device)
        row = {"dtype": name, "largest_logit": top, "ours": 0.0, "library": None if refused else 0.0}
        row |= {"ours_same_argmax": 0, "positions": 0}
        for ids, reference in zip(batches, references, strict=True):
            if dtype.itemsize < 4 and ids.numel() * size > HALF_WORK:
                progress()
                continue
            logits = run(ours, ids)
            row["ours"] = worst([row["ours"], largest(logits.double() - reference)])
            if not refused:
                distance = largest(theirs(ids, use_cache=False).logits.double() - reference)
                row["library"] = worst([row["library"], distance])
            row["ours_same_argmax"] += agreement(logits, reference)["same_argmax"]
            row["positions"] += reference[..., 0].numel()
            progress()
        rows.append(row)
    return rows


def edge_batches(model, seed=0):
    """Random ids of each of `edge_shapes`."""
    return [random_ids(model, t, b, seed) for b, t in edge_shapes(model.config)]


def error_by_layer(model, ids):
    """How rounding grows with depth: the stream in float32 beside float64, [{layer, relative_error}]; layer 0 is the embedding.

    The largest difference over the largest value of the stream there.
    """
    streams = []
    for dtype in (torch.float32, torch.float64):
        kept = Trace("embedding", "residual")
        run(model.to(dtype=dtype), ids, trace=kept)
        streams.append(kept.values())
    return [
        {"layer": i, "relative_error": largest(a.double() - b) / largest(b)} for i, (a, b) in enumerate(zip(*streams, strict=True))
    ]


def error_by_length(model, lengths, seed=0):
    """How rounding grows with length: the logits in float32 beside float64, [{tokens, relative_error}]."""
    exact, rows = model.to(dtype=torch.float64), []
    for tokens in lengths:
        ids = random_ids(model, tokens, seed=seed)
        reference = run(exact, ids)
        rows.append({"tokens": tokens, "relative_error": largest(run(model, ids).double() - reference) / largest(reference)})
    return rows


# --------------------------------------------------------------------------------------------------------------- the mask


def change_last(model, ids, **options):
    """Change of the logits at each position when only the last id of `ids` [1, T] changes: ([T] largest, [T] argmax moved)."""
    other = ids.clone()
    other[0, -1] = _another(ids[0, -1].item(), model.config)
    before, after = run(model, ids, **options)[0], run(model, other, **options)[0]  # [T, V]
    moved = before.argmax(-1) != after.argmax(-1)
    return (before - after).abs().amax(-1).tolist(), moved.tolist()


def influence(model, ids, progress=lambda: None, forward=run, **options):
    """T rows of T: entry [i][j] is the largest change of the logits at position i when only the id at position j changes.

    A causal model has exact zeros where j > i. Each changed text runs by itself in the same shape as the original, since a
    row's place within a batch may choose another order of summation. forward: another pass than `run`, called alike.
    """
    before = forward(model, ids, **options)[0]  # [T, V]
    columns = []
    for j in range(ids.shape[1]):
        other = ids.clone()
        other[0, j] = _another(ids[0, j].item(), model.config)
        columns.append((before - forward(model, other, **options)[0]).abs().amax(-1))  # [T]
        progress()
    return torch.stack(columns, dim=1).tolist()


def _another(id, config):
    """An id unlike `id`; the same for the same one."""
    return (id + config.vocab_size // 2) % config.vocab_size if config.vocab_size > 1 else id


def above_diagonal(matrix):
    """The largest entry [i][j] with j > i; 0.0 of a matrix of one row."""
    return worst(x for i, row in enumerate(matrix) for x in row[i + 1 :])


# The first layer's matrices that make queries, keys and values: of a GPT-2, a Llama, and of latent attention.
FIRST_QKV = re.compile(r"h\.0\.attn\.c_attn\.weight|model\.layers\.0\.self_attn\.([qkv]|q_b|kv_b)_proj\.weight")


def sharpened(model, factor=300.0):
    """`model` with the first layer's q, k and v weights times `factor`: visible scores far below -1e4 become common.

    In float32 at least, since float16 holds no such scores.
    """
    if model.dtype.itemsize < 4:
        model = model.to(dtype=torch.float32)
    names = [name for name in model.weights if FIRST_QKV.fullmatch(name)]
    return replace(model, weights=model.weights | {name: model.weights[name] * factor for name in names})


def mask_test(model, ids, progress=lambda: None):
    """What the mask does on `ids` [1, T]: the last id changed with mask and without, then every id in turn, three times T."""
    with_mask, moved = change_last(model, ids)
    without, moved_without = change_last(model, ids, causal=False)
    table = influence(model, ids, progress)
    sharp = sharpened(model)
    return {
        "tokens": ids.shape[1],
        "change_with_mask": with_mask,
        "change_without_mask": without,
        "earlier_argmax_moved_with_mask": sum(moved[:-1]),
        "earlier_argmax_moved_without_mask": sum(moved_without[:-1]),
        "influence": table,
        "largest_above_diagonal": above_diagonal(table),
        "sharpened_above_diagonal": above_diagonal(influence(sharp, ids, progress)),
        "sharpened_above_diagonal_at_minus_1e4": above_diagonal(influence(sharp, ids, progress, masked_with_minus_1e4)),
    }


def masked_with_minus_1e4(model, ids):
    """Logits [1, T, V] with the mask that old programs had: a hidden score becomes -1e4. It is here to be shown wrong."""
    T, (weights, config) = ids.shape[1], (model.weights, model.config)
    mask = causal_mask(T, T, model.device).clamp(min=-1e4)  # [T, T]
    x = program(model).pass_over(ids, weights, config, torch.arange(T, device=model.device), mask)  # [1, T, d]
    return program(model).unembed(x, weights, config)


def position_by_itself(model, seed=0):
    """Which parts, run alone, give a position the same bits whatever its neighbours are: {part: True or False}.

    Two inputs of one shape share one position and differ at all others, so bits can be compared. The embedding is told by the
    trace of a pass, layer norm, feed-forward network and attention (masked, in the first layer) by themselves. Of a GPT-2 only;
    raises BadInput for another.
    """
    require(model.config, "gpt2", "this look at single parts")
    config, weights = model.config, model.weights
    ids = random_ids(model, 9, seed=seed)
    other = random_ids(model, 9, seed=seed + 1)
    at = 4
    other[0, at] = ids[0, at]
    kept = Trace("embedding"), Trace("embedding")
    for one, trace in zip((ids, other), kept, strict=True):
        run(model, one, trace=trace)
    x, y = (trace["embedding", None] for trace in kept)  # each [1, T, d], the same at one position
    mask = causal_mask(9, 9, x.device)
    parts = {
        "embedding": lambda x: x,
        "layer_norm": lambda x: gpt2.layer_norm(x, weights, "h.0.ln_1", config),
        "feed_forward": lambda x: gpt2.mlp(x, weights, config, 0, no_trace),
        "attention": lambda x: gpt2.attention(x, weights, config, 0, mask, no_trace),
    }
    return {name: torch.equal(part(x)[0, at], part(y)[0, at]) for name, part in parts.items()}


# ---------------------------------------------------------------------------------------------------- the residual stream


def residual_statistics(model, ids):
    """The stream after the embedding and after each layer, and what each sublayer added: a list of one dict a layer.

    `layer` 0 is the embedding, i the stream after the i-th layer. rms is over all positions, rms_without_first leaves position
    0 out (None at T = 1). The norms of contributions are L2 over the whole [T, d]. Computed in float64 from the traced tensors.
    """
    kept = Trace()
    run(model, ids, trace=kept)
    rows = [_stream(kept["embedding", None], 0)]
    for layer in range(model.config.n_layer):
        row = _stream(kept["residual", layer], layer + 1)
        row["attention_norm"] = kept["attention", layer].double().norm().item()
        row["mlp_norm"] = kept["mlp", layer].double().norm().item()
        rows.append(row)
    return rows


def _stream(x, layer):
    x = x[0].double()  # [T, d]
    flat = x.abs().flatten()
    position, dimension = divmod(int(flat.argmax()), x.shape[1])
    median = flat.median().item()
    return {
        "layer": layer,
        "largest": flat.max().item(),
        "position": position,
        "dimension": dimension,
        "rms": x.square().mean().sqrt().item(),
        "rms_without_first": x[1:].square().mean().sqrt().item() if len(x) > 1 else None,
        "largest_over_median": flat.max().item() / median if median > 0 else None,
    }


# ------------------------------------------------------------------------------------------------------------------- time

COMPONENTS = ("embedding", "norms", "attention", "feed_forward", "output_projection")
# The time from one traced point to the next belongs to the later one; adding to the stream belongs to the sublayer that adds.
_COMPONENT_OF = {
    **dict.fromkeys(LAYER_POINTS, "attention"),
    **dict.fromkeys(("norm_1", "norm_2", "final_norm"), "norms"),
    **dict.fromkeys(("hidden", "mlp", "residual"), "feed_forward"),
    **{"embedding": "embedding", "logits": "output_projection"},
}


def median_after(times, discarded=1):
    """Median of `times` but for the first `discarded`: the first call of anything costs what later ones do not."""
    return statistics.median(list(times)[discarded:])


class Stopwatch:
    """A trace that adds up the seconds that each component takes. On an accelerator it waits for the work to finish first."""

    def __init__(self, device, timer=time.perf_counter):
        self.device, self.timer = device, timer
        self.seconds = dict.fromkeys(COMPONENTS, 0.0)

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.timer()

    def start(self):
        self.last = self.now()

    def __call__(self, point, layer, tensor):
        now = self.now()
        self.seconds[_COMPONENT_OF[point]] += now - self.last
        self.last = now


def component_times(model, tokens, runs=5, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Where the time of a pass over [1, tokens] goes: a dict of milliseconds, shares and GFLOP/s.

    The components are COMPONENTS of any family: norms are of whichever kind it has, and embedding is what stands before
    the first layer, a Llama's angles included, while turning by them is a part of attention.

    Traced and untraced passes alternate; of each kind the first is discarded and the median of `runs` taken, for each
    component by itself. `unexplained` is the untraced pass less the sum of the components: the tracing, and the medians' own
    disagreement. Attention and feed-forward include adding to the stream; FLOPs are those of the full rectangle.
    """
    ids = random_ids(model, tokens, seed=seed)
    device = model.device
    traced, untraced = [], []
    for _ in range(runs + 1):
        watch = Stopwatch(device, timer)
        watch.start()
        run(model, ids, trace=watch)
        traced.append(watch.seconds)
        start = watch.now()
        run(model, ids)
        untraced.append(watch.now() - start)
        progress()
    seconds = {name: median_after(s[name] for s in traced) for name in COMPONENTS}
    flops = program(model).flops_per_pass(model.config, tokens)
    by_component = {
        "attention": flops["attention_projections"] + flops["attention_scores_and_values"],
        "feed_forward": flops["feed_forward"],
        "output_projection": flops["output_projection"],
    }
    total, whole = sum(seconds.values()), median_after(untraced)
    components = [
        {
            "component": name,
            "ms": 1e3 * seconds[name],
            "time_share": seconds[name] / total,
            "flop_share": by_component.get(name, 0) / flops["total"],
            "gflop_per_s": by_component[name] / seconds[name] / 1e9 if name in by_component else None,
        }
        for name in COMPONENTS
    ]
    return {
        "tokens": tokens,
        "runs": runs,
        "components": components,
        "sum_ms": 1e3 * total,
        "untraced_ms": 1e3 * whole,
        "unexplained_ms": 1e3 * (whole - total),
        "gflop": flops["total"] / 1e9,
        "gflop_per_s": flops["total"] / whole / 1e9,
    }


def last_position_saving(model, tokens, runs=5, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Logits at every position beside logits at the last one only, over [1, tokens]: milliseconds and both savings in per cent.

    The two kinds of pass take turns; the first of each is discarded, and the median of `runs` taken.
    """
    ids = random_ids(model, tokens, seed=seed)

    def last_only():
        at, mask = torch.arange(tokens, device=model.device), causal_mask(tokens, tokens, model.device)
        x = program(model).pass_over(ids, model.weights, model.config, at, mask)  # [1, T, d]
        return program(model).unembed(x[:, -1:], model.weights, model.config)  # [1, 1, V]

    times = {"all": [], "last": []}
    for _ in range(runs + 1):
        for name, call in (("all", lambda: run(model, ids)), ("last", last_only)):
            start = timer()
            call()
            times[name].append(timer() - start)
        progress()
    everywhere, last = (median_after(times[name]) for name in ("all", "last"))
    flops = program(model).flops_per_pass(model.config, tokens)
    spared = flops["output_projection"] * (tokens - 1) / tokens
    return {
        "tokens": tokens,
        "all_ms": 1e3 * everywhere,
        "last_ms": 1e3 * last,
        "time_saving_percent": 100 * (1 - last / everywhere),
        "flop_saving_percent": 100 * spared / flops["total"],
    }


def timing_lengths(config, wanted=None):
    """The lengths to time: `wanted`, checked, or 16, 128, 512 and 1,024 as far as the model reaches, and its full context."""
    if wanted is not None:
        over = [t for t in wanted if t > config.n_positions]
        if over:
            raise BadInput(f"{over[0]} tokens are more than n_positions {config.n_positions}; give fewer")
        return wanted
    return sorted({t for t in (16, 128, 512, 1024, config.n_positions) if t <= min(config.n_positions, 1024)})


def denormals(model):
    """How many weights lie between 0 and the smallest normal number of their dtype; arithmetic on them is far slower."""
    count = 0
    for w in model.weights.values():
        size = w.abs()
        count += int(((size > 0) & (size < torch.finfo(w.dtype).tiny)).sum())
    return count
