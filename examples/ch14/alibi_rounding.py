"""Chapter 14: two right programs for ALiBi, and which of them is nearer to the truth.

    python examples/ch14/alibi_rounding.py
    python examples/ch14/alibi_rounding.py --tokens 64,512

ALiBi takes from each score a slope times the distance of key and query. The library adds a slope times the key's position instead,
which is the same function, since a softmax does not see a constant; but far out it is a larger number to round. Our own pass in
float64 is what both are held against here.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import run
from examples.ch03.tokens import random_ids
from examples.ch04.agreement import agreement
from examples.ch14.family_agreement import case_models
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, number_list, progress_bar, table

TOKENS = 2048
MOST = 8192  # the scores of one pass in float64 are then 3 GB


@torch.no_grad()
def measure(tokens=TOKENS, seed=0):
    """BLOOM's tiny model on random ids [1, tokens]: how far three passes are from ours in float64, of the largest logit.

    ours and library: in float32; library_float64: transformers' in float64, whose softmax stays in float32.
    """
    library, model = case_models("bloom", {}, seed)
    model = replace(model, config=replace(model.config, n_positions=tokens))  # no weight depends on it
    ids = random_ids(model, tokens, seed=seed)
    exact = run(model.to(dtype=torch.float64), ids)
    ours, theirs = run(model, ids), library(ids, use_cache=False).logits
    double = library.double()(ids, use_cache=False).logits
    found = {"ours": ours, "library": theirs, "library_float64": double}
    return {"tokens": tokens, **{name: agreement(x, exact)["relative_difference"] for name, x in found.items()}}


def report(values):
    """Text of {"alibi": [...]}: what `measure` returned, for each length."""
    rows = [[f"{r['tokens']:,}", *(f"{r[name]:.1e}" for name in ("ours", "library", "library_float64"))] for r in values["alibi"]]
    last = values["alibi"][-1]
    return "\n".join(
        [
            "BLOOM's tiny model: the largest difference of a logit from our pass in float64, over the",
            "largest logit:",
            "",
            table(["tokens", "ours, float32", "the library's, float32", "the library's, float64"], rows),
            "",
            f"At {last['tokens']:,} tokens ours is {last['library'] / last['ours']:.0f} times nearer than the library's in float32."
            if 0 < last["ours"] < last["library"]
            else f"At {last['tokens']:,} tokens ours is no nearer than the library's in float32.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.alibi",
        "observation",
        "At 2,048 positions the library's ALiBi is some ten times further from float64 than ours: one function, rounded otherwise.",
        "One tiny random model with six heads.",
        measure,
        headline=("library", "s1"),
        model="tiny models (random, seed 0)",
        loads=False,
        movable=False,
        digits=2,
        seconds=8,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="alibi_rounding.py", description=__doc__, keys=__file__)
    about = "lengths of the text; the time grows with their squares"
    parser.add_argument("--tokens", type=number_list(1), default=[64, 512, TOKENS], metavar="N,N", help=about)
    return parser.add("threads", "seed", "json")


@command
def main(argv=None):
    """Print how far both programs are from float64."""
    args = options().parse_args(argv)
    if max(args.tokens) > MOST:
        raise BadInput(f"--tokens {max(args.tokens)} is more than {MOST}: scores grow with the square of it; give fewer")
    torch.set_num_threads(args.threads)
    rows = []
    with progress_bar("length", len(args.tokens)) as bar:
        for tokens in args.tokens:
            rows.append(measure(tokens, args.seed))
            bar.update()
    answer(args, {"alibi": rows}, report)


if __name__ == "__main__":
    sys.exit(main())
