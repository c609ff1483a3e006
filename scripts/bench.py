"""Speed and memory of the hand-written pass and of decoding beside transformers', as ratios within one process.

    make bench
    python scripts/bench.py --threads 1 --runs 9 --processes 3 --tokens 16,128,512,1024

Both programs take turns on the same weights and ids, in float32, after a warm-up; a ratio of times is our median over theirs,
below 1 where we are faster. Decoding is told in tokens per second, as a share of transformers' and of the floor, which is the
time of the model's matrices times a vector and nothing else. Several processes each do this, and the middle ratio counts.
Of chapter 1's requests it tells what no stage of their records explains, which is to be 1 per cent of a request at most. Last comes
the embedded model in a browser's page, where there is a Chromium.
Nothing here is a test: no bound is asserted.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from tqdm import tqdm

from examples.ch01 import request
from examples.ch02.model import load, run, save
from examples.ch03.tokens import random_ids
from examples.ch04.component_timing import timing_lengths
from examples.ch04.library import library_model
from examples.ch10.decode_rate import decode_rates
from examples.lab.environment import import_transformers
from examples.lab.script import BadInput, Parser, command, counted, dump_json, number_list, table, whole_number
from examples.lab.timing import median_after, warn_if_busy
from scripts import bench_fast, bench_web

ROOT = Path(__file__).resolve().parents[1]


@torch.no_grad()
def take_turns(model, tokens, runs, timer=time.perf_counter):
    """Median seconds of `runs` passes over [1, tokens] each, ours and the library's in turn: (ours, theirs).

    Two turns are discarded; which program goes first changes with every turn.
    """
    library = library_model(model)
    ids = random_ids(model, tokens)
    calls = {"ours": lambda: run(model, ids), "theirs": lambda: library(ids, use_cache=False)}
    times = {name: [] for name in calls}
    for turn in range(runs + 2):
        for name in sorted(calls, reverse=turn % 2 == 1):
            start = timer()
            calls[name]()
            times[name].append(timer() - start)
    return tuple(median_after(times[name], discarded=2) for name in ("ours", "theirs"))


def speed_once(source, lengths, runs):
    """One process's part of the speed table."""
    model = load(source)
    rows = []
    for tokens in lengths:
        ours, theirs = take_turns(model, tokens, runs)
        rows.append({"tokens": tokens, "ours_ms": 1e3 * ours, "theirs_ms": 1e3 * theirs, "ratio": ours / theirs})
    return rows


def decode_once(source, tokens, runs):
    """One process's part of the decoding table."""
    return decode_rates(load(source), tokens, runs)


def request_once(source, tokens, runs):
    """One process's part of the table of requests: medians, `unexplained_percent` of each request by itself."""
    found = request.measure(source, tokens=tokens, runs=runs)
    return {key: found[key] for key in ("request_ms", "load_ms", "passes_percent", "unexplained_percent")}


def loading_once(program, folder):
    """Seconds to load the folder, and to load it and run 16 tokens; MiB that the process's peak memory grew by."""
    transformers = import_transformers()  # before the clock starts: its import is not loading
    transformers.logging.disable_progress_bar()
    ids = torch.zeros(1, 16, dtype=torch.int64)
    before, start = _peak(), time.perf_counter()
    if program == "ours":
        model = load(folder)
        loaded = time.perf_counter()
        run(model, ids)
    else:
        model = transformers.GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
        loaded = time.perf_counter()
        with torch.no_grad():
            model(ids, use_cache=False)
    done = time.perf_counter()
    return {"load_s": loaded - start, "load_and_run_s": done - start, "peak_mib": _peak() - before}


