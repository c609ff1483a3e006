"""Chapter 4: attention in numbers: one head on three tokens, small enough for paper, and one head of a model.

    python examples/ch04/attention_by_hand.py
    python examples/ch04/attention_by_hand.py --layer 2 --head 6 --prompt "Good night, good night"

The three tokens' queries, keys and values are made up. The steps are done with Python's own numbers, and beside them the chapter's
`attention` runs on weights that make these queries, keys and values: both have to give the same.
Shapes: T positions, d model width, h heads, dh head width; here T = 3 and d = dh = 4, so that sqrt(dh) is 2.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_config, load_for, run
from examples.ch03.tokens import decode, default_ids, ids_for, shown
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.gpt2_from_scratch import PROMPT, Trace, causal_mask, no_trace
from examples.lab.experiment import Experiment, tolerance, worst
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number

TOKENS = ("the", "cat", "sat")
QUERIES = ((2, 0, 0, 0), (2, 2, 0, 2), (0, 2, 1, 1))
KEYS = ((1, 0, 0, 0), (0, 2, 0, 0), (0, 0, 1, 1))
VALUES = ((1, 0, 2, 0), (0, 3, 0, 1), (2, 0, 0, 1))
BOUND = 1e-6
MOST = 7  # positions of a head that a page has room for


def by_hand(queries=QUERIES, keys=KEYS, values=VALUES):
    """The steps of one head, causal, in Python's numbers: scores [T][T] before the mask, weights [T][T] and result [T][dh]."""
    scores = [[sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q)) for k in keys] for q in queries]
    weights, result = [], []
    for i, row in enumerate(scores):
        powers = [math.exp(score) if j <= i else 0.0 for j, score in enumerate(row)]  # exp(-infinity) = 0
        weights.append([power / sum(powers) for power in powers])
        result.append([sum(w * v[c] for w, v in zip(weights[i], values, strict=True)) for c in range(len(values[0]))])
    return {"scores": scores, "weights": weights, "result": result}


def by_program(queries=QUERIES, keys=KEYS, values=VALUES):
    """The result [T][dh] of the chapter's `attention` on the same.

    Token i is the i-th unit vector, so that the i-th row of W_qkv is its query, key and value; W_o leaves the result as it is.
    """
    T, d = len(queries), len(queries[0])
    rows = [[*q, *k, *v] for q, k, v in zip(queries, keys, values, strict=True)]
    rows += [[0] * (3 * d)] * (d - T)  # the unit vectors that no token is
    weights = {
        "h.0.attn.c_attn.weight": torch.tensor(rows, dtype=torch.float32),  # [d, 3d]
        "h.0.attn.c_attn.bias": torch.zeros(3 * d),
        "h.0.attn.c_proj.weight": torch.eye(d),  # [d, d]
        "h.0.attn.c_proj.bias": torch.zeros(d),
    }
    config = replace(load_config("gpt2"), n_embd=d, n_head=1)
    return gpt2.attention(torch.eye(T, d)[None], weights, config, 0, causal_mask(T, T), no_trace)[0].tolist()


# --------------------------------------------------------------------------------------------------------- the measurements


def measure():
    """The steps by hand, and how far the result of the chapter's `attention` is from theirs at most."""
    hand = by_hand()
    off = [a - b for ours, theirs in zip(by_program(), hand["result"], strict=True) for a, b in zip(ours, theirs, strict=True)]
    rows = [
        {"token": token, "query": list(q), "key": list(k), "value": list(v)}
        for token, q, k, v in zip(TOKENS, QUERIES, KEYS, VALUES, strict=True)
    ]
    return tolerance(BOUND, worst(abs(x) for x in off), tokens=rows, **hand)


