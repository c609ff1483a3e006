"""Chapter 14: a decode step of a Llama's shape with one option changed, timed, beside what the bytes of the trace say.

    python examples/ch14/option_times.py
    python examples/ch14/option_times.py --context 500 --batch 1

Random weights of the model's shape, in float32; the caches are full of noise. Every kind of model is held at once, and the kinds
take turns, so that a machine that slows down slows all of them. Half a minute and 4 GB of memory for SmolLM2.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import Config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import Model, load_for, random_tensor, require
from examples.ch03.tokens import random_ids
from examples.ch14.decode_times import filled, in_turns, one_step
from examples.ch14.decode_trace import decode_step
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, counted, progress_bar, table, whole_number

RUNS = 7
ZERO = "as it is"


def kinds(base: Config, context: int) -> dict[str, tuple[Config, int]]:
    """{option: (config, positions cached)} of a Llama's config as it is and with one thing changed. A window is here a shorter
    cache, which is all that it means to a step."""
    return {
        ZERO: (base, context),
        "MHA": (replace(base, kv_heads=base.n_head), context),
        "MQA": (replace(base, kv_heads=1), context),
        "a window of a quarter": (base, context // 4),
        "biases everywhere": (replace(base, biases=("qkv", "o", "mlp")), context),
        "half the feed-forward width": (replace(base, inner_width=base.inner_width // 2), context),
    }


def random_llama(config: Config, seed: int = 0) -> Model:
    """A `Model` of a Llama's config with random weights."""
    return Model(config, {n: random_tensor(n, s, seed) for n, s in tensor_shapes(config).items()})


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(model, context=1000, batch=8, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """A decode step of a Llama's shape with one option changed: [{option, ms, ratio, bytes_ratio}], ratios to the model as it is.

    bytes_ratio: what the bytes of `decode_step` say. Raises BadInput for another family, and for a context that leaves no position
    for the new token.
    """
    require(model.config, "llama", "a decode step with one option changed")
    if context + 1 > model.config.n_positions:
        raise BadInput(f"{context} cached positions and a new one are more than n_positions {model.config.n_positions}; give fewer")
    steps, said = {}, {}
    for name, (config, held) in kinds(model.config, context).items():
        other = random_llama(config)
        steps[name] = one_step(other, filled(other, batch, held), random_ids(other, 1, batch), held)
        said[name] = decode_step(config, held, batch, 4)["bytes"]
    seconds = in_turns(steps, runs, timer, progress)
    rows = [
        {"option": n, "ms": 1e3 * s, "ratio": s / seconds[ZERO], "bytes_ratio": said[n] / said[ZERO]} for n, s in seconds.items()
    ]
    return {"runs": runs, "context": context, "sequences": batch, "options": rows}


# --------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"option-times": ...}."""
    v = values["option-times"]
    rows = [[r["option"], f"{r['ms']:.2f}", f"{r['ratio']:.2f}", f"{r['bytes_ratio']:.2f}"] for r in v["options"]]
    apart = max(v["options"], key=lambda r: abs(r["ratio"] - r["bytes_ratio"]))
    return "\n".join(
        [
            f"{counted(v['sequences'], 'sequence')} of {v['context']:,} positions; medians of {v['runs']} steps of each in turn",
            "",
            table(["option", "ms", "time", "bytes"], rows),
            "",
            "Time and bytes, each over those of the model as it is, are furthest apart for",
            f"{apart['option']!r}: {apart['ratio']:.2f} and {apart['bytes_ratio']:.2f}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.option-times",
        "timing",
        "An option that changes the bytes of a decode step of SmolLM2's shape changes its time in the same direction.",
        "One thread of one processor, float32, random weights, 8 sequences of 1,000 positions.",
        measure,
        headline=("options[option=MHA].ratio", "f2"),
        model="smollm2",
        seconds=20,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="option_times.py", description=__doc__, keys=__file__)
    parser.add_argument("--context", type=whole_number(4), default=1000, metavar="N", help="positions cached")
    parser.add_argument("--batch", type=whole_number(1, 10**4), default=8, metavar="B", help="sequences at once")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed steps after the warm-up")
    parser.add("model", "threads", "seed", "json").set_defaults(model="smollm2")
    return parser


@command
def main(argv=None):
    """Print what one changed option does to the time of a step."""
    args = options().parse_args(argv)
    model = load_for(args)
    with progress_bar("step") as bar:
        values = {"option-times": measure(model, args.context, args.batch, args.runs, progress=bar.update)}
    settings = f"random weights, float32, {counted(args.threads, 'thread')}, torch {torch.__version__}"
    head = f"{args.model}'s shape:\n{settings}\n"
    answer(args, values, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
