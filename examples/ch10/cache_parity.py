"""Chapter 10: the cached pass beside the whole one: any chunks, point by point, and through the loop beside a library.

    python examples/ch10/cache_parity.py
    python examples/ch10/cache_parity.py --model smollm2          # any family

The oracle is the model's own program over the whole text. Shapes as in chapter 4, and S for the positions attended over.
"""

import itertools
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import general
from examples.ch02.model import load_for, run
from examples.ch03.tokens import PROMPTS, default_ids, encode, random_ids
from examples.ch04.agreement import agreement
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import all_same, compare_greedy, compare_sequences
from examples.ch10.kv_cache import Cached, KVCache, forward_cached
from examples.lab.experiment import Experiment, largest, tolerance, worst
from examples.lab.script import BadInput, Parser, answer, command, progress_bar, table, whole_number

BOUND = 1e-5  # of the largest logit, for float32 programs that compute the same function
TEXT = 40  # tokens of the chapter's text
LONGEST = 1024  # tokens of the longest text that is fed: scores of SmolLM2's 8,192 are 2.4 GB per layer


def some_ids(model, tokens, seed=0):
    """ids [1, tokens]: the start of chapter 4's long text, or random ids without a tokenizer or where that is too short."""
    ids = default_ids(model, tokens, seed)
    return ids if ids.shape[1] == tokens else random_ids(model, tokens, seed=seed)


def text_for(args, model, tokens=TEXT):
    """ids [1, tokens] for a script of this chapter, or as many as the model takes.

    Raises BadInput for a model of fewer than 4 positions, and where its logits are no numbers.
    """
    tokens = min(tokens, model.config.n_positions)
    if tokens < 4:
        raise BadInput(f"n_positions is {tokens}, too few for this; take a model of at least 4")
    ids = some_ids(model, tokens, args.seed)
    if not run(model, ids).isfinite().all():
        raise BadInput(f"{args.model}: the logits hold NaN or infinity; take another model")
    return ids


# ------------------------------------------------------------------------------------------------- in chunks, beside the oracle


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


def compare_splits(model, ids, progress=lambda: None):
    """Each of `splits` of `ids` [B, T] beside the oracle: [{fed, chunks, relative_difference, same_argmax, positions}]."""
    whole, rows = run(model, ids), []
    for name, sizes in splits(ids.shape[1]).items():
        rows.append(_row(name, sizes, in_chunks(model, ids, sizes)[0], whole))
        progress()
    return rows


def _row(name, sizes, logits, whole):
    found = agreement(logits, whole)
    kept = ("relative_difference", "same_argmax", "positions")
    return {"fed": name, "chunks": len(sizes), **{key: found[key] for key in kept}}


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


# --------------------------------------------------------------------------------------------------------- the measurements


def measure(model, ids=None, progress=lambda: None):
    """A text, by default of TEXT tokens, and a batch of three fed in every way, and the full context up to LONGEST in one: a
    `tolerance` of the largest logit, and of the largest value at each traced point of uneven chunks.

    by_point: for each point of the pass its tensors and the worst of them. in_float64_within_1e_12: whether the text's logits are
    that near when all is computed in float64; None of a mixture of experts, whose routing is of float32 in any dtype.
    """
    ids = some_ids(model, TEXT) if ids is None else ids
    batch = random_ids(model, min(24, model.config.n_positions), batch=3)
    full = random_ids(model, min(model.config.n_positions, LONGEST), seed=1)
    rows, sizes = compare_splits(model, ids, progress), [full.shape[1] - 3, 1, 2]
    more = compare_splits(model, batch, progress)
    more.append(_row("the full context", sizes, in_chunks(model, full, sizes)[0], run(model, full)))
    progress()
    layers, points = compare_layers(model, ids, splits(ids.shape[1])["uneven chunks"]), {}
    for r in layers:
        points.setdefault(r["point"], []).append(r["largest_difference"] / r["largest_value"])
    progress()
    in_float64 = None
    if general(model.config).experts is None:
        exact = compare_splits(model.to(dtype=torch.float64), ids, progress)
        in_float64 = worst(r["relative_difference"] for r in exact) <= 1e-12
    positions, same = (sum(r[key] for r in rows + more) for key in ("positions", "same_argmax"))
    return tolerance(
        BOUND,
        worst([*(r["relative_difference"] for r in rows + more), *itertools.chain(*points.values())]),
        same == positions and in_float64 is not False,
        splits=rows,
        tensors=len(layers),
        by_point=[{"point": point, "tensors": len(off), "relative_difference": worst(off)} for point, off in points.items()],
        positions=positions,
        same_argmax=same,
        full_context=full.shape[1],
        in_float64_within_1e_12=in_float64,
    )


def measure_at_size(model):
    """A batch of two of 10 tokens in every way, and the full context in one: a `tolerance` of the largest logit."""
    full = random_ids(model, model.config.n_positions)
    sizes = [full.shape[1] - 20, 13, *[1] * 7]
    rows = compare_splits(model, random_ids(model, 10, batch=2, seed=1))
    rows.append(_row("the full context", sizes, in_chunks(model, full, sizes)[0], run(model, full)))
    positions, same = (sum(r[key] for r in rows) for key in ("positions", "same_argmax"))
    off = worst(r["relative_difference"] for r in rows)
    return tolerance(BOUND, off, same == positions, splits=rows, positions=positions, same_argmax=same)


