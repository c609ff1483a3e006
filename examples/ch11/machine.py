"""Chapter 11: this machine's two rates, of arithmetic and of reading memory, and the FLOPs a byte at which they balance.

    python examples/ch11/machine.py
    python examples/ch11/machine.py --threads 1 --runs 15 --plot machine.svg

The peak is that of square matrix products, the best of a few sizes; the bandwidth that of reading 512 MiB, far more than the caches
hold, once to add it all up and once as a matrix times a vector, which is how a decode step reads its weights. Their quotient is the
ridge: a computation that earns fewer FLOPs a byte waits for memory, however fast the arithmetic is.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch11.intensity import prefix_at_ridge
from examples.lab.environment import processor
from examples.lab.experiment import Experiment
from examples.lab.figure import bar_style, check_target, new_panels, write_figure
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import in_turns, median_after, quartiles, turns

SIZES = (512, 1024, 2048)  # of square matrices
THREADS = tuple(sorted({1, os.cpu_count() or 1}))
DTYPES = ("float32", "bfloat16")
READ = 2**29  # bytes
WIDTH = 1024  # of the matrix that a vector is multiplied by
RUNS = 9
SUM, MATVEC = "the sum of all", "a matrix times a vector"


def machine_rates(runs=5, timer=time.perf_counter):
    """This machine in float32, with the threads that are set: FLOP/s of a square matmul, bytes/s of a matrix times a vector.

    {"flop_per_s", "bytes_per_s"}, medians: what the other rooms take both rates from, in the run that they compare with them.
    """
    a = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    b = torch.randn(32768, 1024, generator=torch.Generator().manual_seed(1))  # 134 MB, more than a cache holds
    v = torch.randn(1024, generator=torch.Generator().manual_seed(2))
    seconds = in_turns({"matmul": lambda: a @ a, "matvec": lambda: b @ v}, runs, timer)
    return {"flop_per_s": 2 * 1024**3 / seconds["matmul"], "bytes_per_s": b.nbytes / seconds["matvec"]}


@contextlib.contextmanager
def threads_set(count):
    """torch with `count` threads, and with as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rate_of(work, seconds):
    """[low, middle, high] of `work` a second, in 10^9: the quartiles over the runs, which the note on a busy machine gets too."""
    median_after(seconds, 0)
    return [work / t / 1e9 for t in reversed(quartiles(seconds))]


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(threads=THREADS, sizes=SIZES, read=READ, runs=RUNS, timer=time.perf_counter, progress=lambda: None):
    """Both rates of this machine for each of `threads` and DTYPES, and the ridge.

    products: GFLOP/s of a square matmul of each of `sizes`; reads: GB/s of reading `read` bytes in two ways; low and high are the
    quartiles over the runs. machine: a row for each number of threads and dtype with the best of both. ridge_flop_per_byte: peak
    over the faster way to read; ridge_at_matvec: over a matrix times a vector. prefix_tokens: the prompt that earns the ridge by
    its weights alone, `prefix_at_ridge`; prefix_at_matvec: likewise. ridge: that of the first row.
    """
    products, reads, rows = [], [], []
    for count in threads:
        for name in DTYPES:
            dtype = getattr(torch, name)
            with threads_set(count), torch.inference_mode():
                generator = torch.Generator().manual_seed(0)
                square = {n: torch.randn(n, n, generator=generator).to(dtype) for n in sizes}
                long = torch.ones(read // dtype.itemsize // WIDTH, WIDTH, dtype=dtype)
                vector = torch.ones(WIDTH, dtype=dtype)
                calls = {n: lambda a=a: a @ a for n, a in square.items()}
                calls |= {SUM: long.sum, MATVEC: lambda m=long, v=vector: m @ v}
                seconds = turns(calls, runs, timer, progress)
            peak, fast = [], {}
            for call, times in seconds.items():
                low, middle, high = rate_of(2 * call**3 if call in square else long.nbytes, times)
                of = {"threads": count, "dtype": name}
                if call in square:
                    products.append({**of, "size": call, "gflop_per_s": middle, "gflop_low": low, "gflop_high": high})
                    peak.append(middle)
                else:
                    reads.append({**of, "read": call, "gb_per_s": middle, "gb_low": low, "gb_high": high})
                    fast[call] = middle
            ridge, slow = max(peak) / max(fast.values()), max(peak) / fast[MATVEC]
            rows.append(
                {
                    **{"threads": count, "dtype": name, "gflop_per_s": max(peak), "gb_per_s": max(fast.values())},
                    **{"ridge_flop_per_byte": ridge, "prefix_tokens": prefix_at_ridge(ridge, dtype.itemsize)},
                    **{"matvec_gb_per_s": fast[MATVEC], "ridge_at_matvec": slow},
                    "prefix_at_matvec": prefix_at_ridge(slow, dtype.itemsize),
                }
            )
    head = {"processor": processor(), "runs": runs, "read_mib": read / 2**20, "ridge": rows[0]["ridge_flop_per_byte"]}
    return {**head, "machine": rows, "products": products, "reads": reads}


# ---------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"machine": ...}."""
    v = values["machine"]
    parts = [f"{v['processor']}; medians of {v['runs']} runs in turn after a discarded one, their quartiles in brackets", ""]
    sizes = list(dict.fromkeys(r["size"] for r in v["products"]))
    cells = [
        [f"{counted(r['threads'], 'thread')}, {r['dtype']}"]
        + [_spread(p, "gflop", 0) for p in v["products"] if (p["threads"], p["dtype"]) == (r["threads"], r["dtype"])]
        for r in v["machine"]
    ]
    parts += [table(["GFLOP/s of a product, width", *(f"{n:,}" for n in sizes)], cells), ""]
    cells = [
        [f"{counted(r['threads'], 'thread')}, {r['dtype']}"]
        + [_spread(p, "gb", 1) for p in v["reads"] if (p["threads"], p["dtype"]) == (r["threads"], r["dtype"])]
        for r in v["machine"]
    ]
    parts += [table([f"GB/s over {v['read_mib']:,.0f} MiB", SUM, MATVEC], cells), ""]
    keys = ("ridge_flop_per_byte", "prefix_tokens", "ridge_at_matvec", "prefix_at_matvec")
    cells = [[f"{counted(r['threads'], 'thread')}, {r['dtype']}", *(f"{r[k]:.1f}" for k in keys)] for r in v["machine"]]
    parts += [table(["FLOPs a byte at the ridge", "faster read", "prompt", "matrix-vector", "prompt"], cells), ""]
    r = v["machine"][0]
    prompt = counted(round(r["prefix_tokens"]), "token")
    end = (
        f"With {counted(r['threads'], 'thread')} in {r['dtype']} arithmetic takes longer than reading from "
        f"{r['ridge_flop_per_byte']:.1f} FLOPs a byte on;\na prompt of {prompt} earns that by its weights alone. A data sheet's "
        "H100 needs 295 in float16."
    )
    return "\n".join([*parts, end])


def _spread(row, key, digits):
    low, middle, high = row[f"{key}_low"], row[f"{key}_per_s"], row[f"{key}_high"]
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def draw(values, path):
    """Both rates for each number of threads and dtype, with the quartiles; from what `measure` returns."""
    figure, (left, right) = new_panels(1, 2, (7, 3.6))
    kinds = [(r["threads"], r["dtype"]) for r in values["machine"]]
    for axes, rows, key, of in ((left, values["products"], "gflop", "size"), (right, values["reads"], "gb", "read")):
        names = list(dict.fromkeys(r[of] for r in rows))
        wide = 0.8 / len(names)
        for i, name in enumerate(names):
            found = [r for r in rows if r[of] == name]
            places = [k + (i - (len(names) - 1) / 2) * wide for k in range(len(kinds))]
            heights = [r[f"{key}_per_s"] for r in found]
            sides = [[h - r[f"{key}_low"] for h, r in zip(heights, found, strict=True)]]
            sides.append([r[f"{key}_high"] - h for h, r in zip(heights, found, strict=True)])
            label = f"{name:,} wide" if of == "size" else name
            axes.bar(places, heights, wide, yerr=sides, capsize=2, label=label, **bar_style(i))
        axes.set_xticks(range(len(kinds)), [f"{counted(t, 'thread')}\n{d}" for t, d in kinds])
        axes.grid(visible=False, axis="x")
        axes.set_ylim(0, 1.35 * max(r[f"{key}_high"] for r in rows))
        axes.legend(loc="upper left", frameon=False)
    left.set(ylabel="GFLOP/s", title="Square matrix products")
    right.set(ylabel="GB/s", title=f"Reading {values['read_mib']:,.0f} MiB")
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.machine",
        "timing",
        "On one thread in float32 this machine's ridge is below ten FLOPs a byte, less than a thirtieth of an H100's in float16.",
        "One processor; torch's own kernels, which need not reach what the hardware can do; no accelerator.",
        measure,
        headline=("ridge", "f1"),
        model="no model",
        loads=False,
        movable=False,
        seconds=30,
        figures={"machine.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="machine.py", description=__doc__, keys=__file__).add("plot", "json")
    about = "torch threads, one after the other; by default 1 and all cores"
    parser.add_argument("--threads", type=number_list(1), default=list(THREADS), metavar="N,N", help=about)
    parser.add_argument("--sizes", type=number_list(1), default=list(SIZES), metavar="N,N", help="of the square matrices")
    parser.add_argument("--read", type=whole_number(1, 2**14), default=READ // 2**20, metavar="MIB", help="MiB to read")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser


@command
def main(argv=None):
    """Print both rates and the ridge."""
    args = options().parse_args(argv)
    check_target(args.plot)
    total = len(args.threads) * len(DTYPES) * (len(args.sizes) + 2) * (args.runs + 1)
    with progress_bar("run", total) as bar:
        values = {"machine": measure(args.threads, args.sizes, args.read * 2**20, args.runs, progress=bar.update)}
    answer(args, values, report, lambda values, path: draw(values["machine"], path))


if __name__ == "__main__":
    sys.exit(main())
