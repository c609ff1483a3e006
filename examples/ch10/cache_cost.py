"""The commands of `kv_cache.py`: their options, and how each prints what `experiments` measures."""

import json
import math
from pathlib import Path

import torch

from examples.ch02.config import general
from examples.ch02.families import read_config
from examples.ch02.model import PUBLISHED, load, load_config
from examples.ch03.tokens import decode
from examples.ch05.generate import generate
from examples.ch10 import cache_parity as ex
from examples.ch10 import wrong_caches as plots
from examples.ch10.kv_cache import Cached, cache_bytes, cached_numbers
from examples.lab.experiment import worst
from examples.lab.figure import check_target
from examples.lab.script import BadInput, Parser, number_list, progress_bar, show, table, whole_number

TEXT = 40  # tokens of the text that splits, invariants and failures run on
PROMPT, CAPACITY = 12, 24  # of them the prompt, and what the ring buffer holds
MARKS = (1, 2, 5, 12, 25, 50, 100)  # new tokens at which costs are shown
SHAPES = {"gpt3": ex.GPT3, "toy": read_config(ex.TOY, "toy")}


def run(argv):
    """Parse `argv`, run the command it names (the tour when it names none), print tables or JSON."""
    args = options().parse_args(argv)
    if "threads" in args:
        torch.set_num_threads(args.threads)
    show(args)


def options():
    """The script's argument parser, one sub-parser for each command."""
    parser = Parser(
        prog="kv_cache.py",
        description="The KV cache. Without a command: the tour, whose options `tour --help` lists.",
        default_command="tour",
    )
    add = parser.add_command
    measured = ("model", "threads", "seed", "json")
    add("tour", tour, "a first look: one text with and without a cache", *measured)
    add("splits", splits, "a text fed in chunks, beside the oracle, and layer by layer", *measured)
    add("invariants", invariants, "what holds exactly of a cache", *measured)
    sub = add("failures", failures, "five ways to get it wrong in silence, and the guard against each", *measured)
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg, .png or .pdf")
    sub = add("cost", cost, "tokens and FLOPs of a loop with and without a cache; with --time also seconds", *measured)
    sub.add_argument("--prompt-tokens", type=whole_number(1), default=20, metavar="P", help="tokens of the prompt")
    sub.add_argument("--new", type=number_list(1), default=list(MARKS), metavar="N,N", help="how many new tokens")
    sub.add_argument("--time", action="store_true", help="run it and take the time")
    sub.add_argument("--plot", type=Path, metavar="FILE", help="with --time, draw it: .svg, .png or .pdf")
    sub.set_defaults(model="random:gpt2")  # or toy, the published one of four layers and width 64
    sub = add("memory", memory, "bytes of a cache", "json")
    about = f"gpt3, toy, {', '.join(PUBLISHED)}, embedded, a folder or a config.json"
    sub.add_argument("--config", default="gpt3", metavar="NAME or FILE", help=about)
    sub.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help="by default 1, 512 and the full context")
    sub.add_argument("--batch", type=whole_number(1, 10**9), default=1, metavar="B", help="sequences at once")
    sub.add_argument("--bytes", type=int, choices=[1, 2, 4, 8], default=2, help="bytes of one number")
    return parser


def _text(model, args, tokens=TEXT):
    """ids [1, tokens], or as many as the model takes; at least 4. Raises BadInput where the model's logits are no numbers."""
    tokens = min(tokens, model.config.n_positions)
    if tokens < 4:
        raise BadInput(f"n_positions is {tokens}, too few for this; take a model of at least 4")
    ids = ex.some_ids(model, tokens, args.seed)
    if not ex.run(model, ids).isfinite().all():
        raise BadInput(f"{args.model}: the logits hold NaN or infinity; take another model")
    return ids


