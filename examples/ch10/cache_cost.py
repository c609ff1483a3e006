"""Chapter 10: what a cache saves: positions, FLOPs and, with --time, seconds of the loop with it and without it.

    python examples/ch10/cache_cost.py                                                     # counts, for two published shapes
    python examples/ch10/cache_cost.py --model toy --prompt-tokens 5 --new 1,12 --time
    python examples/ch10/cache_cost.py --time --plot cost.svg                              # GPT-2's shape: two minutes

Three numbers that are all called the speed-up of a cache, side by side; whether the prompt counts makes a fourth.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import formulas, read_config
from examples.ch02.model import load_config, load_for, random_model
from examples.ch03.tokens import random_ids
from examples.ch05.generate import generate, whole_text
from examples.ch10.kv_cache import Cached
from examples.lab.experiment import Experiment, far_from_record
from examples.lab.figure import check_target, label_ends, new_figure, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import median_after

# four layers and width 64, as published
TOY = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 4, "n_head": 4}
SHAPE, PROMPT, MARKS = "random:gpt2", 20, (1, 2, 5, 12, 25, 50, 100)  # new tokens at which costs are shown
RUNS = 3  # timed runs of each loop, after a discarded one


def toy(seed=0):
    """The toy as a `Model` with random weights."""
    return random_model(TOY, seed, source="toy")


def published_shapes():
    """{name: (config, tokens of the prompt, new tokens)} of the two shapes whose ratios were published."""
    return {"toy": (read_config(TOY, "toy"), 5, (1, 12)), "gpt2": (load_config("gpt2"), PROMPT, MARKS)}


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


def flops_of_step(config, past, T):
    """FLOPs of the model's matmuls in a pass over T positions behind `past` cached ones, logits at the last position only.

    T columns of matmuls, T (past + T) pairs of query and key, which is the full rectangle that the program executes, and one row
    of the output projection. Of other families it is what `flops_per_token` counts: within a window only, of a mixture the experts
    that a token takes, of latent attention the absorbed form. There the programs do more.
    """
    parts = formulas(config).flops_per_token(config, past + T)
    return T * (parts["total"] - parts["output_projection"]) + parts["output_projection"]


def flops_of_loop(config, prompt, new):
    """(naive, cached): FLOPs of both loops for `new` tokens after a prompt, of the passes that `flops_of_step` counts."""
    naive = sum(flops_of_step(config, 0, prompt + j) for j in range(new))
    return naive, flops_of_step(config, 0, prompt) + sum(flops_of_step(config, prompt + j, 1) for j in range(new - 1))


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


# --------------------------------------------------------------------------------------------------------- the measurements


def measure(shapes=None):
    """Positions and FLOPs of both loops: for each NAME of `shapes`, as `published_shapes` has them, NAME_prompt and rows.

    ratio: of positions, with the prefill; flop_ratio: of FLOPs. Raises BadInput where a config has too few positions.
    """
    found = {}
    for name, (config, prompt, news) in (published_shapes() if shapes is None else shapes).items():
        if prompt + max(news) - 1 > config.n_positions:
            raise BadInput(
                f"{prompt} and {max(news)} tokens are more than n_positions {config.n_positions} allows; give fewer of one of them"
            )
        found[f"{name}_prompt"], found[name] = prompt, []
        for new in news:
            naive, cached = flops_of_loop(config, prompt, new)
            row = {"flop_ratio": naive / cached, "naive_gflop": naive / 1e9, "cached_gflop": cached / 1e9}
            found[name].append(tokens_processed(prompt, new) | row)
    return found


def measure_time(model, prompt=PROMPT, marks=MARKS, runs=RUNS, seed=0, progress=lambda: None):
    """Seconds of both loops up to each of `marks` new tokens, and the speed of each up to the last of them."""
    rows = loop_times(model, prompt, max(marks), sorted(marks), runs, seed, progress=progress)
    naive, cached = flops_of_loop(model.config, prompt, max(marks))
    return {
        "runs": runs,
        "prompt": prompt,
        "times": rows,
        "naive_gflop_per_s": naive / rows[-1]["naive_s"] / 1e9,
        "cached_gflop_per_s": cached / rows[-1]["cached_s"] / 1e9,
    }


def measure_time_toy():
    """The same of the toy, which takes milliseconds."""
    rows = loop_times(toy(), 5, 12, (1, 2, 6, 12), runs=21)
    for r in rows:
        r |= {"naive_ms": 1e3 * r.pop("naive_s"), "cached_ms": 1e3 * r.pop("cached_s")}
    return {"runs": 21, "prompt": 5, "times": rows}


# ---------------------------------------------------------------------------------------------------- the tables, the figure


def report(values):
    """Text of {"cost": ..., "time": ...}; the second may be left out."""
    parts, heads = [], ["naive", "cached", "ratio", "no prefill", "naive GFLOP", "cached GFLOP", "FLOP ratio"]
    cost = values["cost"]
    for name in [key for key in cost if isinstance(cost[key], list)]:
        rows = [
            [f"{r[key]:,}" for key in ("new", "naive", "cached")]
            + [f"{r[key]:.1f}" for key in ("ratio", "ratio_without_prefill")]
            + [f"{r[key]:,.0f}" if r[key] >= 1000 else f"{r[key]:.3g}" for key in ("naive_gflop", "cached_gflop")]
            + [f"{r['flop_ratio']:.1f}"]
            for r in cost[name]
        ]
        parts += [f"{name}, a prompt of {cost[f'{name}_prompt']} tokens:", "", table(["new tokens", *heads], rows), ""]
        last = cost[name][-1]
    parts += [
        "Positions that each loop computes, and FLOPs with logits at the last position only;",
        "no prefill: as if the prompt cost nothing.",
        f"At {last['new']:,} new tokens: {last['ratio']:.1f} times fewer positions, {last['flop_ratio']:.1f} times fewer FLOPs; "
        f"{last['ratio_without_prefill']:.1f} without the prefill.",
    ]
    if "time" in values:
        v = values["time"]
        rows = [
            [f"{r['new']:,}", f"{r['naive_s']:.3g}", f"{r['cached_s']:.3g}", f"{r['ratio']:.2f}"]
            + ["" if r["ratio_without_prefill"] is None else f"{r['ratio_without_prefill']:.2f}", f"{r['positions_ratio']:.1f}"]
            for r in v["times"]
        ]
        heads = ["new tokens", "naive, s", "cached, s", "ratio", "no prefill", "ratio of positions"]
        parts += [
            "",
            f"Medians of {v['runs']} runs after a discarded one, a prompt of {v['prompt']} tokens:",
            "",
            table(heads, rows),
            "",
            f"At {rows[-1][0]} new tokens the loop without the cache takes {rows[-1][3]} times the time for {rows[-1][5]} times "
            "the positions:",
            f"it runs at {v['naive_gflop_per_s']:.3g} GFLOP/s, the one with the cache at {v['cached_gflop_per_s']:.3g}.",
        ]
    return "\n".join(parts)


def draw(values, path):
    """Ratios naive / cached by new tokens, from what `measure_time` returns: time, FLOPs and positions, the latter both ways."""
    figure, axes = new_figure()
    rows = values["times"]
    for i, (key, label) in enumerate(
        (
            ("ratio", "time"),
            ("flop_ratio", "FLOPs"),
            ("positions_ratio", "positions"),
            ("positions_ratio_without_prefill", "positions, without\nthe prefill"),
        )
    ):
        axes.plot([r["new"] for r in rows], [r[key] for r in rows], label=label, **style(i))
    title = "What the cache saves: the naive loop's work over the cached one's"
    axes.set(xlabel="new tokens", ylabel="naive over cached, times", title=title)
    axes.set_ylim(bottom=0)
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch10.cost",
        "exact",
        "Without a cache the loop computes many times the positions and FLOPs, more for a longer text, the first token aside.",
        "Counts; logits at the last position only, the full rectangle of query and key.",
        measure,
        headline=("gpt2[new=100].ratio", "f1"),
        model="gpt2 (its config; no weights)",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch10.time",
        "timing",
        "On GPT-2's shape the cache saves far less time than positions: single positions run at far fewer FLOPs per second.",
        "One thread of one processor, float32, a prompt of 20 tokens, random weights of GPT-2's shape; no traffic was measured.",
        measure_time,
        headline=("times[new=100].ratio", "f1"),
        model=SHAPE,
        digits={"naive_gflop_per_s": 2, "cached_gflop_per_s": 2},
        seconds=120,
        figures={"cost.svg": draw},
    ),
    Experiment(
        "ch10.time-toy",
        "timing",
        "On the toy of four layers and width 64 the cache saves hardly any time, whatever it saves in positions.",
        "One thread of one processor, milliseconds in all, so the ratios at few tokens are within the noise.",
        measure_time_toy,
        headline=("times[new=12].ratio", "f2"),
        model="toy (random, seed 0)",
        loads=False,
        movable=False,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cache_cost.py", description=__doc__, keys=__file__)
    about = f"toy, or a model as elsewhere; by default the counts are of two published shapes and the times of {SHAPE}"
    parser.add_argument("--model", default=None, metavar="SOURCE", help=about)
    about = f"tokens of the prompt; by default {PROMPT}"
    parser.add_argument("--prompt-tokens", type=whole_number(1), default=None, metavar="P", help=about)
    about = f"how many new tokens; by default {','.join(map(str, MARKS))}"
    parser.add_argument("--new", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--time", action="store_true", help="run both loops and take the time")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser.add("threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print what the cache saves."""
    args = options().parse_args(argv)
    if args.plot and not args.time:
        raise BadInput("--plot draws times; give --time too")
    check_target(args.plot)
    named = {args.model, args.prompt_tokens, args.new and tuple(args.new)} != {None}  # something else than what was published
    args.model = args.model or SHAPE
    prompt, new = args.prompt_tokens or PROMPT, tuple(sorted(set(args.new or MARKS)))
    model = None
    if args.model == "toy":
        torch.set_num_threads(args.threads)
        model = toy(args.seed)
    elif args.time or not args.model.startswith("random:"):
        model = load_for(args)
    config = load_config(args.model) if model is None else model.config
    values = {"cost": measure({"model": (config, prompt, new)} if named else None)}
    if args.time:
        with progress_bar("loop", 2 * (args.runs + 1)) as bar:
            values["time"] = measure_time(model, prompt, new, args.runs, args.seed, bar.update)
    threads = counted(args.threads, "thread")
    head = f"{args.model}: {threads}, torch {torch.__version__}\n\n" if args.time else f"{args.model}\n\n" if named else ""
    far = far_from_record("ch10.time", args, values["time"]) if args.time else ()
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["time"], path), far)


if __name__ == "__main__":
    sys.exit(main())
