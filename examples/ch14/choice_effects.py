"""Chapter 14: what each option of the ten choices does to one shape, Llama-3-8B's, and which choices matter for serving.

    python examples/ch14/choice_effects.py
    python examples/ch14/choice_effects.py --context 2000 --batch 1

Everything else stays as it is: parameters, cache, FLOPs of a token, bytes of a decode step: counts, at two bytes per number.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch10.kv_cache import cache_bytes
from examples.ch14.configs import config_named
from examples.ch14.costs import MOST, flops_per_token
from examples.ch14.serving import SERVED, serving_row
from examples.ch14.ten_choices import BASE, OPTIONS, options_of, users
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, table, whole_number

LOADS = ((8192, 32), (8192, 1), (2000, 32), (2000, 1))  # (tokens of each sequence, sequences)
NAMED = ("attention", "feed-forward", "window", "activation")  # the choices that matter somewhere in LOADS


def option_effects(load=SERVED):
    """What each option does to Llama-3-8B's shape, everything else as it is: parameters, cache, FLOPs, memory, bytes per step.

    One row for each of OPTIONS, at `load`, (tokens of each, sequences), two bytes per number; cache_bytes: of one sequence;
    families: its takers. Raises BadInput for more tokens than the shape has positions.
    """
    base, used, rows = config_named(BASE), users(), []
    tokens, batch = load
    flops = flops_per_token(base, tokens)["total"]
    zero = serving_row(BASE, base, tokens, batch)
    for choice, option, changes in OPTIONS:
        config = replace(base, **changes)
        if options_of(config)[choice] != option:
            raise AssertionError(f"{changes} makes no {option} of {choice}, but {options_of(config)[choice]}")
        row = serving_row(BASE, config, tokens, batch)
        rows.append(
            {
                **{"choice": choice, "option": option, "families": used.get((choice, option), []), "is_base": config == base},
                **{"parameters": row["parameters"], "parameters_change": row["parameters"] - zero["parameters"]},
                "cache_bytes": cache_bytes(config, tokens, 1, 2),
                "flops_change": row["flops_per_token"] - flops,
                **{k: row[k] for k in ("kv_bytes_per_token", "flops_per_token", "memory_bytes", "step_bytes_per_token")},
            }
        )
    return rows


def ranking(rows):
    """The choices by how far apart their options are in `option_effects`, widest first: ratios, the cheapest and dearest option.

    Each ratio is that of the dearest option to the cheapest: bytes read in a decode step, bytes held, FLOPs.
    """
    found = []
    for choice in dict.fromkeys(r["choice"] for r in rows):
        mine = [r for r in rows if r["choice"] == choice]

        def ratio(key, mine=mine):
            return max(r[key] for r in mine) / min(r[key] for r in mine)

        def named(pick, mine=mine):  # all options that read as much
            at = pick(r["step_bytes_per_token"] for r in mine)
            return " = ".join(r["option"] for r in mine if r["step_bytes_per_token"] == at)

        same = ratio("step_bytes_per_token") == 1
        found.append(
            {
                **{"choice": choice, "step_ratio": ratio("step_bytes_per_token"), "memory_ratio": ratio("memory_bytes")},
                "flops_ratio": ratio("flops_per_token"),
                **{"cheapest": "all the same" if same else named(min), "dearest": "" if same else named(max)},
            }
        )
    return sorted(found, key=lambda r: -r["step_ratio"])


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(load=SERVED):
    """What each option does at `load` (positions of each sequence, sequences), in `options`; the `ranking` of the choices there;
    and in `loads` the bytes of a decode step, dearest option over cheapest, at each of LOADS.

    rest: the largest such ratio of the choices that have no name there.
    """
    effects = option_effects(load)
    rows = [
        {
            **{"choice": r["choice"], "option": r["option"] + (" (base)" if r["is_base"] else "")},
            "families": ", ".join(r["families"]) or "none of these",
            "parameters_change_millions": r["parameters_change"] / 1e6,
            "kv_kib_per_token": r["kv_bytes_per_token"] / 1024,
            "cache_mib": r["cache_bytes"] / 2**20,
            "gflop_change": r["flops_change"] / 1e9,
        }
        for r in effects
    ]
    ranks, loads = ranking(effects), []
    for tokens, batch in LOADS:
        ratios = {r["choice"]: r["step_ratio"] for r in ranking(option_effects((tokens, batch)))}
        named = {name.replace("-", "_"): ratios[name] for name in NAMED}
        rest = max(ratio for choice, ratio in ratios.items() if choice not in NAMED)
        loads.append({"positions": tokens, "sequences": batch, **named, "rest": rest, "first": max(ratios, key=ratios.get)})
    ratios = {r["choice"]: r["step_ratio"] for r in ranks}
    return {
        **{"base": BASE, "tokens": load[0], "sequences": load[1], "options": rows, "ranking": ranks, "loads": loads},
        **{place: r["choice"] for place, r in zip(("first", "second", "third"), ranks, strict=False)},
        **{f"{name.replace('-', '_')}_step_ratio": ratios[name] for name in NAMED},
        "largest_ratio_of_the_rest_but_activation": max(x for choice, x in ratios.items() if choice not in NAMED),
    }


# --------------------------------------------------------------------------------------------------------------- the tables


def report(values):
    """Text of {"effects": ...}."""
    v = values["effects"]

    def change(x, form):
        return format(x, form) if x else "0"

    shown = [
        [
            f"{r['choice']}: {r['option']}",
            change(r["parameters_change_millions"], "+,.1f" if abs(r["parameters_change_millions"]) >= 1 else "+,.3f"),
            f"{r['kv_kib_per_token']:g}",
            f"{r['cache_mib']:,.0f}",
            change(r["gflop_change"], "+.2f"),
        ]
        for r in v["options"]
    ]
    ranks = [
        [r["choice"], *(f"{r[k]:.3g}" for k in ("step_ratio", "memory_ratio", "flops_ratio"))]
        + [r[k].replace(" = ", " =\n") for k in ("cheapest", "dearest")]
        for r in v["ranking"]
    ]
    heads = ["choice: option", "parameters, 10^6", "KiB per token", "MiB per text", "GFLOP"]
    names = [name.replace("-", "_") for name in NAMED]
    loads = [
        [f"{r['positions']:,} x {r['sequences']}", *(f"{r[n]:.2f}" for n in names), f"{r['rest']:.2f}", r["first"]]
        for r in v["loads"]
    ]
    return "\n".join(
        [
            f"What one option does to {v['base']}'s shape, two bytes per number; (base): what it is.",
            f"KiB and MiB are of the cache, GFLOP of one token; a text is of {v['tokens']:,} positions.",
            "",
            table(heads, shown),
            "",
            f"The dearest option of each choice over the cheapest: {v['sequences']:,} sequences of {v['tokens']:,} positions",
            "",
            table(["choice", "bytes per step", "bytes held", "FLOPs", "cheapest option", "dearest option"], ranks),
            "",
            "Bytes per step, dearest over cheapest, by the load: positions x sequences",
            "",
            table(["load", *NAMED, "rest, at most", "first"], loads),
            "",
            f"At {v['tokens']:,} x {v['sequences']:,} {v['first']} matters most, then {v['second']} and {v['third']}.",
            f"Over these loads the first is {' or '.join(dict.fromkeys(r['first'] for r in v['loads']))}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.effects",
        "exact",
        "Attention changes a large decode step of Llama-3-8B the most, then the feed-forward network, then the window.",
        "One shape, 32 sequences of 8,192 positions at two bytes per number; what an option does to quality is not in it.",
        measure,
        headline=("attention_step_ratio", "f1"),
        model="the configurations kept in configs.json",
        loads=False,
        movable=False,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="choice_effects.py", description=__doc__, keys=__file__)
    parser.add_argument("--context", type=whole_number(1, MOST), default=SERVED[0], metavar="N", help="positions of each sequence")
    parser.add_argument("--batch", type=whole_number(1, MOST), default=SERVED[1], metavar="B", help="sequences at once")
    return parser.add("json")


@command
def main(argv=None):
    """Print what each option does, and which choices matter."""
    args = options().parse_args(argv)
    answer(args, {"effects": measure((args.context, args.batch))}, report)


if __name__ == "__main__":
    sys.exit(main())
