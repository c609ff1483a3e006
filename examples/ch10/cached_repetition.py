"""Chapter 10: chapter 5's count of repetition by policy, to the model's last position, with the cache that makes it affordable.

    python examples/ch10/cached_repetition.py
    python examples/ch10/cached_repetition.py --model smollm2 --tokens 60

Without the cache every new token of eight texts runs the eight whole texts again; chapter 5's own script therefore looks at less.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.model import load_for
from examples.ch05.cycles import PROMPTS, text_or_ids
from examples.ch05.repetition import POLICIES, SEEDS, WIDTH, draw_repetition, measure_policies, report, room
from examples.ch10.kv_cache import Cached
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target
from examples.lab.script import Parser, answer, command, progress_bar, whole_number


def measure(model, tokens=None, seeds=SEEDS, progress=lambda: None):
    """What `measure_policies` of chapter 5 returns, from `Cached`; the texts are the same tokens with the cache and without."""
    return measure_policies(model, Cached, tokens=tokens, seeds=seeds, progress=progress)


EXPERIMENTS = (
    Experiment(
        "ch05.policies",
        "observation",
        "The higher the temperature, the less of the text repeats itself; greedy text repeats most.",
        "Eight prompts and three seeds, no window, run with chapter 10's cache; repeating less is not being better.",
        measure,
        headline=("greedy_last_percent", "%1"),
        seconds=12,
        figures={"repetition.svg": draw_repetition},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cached_repetition.py", description=__doc__, keys=__file__)
    about = f"new ones, a multiple of {WIDTH}; by default to the model's last position"
    parser.add_argument("--tokens", type=whole_number(WIDTH), default=None, metavar="N", help=about)
    return parser.add("model", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print how much repeats itself under each policy."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    seeds = [args.seed + seed for seed in SEEDS]
    tokens = args.tokens or room(model, [text_or_ids(model, text) for text in PROMPTS])
    with progress_bar("token", len(POLICIES) * len(PROMPTS) * len(seeds) * tokens) as bar:
        found = measure(model, tokens, seeds, bar.update)
    answer(args, {"policies": found}, report, lambda values, path: draw_repetition(values["policies"], path))


if __name__ == "__main__":
    sys.exit(main())
