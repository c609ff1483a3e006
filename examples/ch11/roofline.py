"""Chapter 11: each operation of a pass on the roofline: FLOPs, bytes, the bound that the machine's two rates give, and the time.

    python examples/ch11/roofline.py                                  # GPT-2's shape, a few minutes
    python examples/ch11/roofline.py --model smollm2 --prefill 16,512 --decode 16 --plot roofline.svg

FLOPs and bytes are those of `operations.py`: matrix products, and every operand of every tensor operator once. The rates are taken
in the same run, between the passes, from a square product and a matrix times a vector; each operation is timed through chapter 4's
trace. One that beats its bound found its operands in a cache of the processor, or reads faster than a matrix times a vector does.
"""

import statistics
import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import program
from examples.ch02.model import load_for, run
from examples.ch03.tokens import random_ids
from examples.ch04.component_timing import component_seconds, timing_lengths
from examples.ch10.decode_rate import check_contexts, filled
from examples.ch10.kv_cache import stream_cached
from examples.ch11.intensity import figures
from examples.ch11.machine import machine_rates
from examples.ch11.operations import OPERATIONS, bound, operations, pass_bound
from examples.lab.experiment import Experiment
from examples.lab.figure import COLOURS, MARKERS, check_target, new_panels, plain_ticks, tint, write_figure
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number

PREFILL, DECODE = (16, 128, 512, 1024), (16, 128, 512, 1023)  # tokens of a prompt, and positions cached
RUNS = 5
KINDS = {"prefill": "a prompt of", "decode": "one token, cached"}

# --------------------------------------------------------------------------------------------------------- the measurement


def prefill_step(model, tokens):
    """A function step(trace) that runs a pass over a prompt of `tokens` random ids, without a cache."""
    ids = random_ids(model, tokens)
    return lambda trace: run(model, ids, trace=trace)


def decode_step(model, cached):
    """A function step(trace) that feeds one token to a cache of `cached` positions, full of noise, and takes it back."""
    cache, ids = filled(model, 1, cached), random_ids(model, 1)

    def step(trace):
        cache.truncate(cached)
        return program(model).unembed(stream_cached(ids, model, cache, trace), model.weights, model.config, trace)  # [1, 1, V]

    return step


def beside_the_bound(rows, seconds, rates):
    """A row for each of `rows`, as `operations` makes them, with its time: what it moves, its bound, and time over bound."""
    found = []
    for r in rows:
        least, took = bound(r["flops"], r["bytes"], **rates), seconds[r["operation"]]
        found.append(
            {
                **{"operation": r["operation"], "mflop": r["flops"] / 1e6, "mb": r["bytes"] / 1e6, "intensity": r["intensity"]},
                **{"limit": least["limit"], "bound_ms": 1e3 * least["seconds"], "ms": 1e3 * took},
                **{"measured_over_bound": took / least["seconds"], "gflop_per_s": r["flops"] / took / 1e9},
                "gb_per_s": r["bytes"] / took / 1e9,
            }
        )
    return found


