"""Chapter 4: how much a model still knows of order when its position table is taken out: the causal mask tells it.

    python examples/ch04/order_without_positions.py
    python examples/ch04/order_without_positions.py --tokens 12 --first 7 --rest 4

The position table is set to zero, and a text of one id after another one is run: A B B B B B B. Without a mask each B sees the same
tokens, so that all of them have the same logits. With the mask a B sees only what stands before it, and the share of A among that
says how far it is from the start. When all ids are alike there is nothing to tell places apart by, mask or no mask.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, require, run
from examples.lab.experiment import Experiment, largest
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number

FIRST, REST, TOKENS = 20, 10, 7


def without_positions(model):
    """The GPT-2 `model` with a position table of zeros; raises BadInput for another family."""
    require(model.config, "gpt2", "taking the position table out")
    return replace(model, weights=model.weights | {"wpe.weight": torch.zeros_like(model.weights["wpe.weight"])})


def measure(model, first=FIRST, rest=REST, tokens=TOKENS):
    """How far the logits at each of the places that hold `rest` are from those at the first of them, without position table.

    mixed: the text is `first` and then `rest`, `tokens` in all; alike: it is `rest` throughout. Rows of {position, with_mask,
    without_mask}, the largest difference of a logit. same_without_mask: whether all are within 1e-5 of the largest logit.
    """
    blind = without_positions(model)
    found, within = {"first": first, "rest": rest, "tokens": tokens}, True
    for name, ids in (("mixed", [first] + [rest] * (tokens - 1)), ("alike", [rest] * tokens)):
        start = 1 if name == "mixed" else 0  # the first place that holds `rest`
        off = {}
        for key, causal in (("with_mask", True), ("without_mask", False)):
            logits = run(blind, torch.tensor([ids], device=model.device), causal=causal)[0]  # [T, V]
            off[key] = [largest(logits[i] - logits[start]) for i in range(start + 1, tokens)]
            if not causal or name == "alike":
                within = within and max(off[key], default=0.0) <= 1e-5 * largest(logits)
        rows = zip(range(start + 1, tokens), off["with_mask"], off["without_mask"], strict=True)
        found[name] = [{"position": i, "with_mask": a, "without_mask": b} for i, a, b in rows]
    moved = [row["with_mask"] for row in found["mixed"]]
    return found | {
        "smallest_with_mask": min(moved, default=None),
        "largest_with_mask": max(moved, default=None),
        "grows_with_the_distance": moved == sorted(moved),
        "same_without_mask_or_when_alike": within,
    }


def report(values):
    """Text of {"order": ...}."""
    v = values["order"]
    parts = []
    for name, what in (("mixed", f"{v['first']} once, then {v['rest']}"), ("alike", f"{v['rest']} alone")):
        rows = [[r["position"], f"{r['with_mask']:.2g}", f"{r['without_mask']:.2g}"] for r in v[name]]
        parts += [f"{v['tokens']} ids, {what}: largest difference from the logits at the first {v['rest']}", ""]
        parts += [table(["position", "with the mask", "without it"], rows), ""]
    same = "the same to rounding" if v["same_without_mask_or_when_alike"] else "NOT the same"
    end = f"Without the mask, or all alike, they are {same}; with it they are {v['largest_with_mask']:.2f} apart."
    return "\n".join([*parts, end])


EXPERIMENTS = (
    Experiment(
        "ch04.order",
        "observation",
        "Without its position table the model still tells places apart, by the causal mask, as soon as not all tokens are alike.",
        "One text of two ids on one small model that was trained with its table; only that places differ, not that it uses it.",
        measure,
        movable=False,
        headline=("largest_with_mask", "f2"),
        leaves_out=("without_mask", "alike"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="order_without_positions.py", description=__doc__, keys=__file__)
    parser.add_argument("--first", type=whole_number(0), default=FIRST, metavar="ID", help="the id at the start")
    parser.add_argument("--rest", type=whole_number(0), default=REST, metavar="ID", help="the id everywhere else")
    parser.add_argument("--tokens", type=whole_number(3), default=TOKENS, metavar="T", help="ids in all")
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print how far the places are apart."""
    args = options().parse_args(argv)
    model = load_for(args)
    if args.first == args.rest:
        raise BadInput(f"--first and --rest are both {args.rest}; give two ids")
    answer(args, {"order": measure(model, args.first, args.rest, args.tokens)}, report)


if __name__ == "__main__":
    sys.exit(main())
