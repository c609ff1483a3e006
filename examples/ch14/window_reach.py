"""Chapter 14: how far back layers with a window see, and what windows do to a cache.

    python examples/ch14/window_reach.py
    python examples/ch14/window_reach.py --tokens 8192 --bytes 1

With a window of W a position attends to W positions, its own included, so that one layer looks W - 1 back, and L layers, through
each other, L (W - 1). A layer's cache need not hold more than its window.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import Config
from examples.ch02.model import run
from examples.ch03.tokens import random_ids
from examples.ch10.kv_cache import cache_bytes
from examples.ch14.configs import config_named
from examples.ch14.norm_depth import small_model
from examples.ch14.ten_choices import options_of
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, table, whole_number

WINDOWS, LAYERS = (1, 2, 3, 4, 6), (1, 2, 3, 4)
MODELS = {"mistral": "mistral-7b", "gemma_2": "gemma-2-9b", "gemma_3": "gemma-3-1b"}  # by the name that a value begins with
TOKENS = 32768  # positions of the request
MOST = 10**9  # positions


def reach(window: int, layers: int, tokens: int = 40, seed: int = 0) -> dict[str, int]:
    """How far a token is felt in a random model of so many layers with this window: `farthest`, and L (W - 1) as `formula`.

    The id at position 0 changes, and all logits are compared exactly; the farthest one that is not bit for bit the same counts.
    tokens: the length of the text, more than the formula says.
    """
    sizes = dict(vocab_size=53, n_embd=16, n_layer=layers, n_head=2, kv_heads=2, head_width=8, inner_width=32, n_positions=tokens)
    config = Config("window", **sizes, positions="none", windows=(window,) * layers)
    model = small_model(config, seed)
    ids = random_ids(model, tokens, seed=seed)
    other = ids.clone()
    other[0, 0] = (other[0, 0] + 1) % config.vocab_size
    changed = (run(model, ids) != run(model, other))[0].any(-1)  # [T]
    return {"window": window, "layers": layers, "farthest": int(changed.nonzero().max()), "formula": layers * (window - 1)}


def request_row(name, tokens=TOKENS, bytes_per_number=2):
    """The cache of one request of `tokens` in a published model, with the windows of its config and without, in MiB (2^20 bytes).

    windows: "sliding" in every layer, or "interleaved" with full ones. times_as_many: requests that fit into one memory. made_for:
    positions that the config has.
    """
    config = config_named(name)
    capped, full = (cache_bytes(x, tokens, bytes_per_number=bytes_per_number) for x in (config, replace(config, windows=())))
    return {
        "model": name,
        "window": _window(config),
        "windows": options_of(config)["window"],
        "layers_with_window": sum(w is not None for w in config.windows),
        "layers": config.n_layer,
        "made_for": config.n_positions,
        "full_mib": full / 2**20,
        "windowed_mib": capped / 2**20,
        "times_as_many": full / capped,
    }


def _window(config):
    return next(w for w in config.windows if w)


def measure(tokens=TOKENS, bytes_per_number=2, seed=0):
    """`reach`, a row for each of WINDOWS and LAYERS, and `requests`, a `request_row` of each of MODELS.

    mistral_reach: positions back, by the formula, in Mistral's shape, which has its window in every layer.
    """
    reached = [reach(w, n, seed=seed) for w in WINDOWS for n in LAYERS]
    requests = {short: request_row(name, tokens, bytes_per_number) for short, name in MODELS.items()}
    mistral = config_named(MODELS["mistral"])
    return {
        "requests": list(requests.values()),
        "tokens": tokens,
        "bytes_per_number": bytes_per_number,
        "reach": reached,
        "reach_cases": len(reached),
        "reach_as_the_formula": all(r["farthest"] == r["formula"] for r in reached),
        **{f"{short}_times": row["times_as_many"] for short, row in requests.items()},
        "mistral_reach": mistral.n_layer * (_window(mistral) - 1),
    }


def report(values):
    """Text of {"windows": ...}."""
    found = values["windows"]
    by = {(r["window"], r["layers"]): r for r in found["reach"]}
    depths = sorted({n for _, n in by})

    def cell(row):
        as_said = row["farthest"] == row["formula"]
        return str(row["farthest"]) if as_said else f"{row['farthest']} (not {row['formula']})"

    reached = [[w, *(cell(by[w, n]) for n in depths)] for w in sorted({w for w, _ in by})]
    requests = [
        [
            r["model"],
            f"{r['window']:,}",
            f"{r['layers_with_window']} of {r['layers']}",
            f"{r['full_mib']:,.0f}",
            f"{r['windowed_mib']:,.0f}",
            f"{r['times_as_many']:.2f}",
        ]
        for r in found["requests"]
    ]
    heads = ["model", "window", "layers with it", "without, MiB", "with, MiB", "times as many requests fit"]
    held = sum(r["farthest"] == r["formula"] for r in found["reach"])
    parts = [
        "The id at position 0 changes; the farthest position whose logits are not bit for bit the same:",
        "",
        table(["window", *(f"{n} layer{'s' * (n > 1)}" for n in depths)], reached),
        "",
        f"The cache of one request of {found['tokens']:,} positions, {found['bytes_per_number']} bytes per number:",
        "",
        table(heads, requests),
        "",
    ]
    short = [r["model"] for r in found["requests"] if r["made_for"] < found["tokens"]]
    if short:
        parts += [f"Note: {', '.join(short)} was made for fewer positions; this is what more would take.", ""]
    return "\n".join(
        [
            *parts,
            f"In {held} of {found['reach_cases']} random models L layers with a window of W reach L (W - 1) positions back;",
            f"in Mistral's shape that is {found['mistral_reach']:,}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.windows",
        "exact",
        "L layers with a window of W, the query included, reach L (W - 1) positions back, and their caches stop growing at W.",
        "The reach is of random models, where every path counts; a trained model need not use it.",
        measure,
        headline=("mistral_reach", "int"),
        model="random models, and configs.json",
        loads=False,
        movable=False,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="window_reach.py", description=__doc__, keys=__file__).add("threads", "seed", "json")
    parser.add_argument("--tokens", type=whole_number(1, MOST), default=TOKENS, metavar="N", help="positions of the request")
    parser.add_argument("--bytes", type=whole_number(1, 8), default=2, metavar="N", help="bytes per number")
    return parser


@command
def main(argv=None):
    """Print how far windows reach, and what they do to a cache."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    answer(args, {"windows": measure(args.tokens, args.bytes, args.seed)}, report)


if __name__ == "__main__":
    sys.exit(main())
