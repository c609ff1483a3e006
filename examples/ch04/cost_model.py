"""Chapter 4: what GPT-2 stores and multiplies, from its config alone, in closed form.

    python examples/ch04/cost_model.py
    python examples/ch04/cost_model.py --config gpt2-xl --context 16,1024
    python examples/ch04/cost_model.py --other-depth 96 --plot depth.svg

Letters: d model width, f feed-forward width, V vocabulary, L layers, h heads of width dh, T positions.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.config import GPT2Config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import PUBLISHED, load_config, require
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_figure, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, number_list, table, whole_number

CONTEXTS = (1, 16, 128, 512, 1024)

# ---------------------------------------------------------------------------------------------------------- the formulas


def parameter_count(config: GPT2Config) -> dict[str, int]:
    """{component: parameters, ..., "total"}, in closed form. Each number is one weight; a tied head is counted once.

    A layer has 4 d^2 + 4 d in attention, 2 d f + f + d in the feed-forward network, and 4 d in its two norms.
    """
    d, f, L, V = config.n_embd, config.inner_width, config.n_layer, config.vocab_size
    counts = {
        "token_embedding": V * d,
        "position_embedding": config.n_positions * d,
        "attention": L * (4 * d * d + 4 * d),
        "feed_forward": L * (2 * d * f + f + d),
        "norms": L * 4 * d + 2 * d,
        "output_projection": 0 if config.tie_word_embeddings else V * d,
    }
    return counts | {"total": sum(counts.values())}


def flops_per_token(config: GPT2Config, context: int) -> dict[str, int]:
    """{component: FLOPs, ..., "total"} of the matmuls for one output token that attends over `context` positions.

    A multiply-add is 2 FLOPs, so a matrix costs 2 per weight; q k and the sum over v cost 2 h dh = 2 d each for every position
    seen. Nothing is halved for the mask. Look-ups, norms, biases, softmax and GELU are not counted. The convention is that of
    Kaplan et al., "Scaling Laws for Neural Language Models" (2020), table 1, with the output projection counted too.
    Raises BadInput for a context outside 1 to n_positions.
    """
    if not 1 <= context <= config.n_positions:
        raise BadInput(f"context {context} is not within 1 to n_positions {config.n_positions}; give one that is")
    d, f, L = config.n_embd, config.inner_width, config.n_layer
    flops = {
        "attention_projections": L * 2 * 4 * d * d,
        "attention_scores_and_values": L * 4 * d * context,
        "feed_forward": L * 2 * 2 * d * f,
        "output_projection": 2 * d * config.vocab_size,
    }
    return flops | {"total": sum(flops.values())}


def flops_per_pass(config: GPT2Config, tokens: int, batch: int = 1, pairs: str = "full") -> dict[str, int]:
    """{component: FLOPs, ..., "total"} of one pass over [batch, tokens].

    pairs: "full" counts the whole T x T rectangle of query and key, which is what `forward` executes, masked or not; "causal"
    counts only the T (T + 1) / 2 visible ones, which is what the result needs. Raises BadInput like `flops_per_token`.
    """
    if pairs not in ("full", "causal"):
        raise BadInput(f"pairs is {pairs!r}; give full or causal")
    flops = {name: n * batch * tokens for name, n in flops_per_token(config, tokens).items() if name != "total"}
    if pairs == "causal":  # the mean number of visible positions is (T + 1) / 2
        flops["attention_scores_and_values"] = batch * config.n_layer * 4 * config.n_embd * tokens * (tokens + 1) // 2
    return flops | {"total": sum(flops.values())}


# -------------------------------------------------------------------------------------------------------- the measurements


def measure_counts(config=None, other_depth=48):
    """The parameters of a config, GPT-2's by default, by component, and of the same width at another depth.

    tensor_table_total: of chapter 2's table, which loading is checked against; two derivations of one number.
    """
    config = load_config("gpt2") if config is None else config
    d, f = config.n_embd, config.inner_width
    parts = parameter_count(config)
    total = parts.pop("total")
    shares = {name: 100 * n / total for name, n in parts.items()}
    deep, outside = (parameter_count(replace(config, n_layer=n))["total"] for n in (other_depth, 0))
    return {
        "components": [
            {"component": name.replace("_", " "), "parameters": n, "share_percent": shares[name]} for name, n in parts.items()
        ],
        **{f"{name}_share_percent": shares[name] for name in ("token_embedding", "attention", "feed_forward")},
        "blocks_share_percent": 100 * (total - outside) / total,
        "total": total,
        "tensor_table_total": sum(math.prod(s) for s in tensor_shapes(config).values()),
        "tensors": len(tensor_shapes(config)),
        "token_embedding": parts["token_embedding"],
        "position_embedding": parts["position_embedding"],
        "layers": config.n_layer,
        "one_layer": parameter_count(replace(config, n_layer=config.n_layer + 1))["total"] - total,
        "other_depth": other_depth,
        "other_depth_total": deep,
        "other_depth_ratio": deep / total,
        "feed_forward_share_of_layer_matrices_percent": 100 * 2 * d * f / (2 * d * f + 4 * d * d),
        "untied_total": parameter_count(replace(config, tie_word_embeddings=False))["total"],
        "without_positions": total - parts["position_embedding"],
        "family": [{"config": name, "parameters": parameter_count(load_config(name))["total"]} for name in PUBLISHED],
        "embedded_total": parameter_count(load_config())["total"],
    }


def measure_depth(config=None, other_depth=48):
    """The parameters of a config, GPT-2's by default, at its own width and depths up to `other_depth`: in all, in the layers, and
    in the embedding tables and the last norm, which no layer adds to."""
    config = load_config("gpt2") if config is None else config
    depths = sorted({1, config.n_layer, other_depth, *range(6, other_depth + 1, max(6, other_depth // 8))})
    totals = {n: parameter_count(replace(config, n_layer=n))["total"] for n in depths}
    outside = parameter_count(replace(config, n_layer=0))["total"]
    return {
        "width": config.n_embd,
        "layers": config.n_layer,
        "other_depth": other_depth,
        "outside_layers": outside,
        "depths": [{"layers": n, "parameters": total, "in_layers": total - outside} for n, total in totals.items()],
    }


def measure_flops(config=None, contexts=CONTEXTS):
    """The matmul FLOPs of a config, GPT-2's by default: of one token at each of `contexts`, and of a pass over as many tokens.

    from_context is the first of them that is more than one token. The last two values are of a pass of 64 tokens through the
    embedded model: what the formula says, and what PyTorch's own counter sees the program execute.
    """
    config = load_config("gpt2") if config is None else config
    per_token = {c: flops_per_token(config, c) for c in contexts}
    passes = []
    for tokens in contexts:
        full, causal = (flops_per_pass(config, tokens, pairs=pairs) for pairs in ("full", "causal"))
        passes.append(
            {
                "tokens": tokens,
                "full_gflop": full["total"] / 1e9,
                "causal_gflop": causal["total"] / 1e9,
                "attention_share_full_percent": 100 * _attention(full) / full["total"],
                "attention_share_causal_percent": 100 * _attention(causal) / causal["total"],
            }
        )
    first, last = next((c for c in contexts if c > 1), contexts[0]), contexts[-1]
    small = load_config()
    weights = {name: torch.zeros(shape) for name, shape in tensor_shapes(small).items()}
    with FlopCounterMode(display=False) as counter:
        gpt2.forward(torch.zeros(1, 64, dtype=torch.int64), weights, small)
    return {
        "contexts": [
            {"context": c, **parts, "output_share_percent": 100 * parts["output_projection"] / parts["total"]}
            for c, parts in per_token.items()
        ],
        "passes": [row for row in passes if row["tokens"] > 1] or passes,
        "output_projection_mflop": per_token[first]["output_projection"] / 1e6,
        "from_context": first,
        "from_gflop": per_token[first]["total"] / 1e9,
        "context_ratio": last / first,
        "rise_percent": 100 * (per_token[last]["total"] / per_token[first]["total"] - 1),
        "embedded_pass_of_64_by_formula": flops_per_pass(small, 64)["total"],
        "embedded_pass_of_64_counted": counter.get_total_flops(),
    }


def _attention(parts):
    return parts["attention_projections"] + parts["attention_scores_and_values"]


# ---------------------------------------------------------------------------------------------------- the tables, the figure


def report(values):
    """Text of {"counts": ..., "depth": ..., "flops": ...}, of which the second is drawn and not printed."""
    c, f = values["counts"], values["flops"]
    if c["tensor_table_total"] != c["total"]:
        raise AssertionError(f"the formula counts {c['total']:,} and the tensor table {c['tensor_table_total']:,}")
    rows = [[r["component"], f"{r['parameters']:,}", f"{r['share_percent']:.1f}%"] for r in c["components"]]
    rows.append(["total", f"{c['total']:,}", ""])
    names = [name for name in f["contexts"][0] if name not in ("context", "output_share_percent")]
    per_token = [[n.replace("_", " ").replace("attention sc", "sc"), *(f"{r[n]:,}" for r in f["contexts"])] for n in names]
    per_token.append(["output's share", *(f"{r['output_share_percent']:.1f}%" for r in f["contexts"])])
    passes = [
        ["GFLOP, full: what this program executes", *(f"{r['full_gflop']:.3f}" for r in f["passes"])],
        ["GFLOP, causal: visible pairs only", *(f"{r['causal_gflop']:.3f}" for r in f["passes"])],
        ["attention's share, full", *(f"{r['attention_share_full_percent']:.1f}%" for r in f["passes"])],
        ["attention's share, causal", *(f"{r['attention_share_causal_percent']:.1f}%" for r in f["passes"])],
    ]
    return "\n".join(
        [
            table(["component", "parameters", "share"], rows),
            "",
            f"The table of tensors that loading is checked against holds {c['tensor_table_total']:,} in {c['tensors']}: the same.",
            f"One layer holds {c['one_layer']:,}, its norms included. With {c['other_depth']} layers in place of {c['layers']} the "
            "model",
            f"has {c['other_depth_total']:,}, {c['other_depth_ratio']:.2f} times as many: the embedding tables do not grow.",
            f"Of a layer's matrices the feed-forward network holds {c['feed_forward_share_of_layer_matrices_percent']:.1f}%.",
            "",
            "FLOPs of the matmuls for one output token that attends over so many positions; 2 a multiply-add:",
            "",
            table(["context", *(f"{r['context']:,}" for r in f["contexts"])], per_token),
            "",
            "A whole pass over as many tokens; attention with its projections:",
            "",
            table(["tokens", *(f"{r['tokens']:,}" for r in f["passes"])], passes),
            "",
            f"From {f['from_context']:,} to {f['contexts'][-1]['context']:,} positions the context grows {f['context_ratio']:.3g} "
            f"times, and what a token costs rises by {f['rise_percent']:.1f}%.",
        ]
    )


def draw_depth(values, path):
    """Parameters against depth at one width, from what `measure_depth` returns."""
    figure, axes = new_figure()
    rows, outside = values["depths"], values["outside_layers"] / 1e6
    layers = [r["layers"] for r in rows]
    axes.plot(layers, [r["parameters"] / 1e6 for r in rows], label="all parameters", **style(0))
    axes.plot(layers, [r["in_layers"] / 1e6 for r in rows], label="in the layers", **style(1))
    axes.plot(layers, [outside] * len(rows), label="in the tables and\nthe last norm", **style(2))
    for r in rows:
        if r["layers"] in (values["layers"], values["other_depth"]):
            text, at = f"{r['layers']} layers:\n{r['parameters']:,}", (r["layers"], r["parameters"] / 1e6)
            axes.annotate(text, at, xytext=(-8, 14), textcoords="offset points", ha="right", arrowprops={"arrowstyle": "-"})
    axes.set(xlabel=f"layers, all of width {values['width']}", ylabel="parameters, 10^6", title="Parameters against depth")
    axes.set_ylim(0, 1.15 * max(r["parameters"] for r in rows) / 1e6)
    label_ends(axes)
    write_figure(figure, path)


CONFIG_ONLY = dict(model="gpt2 (its config; no weights)", loads=False, movable=False)
EXPERIMENTS = (
    Experiment(
        "ch04.counts",
        "exact",
        "The closed formula counts every parameter of GPT-2, and the table that loading is checked against holds the same number.",
        "Counts what is stored, not what is useful; says nothing of memory beyond the weights.",
        measure_counts,
        headline=("total", "int"),
        **CONFIG_ONLY,
    ),
    Experiment(
        "ch04.depth",
        "exact",
        "At one width parameters grow by the same number with every layer, from what the embedding tables and the last norm hold.",
        "GPT-2's width, and depths that nobody has trained there; says nothing of what depth is good for.",
        measure_depth,
        headline=("depths[layers=48].parameters", "int"),
        figures={"depth.svg": draw_depth},
        **CONFIG_ONLY,
    ),
    Experiment(
        "ch04.flops",
        "exact",
        "Matmul FLOPs follow from the config, 2 per weight and token and 4 L T h dh for attention, and PyTorch's counter agrees.",
        "Matrix products only: softmax, GELU, norms, look-ups and additions are left out, and FLOPs are not time.",
        measure_flops,
        headline=("embedded_pass_of_64_counted", "int"),
        **CONFIG_ONLY,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cost_model.py", description=__doc__, keys=__file__).add("plot", "json")
    about = "a published shape, embedded, a folder, or a config.json"
    parser.add_argument("--config", default="gpt2", metavar="NAME or FILE", help=about)
    parser.add_argument("--other-depth", type=whole_number(1, 1000), default=48, metavar="L", help="layers to compare with")
    what = "positions seen; by default 1,16,128,512,1024, as far as the model reaches"
    parser.add_argument("--context", type=number_list(1), default=None, metavar="N,N", help=what)
    return parser


@command
def main(argv=None):
    """Print what a config stores and what it multiplies."""
    args = options().parse_args(argv)
    check_target(args.plot)
    config = load_config(args.config)
    require(config, "gpt2", "chapter 4's cost model")
    contexts = sorted(set(args.context or (min(c, config.n_positions) for c in CONTEXTS)))
    values = {"counts": measure_counts(config, args.other_depth), "depth": measure_depth(config, args.other_depth)}
    values["flops"] = measure_flops(config, contexts)
    answer(args, values, report, lambda values, path: draw_depth(values["depth"], path))


if __name__ == "__main__":
    sys.exit(main())
