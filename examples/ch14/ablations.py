"""Chapter 14: take one thing out of a trained model, and look at what breaks.

    python examples/ch14/ablations.py                               # of the embedded model, on a play that it never saw
    python examples/ch14/ablations.py --model smollm2 --plot a.svg  # of a real Llama, on one long text: a few minutes
    python examples/ch14/ablations.py --only "no residual"

A model is trained with everything in place, so what is taken out here is missed, and how much says what the trained weights had
come to count on. It does not say how well a model would do that was trained without it. Each ablation is one field of `Config`
changed (or `causal`, which is none of them), so that the pass differs in that and in nothing else.
"""

import json
import math
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.config import general
from examples.ch02.model import general_form, load_for
from examples.ch03.tokens import decode
from examples.ch14.held_text import bins, cycle, greedy, held_windows, losses, prompt
from examples.lab.experiment import Experiment
from examples.lab.figure import BLACK, PAGE, SMALL, check_target, new_panels, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, progress_bar, table, whole_number

UNTOUCHED, UNMASKED = "as it is", "no causal mask"
NEW = 30  # tokens generated


# ----------------------------------------------------------------------------------------------------------- what is changed


def ablations(model):
    """[(name, config, causal)] of what the model's family has to lose, the untouched model first.

    The theta of a rope is made ten times smaller and ten times larger. The other norm keeps the gains: RMS norm is layer norm
    that neither centres nor has a bias, so the biases of the family's norms go too. Left out is what would change nothing (a
    family that has no positions, say, or DeepSeek's latent attention, which turns whatever `positions` says), and the other norm
    for gains that are stored as what they differ from 1, which only RMS norm reads so.
    """
    config = general(model.config)
    found = [(UNTOUCHED, config, True), (UNMASKED, config, False)]
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


def chosen(model, names=None):
    """Those of `ablations` that `names` holds, all by default, and the untouched model before them; raises BadInput for another."""
    every = ablations(model)
    known = [name for name, _, _ in every]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise BadInput(f"no ablation {unknown[0]!r} of this model; it has {', '.join(known)}")
    return [a for a in every if not names or a[0] in (UNTOUCHED, *names)]


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(model, tokens=None, new=NEW, names=None, progress=lambda: None):
    """What each ablation does on the held text: `rows`, the untouched model's first, and how they were measured.

    loss: nats per token over all `positions`, and by_position in each of `stretches`, [{first, last, loss}], of which the first has
    `stretch` positions. more: by how much it is above the untouched model's; first_more and last_more, of the first stretch and the
    last. argmax_kept: at how many positions the most probable token is the untouched model's. text: what `greedy` goes on with, and
    writes, its start on one line; same_tokens: how many of its first tokens are the untouched model's; cycle: the period in which
    it ends. A loss that is no number is None, and so is a text for want of logits. even_guess: the loss of guessing evenly.

    tokens: positions of the held text at most, all by default. new: tokens of text. names: some of the ablations.
    """
    before, windows = prompt(model, new), held_windows(model, tokens)
    rows, own = [], None
    for name, config, causal in chosen(model, names):
        changed = replace(general_form(model), config=config)
        nats, best = losses(windows, changed, causal)  # each [n, T]
        ids = greedy(changed, causal, new)
        mine = {
            "name": name,
            "loss": _number(nats.mean()),
            "by_position": [{"first": a, "last": b, "loss": _number(nats[:, a : b + 1].mean())} for a, b in bins(nats.shape[1])],
        }
        own = own or (mine, best, ids)
        right = own[0]
        kept = int(((best == own[1]) & (best >= 0)).sum())
        text = None if ids is None else decode(ids, model)
        rows.append(
            mine
            | {
                "more": _more(mine["loss"], right["loss"]),
                "first_more": _more(mine["by_position"][0]["loss"], right["by_position"][0]["loss"]),
                "last_more": _more(mine["by_position"][-1]["loss"], right["by_position"][-1]["loss"]),
                "argmax_kept": kept,
                "argmax_kept_percent": 100 * kept / best.numel(),
                "same_tokens": _same(ids or [], own[2] or []),
                "cycle": cycle(ids or []),
                "text": text,
                "writes": None if text is None else _short(text),
            }
        )
        progress()
    stretches = rows[0]["by_position"]
    return {
        "windows": windows.shape[0],
        "window": windows.shape[1] - 1,
        "positions": windows.shape[0] * (windows.shape[1] - 1),
        "stretches": len(stretches),
        "stretch": stretches[0]["last"] + 1,
        "prompt": decode(before[0], model),
        "new": new,
        "even_guess": math.log(model.config.vocab_size),
        "rows": rows,
    }