def _peak():
    """Peak resident memory of this program so far, in MiB.

    Linux's own record starts anew with every program; getrusage's goes on from the process that started it.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # bytes on macOS


@command
def child(argv=None):
    """One part in a process of its own: argv is the part, the threads, and the settings as JSON; prints JSON."""
    part, threads, settings = sys.argv[1:] if argv is None else argv
    torch.set_num_threads(int(threads))
    parts = {"speed": speed_once, "loading": loading_once, "decode": decode_once, "request": request_once}
    print(dump_json(parts[part](**json.loads(settings))), end="")
    warn_if_busy()


def _in_a_process(part, threads, **settings):
    """What `child` prints in a new process."""
    code = "import sys; from scripts.bench import child; sys.exit(child())"
    order = [sys.executable, "-c", code, part, str(threads), json.dumps(settings)]
    done = subprocess.run(order, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1].removeprefix("error: ")
        raise BadInput(f"the {part} benchmark broke off: {reason}")
    sys.stderr.writelines(line for line in done.stderr.splitlines(keepends=True) if line.startswith("note: "))
    return json.loads(done.stdout)


def middle(rows, key):
    """The row whose `key` is the median of all (of an even number, the lower of the middle two)."""
    return sorted(rows, key=lambda r: r[key])[(len(rows) - 1) // 2]


PARTS = ("speed", "loading", "decode", "request", "fast", "web")
DECODE_RUNS = 5  # each is 64 tokens by three programs
REQUEST_RUNS, REQUEST_TOKENS = 5, 40
UNEXPLAINED = 1.0  # per cent of a request, at most


def options():
    """The script's argument parser."""
    parser = Parser(prog="bench.py", description=__doc__).add("threads", "json")
    parser.add_argument("--model", default="random:gpt2", metavar="SOURCE", help="a model as in chapter 2")
    parser.add_argument(
        "--tokens", type=number_list(1), default=None, metavar="N,N", help="by default 16,128,512,1024, as far as the model reaches"
    )
    parser.add_argument("--runs", type=whole_number(1), default=9, metavar="N", help="timed turns per process")
    parser.add_argument("--processes", type=whole_number(1), default=3, metavar="N", help="how many processes repeat it")
    about = "a GGUF file with four-bit weights, for the part fast"
    parser.add_argument("--fast-model", default="smollm2", metavar="SOURCE", help=about)
    parser.add_argument("--part", choices=["all", *PARTS], default="all", help="only one of the benchmarks")
    return parser


