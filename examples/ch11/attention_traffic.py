"""Chapter 11: whether attention's excess time over its FLOPs is memory traffic, as chapter 4 supposed, and what else it is.

    python examples/ch11/attention_traffic.py
    python examples/ch11/attention_traffic.py --model random:gpt2 --plot attention.svg   # the chapter's numbers, in a minute

One layer's attention is taken apart. Its excess is the time of scores, mask, softmax and values beyond what their FLOPs would take
at the rate of the projections. Each of the four is timed as chapter 4 has it; with results in memory that is kept; and on a block
so small that it stays in the cache, repeated until the same number of scores is done. From the first to the second is the price of
memory that the system has to hand out anew, from the second to the third that of traffic. What is left in the cache is arithmetic:
mask and softmax, which count no FLOPs, and products that run at another rate. The four causes add up to the excess.
"""

import sys
import time
from mmap import PAGESIZE
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, require
from examples.ch04.component_timing import timing_lengths
from examples.ch04.gpt2_from_scratch import attention, attention_scale, causal_mask, linear, no_trace
from examples.ch11.attention_ways import BLOCK, Kept, hide, new_mix, new_scores, on_block, ways
from examples.ch11.verdicts import cache_words, in_kib, share, shown, verdict
from examples.lab.environment import caches
from examples.lab.experiment import Experiment, largest, relative
from examples.lab.figure import check_target, label_ends, new_figure, plain_ticks, style, write_figure
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import in_turns

LENGTHS = (64, 128, 256, 512, 768, 896, 1024)
RUNS = 7
PIECES = ("scores", "mask", "softmax", "values")
CAUSES = ("fresh_memory", "traffic", "element_wise", "product_rate")
WITHIN = 1e-5  # of the largest value: a way that differs by more from chapter 4's is not timed


