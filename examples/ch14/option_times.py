"""Chapter 14: a decode step of a Llama's shape with one option changed, timed, beside what the bytes of the trace say.

    python examples/ch14/option_times.py
    python examples/ch14/option_times.py --context 500 --batch 1

Random weights of the model's shape, in float32; the caches are full of noise. Every kind of model is held at once, and the kinds
take turns, so that a machine that slows down slows all of them. The unchanged model stands there twice: how far its second copy is
from the first is what the measurement cannot tell from nothing. A minute and 5 GB of memory for SmolLM2.
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
from examples.ch10.decode_rate import check_contexts, filled, one_step
from examples.ch14.decode_trace import decode_step
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, counted, progress_bar, table, whole_number
from examples.lab.timing import median_after, quartiles, turns

RUNS = 15
ZERO, AGAIN = "as it is", "as it is, once more"
SAME = 0.01  # bytes that differ by less of themselves are the same


def kinds(base: Config, context: int) -> dict[str, tuple[Config, int]]:
    """{option: (config, positions cached)} of a Llama's config as it is and with one thing changed. A window is here a shorter
    cache, which is all that it means to a step."""
    return {
        **dict.fromkeys((ZERO, AGAIN), (base, context)),
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
    """A decode step of a Llama's shape with one option changed: [{option, ms, ratio, ratio_low, ratio_high, bytes_ratio}].

    ratio: the median, over the runs, of the time over that of the model as it is in the same turn; the middle half of them lies
    between ratio_low and ratio_high. bytes_ratio: what the bytes of `decode_step` say. Raises BadInput for another family, and for
    a context that leaves no position for the new token.
    """
    require(model.config, "llama", "a decode step with one option changed")
    check_contexts(model.config, [context])
    steps, said = {}, {}
    for name, (config, held) in kinds(model.config, context).items():
        other = random_llama(config)
        steps[name] = one_step(other, filled(other, batch, held), random_ids(other, 1, batch), held)
        said[name] = decode_step(config, held, batch, 4)["bytes"]
    seconds, rows = turns(steps, runs, timer, progress), []
    for name, times in seconds.items():
        low, middle, high = quartiles([t / zero for t, zero in zip(times, seconds[ZERO], strict=True)])
        row = {"option": name, "ms": 1e3 * median_after(times, 0), "ratio": middle, "ratio_low": low, "ratio_high": high}
        rows.append(row | {"bytes_ratio": said[name] / said[ZERO]})
    return {"runs": runs, "context": context, "sequences": batch, "options": rows}


# --------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"option-times": ...}."""
    v = values["option-times"]

    def spread(r):
        return f"{r['ratio_low']:.2f} to {r['ratio_high']:.2f}"

    rows = [[r["option"], f"{r['ms']:.2f}", f"{r['ratio']:.2f}", spread(r), f"{r['bytes_ratio']:.2f}"] for r in v["options"]]
    apart = max(v["options"], key=lambda r: abs(r["ratio"] - r["bytes_ratio"]))
    same = [r for r in v["options"] if r["option"] != ZERO and abs(r["bytes_ratio"] - 1) < SAME]
    noise = [f"To within {SAME:.0%} the same bytes as by the model as it is are read by"]
    noise += [f"- {r['option']}: {r['ratio']:.2f} times its time, half of the runs from {spread(r)};" for r in same]
    return "\n".join(
        [
            f"{counted(v['sequences'], 'sequence')} of {v['context']:,} positions; "
            f"medians of {v['runs']} steps of each kind in turn.",
            "Times and bytes are over those of the model as it is, times over its own in the same turn:",
            "",
            table(["option", "ms", "time", "half of the runs", "bytes"], rows),
            "",
            f"Time and bytes are furthest apart for {apart['option']!r}: {apart['ratio']:.2f} and {apart['bytes_ratio']:.2f}.",
            *noise,
            "so a difference in time that is no larger than that is noise, and says nothing of an option.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.option-times",
        "timing",
        "An option that changes the bytes of a decode step of SmolLM2's shape changes its time in the same direction.",
        "One thread of one processor, float32, random weights, 8 sequences of 1,000 positions; a few per cent are noise.",
        measure,
        headline=("options[option=MHA].ratio", "f2"),
        model="smollm2",
        seconds=45,
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
