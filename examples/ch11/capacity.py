"""Chapter 11: how many sequences a machine holds beside the weights, how fast it can decode them, and what limits either.

    python examples/ch11/capacity.py
    python examples/ch11/capacity.py --config llama-3-70b --devices 8 --context 8192 --plot c.svg
    python examples/ch11/capacity.py --memory 24 --bandwidth 100 --peak 2.5 --dtype q4
    python examples/ch11/capacity.py --all           # several models beside every machine

Counts and a data sheet; nothing runs. A step feeds one token of every sequence, and moves the least bytes: the weights, once, and
every sequence's keys and values. Its time is `pass_bound` of `operations.py`: operations run one after the other, and each takes as
long as its FLOPs or its bytes need, whichever is longer. What limits a step is told by the FLOPs of the whole for each of its
bytes, beside the machine's ridge. A real step moves more and takes longer: these are bounds.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.families import formulas
from examples.ch02.model import load_config
from examples.ch10.cache_memory import GPT3
from examples.ch10.kv_cache import cache_bytes
from examples.ch11.accelerators import accelerator, accelerators
from examples.ch11.operations import bound, operations, pass_bound, totals
from examples.lab.experiment import Experiment
from examples.lab.figure import BLACK, PAGE, check_target, label_ends, new_panels, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, positive_number, table, whole_number

DTYPES = {  # bytes of a stored weight, and of a number in the cache and in the arithmetic
    **{"float32": (4, 4), "float16": (2, 2), "bfloat16": (2, 2)},
    "int8": (1, 2),  # its scales are not counted
    "q4": (18 / 32, 2),  # 32 weights of 4 bits with a scale of 16: 4.5 bits each
}
CONFIG, CHIP, CONTEXT, DTYPE = "llama-3-8b", "h100", 2048, "bfloat16"
MOST = 2**20  # sequences up to which a limit is looked for
TABLE = (  # config, dtype
    *(("gpt2-xl", "bfloat16"), ("llama-2-7b", "bfloat16"), ("llama-3-8b", "bfloat16"), ("llama-3-8b", "q4")),
    *(("llama-3-70b", "bfloat16"), ("llama-3-70b", "q4"), ("GPT-3", "bfloat16")),
)
LINE = 2001  # positions that the token of the published trace attends over: 2,000 cached and itself
RATE_OF = {"memory": "its bandwidth", "arithmetic": "arithmetic"}  # what a limit of a rate is called
RATES = ("peak_tflop_per_s", "bandwidth_gb_per_s", "memory_gb", "ridge_flop_per_byte")

# ------------------------------------------------------------------------------------------------------- the computation


def named(source):
    """The config of GPT-3's shape, of a published shape, of embedded, of a folder or of a config.json; raises BadInput."""
    return GPT3 if str(source).upper() in ("GPT-3", "GPT3") else load_config(source)


def machine(name=CHIP, dtype=DTYPE, devices=1, memory=None, bandwidth=None, peak=None) -> dict:
    """{accelerator, devices, memory_bytes, bytes_per_s, flop_per_s} of `devices` accelerators of that name, summed up.

    memory, bandwidth, peak: bytes, bytes/s and FLOP/s of one device, in the place of the sheet's; where all three are given the
    name may be None. In float32 the sheet's peak is that of float32; weights of 8 or 4 bits are multiplied in 16. accelerator: its
    name, None where anything is not the sheet's. Raises BadInput for a name that is not known.
    """
    given = {"memory_bytes": memory, "bytes_per_s": bandwidth, "flop_per_s": peak}
    sheet = {} if name is None else accelerator(name)
    if sheet and dtype == "float32":
        sheet = sheet | {"flop_per_s": sheet["float32_flop_per_s"]}
    rates = {key: devices * (sheet[key] if value is None else value) for key, value in given.items()}
    return {"accelerator": sheet["name"] if set(given.values()) == {None} else None, "devices": devices, **rates}


def rates_of(chip) -> dict:
    """RATES of what `machine` returns: its rates and memory in the data sheets' units, and the ridge, FLOP/s over bytes/s."""
    of = (
        chip["flop_per_s"] / 1e12,
        chip["bytes_per_s"] / 1e9,
        chip["memory_bytes"] / 1e9,
        chip["flop_per_s"] / chip["bytes_per_s"],
    )
    return dict(zip(RATES, of, strict=True))


