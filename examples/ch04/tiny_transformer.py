"""Chapter 4's test double: a tiny random transformer, to look at shapes and at the causal property in no time.

    python examples/ch04/tiny_transformer.py

Its block has GPT-2's structure with other details: no bias in attention, the exact GELU, one head after another. It is no
real model and not the oracle (that is gpt2_from_scratch.py); it is small enough to be tried in every way.
Shapes: B batch, T positions, d model width, h heads, dh head width, f = 4d feed-forward width, V vocabulary, L layers.
"""

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import random_tensor, seeded
from examples.ch04.gpt2_from_scratch import causal_mask, check_ids, gelu, layer_norm, no_trace
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number

DEPTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class TinyConfig:
    """Sizes by GPT-2's field names: V, positions, d, L, h."""

    vocab_size: int = 50
    n_positions: int = 16
    n_embd: int = 32
    n_layer: int = 2
    n_head: int = 4
    layer_norm_epsilon: float = 1e-5


def tensor_shapes(config):
    """{name: shape} of every parameter; matrices are [in, out]."""
    d, f = config.n_embd, 4 * config.n_embd
    shapes = {"wte.weight": (config.vocab_size, d), "wpe.weight": (config.n_positions, d)}
    for i in range(config.n_layer):
        shapes |= {f"h.{i}.ln_1.weight": (d,), f"h.{i}.ln_1.bias": (d,), f"h.{i}.ln_2.weight": (d,), f"h.{i}.ln_2.bias": (d,)}
        shapes |= {f"h.{i}.attn.qkv.weight": (d, 3 * d), f"h.{i}.attn.out.weight": (d, d)}
        shapes |= {f"h.{i}.mlp.up.weight": (d, f), f"h.{i}.mlp.up.bias": (f,)}
        shapes |= {f"h.{i}.mlp.down.weight": (f, d), f"h.{i}.mlp.down.bias": (d,)}
    return shapes | {"ln_f.weight": (d,), "ln_f.bias": (d,)}


def parameter_count(config):
    """The number of parameters in closed form: V d + n_positions d + L (12 d^2 + 9 d) + 2 d."""
    d = config.n_embd
    return config.vocab_size * d + config.n_positions * d + config.n_layer * (12 * d * d + 9 * d) + 2 * d


def make_weights(config, seed=0):
    """{name: float32 tensor}, random; it depends on the seed and on each tensor's name and shape. Ten times GPT-2's spread,
    so that so small a model has something to say."""
    return {
        name: random_tensor(name, shape, seed) * (1.0 if name.endswith(("1.weight", "2.weight", "f.weight")) else 10.0)
        for name, shape in tensor_shapes(config).items()
    }


def forward(ids, weights, config, causal=True, trace=None):
    """Logits [B, T, V] of `ids` [B, T]; trace(point, layer, tensor) as in gpt2_from_scratch, with `head` as the layer's part."""
    check_ids(ids, config)
    trace = no_trace if trace is None else trace
    T, dh = ids.shape[1], config.n_embd // config.n_head
    mask = causal_mask(T, T)
    x = weights["wte.weight"][ids] + weights["wpe.weight"][:T]  # [B, T, d]
    trace("embedding", None, x)
    for i in range(config.n_layer):
        normed = layer_norm(x, weights, f"h.{i}.ln_1", config)  # [B, T, d]
        trace("norm_1", i, normed)
        qkv = normed @ weights[f"h.{i}.attn.qkv.weight"]  # [B, T, 3d]
        trace("qkv", i, qkv)
        heads = []
        for q, k, v in zip(*(part.split(dh, dim=-1) for part in qkv.chunk(3, dim=-1)), strict=True):  # each [B, T, dh]
            scores = q @ k.transpose(-1, -2) / math.sqrt(dh)  # [B, T, T]
            if causal:
                scores = scores + mask
            heads.append(torch.softmax(scores, dim=-1) @ v)  # [B, T, dh]
            trace("scores of a head", i, scores)
        added = torch.cat(heads, dim=-1) @ weights[f"h.{i}.attn.out.weight"]  # [B, T, d]
        trace("attention", i, added)
        x = x + added  # [B, T, d]
        normed = layer_norm(x, weights, f"h.{i}.ln_2", config)  # [B, T, d]
        trace("norm_2", i, normed)
        hidden = gelu(normed @ weights[f"h.{i}.mlp.up.weight"] + weights[f"h.{i}.mlp.up.bias"])  # [B, T, 4d]
        trace("hidden", i, hidden)
        added = hidden @ weights[f"h.{i}.mlp.down.weight"] + weights[f"h.{i}.mlp.down.bias"]  # [B, T, d]
        trace("mlp", i, added)
        x = x + added  # [B, T, d]
        trace("residual", i, x)
    x = layer_norm(x, weights, "ln_f", config)  # [B, T, d]
    trace("final_norm", None, x)
    logits = x @ weights["wte.weight"].T  # [B, T, V]
    trace("logits", None, logits)
    return logits