def measure(model, prefill=None, decode=None, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Each operation of prompts of `prefill` tokens, and of decode steps behind `decode` cached positions, on the roofline.

    operations: a row for each kind of pass, length and operation; passes: a row for each kind and length with the whole pass. Its
    bound_ms is the sum of its operations' bounds, of which memory limits memory_ms, and least_ms the same from weights and cache
    alone; ms is the sum of its operations' times, untraced_ms the time of a pass without a trace; of most_over_ms the operation
    `most_over` exceeds its bound, more than any other. mean_ratio_*: time over bound of all passes of a kind together. By default
    PREFILL and DECODE, as far as the model reaches; batch 1; medians of `runs`, and of the machine's rates over all lengths.
    Raises BadInput for lengths that the model does not have.
    """
    prefill = timing_lengths(model.config, prefill, PREFILL)
    decode = sorted({min(n, model.config.n_positions - 1) for n in DECODE}) if decode is None else decode
    check_contexts(model.config, decode)
    timed, seen = [], []
    for kind, lengths, make in (("prefill", prefill, prefill_step), ("decode", decode, decode_step)):
        for n in lengths:
            seen.append(machine_rates(timer=timer))
            timed.append((kind, n, *component_seconds(make(model, n), model.device, runs, timer, progress, OPERATIONS)))
    rates, found, passes = {key: statistics.median(r[key] for r in seen) for key in seen[0]}, [], []
    for kind, n, seconds, whole in timed:
        counts = operations(model.config, n) if kind == "prefill" else operations(model.config, 1, n)
        rows = beside_the_bound(counts, seconds, rates)
        found += [{"kind": kind, "tokens": n, **r} for r in rows]
        every, least = (pass_bound(counts, rates, which) for which in ("bytes", "least_bytes"))
        worst = max(rows, key=lambda r: r["ms"] - r["bound_ms"])
        passes.append(
            {
                **{"kind": kind, "tokens": n, "bound_ms": 1e3 * every["seconds"], "memory_ms": 1e3 * every["memory_s"]},
                **{"least_ms": 1e3 * least["seconds"], "ms": 1e3 * sum(seconds.values()), "untraced_ms": 1e3 * whole},
                **{"measured_over_bound": sum(seconds.values()) / every["seconds"], "most_over": worst["operation"]},
                "most_over_ms": worst["ms"] - worst["bound_ms"],
            }
        )
    return {
        **{"runs": runs, "gflop_per_s": rates["flop_per_s"] / 1e9, "gb_per_s": rates["bytes_per_s"] / 1e9},
        "ridge": rates["flop_per_s"] / rates["bytes_per_s"],
        **{f"mean_ratio_{kind}": _together(passes, kind) for kind in KINDS},
        "passes": passes,
        "operations": found,
    }


def _together(passes, kind):
    """Time over bound of all passes of a kind; the longest counts most."""
    of = [r for r in passes if r["kind"] == kind]
    return sum(r["ms"] for r in of) / sum(r["bound_ms"] for r in of)


# --------------------------------------------------------------------------------------------------- the tables, the figures


def report(values):
    """Text of {"roofline": ...}."""
    v = values["roofline"]
    parts = [
        f"{v['gflop_per_s']:.0f} GFLOP/s in a square product, {v['gb_per_s']:.1f} GB/s in a matrix times a vector: a ridge of "
        f"{v['ridge']:.1f} FLOPs\na byte. Medians of {counted(v['runs'], 'run')} after a discarded one; a: arithmetic limits, m: "
        "memory"
    ]
    for kind, said in KINDS.items():
        rows = [r for r in v["operations"] if r["kind"] == kind]
        lengths = list(dict.fromkeys(r["tokens"] for r in rows))
        cells = []
        for name in OPERATIONS:
            of = [r for r in rows if r["operation"] == name]
            what = [f"{figures(r['intensity'])} {r['limit'][0]}" if r["mflop"] else f"- {r['limit'][0]}" for r in of]
            cells.append([name, *what, "", *(figures(r["measured_over_bound"]) for r in of)])
        heads = [f"{said}", *(f"{n:,}" for n in lengths), "", *(f"{n:,}" for n in lengths)]
        parts += ["", "FLOPs a byte and what limits; then measured time over bound:", table(heads, cells)]
    keys = ("bound_ms", "memory_ms", "least_ms", "ms")
    cells = [
        [f"{KINDS[r['kind']]} {r['tokens']:,}", *(f"{r[k]:,.1f}" for k in keys), f"{r['measured_over_bound']:.2f}"]
        + [f"{r['most_over']} {r['most_over_ms']:+,.1f}"]
        for r in v["passes"]
    ]
    heads = ["whole pass, ms", "bound", "memory's", "least", "measured", "ratio", "most ms over its bound"]
    parts += ["", table(heads, cells)]
    end = (
        f"Measured passes take {v['mean_ratio_prefill']:.2f} times their bounds in prefill and {v['mean_ratio_decode']:.2f} in "
        "decoding."
    )
    return "\n".join([*parts, "", end])


def draw(values, path):
    """FLOP/s against FLOPs per byte, of the operations that multiply matrices, under the machine's roof; from `measure`.

    A panel for prompts and one for decode steps, at the shortest length (open) and the longest (filled).
    """
    figure, panels = new_panels(2, 1, (7, 6.6), sharex=True, sharey=True)
    peak, bandwidth, ridge = values["gflop_per_s"], values["gb_per_s"], values["ridge"]
    every = [r for r in values["operations"] if r["mflop"]]
    names = [name for name in OPERATIONS if any(r["operation"] == name for r in every)]
    low, high = min(r["intensity"] for r in every) / 1.5, max([ridge, *(r["intensity"] for r in every)]) * 2
    for axes, kind in zip(panels, KINDS, strict=True):
        rows = [r for r in every if r["kind"] == kind]
        axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color=tint("#000000", 0.3), linewidth=1.6)
        lengths = list(dict.fromkeys(r["tokens"] for r in rows))
        ends = list(dict.fromkeys((lengths[0], lengths[-1])))
        for r in (r for r in rows if r["tokens"] in ends):
            i = names.index(r["operation"])
            look = {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 7, "linestyle": "", "label": r["operation"]}
            look |= {"markerfacecolor": "white", "label": "_"} if r["tokens"] != ends[-1] else {}
            axes.plot(r["intensity"], r["gflop_per_s"], **look)
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes.xaxis, axes.yaxis)
        axes.tick_params(which="minor", labelleft=False, labelbottom=False)
        axes.set(ylabel="GFLOP/s", title=_title(kind, ends))
        axes.annotate(f"{peak:.0f} GFLOP/s", (high, peak), xytext=(-2, 4), textcoords="offset points", ha="right")
        axes.annotate(f"{bandwidth:.1f} GB/s", (low, low * bandwidth), xytext=(14, -2), textcoords="offset points")
    panels[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    panels[-1].set_xlabel("FLOPs per byte of all operands")
    write_figure(figure, path)


def _title(kind, ends):
    what = "A prompt of {} tokens" if kind == "prefill" else "One new token, {} cached"
    if len(ends) == 1:
        return what.format(f"{ends[0]:,}")
    return what.format(f"{ends[0]:,} (open) and {ends[-1]:,} (filled)")


def draw_ratios(values, path):
    """Measured time over bound of every operation at each length, prompts and decode steps apart, from what `measure` returns."""
    figure, panels = new_panels(1, 2, (7, 4.2), sharey=True)
    for axes, kind in zip(panels, KINDS, strict=True):
        rows = [r for r in values["operations"] if r["kind"] == kind]
        for i, n in enumerate(dict.fromkeys(r["tokens"] for r in rows)):
            ratio = {r["operation"]: r["measured_over_bound"] for r in rows if r["tokens"] == n}
            places = [k + 0.14 * (i - 1.5) for k in range(len(OPERATIONS))]
            look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "linestyle": "", "markersize": 6}
            axes.plot([ratio[name] for name in OPERATIONS], places, label=f"{n:,}", **look)
        axes.axvline(1, color=tint("#000000", 0.3), linewidth=1)
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        axes.set_yticks(range(len(OPERATIONS)), list(OPERATIONS))
        axes.set(xlabel="time over bound", title="Prompts, by tokens" if kind == "prefill" else "Decoding, by tokens cached")
        axes.legend(loc="lower right", frameon=True)
    panels[0].invert_yaxis()
    write_figure(figure, path)


SAID = {
    "claim": "Matrices in prompts of 128 tokens or more are limited by arithmetic, all of a decode step by memory; in decoding "
    "norms take several times their bound.",
    "limits": "One thread of one processor, float32, batch 1, nothing fused; bytes are counted as if no cache of the processor "
    "kept any.",
    "headline": ("mean_ratio_decode", "f2"),
}
EXPERIMENTS = tuple(
    Experiment(
        f"ch11.operations{end}",
        "timing",
        measure=measure,
        model=source,
        movable=False,
        seconds=seconds,
        figures={f"roofline{end}.svg": draw, f"ratios{end}.svg": draw_ratios},
        **SAID,
    )
    for source, end, seconds in (("random:gpt2", "", 130), ("smollm2", "-llama", 150))
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="roofline.py", description=__doc__, keys=__file__)
    about = "tokens of prompts; by default 16,128,512,1024, as far as the model reaches"
    parser.add_argument("--prefill", type=number_list(1), default=None, metavar="N,N", help=about)
    about = "positions cached before a new token; by default 16,128,512,1023, likewise"
    parser.add_argument("--decode", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed passes after the warm-up")
    about = "draw the ratios in place of the roofline"
    parser.add_argument("--ratios", action="store_true", help=about)
    parser.add("model", "threads", "seed", "plot", "json").set_defaults(model="random:gpt2")
    return parser


@command
def main(argv=None):
    """Print each operation beside its bound."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    lengths = [args.prefill or PREFILL, args.decode or DECODE]
    with progress_bar("pass", sum(map(len, lengths)) * (args.runs + 1)) as bar:
        values = {"roofline": measure(model, args.prefill, args.decode, args.runs, progress=bar.update)}
    head = f"{args.model}: float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    picture = draw_ratios if args.ratios else draw
    answer(args, values, lambda values: head + report(values), lambda values, path: picture(values["roofline"], path))


if __name__ == "__main__":
    sys.exit(main())