def held(config, context, dtype=DTYPE):
    """(bytes of all weights, bytes of one sequence's cache of `context` positions)."""
    weight, number = DTYPES[dtype]
    return formulas(config).parameter_count(config)["total"] * weight, cache_bytes(config, context, 1, number)


def sequences_that_fit(config, context, memory_bytes, dtype=DTYPE):
    """Sequences of `context` positions whose caches fit into the memory beside all weights; -1 where not even those fit."""
    weights, cache = held(config, context, dtype)
    return math.floor((memory_bytes - weights) / cache) if memory_bytes >= weights else -1


def decode_rows(config, context, batch, dtype=DTYPE):
    """`operations` of a decode step of `batch` sequences whose new token attends over `context` positions, itself included."""
    weight, number = DTYPES[dtype]
    return operations(config, 1, context - 1, batch, number, weight)


def step(config, context, batch, chip, dtype=DTYPE):
    """{batch, step_ms, tokens_per_s, each_per_s, weight_gb, cache_gb, flop_per_byte, limit} of one decode step.

    each_per_s: tokens per second of one sequence. limit: arithmetic where flop_per_byte is above the ridge of `chip`.
    """
    rows = decode_rows(config, context, batch, dtype)
    seconds, moved = pass_bound(rows, chip, "least_bytes")["seconds"], totals(rows)
    whole = bound(moved["flops"], moved["least_bytes"], chip["flop_per_s"], chip["bytes_per_s"])
    return {
        **{"batch": batch, "step_ms": 1e3 * seconds, "tokens_per_s": batch / seconds, "each_per_s": 1 / seconds},
        **{"weight_gb": moved["weight_bytes"] / 1e9, "cache_gb": moved["cache_bytes"] / 1e9},
        **{"flop_per_byte": moved["flops"] / moved["least_bytes"], "limit": whole["limit"]},
    }


