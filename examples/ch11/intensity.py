"""Chapter 11: how many FLOPs a byte a pass earns: the rule P for a prompt of P tokens and 1 for decoding, and the true numbers.

    python examples/ch11/intensity.py
    python examples/ch11/intensity.py --config llama-3-8b --tokens 16,2048 --ridge 30   # a machine of 30 FLOPs a byte

The rule: P tokens multiply each of N weights P times, 2 P N FLOPs, and read it once, 2 N bytes in float16: P FLOPs a byte; a decode
step is P = 1. It assumes that every parameter is multiplied, the head at every position, and that nothing but weights is read:
no scores, no keys and values, no activations. Nothing runs here; each assumption is taken back in turn, and the bytes counted.
"""

import argparse
import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.families import formulas
from examples.ch02.model import load_config
from examples.ch10.kv_cache import cache_bytes
from examples.ch11.accelerators import accelerators
from examples.ch11.operations import operations, totals
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_panels, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, number_list, table, whole_number

CONFIGS = ("gpt2", "llama-3-8b")
TOKENS = (1, 16, 128, 512, 1024)
NUMBER = 2  # bytes of a weight and of any other number
COUNTS = {  # {key of a row: what is counted}, each with one assumption of the rule fewer
    "rule": "the rule",
    "weights": "the weights that are read",
    "cache": "scores' FLOPs, keys and values",
    "last": "the same, logits at the last position",
    "operands": "every operand of the plain program",
}

# ---------------------------------------------------------------------------------------------------------- the formulas


def intensities(config, new: int, past: int = 0, number: int = NUMBER) -> dict[str, float]:
    """{key of COUNTS: FLOPs per byte} of a pass of `new` positions behind `past` cached ones, one sequence.

    number: bytes of a number. rule: 2 new N FLOPs over N numbers, for all N parameters. weights: the matrices' FLOPs over the
    weights that the pass reads: of a table the rows looked up, and the head once. cache: with the FLOPs of scores and of their
    sums over values, and the bytes of keys and values, the new ones written and the old ones read. last: the same with logits at
    the last position only. operands: all that the unfused program moves, as `operations` counts it, which raises BadInput.
    """
    rows = operations(config, new, past, number=number)
    every, last = totals(rows), totals(rows, True, new)
    pairs = formulas(config).flops_per_token(config, past + new)["attention_scores_and_values"] * new
    kept = every["weight_bytes"] + cache_bytes(config, past + new, 1, number)  # the old ones read, the new ones written
    return {
        "rule": 2 * new / number,
        "weights": (every["flops"] - pairs) / every["weight_bytes"],
        "cache": every["flops"] / kept,
        "last": last["flops"] / kept,
        "operands": every["flops"] / every["bytes"],
    }


def prefix_at_ridge(ridge: float, number: int = NUMBER) -> float:
    """The tokens P at which the rule's intensity, 2 P / number, is a machine's ridge, in FLOPs per byte."""
    return ridge * number / 2


def first_prefix(config, ridge: float, key: str, number: int = NUMBER) -> int | None:
    """The shortest prompt whose intensity by `key` of COUNTS is at least `ridge`; None where none of n_positions reaches it.

    The intensity of weights grows with every token; that of all operands falls again where scores outweigh the rest.
    """
    return next((P for P in range(1, config.n_positions + 1) if intensities(config, P, 0, number)[key] >= ridge), None)


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(configs=CONFIGS, tokens=TOKENS, ridge=None, name="h100", number=NUMBER):
    """FLOPs per byte of passes of several configs, counted in the ways of COUNTS, and where the ridge of a machine stands.

    prefill: a row for each config and number of tokens; decode: the same of one new token that sees as many, itself included.
    ridges: for each config the tokens of the shortest prompt at the ridge, by each count, None where no prompt within n_positions
    reaches it; most_of_operands: the highest intensity of all these prompts with every operand counted.
    ridge: FLOPs a byte; by default those of the accelerator `name` of accelerators.json. share_at_16_percent: of the peak, what the
    rule allows a prompt of 16.
    """
    if ridge is None:
        known = accelerators()
        if name not in known:
            raise BadInput(f"no accelerator {name!r}; known are {', '.join(known)}, or give --ridge")
        ridge, name = known[name]["flop_per_s"] / known[name]["bytes_per_s"], known[name]["name"]
    else:
        name = None
    read = {source: load_config(source) for source in configs}
    for source, config in read.items():
        if over := [n for n in tokens if n > config.n_positions]:
            raise BadInput(f"{over[0]} tokens are more than n_positions {config.n_positions} of {source}; give fewer")
    prefill, decode, ridges = [], [], []
    for source, config in read.items():
        for n in tokens:
            prefill.append({"config": source, "tokens": n, **intensities(config, n, 0, number)})
            found = intensities(config, 1, n - 1, number)
            decode.append({"config": source, "tokens": n, **{key: x for key, x in found.items() if key != "last"}})
        counts = {key: first_prefix(config, ridge, key, number) for key in COUNTS}
        most = max(intensities(config, n, 0, number)["operands"] for n in range(1, config.n_positions + 1))
        ridges.append({"config": source, "longest": config.n_positions, **counts, "most_of_operands": most})
    return {
        "bytes_per_number": number,
        "machine": name,
        "ridge_flop_per_byte": ridge,
        "prefix_by_the_rule": prefix_at_ridge(ridge, number),
        "share_at_16_percent": 100 * min(1.0, 2 * 16 / number / ridge),
        "prefill": prefill,
        "decode": decode,
        "ridges": ridges,
    }