def faults_of(function):
    """Pages that the system has to hand out anew while function() runs; None where it does not count them."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return None
    before = getrusage(RUSAGE_SELF).ru_minflt
    function()
    return getrusage(RUSAGE_SELF).ru_minflt - before


def settle_allocator():
    """Free one block of 31 MiB, after which glibc keeps freed blocks up to that size, as in a program that has run for a while.

    It takes anything above 32 MiB from the system anew each time, and what it keeps below depends on what was freed before.
    """
    torch.empty(31 * 2**18).fill_(0)


# --------------------------------------------------------------------------------------------------------- the measurement


def one_length(model, tokens, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """(row of the length, rows of its pieces, rows of the ways) of the first layer's attention over `tokens` positions.

    The ways are compared with `plain`, and `plain` with chapter 4's attention, before any of them is timed.
    """
    c, T = model.config, tokens
    x, mask = torch.randn(1, T, c.n_embd, generator=torch.Generator().manual_seed(seed)), causal_mask(T, T)
    scale, names = attention_scale(c, 0), ("h.0.attn.c_attn", "h.0.attn.c_proj")
    qkv = linear(x, model.weights, names[0])  # [1, T, 3d]
    q, k, v = qkv.view(1, T, 3, c.n_head, -1).permute(2, 0, 3, 1, 4)  # each [1, h, T, dh]
    scores = new_scores(q, k, scale)
    hide(scores, mask)
    A, kept, found = torch.softmax(scores, dim=-1), Kept(q), ways(q)

    def whole():
        return attention(x, model.weights, c, 0, mask, no_trace)  # [1, T, d]

    mixed = {name: way(q, k, v, scale, mask).clone() for name, way in found.items()}
    other = {name: largest(m - mixed["plain"]) for name, m in mixed.items()}
    other["plain"] = largest(linear(mixed["plain"], model.weights, names[1]) - whole())
    other = {name: relative(difference, largest(mixed["plain"])) for name, difference in other.items()}
    timed = {name: way for name, way in found.items() if other[name] <= WITHIN}
    cached, over = on_block(q, k, v, scale, mask)
    calls = {
        ("fresh", "scores"): lambda: new_scores(q, k, scale),
        ("fresh", "mask"): lambda: hide(scores, mask),
        ("fresh", "softmax"): lambda: torch.softmax(scores, dim=-1),
        ("fresh", "values"): lambda: new_mix(A, v),
        ("kept", "scores"): lambda: kept.new_scores(q, k, scale),
        ("kept", "mask"): lambda: hide(scores, mask),
        ("kept", "softmax"): lambda: kept.softmax(scores),
        ("kept", "values"): lambda: kept.new_mix(A, v),
        ("kept", "copy"): lambda: kept.A.copy_(scores),
        **{("cached", name): call for name, call in cached.items()},
        "projections": lambda: (linear(x, model.weights, names[0]), linear(mixed["plain"], model.weights, names[1])),
        "whole": whole,
        **{("way", name): lambda way=way: way(q, k, v, scale, mask) for name, way in timed.items()},
    }
    seconds = in_turns(calls, runs, timer, progress)
    seconds |= {key: over * seconds[key] for key in seconds if key[0] == "cached"}
    faults = {name: faults_of(calls["fresh", name]) for name in PIECES}
    d, numbers = c.n_embd, c.n_head * T * T
    flops = {"scores": 2 * d * T * T, "values": 2 * d * T * T}
    rate = 8 * d * d * T / seconds["projections"]  # FLOP/s: four matrices of d x d
    own = {name: flops.get(name, 0) / rate for name in PIECES}  # seconds that the FLOPs take at that rate
    pieces = [
        {
            "tokens": T,
            "piece": name,
            **{
                f"{kind}_ms": 1e3 * seconds[kind, name] if (kind, name) in seconds else None for kind in ("fresh", "kept", "cached")
            },
            "faults": faults.get(name),
            "cached_ns_a_score": 1e9 * seconds["cached", name] / numbers,
            "kept_gb_per_s": None if name in flops else 8 * numbers / seconds["kept", name] / 1e9,  # 4 bytes in and 4 out
            "cached_gflop_per_s": flops[name] / seconds["cached", name] / 1e9 if name in flops else None,
        }
        for name in (*PIECES, "copy")
    ]
    time_of = {kind: sum(seconds[kind, name] for name in PIECES) for kind in ("fresh", "kept", "cached")}
    causes = {
        "fresh_memory": time_of["fresh"] - time_of["kept"],
        "traffic": time_of["kept"] - time_of["cached"],
        "element_wise": seconds["cached", "mask"] + seconds["cached", "softmax"],
        "product_rate": seconds["cached", "scores"] + seconds["cached", "values"] - sum(own.values()),
    }
    pages = None if None in faults.values() else sum(faults.values())
    excess = time_of["fresh"] - sum(own.values())  # which is the sum of the causes
    row = {
        "tokens": T,
        "attention_ms": 1e3 * seconds["whole"],
        "linear_ms": 1e3 * seconds["projections"],
        "quadratic_ms": 1e3 * time_of["fresh"],
        "linear_gflop_per_s": rate / 1e9,
        "quadratic_gflop_per_s": sum(flops.values()) / time_of["fresh"] / 1e9,
        "at_linear_rate_ms": 1e3 * sum(own.values()),
        "excess_ms": 1e3 * excess,
        "faults": pages,
        "fresh_us_a_page": 1e6 * causes["fresh_memory"] / pages if pages else None,
        "copy_us_a_page": 1e6 * seconds["kept", "copy"] * PAGESIZE / (4 * numbers) if pages else None,
        **{f"{name}_ms": 1e3 * cause for name, cause in causes.items()},
        **{f"{name}_percent": share(cause, excess) for name, cause in causes.items()},
        "verdict": verdict(share(causes["traffic"], excess)),
    }
    times = [
        {
            "tokens": T,
            "way": name,
            "relative_difference": other[name],
            "ms": 1e3 * seconds["way", name] if name in timed else None,
            "plain_over_it": seconds["way", "plain"] / seconds["way", name] if name in timed and "plain" in timed else None,
        }
        for name in found
    ]
    return row, pieces, times


def fit(tokens, ms):
    """(a, b, c) of a + b T + c T^2 nearest to `ms` at `tokens`, by least squares of the relative errors; None of fewer than 4."""
    if len(tokens) < 4:
        return None
    T, y = torch.tensor(tokens, dtype=torch.float64), torch.tensor(ms, dtype=torch.float64)
    powers = torch.stack([T**0, T, T**2], dim=1) / y[:, None]
    return torch.linalg.lstsq(powers, torch.ones_like(y)).solution.tolist()


def fits(rows, d):
    """The fit to attention's time at all lengths, and to those that need no fresh memory and are shorter than the longest.

    Each says what of the longest is linear and quadratic, and how far the measured time there is from it. d: the model's width.
    """
    last, found = rows[-1], []
    for name, some in (("all", rows), ("no fresh memory", [r for r in rows[:-1] if not r["faults"]])):
        abc = fit([r["tokens"] for r in some], [r["attention_ms"] for r in some])
        if abc is not None:
            a, linear_ms, quadratic_ms = abc[0], abc[1] * last["tokens"], abc[2] * last["tokens"] ** 2
            flops = 4 * d * last["tokens"] ** 2
            found.append(
                {
                    "lengths": name,
                    "constant_ms": a,
                    "linear_ms": linear_ms,
                    "quadratic_ms": quadratic_ms,
                    "quadratic_gflop_per_s": flops / quadratic_ms / 1e6 if quadratic_ms > 0 else None,
                    "measured_over_fit": last["attention_ms"] / (a + linear_ms + quadratic_ms),
                }
            )
    return found


def measure(model, lengths=None, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """What attention's excess consists of at each of `lengths`: `lengths`, `pieces`, `ways`, `fits`, and the verdict.

    traffic_percent: of the excess at the longest; verdict: of the hypothesis that the excess is memory traffic. Milliseconds are
    of one layer. Raises BadInput for a length that the model does not have.
    """
    settle_allocator()
    rows, pieces, times = [], [], []
    for tokens in timing_lengths(model.config, lengths, LENGTHS):
        for kept, new in zip((rows, pieces, times), one_length(model, tokens, runs, seed, timer, progress), strict=True):
            kept += [new] if isinstance(new, dict) else new
    last = rows[-1]
    shares = {name: last[f"{name}_percent"] for name in CAUSES}
    return {
        "runs": runs,
        "caches_kib": in_kib(caches()),
        "block": BLOCK,
        "within": WITHIN,
        "lengths": rows,
        "pieces": pieces,
        "ways": times,
        "fits": fits(rows, model.config.n_embd),
        "traffic_percent": shares["traffic"],
        "verdict": last["verdict"],
        "main_cause": None if None in shares.values() else max(shares, key=shares.get),
    }


# ---------------------------------------------------------------------------------------------------- the tables, the figure

WORDS = {
    "fresh_memory": "memory that the system hands out anew",
    "traffic": "memory traffic",
    "element_wise": "the arithmetic of mask and softmax",
    "product_rate": "products that run at another rate than the projections",
}


def report(values):
    """Text of {"attention": ...}."""
    v = values["attention"]
    sizes = cache_words(v["caches_kib"])
    tokens = [r["tokens"] for r in v["lengths"]]
    last = tokens[-1]
    return "\n".join(
        [
            f"One layer; medians of {v['runs']} runs in turn after the first; caches in KiB: {sizes}.",
            "",
            table(
                ["tokens", "projections ms", "GFLOP/s", "rest ms", "GFLOP/s", "excess ms", "new pages"],
                [
                    [
                        f"{r['tokens']:,}",
                        f"{r['linear_ms']:.2f}",
                        f"{r['linear_gflop_per_s']:.0f}",
                        f"{r['quadratic_ms']:.2f}",
                        f"{r['quadratic_gflop_per_s']:.0f}",
                        f"{r['excess_ms']:.2f}",
                        "n/a" if r["faults"] is None else f"{r['faults']:,}",
                    ]
                    for r in v["lengths"]
                ],
            ),
            "",
            "Of the excess (a share below 0 says that without the cause it takes longer):",
            "",
            table(
                ["tokens", "fresh memory", "traffic", "mask, softmax", "products' rate", "so traffic is"],
                [[f"{r['tokens']:,}", *(shown(r[f"{name}_percent"]) for name in CAUSES), r["verdict"]] for r in v["lengths"]],
            ),
            "",
            table(
                [f"at {last:,} tokens", "fresh ms", "kept ms", "cached ms", "ns/score", "kept GB/s", "GFLOP/s"],
                [
                    [
                        p["piece"],
                        *("" if p[f"{kind}_ms"] is None else f"{p[f'{kind}_ms']:.2f}" for kind in ("fresh", "kept", "cached")),
                        f"{p['cached_ns_a_score']:.2f}",
                        "" if p["kept_gb_per_s"] is None else f"{p['kept_gb_per_s']:.1f}",
                        "" if p["cached_gflop_per_s"] is None else f"{p['cached_gflop_per_s']:.0f}",
                    ]
                    for p in v["pieces"]
                    if p["tokens"] == last
                ],
            ),
            "",
            table(
                [f"at {last:,} tokens, the rest as", "ms", "plain over it", "difference"],
                [
                    [
                        w["way"],
                        "not timed" if w["ms"] is None else f"{w['ms']:.2f}",
                        "n/a" if w["plain_over_it"] is None else f"{w['plain_over_it']:.2f}",
                        f"{w['relative_difference']:.0e}",
                    ]
                    for w in v["ways"]
                    if w["tokens"] == last
                ],
            ),
            "",
            *(fit_sentence(f, last) for f in v["fits"]),
            *sentences(v),
        ]
    )


def fit_sentence(f, last):
    """What a fit says of the longest length, in two lines."""
    lengths = "all lengths" if f["lengths"] == "all" else "the shorter lengths without fresh memory"
    return (
        f"Fitted to {lengths}, {last:,} tokens have {f['linear_ms']:.1f} ms that grow as T\n"
        f"  and {f['quadratic_ms']:.1f} ms as T squared; the time measured is {f['measured_over_fit']:.2f} of the fitted one."
    )


def sentences(v):
    """The verdict in words, by its thresholds."""
    last = v["lengths"][-1]
    if v["main_cause"] is None:
        return [f"At {last['tokens']:,} tokens attention has no excess over its FLOPs: nothing to explain."]
    causes = sorted(CAUSES, key=lambda name: -last[f"{name}_percent"])
    parts = [f"  {shown(last[f'{name}_percent']):>5} {WORDS[name]}" for name in causes]
    pages = []
    if last["fresh_us_a_page"] is not None:
        pages = [
            f"A page of {PAGESIZE:,} bytes that is handed out anew takes {last['fresh_us_a_page']:.2f} us; to copy one "
            f"{last['copy_us_a_page']:.2f} us."
        ]
    return [
        *pages,
        f"At {last['tokens']:,} tokens the excess of {last['excess_ms']:.1f} ms a layer is",
        *parts,
        f"That it is memory traffic is {v['verdict']}; its largest part is\n  {WORDS[v['main_cause']]}.",
    ]


def draw(values, path):
    """Nanoseconds per score of attention without its projections, in several ways, from what `measure` returns."""
    figure, axes = new_figure()
    heads = {r["tokens"]: r for r in values["lengths"]}
    # what is drawn is a time over T^2, all heads together: flat for work that grows with the scores alone
    lines = [(name, [w for w in values["ways"] if w["way"] == name and w["ms"] is not None]) for name in _drawn(values)]
    labels = {f"blocks of {values['block']} queries": f"all blocks of {values['block']}\nqueries, in turn"}
    for i, (name, rows) in enumerate(lines):
        axes.plot(
            [w["tokens"] for w in rows], [1e6 * w["ms"] / w["tokens"] ** 2 for w in rows], label=labels.get(name, name), **style(i)
        )
    at = [1e6 * r["at_linear_rate_ms"] / t**2 for t, r in heads.items()]
    axes.plot(list(heads), at, label="its FLOPs at the\nprojections' rate", **style(len(lines)))
    axes.set_ylim(bottom=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks([t for t in heads if t & (t - 1) == 0] or list(heads))
    axes.minorticks_off()
    plain_ticks(axes.xaxis)
    axes.set(
        xlabel="tokens", ylabel="ns for each pair of positions, all heads", title="Scores, mask, softmax and values of one layer"
    )
    label_ends(axes)
    write_figure(figure, path)


def _drawn(values):
    return ["plain", "memory kept", f"blocks of {values['block']} queries", "fused"]


EXPERIMENTS = (
    Experiment(
        "ch11.attention-traffic",
        "timing",
        "Attention's excess of time over FLOPs at 1,024 tokens is not memory traffic: most of it goes when the scores' memory is "
        "kept, and no more when they stay in the cache.",
        "One layer on one thread of one processor, float32, random weights and inputs; what a new page costs is this system's, "
        "and that of a block in the cache has the overhead of its calls in it.",
        measure,
        headline=("traffic_percent", "pct0"),
        model="random:gpt2",
        movable=False,
        seconds=45,
        figures={"attention-traffic.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="attention_traffic.py", description=__doc__, keys=__file__)
    about = f"by default {','.join(map(str, LENGTHS))}, as far as the model reaches"
    parser.add_argument("--tokens", type=number_list(1), default=None, metavar="N,N", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser.add("model", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print what attention's excess consists of."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    require(model.config, "gpt2", "attention taken apart")
    with torch.inference_mode(), progress_bar("call") as bar:
        values = {"attention": measure(model, args.tokens, args.runs, args.seed, progress=bar.update)}
    head = f"{args.model}: float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["attention"], path))


if __name__ == "__main__":
    sys.exit(main())