def first(condition, low=1, high=MOST):
    """The smallest whole number from `low` to `high` from which on `condition` holds; None where it does not hold at `high`."""
    if not condition(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if condition(middle) else (middle + 1, high)
    return low


def limits(config, context, chip, dtype=DTYPE):
    """Where what limits a decode step changes from memory to arithmetic: a number, or None where it never does.

    weights_arithmetic_from: sequences from which a feed-forward matrix waits for arithmetic; arithmetic_from: from which the whole
    step does. most_flop_per_byte: FLOPs of a token for each byte of its own cache, which the whole step nears with many sequences.
    arithmetic_up_to: the longest context at which some number of sequences makes arithmetic the limit.
    """

    def of_many(context):
        one, two = (totals(decode_rows(config, context, n, dtype)) for n in (1, 2))
        return (two["flops"] - one["flops"]) / (two["cache_bytes"] - one["cache_bytes"])

    def matrix_waits(batch):
        row = next(r for r in decode_rows(config, context, batch, dtype) if r["operation"] == "feed-forward in")
        return bound(row["flops"], row["weight_bytes"], chip["flop_per_s"], chip["bytes_per_s"])["limit"] == "arithmetic"

    ridge = rates_of(chip)["ridge_flop_per_byte"]
    beyond = first(lambda n: of_many(n) <= ridge, 2, config.n_positions)
    return {
        "weights_arithmetic_from": first(matrix_waits),
        "arithmetic_from": first(lambda n: step(config, context, n, chip, dtype)["limit"] == "arithmetic"),
        "most_flop_per_byte": of_many(context),
        "arithmetic_up_to": config.n_positions if beyond is None else beyond - 1 if beyond > 2 else None,
    }


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(name=CONFIG, chip=None, context=CONTEXT, dtype=DTYPE):
    """What a machine holds and how fast it decodes: `step` for each of several batches, `limits`, RATES; chip: as of `machine`.

    sequences: how many fit; batches: powers of two to twice as many, and that number. caches_outweigh_from: the fewest whose caches
    are more bytes than all weights. gain: tokens per second of all that fit over those of one alone. Raises BadInput for a context
    that the config does not have, and for a memory without room for the weights and one sequence.
    """
    config, chip = named(name), chip or machine(dtype=dtype)
    if not 2 <= context <= config.n_positions:
        raise BadInput(
            f"a context of {context:,} is not within 2 to the {config.n_positions:,} positions of {name}; give one that is"
        )
    weights, cache = held(config, context, dtype)
    fit = sequences_that_fit(config, context, chip["memory_bytes"], dtype)
    if fit < 1:
        what = f"the weights of {name} take {_gb(weights)} in {dtype}"
        what += f" and a sequence of {context:,} {_gb(cache)}" if fit == 0 else ""
        raise BadInput(f"{what}, more than the memory of {_gb(chip['memory_bytes'])}; give more of it, or a smaller --dtype")
    top = max(8, 2 ** math.ceil(math.log2(2 * fit)))
    batches = sorted({fit, *(2**i for i in range(top.bit_length()))})
    rows = [{**step(config, context, n, chip, dtype), "fits": n <= fit} for n in batches]
    one, full = rows[0], next(r for r in rows if r["batch"] == fit)
    return {
        **{"config": name, "context": context, "dtype": dtype, "accelerator": chip["accelerator"], "devices": chip["devices"]},
        **rates_of(chip),
        **{"weights_gb": weights / 1e9, "cache_gb_each": cache / 1e9, "sequences": fit},
        "caches_outweigh_from": math.floor(weights / cache) + 1,
        **limits(config, context, chip, dtype),
        **{"one_per_s": one["tokens_per_s"], "most_per_s": full["tokens_per_s"]},
        **{"gain": full["tokens_per_s"] / one["tokens_per_s"], "limit": full["limit"]},
        "batches": rows,
    }


def measure_all():
    """`measure` of the defaults; `line`; `machines`, the data sheets; and `models`, each of TABLE on each machine.

    A row of `models` has CONTEXT positions, or as many as the config has: how many sequences fit, 0 where not one does, and tokens
    per second of one and of all of them, None where none fits.
    """
    models = []
    for short in accelerators():
        chip = machine(short)
        for name, dtype in TABLE:
            config = named(name)
            context = min(CONTEXT, config.n_positions)
            fit = max(0, sequences_that_fit(config, context, chip["memory_bytes"], dtype))
            one, full = (step(config, context, n, chip, dtype) if n else {} for n in (min(1, fit), fit))
            rates = {"one_per_s": one.get("tokens_per_s"), "most_per_s": full.get("tokens_per_s"), "limit": full.get("limit")}
            models.append(
                {"accelerator": chip["accelerator"], "config": name, "dtype": dtype, "context": context, "sequences": fit, **rates}
            )
    machines = [{"accelerator": sheet["name"], **rates_of(machine(short))} for short, sheet in accelerators().items()]
    return {**measure(), "line": line(), "machines": machines, "models": models}


def line(name=CONFIG, context=LINE):
    """The published line: FLOPs and least bytes of one new token in 16 bits, and the time that an H100's peaks allow for each."""
    moved, chip = totals(decode_rows(named(name), context, 1)), machine()
    found = bound(moved["flops"], moved["least_bytes"], chip["flop_per_s"], chip["bytes_per_s"])
    return {
        **{"config": name, "context": context, "gflop": moved["flops"] / 1e9, "weight_gb": moved["weight_bytes"] / 1e9},
        **{"cache_gb": moved["cache_bytes"] / 1e9, "gb": moved["least_bytes"] / 1e9},
        **{"compute_ms": 1e3 * found["compute_s"], "memory_ms": 1e3 * found["memory_s"]},
        "memory_over_compute": found["memory_s"] / found["compute_s"],
    }


# ---------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"capacity": ...}."""
    v = values["capacity"]
    many = (f"{v['devices']} of " if v["devices"] > 1 else "") + (v["accelerator"] or "a machine of these rates")
    peak, bandwidth, memory, ridge = (v[key] for key in RATES)
    rows = [
        [
            *(f"{r['batch']:,}", f"{r['step_ms']:,.3g}", _rate(r["tokens_per_s"]), _rate(r["each_per_s"])),
            *(
                f"{r['weight_gb']:,.3g}",
                f"{r['cache_gb']:,.3g}",
                f"{r['flop_per_byte']:.3g}",
                r["limit"],
                "yes" if r["fits"] else "no",
            ),
        ]
        for r in v["batches"]
    ]
    text = [
        f"{v['config']} in {v['dtype']} on {many}: {peak:,.4g} TFLOP/s, {bandwidth:,.5g} GB/s, {memory:,.4g} GB,",
        f"ridge {ridge:,.3g} FLOPs a byte. The weights take {_gb(1e9 * v['weights_gb'])}, and the cache of a sequence",
        f"of {v['context']:,} positions {_gb(1e9 * v['cache_gb_each'])}. A step reads, in GB:",
        "",
        table(["sequences", "step, ms", "tokens/s", "each", "weights", "caches", "FLOPs a byte", "limit", "fits"], rows),
        "",
        *_said(v),
    ]
    if "models" in v:
        text += ["", *_report_all(v)]
    if v["sequences"] == 1:
        end = f"The one sequence that fits decodes {_rate(v['most_per_s'])} tokens/s at best, and {v['limit']} is its limit."
    else:
        end = (
            f"The {v['sequences']:,} sequences that fit decode {_rate(v['most_per_s'])} tokens/s at best, "
            f"{v['gain']:,.3g} times one alone.\n"
            f"Their number is limited by the memory's size, and their rate by {RATE_OF[v['limit']]}."
        )
    return "\n".join([*text, "", end])


def _said(v):
    """Lines: where what limits a step changes."""
    fit, one, whole, context = (v[key] for key in ("sequences", "weights_arithmetic_from", "arithmetic_from", "arithmetic_up_to"))

    def waits(number):
        return "memory at any number" if number is None else f"arithmetic from {counted(number, 'sequence')} on"

    return [
        f"{counted(fit, 'sequence')} fit{'s' if fit == 1 else ''}. "
        f"From {v['caches_outweigh_from']:,} on the caches are larger than the weights.",
        f"A feed-forward matrix waits for {waits(one)}; the whole step for",
        f"{waits(whole)}: with many, a token earns {v['most_flop_per_byte']:.3g} FLOPs a byte of its own cache.",
        "Arithmetic would limit no number of sequences at any context."
        if context is None
        else f"Up to a context of {context:,} arithmetic would limit a large enough number of sequences.",
    ]


def _report_all(v):
    """Lines: the data sheets, each config beside each machine, and the published line."""
    chips = [m["accelerator"] for m in v["machines"]]
    sheets = [[m["accelerator"], *(f"{m[key]:,.4g}" for key in RATES)] for m in v["machines"]]
    cells = {(r["config"], r["dtype"], r["accelerator"]): r for r in v["models"]}

    def cell(r):
        return f"{r['sequences']:,}: {_rate(r['most_per_s'])}" if r["sequences"] else "-"

    grid = [[f"{config}, {dtype}", *(cell(cells[config, dtype, chip]) for chip in chips)] for config, dtype in TABLE]
    found = v["line"]
    return [
        table(["data sheet", "TFLOP/s", "GB/s", "GB", "FLOPs a byte"], sheets),
        "",
        f"How many sequences of {CONTEXT:,} positions, or of all there are, fit: tokens/s of all of them at best",
        "",
        table(["", *chips], grid),
        "",
        f"One token of {found['config']} behind {found['context'] - 1:,} cached on an H100: {found['gflop']:.2f} GFLOP in "
        f"{found['compute_ms']:.3f} ms,",
        f"{found['gb']:.2f} GB in {found['memory_ms']:.2f} ms, {found['memory_over_compute']:.0f} times as long.",
    ]


def _rate(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def _gb(count):
    return f"{count / 1e9:,.4g} GB" if count < 1e13 else f"{count / 1e12:,.4g} TB"


def draw(values, path):
    """Tokens per second of all sequences, and of each, against how many there are; from what `measure` returns."""
    figure, panels = new_panels(2, 1, (PAGE, 5.6), sharex=True)
    rows, fit, bandwidth = values["batches"], values["sequences"], values["bandwidth_gb_per_s"]
    for axes, of_all in zip(panels, (True, False), strict=True):
        y = [r["tokens_per_s"] if of_all else r["each_per_s"] for r in rows]
        low, high = min(y) / 1.6, max(y) * 2.2
        n = [r["batch"] for r in rows]
        held = sum(r["fits"] for r in rows)
        axes.loglog(n[:held], y[:held], label="_", **style(0))
        axes.loglog(n, y, label="the bound", **style(0) | {"marker": "", "linestyle": ":"})
        for i, (name, gb) in enumerate(
            (("if weights alone\nwere read", "weight_gb"), ("if caches alone\nwere read", "cache_gb")), 1
        ):
            points = [(r["batch"], bandwidth / r[gb] * (r["batch"] if of_all else 1)) for r in rows]
            shown = [(x, rate) for x, rate in points if low < rate < high]
            if shown:
                axes.loglog(*zip(*shown, strict=True), label=name, **style(i) | {"marker": "", "linewidth": 1.1})
        axes.axvline(fit, color=BLACK, linewidth=0.8, label="_")
        axes.set_ylim(low, high)
        axes.set_xticks([4**k for k in range(12) if 4**k <= max(n)])
        axes.set_yticks([x for k in range(-6, 9) for x in (1 * 10**k, 2 * 10**k, 5 * 10**k) if low < x < high])
        axes.minorticks_off()
        plain_ticks(axes.xaxis, axes.yaxis)
    look = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "ha": "right", "va": "bottom"}
    panels[1].annotate(f"{fit:,} fit", (fit, 0), (-4, 4), **look)
    many = f"{values['devices']} x " if values["devices"] > 1 else ""
    title = f"{values['config']}, {values['dtype']}, {values['context']:,} positions; {many}{values['accelerator'] or 'a machine'}"
    panels[0].set(ylabel="tokens/s of all", title=title)
    panels[1].set(ylabel="tokens/s of each", xlabel="sequences at once")
    for axes in panels:
        label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.capacity",
        "exact",
        "At 2,048 positions no number of sequences makes arithmetic the limit of Llama-3-8B's decode step on an H100.",
        "Bounds from data sheets' peaks over weights and caches; every sequence at the full context; one device; nothing was run.",
        measure_all,
        headline=("sequences", "int"),
        model="published shapes (their configs; no weights)",
        loads=False,
        movable=False,
        figures={"capacity.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="capacity.py", description=__doc__, keys=__file__)
    about = "GPT-3, a published shape as gpt2 or llama-3-8b, embedded, a folder or a config.json"
    parser.add_argument("--config", default=CONFIG, metavar="NAME or FILE", help=about)
    about = f"{', '.join(accelerators())}; by default {CHIP}, where memory, bandwidth and peak are not all given"
    parser.add_argument("--accelerator", default=None, metavar="NAME", help=about)
    parser.add_argument(
        "--memory", type=positive_number, default=None, metavar="GB", help="10^9 bytes of a device, not the sheet's"
    )
    parser.add_argument("--bandwidth", type=positive_number, default=None, metavar="GB/S", help="10^9 bytes per second, likewise")
    parser.add_argument("--peak", type=positive_number, default=None, metavar="TFLOP/S", help="10^12 FLOPs per second, likewise")
    about = "as if they were one with the sum of memory, bandwidth and peak"
    parser.add_argument("--devices", type=whole_number(1, 10**5), default=1, metavar="N", help=about)
    about = "positions that the new token attends over, itself included"
    parser.add_argument("--context", type=whole_number(1, 10**9), default=CONTEXT, metavar="N", help=about)
    parser.add_argument(
        "--dtype", choices=list(DTYPES), default=DTYPE, help="of weights; the cache has 16 bits, or float32 with it"
    )
    parser.add_argument("--all", action="store_true", help="several models beside every machine as well")
    return parser.add("plot", "json")


@command
def main(argv=None):
    """Print what a machine holds and how fast it can decode."""
    args = options().parse_args(argv)
    check_target(args.plot)
    given = [None if x is None else x * unit for x, unit in ((args.memory, 1e9), (args.bandwidth, 1e9), (args.peak, 1e12))]
    name = args.accelerator or (CHIP if None in given else None)
    found = measure(args.config, machine(name, args.dtype, args.devices, *given), args.context, args.dtype)
    values = {"capacity": measure_all() | found if args.all else found}
    answer(args, values, report, lambda values, path: draw(values["capacity"], path))


if __name__ == "__main__":
    sys.exit(main())
