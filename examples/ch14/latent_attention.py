"""Chapter 14: latent attention in its two forms: one function, two sizes of a cache, two counts of FLOPs.

    python examples/ch14/latent_attention.py
    python examples/ch14/latent_attention.py --context 32768

Keys and values are images of one short vector per position. Expanded, they are made once and kept for every head; absorbed,
only the short vector is kept, and the matrices that would expand it act on the query and on the result. That both give the same
logits is measured on the tiny DeepSeek-V3; what they cost is counted for the published one.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import run
from examples.ch03.tokens import random_ids
from examples.ch04.agreement import BOUND, agreement
from examples.ch14.costs import FORMS, cached_numbers, flops_per_token, kv_bytes_per_token
from examples.ch14.family_agreement import LENGTH, case_models, in_absorbed_form
from examples.ch14.serving import config_named
from examples.lab.experiment import Experiment, tolerance
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number

MODEL = "deepseek-v3"
CONTEXT = 2000


@torch.no_grad()
def absorbed(tokens=LENGTH, seed=0):
    """`agreement` of both forms of the tiny DeepSeek-V3's attention, on random ids [2, tokens]."""
    _, model = case_models("deepseek_v3", {}, seed)
    ids = random_ids(model, tokens, 2, seed)
    return agreement(run(in_absorbed_form(model), ids), run(model, ids))


def measure(context=CONTEXT, seed=0):
    """Both forms: how far their logits are apart, a `tolerance` of the largest one, and what each costs in the published shape.

    forms: FLOPs of one token that attends over `context` positions, and what the cache has of each, at two bytes per number.
    """
    config, found = config_named(MODEL), absorbed(seed=seed)
    forms = [
        {
            "form": form,
            "gflop_per_token": flops_per_token(config, context, form)["total"] / 1e9,
            "numbers_per_layer": cached_numbers(config, form),
            "kv_bytes_per_token": kv_bytes_per_token(config, 2, form),
        }
        for form in FORMS
    ]
    kept = {row["form"]: row["kv_bytes_per_token"] for row in forms}
    return tolerance(
        BOUND,
        found["relative_difference"],
        forms=forms,
        cache_ratio=kept["expanded"] / kept["absorbed"],
        positions=found["positions"],
        context=context,
    )


def report(values):
    """Text of {"latent": ...}."""
    v = values["latent"]
    rows = [
        [r["form"], f"{r['gflop_per_token']:.1f}", f"{r['numbers_per_layer']:,}", f"{r['kv_bytes_per_token']:,}"]
        for r in v["forms"]
    ]
    heads = ["form", f"GFLOP per token at {v['context']:,}", "numbers per layer and position", "cache, bytes per token"]
    held = "within" if v["held"] else "OUTSIDE"
    return "\n".join(
        [
            f"{MODEL}'s configuration:",
            "",
            table(heads, rows),
            "",
            f"A tiny random model: over {v['positions']} positions both forms are at most {v['worst']:.1e} of the largest",
            f"logit apart, {held} {v['bound']:g}. The absorbed form's cache is {v['cache_ratio']:.1f} times smaller, so FLOPs",
            "mean nothing until the form is named.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.latent",
        "tolerance",
        "Latent attention gives the same logits absorbed or expanded, within 1e-5 of the largest.",
        "The agreement is of a tiny random model; the counts are of DeepSeek-V3's configuration.",
        measure,
        model="tiny models (random, seed 0)",
        loads=False,
        movable=False,
        digits={"gflop_per_token": 4},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="latent_attention.py", description=__doc__, keys=__file__)
    about = "positions that the token attends over"
    parser.add_argument("--context", type=whole_number(1), default=CONTEXT, metavar="N", help=about)
    return parser.add("threads", "seed", "json")


@command
def main(argv=None):
    """Print what both forms compute and cost."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    most = config_named(MODEL).n_positions
    if args.context > most:
        raise BadInput(f"--context {args.context} is more than {MODEL}'s {most:,} positions; give fewer")
    answer(args, {"latent": measure(args.context, args.seed)}, report)


if __name__ == "__main__":
    sys.exit(main())
