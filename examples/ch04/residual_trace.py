"""Chapter 4: how large the numbers in the residual stream are, layer by layer, and what each sublayer adds to it.

python examples/ch04/residual_trace.py
python examples/ch04/residual_trace.py --model smollm2 --plot residual.svg
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.model import load_for, run
from examples.ch03.tokens import default_ids, encode, ids_for, random_ids, shown
from examples.ch04.gpt2_from_scratch import Trace
from examples.lab.experiment import Experiment, relative, worst_row
from examples.lab.figure import check_target, label_ends, new_figure, plain_ticks, style, write_figure
from examples.lab.script import Parser, answer, command, table

TOKENS = 17  # of the text, where none is given
OTHERS = (  # five more texts for the residual stream, of other kinds and lengths
    "If music be the food of love, play on; give me excess of it",
    "HAMLET:\nAlas, poor Yorick! I knew him, Horatio: a fellow of infinite jest",
    "The committee will meet again on Tuesday to discuss the new budget.",
    "for i in range(10): print(i * i)",
    "a a a a a a a a a a a a",
)


def residual_statistics(model, ids):
    """The stream after the embedding and after each layer, and what each sublayer added: a list of one dict per layer.

    `layer` 0 is the embedding, i the stream after the i-th layer. rms is over all positions, rms_without_first leaves position
    0 out (None at T = 1). The norms of contributions are L2 over the whole [T, d]. Computed in float64 from the traced tensors.
    """
    kept = Trace()
    run(model, ids, trace=kept)
    rows = [_stream(kept["embedding", None], 0)]
    for layer in range(model.config.n_layer):
        row = _stream(kept["residual", layer], layer + 1)
        row["attention_norm"] = kept["attention", layer].double().norm().item()
        row["mlp_norm"] = kept["mlp", layer].double().norm().item()
        rows.append(row)
    return rows


def _stream(x, layer):
    x = x[0].double()  # [T, d]
    flat = x.abs().flatten()
    position, dimension = divmod(int(flat.argmax()), x.shape[1])
    median = flat.median().item()
    return {
        "layer": layer,
        "largest": flat.max().item(),
        "position": position,
        "dimension": dimension,
        "rms": x.square().mean().sqrt().item(),
        "rms_without_first": x[1:].square().mean().sqrt().item() if len(x) > 1 else None,
        "largest_over_median": flat.max().item() / median if median > 0 else None,
    }


# --------------------------------------------------------------------------------------------------------- the measurements


def measure(model, ids=None):
    """The stream of one pass on `ids` [1, T], layer by layer, and what stands out in it.

    layers: as `residual_statistics` has them; shown: those that a table has room for. top: the layer whose stream holds the largest
    value of all, before_top the one before it, last the last. first_massive_layer: after which the largest value is more than 1,000
    times the median, if one. written_by_feed_forward_of_layer: whose feed-forward network added most, `its_norm`.
    """
    ids = default_ids(model, TOKENS) if ids is None else ids
    rows = residual_statistics(model, ids)
    top, written = worst_row(rows, "largest"), worst_row(rows[1:], "mlp_norm")
    ratios = [r["largest_over_median"] for r in rows if r["largest_over_median"] is not None]
    return {
        "tokens": ids.shape[1],
        "layers": rows,
        "shown": _shown(rows),
        "rms_growth": rows[-1]["rms"] / rows[0]["rms"] if rows[0]["rms"] else None,
        "largest_growth": rows[-1]["largest"] / rows[0]["largest"] if rows[0]["largest"] else None,
        "largest_over_median_max": max(ratios, default=None),
        "dimensions_of_the_largest": len({r["dimension"] for r in rows[1:]}),
        "top": top,
        "before_top": rows[max(0, top["layer"] - 1)],
        "last": rows[-1],
        "first_massive_layer": next((r["layer"] for r in rows if (r["largest_over_median"] or 0) > 1000), None),
        "written_by_feed_forward_of_layer": written["layer"],
        "its_norm": written["mlp_norm"],
    }


def _shown(rows, most=12):
    """Rows for a table: all of them, or of many the first three, the last three, every fourth, and those up to the largest step."""
    if len(rows) <= most:
        return rows
    step = max(range(1, len(rows)), key=lambda i: relative(rows[i]["largest"], rows[i - 1]["largest"]))
    last = len(rows) - 1
    return [r for i, r in enumerate(rows) if i < 3 or i > last - 3 or i % 4 == 0 or step - 2 <= i <= step]


def measure_others(model, texts=OTHERS, seed=0):
    """Where the largest value stands, of the last stream and, as top, of all streams, for each of `texts`.

    They are cut to what the model takes. A model without a tokenizer takes random ids in place of each text.
    """
    rows, full = [], model.config.n_positions
    for i, text in enumerate(texts):
        ids = encode(text, model)[:, :full] if model.tokenizer else random_ids(model, min(TOKENS, full), seed=seed + i)
        found = residual_statistics(model, ids)
        last, top = found[-1], worst_row(found, "largest")
        rows.append(
            {
                "text": text if model.tokenizer else f"random ids {i}",
                "tokens": ids.shape[1],
                **{k: last[k] for k in ("largest", "position", "dimension", "largest_over_median")},
                **{f"top_{k}": top[k] for k in ("layer", "largest", "position", "dimension", "largest_over_median")},
            }
        )
    return {
        "prompts": rows,
        "at_position_0": sum(r["position"] == 0 for r in rows),
        "different_positions": len({r["position"] for r in rows}),
        "different_dimensions": len({r["dimension"] for r in rows}),
        "top_at_position_0": sum(r["top_position"] == 0 for r in rows),
        "top_dimensions": sorted({r["top_dimension"] for r in rows}),
        "different_top_dimensions": len({r["top_dimension"] for r in rows}),
    }


# ----------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"residual": ..., "residual-others": ...}; the second may be left out."""
    found = values["residual"]

    def number(x, form=".2f"):
        return "n/a" if x is None else f"{x:{form}}"

    lines = [
        [
            r["layer"] or "embedding",
            f"{r['largest']:.2f}",
            r["position"],
            r["dimension"],
            number(r["rms"], ".3f"),
            number(r["rms_without_first"], ".3f"),
            number(r["largest_over_median"], ".1f"),
            number(r.get("attention_norm")),
            number(r.get("mlp_norm")),
        ]
        for r in found["layers"]
    ]
    heads = ["layer", "largest", "position", "dimension", "RMS", "RMS but 0", "/ median", "+ attn", "+ mlp"]
    top = found["top"]
    parts = [
        table(heads, lines),
        "",
        "The stream after each layer. RMS but 0 leaves position 0 out; / median is the largest over the",
        "median; + attn and + mlp are the L2 norms, over all positions, of what the sublayers have added.",
    ]
    if "residual-others" in values:
        rows = values["residual-others"]["prompts"]
        shown = [
            [" ".join(r["text"].split())[:40], r["tokens"], f"{r['largest']:.2f}", r["position"], r["dimension"]] for r in rows
        ]
        parts += ["", table(["other texts, the last stream", "tokens", "largest", "position", "dimension"], shown)]
    where = f"after layer {top['layer']}" if top["layer"] else "in the embedding"
    end = [
        f"The largest value of all, {top['largest']:.2f}, stands {where}, at position {top['position']}, "
        f"dimension {top['dimension']}:",
        f"{number(top['largest_over_median'], '.1f')} times the median there.",
    ]
    return "\n".join([*parts, "", *end])


