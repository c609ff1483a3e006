"""Chapter 11: GPT-3's weights beside its caches, and what that leaves to be limited: one sequence, 36, and as many as fit.

    python examples/ch11/gpt3_memory.py
    python examples/ch11/gpt3_memory.py --devices 16

From the published shape alone, in 16 bits: 96 layers, width 12,288, 96 heads, 50,257 ids, 2,048 positions. The rates are bounds, as
`capacity.py` has them, for so many H100s as if they were one: nothing is lost to what they would have to tell each other.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.families import formulas
from examples.ch10.cache_memory import GPT3
from examples.ch11.capacity import held, limits, machine, sequences_that_fit, step
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, counted, table, whole_number

GIB = 2**30
DEVICES = 8


def measure(devices=DEVICES):
    """Weights and caches of GPT-3's shape at its full context, and decode steps of one sequence, of 36 and 37, and of all that fit.

    cache_percent: the cache of one sequence, of the weights. sequences_below: the most whose caches are not more than the weights.
    devices_for_weights: the fewest H100s that hold the weights. steps: a row for each number of sequences, with the bytes held in
    GiB, and whether they fit into `devices` H100s. Raises BadInput for fewer devices than one sequence needs.
    """
    context, chip = GPT3.n_positions, machine(devices=devices)
    weights, cache = held(GPT3, context)
    below, fit = int(weights // cache), sequences_that_fit(GPT3, context, chip["memory_bytes"])
    needed = math.ceil((weights + cache) / machine()["memory_bytes"])
    if fit < 1:
        raise BadInput(f"{counted(devices, 'H100')} cannot hold GPT-3's weights and a sequence; give {needed} or more --devices")
    steps = []
    for n in sorted({1, below, below + 1, fit}):
        found = step(GPT3, context, n, chip)
        kept = {key: found[key] for key in ("step_ms", "tokens_per_s", "each_per_s", "flop_per_byte", "limit")}
        steps.append(
            {"sequences": n, "caches_gib": n * cache / GIB, "held_gib": (weights + n * cache) / GIB, "fits": n <= fit, **kept}
        )
    return {
        **{"parameters": formulas(GPT3).parameter_count(GPT3)["total"], "context": context, "weights_gib": weights / GIB},
        **{"cache_gib_each": cache / GIB, "cache_percent": 100 * cache / weights, "sequences_below": below},
        **{"devices": devices, "devices_for_weights": math.ceil(weights / machine()["memory_bytes"]), "sequences_that_fit": fit},
        **{key: x for key, x in limits(GPT3, context, chip).items() if key in ("arithmetic_from", "arithmetic_up_to")},
        "steps": steps,
    }


def report(values):
    """Text of {"gpt3": ...}."""
    v = values["gpt3"]
    rows = [
        [
            *(f"{r['sequences']:,}", f"{r['caches_gib']:,.0f}", f"{r['held_gib']:,.1f}", f"{r['step_ms']:,.1f}"),
            *(f"{r['tokens_per_s']:,.3g}", f"{r['each_per_s']:.3g}", r["limit"], "yes" if r["fits"] else "no"),
        ]
        for r in v["steps"]
    ]
    need = counted(v["devices_for_weights"], "H100")
    fit, below = v["sequences_that_fit"], v["sequences_below"]
    last = "fewer than outweigh the weights" if fit <= below else "more than outweigh the weights"
    return "\n".join(
        [
            f"GPT-3's shape: {v['parameters']:,} parameters, {v['weights_gib']:.1f} GiB in 16 bits. The cache of a sequence of",
            f"{v['context']:,} is {v['cache_gib_each']:.0f} GiB, {v['cache_percent']:.2f} per cent of that.",
            "",
            f"On {counted(v['devices'], 'H100')} as if they were one, at best:",
            "",
            table(["sequences", "caches, GiB", "with weights", "step, ms", "tokens/s", "each", "limit", "fit"], rows),
            "",
            f"The weights alone need {need}. The caches of {below} sequences are less than they, those of {below + 1}",
            f"more; {counted(fit, 'sequence')} fit{'s' if fit == 1 else ''} here, {last}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch11.gpt3",
        "exact",
        "In GPT-3's shape the caches of 36 sequences at 2,048 tokens are less than the weights, and those of 37 are more.",
        "Counts in 16 bits; times from data sheets, of devices as if they were one; nothing about how memory is laid out.",
        measure,
        headline=("sequences_below", "int"),
        model="GPT-3's published shape",
        loads=False,
        movable=False,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="gpt3_memory.py", description=__doc__, keys=__file__)
    parser.add_argument("--devices", type=whole_number(1, 10**5), default=DEVICES, metavar="N", help="H100s")
    return parser.add("json")


@command
def main(argv=None):
    """Print GPT-3's weights beside its caches."""
    args = options().parse_args(argv)
    answer(args, {"gpt3": measure(args.devices)}, report)


if __name__ == "__main__":
    sys.exit(main())
