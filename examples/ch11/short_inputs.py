"""Chapter 11: whether short inputs and decode steps wait for the weights to be read, as chapters 4 and 10 supposed.

    python examples/ch11/short_inputs.py
    python examples/ch11/short_inputs.py --model random:gpt2 --plot short-inputs.svg      # the chapter's numbers, in two minutes

What waits for the weights has to become faster when they are in the processor's cache already, with the same arithmetic. Three
experiments take them there, or halve them: products with one matrix that fits the second-level cache, beside the same products with
so many of its size that none stays in a cache; a model whose layers share the tensors of one layer, beside one whose layers have
copies of them, so that both give the same logits; and the products once more in bfloat16, where the processor has instructions for
it. Beside them stand the whole pass and the decode step, with their bound, and with what their operators take when they have next
to nothing to do.
"""

import math
import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, require, run
from examples.ch03.tokens import random_ids
from examples.ch04.component_timing import timing_lengths
from examples.ch04.cost_model import flops_per_pass
from examples.ch10.decode_rate import filled, matrices, one_step
from examples.ch11.machine import machine_rates
from examples.ch11.operations import bound, operations, totals
from examples.ch11.verdicts import REFUTED, cache_words, in_kib, share, shown, verdict
from examples.ch11.weights_in_cache import (
    beyond_cache,
    heads_for,
    layer_bytes,
    native_bfloat16,
    one_layer_everywhere,
    rotating,
    stand_in,
)
from examples.lab.environment import caches
from examples.lab.experiment import Experiment
from examples.lab.figure import PAGE, check_target, label_ends, new_panels, plain_ticks, style, write_figure
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import in_turns

LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)
SHORT = 16  # tokens: the short input of chapter 4
RUNS = 5
PAST = 15  # positions cached before a decode step
PLACES = ("L2", "L3", "memory", "half_L2", "half_memory")  # where a product's matrix is, and of which dtype
SUPPOSED = {"L2": 2**20, "L3": 2**25}  # bytes, where the system does not tell them


# -------------------------------------------------------------------------------------------------------- the measurements


