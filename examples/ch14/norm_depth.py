"""Chapter 14: what depth does to the stream and to gradients, by where the norms stand.

    python examples/ch14/norm_depth.py
    python examples/ch14/norm_depth.py --layers 2,32 --seeds 3 --plot depth.svg

A pre-norm model normalises what a sublayer reads, a post-norm one the sum in the stream after each sublayer, and a third kind
("both") what a sublayer reads and what it adds. The models here are random and small. Every matrix keeps the size of a vector, so
that what grows or shrinks with depth does so because of the norms; `norm_training.py` trains such models.
"""

import statistics
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import Config
from examples.ch02.families import VARIANTS
from examples.ch02.layout import weight_shapes
from examples.ch02.model import Model, run, seeded
from examples.ch03.tokens import random_ids
from examples.ch04.gpt2_from_scratch import Trace
from examples.lab.experiment import Experiment
from examples.lab.figure import PAGE, check_target, label_ends, new_panels, style, write_figure
from examples.lab.script import Parser, answer, command, number_list, progress_bar, table, whole_number

LAYERS = (2, 4, 8, 16, 32, 64)
PLACES = ("pre", "post", "both")
SEEDS = 9  # models of each kind, of which the median is taken


# -------------------------------------------------------------------------------------------------------------- the models