def draw(values, path):
    """The stream's growth by layer, from what `measure` returns: largest value, RMS, RMS without position 0."""
    rows = values["layers"]
    figure, axes = new_figure()
    layers = [r["layer"] for r in rows]
    lines = [("largest", "largest absolute value"), ("rms", "RMS, all positions"), ("rms_without_first", "RMS without position 0")]
    for i, (key, label) in enumerate(lines):
        look = style(i) | ({"markersize": 7.5, "markerfacecolor": "none"} if key == "rms" else {})  # seen where the next lies on it
        if rows[0][key] is not None:
            axes.semilogy(layers, [r[key] for r in rows], label=label, **look)
    axes.set(xlabel="after layer (0: the embedding)", ylabel="value in the residual stream", title="Growth of the residual stream")
    axes.set_xticks(layers if len(layers) <= 16 else layers[:: max(1, len(layers) // 10)])
    plain_ticks(axes.yaxis)
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch04.residual",
        "observation",
        "The values in the residual stream grow with depth.",
        "One text on one small model; a massive activation of the source text's kind is looked for, not assumed.",
        measure,
        headline=("rms_growth", "g2"),
        digits={"rms_growth": 2, "largest_growth": 2},
        figures={"residual.svg": draw},
    ),
    Experiment(
        "ch04.residual-others",
        "observation",
        "The last stream's largest value has no fixed place: in five other texts it stands at five positions, in two dimensions.",
        "Five texts; no claim about how general it is.",
        measure_others,
        headline=("different_positions", "int"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="residual_trace.py", description=__doc__, keys=__file__)
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print the stream, layer by layer."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    ids = ids_for(args, model, TOKENS)
    values = {"residual": measure(model, ids)} | ({} if args.prompt else {"residual-others": measure_others(model, seed=args.seed)})
    head = f"{args.model}: {shown(ids, model)}, {ids.shape[1]} tokens\n\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["residual"], path))


if __name__ == "__main__":
    sys.exit(main())