def _prompt_and_capacity(ids):
    """(12, 24) of 40 tokens, and in proportion of fewer."""
    T = ids.shape[1]
    return max(2, T * PROMPT // TEXT), max(3, T * CAPACITY // TEXT)


def _about(args, **more):
    return {"model": args.model, "seed": args.seed, "threads": args.threads} | more


def _share(x):
    """A share of the largest logit in per cent; where the logits are no numbers, these words."""
    return "no numbers" if x is None or math.isnan(x) else f"{x:.1%}"


def tour(args):
    model = load(args.model, seed=args.seed)
    ids = _text(model, args, PROMPT)
    new = min(60, model.config.n_positions - ids.shape[1] + 1)
    cached = Cached(model, capacity=ids.shape[1] + new - 1)  # the last token is never fed
    ours = generate(ids, model, new, end=None, forward=cached).sequence()
    naive = generate(ids, model, new, end=None).sequence()
    counts = ex.tokens_processed(ids.shape[1], new)
    rows = ex.compare_splits(model, ids)
    farthest = worst(r["relative_difference"] for r in rows)
    text = decode(ours, model) if model.tokenizer else str(ours)
    full, config = model.config.n_positions, general(model.config)
    size = cache_bytes(config, full)
    window = min(filter(None, config.windows), default=None)
    what = "short vectors a layer" if config.latent else "pairs a layer and head"
    but = f" A layer with a window keeps only the last {window} of these." if window and window < cached.cache.length else ""
    while_filling = ", while no window is full" if window else ""
    value = _about(
        args,
        prompt=ids[0].tolist(),
        ids=ours,
        text=text,
        same_as_naive=ours == naive,
        computed=cached.computed,
        naive=counts["naive"],
        worst_split=farthest,
        cache_bytes=size,
        bytes_per_token=cache_bytes(config, 1),
    )
    lines = [
        f"A prompt of {ids.shape[1]} tokens and {new} new ones, greedy, with the cache: {json.dumps(text)}",
        "",
        f"Without the cache: {'the same tokens' if ours == naive else 'OTHER TOKENS'}. Positions computed: {cached.computed:,} "
        f"with it, {counts['naive']:,} without, {counts['naive'] / cached.computed:.1f} times as many.",
        f"The cache after {len(ours)} new tokens holds {cached.cache.length} {what}, those of the prompt and of "
        f"{len(ours) - 1} new ones: the last token was chosen and not yet fed.{but}",
        f"It takes {cache_bytes(config, 1):,} bytes a token{while_filling}, {size:,} for all {full:,} positions.",
        f"The prompt fed in five ways, beside the oracle: at most {farthest:.0e} of the largest logit apart.",
        "",
        "Next: the same script with splits, invariants, failures, cost or memory; --help says what each takes.",
    ]
    return value, "\n".join(lines)


def splits(args):
    model = load(args.model, seed=args.seed)
    ids = _text(model, args)
    rows = ex.compare_splits(model, ids)
    layers = ex.compare_layers(model, ids, ex.splits(ids.shape[1])["uneven chunks"])
    points = {}
    for r in layers:
        points.setdefault(r["point"], []).append(r["largest_difference"] / r["largest_value"])
    value = _about(args, tokens=ids.shape[1], splits=rows, layers=layers)
    shown = [[r["split"], r["chunks"], f"{r['relative_difference']:.1e}", f"{r['same_argmax']} of {r['positions']}"] for r in rows]
    text = [
        f"{args.model}: {ids.shape[1]} tokens through a cache, beside the whole pass of chapter 4",
        "",
        table(["fed", "chunks", "difference / logit", "same argmax"], shown),
        "",
        "Uneven chunks, point by point:",
        "",
        table(["point of the pass", "tensors", "difference / value"], [[p, len(x), f"{worst(x):.1e}"] for p, x in points.items()]),
    ]
    return value, "\n".join(text)


def invariants(args):
    model = load(args.model, seed=args.seed)
    ids = _text(model, args)
    found = {name: ex.invariants(model, ids, sizes) for name, sizes in ex.splits(ids.shape[1]).items()}
    keys = list(next(iter(found.values())))
    rows = [[key.replace("_", " "), *("yes" if row[key] else "NO" for row in found.values())] for key in keys]
    return _about(args, tokens=ids.shape[1], invariants=found), table(["exactly", *found], rows)


def failures(args):
    check_target(args.plot)
    model = load(args.model, seed=args.seed)
    ids = _text(model, args)
    prompt, capacity = _prompt_and_capacity(ids)
    new = min(30, model.config.n_positions - prompt)
    rows = []
    for name in ex.FAILURES:
        row = ex.failure(model, name, ids, prompt, capacity)
        row |= {"guard": ex.guard(model, name, ids, prompt, capacity), "how": ex.GUARDS[name]}
        row["text"] = ex.failure_text(model, name, ids[:, :prompt], new, capacity)
        rows.append(row)
    right = generate(ids[:, :prompt], model, new, end=None).sequence()
    right = decode(right, model) if model.tokenizer else str(right)
    value = _about(args, tokens=ids.shape[1], prompt=prompt, ring_capacity=capacity, right_text=right, failures=rows)
    numbers = [
        [
            r["failure"],
            "none" if r["first"] is None else r["first"],
            "" if r["first"] is None else _share(r["at_first"]),
            _share(r["largest"]),
            f"{r['moved']} of {r['positions']}",
            r["raised"] or "nothing",
        ]
        for r in rows
    ]
    heads = ["failure", "first wrong position", "off there", "off at most", "argmax moved", "raised"]
    parts = [
        f"{args.model}: {ids.shape[1]} tokens, a prompt of {prompt} and then one by one; the ring buffer holds {capacity}",
        "Off: the largest difference from the oracle's logits, of the largest logit.",
        "",
        table(heads, numbers),
        "",
        f"The right continuation: {json.dumps(right)}",
        *(f"{r['failure']}: {json.dumps(r['text'])}" for r in rows),
        "",
        "What stops each:",
        *(f"{r['failure']}: {r['how']}: {json.dumps(r['guard'])}" for r in rows),
    ]
    if args.plot:
        plots.plot_failures(rows, prompt, args.plot)
        parts += ["", f"plot: {args.plot}"]
    return value, "\n".join(parts)


def cost(args):
    if args.plot and not args.time:
        raise BadInput("--plot draws times; give --time too")
    check_target(args.plot)
    new, P = sorted(set(args.new)), args.prompt_tokens
    shape_only = args.model.startswith("random:") and not args.time
    model = None if shape_only else ex.toy(args.seed) if args.model == "toy" else load(args.model, seed=args.seed)
    config = load_config(args.model) if shape_only else model.config
    if P + new[-1] - 1 > config.n_positions:
        raise BadInput(f"{P} and {new[-1]} tokens are more than n_positions {config.n_positions} allows; give fewer")
    rows = []
    for m in new:
        naive, cached = ex.flops_of_loop(config, P, m)
        rows.append(
            ex.tokens_processed(P, m) | {"naive_gflop": naive / 1e9, "cached_gflop": cached / 1e9, "flop_ratio": naive / cached}
        )
    shown = [
        [
            f"{r['new']:,}",
            f"{r['naive']:,}",
            f"{r['cached']:,}",
            f"{r['ratio']:.1f}",
            f"{r['ratio_without_prefill']:.1f}",
            f"{r['naive_gflop']:,.2f}",
            f"{r['cached_gflop']:,.2f}",
            f"{r['flop_ratio']:.1f}",
        ]
        for r in rows
    ]
    heads = ["new tokens", "naive", "cached", "ratio", "without prefill", "naive, GFLOP", "cached, GFLOP", "ratio"]
    value = _about(args, prompt_tokens=P, counts=rows)
    parts = [f"{args.model}, a prompt of {P} tokens; positions computed, and FLOPs with logits at the last position:", ""]
    parts.append(table(heads, shown))
    if args.time:
        with progress_bar("loop", 8) as bar:
            times = ex.loop_times(model, P, new[-1], new, seed=args.seed, progress=bar.update)
        value["times"] = times
        shown = [
            [
                f"{t['new']:,}",
                f"{t['naive_s']:.3f}",
                f"{t['cached_s']:.3f}",
                f"{t['ratio']:.1f}",
                "" if t["ratio_without_prefill"] is None else f"{t['ratio_without_prefill']:.1f}",
            ]
            for t in times
        ]
        parts += ["", f"{args.threads} thread(s), medians of 3 runs after a discarded one:", ""]
        parts.append(table(["new tokens", "naive, s", "cached, s", "ratio", "without prefill"], shown))
        if args.plot:
            plots.plot_cost(times, args.plot)
            parts += ["", f"plot: {args.plot}"]
    return value, "\n".join(parts)


def memory(args):
    config = SHAPES[args.config] if args.config in SHAPES else load_config(args.config)
    full = config.n_positions
    over = [t for t in args.tokens or [] if t > full]
    if over:
        raise BadInput(f"{over[0]} tokens are more than n_positions {full}; give fewer")
    rows = []
    for tokens in args.tokens or sorted({min(t, full) for t in (1, 512, full)}):
        row = ex.memory(config, tokens, args.bytes)
        rows.append(row | {"batch": args.batch, "all_bytes": row["cache_bytes"] * args.batch})
    value = {"config": args.config, "bytes": args.bytes, "rows": rows}
    shown = [
        [f"{r['tokens']:,}", f"{r['all_bytes']:,}", f"{r['all_bytes'] / 2**30:,.3f}", f"{r['sequences_to_outweigh']:,}"]
        for r in rows
    ]
    latent, windows = general(config).latent, general(config).windows
    of_a_layer = f"{cached_numbers(config)} numbers" if latent else f"2 x {config.kv_heads} heads x {config.head_width}"
    tokens = f"tokens (in a layer with a window {min(filter(None, windows)):,} at most)" if any(windows) else "tokens"
    text = [
        f"{args.config}: {of_a_layer} x {config.n_layer} layers x {tokens} x {args.batch} sequence(s) x {args.bytes} bytes; "
        f"the weights take {rows[0]['weight_bytes']:,} bytes ({rows[0]['weight_bytes'] / 2**30:,.1f} GiB)",
        "",
        table(["tokens", "cache, bytes", "GiB", "sequences that outweigh the weights"], shown),
    ]
    return value, "\n".join(text)
