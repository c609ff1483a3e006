"""Chapter 14: what norms and residual additions take of a decode step, in FLOPs and in time, beside the sublayers and the head.

    python examples/ch14/small_operations.py
    python examples/ch14/small_operations.py --context 2000 --batch 8

One new token through a cache full of noise, timed component by component with chapter 4's stopwatch. The program is written as it
is read, an operation a line and nothing fused, so these are the times of unfused norms and additions.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import formulas, program
from examples.ch02.model import load_for
from examples.ch03.tokens import random_ids
from examples.ch04.component_timing import COMPONENTS, SHARES, component_seconds, small_sentence, small_shares
from examples.ch10.decode_rate import check_contexts, filled
from examples.ch10.kv_cache import stream_cached
from examples.ch14.decode_times import CONTEXTS
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, number_list, progress_bar, table, whole_number

RUNS = 15

# --------------------------------------------------------------------------------------------------------- the measurement


def measure(model, contexts=CONTEXTS, batch=1, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Where the time of a decode step goes: `components`, a row for each number of cached positions and component, and `steps`, a
    row for each number with the share of norms and residual additions together, of time and of FLOPs.

    Medians of `runs` steps. Raises BadInput for a context that leaves no position for the new token.
    """
    check_contexts(model.config, contexts)
    steps, components = [], []
    for context in contexts:
        cache, ids = filled(model, batch, context), random_ids(model, 1, batch)

        def step(trace, cache=cache, ids=ids, context=context):
            cache.truncate(context)
            x = stream_cached(ids, model, cache, trace)  # [B, 1, d]
            return program(model).unembed(x, model.weights, model.config, trace)  # [B, 1, V]

        seconds, whole = component_seconds(step, model.device, runs, timer, progress)
        flops, total = formulas(model.config).flops_per_token(model.config, context + 1), sum(seconds.values())
        steps.append(
            {"context": context, "step_ms": 1e3 * whole, **small_shares(seconds, model.config, batch * flops["total"], batch)}
        )
        for name in COMPONENTS:
            row = {"context": context, "component": name.replace("_", " "), "ms": 1e3 * seconds[name]}
            components.append(row | {"time_percent": 100 * seconds[name] / total})
    ends = {f"{key}_{end.__name__}": end(r[key] for r in steps) for key in SHARES for end in (min, max)}
    return {"runs": runs, "batch": batch, "steps": steps, "components": components, **ends}


# --------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"small-operations": ...}."""
    v = values["small-operations"]
    contexts = [r["context"] for r in v["steps"]]
    cells = {(r["context"], r["component"]): r for r in v["components"]}
    rows = []
    for name in dict.fromkeys(r["component"] for r in v["components"]):
        found = [cells[context, name] for context in contexts]
        rows.append([name, *(text for r in found for text in (f"{r['ms']:.2f}", f"{r['time_percent']:.1f}%"))])
    heads = ["ms and share of time at", *(text for context in contexts for text in (f"{context:,}", ""))]
    return "\n".join(
        [
            f"A decode step of {v['batch']:,} at once; medians of {v['runs']} steps after a discarded one; by cached positions:",
            "",
            table(heads, rows),
            "",
            small_sentence(v),
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.small-operations",
        "timing",
        "In a decode step of SmolLM2 norms and residual additions take a far larger share of time than of FLOPs.",
        "One thread of one processor, float32, batch 1, nothing fused; no accelerator, which starts a kernel for each operation.",
        measure,
        headline=("small_time_percent_max", "pct1"),
        model="smollm2",
        seconds=20,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="small_operations.py", description=__doc__, keys=__file__)
    parser.add_argument("--context", type=number_list(1), default=list(CONTEXTS), metavar="N,N", help="positions cached")
    parser.add_argument("--batch", type=whole_number(1, 10**4), default=1, metavar="B", help="sequences at once")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed steps after the warm-up")
    parser.add("model", "threads", "seed", "json").set_defaults(model="smollm2")
    return parser


@command
def main(argv=None):
    """Print where the time of a decode step goes."""
    args = options().parse_args(argv)
    model = load_for(args)
    with progress_bar("step", len(args.context) * (args.runs + 1)) as bar:
        values = {"small-operations": measure(model, args.context, args.batch, args.runs, progress=bar.update)}
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
    head = f"{args.model}: float32, {threads}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
