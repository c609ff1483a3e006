"""Chapter 4: what the causal mask does: who hears whom, with the mask and without it.

    python examples/ch04/causal_mask.py
    python examples/ch04/causal_mask.py --model smollm2 --prompt "The cat sat on the mat"
    python examples/ch04/causal_mask.py --plot influence.svg

One id of a text is changed, and the logits before and after the change are compared, position by position. Both runs have one
shape, since another length, or another place in a batch, may make the matrix library sum in another order.
Shapes: B batch, T positions, V vocabulary.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import program
from examples.ch02.model import DTYPES, load_for, require, run
from examples.ch03.tokens import default_ids, ids_for, random_ids, shown
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.gpt2_from_scratch import Trace, causal_mask, no_trace
from examples.lab.experiment import Experiment, worst
from examples.lab.figure import PAGE, check_target, new_figure, plain_ticks, write_figure
from examples.lab.script import Parser, answer, command, progress_bar, table

TOKENS = 10  # of the text that is changed, where none is given
MOST = 12  # positions that the table of influence has room for


def change_last(model, ids, **options):
    """Change of the logits at each position when only the last id of `ids` [1, T] changes: ([T] largest, [T] argmax moved)."""
    other = ids.clone()
    other[0, -1] = _another(ids[0, -1].item(), model.config)
    before, after = run(model, ids, **options)[0], run(model, other, **options)[0]  # [T, V]
    moved = before.argmax(-1) != after.argmax(-1)
    return (before - after).abs().amax(-1).tolist(), moved.tolist()


def influence(model, ids, progress=lambda: None, forward=run, **options):
    """T rows of T: entry [i][j] is the largest change of the logits at position i when only the id at position j changes.

    A causal model has exact zeros where j > i. Each changed text runs by itself in the same shape as the original, since a
    row's place within a batch may choose another order of summation. forward: another pass than `run`, called alike.
    """
    before = forward(model, ids, **options)[0]  # [T, V]
    columns = []
    for j in range(ids.shape[1]):
        other = ids.clone()
        other[0, j] = _another(ids[0, j].item(), model.config)
        columns.append((before - forward(model, other, **options)[0]).abs().amax(-1))  # [T]
        progress()
    return torch.stack(columns, dim=1).tolist()


def _another(id, config):
    """An id unlike `id`; the same for the same one."""
    return (id + config.vocab_size // 2) % config.vocab_size if config.vocab_size > 1 else id


def above_diagonal(matrix):
    """The largest entry [i][j] with j > i; 0.0 of a matrix of one row."""
    return worst(x for i, row in enumerate(matrix) for x in row[i + 1 :])


# The first layer's matrices that make queries, keys and values: of a GPT-2, a Llama, and of latent attention.
FIRST_QKV = re.compile(r"h\.0\.attn\.c_attn\.weight|model\.layers\.0\.self_attn\.([qkv]|q_b|kv_b)_proj\.weight")


def sharpened(model, factor=300.0):
    """`model` with the first layer's q, k and v weights times `factor`: visible scores far below -1e4 become common.

    In float32 at least, since float16 holds no such scores.
    """
    if model.dtype.itemsize < 4:
        model = model.to(dtype=torch.float32)
    names = [name for name in model.weights if FIRST_QKV.fullmatch(name)]
    return replace(model, weights=model.weights | {name: model.weights[name] * factor for name in names})


def masked_with_minus_1e4(model, ids):
    """Logits [1, T, V] with the mask that old programs had: a hidden score becomes -1e4. It is here to be shown wrong."""
    T, (weights, config) = ids.shape[1], (model.weights, model.config)
    mask = causal_mask(T, T, model.device).clamp(min=-1e4)  # [T, T]
    x = program(model).pass_over(ids, weights, config, torch.arange(T, device=model.device), mask)  # [1, T, d]
    return program(model).unembed(x, weights, config)


# --------------------------------------------------------------------------------------------------------- the measurements


def measure(model, ids=None, dtypes=("float64", "bfloat16", "float16"), progress=lambda: None):
    """With the mask: what changes before a position when its id changes, on `ids` [1, T], in the model's dtype and in `dtypes`.

    Three ways to ask: the last id alone; every id in turn, the largest change above the diagonal; and the same with sharpened
    weights. All are exactly 0 in a causal model.
    """
    ids = default_ids(model, TOKENS) if ids is None else ids
    change, moved = change_last(model, ids)
    sharp = influence(sharpened(model), ids, progress)
    others = {name: influence(model.to(dtype=DTYPES[name]), ids, progress) for name in dtypes}
    return {
        "tokens": ids.shape[1],
        "earlier_positions": ids.shape[1] - 1,
        "largest_earlier_change": worst(change[:-1]),
        "earlier_predictions_rewritten": sum(moved[:-1]),
        "influence_above_diagonal": above_diagonal(influence(model, ids, progress)),
        "sharpened_above_diagonal": above_diagonal(sharp),
        **{f"{name}_above_diagonal": above_diagonal(found) for name, found in others.items()},
    }


def measure_off(model, ids=None, progress=lambda: None):
    """Without the mask, beside with it: the change of the logits at each position of `ids` [1, T] when the last id changes.

    influence: T rows of T, with the mask. minus_1e4_sharpened_above_diagonal: what leaks through a mask of -1e4 where visible
    scores fall below that.
    """
    ids = default_ids(model, TOKENS) if ids is None else ids
    on, _ = change_last(model, ids)
    off, moved = change_last(model, ids, causal=False)
    earlier = off[:-1]
    leaks = influence(sharpened(model), ids, progress, masked_with_minus_1e4)
    return {
        "tokens": ids.shape[1],
        "positions": [{"position": i, "mask_on": a, "mask_off": b} for i, (a, b) in enumerate(zip(on, off, strict=True))],
        "smallest_earlier_change": -worst(-x for x in earlier) if earlier else None,
        "largest_earlier_change": worst(earlier) if earlier else None,
        "change_at_last_with_mask": on[-1],
        "change_at_last_without_mask": off[-1],
        "earlier_predictions_rewritten": sum(moved[:-1]),
        "influence": influence(model, ids, progress),
        "minus_1e4_sharpened_above_diagonal": above_diagonal(leaks),
    }


def measure_parts(model, seed=0):
    """Which parts, run alone, give a position the same bits whatever its neighbours are: {part_keeps_the_bits: True or False}.

    Two inputs of one shape share one position and differ at all others, so bits can be compared. The embedding is told by the
    trace of a pass, layer norm, feed-forward network and attention (masked, in the first layer) by themselves. Of a GPT-2 only;
    raises BadInput for another.
    """
    require(model.config, "gpt2", "this look at single parts")
    config, weights, at = model.config, model.weights, 4
    ids, other = (random_ids(model, 9, seed=seed + i) for i in (0, 1))
    other[0, at] = ids[0, at]
    kept = Trace("embedding"), Trace("embedding")
    for one, trace in zip((ids, other), kept, strict=True):
        run(model, one, trace=trace)
    x, y = (trace["embedding", None] for trace in kept)  # each [1, T, d], the same at one position
    mask = causal_mask(9, 9, x.device)
    parts = {
        "embedding": lambda x: x,
        "layer_norm": lambda x: gpt2.layer_norm(x, weights, "h.0.ln_1", config),
        "feed_forward": lambda x: gpt2.mlp(x, weights, config, 0, no_trace),
        "attention": lambda x: gpt2.attention(x, weights, config, 0, mask, no_trace),
    }
    return {f"{name}_keeps_the_bits": torch.equal(part(x)[0, at], part(y)[0, at]) for name, part in parts.items()}


# ----------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"mask": ..., "mask-off": ...}."""
    on, off = values["mask"], values["mask-off"]
    changes = [[r["position"], f"{r['mask_on']:.4f}" if r["mask_on"] else "0", f"{r['mask_off']:.4f}"] for r in off["positions"]]
    influence = [[i, *(f"{x:.2f}" if x else "0" for x in row[:MOST])] for i, row in enumerate(off["influence"][:MOST])]
    cut = [] if off["tokens"] <= MOST else ["", f"These are the first {MOST} of {off['tokens']} positions; --json has them all."]
    above = worst([on["influence_above_diagonal"], on["sharpened_above_diagonal"]])
    end = "With the mask no position hears a later one: above the diagonal every change is exactly 0, here"
    end = end if above == 0 else f"This program is NOT causal: a position hears a later one, by as much as {above:.3g}, here"
    return "\n".join(
        [
            "Only the last id changed; the largest change of a logit at each position:",
            "",
            table(["position", "mask on", "mask off"], changes),
            "",
            f"Most probable tokens rewritten at the {on['earlier_positions']} earlier positions: "
            f"{on['earlier_predictions_rewritten']} with the mask, {off['earlier_predictions_rewritten']} without.",
            "",
            "With the mask, each id in turn is changed (columns); the largest change of a logit (rows):",
            "",
            table(["", *range(len(influence))], influence),
            *cut,
            "",
            "With the first layer's q, k and v weights times 300, so that low scores occur, and a mask of -1e4",
            "in place of minus infinity, the largest change above the diagonal is "
            f"{off['minus_1e4_sharpened_above_diagonal']:.3g}: such a mask leaks",
            "where all that a position may see scores below -1e4.",
            "",
            end,
            "and with those sharpened weights.",
        ]
    )


