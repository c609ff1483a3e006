"""The commands of `variants.py`: their options, and how each prints what `experiments` measures."""

import textwrap
from pathlib import Path

import torch

from examples.ch02.config import general
from examples.ch02.model import check_finite, load
from examples.ch03.tokens import default_ids, encode, random_ids
from examples.ch14 import family_agreement as ex
from examples.ch14 import plots, serving
from examples.ch14.ten_choices import explain as sentences
from examples.ch14.ten_choices import options_of
from examples.lab.experiment import worst
from examples.lab.figure import check_target
from examples.lab.script import BadInput, Parser, progress_bar, show, table, whole_number


def run(argv):
    """Parse `argv`, run the command it names (`table` when it names none), print tables or JSON."""
    args = options().parse_args(argv)
    if "threads" in args:
        torch.set_num_threads(args.threads)
    show(args)


def options():
    """The script's argument parser, one sub-parser for each command."""
    parser = Parser(
        prog="variants.py",
        description="One forward pass for fourteen families. Without a command: the table of the ten choices.",
        default_command="table",
    )
    add = parser.add_command
    add("table", choices_table, "the ten choices: who takes which option, what it costs, does it agree", "threads", "json")
    sub = add("explain", explain, "which computation a config is, line by line", "json")
    sub.add_argument("config", metavar="CONFIG", help="a config.json, its folder, embedded, or a model of configs.py's table")
    add("rank", rank, "the choices by what they matter for serving", "json")
    sub = add("depth", depth, "the stream's growth and the gradient at the embedding, by where the norms stand", "threads", "json")
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg, .png or .pdf")
    add("reach", reach, "how far back a window's layers see, by perturbation", "threads", "json")
    sub = add("prefix", prefix, "what its kind of positions means for reusing a cached text", "model", "threads", "seed", "json")
    sub.add_argument("--shifts", type=whole_number(1), nargs="+", default=[1, 100], metavar="N", help="positions to move a text by")
    return parser


def choices_table(args):
    with progress_bar("model", len(ex.CASES)) as bar:
        cases = ex.agreements(bar.update)
    rows = ex.verified(ex.option_effects(), cases)
    shown = [
        [
            f"{r['choice']}: {r['option']}" + (" *" if r["is_base"] else ""),
            f"{r['parameters_change'] / 1e6:+,.1f}" if r["parameters_change"] else "0",
            f"{r['kv_bytes_per_token'] / 1024:g}",
            f"{r['cache_bytes'] / 2**20:,.0f}",
            f"{r['flops_change'] / 1e9:+.2f}" if r["flops_change"] else "0",
            f"{r['worst']:.1e}" if r["cases"] else "n/a",
        ]
        for r in rows
    ]
    heads = ["choice: option", "parameters, 10^6", "cache, KiB a token", "MiB at 8,192", "GFLOP a token", "agreement"]
    farthest = worst(c["worst"] for c in cases)
    causal = max(c["above_diagonal"] for c in cases)
    lines = [
        f"What one option does to {ex.BASE}'s shape (*: what it is), at two bytes a number and 8,192 positions. Agreement: the",
        "largest difference of a logit from transformers', over the largest logit, of the tiny models that take the option.",
        "",
        table(heads, shown),
        "",
        "Who takes it, by the configurations kept here:",
        *(f"  {r['choice']}: {r['option']}: {', '.join(r['families']) or 'none of these'}" for r in rows),
        "",
        f"{len(cases)} tiny models beside transformers, float32, eager: at most {farthest:.1e} of the largest logit, "
        f"{sum(c['same_argmax'] for c in cases):,} of {sum(c['positions'] for c in cases):,} argmaxes the same;",
        f"the largest change of a logit before the token that changed: {causal}.",
        "Next: explain CONFIG, rank, depth, reach, prefix; configs.py counts real models.",
    ]
    return {"base": ex.BASE, "options": rows, "cases": cases, "worst": farthest, "above_diagonal": causal}, "\n".join(lines)


