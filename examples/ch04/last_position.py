"""Chapter 4: what it saves to make the logits at the last position only, which is all that a program writing text needs.

python examples/ch04/last_position.py
python examples/ch04/last_position.py --model random:gpt2
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import formulas, program
from examples.ch02.model import load_for, run
from examples.ch03.tokens import random_ids
from examples.ch04.component_timing import Stopwatch, timing_lengths
from examples.ch04.gpt2_from_scratch import causal_mask
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, number_list, progress_bar, table, whole_number
from examples.lab.timing import median_after

LENGTHS = (16, 128, 512)
RUNS = 5  # timed passes of each kind, after a discarded one


def last_position_saving(model, tokens, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Logits at every position beside logits at the last one only, over [1, tokens]: milliseconds and both savings in per cent.

    The two kinds of pass take turns; the first of each is discarded, and the median of `runs` taken.
    """
    ids = random_ids(model, tokens, seed=seed)

    def last_only():
        at, mask = torch.arange(tokens, device=model.device), causal_mask(tokens, tokens, model.device)
        x = program(model).pass_over(ids, model.weights, model.config, at, mask)  # [1, T, d]
        return program(model).unembed(x[:, -1:], model.weights, model.config)  # [1, 1, V]

    now, times = Stopwatch(model.device, timer).now, {"all": [], "last": []}
    for _ in range(runs + 1):
        for name, call in (("all", lambda: run(model, ids)), ("last", last_only)):
            start = now()
            call()
            times[name].append(now() - start)
        progress()
    everywhere, last = (median_after(times[name]) for name in ("all", "last"))
    flops = formulas(model.config).flops_per_pass(model.config, tokens)
    spared = flops["output_projection"] * (tokens - 1) / tokens
    return {
        "tokens": tokens,
        "all_ms": 1e3 * everywhere,
        "last_ms": 1e3 * last,
        "time_saving_percent": 100 * (1 - last / everywhere),
        "flop_saving_percent": 100 * spared / flops["total"],
    }


def measure(model, lengths=None, runs=RUNS, seed=0, progress=lambda: None):
    """`last_position_saving` at each of `lengths`, by default LENGTHS as far as the model reaches."""
    lengths = timing_lengths(model.config, lengths, LENGTHS)
    return {"runs": runs, "lengths": [last_position_saving(model, t, runs, seed, progress=progress) for t in lengths]}


def report(values):
    """Text of {"last-position": ...}."""
    v = values["last-position"]
    rows = [
        [f"{r['tokens']:,}", f"{r['all_ms']:.2f}", f"{r['last_ms']:.2f}"]
        + [f"{r[k]:.1f}%" for k in ("flop_saving_percent", "time_saving_percent")]
        for r in v["lengths"]
    ]
    heads = ["tokens", "ms, logits everywhere", "ms, last position only", "FLOPs saved", "time saved"]
    tokens, flops, time_saved = (v["lengths"][-1][k] for k in ("tokens", "flop_saving_percent", "time_saving_percent"))
    end = [
        f"Medians of {v['runs']} passes of each kind in turn, after a discarded one. Only the output projection can be",
        f"saved: at {tokens:,} tokens that is {flops:.1f}% of the FLOPs, and it was {time_saved:.1f}% of the time.",
    ]
    return "\n".join([table(heads, rows), "", *end])


EXPERIMENTS = (
    Experiment(
        "ch04.last-position",
        "timing",
        "Computing the logits at the last position only saves nearly the output projection's share of a short pass.",
        "One thread of one processor; the saving in time depends on how fast the other parts run.",
        measure,
        headline=("lengths[tokens=16].time_saving_percent", "%1"),
        model="random:gpt2",
        seconds=50,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="last_position.py", description=__doc__, keys=__file__)
    about = "lengths to time; by default 16,128,512, as far as the model reaches"
    parser.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed passes after the warm-up")
    return parser.add("model", "dtype", "device", "threads", "seed", "json")


@command
def main(argv=None):
    """Print what the last position alone saves."""
    args = options().parse_args(argv)
    model = load_for(args)
    lengths = timing_lengths(model.config, args.tokens, LENGTHS)
    with progress_bar("pass", len(lengths) * (args.runs + 1)) as bar:
        values = {"last-position": measure(model, lengths, args.runs, args.seed, bar.update)}
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
