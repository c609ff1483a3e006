"""Chapter 4: every tensor that a pass of GPT-2 names, how large it is, and how it grows with the text.

    python examples/ch04/tensor_sizes.py
    python examples/ch04/tensor_sizes.py --config gpt2-xl --tokens 512

Shapes: as in gpt2_from_scratch.py.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.config import GPT2Config
from examples.ch02.model import load_config, require
from examples.ch04.cost_model import CONFIG_ONLY
from examples.ch04.gpt2_from_scratch import LAYER_POINTS, POINTS
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number


def tensor_table(config: GPT2Config, tokens: int, batch: int = 1, bytes_per_number: int = 4) -> list[dict]:
    """Every tensor that the pass over [batch, tokens] names: one dict(point, count, shape, bytes, growth, traced) each.

    count: how many the pass makes, 1 or L. bytes: of one. growth: how bytes grow with T, "T" or "T^2". traced: whether it is
    one of POINTS. Left out are temporaries within a line, in layer norm, GELU or softmax, none larger than what the line makes.
    Raises BadInput for tokens outside 1 to n_positions.
    """
    if not 1 <= tokens <= config.n_positions:
        raise BadInput(f"{tokens} tokens are not within 1 to n_positions {config.n_positions}; give as many as that")
    L, sizes = config.n_layer, {"B": batch, "T": tokens, "S": tokens, "d": config.n_embd, "3d": 3 * config.n_embd}
    sizes |= {"h": config.n_head, "g": config.kv_heads, "dh": config.head_width, "f": config.inner_width, "V": config.vocab_size}
    shapes = {"embedding": POINTS["embedding"], "mask": "T S"}
    for point, shape in LAYER_POINTS.items():  # with what the lines between them make
        shapes |= {"q": {"qkv": "B T 3d"}, "attention": {"mixed": "B T d"}, "hidden": {"inner": "B T f"}}.get(point, {})
        shapes[point] = shape
    shapes |= {point: POINTS[point] for point in ("final_norm", "logits")}
    return [
        {
            "point": point,
            "count": 1 if point in ("embedding", "mask", "final_norm", "logits") else L,
            "shape": [sizes[letter] for letter in shape.split()],
            "bytes": math.prod(sizes[letter] for letter in shape.split()) * (4 if point == "mask" else bytes_per_number),
            "growth": "T^2" if "T S" in shape else "T",
            "traced": point in POINTS,
        }
        for point, shape in shapes.items()
    ]


def measure(config=None, tokens=None):
    """The tensors of a pass over one sequence of `tokens`, by default GPT-2's full context; and what doubling does."""
    config = load_config("gpt2") if config is None else config
    tokens = config.n_positions if tokens is None else tokens
    rows = {r["point"]: r for r in tensor_table(config, tokens)}
    half = {r["point"]: r for r in tensor_table(config, max(1, tokens // 2))}
    return {
        "tokens": tokens,
        "tensors": [
            {
                "tensor": r["point"],
                "how_many": r["count"],
                "shape": " x ".join(map(str, r["shape"])),
                "bytes": r["bytes"],
                "grows_with": r["growth"],
            }
            for r in rows.values()
        ],
        "scores_bytes": rows["scores"]["bytes"],
        "half": max(1, tokens // 2),
        "scores_growth_from_half": rows["scores"]["bytes"] / half["scores"]["bytes"],
        "hidden_growth_from_half": rows["hidden"]["bytes"] / half["hidden"]["bytes"],
    }


def report(values):
    """Text of {"shapes": ...}."""
    v = values["shapes"]
    rows = [[r["tensor"], f"{r['how_many']} x {r['shape']}", f"{r['bytes']:,}", r["grows_with"]] for r in v["tensors"]]
    return "\n".join(
        [
            f"One sequence of {v['tokens']:,} tokens in float32:",
            "",
            table(["tensor", "how many, shape", "bytes of one", "grows with"], rows),
            "",
            f"From {v['half']:,} tokens to {v['tokens']:,} the scores of a layer grow {v['scores_growth_from_half']:g} times, to "
            f"{v['scores_bytes'] / 1e6:.1f} MB, the hidden layer {v['hidden_growth_from_half']:g} times.",
            "Only the scores, A, which has their shape, and the mask, one for all layers, grow with the square.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch04.shapes",
        "exact",
        "Only the attention scores and weights, and the mask, one table for all layers, grow with the square of the length.",
        "Sizes of single tensors in float32, one sequence; not the peak of a running program.",
        measure,
        headline=("scores_growth_from_half", "int"),
        **CONFIG_ONLY,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="tensor_sizes.py", description=__doc__, keys=__file__).add("json")
    about = "a published shape, embedded, a folder, or a config.json"
    parser.add_argument("--config", default="gpt2", metavar="NAME or FILE", help=about)
    parser.add_argument("--tokens", type=whole_number(1), default=None, metavar="T", help="by default the full context")
    return parser


@command
def main(argv=None):
    """Print every tensor of a pass."""
    args = options().parse_args(argv)
    config = load_config(args.config)
    require(config, "gpt2", "this list of tensors")
    answer(args, {"shapes": measure(config, args.tokens)}, report)


if __name__ == "__main__":
    sys.exit(main())
