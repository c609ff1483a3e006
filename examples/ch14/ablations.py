"""Chapter 14: take one thing out of a trained model, and look at what breaks.

    python examples/ch14/ablations.py                               # of the embedded model, on a play that it never saw
    python examples/ch14/ablations.py --model smollm2 --plot a.svg  # of a real Llama, on one long text: a few minutes

A model is trained with everything in place, so what is taken out here is missed, and how much says what the trained weights had
come to count on. It does not say how well a model would do that was trained without it. Each ablation is one field of `Config`
changed (or `causal`, which is none of them), so that the pass differs in that and in nothing else.
"""

import json
import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import general
from examples.ch02.model import general_form, load, run
from examples.ch03.tokens import decode, encode
from examples.ch04.agreement import LONGEST
from examples.ch05.generate import generate
from examples.ch14.ablation_plots import plot_by_position
from examples.lab.figure import check_target
from examples.lab.script import BadInput, Parser, command, dump_json, progress_bar, table, whole_number

HERE = Path(__file__).resolve().parent
PLAY = HERE / "held_play.txt"  # the start of Macbeth, as the embedded model's training prepares it and holds it out
ESSAY = HERE / "held_essay.txt"  # written for this script, so that no model can have been trained on it
UNTOUCHED = "as it is"
BINS = 8  # of positions
NEW = 30  # tokens generated
ROWS = 256  # positions whose logits are widened to float64 at once: V numbers of 8 bytes each


# ----------------------------------------------------------------------------------------------------------- what is changed


def ablations(model):
    """[(name, config, causal)] of what the model's family has to lose, the untouched model first.

    The theta of a rope is made ten times smaller and ten times larger. The other norm keeps the gains: RMS norm is layer norm
    that neither centres nor has a bias, so the biases of the family's norms go too. Left out is what would change nothing (a
    family that has no positions, say, or DeepSeek's latent attention, which turns whatever `positions` says), and the other norm
    for gains that are stored as what they differ from 1, which only RMS norm reads so.
    """
    config = general(model.config)
    found = [(UNTOUCHED, config, True), ("no causal mask", config, False)]
    if config.positions != "none" and config.latent is None:
        found.append(("no positions", replace(config, positions="none"), True))
    if config.positions == "rope":
        for theta in (config.rope.theta / 10, config.rope.theta * 10):
            found.append((f"rope_theta {theta:,.0f}", replace(config, rope=replace(config.rope, theta=theta)), True))
    found.append(("no residual", replace(config, residual=False), True))
    if config.score_scale != 1 or config.score_scale_by_layer:
        found.append(("no attention scale", replace(config, score_scale=1.0, score_scale_by_layer=False), True))
    if config.norm == "layer":
        found.append(("RMS norm", replace(config, norm="rms"), True))
    elif not config.unit_gain:
        found.append(("layer norm", replace(config, norm="layer"), True))
    return found


# --------------------------------------------------------------------------------------------------------- what it is measured on


def held_text(model):
    """The text for a model: its held-out play for the embedded one, the essay for any other."""
    path = PLAY if model.manifest.get("source") == "embedded" else ESSAY
    return path.read_text(encoding="utf-8")


def prompt(model, new=1):
    """The short prompt [1, P] that is gone on from; raises BadInput where the model has no room for `new` tokens behind it."""
    ids = encode("Good morrow, my" if model.manifest.get("source") == "embedded" else "The capital of France is", model)
    room = model.config.n_positions - ids.shape[1] + 1  # the last token is never fed
    if not 1 <= new <= room:
        raise BadInput(f"{new} new tokens; behind the prompt there is room for 1 to {room}, give one of these")
    return ids


def held_windows(model, tokens=None):
    """ids [n, T + 1] of n windows of the held text: of each, the first T are fed and the last T predicted, nothing carried over.

    T is the model's full context, LONGEST at most, or the whole text where that is shorter. Windows follow one another, so that
    no token is predicted twice; what is left behind the last whole one is not used. tokens: how many positions to use at most;
    None is all. Raises BadInput for more than the text has.
    """
    ids = encode(held_text(model), model)[0]  # [N]
    most = len(ids) - 1
    tokens = most if tokens is None else tokens
    if not 1 <= tokens <= most:
        raise BadInput(f"{tokens} tokens; the held text has 1 to {most} to predict, give one of these")
    T = min(model.config.n_positions, LONGEST, tokens)
    starts = range(0, tokens - T + 1, T)
    return torch.stack([ids[s : s + T + 1] for s in starts])