def _same(a, b):
    """How many ids two lists have in common from their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _number(x):
    """x as a float, or None for NaN and infinity, which strict JSON has no words for."""
    return x.item() if x.isfinite() else None


def _more(loss, right):
    return None if loss is None or right is None else loss - right


def _short(text, most=60):
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most].rstrip() + " ..."


# ----------------------------------------------------------------------------------------------------- the table, the figure


def breaks(row, found):
    """One line of what is other in a row than in the untouched model's, of what `measure` found: facts, no judgement."""
    if row["name"] == UNTOUCHED:
        return "nothing"
    if row["more"] is None:
        return "the logits are no numbers"
    first, last = row["by_position"][0], row["by_position"][-1]
    parts = [
        f"loss {_signed(row['more'])} in all, {_signed(row['first_more'])} at positions {first['first']:,} to {first['last']:,}, "
        f"{_signed(row['last_more'])} at positions {last['first']:,} to {last['last']:,}",
        f"{found['positions'] - row['argmax_kept']:,} of {found['positions']:,} argmaxes are others",
    ]
    if row["text"] is None:
        parts.append("no text")
    elif row["same_tokens"] == found["new"]:
        parts.append(f"the same {found['new']} tokens of text")
    else:
        ends = f", and ends in a cycle of {row['cycle']}" if row["cycle"] else ""
        parts.append(f"the text is another from token {row['same_tokens'] + 1} of {found['new']}{ends}")
    return "; ".join(parts)


def report(values):
    """Text of {"ablations": ...}."""
    found = values["ablations"]
    rows = found["rows"]
    kept = [[r["name"], _loss(r["loss"]), f"{r['argmax_kept']:,} of {found['positions']:,}", r["same_tokens"]] for r in rows]
    by_position = [[r["name"], *(_loss(b["loss"]) for b in r["by_position"])] for r in rows]
    fair = sorted((r for r in rows if r["name"] not in (UNTOUCHED, UNMASKED) and r["more"] is not None), key=lambda r: r["more"])
    end = (
        "Without the mask the answer stands in sight of the position that is asked for it:\nthat loss is no measure of prediction."
    )
    if len(fair) > 1:
        end += (
            f" Of the others {fair[-1]['name']!r} costs most, "
            f"{_signed(fair[-1]['more'])} nats\na token, and {fair[0]['name']!r} least, {_signed(fair[0]['more'])}."
        )
    return "\n".join(
        [
            f"{counted(found['windows'], 'window')} of {found['window']:,} positions of a held text; losses in nats per token",
            "",
            table(["", "loss", "argmax kept", f"tokens kept, of {found['new']}"], kept),
            "",
            table(["loss from position", *(f"{b['first']:,}" for b in rows[0]["by_position"])], by_position),
            "",
            f"What follows {json.dumps(found['prompt'])}:",
            *(_wrapped(f"{r['name']}: {json.dumps(r['text'], ensure_ascii=False)}") for r in rows),
            "",
            "What breaks:",
            *(_wrapped(f"{r['name']}: {breaks(r, found)}") for r in rows),
            "",
            end,
        ]
    )


def _wrapped(line):
    return textwrap.fill(line, 100, subsequent_indent="  ")


def _loss(x):
    return "none" if x is None else f"{x:.3f}"


