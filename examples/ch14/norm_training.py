"""Chapter 14: small models trained with their norms in one place or the other: which of them learn.

    python examples/ch14/norm_training.py
    python examples/ch14/norm_training.py --layers 12 --steps 1500 --rate 1e-4
    python examples/ch14/norm_training.py --whole            # all that the book keeps of it: some minutes

The models are those of `norm_depth.py`, with learned positions. All places of the norms see the same batches, bytes of one short
play. What to compare a loss with is the entropy of single bytes in it, which is what guessing each by its frequency gets.
"""

import argparse
import math
import statistics
import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import run, seeded
from examples.ch03.held_text import PLAY
from examples.ch14.norm_depth import PLACES, depth_config, small_model
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, number_list, progress_bar, table, whole_number

LAYERS, SEEDS, STEPS, RATE = (4, 12, 24), 2, 150, 1e-3
WARM_UP = 100  # steps
SLOW_LAYERS, SLOW_STEPS, SLOW_RATE = 12, 1500, 1e-4
LAST = 20  # steps whose mean loss counts


def training(norm_place, layers, seed=0, steps=STEPS, rate=RATE, width=64, warm_up=1, progress=lambda: None):
    """A random model trained by Adam on the bytes of the held play: the mean loss of the last 20 steps, nats per byte.

    Batches of 8 sequences of 32 bytes, learned positions; the same batches for each place of the norms. warm_up: the steps over
    which the rate rises to its value. progress: called after each step.
    """
    text = torch.tensor(list(PLAY.read_bytes()))
    config = replace(depth_config(norm_place, layers, width), vocab_size=256, positions="learned")
    model = small_model(config, seed)
    adam = torch.optim.Adam([w.requires_grad_() for w in model.weights.values()], lr=rate)
    generator, losses = seeded(seed), []
    for step in range(steps):
        adam.param_groups[0]["lr"] = rate * min(1, (step + 1) / warm_up)
        starts = torch.randint(len(text) - 33, (8,), generator=generator)
        batch = torch.stack([text[i : i + 33] for i in starts])  # [8, 33]
        logits = run(model, batch[:, :-1])  # [8, 32, 256]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
        progress()
    return statistics.mean(losses[-LAST:])


def byte_entropy():
    """Nats per byte of the held play when each byte is guessed by its frequency in it."""
    share = torch.bincount(torch.tensor(list(PLAY.read_bytes()))).double()
    share = share[share > 0] / share.sum()
    return -(share * share.log()).sum().item()


# -------------------------------------------------------------------------------------------------------- the measurements


def measure_some(layers=LAYERS, places=PLACES, seeds=SEEDS, seed=0, steps=STEPS, rate=RATE, warm_up=1, progress=lambda: None):
    """`rows`, the loss of each of `places` at each of `layers`, mean over `seeds` models; the same as PLACE_LAYERS.

    steps, rate and warm_up as in `training`.
    """
    rows = []
    for place in places:
        for n in layers:
            drawn = range(seed, seed + seeds)
            losses = [training(place, n, s, steps, rate, warm_up=warm_up, progress=progress) for s in drawn]
            rows.append({"norm_place": place, "layers": n, "loss": statistics.mean(losses), "losses": losses})
    return {
        **{"steps": steps, "rate": rate, "seeds": seeds, "rows": rows},
        **{f"{r['norm_place']}_{r['layers']}": r["loss"] for r in rows},
        "byte_entropy": byte_entropy(),
    }


def measure(progress=lambda: None):
    """`measure_some` at its full size, and two more trainings from seed 0: post-norm at the greatest depth with a warm-up of
    `warm_up` steps, and pre- and post-norm of 12 layers at `slow_rate` for `slow_steps`."""
    found, deepest = measure_some(progress=progress), LAYERS[-1]
    slow = {
        f"slow_{place}_{SLOW_LAYERS}": training(place, SLOW_LAYERS, steps=SLOW_STEPS, rate=SLOW_RATE, progress=progress)
        for place in ("pre", "post")
    }
    return {
        **found,
        **{"warm_up": WARM_UP, f"post_{deepest}_warmed_up": training("post", deepest, warm_up=WARM_UP, progress=progress)},
        **{"slow_rate": SLOW_RATE, "slow_steps": SLOW_STEPS, **slow},
    }


