"""Chapter 11: a decode step of many sequences at once: tokens per second measured and predicted, and where they stop doubling.

    python examples/ch11/batches.py
    python examples/ch11/batches.py --model random:gpt2 --context 128 --plot batches.svg   # the chapter's numbers, in a minute

The weights are read once for all sequences of a step, so more of them cost little while reading is what takes the time. Two bounds
from `operations.py` at this machine's own two rates, taken in the same run, stand beside the measured step: of every operand of
every operator, and of the weights and caches alone. So do the step's matrix products by themselves, the same matrices times as many
vectors: as the program has them, and with every matrix laid out beforehand as the kernel for several rows wants it. A plain product
has to lay it out anew each time, and where the second is faster, that is what it costs.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for
from examples.ch03.tokens import random_ids
from examples.ch10.decode_rate import check_contexts, filled, matrices, one_step
from examples.ch11.machine import machine_rates
from examples.ch11.operations import bound, operations, pass_bound, totals
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_figure, plain_ticks, style, write_figure
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import in_turns

BATCHES, CONTEXT, RUNS = (1, 2, 4, 8, 16, 32), 128, 9
NEAR = 0.75  # of as many times the rate of one sequence as there are sequences: what still counts as growing with them
TICKS = (25, 50, 100, 200, 400, 800)  # tokens/s, of the figure

# --------------------------------------------------------------------------------------------------------- the measurement


def products(model, batch):
    """A function that multiplies `batch` vectors by every matrix that a decode step of a GPT-2 reads, as its program does."""
    pairs = [(torch.randn(batch, w.shape[1], dtype=w.dtype), w.t()) for w in matrices(model)]  # [B, in], [in, out]
    return lambda: [x @ w for x, w in pairs]


def laid_out(model, batch):
    """The matrices of `products` in the layout of oneDNN's kernel for `batch` rows; None where torch here has no such kernel."""
    kernel = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
    if kernel is None or not torch.backends.mkldnn.is_available() or model.dtype != torch.float32:
        return None
    return [(kernel(w.contiguous(), batch), w.shape[1]) for w in matrices(model)]


def products_laid_out(pairs, batch):
    """Like `products`, of what `laid_out` returned."""
    rows = [(torch.randn(batch, width), w) for w, width in pairs]
    return lambda: [torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "") for x, w in rows]


def predicted(config, cached, batch, rates, number=4):
    """{bound_ms, least_ms, flop_per_byte, limit} of a decode step of `batch` sequences with `cached` positions each.

    bound_ms: `pass_bound` over every operand; least_ms: over weights and caches. flop_per_byte, limit: of the products with the
    feed-forward matrices, for each byte of those.
    """
    rows = operations(config, 1, cached, batch, number)
    matrix = next(r for r in rows if r["operation"] == "feed-forward out")
    return {
        "bound_ms": 1e3 * pass_bound(rows, rates)["seconds"],
        "least_ms": 1e3 * pass_bound(rows, rates, "least_bytes")["seconds"],
        "flop_per_byte": matrix["flops"] / matrix["weight_bytes"],
        "limit": bound(matrix["flops"], matrix["weight_bytes"], rates["flop_per_s"], rates["bytes_per_s"])["limit"],
    }


