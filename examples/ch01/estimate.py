"""Chapter 1: an estimate on the back of an envelope, two operations per weight, beside what the machine does.

    python examples/ch01/estimate.py                    # from GPT-2's shape alone: no model is loaded, nothing is timed
    python examples/ch01/estimate.py --time             # and passes of that shape, timed
    python examples/ch01/estimate.py --time --threads 2

A matrix product multiplies each weight by one number and adds it to a sum: 2 floating-point operations (FLOPs) for each weight
and each position. GPT-2 has 12 layers of width 768. What a layer does is chapter 4's subject; here its size is enough: 12 d^2
weights in its matrices, 4 d^2 in attention and 8 d^2 in the feed-forward network. The output projection, the head, holds V d, one
row for each token.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch01.library import SIZES, load_library, published, random_ids
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_figure, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, progress_bar, table, whole_number
from examples.lab.timing import median_after

CONTEXT = 16  # positions that the exact count looks back on
TOKENS = 18  # of the published pass
LENGTHS = (1, TOKENS, 128)
RUNS = 5


# ----------------------------------------------------------------------------------------------------------- the arithmetic


def weights(fields):
    """{part: weights} of a GPT-2 from the fields of its `config.json`; "multiplied" are those of its matrices and its head, "all"
    has the position table, biases and norms as well. The head's table is also the one that ids are looked up in."""
    layers, d, vocabulary = fields["n_layer"], fields["n_embd"], fields["vocab_size"]
    matrices, head = layers * 12 * d * d, vocabulary * d
    rest = fields["n_positions"] * d + layers * 13 * d + 2 * d
    return {"layers": matrices, "head": head, "multiplied": matrices + head, "all": matrices + head + rest}


def flops(fields, context):
    """FLOPs of one position that looks back on `context` positions: two a weight that is multiplied, and in each layer 4 d for each
    position that is looked at."""
    return 2 * weights(fields)["multiplied"] + fields["n_layer"] * 4 * fields["n_embd"] * context


def measure_estimate():
    """The estimate from GPT-2's shape: FLOPs of a position, and of the head alone; a row for each published size."""
    rows = []
    for size in SIZES:
        fields = published(size)
        count = weights(fields)
        rows.append(
            {
                "size": size,
                "all_weights": count["all"],
                "all_gflop": 2 * count["all"] / 1e9,
                "multiplied_gflop": 2 * count["multiplied"] / 1e9,
                "at_context_gflop": flops(fields, CONTEXT) / 1e9,
                "head_mflop": 2 * count["head"] / 1e6,
                "head_percent": 100 * 2 * count["head"] / flops(fields, CONTEXT),
            }
        )
    gpt2 = {k: v for k, v in rows[0].items() if k != "size"}
    shape, count = published("gpt2"), weights(published("gpt2"))
    return {
        **{name: shape[name] for name in ("n_layer", "n_embd", "vocab_size")},
        **{f"{part}_weights": count[part] for part in ("layers", "head", "multiplied")},
        **gpt2,
        "context": CONTEXT,
        "pass_tokens": TOKENS,
        "pass_gflop": TOKENS * flops(shape, TOKENS) / 1e9,
        "sizes": rows,
    }


# ---------------------------------------------------------------------------------------------------------- the measurement


