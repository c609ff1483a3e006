"""Chapter 11: how many operators one token starts, what each costs when it has next to nothing to do, and what hides it.

    python examples/ch11/operators.py
    python examples/ch11/operators.py --model random:gpt2 --plot width.svg

The passes are those of chapter 10's loop. The operators are counted twice, as torch calls them and by torch's profiler. What one
costs is the time of a decode step of a model of width 16 over its number of operators. Then the width grows, at twelve layers, and
last comes the excess of a decode step of a real model over its bytes, in parts.
"""

import sys
import textwrap
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import read_config
from examples.ch02.model import load_for, random_model
from examples.ch11.machine import machine_rates
from examples.ch11.operations import operations, pass_bound, totals
from examples.ch11.overhead import (
    CACHED,
    FAMILIES,
    LAYERS,
    NARROW,
    cached_steps,
    count,
    family_of,
    fields,
    large_matrix,
    operator_seconds,
    products_alone,
    profiled,
    row_rates,
)
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_panels, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import in_turns

WIDTHS = (16, 32, 64, 128, 256, 512, 768, 1024)
RUNS = 9
ROWS = (128, 256, 512, 576, 768, 1024, 1536, 2048)  # numbers in a row of a matrix
SINGLE = 1000  # calls of one operator that are timed together
PUBLISHED = {"layers": 80, "kernels_a_layer": 10, "us": 5.0}  # of the text that this book revises: 4 ms a token
NAMES = {"gpt2": "GPT-2", "llama": "Llama"}
SHARE = 0.1  # of a step: operators that take less are hidden

# --------------------------------------------------------------------------------------------------------- the measurements