def measure_head(model, ids=None, layer=0, head=0):
    """The attention weights of one head of a model on `ids` [1, T]: T rows of T. Raises BadInput where there is no such head."""
    for name, asked, there in (("layer", layer, model.config.n_layer), ("head", head, model.config.n_head)):
        if asked >= there:
            raise BadInput(f"--{name} {asked} is not within 0 to {there - 1}, which this model has; give one that is")
    ids = default_ids(model, 6, text=PROMPT) if ids is None else ids
    kept = Trace("A")
    run(model, ids, trace=kept)
    A = kept["A", layer][0, head]  # [T, T]
    return {
        "layer": layer,
        "head": head,
        "tokens": [decode([i], model) if model.tokenizer else i for i in ids[0].tolist()],
        "weights": A.tolist(),
        "largest_above_diagonal": A.triu(1).max().item(),
    }


# ---------------------------------------------------------------------------------------------------------------- the tables


def report(values):
    """Text of {"example": ..., "head": ...}."""
    v, h = values["example"], values["head"]
    given = [[r["token"], *(" ".join(map(str, r[key])) for key in ("query", "key", "value"))] for r in v["tokens"]]
    steps = []
    for i, row in enumerate(v["scores"]):
        masked = [f"{x:g}" if j <= i else "-inf" for j, x in enumerate(row)]
        numbers = [" ".join(f"{x:.2f}" for x in v[key][i]) for key in ("weights", "result")]
        steps.append([v["tokens"][i]["token"], " ".join(f"{x:g}" for x in row), " ".join(masked), *numbers])
    pieces = [_short(repr(token)) for token in h["tokens"][:MOST]]
    rows = [[piece, *(f"{x:.2f}" if x else "0" for x in row[:MOST])] for piece, row in zip(pieces, h["weights"], strict=False)]
    T = len(h["tokens"])
    cut = [] if T <= MOST else ["", f"These are the first {MOST} of {T} positions; --json has them all."]
    above = h["largest_above_diagonal"]
    end = "Each row sums to 1, and no position reads a later one: above the diagonal all is exactly 0."
    same = "gives the same result" if v["worst"] <= v["bound"] else f"does NOT give the same result: it is {v['worst']:.2g} off"
    return "\n".join(
        [
            "Three tokens and one head of width 4, by hand:",
            "",
            table(["token", "query", "key", "value"], given),
            "",
            "A score is query times key, over sqrt(4) = 2; a row is the token that reads:",
            "",
            table(["token", "scores", "with the mask", "weights", "result"], steps),
            "",
            f"The chapter's program {same}.",
            "",
            f"The weights of layer {h['layer']}, head {h['head']} (both from 0); a row is the token that reads:",
            "",
            table(["", *pieces], rows),
            *cut,
            "",
            end if above == 0 else f"This program is NOT causal: a weight above the diagonal is {above:.3g}.",
        ]
    )


def _short(text, width=8):
    return text if len(text) <= width else text[: width - 2] + ".."


EXPERIMENTS = (
    Experiment(
        "ch04.example",
        "tolerance",
        "On three tokens that are done by hand, the chapter's attention gives the same result within 1e-6.",
        "One head, made-up queries, keys and values.",
        measure,
        headline=("worst", "s0"),
        model="none (made-up numbers)",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch04.head",
        "observation",
        "In one head of the embedded model each position divides its attention over itself and those before it, and not evenly.",
        "One head on one short text; what a head attends to depends on both.",
        measure_head,
        headline=("largest_above_diagonal", "f1"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="attention_by_hand.py", description=__doc__, keys=__file__)
    parser.add_argument("--layer", type=whole_number(0), default=0, metavar="L", help="layer of the model, from 0")
    parser.add_argument("--head", type=whole_number(0), default=0, metavar="H", help="head of that layer, from 0")
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Print attention in numbers."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = ids_for(args, model, 6, PROMPT)
    head = f"{args.model}: {shown(ids, model)}, {ids.shape[1]} tokens\n\n"
    values = {"example": measure(), "head": measure_head(model, ids, args.layer, args.head)}
    answer(args, values, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