def draw(values, path):
    """Who hears whom, from what `measure_off` returns: rows are positions of the logits, columns the token that changes."""
    matrix = values["influence"]
    figure, axes = new_figure((PAGE, 5.6))
    from matplotlib.colors import LogNorm  # after `new_figure`, which imports matplotlib whatever MPLBACKEND says

    axes.grid(visible=False)
    seen = [x for row in matrix for x in row if x > 0] or [1.0]  # of a model that hears nothing, a white square
    few = len(matrix) <= 16  # else there is no room for numbers
    shown = [[x if x > 0 else float("nan") for x in row] for row in matrix]
    image = axes.imshow(shown, cmap="Blues", norm=LogNorm(min(seen) / 3, max(seen)))
    for i, row in enumerate(matrix if few else ()):
        for j, x in enumerate(row):
            dark = x > (min(seen) * max(seen)) ** 0.5 * 1.7
            axes.text(j, i, f"{x:.1f}" if x else "0", ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(0, len(matrix), 1 if few else len(matrix) // 8))
    axes.set_yticks(range(0, len(matrix), 1 if few else len(matrix) // 8))
    axes.set(xlabel="position of the token that changes", ylabel="position of the logits", title="Influence, with the mask")
    bar = figure.colorbar(image, label="largest change of a logit")
    plain_ticks(bar.ax.yaxis)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch04.mixing",
        "exact",
        "Embedding, layer norm and feed-forward network give a position the same bits whatever its neighbours; attention does not.",
        "Inputs of one shape; another shape may sum in another order.",
        measure_parts,
    ),
    Experiment(
        "ch04.mask",
        "exact",
        "With the mask, changing a token changes nothing before it: the logits there are bit for bit the same.",
        "One text of ten tokens on a CPU; runs of one shape, since another shape may sum in another order.",
        measure,
        headline=("influence_above_diagonal", "f1"),
    ),
    Experiment(
        "ch04.mask-off",
        "observation",
        "Without the mask, changing the last token changes the logits at every earlier position.",
        "One text; how much changes depends on it and the model. A mask of -1e4 is seen to leak only on sharpened weights.",
        measure_off,
        headline=("smallest_earlier_change", "g3"),
        figures={"influence.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="causal_mask.py", description=__doc__, keys=__file__)
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print who hears whom."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    ids = ids_for(args, model, TOKENS)
    with progress_bar("pass", 4 * ids.shape[1]) as bar:
        values = {"mask": measure(model, ids, (), bar.update), "mask-off": measure_off(model, ids, bar.update)}
    head = f"{args.model}: {shown(ids, model)}, {ids.shape[1]} tokens\n\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["mask-off"], path))


if __name__ == "__main__":
    sys.exit(main())