def shape_report(config, weights, ids):
    """[{point, layer, shape, bytes}] of every traced tensor of one pass, in its order."""
    rows = []
    forward(
        ids,
        weights,
        config,
        trace=lambda point, layer, x: rows.append({"point": point, "layer": layer, "shape": list(x.shape), "bytes": x.nbytes}),
    )
    return rows


def causal_check(config, weights, ids, causal=True):
    """Largest change of the logits before the last position, and at it, when only the last id changes."""
    other = ids.clone()
    other[:, -1] = (ids[:, -1] + 1) % config.vocab_size
    change = (forward(ids, weights, config, causal) - forward(other, weights, config, causal)).abs()  # [B, T, V]
    return {"earlier": change[:, :-1].max().item(), "last": change[:, -1].max().item()}


def count_depths(config, depths=DEPTHS, seed=0):
    """[{layers, formula, counted}]: parameters in closed form beside the numbers that `make_weights` made."""
    rows = []
    for layers in depths:
        deep = replace(config, n_layer=layers)
        made = sum(w.numel() for w in make_weights(deep, seed).values())
        rows.append({"layers": layers, "formula": parameter_count(deep), "counted": made})
    return rows


def measure(config=None, tokens=8, seed=0):
    """Shapes of a pass over `tokens` random ids, the causal check with the mask and without, and the counts at five depths."""
    config = TinyConfig() if config is None else config
    weights = make_weights(config, seed)
    ids = torch.randint(config.vocab_size, (1, tokens), generator=seeded(seed))
    depths = count_depths(config, seed=seed)
    on, off = causal_check(config, weights, ids), causal_check(config, weights, ids, causal=False)
    return {
        "config": vars(config),
        "tokens": tokens,
        "tensors": shape_report(config, weights, ids),
        "depths": depths,
        "all_equal": all(r["formula"] == r["counted"] for r in depths),
        "largest_earlier_change": on["earlier"],
        "changes_without_mask": off["earlier"] > 0,
        "with_mask": on,
        "without_mask": off,
    }


def report(values):
    """Text of {"tiny": ...}."""
    v = values["tiny"]
    c = v["config"]
    rows = [[r["point"], "" if r["layer"] is None else r["layer"], r["shape"], f"{r['bytes']:,}"] for r in v["tensors"]]
    rows = [row for i, row in enumerate(rows) if row != rows[i - 1]]  # the heads' scores are alike: once for all heads of a layer
    parts = [
        f"A random transformer: L {c['n_layer']}, d {c['n_embd']}, h {c['n_head']}, V {c['vocab_size']}, T {v['tokens']}",
        "",
        table(["tensor", "layer", "shape", "bytes"], rows),
        "",
        "Each head of a layer has scores of its own, all of this shape.",
        "",
    ]
    for name in ("with", "without"):
        before, at = (f"{v[f'{name}_mask'][key]:.3g}" for key in ("earlier", "last"))
        parts.append(f"{name} the mask, another last id changes the logits before it by {before}, at it by {at}")
    counts = [[r["layers"], f"{r['formula']:,}", f"{r['counted']:,}"] for r in v["depths"]]
    parts += ["", table(["layers", "parameters by formula", "by counting"], counts), ""]
    before = v["largest_earlier_change"]
    mask = "no position hears a later one" if before == 0 else f"a position hears a later one, by as much as {before:.3g}"
    count = "counts every parameter" if v["all_equal"] else "does NOT count every parameter"
    return "\n".join([*parts, f"With the mask {mask};", f"and the formula {count}, at each of these depths."])


EXPERIMENTS = (
    Experiment(
        "ch04.tiny",
        "exact",
        "The tiny transformer's parameter formula matches its tensors at five depths, and its mask holds exactly.",
        "A random model: nothing about a trained one.",
        measure,
        headline=("largest_earlier_change", "f1"),
        model="tiny (random, seed 0)",
        loads=False,
        movable=False,
        leaves_out=("with_mask", "without_mask"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="tiny_transformer.py", description=__doc__, keys=__file__).add("threads", "seed", "json")
    parser.add_argument("--layers", type=whole_number(1, 64), default=TinyConfig.n_layer, metavar="L", help="depth")
    parser.add_argument("--tokens", type=whole_number(2), default=8, metavar="T", help="length of the input")
    return parser


@command
def main(argv=None):
    """Print the shapes, the causal check and the counts."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    config = TinyConfig(n_layer=args.layers)
    if args.tokens > config.n_positions:
        raise BadInput(f"--tokens {args.tokens} is more than n_positions {config.n_positions}; give fewer")
    answer(args, {"tiny": measure(config, args.tokens, args.seed)}, report)


if __name__ == "__main__":
    sys.exit(main())