def explain(args):
    config = serving.config_named(args.config)
    chosen, lines = options_of(config), sentences(config)
    lines = [textwrap.fill(line, 110, subsequent_indent="  ") for line in lines]
    text = [f"{args.config}, model_type {config.model_type}", "", table(["choice", "option"], list(chosen.items())), "", *lines]
    return {"config": args.config, "model_type": config.model_type, "options": chosen, "lines": sentences(config)}, "\n".join(text)


def rank(args):
    rows = ex.ranking()
    shown = [
        [r["choice"], *(f"{r[k]:.3g}" for k in ("step_ratio", "memory_ratio", "flops_ratio")), r["cheapest"], r["dearest"]]
        for r in rows
    ]
    heads = ["choice", "bytes a step", "bytes held", "FLOPs", "cheapest option", "dearest option"]
    tokens, batch = ex.SERVED
    head = (
        f"The dearest option of each choice over the cheapest, everything else {ex.BASE}'s: {batch} sequences of {tokens:,} "
        "positions, two bytes a number"
    )
    return {"base": ex.BASE, "tokens": tokens, "batch": batch, "choices": rows}, head + "\n\n" + table(heads, shown)


def depth(args):
    check_target(args.plot)
    rows = ex.depths()
    shown = [
        [r["norm_place"], r["layers"], r["norms_on_the_path"], *(f"{r[k]:.2f}" for k in ("growth", "gradient", "last_gradient"))]
        for r in rows
    ]
    heads = [
        "norms",
        "layers",
        "norms on the stream's path",
        "last stream / first",
        "gradient at the embedding",
        "in the last layer",
    ]
    text = "Random models of width 64, variances kept by every matrix; medians of nine seeds\n\n" + table(heads, shown)
    if args.plot:
        plots.plot_depth(rows, args.plot)
        text += f"\n\nplot: {args.plot}"
    return {"rows": rows}, text


def reach(args):
    rows = ex.reaches()
    shown = [[r["window"], r["layers"], r["farthest"], r["formula"]] for r in rows]
    text = "The id at position 0 changes; the farthest position whose logits are not bit for bit the same\n\n"
    return {"rows": rows}, text + table(["window", "layers", "farthest", "L (W - 1)"], shown)


def prefix(args):
    model = load(args.model, seed=args.seed)
    check_finite(model, args.model)
    ids = default_ids(model, 17, args.seed)
    over = [n for n in args.shifts if n + ids.shape[1] > model.config.n_positions]
    if over:
        raise BadInput(f"{ids.shape[1]} tokens {over[0]} positions later pass n_positions {model.config.n_positions}; give fewer")
    shifts = [ex.shift(model, ids, by) for by in args.shifts]
    value = {"model": args.model, "tokens": ids.shape[1], "shifts": shifts}
    shown = [[r["by"], f"{r['worst']:.1e}", f"{r['same_argmax']} of {r['positions']}"] for r in shifts]
    text = [
        f"{args.model}: {ids.shape[1]} tokens with nothing before them, moved to later positions",
        "",
        table(["positions later", "logits off, of the largest", "same argmax"], shown),
    ]
    if general(model.config).positions == "rope":
        before = encode(ex.BEFORE, model) if model.tokenizer else random_ids(model, 7, seed=args.seed + 1)
        rows = ex.prefix_keys(model, before, ids)
        value |= {"before": before.shape[1], "layers": rows}
        text += [
            "",
            f"The same tokens after {before.shape[1]} others: keys (turned on) and values computed alone, beside the right ones",
            "",
            table(["layer", "keys off", "values off"], [[r["layer"], f"{r['keys']:.1e}", f"{r['values']:.1e}"] for r in rows]),
        ]
    else:
        text += [
            "",
            "Its positions are no rotations, so that cached keys cannot be turned on to another place; with smollm2 they can.",
        ]
    return value, "\n".join(text)