@torch.inference_mode()
def measure_rate(model="random:gpt2", lengths=LENGTHS, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """How fast the library's pass does the arithmetic of the estimate: milliseconds and GFLOP/s of passes over `lengths` tokens,
    medians of `runs` after a discarded one.

    model: a GPT-2's source, or a model loaded from one. predicted_ms: what a pass over one token would take at the speed of the
    pass over TOKENS.
    """
    library = load_library(model if isinstance(model, str) else model.manifest["source"], seed=seed)
    fields = library.model.config.to_dict()
    if fields["model_type"] != "gpt2":
        raise BadInput(f"the estimate is GPT-2's, and this model is a {fields['model_type']}; give another model")
    rows = []
    for tokens in lengths:
        ids, seconds = random_ids(library, min(tokens, library.positions), seed), []
        for _ in range(runs + 1):
            start = timer()
            library.model(ids, use_cache=False)
            seconds.append(timer() - start)
            progress()
        passed, gflop = median_after(seconds), ids.shape[1] * flops(fields, ids.shape[1]) / 1e9
        row = {"tokens": ids.shape[1], "gflop": gflop, "ms": 1e3 * passed, "gflop_per_s": gflop / passed}
        rows.append(row | {"ms_per_token": row["ms"] / row["tokens"]})
    rate, one = rows[1]["gflop_per_s"], rows[0]
    predicted = 1e3 * one["gflop"] / rate
    return {
        "runs": runs,
        "lengths": rows,
        "gflop_per_s": rate,
        "one_token_gflop_per_s": one["gflop_per_s"],
        "predicted_ms": predicted,
        "measured_ms": one["ms"],
        "measured_over_predicted": one["ms"] / predicted,
    }


# ------------------------------------------------------------------------------------------------------ the tables, the figure


def report(values):
    """Text of {"estimate": ..., "rate": ... where it was measured}."""
    e = values["estimate"]
    counts = ("all_gflop", "multiplied_gflop", "at_context_gflop")
    rows = [
        [r["size"], f"{r['all_weights']:,}", *(f"{r[key]:.3f}" for key in counts)]
        + [f"{r['head_mflop']:.1f}", f"{r['head_percent']:.0f}%"]
        for r in e["sizes"]
    ]
    heads = ["size", "weights", "2 x all", "2 x multiplied", f"with {e['context']} seen", "head, MFLOP", "of it"]
    parts = [
        "GFLOP of one position: twice all weights; twice those that are multiplied; and with attention",
        f"over {e['context']} positions. The head is a part of each.",
        "",
        table(heads, rows),
        "",
        f"GPT-2, by hand: 2 x (12 layers x 12 x {e['n_embd']}^2 + {e['vocab_size']:,} x {e['n_embd']}) = "
        f"{e['multiplied_gflop']:.3f} GFLOP.",
        f"The head is {e['head_mflop']:.1f} MFLOP of them.",
    ]
    if "rate" not in values:
        return "\n".join([*parts, "All three counts of GPT-2 round to a quarter of a GFLOP for each position."])
    v = values["rate"]
    rows = [
        [f"{r['tokens']:,}", f"{r['gflop']:.2f}", f"{r['ms']:.1f}", f"{r['ms_per_token']:.2f}", f"{r['gflop_per_s']:.1f}"]
        for r in v["lengths"]
    ]
    parts += ["", f"The library's pass, medians of {v['runs']} after a discarded one:", ""]
    parts += [table(["tokens", "GFLOP", "ms", "ms per token", "GFLOP/s"], rows), ""]
    middle = v["lengths"][1]["tokens"]
    parts += [
        f"At the speed of {middle} tokens one token would take {v['predicted_ms']:.1f} ms. It took {v['measured_ms']:.1f} ms, "
        f"{v['measured_over_predicted']:.1f} times as long:",
        "counting operations does not say how long a pass over a single token takes.",
    ]
    return "\n".join(parts)


def draw(values, path):
    """GFLOP/s by the number of tokens in a pass, from what `measure_rate` returns."""
    figure, axes = new_figure()
    tokens = [r["tokens"] for r in values["lengths"]]
    axes.plot(tokens, [r["gflop_per_s"] for r in values["lengths"]], label="GPT-2's shape", **style(0))
    axes.set(xlabel="tokens in the pass", ylabel="GFLOP/s", xscale="log", ylim=(0, None), title="Speed of one pass, by its length")
    axes.set_xticks(tokens, [f"{t:,}" for t in tokens])
    axes.minorticks_off()
    plain_ticks(axes.yaxis)
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch01.estimate",
        "exact",
        "A position of GPT-2 small takes a quarter of a GFLOP, nearly a third of it in the head.",
        "A count from the shape alone: matrix products, two operations per weight. Norms, biases and the like are left out.",
        measure_estimate,
        model="gpt2 (its config; no weights)",
        loads=False,
        movable=False,
        headline=("at_context_gflop", "f3"),
    ),
    Experiment(
        "ch01.rate",
        "timing",
        "The same operations run several times as fast over 18 tokens at once as over a single token.",
        "One thread of one processor, float32, the library's pass, random weights.",
        measure_rate,
        model="random:gpt2",
        figures={"rate.svg": draw},
        headline=("gflop_per_s", "g2"),
        seconds=10,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="estimate.py", description=__doc__, keys=__file__)
    parser.add_argument("--time", action="store_true", help="time passes of the model as well, GPT-2's shape by default")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed passes after a discarded one")
    parser.add("model", "threads", "seed", "plot", "json").set_defaults(model="random:gpt2")
    return parser


@command
def main(argv=None):
    """Print the estimate, and with --time what it is beside the clock."""
    args = options().parse_args(argv)
    if args.plot is not None and not args.time:
        raise BadInput("--plot draws what is timed; give --time with it")
    check_target(args.plot)
    torch.set_num_threads(args.threads)
    values, said = {"estimate": measure_estimate()}, ""
    if args.time:
        with progress_bar("pass", len(LENGTHS) * (args.runs + 1)) as bar:
            values["rate"] = measure_rate(args.model, runs=args.runs, seed=args.seed, progress=bar.update)
        threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
        said = f"Timed: {args.model}, float32, {threads}, torch {torch.__version__}.\n"
    answer(args, values, lambda values: said + report(values), lambda values, path: draw(values["rate"], path))


if __name__ == "__main__":
    sys.exit(main())