def measure(model, batches=BATCHES, context=CONTEXT, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Tokens per second of decode steps of each of `batches` sequences with `context` positions cached: a row each.

    A step feeds one token of every sequence through the cached pass, logits included. Beside it stand `products` and
    `products_laid_out`, None but for a GPT-2, the latter also where there is no such kernel. All take turns, and medians of `runs`
    are taken. tokens_per_s: of all sequences, measured; bound_per_s, least_per_s: by the two bounds. ratio: the measured step over
    the bound of every operand. gain: tokens_per_s over that of the first batch; share: gain over how many times as many sequences
    there are. linear_to: the largest batch before the first whose share is below NEAR. arithmetic_from: sequences with which a
    matrix earns the machine's ridge.
    """
    check_contexts(model.config, [context])
    number = model.dtype.itemsize
    with torch.inference_mode():
        steps = {("step", n): one_step(model, filled(model, n, context), random_ids(model, 1, n, seed), context) for n in batches}
        if model.config.model_type == "gpt2":
            steps |= {("products", n): products(model, n) for n in batches}
            if pairs := laid_out(model, max(batches)):
                steps |= {("laid out", n): products_laid_out(pairs, n) for n in batches}
        rates = machine_rates(runs, timer)
        seconds = in_turns(steps, runs, timer, progress)
    rows = []
    for n in batches:
        found, whole = predicted(model.config, context, n, rates, number), seconds["step", n]
        parts = totals(operations(model.config, 1, context, n, number))
        gain = n / whole / (batches[0] / seconds["step", batches[0]])
        alone = {f"{key}_ms": _ms(seconds.get((name, n))) for key, name in (("products", "products"), ("laid_out", "laid out"))}
        rows.append(
            {
                **{"batch": n, "step_ms": 1e3 * whole, **found, "ratio": 1e3 * whole / found["bound_ms"], **alone},
                **{"tokens_per_s": n / whole, "each_per_s": 1 / whole, "gain": gain, "share": gain * batches[0] / n},
                **{"bound_per_s": 1e3 * n / found["bound_ms"], "least_per_s": 1e3 * n / found["least_ms"]},
                "cache_over_weights": parts["cache_bytes"] / parts["weight_bytes"],
            }
        )
    fewer = [r["share"] >= NEAR for r in rows]
    linear = fewer.index(False) if False in fewer else len(rows)
    ridge = rates["flop_per_s"] / rates["bytes_per_s"]
    return {
        **{"context": context, "runs": runs, "bytes_per_number": number},
        **{"gflop_per_s": rates["flop_per_s"] / 1e9, "gb_per_s": rates["bytes_per_s"] / 1e9, "ridge_flop_per_byte": ridge},
        **{"batches": rows, "linear_to": batches[linear - 1], "arithmetic_from": ridge * number / 2},
        "most_gain": max(r["gain"] for r in rows),
    }


# ---------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"batches": ...}."""
    v = values["batches"]
    rows = [
        [
            *(r["batch"], f"{r['step_ms']:.4g}", f"{r['bound_ms']:.4g}", f"{r['ratio']:.2f}"),
            *("n/a" if r[key] is None else f"{r[key]:.4g}" for key in ("products_ms", "laid_out_ms")),
            *(f"{r['tokens_per_s']:.4g}", f"{r['gain']:.2f}", r["limit"]),
        ]
        for r in v["batches"]
    ]
    heads = ["sequences", "step, ms", "bound", "ratio", "products", "laid out", "tokens/s", "gain", "limit"]
    first, last, matrix = v["batches"][0], v["batches"][-1], counted(round(v["arithmetic_from"]), "sequence")
    rates, runs = f"{v['gflop_per_s']:.0f} GFLOP/s and {v['gb_per_s']:.1f} GB/s", counted(v["runs"], "run")
    times = f"{last['gain']:.1f} times those at {first['batch']}"
    return "\n".join(
        [
            f"A decode step, {v['context']} positions cached; medians of {runs} in turn after a discarded one.",
            f"{rates}: the ridge is {v['ridge_flop_per_byte']:.1f} FLOPs a byte, which a matrix earns with {matrix}.",
            "",
            table(heads, rows),
            "",
            f"At {counted(last['batch'], 'sequence')} the tokens per second are {times}.",
            f"They are within a quarter of proportional up to {counted(v['linear_to'], 'sequence')}.",
        ]
    )


def _ms(seconds):
    return None if seconds is None else 1e3 * seconds


def draw(values, path):
    """Tokens per second against sequences at once, measured and by both bounds; from what `measure` returns."""
    figure, axes = new_figure()
    rows = values["batches"]
    n = [r["batch"] for r in rows]
    one = rows[0]["tokens_per_s"] / n[0]
    lines = {
        "measured steps": [r["tokens_per_s"] for r in rows],
        "bound by\nall operands": [r["bound_per_s"] for r in rows],
        "bound by weights\nand caches": [r["least_per_s"] for r in rows],
        "as many times\none sequence": [one * b for b in n],
    }
    if rows[0]["laid_out_ms"] is not None:
        lines["products alone,\nlaid out before"] = [1e3 * r["batch"] / r["laid_out_ms"] for r in rows]
    for i, (name, y) in enumerate(lines.items()):
        axes.loglog(n, y, label=name, **style(i))
    if n[0] < values["arithmetic_from"] < n[-1]:
        axes.axvline(values["arithmetic_from"], color="0.4", linewidth=0.8, label="_")
        look = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "bottom", "ha": "left"}
        axes.annotate("matrices at\nthe ridge", (values["arithmetic_from"], 0), (4, 4), **look)
    axes.set_xticks(n, [str(b) for b in n])
    axes.minorticks_off()
    least, most = axes.get_ylim()
    ticks = [y for y in TICKS if least <= y <= most]
    if len(ticks) > 1:  # of a much faster or slower machine the axis keeps its own
        axes.set_yticks(ticks)
    plain_ticks(axes.yaxis)
    axes.set(xlabel="sequences at once", ylabel="tokens/s of all", title=f"Decode steps with {values['context']} positions cached")
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.batches",
        "timing",
        "Decoding 32 sequences at once makes several times the tokens per second of one, and far fewer than 32 times.",
        "One thread of one processor, float32, rows of one length, 128 positions cached; rates taken in the same run.",
        measure,
        headline=("most_gain", "g2"),
        model="random:gpt2",
        seconds=40,
        figures={"batches.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="batches.py", description=__doc__, keys=__file__)
    about = "sequences at once, the first the one that others are compared with"
    parser.add_argument("--batches", type=number_list(1), default=list(BATCHES), metavar="N,N", help=about)
    parser.add_argument("--context", type=whole_number(1), default=CONTEXT, metavar="N", help="positions cached")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser.add("model", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print tokens per second by how many sequences there are."""
    args = options().parse_args(argv)
    check_target(args.plot)
    batches = sorted(set(args.batches))
    model = load_for(args)
    with progress_bar("step", 3 * len(batches) * (args.runs + 1)) as bar:
        values = {"batches": measure(model, batches, args.context, args.runs, args.seed, progress=bar.update)}
    head = f"{args.model}: {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["batches"], path))


if __name__ == "__main__":
    sys.exit(main())