def report(values):
    """Text of {"training": ...}."""
    found = values["training"]
    rows = [[r["norm_place"], r["layers"], f"{r['loss']:.2f}", " ".join(f"{x:.2f}" for x in r["losses"])] for r in found["rows"]]
    parts = [
        f"Trained for {found['steps']:,} steps at a rate of {found['rate']:g}; the loss of the last {LAST} steps, nats per byte:",
        "",
        table(["norms", "layers", "mean loss", "by seed"], rows),
        "",
    ]
    if "slow_rate" in found:
        deepest = max(r["layers"] for r in found["rows"])
        pre, post = (found[f"slow_{place}_{SLOW_LAYERS}"] for place in ("pre", "post"))
        parts += [
            f"Post-norm of {deepest} layers with a warm-up of {found['warm_up']} steps: {found[f'post_{deepest}_warmed_up']:.2f}",
            f"{SLOW_LAYERS} layers for {found['slow_steps']:,} steps at a rate of {found['slow_rate']:g}: "
            f"{pre:.2f} with pre-norm, {post:.2f} with post-norm",
            "",
        ]
    entropy = found["byte_entropy"]
    learned = [f"{r['norm_place']} {r['layers']}" for r in found["rows"] if r["loss"] < entropy]
    return "\n".join(
        [
            *parts,
            f"Guessing each byte by its frequency gets {entropy:.2f}; "
            f"{len(learned)} of {len(found['rows'])} kinds did better: {', '.join(learned) or 'none'}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.training",
        "observation",
        "At one rate deep post-norm models get stuck where pre-norm models learn; at a tenth of it both learn.",
        "Width 64, Adam on a short text: 150 steps, two seeds; at the lower rate 1,500 steps, 12 layers, one seed.",
        measure,
        headline=("post_24", "f2"),
        model="random models of width 64",
        loads=False,
        movable=False,
        seconds=250,
    ),
)


def _rate(text):
    """An argparse type: a number above 0, to 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, to 1")
    return value


def options():
    """The script's argument parser."""
    parser = Parser(prog="norm_training.py", description=__doc__, keys=__file__).add("threads", "seed", "json")
    parser.add_argument("--layers", type=number_list(1), default=[4, 12], metavar="N,N", help="depths")
    parser.add_argument("--places", nargs="+", choices=PLACES, default=["pre", "post"], help="where the norms stand")
    parser.add_argument("--seeds", type=whole_number(1, 100), default=1, metavar="N", help="models of each kind")
    parser.add_argument("--steps", type=whole_number(1, 10**6), default=75, metavar="N", help="steps of Adam")
    parser.add_argument("--rate", type=_rate, default=RATE, metavar="X", help="its learning rate")
    parser.add_argument("--warm-up", type=whole_number(1, 10**6), default=1, metavar="N", help="steps until the rate is reached")
    about = "all that the book keeps of it, in place of the options above: some minutes"
    parser.add_argument("--whole", action="store_true", help=about)
    return parser


@command
def main(argv=None):
    """Train, and print the losses."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    layers, places = sorted(set(args.layers)), list(dict.fromkeys(args.places))
    steps = len(layers) * len(places) * args.seeds * args.steps
    if args.whole:
        steps = (len(LAYERS) * len(PLACES) * SEEDS + 1) * STEPS + 2 * SLOW_STEPS
    with progress_bar("step", steps) as bar:
        if args.whole:
            found = measure(bar.update)
        else:
            found = measure_some(layers, places, args.seeds, args.seed, args.steps, args.rate, args.warm_up, bar.update)
    answer(args, {"training": found}, report)


if __name__ == "__main__":
    sys.exit(main())