# ---------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"intensity": ...}."""
    v = values["intensity"]
    parts = [
        f"FLOPs per byte, {v['bytes_per_number']} bytes a number, one sequence; each row takes back an assumption of the rule:"
    ]
    for kind, said in (("prefill", "a prompt of"), ("decode", "one new token, seeing")):
        for source in dict.fromkeys(r["config"] for r in v[kind]):
            found = [r for r in v[kind] if r["config"] == source]
            keys = [key for key in COUNTS if key in found[0]]
            cells = [[COUNTS[key], *(figures(r[key]) for r in found)] for key in keys]
            parts += ["", table([f"{source}: {said}", *(f"{r['tokens']:,}" for r in found)], cells)]
    ridge, machine = v["ridge_flop_per_byte"], "A machine" if v["machine"] is None else f"An {v['machine']}"
    heads = [f"tokens at {ridge:.0f} FLOPs a byte", *(r["config"] for r in v["ridges"])]
    cells = [[what, *(_tokens(r, key) for r in v["ridges"])] for key, what in COUNTS.items()]
    parts += ["", table(heads, cells)]
    end = (
        f"{machine} needs {ridge:.0f} FLOPs a byte to be limited by arithmetic. By the rule that is a prompt\nof "
        f"{math.ceil(v['prefix_by_the_rule']):,} tokens; one of 16 gets at most {v['share_at_16_percent']:.1f}% of its peak."
    )
    return "\n".join([*parts, "", end])


def _tokens(row, key):
    """The tokens at the ridge; where no prompt reaches it, how far the longest go, which is known of all operands."""
    return (
        f"{row[key]:,}"
        if row[key] is not None
        else f"none, {figures(row['most_of_operands'])} at most"
        if key == "operands"
        else "none"
    )


def figures(x):
    """A number of FLOPs per byte to three figures, without an exponent."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def draw(values, path):
    """FLOPs per byte against the prompt's length, a panel for each config, with the ridge; from what `measure` returns."""
    sources, keys = list(dict.fromkeys(r["config"] for r in values["prefill"])), ("rule", "last", "operands")
    figure, panels = new_panels(len(sources), 1, (7, 3.2 * len(sources)), sharex=True)
    names = {"rule": "the rule", "last": "logits at the\nlast position", "operands": "every operand,\nunfused"}
    for axes, source in zip(panels, sources, strict=True):
        rows = [r for r in values["prefill"] if r["config"] == source]
        tokens = [r["tokens"] for r in rows]
        for i, key in enumerate(keys):
            axes.plot(tokens, [r[key] for r in rows], label=names[key], **style(i))
        ridge = values["ridge_flop_per_byte"]
        axes.plot(
            tokens,
            [ridge] * len(rows),
            label=f"ridge of\n{values['machine'] or 'the machine'}",
            color="#666666",
            linestyle=(0, (7, 2)),
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_ticks(axes.xaxis, axes.yaxis)
        axes.set(ylabel="FLOPs per byte", title=f"{source}, {values['bytes_per_number']} bytes a number")
    panels[-1].set_xlabel("tokens of the prompt")
    for axes in panels:
        label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.intensity",
        "exact",
        "In float16 P tokens earn P FLOPs a byte by the weights alone; with every operand of an unfused program counted neither "
        "GPT-2 nor Llama-3-8B reaches an H100's ridge at any length that it was made for.",
        "Counts, and rates by a data sheet; what a cache of the processor spares lies between the counts, and nothing is timed.",
        measure,
        headline=("ridge_flop_per_byte", "f0"),
        model="gpt2 and llama-3-8b (their configs; no weights)",
        loads=False,
        movable=False,
        seconds=5,
        figures={"intensity.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="intensity.py", description=__doc__, keys=__file__).add("plot", "json")
    about = "a published shape, embedded, a folder or a config.json; by default gpt2 and llama-3-8b"
    parser.add_argument("--config", default=None, metavar="NAME or FILE", help=about)
    about = "of a prompt, and seen by a new token; by default 1,16,128,512,1024, as far as the config reaches"
    parser.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--bytes", type=whole_number(1, 8), default=NUMBER, metavar="N", help="bytes per number")
    parser.add_argument("--accelerator", default="h100", metavar="NAME", help="of accelerators.json")
    about = "FLOPs per byte of another machine, as machine.py measures them"
    parser.add_argument("--ridge", type=_positive, default=None, metavar="R", help=about)
    return parser


def _positive(text):
    """An argparse type: a number above 0 and up to 1e9."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to 1e9")
    return value


@command
def main(argv=None):
    """Print FLOPs per byte, and where the ridge stands."""
    args = options().parse_args(argv)
    check_target(args.plot)
    configs = CONFIGS if args.config is None else (args.config,)
    tokens = args.tokens or [n for n in TOKENS if n <= min(load_config(c).n_positions for c in configs)]
    values = {"intensity": measure(configs, tokens, args.ridge, args.accelerator, args.bytes)}
    answer(args, values, report, lambda values, path: draw(values["intensity"], path))


if __name__ == "__main__":
    sys.exit(main())
