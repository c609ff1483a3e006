"""Chapter 4: where the time of a pass goes, component by component, beside its FLOPs.

    python examples/ch04/component_timing.py
    python examples/ch04/component_timing.py --model random:gpt2 --tokens 16,512 --plot time.svg

The passes are timed through the trace hook, on one thread by default: times of another machine, or of a busy one, differ.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import NORMS, general
from examples.ch02.families import formulas
from examples.ch02.model import load_for, run
from examples.ch03.tokens import random_ids
from examples.lab.experiment import Experiment
from examples.lab.figure import bar_style, check_target, new_figure, write_figure
from examples.lab.script import BadInput, Parser, answer, command, number_list, progress_bar, table, whole_number
from examples.lab.timing import median_after

LENGTHS = (16, 128, 512, 1024)
RUNS = 5  # timed passes of each kind, after a discarded one
# The traced points at which each component ends: the time since the point before belongs to it. A family whose norms stand behind a
# sublayer has them counted to the sublayer ("both") or to the addition ("post").
COMPONENTS = {
    "embedding": ("embedding",),
    "norms": ("norm_1", "norm_2", "final_norm"),
    "attention": ("q", "k", "v", "scores", "A", "attention"),
    "feed_forward": ("hidden", "mlp"),
    "residual_additions": ("residual_mid", "residual"),
    "output_projection": ("logits",),
}
SMALL = ("norms", "residual_additions")  # what stands between the sublayers, and multiplies no matrices
SHARES = ("small_time_percent", "small_flop_percent")  # of both together
NORM_FLOPS = {"layer": 7, "rms": 4}  # of a number: mean, difference, square, its mean, scale, gain, shift; or four of them


class Stopwatch:
    """A trace that adds up the seconds of each part of a pass. On an accelerator it waits for the work to finish first.

    parts: {name: points at which the part ends}, of all points of the trace, as COMPONENTS has them. Chapter 11 has finer ones.
    """

    def __init__(self, device, timer=time.perf_counter, parts=COMPONENTS):
        self.device, self.timer = device, timer
        self.part_of = {point: name for name, points in parts.items() for point in points}
        self.seconds = dict.fromkeys(parts, 0.0)

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return self.timer()

    def start(self):
        self.last = self.now()

    def __call__(self, point, layer, tensor):
        now = self.now()
        self.seconds[self.part_of[point]] += now - self.last
        self.last = now


def component_seconds(step, device, runs=RUNS, timer=time.perf_counter, progress=lambda: None, parts=COMPONENTS):
    """({part: seconds}, seconds without a trace) of step(trace), which runs a pass with that trace, or with None.

    Traced and untraced passes alternate; of each kind the first is discarded and the median of `runs` taken, for each part by
    itself. parts: as `Stopwatch` takes them.
    """
    traced, untraced = [], []
    for _ in range(runs + 1):
        watch = Stopwatch(device, timer, parts)
        watch.start()
        step(watch)
        traced.append(watch.seconds)
        start = watch.now()
        step(None)
        untraced.append(watch.now() - start)
        progress()
    return {name: median_after(s[name] for s in traced) for name in parts}, median_after(untraced)


def small_flops(config, positions=1):
    """{component: FLOPs} of the stream's norms and of the residual additions, over so many positions: one for each addition and
    each multiplication of a number. The matmul FLOPs of `formulas` leave them out.
    """
    config = general(config)
    norms = sum(name is not None for name in NORMS[config.norm_place]) * config.n_layer + config.final_norm + config.embedding_norm
    numbers = positions * config.n_embd
    return {"norms": norms * NORM_FLOPS[config.norm] * numbers, "residual_additions": 2 * config.n_layer * numbers}


def small_shares(seconds, config, matmul_flops, positions=1):
    """Norms and residual additions together, as per cent of the time {component: seconds} and of all FLOPs, their own included."""
    own = sum(small_flops(config, positions).values())
    return {
        "small_time_percent": 100 * sum(seconds[name] for name in SMALL) / sum(seconds.values()),
        "small_flop_percent": 100 * own / (matmul_flops + own),
    }


def component_times(model, tokens, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Where the time of a pass over [1, tokens] goes: a dict of milliseconds, shares and GFLOP/s.

    The components are COMPONENTS of any family: norms are of whichever kind it has, and embedding is what stands before
    the first layer, a Llama's angles included, while turning by them is a part of attention.

    `unexplained` is the untraced pass less the sum of the components: the tracing, and the medians' own disagreement. FLOPs are
    those of matmuls, of the full rectangle; but small_flop_percent counts norms and additions, as `small_shares` does.
    """
    ids = random_ids(model, tokens, seed=seed)
    seconds, whole = component_seconds(lambda trace: run(model, ids, trace=trace), model.device, runs, timer, progress)
    flops = formulas(model.config).flops_per_pass(model.config, tokens)
    by_component = {
        "attention": flops["attention_projections"] + flops["attention_scores_and_values"],
        "feed_forward": flops["feed_forward"],
        "output_projection": flops["output_projection"],
    }
    total = sum(seconds.values())
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
        **small_shares(seconds, model.config, flops["total"], tokens),
    }


