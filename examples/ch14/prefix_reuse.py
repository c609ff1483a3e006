"""Chapter 14: what a family's positions mean for reusing a cached text: at a later place, and behind another text.

    python examples/ch14/prefix_reuse.py --model smollm2
    python examples/ch14/prefix_reuse.py                          # a learned table of positions, for comparison
    python examples/ch14/prefix_reuse.py --model smollm2 --shifts 1,4000

Two questions. A text with nothing before it starts at a later position: has it the same logits? And its keys and values, computed
alone and cached: are they good where other tokens stand before it? Rotated keys can be turned on to their new place, which is all
that RoPE asks for; whether they are then right is another matter.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import general
from examples.ch02.model import general_form, load_for, run
from examples.ch03.tokens import default_ids, encode, ids_for, random_ids, shown
from examples.ch04.agreement import agreement
from examples.ch04.gpt2_from_scratch import Trace, causal_mask
from examples.ch04.residual_trace import OTHERS
from examples.ch14 import variants
from examples.lab.experiment import Experiment, largest, tolerance, worst
from examples.lab.script import BadInput, Parser, answer, command, number_list, table

BEFORE = OTHERS[2]  # the text that stands before another one
SHIFTS = (1, 100, 1000)  # positions
BOUND = 1e-4  # of the largest logit: angles of late positions are rounded more coarsely in float32
MOVED, REUSED = 20, 17  # tokens of the text that is moved, and of the one whose keys are reused


# ------------------------------------------------------------------------------------------------------ at a later place


def forward_at(model, ids, at):
    """Logits [B, T, V] of `ids` [B, T] at positions `at` [T], by the configurable forward of a model in general form."""
    x = variants.pass_over(ids, model.weights, model.config, at, causal_mask(len(at), len(at), model.device))  # [B, T, d]
    return variants.unembed(x, model.weights, model.config)


def shift(model, ids, by):
    """The same text `by` positions later, with nothing before it: its logits beside those at 0.

    {by, off_percent, same_argmax, positions}; off_percent: the largest difference, of the largest logit. A family whose scores see
    differences of positions only gives the same logits. Raises BadInput where a learned table has not as many rows.
    """
    model, at = general_form(model), torch.arange(ids.shape[1], device=model.device)
    found = agreement(forward_at(model, ids, at + by), forward_at(model, ids, at))
    off = 100 * found["relative_difference"]
    return {"by": by, "off_percent": off, "same_argmax": found["same_argmax"], "positions": found["positions"]}


def shifts_for(config, tokens, wanted=None):
    """Positions to move a text of `tokens` by: `wanted`, checked, or those of SHIFTS for which the model has room.

    Raises BadInput where there is none, or too little for one that is wanted.
    """
    room = config.n_positions - tokens
    over = [n for n in wanted or SHIFTS[:1] if n > room]
    if over:
        raise BadInput(f"{tokens} tokens {over[0]} positions later pass n_positions {config.n_positions}; give fewer")
    return wanted or [n for n in SHIFTS if n <= room]


def measure_moves(model, ids=None, shifts=None):
    """`shifts`, a row of `shift` for each of them, by default `shifts_for` the model, for `ids` [1, T], by default 20 tokens."""
    ids = default_ids(model, MOVED) if ids is None else ids
    shifts = shifts_for(model.config, ids.shape[1]) if shifts is None else shifts
    return {"tokens": ids.shape[1], "shifts": [shift(model, ids, by) for by in shifts]}


def measure_shift(model, ids=None, shifts=None):
    """`measure_moves` as a `tolerance` of the largest logit: positions that enter by their differences change nothing."""
    found = measure_moves(model, ids, shifts)
    rows = found["shifts"]
    same = all(r["same_argmax"] == r["positions"] for r in rows)
    return tolerance(BOUND, worst(r["off_percent"] / 100 for r in rows), same, **found)


# --------------------------------------------------------------------------------------------------- behind another text


def prefix_keys(model, before, ids):
    """Whether the cached keys and values of `ids` [1, T] are good after another text `before` [1, t] [{layer, keys, values}].

    Keys computed alone are turned on by t positions, which is all that RoPE needs; each entry is the largest difference from what
    the model computes for the whole text, over the largest value there. Raises BadInput for positions that are no rotations.
    """
    model = general_form(model)
    config, alone, whole = model.config, Trace("k", "v"), Trace("k", "v")
    if config.positions != "rope":
        raise BadInput(
            "this model's positions are no rotations, so cached keys cannot be turned on; take one with RoPE, smollm2 say"
        )
    run(model, ids, trace=alone)
    run(model, torch.cat([before, ids], 1), trace=whole)
    t = before.shape[1]
    rows = []

    def on(keys, layer):
        """Keys [B, heads, T, width] turned on by t positions, by the layer's own rope; of latent ones the part that turns."""
        still, part = (0, keys.shape[-1]) if config.latent is None else (config.latent.plain, config.latent.turned)
        plain, turning = keys.split((still, part), dim=-1)
        turning = variants.turned(turning, config, layer, torch.tensor([t]))
        return torch.cat([plain, turning / variants.rope_of(config, layer).gain], dim=-1)  # the gain they have already

    for layer in range(config.n_layer):
        row = {"layer": layer}
        for point, name in (("k", "keys"), ("v", "values")):
            ours, right = alone[point, layer], whole[point, layer][:, :, t:]  # each [1, heads, T, width]
            ours = on(ours, layer) if point == "k" else ours
            row[name] = largest(ours - right) / (largest(right) or 1)
        rows.append(row)
    return rows