def small_model(config: Config, seed: int = 0) -> Model:
    """A `Model` of a general config: gains 1, biases 0, matrices normal with variance 1 / inputs, which keep a vector's size."""
    generator, weights = seeded(seed), {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 2:
            weights[name] = torch.randn(shape, generator=generator) * shape[1] ** -0.5
        else:
            weights[name] = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
    return Model(config, weights, module=VARIANTS)


def depth_config(norm_place: str, layers: int, width: int = 64) -> Config:
    """A small model for the comparison of norm places: post without a final norm, as the original has it."""
    sizes = dict(vocab_size=64, n_embd=width, n_layer=layers, n_head=4, kv_heads=4, head_width=width // 4, inner_width=4 * width)
    more = dict(n_positions=32, norm="layer", norm_place=norm_place, final_norm=norm_place != "post", positions="none")
    more["embedding_scale"] = width**0.5  # rows of variance 1 / d: with it the stream starts at a root mean square of 1
    return Config("depth", **sizes, **more, gated=False, norm_eps=1e-5)


def norms_on_the_path(config: Config) -> int:
    """How many norms the stream itself goes through before the logits: 2 L in a post-norm model, else the final one alone."""
    return (2 * config.n_layer if config.norm_place == "post" else 0) + config.final_norm


# --------------------------------------------------------------------------------------------------------- the measurement


def depth_row(norm_place, layers, seeds=range(SEEDS), progress=lambda: None):
    """Random models at one depth: the RMS of the last stream over the first, and gradients of the loss; medians over `seeds`.

    Norms of gradients are L2, of the mean cross-entropy of random targets: at the embedding, over the stream [1, T, d], and in the
    last matrix of the last layer.
    """
    config, growth, gradients, lasts = depth_config(norm_place, layers), [], [], []
    for seed in seeds:
        model = small_model(config, seed)
        weights, ids = model.weights, random_ids(model, 33, seed=seed)  # [1, 33], of which 32 are fed
        streams = Trace("embedding", "residual")
        matrix = weights[f"model.layers.{layers - 1}.mlp.down_proj.weight"].requires_grad_()
        weights["model.embed_tokens.weight"].requires_grad_()
        logits = run(model, ids[:, :-1], trace=streams)  # [1, 32, V]
        first, *_, last = streams.values()  # each [1, 32, d]
        first.retain_grad()
        torch.nn.functional.cross_entropy(logits[0], ids[0, 1:]).backward()
        growth.append((last.square().mean().sqrt() / first.square().mean().sqrt()).item())
        gradients.append(first.grad.norm().item())
        lasts.append(matrix.grad.norm().item())
        progress()
    return {
        "norm_place": norm_place,
        "layers": layers,
        "norms_on_the_path": norms_on_the_path(config),
        "growth": statistics.median(growth),
        "gradient": statistics.median(gradients),
        "last_gradient": statistics.median(lasts),
    }


def measure(layers=LAYERS, seeds=SEEDS, seed=0, progress=lambda: None):
    """`rows`, a `depth_row` for each place of the norms and each of `layers`, over `seeds` models drawn from `seed` on.

    Beside them some of their values: pre_growth_N at the fewest layers and at the most, post_growth at the most; PLACE_last_N, the
    gradient in the last layer, at the fewest and the most; the smallest and the largest gradient at the embedding over all depths.
    """
    few, most = min(layers), max(layers)
    drawn = range(seed, seed + seeds)
    rows = [depth_row(place, n, drawn, progress) for place in PLACES for n in layers]
    by = {(r["norm_place"], r["layers"]): r for r in rows}
    at_embedding = {place: [r["gradient"] for r in rows if r["norm_place"] == place] for place in ("pre", "post")}
    return {
        "rows": rows,
        "seeds": seeds,
        **{f"pre_growth_{n}": by["pre", n]["growth"] for n in (few, most)},
        "post_growth": by["post", most]["growth"],
        **{f"{place}_last_{n}": by[place, n]["last_gradient"] for place in ("pre", "post") for n in (few, most)},
        **{f"{place}_gradient_smallest": min(found) for place, found in at_embedding.items()},
        **{f"{place}_gradient_largest": max(found) for place, found in at_embedding.items()},
    }


# ----------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"depth": ...}."""
    found = values["depth"]
    by = {(r["norm_place"], r["layers"]): r for r in found["rows"]}
    layers = sorted({n for _, n in by})
    heads = ["norms", "layers", "norms on its path", "last stream / first", "gradient at first", "in last layer"]
    rows = [
        [r["norm_place"], r["layers"], r["norms_on_the_path"], *(f"{r[k]:.2f}" for k in ("growth", "gradient", "last_gradient"))]
        for r in found["rows"]
    ]

    def ends(place, key):
        return " to ".join(f"{by[place, n][key]:.2f}" for n in (layers[0], layers[-1]))

    return "\n".join(
        [
            f"Random models of width 64, whose matrices keep the size of a vector; medians over {found['seeds']} of each.",
            "Gradients are at the first stream, the embedding, and in the last matrix of the last layer.",
            "",
            table(heads, rows),
            "",
            f"From {layers[0]} layers to {layers[-1]} the last stream over the first goes",
            f"from {ends('pre', 'growth')} with pre-norm and from {ends('post', 'growth')} with post-norm,",
            f"the last layer's gradient from {ends('pre', 'last_gradient')} with pre-norm and "
            f"from {ends('post', 'last_gradient')} with post-norm.",
        ]
    )


PLACES = ("pre", "post", "both")


def draw(values, path):
    """The gradient at the embedding and in the last layer by depth, for each place of the norms, from what `measure` returns."""
    rows = values["rows"]
    figure, panels = new_panels(1, 2, (PAGE, 3.6), sharey=True)
    layers = sorted({r["layers"] for r in rows})
    for axes, key, where in zip(panels, ("gradient", "last_gradient"), ("at the embedding", "in the last layer"), strict=True):
        for i, place in enumerate(PLACES):
            mine = [r for r in rows if r["norm_place"] == place]
            axes.loglog([r["layers"] for r in mine], [r[key] for r in mine], label=place, **style(i))
        axes.set_xticks(layers, [str(n) for n in layers])
        axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
        axes.minorticks_off()
        axes.tick_params(labelleft=True)
        axes.set_title(where, fontsize=10)
        axes.set_xlabel("layers")
    panels[0].set_ylabel("norm of the gradient")
    figure.suptitle("Gradients of random models, by where the norms stand", x=0.01, ha="left")
    for axes in panels:
        label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch14.depth",
        "observation",
        "In random models the pre-norm stream grows with depth while its last layer's gradient falls; post-norm's does neither.",
        "Width 64, variance-preserving weights, nine seeds; at the start, before any training.",
        measure,
        headline=("pre_growth_64", "f2"),
        model="random models of width 64",
        loads=False,
        movable=False,
        seconds=10,
        figures={"depth.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="norm_depth.py", description=__doc__, keys=__file__).add("threads", "seed", "plot", "json")
    parser.add_argument("--layers", type=number_list(1), default=list(LAYERS), metavar="N,N", help="depths")
    parser.add_argument("--seeds", type=whole_number(1, 1000), default=SEEDS, metavar="N", help="models of each kind")
    return parser


@command
def main(argv=None):
    """Print streams and gradients by depth."""
    args = options().parse_args(argv)
    check_target(args.plot)
    torch.set_num_threads(args.threads)
    layers = sorted(set(args.layers))
    with progress_bar("model", len(PLACES) * len(layers) * args.seeds) as bar:
        values = {"depth": measure(layers, args.seeds, args.seed, bar.update)}
    answer(args, values, report, lambda values, path: draw(values["depth"], path))


if __name__ == "__main__":
    sys.exit(main())
