"""Chapter 14: what storing a model's weights in chapter 2's formats does to its logits and to its loss.

    python examples/ch14/stored_weights.py
    python examples/ch14/stored_weights.py --model smollm2 --tokens 256

Each weight goes through the format and comes back as float32, and the pass computes in float32: so what differs is the stored
weights alone, not the arithmetic.
"""

import sys
import textwrap
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, run
from examples.ch02.storage_formats import CHOICES, as_stored
from examples.ch14.held_text import held_windows, losses
from examples.lab.experiment import Experiment, largest
from examples.lab.script import Parser, answer, command, progress_bar, table, whole_number


@torch.no_grad()
def measure(model, tokens=None, progress=lambda: None):
    """Of each format: the model's bytes, the largest change of a logit, and the loss on the held text, in nats per token.

    same_best: at how many positions the most probable token is the one of the float32 weights. kl: the mean over the positions of
    the Kullback-Leibler divergence from the distribution that the float32 weights give, in nats: what the loss would rise by on
    text that those weights wrote. loss_change: by how much the loss is above that of the float32 weights; standard_error: of this
    change, from position to position. tokens: of the text.
    """
    ids = held_windows(model, tokens)  # [n, T + 1]
    before = [run(model, row[None, :-1])[0] for row in ids]  # n of [T, V]
    first, best_before = losses(ids, model)  # [n, T] each
    rows = []
    for form in CHOICES:
        stored, size = as_stored(model, form)
        most, divergence = 0.0, []
        for row, one in zip(ids, before, strict=True):
            other = run(stored, row[None, :-1])[0]  # [T, V]
            most = max(most, largest(other - one))
            divergence.append(divergences(one, other))
        nats, best = losses(ids, stored)
        change = nats - first
        row = {"format": form, "bytes": size, "largest_change": most, "same_best": int((best == best_before).sum())}
        row |= {"kl": torch.cat(divergence).mean().item(), "loss": nats.mean().item(), "loss_change": change.mean().item()}
        rows.append(row | {"standard_error": change.std().item() / change.numel() ** 0.5})
        progress()
    return {"positions": first.numel(), "windows": len(ids), "largest_logit": max(map(largest, before)), "formats": rows}


def divergences(p, q):
    """Kullback-Leibler divergence in nats [T] of the distributions by logits `q` [T, V] from those by `p` [T, V], in float64."""
    p, q = p.double().log_softmax(-1), q.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1)


def report(values):
    """Text of {"stored-weights": ...}."""
    v = values["stored-weights"]
    rows = [
        [r["format"], f"{r['bytes']:,}", f"{r['largest_change']:.2g}", f"{r['same_best']:,}", f"{r['kl']:.1e}"]
        + [f"{r['loss']:.4f}", f"{r['loss_change']:+.4f}", f"{r['standard_error']:.4f}"]
        for r in v["formats"]
    ]
    heads = ["stored as", "bytes", "logits", "same best", "KL", "loss", "change", "std. error"]
    whole, far = v["formats"][0], max(v["formats"], key=lambda r: r["kl"])
    other, n = v["positions"] - far["same_best"], v["positions"]
    end = (
        f"{n:,} positions in {v['windows']} windows of the held text, logits up to {v['largest_logit']:.1f}; loss and KL in nats "
        f"per token. Furthest from float32 is {far['format']}, with {far['bytes'] / whole['bytes']:.0%} of the bytes: another best "
        f"token at {other:,} positions, and a loss that changes by {far['loss_change']:+.4f}. A change of the loss below two "
        "standard errors cannot be told from none."
    )
    return "\n".join([table(heads, rows), "", textwrap.fill(end, 100)])


EXPERIMENTS = (
    Experiment(
        "ch14.stored-weights",
        "observation",
        "Weights of half the bytes leave nearly every most probable token as it was; Q4_1 changes one in ten, and hardly the loss.",
        "One small model trained in float32, 1,280 positions of one text, too few to tell a change of 0.003 from none.",
        measure,
        headline=("formats[format=Q4_1].same_best", "int"),
        digits={"loss": 5, "loss_change": 2, "standard_error": 2, "kl": 2},
        seconds=12,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="stored_weights.py", description=__doc__, keys=__file__)
    about = "positions of the held text; all of it where none is given"
    parser.add_argument("--tokens", type=whole_number(1), default=None, metavar="N", help=about)
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print what each format does to the logits and the loss."""
    args = options().parse_args(argv)
    model = load_for(args)
    held_windows(model, args.tokens)  # raises before anything long
    with progress_bar("format", len(CHOICES)) as bar:
        values = {"stored-weights": measure(model, args.tokens, bar.update)}
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
