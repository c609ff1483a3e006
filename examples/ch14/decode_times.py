"""Chapter 14: a decode step of a Llama, measured, beside what the trace of its config says at this machine's own rates.

    python examples/ch14/decode_times.py
    python examples/ch14/decode_times.py --context 16,2000 --batch 8

The machine's two rates are measured first: the FLOP/s of a large square product, and the bytes/s at which a large matrix times a
vector reads. The step is one new token in float32, whose cache is full of noise, since its time does not depend on values.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, require
from examples.ch03.tokens import random_ids
from examples.ch10.decode_rate import check_contexts, filled, one_step
from examples.ch11.machine import machine_rates
from examples.ch14.decode_trace import decode_step, step_times
from examples.lab.experiment import Experiment, far_from_record
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import in_turns

CONTEXTS, RUNS = (16, 512, 2000), 9


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(model, contexts=CONTEXTS, batch=1, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """A Llama's decode step at each of `contexts`, in milliseconds, beside what `decode_step` says at this machine's rates.

    measured_over_said: the measured time over the longer of the two that the trace gives. Raises BadInput for another family, and
    for a context that leaves no position for the new token.
    """
    require(model.config, "llama", "a measured decode step here")
    check_contexts(model.config, contexts)
    rates, rows = machine_rates(timer=timer), []
    for context in contexts:
        ids = random_ids(model, 1, batch)
        step = one_step(model, filled(model, batch, context), ids, context)
        measured = in_turns({"step": step}, runs, timer, progress)["step"]
        traced = decode_step(model.config, context, batch, bytes_per_number=4)
        said = step_times(traced, rates["flop_per_s"], rates["bytes_per_s"])
        rows.append(
            {
                **{"context": context, "batch": batch, "mflop": traced["flops"] / 1e6, "mb": traced["bytes"] / 1e6},
                **{"compute_ms": 1e3 * said["compute_s"], "memory_ms": 1e3 * said["memory_s"], "measured_ms": 1e3 * measured},
                "measured_over_said": measured / max(said["compute_s"], said["memory_s"]),
            }
        )
    return {"runs": runs, "gflop_per_s": rates["flop_per_s"] / 1e9, "gb_per_s": rates["bytes_per_s"] / 1e9, "steps": rows}


# --------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"decode": ...}."""
    v = values["decode"]
    keys = ("mflop", "mb", "compute_ms", "memory_ms", "measured_ms", "measured_over_said")
    rows = [[f"{r['context']:,}", *(f"{r[k]:,.2f}" for k in keys)] for r in v["steps"]]
    heads = ["cached", "MFLOP", "MB", "compute, ms", "memory, ms", "measured, ms", "measured / larger"]
    ratios = [r["measured_over_said"] for r in v["steps"]]
    return "\n".join(
        [
            f"This machine: {v['gflop_per_s']:.0f} GFLOP/s in a square product, {v['gb_per_s']:.1f} GB/s in a matrix times a "
            f"vector.\n{v['steps'][0]['batch']:,} at once; medians of {v['runs']} steps after a discarded one. MB are 10^6 bytes, "
            "GB 10^9.",
            "",
            table(heads, rows),
            "",
            f"A step takes {min(ratios):.2f} to {max(ratios):.2f} times what the larger of its two counts says.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.decode",
        "timing",
        "A decode step of SmolLM2 takes longer than the trace says of it at this machine's own rates.",
        "One thread of one processor, float32, batch 1; the cache is full of noise.",
        measure,
        headline=("steps[context=2000].measured_over_said", "f2"),
        model="smollm2",
        seconds=10,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="decode_times.py", description=__doc__, keys=__file__)
    parser.add_argument("--context", type=number_list(1), default=list(CONTEXTS), metavar="N,N", help="positions cached")
    parser.add_argument("--batch", type=whole_number(1, 10**4), default=1, metavar="B", help="sequences at once")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed steps after the warm-up")
    parser.add("model", "threads", "seed", "json").set_defaults(model="smollm2")
    return parser


@command
def main(argv=None):
    """Print measured decode steps beside the trace."""
    args = options().parse_args(argv)
    model = load_for(args)
    with progress_bar("step", len(args.context) * (args.runs + 1)) as bar:
        values = {"decode": measure(model, args.context, args.batch, args.runs, progress=bar.update)}
    threads = counted(args.threads, "thread")
    head = f"{args.model}: float32, {threads}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values), notes=far_from_record("ch14.decode", args, values["decode"]))


if __name__ == "__main__":
    sys.exit(main())