def products(lengths, sizes, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Rows {tokens, us in each place, ...} of x [T, n] @ W [n, n], by where W is when it is wanted.

    L2: always the same W, of at most six tenths of that cache; L3: of as many as fill a quarter of it; memory: of as many as
    fill `beyond_cache`. Each row's memory_percent: what waiting for W is of the excess over the FLOPs at the rate of the longest
    input in L2, and product_percent: the rest, which stays with W in L2; None of that longest input itself. past_l3_percent and
    past_l2_percent are the two steps of the way, from memory to L3 and from L3 to L2: they add up to memory_percent.
    half_*: the same in bfloat16, None where the processor has no instructions for it.
    """
    n = max(64, 64 * int(math.sqrt(0.6 * sizes["L2"] / 4) / 64))
    count = math.ceil(beyond_cache(sizes) / (4 * n * n))
    generator = torch.Generator().manual_seed(0)
    pool = [torch.randn(n, n, generator=generator) for _ in range(count)]
    half = [w.bfloat16() for w in pool] if native_bfloat16() else None
    rows, some = [], max(1, int(sizes["L3"] / 4 / (4 * n * n)))
    for T in lengths:
        x = torch.randn(T, n, generator=generator)
        calls = {"L2": rotating(x, pool[:1], count), "L3": rotating(x, pool[:some], count), "memory": rotating(x, pool, count)}
        if half:
            calls |= {"half_L2": rotating(x.bfloat16(), half[:1], count), "half_memory": rotating(x.bfloat16(), half, count)}
        seconds = {name: s / count for name, s in in_turns(calls, runs, timer, progress).items()}
        times = {f"{name}_us": 1e6 * seconds[name] if name in seconds else None for name in PLACES}
        rows.append({"tokens": T, "flops": 2 * T * n * n, **times})
    rate = rows[-1]["flops"] / rows[-1]["L2_us"]  # FLOPs per us
    for r in rows:
        excess, waits = r["memory_us"] - r["flops"] / rate, r["memory_us"] - r["L2_us"]
        r["excess_us"] = excess
        whole = excess if r is not rows[-1] else 0.0  # which has its own rate, so that all of its excess would be memory's
        parts = {
            "memory": waits,
            "past_l3": r["memory_us"] - r["L3_us"],
            "past_l2": r["L3_us"] - r["L2_us"],
            "product": excess - waits,
        }
        r |= {f"{name}_percent": share(part, whole) for name, part in parts.items()}
        r |= {f"{place}_gflop_per_s": r["flops"] / r[f"{place}_us"] / 1e3 for place in ("L2", "L3", "memory")}
        r["saved_by_cache_percent"] = 100 * (1 - r["L2_us"] / r["memory_us"])
        r["saved_by_half_percent"] = 100 * (1 - r["half_memory_us"] / r["memory_us"]) if half else None
        r["saved_by_half_in_cache_percent"] = 100 * (1 - r["half_L2_us"] / r["L2_us"]) if half else None
    return {"width": n, "matrix_bytes": 4 * n * n, "matrices": count, "rows": rows}


def shared_layers(model, lengths, sizes, width=None, layers=None, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Rows {tokens, copied_ms, shared_ms, bare_ms, ...} of passes over T tokens of a narrower model, by how it holds its weights.

    width: by default the widest, a multiple of 64, whose layer fills no more than four tenths of the third-level cache; layers: as
    many as fill `beyond_cache` when copied. bare_ms: of a model of as many layers, as narrow as its heads allow, the operators' own
    overhead. Of the copied pass's excess over the FLOPs at the rate of the longest shared one: memory_percent, overhead_percent and
    rest_percent, products at few rows and the reading of L3 itself; None of the longest. same_logits: to the last bit.
    """
    width = width or max(64, 64 * int(math.sqrt(0.4 * sizes["L3"] / 48) / 64))  # 12 d^2 numbers of 4 bytes
    base = stand_in(model, width, 1, heads_for(width))
    layers = layers or math.ceil(beyond_cache(sizes) / layer_bytes(base))
    base = stand_in(model, width, layers, heads_for(width))
    copied, shared = one_layer_everywhere(base, True), one_layer_everywhere(base, False)
    bare, rows, same = stand_in(model, base.config.n_head, layers, base.config.n_head), [], True
    for T in lengths:
        ids = random_ids(base, T)
        same = same and torch.equal(run(copied, ids), run(shared, ids))
        models = {"copied": copied, "shared": shared, "bare": bare}
        calls = {name: lambda m=m, ids=ids: run(m, ids) for name, m in models.items()}
        seconds = in_turns(calls, runs, timer, progress)
        flops = flops_per_pass(base.config, T)["total"]
        rows.append({"tokens": T, "flops": flops, **{f"{name}_ms": 1e3 * s for name, s in seconds.items()}})
    rate = rows[-1]["flops"] / rows[-1]["shared_ms"]
    for r in rows:
        excess = r["copied_ms"] - r["flops"] / rate
        parts = {"memory": r["copied_ms"] - r["shared_ms"], "overhead": r["bare_ms"]}
        parts["rest"] = excess - sum(parts.values())
        whole = excess if r is not rows[-1] else 0.0
        r |= {"excess_ms": excess} | {f"{name}_percent": share(part, whole) for name, part in parts.items()}
        r["saved_by_cache_percent"] = 100 * (1 - r["shared_ms"] / r["copied_ms"])
    return {"width": width, "layers": layers, "layer_bytes": layer_bytes(base), "same_logits": same, "rows": rows}


def whole_passes(model, lengths, rates, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Rows {tokens, ms, bound_ms, ...} of passes over T tokens of the model itself, beside the least time that the rates allow.

    weights_ms: to read every weight once; arithmetic_ms: FLOPs at the rate of the longest pass. at_most_memory_percent: what
    reading would be of the excess over the arithmetic if none of it happened while something was computed.
    """
    rows = []
    for T in lengths:
        ids, c = random_ids(model, T), model.config
        work = totals(operations(c, T))
        seconds = in_turns({"pass": lambda ids=ids: run(model, ids)}, runs, timer, progress)["pass"]
        least = bound(work["flops"], work["weight_bytes"], rates["flop_per_s"], rates["bytes_per_s"])
        rows.append(
            {
                "tokens": T,
                "flops": work["flops"],
                "ms": 1e3 * seconds,
                "gflop_per_s": work["flops"] / seconds / 1e9,
                "weights_ms": 1e3 * least["memory_s"],
                "bound_ms": 1e3 * least["seconds"],
                "limit": least["limit"],
                "over_bound": seconds / least["seconds"],
            }
        )
    rate = rows[-1]["flops"] / rows[-1]["ms"]
    for r in rows:
        r["arithmetic_ms"] = r["flops"] / rate
        r["excess_ms"] = r["ms"] - r["arithmetic_ms"]
        most = share(r["weights_ms"], r["excess_ms"])
        r["at_most_memory_percent"] = None if most is None else min(100.0, most)
    return rows


def decode_step(model, rates, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """A step of one token behind `PAST` cached ones, beside the floor and the overhead of its operators.

    floor_ms: every matrix times a vector; weights_ms: their bytes at the bandwidth; bare_ms: the same step of a model with as many
    layers and heads that is as narrow as can be. over_floor_ms is what remains above the floor; overhead_percent is bare_ms of it.
    """
    c = model.config
    bare = stand_in(model, c.n_head, c.n_layer, c.n_head)
    pairs = [(w, torch.randn(w.shape[1])) for w in matrices(model)]

    def floor():
        for w, x in pairs:
            torch.mv(w, x)

    calls = {
        "step": one_step(model, filled(model, 1, PAST), random_ids(model, 1), PAST),
        "bare": one_step(bare, filled(bare, 1, PAST), random_ids(bare, 1), PAST),
        "floor": floor,
    }
    seconds = in_turns(calls, 3 * runs, timer, progress)
    read, over = sum(w.nbytes for w, _ in pairs) / rates["bytes_per_s"], seconds["step"] - seconds["floor"]
    return {
        **{f"{name}_ms": 1e3 * s for name, s in seconds.items()},
        "weights_ms": 1e3 * read,
        "floor_percent": 100 * seconds["floor"] / seconds["step"],
        "weights_percent": 100 * read / seconds["step"],
        "over_floor_ms": 1e3 * over,
        "overhead_percent": share(seconds["bare"], over),
    }


def measure(model, lengths=None, runs=RUNS, width=None, layers=None, timer=time.perf_counter, progress=lambda: None):
    """All four: `passes`, `products`, `layers` and `decode`, and `verdicts`, each with the percentage that it rests on.

    short_inputs: of the products at `SHORT` tokens, or the length nearest to it, memory_percent. weights_bound: floor_percent of
    the decode step, but refuted where a product of one token takes as long with its matrix in the cache, so that it does not
    wait for memory. overhead: overhead_percent of the step. Raises BadInput for a length that the model does not have.
    """
    lengths, known = timing_lengths(model.config, lengths, LENGTHS), caches()
    sizes, rates = SUPPOSED | known, machine_rates(runs, timer)
    found = {
        "runs": runs,
        "caches_kib": in_kib(known),
        **rates,
        "passes": whole_passes(model, lengths, rates, runs, timer, progress),
        "products": products(lengths, sizes, runs, timer, progress),
        "layers": shared_layers(model, lengths, sizes, width, layers, runs, timer, progress),
        "decode": decode_step(model, rates, runs, timer, progress),
    }
    short = min(lengths, key=lambda T: abs(T - SHORT))
    at = {name: next(r for r in rows if r["tokens"] == short) for name, rows in _rows(found).items()}
    goes = found["products"]["rows"][0]["saved_by_cache_percent"]
    rests = {
        "short_inputs": at["products"]["memory_percent"],
        "weights_bound": found["decode"]["floor_percent"] if goes >= REFUTED else 0.0,
        "overhead": found["decode"]["overhead_percent"],
    }
    verdicts = [{"hypothesis": name, "percent": p, "verdict": verdict(p)} for name, p in rests.items()]
    return found | {"short": short, "short_inputs_percent": rests["short_inputs"], "verdicts": verdicts}


def _rows(found):
    return {"passes": found["passes"], "products": found["products"]["rows"], "layers": found["layers"]["rows"]}


# ---------------------------------------------------------------------------------------------------- the tables, the figure

HYPOTHESES = {
    "short_inputs": (
        "of a short product's excess over its FLOPs goes when its matrix is in L2.",
        "That short inputs wait for weights",
    ),
    "weights_bound": ("of a decode step is the floor of its matrices.", "That it is bound by reading weights"),
    "overhead": ("of what is above the floor is what idle operators take.", "That all of it is their overhead"),
}


def report(values):
    """Text of {"short-inputs": ...}."""
    v = values["short-inputs"]
    sizes = cache_words(v["caches_kib"])
    p, s, d = v["products"], v["layers"], v["decode"]
    return "\n".join(
        [
            f"Medians of {v['runs']} runs in turn after the first; caches in KiB: {sizes}.",
            f"The machine: {v['flop_per_s'] / 1e9:.0f} GFLOP/s in a product, {v['bytes_per_s'] / 1e9:.1f} GB/s of weights.",
            "",
            table(
                ["tokens", "pass ms", "GFLOP/s", "weights ms", "bound ms", "limit", "over it", "of excess"],
                [
                    [
                        f"{r['tokens']:,}",
                        f"{r['ms']:.2f}",
                        f"{r['gflop_per_s']:.1f}",
                        f"{r['weights_ms']:.2f}",
                        f"{r['bound_ms']:.2f}",
                        r["limit"],
                        f"{r['over_bound']:.1f}",
                        "n/a" if (most := r["at_most_memory_percent"]) is None else f"<= {most:.0f}%",
                    ]
                    for r in v["passes"]
                ],
            ),
            "",
            f"Products with matrices of {p['width']} x {p['width']}, {p['matrix_bytes'] // 1024:,} KiB each, of which "
            f"{p['matrices']:,} lie in memory:",
            "",
            table(
                ["tokens", "us: in L2", "in L3", "in memory", "GFLOP/s: in L2", "in L3", "in memory"],
                [
                    [
                        f"{r['tokens']:,}",
                        *(f"{r[f'{place}_us']:.0f}" for place in PLACES[:3]),
                        *(f"{r[f'{place}_gflop_per_s']:.0f}" for place in PLACES[:3]),
                    ]
                    for r in p["rows"]
                ],
            ),
            "",
            "Parts of the excess of a product from memory, and what bfloat16 saves of its time:",
            "",
            table(
                ["tokens", "excess us", "memory to L3", "L3 to L2", "product", "half saves", "in L2"],
                [
                    [
                        f"{r['tokens']:,}",
                        f"{r['excess_us']:.0f}",
                        *(
                            shown(r[f"{name}_percent"])
                            for name in ("past_l3", "past_l2", "product", "saved_by_half", "saved_by_half_in_cache")
                        ),
                    ]
                    for r in p["rows"]
                ],
            ),
            "",
            f"Passes of {counted(s['layers'], 'layer')} of width {s['width']:,}, {s['layer_bytes'] / 2**20:.1f} MiB each; "
            f"the logits are {'the same' if s['same_logits'] else 'NOT THE SAME'}:",
            "",
            table(
                ["tokens", "copies ms", "shared ms", "L3 saves", "idle ms", "memory's", "idle's", "rest"],
                [
                    [
                        f"{r['tokens']:,}",
                        f"{r['copied_ms']:.2f}",
                        f"{r['shared_ms']:.2f}",
                        f"{r['saved_by_cache_percent']:.0f}%",
                        f"{r['bare_ms']:.2f}",
                        *(shown(r[f"{name}_percent"]) for name in ("memory", "overhead", "rest")),
                    ]
                    for r in s["rows"]
                ],
            ),
            "",
            f"A decode step takes {d['step_ms']:.2f} ms; its matrices times a vector {d['floor_ms']:.2f}, idle operators "
            f"{d['bare_ms']:.2f}.",
            *(
                f"{shown(x['percent'])} {said}\n  {hypothesis} is {x['verdict']}."
                for x in v["verdicts"]
                for said, hypothesis in [HYPOTHESES[x["hypothesis"]]]
            ),
        ]
    )


def draw(values, path):
    """Against tokens: GFLOP/s of a product by where its matrix is; a pass's time beside its bound. From what `measure` returns."""
    figure, (left, right) = new_panels(1, 2, (PAGE, 3.6))
    from matplotlib.ticker import LogLocator

    rows = values["products"]["rows"]
    for i, (place, name) in enumerate((("L2", "in L2"), ("L3", "in L3"), ("memory", "in memory"))):
        left.plot([r["tokens"] for r in rows], [r[f"{place}_gflop_per_s"] for r in rows], label=name, **style(i))
    left.set(title="A product, by its matrix", xlabel="tokens", ylabel="GFLOP/s")
    passes = values["passes"]
    for i, (key, name) in enumerate((("ms", "measured"), ("bound_ms", "bound"))):
        right.plot([r["tokens"] for r in passes], [r[key] for r in passes], label=name, **style(i))
    right.set_yscale("log")
    right.set(title="A pass", xlabel="tokens", ylabel="ms")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        plain_ticks(axes.xaxis)
    right.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    plain_ticks(right.yaxis)
    left.set_ylim(bottom=0)
    for axes in (left, right):
        label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.short-inputs",
        "timing",
        "A product of 16 tokens is slow mainly because it waits for its weights: with them in L2 most of its excess goes.",
        "One thread of one processor, float32; a cache may be shared with other programs, and the product's own way of copying its "
        "matrix is not taken apart. A model as narrow as its heads allow stands for operators that have nothing to do.",
        measure,
        headline=("short_inputs_percent", "pct0"),
        model="random:gpt2",
        movable=False,
        seconds=90,
        figures={"short-inputs.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="short_inputs.py", description=__doc__, keys=__file__)
    about = f"by default {','.join(map(str, LENGTHS))}, as far as the model reaches"
    parser.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    about = "of the narrower model; by default what the third-level cache asks for"
    parser.add_argument("--width", type=whole_number(64, 4096), default=None, metavar="D", help=about)
    parser.add_argument("--layers", type=whole_number(1, 512), default=None, metavar="L", help=about)
    return parser.add("model", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print whether short inputs wait for weights."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    require(model.config, "gpt2", "the test of short inputs")
    with torch.inference_mode(), progress_bar("call") as bar:
        values = {"short-inputs": measure(model, args.tokens, args.runs, args.width, args.layers, progress=bar.update)}
    head = f"{args.model}: float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["short-inputs"], path))


if __name__ == "__main__":
    sys.exit(main())
