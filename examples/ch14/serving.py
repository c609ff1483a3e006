"""Chapter 14: what models take to serve: parameters, FLOPs, caches and memory, the one that needs least memory first.

    python examples/ch14/serving.py
    python examples/ch14/serving.py --config llama-3-8b deepseek-v3 --context 2000 --batch 1
    python examples/ch14/serving.py --plot serving.svg

Counts of weights and caches at one load, from configs alone. They say nothing of quality.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.config import Config
from examples.ch10.kv_cache import cache_bytes
from examples.ch14.configs import SOURCE, config_named, published
from examples.ch14.costs import MOST, flops_per_token, kv_bytes_per_token, parameter_count
from examples.ch14.decode_trace import decode_step
from examples.lab.experiment import Experiment
from examples.lab.figure import BLACK, BLUE, ORANGE, PAGE, check_target, new_figure, plain_ticks, tint, write_figure
from examples.lab.script import Parser, answer, command, table, whole_number

SERVED = (8192, 32)  # tokens of each sequence, and sequences at once


def serving_row(name: str, config: Config, tokens: int = 8192, batch: int = 32, bytes_per_number: int = 2) -> dict:
    """What a model takes to serve `batch` sequences of `tokens` positions: parameters, FLOPs, bytes.

    A model made for fewer positions is counted at as many as it has. flops_per_token: of one token at that context.
    step_bytes_per_token: what one decode step has to move, all weights that the batch uses and every cache, for each of its tokens.
    """
    context = min(max(tokens, 1), config.n_positions)
    parameters = parameter_count(config)["total"]
    weights, cache = parameters * bytes_per_number, cache_bytes(config, context, batch, bytes_per_number)
    return {
        "model": name,
        "parameters": parameters,
        "active": parameter_count(config, active=True)["total"],
        "flops_per_token": flops_per_token(config, context)["total"],
        "kv_bytes_per_token": kv_bytes_per_token(config, bytes_per_number),
        "context": context,
        "weight_bytes": weights,
        "cache_bytes": cache,
        "memory_bytes": weights + cache,
        "step_bytes_per_token": decode_step(config, context - 1, batch, bytes_per_number)["bytes"] / batch,
    }


def serving_table(names=None, tokens: int = 8192, batch: int = 32, bytes_per_number: int = 2) -> list[dict]:
    """`serving_row` of each of `names`, every published model by default, the cheapest to hold first."""
    rows = [serving_row(n, config_named(n), tokens, batch, bytes_per_number) for n in (names or published())]
    return sorted(rows, key=lambda r: r["memory_bytes"])


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(names=None, tokens=SERVED[0], batch=SERVED[1], bytes_per_number=2):
    """What models take to serve at one load: `models`, the cheapest to hold first, and `whole`, those that have so many positions.

    Of the latter: the cheapest to hold, the smallest, the cheapest to read, the cheapest to hold of a single text; None where no
    model has so many. kv_kib_per_token is that of a token while no window is full.
    """
    found = serving_table(names, tokens, batch, bytes_per_number)
    rows = [
        {
            **{"model": r["model"], "context": r["context"]},
            **{"parameters_billions": r["parameters"] / 1e9, "active_billions": r["active"] / 1e9},
            **{"gflop_per_token": r["flops_per_token"] / 1e9, "kv_kib_per_token": r["kv_bytes_per_token"] / 1024},
            **{f"{key}_gib": r[f"{key}_bytes"] / 2**30 for key in ("weight", "cache", "memory")},
            "mib_read_per_token": r["step_bytes_per_token"] / 2**20,
        }
        for r in found
    ]
    whole = [r for r in rows if r["context"] == tokens]
    values = {"tokens": tokens, "sequences": batch, "bytes_per_number": bytes_per_number, "models": rows, "whole": whole}
    if not whole:
        keys = ("cheapest", "smallest", "cheapest_is_smallest", "times_the_parameters", "cheapest_of_one_text", "cheapest_to_read")
        return values | dict.fromkeys(keys)
    smallest = min(whole, key=lambda r: r["parameters_billions"])
    alone = serving_table([r["model"] for r in whole], tokens, 1, bytes_per_number)
    return values | {
        "cheapest": whole[0]["model"],
        "smallest": smallest["model"],
        "cheapest_is_smallest": whole[0] is smallest,
        "times_the_parameters": whole[0]["parameters_billions"] / smallest["parameters_billions"],
        "cheapest_of_one_text": alone[0]["model"],
        "cheapest_to_read": min(whole, key=lambda r: r["mib_read_per_token"])["model"],
    }


# ----------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"costs": ...}."""
    v = values["costs"]
    rows = [
        [
            r["model"],
            *(f"{r[key]:,.3f}" for key in ("parameters_billions", "active_billions")),
            f"{r['gflop_per_token']:,.2f}",
            f"{r['kv_kib_per_token']:,.1f}",
            f"{r['context']:,}",
            *(f"{r[key]:,.1f}" for key in ("weight_gib", "cache_gib", "memory_gib")),
            f"{r['mib_read_per_token']:,.0f}",
        ]
        for r in v["models"]
    ]
    heads = ["model", "10^9", "active", "GFLOP", "KiB", "context", "weights", "caches", "both", "MiB"]
    text = [
        f"{v['sequences']:,} sequences of {v['tokens']:,} positions, or as many as a model has; {v['bytes_per_number']} bytes a "
        "number.\n10^9: parameters, and those active for a token. Of a token: GFLOP, KiB of cache while no window is\n"
        "full, MiB read in a decode step. Weights, caches and both are in GiB; latent attention is absorbed.",
        "",
        table(heads, rows),
        "",
    ]
    if v["cheapest"] is None:
        return "\n".join([*text, f"None of these has {v['tokens']:,} positions."])
    same = "which is also the smallest" if v["cheapest_is_smallest"] else f"and the smallest is {v['smallest']}"
    return "\n".join(
        [
            *text,
            f"Of those that have {v['tokens']:,} positions the cheapest to hold is {v['cheapest']},\n{same};",
            f"for a single text it is {v['cheapest_of_one_text']}. Fewest bytes per token are read of {v['cheapest_to_read']}.",
        ]
    )