def measure_greedy(model, texts=PROMPTS, tokens=None, progress=lambda: None):
    """The loop with the cache: greedy beside transformers from each text, `tokens` new ones or up to the last position; a sampled
    batch beside each row alone; and a reused prefix. A `tolerance` of no differing token.

    pairs_held, computed: of the cache after `tokens_emitted` tokens behind a prompt of `prompt`.
    """
    greedy = compare_greedy(model, texts, tokens, forward=Cached, library=library_model(model))
    progress()
    batch = compare_sequences(model, texts, 40, 0.8, forward=Cached)
    progress()
    cached, ids = Cached(model), encode(texts[0], model)
    emitted = generate(ids, model, 20, end=None, forward=cached).lengths[0]
    reused = reuse(model, some_ids(model, TEXT), [torch.tensor([1]), torch.tensor([2, 3, 4])])
    found = all_same(
        greedy + batch,
        tokens_emitted=emitted,
        prompt=ids.shape[1],
        pairs_held=cached.cache.length,
        computed=cached.computed,
        reuse=reused,
    )
    return found | {"held": found["held"] and all(r["same"] for r in reused)}


# --------------------------------------------------------------------------------------------------------------- the tables


def report(values):
    """Text of {"splits": ..., "greedy": ...}; the second may be left out."""
    v = values["splits"]
    within = {True: " In float64 all stays within 1e-12: what is left is rounding.", False: " In float64 more than 1e-12 is left."}
    in_float64 = within.get(v["in_float64_within_1e_12"], "")
    shown = [
        [r["fed"], r["chunks"], f"{r['relative_difference']:.1e}", f"{r['same_argmax']} of {r['positions']}"] for r in v["splits"]
    ]
    points = [[r["point"], r["tensors"], f"{r['relative_difference']:.1e}"] for r in v["by_point"]]
    parts = [
        "A text through the cache, beside the whole pass:",
        "",
        table(["fed", "chunks", "difference / logit", "same argmax"], shown),
        "",
        "Uneven chunks, point by point:",
        "",
        table(["point of the pass", "tensors", "difference / value"], points),
        "",
    ]
    if "greedy" in values:
        g = values["greedy"]
        rows = [[repr(r["text"]), r["prompt"], f"{r['same']} of {r['tokens']}"] for r in g["rows"]]
        reused = [[r["ending"], r["computed"], r["from_nothing"], "yes" if r["same"] else "NO"] for r in g["reuse"]]
        parts += [
            "Through the loop: greedy beside transformers, then a sampled batch beside each row alone:",
            "",
            table(["prompt", "its tokens", "the same tokens"], rows),
            "",
            "A prefix computed once, and endings behind copies of its cache:",
            "",
            table(["tokens in the ending", "computed", "from nothing", "as the oracle"], reused),
            "",
            f"After {g['tokens_emitted']} tokens behind a prompt of {g['prompt']} the cache holds {g['pairs_held']} positions.",
        ]
    return "\n".join(
        [
            *parts,
            f"With a batch of three and a text of {v['full_context']:,} tokens: at most {v['worst']:.0e} apart, and the same most "
            "probable",
            f"token at {v['same_argmax']:,} of {v['positions']:,} positions.{in_float64}",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch10.splits",
        "tolerance",
        "Fed through the cache in any chunks, a text has the oracle's logits within 1e-5 of the largest, and its other tensors.",
        "Five ways to feed one text and a batch, and the full context in one way, on one model, a CPU, float32 and float64.",
        measure,
        leaves_out=("relative_difference", "by_point"),
        seconds=3,
    ),
    Experiment(
        "ch10.splits-at-size",
        "tolerance",
        "On random weights of GPT-2's shape cached logits are within 1e-5 of the oracle's too, at the full context and in a batch.",
        "Random weights; the full context is fed in one way only.",
        measure_at_size,
        model="random:gpt2",
        movable=False,
        leaves_out=("relative_difference",),
        seconds=15,
    ),
    Experiment(
        "ch10.greedy",
        "tolerance",
        "With the cache, greedy and sampled text are the same tokens as transformers' and as each row alone, to the last position.",
        "Four prompts; a near tie could part two right programs.",
        measure_greedy,
        headline=("same", "int"),
        seconds=12,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cache_parity.py", description=__doc__, keys=__file__)
    about = "greedy tokens from each prompt, which the library writes as well"
    parser.add_argument("--tokens", type=whole_number(1), default=60, metavar="N", help=about)
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print how far the cached pass and the whole one are apart."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = text_for(args, model)
    with progress_bar("comparison", 19 if model.tokenizer else 17) as bar:
        values = {"splits": measure(model, ids, bar.update)}
        if model.tokenizer is not None:  # random weights have no text to write
            values["greedy"] = measure_greedy(model, tokens=args.tokens, progress=bar.update)
    answer(args, values, lambda values: f"{args.model}: {ids.shape[1]} tokens\n\n" + report(values))


if __name__ == "__main__":
    sys.exit(main())