def measure(model, widths=WIDTHS, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Operators of a pass, by family; what one costs; steps by width; and the parts of a decode step of `model`.

    Raises BadInput like `check_widths`, and for a model that `operations` does not count.
    """
    check_widths(widths)
    operations(model.config, 1, CACHED)  # refuses what it does not count, before any work
    counts = [row for family in FAMILIES for row in family_counts(family)]
    costs, rates = operator_seconds(runs=runs, timer=timer), machine_rates(timer=timer)
    grown = {family: by_width(family, widths, rates, runs, timer, progress) for family in FAMILIES}
    a_layer = {f"{r['family']}_{r['pass']}": r["operators_a_layer"] for r in counts}
    llama = PUBLISHED["layers"] * a_layer["llama_decode"]
    return {
        "runs": runs,
        "layers": LAYERS,
        "gflop_per_s": rates["flop_per_s"] / 1e9,
        "gb_per_s": rates["bytes_per_s"] / 1e9,
        "counts": counts,
        "same_count": all(r["operators"] == r["by_profiler"] for r in counts),
        **{f"{family}_operator_us": 1e6 * s for family, s in costs.items()},
        "single": single_operators(timer=timer),
        "published": PUBLISHED | {"ms": PUBLISHED["layers"] * PUBLISHED["kernels_a_layer"] * PUBLISHED["us"] / 1e3},
        "ours_80_layers": {
            **{"operators_a_layer": a_layer["llama_decode"], "operators": llama},
            **{"at_5_us_ms": llama * PUBLISHED["us"] / 1e3, "here_ms": 1e3 * llama * costs["llama"]},
        },
        "widths": [row for family in FAMILIES for row in grown[family]["rows"]],
        "fits": [{"family": family, **grown[family]["fit"]} for family in FAMILIES],
        "rows": [{"numbers": n, "gb_per_s": rate / 1e9} for n, rate in row_rates(_lengths(model), timer=timer).items()],
        "step": step_parts(model, rates["flop_per_s"], runs, timer, progress),
    }


def check_widths(widths):
    """Raise BadInput unless there are two widths or more, each once, that four heads divide into an even number."""
    bad = [w for w in widths if w % 8 or w < 8]
    if bad or len(set(widths)) < max(2, len(widths)):
        raise BadInput(f"widths {','.join(map(str, widths))}; give two or more, each once, that are multiples of 8")


def _lengths(model):
    """ROWS and the model's own width."""
    return sorted({*ROWS, model.config.n_embd})


def family_counts(family):
    """Rows of a family's passes: operators and views of LAYERS layers, of them those a layer has, and the profiler's count."""
    found = {}
    for layers in (LAYERS - 1, LAYERS):
        steps = cached_steps(random_model(fields(family, NARROW, layers)))
        found[layers] = {name: (*count(call), profiled(call)) for name, call in steps.items()}
    rows = []
    for name, (operators, views, seen) in found[LAYERS].items():
        whole, less = operators.total(), found[LAYERS - 1][name][0].total()
        row = {"family": family, "pass": name, "operators": whole, "views": views.total(), "by_profiler": seen.total()}
        rows.append(row | {"operators_a_layer": whole - less, "outside_the_layers": whole - LAYERS * (whole - less)})
    return rows


def single_operators(runs=RUNS, timer=time.perf_counter):
    """[{operator, us}] of one call on tensors of NARROW numbers: an addition, a product of each, a matmul, and a view."""
    x, w = torch.ones(1, 1, NARROW), torch.ones(NARROW, NARROW)
    one = {"add": lambda: x + x, "multiply": lambda: x * x, "matmul": lambda: x @ w, "view": lambda: x.view(NARROW)}

    def many(call):
        return lambda: [call() for _ in range(SINGLE)]

    with torch.inference_mode():
        seconds = in_turns({name: many(call) for name, call in one.items()}, runs, timer)
    return [{"operator": name, "us": 1e6 * s / SINGLE} for name, s in seconds.items()]


def by_width(family, widths, rates, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """{"rows": a decode step of LAYERS layers at each width, "fit": `fitted` to them}."""
    models = {width: random_model(fields(family, width)) for width in widths}
    with torch.inference_mode():
        seconds = in_turns({w: cached_steps(m)["decode"] for w, m in models.items()}, runs, timer, progress)
    rows = []
    for width, model in models.items():
        counted_rows = operations(model.config, 1, CACHED)
        moved, said = totals(counted_rows)["bytes"], pass_bound(counted_rows, rates)["seconds"]
        rows.append({"family": family, "width": width, "ms": 1e3 * seconds[width], "mb": moved / 1e6, "bound_ms": 1e3 * said})
    fit = fitted([(r["mb"], r["ms"]) for r in rows])
    for r in rows:
        r["fit_ms"] = fit["constant_ms"] + fit["ms_per_mb"] * r["mb"]
    hidden = (1 / SHARE - 1) * fit["constant_ms"]
    return {
        "rows": rows,
        "fit": {
            "constant_ms": fit["constant_ms"],
            "gb_per_s": 1 / fit["ms_per_mb"] if fit["ms_per_mb"] > 0 else None,
            "worst_percent": max(100 * abs(r["fit_ms"] / r["ms"] - 1) for r in rows),
            "equal_width": width_of(family, fit["constant_ms"] / fit["ms_per_mb"]) if fit["ms_per_mb"] > 0 else None,
            "hidden_width": width_of(family, hidden / fit["ms_per_mb"]) if fit["ms_per_mb"] > 0 else None,
        },
    }


def fitted(points):
    """{constant_ms, ms_per_mb} of the line through (MB, ms) whose errors, as parts of the ms, have the least sum of squares."""
    weights = [1 / ms**2 for _, ms in points]
    total = sum(weights)
    x, y = (sum(w * p[i] for w, p in zip(weights, points, strict=True)) / total for i in (0, 1))
    above = sum(w * (mb - x) * (ms - y) for w, (mb, ms) in zip(weights, points, strict=True))
    below = sum(w * (mb - x) ** 2 for w, (mb, _) in zip(weights, points, strict=True))
    slope = above / below
    return {"constant_ms": y - slope * x, "ms_per_mb": slope}


def width_of(family, mb, most=2**14):
    """The smallest width, a multiple of 8, at which a decode step of LAYERS layers moves `mb` 10^6 bytes; None beyond `most`."""
    low, high = 1, most // 8 + 1
    while low < high:
        middle = (low + high) // 2
        config = read_config(fields(family, 8 * middle), "a small model")
        enough = totals(operations(config, 1, CACHED))["bytes"] >= 1e6 * mb
        low, high = (low, middle) if enough else (middle + 1, high)
    return 8 * low if 8 * low <= most else None


def step_parts(model, flop_per_s, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """A decode step of the model behind CACHED positions, in parts: what its bytes take at the machine's rate, what its matrices
    take longer than that by themselves, what its operators cost, and what is left.

    The step takes turns with all that explains it: its matrices alone, a large matrix with long rows (the machine's rate) and one
    with rows of the model's width, and a step of LAYERS layers of the family that are NARROW, which gives an operator's cost.
    """
    family, rows = family_of(model.config), operations(model.config, 1, CACHED, number=model.dtype.itemsize)
    narrow = random_model(fields(family, NARROW))
    large, same, (alone, moved) = large_matrix(2**10), large_matrix(model.config.n_embd), products_alone(model)
    call, small = (cached_steps(m)["decode"] for m in (model, narrow))
    steps = {"step": call, "alone": alone, "large": lambda: large @ large[0], "same": lambda: same @ same[0], "narrow": small}
    with torch.inference_mode():
        seconds = in_turns(steps, runs, timer, progress)
    (operators, views), few = (c.total() for c in count(call)), count(small)[0].total()
    rate, step, cost = large.nbytes / seconds["large"], seconds["step"], seconds["narrow"] / few
    bound = pass_bound(rows, {"flop_per_s": flop_per_s, "bytes_per_s": rate})["seconds"]
    slower, overhead, excess = seconds["alone"] - moved / rate, operators * cost, step - bound
    return {
        **{"layers": model.config.n_layer, "width": model.config.n_embd, "cached": CACHED},
        **{"operators": operators, "views": views, "operator_us": 1e6 * cost, "machine_gb_per_s": rate / 1e9},
        **{"matrices_mb": moved / 1e6, "matrices_gb_per_s": moved / seconds["alone"] / 1e9},
        **{"same_rows_gb_per_s": same.nbytes / seconds["same"] / 1e9, "ms": 1e3 * step, "over_bound": step / bound},
        **{"bound_ms": 1e3 * bound, "slower_matrices_ms": 1e3 * slower, "operators_ms": 1e3 * overhead},
        "rest_ms": 1e3 * (excess - slower - overhead),
        "operators_percent_of_excess": 100 * overhead / excess if excess > 0 else None,
        "matrices_percent_of_excess": 100 * slower / excess if excess > 0 else None,
        "explained_percent": 100 * (bound + slower + overhead) / step,
    }


# ----------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"operators": ...}."""
    v, s = values["operators"], values["operators"]["step"]
    keys = ("operators", "by_profiler", "views", "operators_a_layer", "outside_the_layers")
    counts = [[f"{NAMES[r['family']]}, {r['pass']}", *(f"{r[k]:,}" for k in keys)] for r in v["counts"]]
    single = ", ".join(f"{r['operator']} {r['us']:.1f}" for r in v["single"])
    widths = [
        [NAMES[r["family"]], f"{r['width']:,}", *(f"{r[k]:,.2f}" for k in ("mb", "bound_ms", "ms", "fit_ms"))] for r in v["widths"]
    ]
    p, ours = v["published"], v["ours_80_layers"]
    parts = [
        ["bytes at the machine's rate", s["bound_ms"]],
        ["its matrices alone, beyond that", s["slower_matrices_ms"]],
        ["operators, counted times their cost", s["operators_ms"]],
        ["not explained", s["rest_ms"]],
        ["the step, measured", s["ms"]],
    ]
    of_excess = s["operators_percent_of_excess"]
    share = "none" if of_excess is None else f"{of_excess:.0f} per cent"
    return "\n".join(
        [
            f"Operators of a pass of {counted(v['layers'], 'layer')}, as torch calls them and by its profiler:",
            "",
            table(["", "operators", "profiler's", "views", "of a layer", "of no layer"], counts),
            "",
            f"One operator, views and Python within it: {v['gpt2_operator_us']:.1f} us in a GPT-2, {v['llama_operator_us']:.1f} us "
            f"in a Llama.\nOne call by itself, in us: {single}.",
            f"Published: {p['layers']} layers of {p['kernels_a_layer']} kernels at {p['us']:g} us are {p['ms']:g} ms.",
            f"Our Llama has {ours['operators_a_layer']} operators a layer, {ours['operators']:,} in {p['layers']}: "
            f"{ours['at_5_us_ms']:.1f} ms at {p['us']:g} us, {ours['here_ms']:.1f} ms at what they cost here.",
            "",
            f"A decode step of {counted(v['layers'], 'layer')} by width; medians of {counted(v['runs'], 'step')}:",
            "",
            table(["family", "width", "MB", "bytes' ms", "measured ms", "fit ms"], widths),
            "",
            *(_fit(f) for f in v["fits"]),
            "",
            "GB/s of one large matrix times a vector, by the numbers in its rows:\n"
            + textwrap.fill(", ".join(f"{r['numbers']:,}: {r['gb_per_s']:.1f}" for r in v["rows"]) + ".", 98),
            "",
            f"The model: {counted(s['layers'], 'layer')} of width {s['width']:,}, {s['operators']:,} operators and "
            f"{s['views']:,} views in a decode step:",
            "",
            table(["ms of", ""], [[name, f"{ms:,.2f}"] for name, ms in parts]),
            "",
            textwrap.fill(
                f"The step takes {s['over_bound']:.2f} times what its bytes take. Its matrices alone are read at "
                f"{s['matrices_gb_per_s']:.1f} GB/s, a large one at {s['same_rows_gb_per_s']:.1f} with rows of {s['width']:,} and "
                f"at {s['machine_gb_per_s']:.1f} with rows of 1,024; its operators' own cost is {share} of the excess.",
                98,
            ),
        ]
    )


def _fit(f):
    """A line about the fit of a family."""
    if f["gb_per_s"] is None:
        return f"{NAMES[f['family']]}: no line fits, since wider steps took no longer."
    widths = [f"{w:,}" if w else "none here" for w in (f["equal_width"], f["hidden_width"])]
    return (
        f"{NAMES[f['family']]}: {f['constant_ms']:.2f} ms and bytes at {f['gb_per_s']:.1f} GB/s, within "
        f"{f['worst_percent']:.0f}%;\nthe two are equal at width {widths[0]}, and the constant is a tenth at {widths[1]}."
    )


def draw(values, path):
    """A decode step's time by width, with its constant part and that of its bytes, from what `measure` returns."""
    figure, panels = new_panels(1, 2, (7, 3.6), sharey=True)
    for axes, fit in zip(panels, values["fits"], strict=True):
        rows = [r for r in values["widths"] if r["family"] == fit["family"]]
        widths = [r["width"] for r in rows]
        lines = [("measured", [r["ms"] for r in rows]), ("constant", [fit["constant_ms"]] * len(rows))]
        if fit["gb_per_s"] is not None:
            lines.append(("bytes", [r["mb"] / fit["gb_per_s"] for r in rows]))
        for i, (label, ms) in enumerate(lines):
            axes.loglog(widths, ms, label=label, **style(i))
        axes.set(xlabel="width", title=f"{NAMES[fit['family']]}, {counted(values['layers'], 'layer')}")
        plain_ticks(axes.xaxis, axes.yaxis)
    panels[0].set_ylabel("ms of a decode step")
    for axes in panels:
        label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.operators",
        "timing",
        "A decode step of SmolLM2 takes longer than its bytes at the machine's rate, and less of that is its operators' own cost "
        "than that its matrices, with their short rows, are read slower.",
        "One thread of one processor, float32, batch 1, 16 positions cached. An operator's cost is Python's and torch's.",
        measure,
        headline=("step.operators_percent_of_excess", "f0"),
        model="smollm2",
        seconds=40,
        figures={"operators.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="operators.py", description=__doc__, keys=__file__)
    parser.add_argument("--width", type=number_list(1), default=list(WIDTHS), metavar="N,N", help="of the small models")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    parser.add("model", "threads", "seed", "plot", "json").set_defaults(model="smollm2")
    return parser


@command
def main(argv=None):
    """Print operators, their cost, and what hides them."""
    args = options().parse_args(argv)
    check_target(args.plot)
    check_widths(args.width)
    model = load_for(args)
    with progress_bar("step", (len(FAMILIES) * len(args.width) + 5) * (args.runs + 1)) as bar:
        values = {"operators": measure(model, args.width, args.runs, progress=bar.update)}
    head = f"{args.model}: float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["operators"], path))


if __name__ == "__main__":
    sys.exit(main())
