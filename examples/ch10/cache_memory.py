"""Chapter 10: the bytes of a cache, from the config alone, and how many sequences' caches outweigh the weights.

    python examples/ch10/cache_memory.py                                        # GPT-3's published shape
    python examples/ch10/cache_memory.py --config gpt2 --bytes 4 --plot memory.svg

2 L h dh numbers per token and sequence: linear in everything, and nothing else.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import GPT2Config, general
from examples.ch02.families import formulas
from examples.ch02.model import PUBLISHED, load, load_config
from examples.ch10.kv_cache import KVCache, cache_bytes, cached_numbers
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_figure, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, number_list, table, whole_number

GPT3 = GPT2Config(vocab_size=50257, n_positions=2048, n_embd=12288, n_layer=96, n_head=96)
GIB = 2**30


def sequences_to_outweigh(config, bytes_per_number=2, tokens=None):
    """The smallest number of sequences of `tokens`, by default the full context, whose caches are larger than the weights."""
    tokens = config.n_positions if tokens is None else tokens
    return _weight_bytes(config, bytes_per_number) // cache_bytes(config, tokens, 1, bytes_per_number) + 1


def _weight_bytes(config, bytes_per_number):
    return formulas(config).parameter_count(config)["total"] * bytes_per_number


def counted_as_the_tensors():
    """Whether the formula gives the bytes of a cache's tensors, of the embedded model in float16, two sequences of 100."""
    cache = KVCache(load(dtype=torch.float16), batch=2, capacity=100)
    counted = sum(2 * x.numel() for x in (*cache.keys, *cache.values))
    return cache.nbytes == cache_bytes(load_config(), 100, 2, 2) == counted


def measure(config=GPT3, tokens=None, bytes_per_number=2, batch=1, name="GPT-3"):
    """Bytes of the caches of `batch` sequences at each of `tokens`, by default 1, 512 and the full context, and beside the weights.

    weights_gib: of numbers of that size. sequences_to_outweigh: at the full context. sequences: caches of so many, for a figure.
    The last three values are of GPT-2, and of the embedded model.
    """
    full = config.n_positions
    tokens = sorted({min(t, full) for t in (1, 512, full)}) if tokens is None else tokens
    sizes = {t: cache_bytes(config, t, batch, bytes_per_number) for t in tokens}
    most, weights = sequences_to_outweigh(config, bytes_per_number), _weight_bytes(config, bytes_per_number) / GIB
    step = max(1, round(most / 4.6))  # six steps go a third beyond
    return {
        "name": name,
        "bytes_per_number": bytes_per_number,
        "batch": batch,
        "layers": config.n_layer,
        "numbers_a_layer": cached_numbers(config),
        "shortest_window": min(filter(None, general(config).windows), default=None),
        "per_token_mib": cache_bytes(config, 1, batch, bytes_per_number) / 2**20,
        "tokens": [
            {
                "tokens": t,
                "bytes": size,
                "gib": size / GIB,
                "sequences_to_outweigh": sequences_to_outweigh(config, bytes_per_number, t),
            }
            for t, size in sizes.items()
        ],
        "weights_gib": weights,
        "sequences_to_outweigh": most,
        "sequences_that_fit_below_the_weights": most - 1,
        "sequences": [
            {"sequences": n, "cache_gib": n * cache_bytes(config, full, 1, bytes_per_number) / GIB, "weight_gib": weights}
            for n in sorted({1, *range(step, 6 * step + 1, step)})
        ],
        "gpt2_1024_float32_bytes": cache_bytes(load_config("gpt2"), 1024),
        "embedded_per_token_bytes": cache_bytes(load_config(), 1),
        "as_the_tensors": counted_as_the_tensors(),
    }


def report(values):
    """Text of {"memory": ...}."""
    v = values["memory"]
    window = v["shortest_window"]
    batch, most = counted(v["batch"], "sequence"), v["sequences_to_outweigh"]
    tokens = f"tokens (in a layer with a window {window:,} at most)" if window else "tokens"
    rows = [[f"{r['tokens']:,}", f"{r['bytes']:,}", f"{r['gib']:,.3f}", f"{r['sequences_to_outweigh']:,}"] for r in v["tokens"]]
    return "\n".join(
        [
            f"{v['name']}: {v['numbers_a_layer']:,} numbers x {v['layers']} layers x {tokens} x {batch} x "
            f"{v['bytes_per_number']} bytes",
            "",
            table(["tokens", "cache, bytes", "GiB", "sequences that outweigh the weights"], rows),
            "",
            f"The weights take {v['weights_gib']:,.1f} GiB, once, and each sequence has a cache of its own:",
            f"at the full context {counted(most, 'sequence')} outweigh{'s' if most == 1 else ''} them.",
        ]
    )


def draw(values, path):
    """The caches of many sequences beside the weights, from what `measure` returns."""
    figure, axes = new_figure()
    rows, number = (
        values["sequences"],
        {1: "one byte", 2: "two bytes", 4: "four bytes", 8: "eight bytes"}[values["bytes_per_number"]],
    )
    sequences = [r["sequences"] for r in rows]
    axes.plot(sequences, [r["cache_gib"] for r in rows], label="the sequences'\ncaches", **style(0))
    axes.plot(sequences, [r["weight_gib"] for r in rows], label="the weights,\nonce", **style(1))
    title = f"Memory of {values['name']}'s shape at {number} per number"
    axes.set(xlabel="sequences held at once, at the full context", ylabel="memory, GiB", title=title)
    axes.set_ylim(bottom=0)
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch10.memory",
        "exact",
        "A cache takes 2 L h dh T B numbers: in GPT-3's shape at two bytes 4.5 MiB per token and 9 GiB at 2,048.",
        "Keys and values only, of the published shape; nothing about how a serving system lays them out.",
        measure,
        headline=("per_token_mib", "f1"),
        model="GPT-3's published shape",
        loads=False,
        movable=False,
        figures={"memory.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cache_memory.py", description=__doc__, keys=__file__)
    about = f"GPT-3, {', '.join(PUBLISHED)}, embedded, a folder or a config.json"
    parser.add_argument("--config", default="GPT-3", metavar="NAME or FILE", help=about)
    about = "by default 1, 512 and the full context"
    parser.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--batch", type=whole_number(1, 10**9), default=1, metavar="B", help="sequences at once")
    parser.add_argument("--bytes", type=int, choices=[1, 2, 4, 8], default=2, help="bytes of one number")
    return parser.add("plot", "json")


@command
def main(argv=None):
    """Print the bytes of a cache."""
    args = options().parse_args(argv)
    check_target(args.plot)
    config = GPT3 if args.config.upper() in ("GPT-3", "GPT3") else load_config(args.config)
    over = [t for t in args.tokens or [] if t > config.n_positions]
    if over:
        raise BadInput(f"{over[0]} tokens are more than n_positions {config.n_positions}; give fewer")
    values = {"memory": measure(config, args.tokens, args.bytes, args.batch, args.config)}
    answer(args, values, report, lambda values, path: draw(values["memory"], path))


if __name__ == "__main__":
    sys.exit(main())