def _signed(x):
    return "none" if x is None else f"{x:+.3f}"


def draw(values, path):
    """Loss by position, from what `measure` returns: the untouched model's in the first panel, and in a panel for each ablation how
    much it adds, all on one scale. Each stretch is drawn at its middle; one without a loss is left out."""
    own, *rows = values["rows"]
    lines = math.ceil((len(rows) + 1) / 3)
    figure, panels = new_panels(lines, 3, (PAGE, 0.7 + 1.75 * lines), sharex=True)
    places = [(b["first"] + b["last"]) / 2 for b in own["by_position"]]
    none = float("nan")  # of which matplotlib draws nothing
    losses_of = {row["name"]: [none if b["loss"] is None else b["loss"] for b in row["by_position"]] for row in values["rows"]}
    panels[0].plot(places, losses_of[own["name"]], **style(4) | {"linestyle": "-"})
    panels[0].set_ylim(0, 1.15 * max((x for x in losses_of[own["name"]] if x == x), default=1))
    panels[0].set_title(f"{own['name']}: the loss", fontsize=10)
    for axes, row in zip(panels[1:], rows, strict=False):
        more = [x - y for x, y in zip(losses_of[row["name"]], losses_of[own["name"]], strict=True)]
        axes.plot(places, more, **style(1) | {"linestyle": "-"})
        axes.axhline(0, color=BLACK, linewidth=1)
        axes.sharey(panels[1])
        axes.set_title(textwrap.fill(row["name"], 24), fontsize=10)
    panels[1].set_yscale("symlog", linthresh=0.1)
    panels[1].margins(y=0.1)
    plain_ticks(panels[0].xaxis)
    plain_ticks(panels[1].yaxis)
    for axes in panels[len(rows) + 1 :]:
        axes.set_axis_off()
    for axes in panels[: len(rows) + 1]:
        axes.tick_params(labelbottom=True)
    for axes in panels[max(0, len(rows) - 2) : len(rows) + 1]:
        axes.set_xlabel("position")
    figure.suptitle("One thing changed: what it adds to the loss, by position", x=0.01, ha="left")
    figure.supylabel("loss, nats per token", fontsize=SMALL)
    write_figure(figure, path)


DIGITS = {"loss": 4, "even_guess": 4}
EXPERIMENTS = (
    Experiment(
        "ch14.ablations",
        "observation",
        "Taking the residual out of the embedded model costs the most loss; RMS norm in place of layer norm costs the least.",
        "One trained model on the start of its validation play; a model trained without that thing would do otherwise.",
        measure,
        headline=("rows[name=no_residual].loss", "f2"),
        digits=DIGITS,
        seconds=10,
    ),
    Experiment(
        "ch14.ablations-llama",
        "observation",
        "Taking the residual out of SmolLM2 costs the most loss; layer norm for RMS norm and a wrong theta cost the least.",
        "One trained model on one essay; a model trained without that thing would do otherwise.",
        measure,
        headline=("rows[name=no_residual].loss", "f2"),
        model="smollm2",
        digits=DIGITS,
        seconds=150,
        figures={"ablations.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="ablations.py", description=__doc__, keys=__file__).add("model", "threads", "seed", "plot", "json")
    about = "positions of the held text to measure on, in whole windows; by default all"
    parser.add_argument("--tokens", type=whole_number(1), metavar="N", help=about)
    parser.add_argument("--new", type=whole_number(1, 1000), default=NEW, metavar="N", help="tokens to generate")
    parser.add_argument("--only", action="append", metavar="NAME", help="this ablation, as the table names it; may stand twice")
    return parser


@command
def main(argv=None):
    """Measure the ablations of a model, print tables and texts."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    with progress_bar("run", len(chosen(model, args.only))) as bar:
        values = {"ablations": measure(model, args.tokens, args.new, args.only, bar.update)}
    answer(args, values, lambda values: f"{args.model}: {report(values)}", lambda values, path: draw(values["ablations"], path))


if __name__ == "__main__":
    sys.exit(main())