def timing_lengths(config, wanted=None, default=LENGTHS):
    """The lengths to time: `wanted`, checked, or those of `default` as far as the model reaches, and else its full context.

    Raises BadInput for one of `wanted` that is more than n_positions.
    """
    if wanted is not None:
        over = [t for t in wanted if t > config.n_positions]
        if over:
            raise BadInput(f"{over[0]} tokens are more than n_positions {config.n_positions}; give fewer")
        return wanted
    return sorted({min(t, config.n_positions) for t in default})


def denormals(model):
    """How many weights lie between 0 and the smallest normal number of their dtype; arithmetic on them is far slower."""
    count = 0
    for w in model.weights.values():
        size = w.abs()
        count += int(((size > 0) & (size < torch.finfo(w.dtype).tiny)).sum())
    return count


# --------------------------------------------------------------------------------------------------------- the measurements


def measure(model, lengths=None, runs=RUNS, seed=0, progress=lambda: None):
    """Where the time of passes over `lengths` tokens goes: `components`, a row for each length and component, in ms and per cent;
    and `lengths`, a row for each with the whole pass.

    The last values compare lengths: the norms' share, that of norms and residual additions together, the speed at 128 tokens over
    that at 16 (None without both), and attention's share of time over its share of FLOPs at the longest.
    """
    rows, components = [], []
    for tokens in timing_lengths(model.config, lengths):
        found = component_times(model, tokens, runs, seed, progress=progress)
        row = {k: found[k] for k in ("tokens", "sum_ms", "untraced_ms", "unexplained_ms", "gflop_per_s", *SHARES)}
        row["unexplained_percent"] = 100 * found["unexplained_ms"] / found["untraced_ms"]
        for c in found["components"]:
            shares = {"time_percent": 100 * c["time_share"], "flop_percent": 100 * c["flop_share"]}
            row |= {f"{c['component']}_{name}": share for name, share in shares.items()}
            name = c["component"].replace("_", " ")
            components.append({"tokens": tokens, "component": name, "ms": c["ms"], **shares, "gflop_per_s": c["gflop_per_s"]})
        rows.append(row)
    norms = [r["norms_time_percent"] for r in rows]
    speed = {r["tokens"]: r["gflop_per_s"] for r in rows}
    return {
        "runs": runs,
        "denormal_weights": denormals(model),
        "lengths": rows,
        "components": components,
        "norms_time_percent_min": min(norms),
        "norms_time_percent_max": max(norms),
        **{f"{key}_{end.__name__}": end(r[key] for r in rows) for key in SHARES for end in (min, max)},
        "throughput_ratio_128_to_16": speed[128] / speed[16] if {16, 128} <= speed.keys() else None,
        "attention_time_over_flops_at_longest": rows[-1]["attention_time_percent"] / rows[-1]["attention_flop_percent"],
    }