def measure_prefix(model, ids=None, seed=0):
    """Keys and values of `ids` [1, T], by default 17 tokens, computed alone and reused behind BEFORE: `layers`, of `prefix_keys`.

    Layers count from 0. The last two values compare layers: the second's values, and the best of any key or value above the second
    (None where there is no such layer). A model without a tokenizer takes random ids for BEFORE.
    """
    ids = default_ids(model, REUSED, special=False) if ids is None else ids  # it stands behind another text: nothing begins with it
    before = encode(BEFORE, model) if model.tokenizer else random_ids(model, 7, seed=seed + 1)
    rows = prefix_keys(model, before, ids)
    later = [100 * min(r["keys"], r["values"]) for r in rows[2:]]
    return {
        "before": before.shape[1],
        "tokens": ids.shape[1],
        "layers": rows,
        "first_keys": rows[0]["keys"],
        "first_values": rows[0]["values"],
        "second_values_percent": 100 * rows[1]["values"] if len(rows) > 1 else None,
        "smallest_later_percent": min(later, default=None),
    }


# --------------------------------------------------------------------------------------------------------------- the tables


def report(values):
    """Text of {"shift" or "shift-learned": ...} and, of a model that rotates, "prefix"."""
    moved, reused = values.get("shift") or values["shift-learned"], values.get("prefix")
    shifts = [[f"{r['by']:,}", f"{r['off_percent'] / 100:.1e}", f"{r['same_argmax']} of {r['positions']}"] for r in moved["shifts"]]
    off = worst(r["off_percent"] for r in moved["shifts"])
    parts = [
        f"The {moved['tokens']} tokens with nothing before them, moved to later positions:",
        "",
        table(["positions later", "logits off, of the largest", "same argmax"], shifts),
    ]
    end = f"Moved, its logits are at most {off / 100:.1e} of the largest off."
    if reused is None:
        return "\n".join(
            [*parts, "", end, "Its positions are no rotations, so that cached keys cannot be turned on to another place."]
        )
    rows = [[r["layer"], f"{r['keys']:.1e}", f"{r['values']:.1e}"] for r in reused["layers"]]
    parts += [
        "",
        f"{reused['tokens']} of them after {reused['before']} others; keys (turned on) and values computed alone, "
        "beside the right ones:",
        "",
        table(["layer (from 0)", "keys off", "values off"], rows),
        "",
        end,
        f"Behind another text its keys in layer 0 are {reused['first_keys']:.1e} of the largest off.",
    ]
    best = reused["smallest_later_percent"]
    if best is not None:
        parts.append(f"From layer 2 on no layer has its keys or its values less than {best:.2g} per cent off.")
    return "\n".join(parts)


EXPERIMENTS = (
    Experiment(
        "ch14.shift",
        "tolerance",
        "With RoPE a text with nothing before it has the same logits wherever it starts, within 1e-4 of the largest.",
        "One text of 20 tokens on SmolLM2, up to 1,000 positions later, float32 angles.",
        measure_shift,
        model="smollm2",
        leaves_out=("off_percent",),
        seconds=3,
    ),
    Experiment(
        "ch14.shift-learned",
        "observation",
        "With learned positions the same move changes the logits.",
        "One text of 20 tokens on the embedded model.",
        measure_moves,
        headline=("shifts[by=100].off_percent", "%1"),
        seconds=1,
    ),
    Experiment(
        "ch14.prefix",
        "observation",
        "Keys of a text computed alone and turned on are right after another text in the first layer only.",
        "One text after one other on SmolLM2; largest differences.",
        measure_prefix,
        headline=("smallest_later_percent", "%1"),
        model="smollm2",
        digits=2,
        seconds=2,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="prefix_reuse.py", description=__doc__, keys=__file__)
    about = "positions to move the text by; by default 1,100,1000, as far as the model reaches"
    parser.add_argument("--shifts", type=number_list(1), default=None, metavar="N,N", help=about)
    return parser.add("model", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Print what a move does, and what another text before it does."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = ids_for(args, model, MOVED)
    shifts, positions = shifts_for(model.config, ids.shape[1], args.shifts), general(model.config).positions
    if positions in ("learned", "sinusoidal"):  # what is added to the stream says where a position stands
        values = {"shift-learned": measure_moves(model, ids, shifts)}
    else:  # only differences enter the scores
        values = {"shift": measure_shift(model, ids, shifts)}
    if positions == "rope":
        values["prefix"] = measure_prefix(model, ids_for(args, model, REUSED, special=False), args.seed)
    head = f"{args.model}: {shown(ids, model)}\n\n"
    answer(args, values, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