def draw(values, path):
    """Weights and caches of each model, the cheapest to hold first, on a logarithmic scale; from what `measure` returns."""
    rows = values["models"]
    figure, axes = new_figure((PAGE, 1.4 + 0.2 * len(rows)))
    names = [r["model"] for r in rows]
    caches = f"caches of {values['sequences']} sequences"
    axes.scatter([r["cache_gib"] for r in rows], names, s=60, marker="s", color=tint(ORANGE, 0.3), edgecolor=BLACK, label=caches)
    axes.scatter([r["weight_gib"] for r in rows], names, s=25, marker="o", color=BLUE, label="weights", zorder=3)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    axes.margins(y=0.02)
    n = values["bytes_per_number"]
    title = f"What a model holds in memory, at {values['tokens']:,} positions or as many as it has"
    axes.set(xlabel=f"GiB, at {'two' if n == 2 else n} bytes per number")
    figure.suptitle(title, x=0.01, ha="left")
    axes.legend(loc="lower right")
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch14.costs",
        "exact",
        "Of the models that hold 8,192 positions the smallest is not the one that needs the least memory for 32 such sequences.",
        "Weights and caches only; expected experts are those of a uniform choice; nothing about quality.",
        measure,
        headline=("times_the_parameters", "f1"),
        model="the configurations kept in configs.json",
        loads=False,
        movable=False,
        figures={"serving.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="serving.py", description=__doc__, keys=__file__)
    about = f"{SOURCE}; several of them; by default all of configs.json"
    parser.add_argument("--config", nargs="+", default=None, metavar="NAME or FILE", help=about)
    parser.add_argument("--context", type=whole_number(1, MOST), default=SERVED[0], metavar="N", help="positions of each sequence")
    parser.add_argument("--batch", type=whole_number(1, MOST), default=SERVED[1], metavar="B", help="sequences at once")
    parser.add_argument("--bytes", type=whole_number(1, 8), default=2, metavar="N", help="bytes per number")
    return parser.add("plot", "json")


@command
def main(argv=None):
    """Print what models take to serve."""
    args = options().parse_args(argv)
    check_target(args.plot)
    values = {"costs": measure(args.config, args.context, args.batch, args.bytes)}
    answer(args, values, report, lambda values, path: draw(values["costs"], path))


if __name__ == "__main__":
    sys.exit(main())