@command
def main(argv=None):
    """Run the benchmarks and print their tables."""
    args = options().parse_args(argv)
    config = load(args.model).config
    args.tokens = timing_lengths(config, args.tokens)  # a bad source or length shows before the work
    args.decode_tokens = min(64, config.n_positions)
    args.request_tokens = min(REQUEST_TOKENS, config.n_positions // 2)
    value = {
        "model": args.model,
        "threads": args.threads,
        "runs": args.runs,
        "processes": args.processes,
        "torch": torch.__version__,
    }
    run = {"speed": _speed, "loading": _loading, "decode": _decode, "request": _request, "fast": _fast, "web": _web}
    parts = PARTS if args.part == "all" else (args.part,)
    steps = args.processes * sum({"speed": 1, "web": 1}.get(part, 2) for part in parts)
    with tqdm(total=steps, unit="process", file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
        for part in parts:
            value[part] = run[part](args, bar)
    if args.json:
        print(dump_json(value), end="")
        return
    print(f"{args.model}, float32, {counted(args.threads, 'thread')}, torch {torch.__version__}; transformers with eager attention")
    if "speed" in value:
        rows = [
            [
                f"{r['tokens']:,}",
                f"{r['ours_ms']:.1f}",
                f"{r['theirs_ms']:.1f}",
                f"{r['ratio']:.2f}",
                " ".join(f"{x:.2f}" for x in r["all"]),
            ]
            for r in value["speed"]
        ]
        print(f"\nOne pass; medians of {args.runs} turns, the middle of {args.processes} processes by ratio:\n")
        print(table(["tokens", "ours, ms", "transformers, ms", "ratio", "all ratios"], rows))
    if "loading" in value:
        rows = [
            [name, f"{r['load_s']:.2f}", f"{r['load_and_run_s']:.2f}", f"{r['peak_mib']:.0f}"]
            for name, r in value["loading"].items()
        ]
        print("\nLoading its folder from a warm disk cache, then one pass of 16 tokens; each in a process of its own:\n")
        print(table(["", "load, s", "load and run, s", "peak memory grew by, MiB"], rows))

    if "decode" in value:
        rows = [
            [
                r["threads"],
                *(f"{r[key]:.1f}" for key in ("ours_per_s", "library_per_s", "floor_per_s")),
                f"{r['over_library']:.2f}",
                f"{r['over_floor']:.2f}",
                " ".join(f"{x:.2f}" for x in r["all"]),
            ]
            for r in value["decode"]
        ]
        tokens, runs = value["decode"][0]["tokens"], min(args.runs, DECODE_RUNS)
        print(f"\nDecoding {tokens} tokens from a prompt of one, greedy, batch 1; transformers with its sdpa attention. Tokens a")
        print(f"second, medians of {runs} turns, the middle of {args.processes} processes by share of the floor:\n")
        heads = ["threads", "ours", "transformers", "floor", "ours / transformers", "ours / floor", "all shares of the floor"]
        print(table(heads, rows))

    if "request" in value:
        rows = [
            [r["model"], *(f"{r[key]:,.1f}" for key in ("load_ms", "request_ms", "passes_percent"))]
            + [f"{r['unexplained_percent']:.2f}", "yes" if r["unexplained_percent"] <= UNEXPLAINED else "no"]
            for r in value["request"]
        ]
        print(f"\nA request, by chapter 1's record: medians of {REQUEST_RUNS} requests after the first, the middle of")
        print(f"{args.processes} processes by what is unexplained:\n")
        heads = ["", "load, ms", "request, ms", "passes, %", "unexplained, %", f"at most {UNEXPLAINED:g}%"]
        print(table(heads, rows))

    if "fast" in value:
        print("\n" + bench_fast.fast_report(value["fast"], args.fast_model))
    if "web" in value:
        print("\n" + bench_web.web_report(value["web"], args.runs))


def _fast(args, bar):
    """The four-bit step and its peers, on one thread and on two; where the model is not here, why."""
    rows = []
    for threads in (1, 2):
        try:
            found = bench_fast.take_turns(args.fast_model, bench_fast.FAST_TOKENS, bench_fast.FAST_RUNS, threads)
            rows.append(found)
        except BadInput as reason:
            if args.part == "fast":
                raise
            rows.append({"threads": threads, "not_here": str(reason)})
        bar.update(args.processes)
    return rows


def _web(args, bar):
    """The embedded model in a browser's page; where there is none, why."""
    try:
        found = bench_web.measure(args.runs)
    except BadInput as reason:
        if args.part == "web":
            raise
        found = {"not_here": str(reason)}
    bar.update(args.processes)
    return found


def _request(args, bar):
    """Requests to the embedded model and to the one that the other benchmarks run."""
    rows = []
    for source in ("embedded", args.model):
        found = []
        for _ in range(args.processes):
            settings = dict(source=source, tokens=args.request_tokens, runs=REQUEST_RUNS)
            found.append(_in_a_process("request", args.threads, **settings))
            bar.update()
        rows.append({"model": source, **middle(found, "unexplained_percent")})
    return rows


def _decode(args, bar):
    """Decoding on one thread and on two."""
    rows = []
    for threads in (1, 2):
        found = []
        for _ in range(args.processes):
            settings = dict(source=args.model, tokens=args.decode_tokens, runs=min(args.runs, DECODE_RUNS))
            found.append(_in_a_process("decode", threads, **settings))
            bar.update()
        shares = sorted(r["over_floor"] for r in found)
        rows.append({"threads": threads, **middle(found, "over_floor"), "all": shares})
    return rows


def _speed(args, bar):
    found = []
    for _ in range(args.processes):
        found.append(_in_a_process("speed", args.threads, source=args.model, lengths=args.tokens, runs=args.runs))
        bar.update()
    rows = []
    for same_length in zip(*found, strict=True):
        rows.append(middle(same_length, "ratio") | {"all": sorted(r["ratio"] for r in same_length)})
    return rows


def _loading(args, bar):
    found = {"ours": [], "transformers": []}
    with tempfile.TemporaryDirectory() as holder:
        folder = Path(holder) / "model"
        save(load(args.model), folder)
        for _ in range(args.processes):
            for program, rows in found.items():
                rows.append(_in_a_process("loading", args.threads, program=program, folder=str(folder)))
                bar.update()
    return {program: middle(rows, "load_and_run_s") for program, rows in found.items()}


if __name__ == "__main__":
    sys.exit(main())