def bins(T, count=BINS):
    """[(first, last)] of equal stretches of positions 0 to T - 1, `count` or, of a shorter text, T; each position is in one."""
    count = min(count, T)
    edges = [i * T // count for i in range(count + 1)]
    return [(a, b - 1) for a, b in pairwise(edges)]


# ------------------------------------------------------------------------------------------------------------- the measurement


@torch.no_grad()
def losses(ids, model, causal=True):
    """(nats [n, T] float64, argmaxes [n, T]) of `ids` [n, T + 1], whose first T are fed and last T are the answers.

    The logits are float32, the cross-entropy is float64. An argmax among logits that are no numbers is -1.

    Without the mask (causal=False) this loss is no measure of prediction and is not to be compared with the others: position t
    is asked for token t + 1, which stands in the text that it attends to, together with all that follows. So the loss may come
    out below the untouched model's, and says nothing good of the model where it does; and it may come out above, since weights
    that were trained with the mask never saw a key ahead of its query. Generation shows the damage without this doubt: at the last
    position nothing lies ahead, and only the streams of the earlier ones are other than those the weights were trained on.
    """
    nats, best = [], []
    for row in ids:  # one at a time: the logits of a real vocabulary are 0.2 MB a position
        logits = run(model, row[None, :-1], causal=causal)[0]  # [T, V]
        found = logits.argmax(-1)  # [T]
        best.append(torch.where(logits.isfinite().all(-1), found, -1))
        parts = []
        for part, answers in zip(logits.split(ROWS), row[1:].split(ROWS), strict=True):
            wide = part.double()  # [ROWS, V]
            parts.append(wide.logsumexp(-1) - wide.gather(-1, answers[:, None])[:, 0])
        nats.append(torch.cat(parts))
    return torch.stack(nats), torch.stack(best)


class _NoNumbers(Exception):
    """Logits that hold NaN or infinity, among which nothing is most probable."""


@torch.no_grad()
def greedy(model, causal, new):
    """The `new` most probable ids, one after another, behind `prompt`; the whole text is run anew each time. None: no numbers."""

    def forward(ids):
        logits = run(model, ids, causal=causal)  # [1, t, V]
        if not logits[:, -1].isfinite().all():
            raise _NoNumbers
        return logits

    try:
        return generate(prompt(model, new), model, new, end=None, forward=forward).sequence()
    except _NoNumbers:
        return None


def measure(model, name, windows=None, new=NEW):
    """One ablation, by its name in `ablations`, on the held text: a dict of

    name; mean_loss, nats a token over all positions, and by_position, the same by `bins`: [{first, last, loss}]; argmax_kept, at
    how many of `positions` the most probable token is the untouched model's; text, what `greedy` goes on with, and same_tokens,
    how many of its first tokens are the untouched model's; breaks, these facts in a line. A loss that is no number is None,
    and so is a text for want of logits.

    windows: as `held_windows` gives them, all by default.
    """
    return _measure(model, name, held_windows(model) if windows is None else windows, new)[0]


def _measure(model, name, windows, new, base=None):
    """(row, (argmaxes [n, T], ids, row)); base: the second of these of the untouched model, where it is there already."""
    known = {n: (config, causal) for n, config, causal in ablations(model)}
    if name not in known:
        raise BadInput(f"no ablation {name!r} of this model; it has {', '.join(known)}")
    if base is None and name != UNTOUCHED:
        base = _measure(model, UNTOUCHED, windows, new)[1]
    config, causal = known[name]
    changed = replace(general_form(model), config=config)
    nats, best = losses(windows, changed, causal)  # [n, T]
    ids = greedy(changed, causal, new)
    by_position = [{"first": a, "last": b, "loss": _number(nats[:, a : b + 1].mean().item())} for a, b in bins(nats.shape[1])]
    row = {"name": name, "mean_loss": _number(nats.mean().item()), "by_position": by_position}
    own_best, own_ids, own = base or (best, ids, row)
    row |= {"argmax_kept": int(((best == own_best) & (best >= 0)).sum()), "positions": best.numel()}
    row |= {"text": None if ids is None else decode(ids, model), "same_tokens": _same(ids or [], own_ids or [])}
    row["breaks"] = breaks(row, own, ids)
    return row, (best, ids, row)


def breaks(row, own, ids):
    """One line of what is other than in the untouched model's row `own`: computed facts, no judgement."""
    if row is own:
        return "nothing"
    if row["mean_loss"] is None or own["mean_loss"] is None:
        return "the logits are no numbers"
    parts = [f"loss {_more(row['mean_loss'], own['mean_loss'])} in all"]
    for i in (0, -1):
        at = row["by_position"][i]
        parts[0] += f", {_more(at['loss'], own['by_position'][i]['loss'])} at positions {at['first']:,} to {at['last']:,}"
    parts.append(f"{row['positions'] - row['argmax_kept']:,} of {row['positions']:,} argmaxes are others")
    if ids is None:
        parts.append("no text")
    elif row["same_tokens"] == len(ids):
        parts.append(f"the same {len(ids)} tokens of text")
    else:
        period = cycle(ids)
        ends = f", and ends in a cycle of {period}" if period else ""
        parts.append(f"the text is another from token {row['same_tokens'] + 1} of {len(ids)}{ends}")
    return "; ".join(parts)


def cycle(ids):
    """The shortest period with which `ids` end, seen at least three times over; None without one."""
    for period in range(1, len(ids) // 3 + 1):
        tail = ids[-3 * period :]
        if tail == 3 * tail[:period]:
            return period
    return None


def run_all(model, tokens=None, new=NEW, progress=lambda: None):
    """`measure` of every ablation, the untouched model first; `progress` is called after each."""
    windows, base, rows = held_windows(model, tokens), None, []
    for name, _, _ in ablations(model):
        row, own = _measure(model, name, windows, new, base)
        base = base or own
        rows.append(row)
        progress()
    return rows


def _same(a, b):
    """How many ids two lists have in common from their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _number(x):
    """x, or None for NaN and infinity, which strict JSON has no words for."""
    return x if math.isfinite(x) else None


def _more(x, own):
    return "none" if x is None or own is None else f"{x - own:+.3f}"


# ----------------------------------------------------------------------------------------------------------------- the script


def options():
    """The script's argument parser."""
    parser = Parser(prog="ablations.py", description=__doc__.splitlines()[0]).add("model", "threads", "seed", "json")
    about = "positions of the held text to measure on, in whole windows; by default all"
    parser.add_argument("--tokens", type=whole_number(1), metavar="N", help=about)
    parser.add_argument("--new", type=whole_number(1, 1000), default=NEW, metavar="N", help="tokens to generate")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the loss by position: .svg, .png or .pdf")
    return parser


@command
def main(argv=None):
    """Measure every ablation of a model, print tables and texts."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    check_target(args.plot)
    model = load(args.model, seed=args.seed)
    windows, before = held_windows(model, args.tokens), decode(prompt(model, args.new)[0], model)
    names = [name for name, _, _ in ablations(model)]
    with progress_bar("run", len(names)) as bar:
        rows = run_all(model, args.tokens, args.new, bar.update)
    n, T = windows.shape[0], windows.shape[1] - 1
    value = {"model": args.model, "threads": args.threads, "seed": args.seed, "windows": n, "window": T, "new": args.new}
    value |= {"prompt": before, "rows": rows}
    if args.plot:
        plot_by_position(rows, args.plot)
    if args.json:
        print(dump_json(value), end="")
        return
    shown = [[r["name"], _loss(r["mean_loss"]), f"{r['argmax_kept']:,} of {r['positions']:,}", r["same_tokens"]] for r in rows]
    stretches = [
        [f"{b['first']:,} to {b['last']:,}", *(_loss(r["by_position"][i]["loss"]) for r in rows)]
        for i, b in enumerate(rows[0]["by_position"])
    ]
    lines = [
        f"{args.model}: {n} window(s) of {T:,} positions of a held text; losses in nats a token",
        "",
        table(["", "loss", "argmax kept", f"tokens kept, of {args.new}"], shown),
        "",
        "Loss by position:",
        "",
        table(["positions", *names], stretches),
        "",
        "Without the mask the answer stands in sight of the position that is asked for it: that loss is no measure of prediction.",
        "",
        f"What follows {json.dumps(before)}:",
        *(f"{r['name']}: {json.dumps(r['text'], ensure_ascii=False)}" for r in rows),
        "",
        "What breaks:",
        *(f"{r['name']}: {r['breaks']}" for r in rows),
    ]
    print("\n".join(lines + (["", f"plot: {args.plot}"] if args.plot else [])))


def _loss(x):
    return "none" if x is None else f"{x:.3f}"


if __name__ == "__main__":
    sys.exit(main())