# ---------------------------------------------------------------------------------------------------- the tables, the figure


def report(values):
    """Text of {"time": ...}."""
    found = values["time"]
    parts = [
        f"Medians of {found['runs']} passes after a discarded one; FLOPs of the full square; {found['denormal_weights']} denormals"
    ]
    for r in found["lengths"]:
        rows = [
            [
                c["component"],
                f"{c['ms']:.2f}",
                f"{c['time_percent']:.1f}%",
                f"{c['flop_percent']:.1f}%",
                "" if c["gflop_per_s"] is None else f"{c['gflop_per_s']:.0f}",
            ]
            for c in found["components"]
            if c["tokens"] == r["tokens"]
        ]
        parts += [
            "",
            table([f"{r['tokens']:,} tokens", "ms", "share of time", "share of FLOPs", "GFLOP/s"], rows),
            f"sum {r['sum_ms']:.2f} ms; untraced pass {r['untraced_ms']:.2f} ms, {r['gflop_per_s']:.0f} GFLOP/s; "
            f"unexplained {r['unexplained_ms']:+.2f} ms, {r['unexplained_percent']:+.1f}%",
        ]
    ratio = found["attention_time_over_flops_at_longest"]
    end = f"At {found['lengths'][-1]['tokens']:,} tokens attention's share of time is {ratio:.2f} times its share of FLOPs."
    return "\n".join([*parts, "", end, small_sentence(found)])


def small_sentence(found):
    """What norms and residual additions take, of {"small_time_percent_min": ..., ...}, as `measure` has it."""
    (least, most), flops = (found[f"{SHARES[0]}_{end}"] for end in ("min", "max")), found[f"{SHARES[1]}_max"]
    return f"Norms and residual additions are {flops:.2g}% of the FLOPs at most, and {least:.2g}% to {most:.2g}% of the time."


def draw(values, path):
    """Share of time beside share of FLOPs for each length, from what `measure` returns."""
    figure, axes = new_figure()
    results = [(r["tokens"], [c for c in values["components"] if c["tokens"] == r["tokens"]]) for r in values["lengths"]]
    names = [c["component"] for c in results[0][1]]
    middles = range(0, 3 * len(results), 3)
    places = [middle + side for middle in middles for side in (-0.6, 0.6)]
    bottom = [0.0] * len(places)
    for i, name in enumerate(names):
        heights = [rows[i][key] for _, rows in results for key in ("time_percent", "flop_percent")]
        axes.bar(places, heights, 1, bottom, label=name, **bar_style(i))
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set_xticks(places, ["time", "FLOPs"] * len(results))
    axes.set_xticks(middles, [f"\n{tokens:,}" for tokens, _ in results], minor=True)  # below, under the two of a length
    axes.tick_params(axis="x", which="minor", length=0, pad=7)
    axes.grid(visible=False, axis="x")
    axes.set(xlabel="tokens in the pass", ylabel="share of one pass, per cent", title="Where the time goes, beside the FLOPs")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True, frameon=False)  # as the bars are stacked
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch04.time",
        "timing",
        "At 1,024 tokens attention takes a larger share of time than of FLOPs, in this unfused program.",
        "One thread of one processor, float32, random weights of GPT-2's shape; a fused kernel divides its time otherwise.",
        measure,
        headline=("attention_time_over_flops_at_longest", "g2"),
        model="random:gpt2",
        seconds=110,
        figures={"time.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="component_timing.py", description=__doc__, keys=__file__)
    about = "by default 16,128,512,1024, as far as the model reaches"
    parser.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed passes after the warm-up")
    return parser.add("model", "dtype", "device", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print where the time goes."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    lengths = timing_lengths(model.config, args.tokens)
    with progress_bar("pass", len(lengths) * (args.runs + 1)) as bar:
        values = {"time": measure(model, lengths, args.runs, args.seed, bar.update)}
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
    head = f"{args.model}: {args.dtype} on {args.device}, {threads}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["time"], path))


if __name__ == "__main__":
    sys.exit(main())
