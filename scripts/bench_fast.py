"""Decoding SmolLM2 from its file's own four bits beside its peers: `scripts/bench.py --part fast`.

The peers are our plain cached pass, transformers' `generate` on the same weights in float32, and llama.cpp on the same file where
llama-cpp-python is installed (`make bench-peers`). All write as many tokens greedily behind the same prompt. Each has a process of
its own, since two libraries' threads in one process would wait for each other, and the processes take turns: one works at a time.
"""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from examples.ch02.model import load
from examples.ch03.tokens import encode
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10.kv_cache import Cached
from examples.ch11.fast_decode import FastDecode
from examples.ch11.q4_weights import pack
from examples.lab.script import BadInput, counted, table
from examples.lab.timing import median_after

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "The capital of France is"
PEER = "llama_cpp"  # the module of llama-cpp-python
FAST_TOKENS, FAST_RUNS = 128, 6
NAMES = {
    **{"fast": "ours, four bits", "plain": "ours, plain cached pass"},
    **{"transformers": "transformers, float32", "llama.cpp": "llama.cpp"},
}


def writer(name, model, ids, tokens):
    """A function that writes `tokens` ids behind `ids` [1, P] by one of NAMES: a list. Raises BadInput where it cannot."""
    capacity = ids.shape[1] + tokens
    if name == "llama.cpp":
        return _llama_cpp(model, ids[0].tolist(), tokens, capacity)
    if name == "transformers":
        library = library_model(model)
        library.set_attn_implementation("sdpa")
        return lambda: library_greedy(library, ids, tokens)
    fast = FastDecode(model, capacity) if name == "fast" else None

    def ours():
        if fast is not None:
            fast.truncate(0)
        forward = Cached(model, capacity=capacity) if fast is None else fast
        return generate(ids, model, tokens, end=None, forward=forward).ids[0].tolist()

    return ours


def serve(name, source, tokens, threads):
    """One program's process: a line of JSON once it is ready, and then for every line on stdin a turn, {seconds, ids}."""
    torch.set_num_threads(threads)
    model = load(source)
    with torch.inference_mode():
        write = writer(name, model, encode(PROMPT, model), tokens)
        about = {"mb": pack(model).nbytes / 1e6} if name == "fast" else {}
        print(json.dumps(about), flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            made = write()
            print(json.dumps({"seconds": time.perf_counter() - start, "ids": made}), flush=True)


def take_turns(source, tokens, runs, threads, progress=lambda: None):
    """{tokens, per_s: {program: tokens per second}, same_text, mb_per_token} with so many threads; medians of `runs` turns.

    same_text: of each program, how many of its first tokens are those of the plain cached pass. llama.cpp computes with activations
    of eight bits, so that its text may differ. Raises BadInput with what a program's process says where it breaks off.
    """
    names = [name for name in NAMES if name != "llama.cpp" or importlib.util.find_spec(PEER) is not None]
    code = "import json, sys; from scripts.bench_fast import serve; serve(*json.loads(sys.argv[1]))"
    orders = {name: [sys.executable, "-c", code, json.dumps([name, source, tokens, threads])] for name in names}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    started, answers, about = {}, {name: [] for name in names}, {}
    try:
        for name, order in orders.items():  # one after the other, so that none loads or compiles while another works
            started[name] = subprocess.Popen(order, **pipes)
            about[name] = _line(name, started[name])
        for _ in range(runs + 1):
            for name, process in started.items():
                process.stdin.write("\n")
                process.stdin.flush()
                answers[name].append(_line(name, process))
            progress()
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    plain = answers["plain"][0]["ids"]
    return {
        "threads": threads,
        "tokens": tokens,
        "per_s": {name: tokens / median_after(a["seconds"] for a in found) for name, found in answers.items()},
        "same_text": {name: _shared(found[0]["ids"], plain) for name, found in answers.items()},
        "mb_per_token": about["fast"]["mb"],
    }


def _line(name, process):
    said = process.stdout.readline()
    if not said:
        reason = (process.communicate()[1].strip().splitlines() or ["no reason given"])[-1]
        raise BadInput(f"{NAMES[name]}: {reason.removeprefix('examples.lab.script.BadInput: ')}")
    return json.loads(said)


def fast_report(rows, source):
    """Text of what `fast_once` found for each number of threads, or why it did not run."""
    there = [r for r in rows if "not_here" not in r]
    if not there:
        return f"Decoding {source} from its own four bits: not here, {rows[0]['not_here']}"
    names = [name for name in NAMES if name in there[0]["per_s"]]
    ours, cells = [r["per_s"]["fast"] for r in there], []
    for name in names:
        rates = [r["per_s"][name] for r in there]
        pairs = [(f"{rate:.1f}", f"{fast / rate:.2f}") for fast, rate in zip(ours, rates, strict=True)]
        cells.append([NAMES[name], *(text for pair in pairs for text in pair), there[0]["same_text"][name]])
    on = [counted(r["threads"], "thread") for r in there]
    heads = ["tokens per second", *(text for name in on for text in (name, "ours over it")), "same text"]
    peer = "" if "llama.cpp" in names else "\nllama.cpp is not installed here; `make bench-peers` builds it."
    first = there[0]
    return (
        f"Decoding {first['tokens']} tokens of {source} behind {PROMPT!r}, greedy, batch 1, interleaved; medians of {FAST_RUNS}\n"
        f"turns after a discarded one. A step reads {first['mb_per_token']:.1f} MB of weights. Same text: how many tokens\n"
        f"are those of the plain pass before the first that differs.\n\n{table(heads, cells)}{peer}"
    )


def _shared(text, other):
    """How many tokens two texts begin with alike."""
    return next((i for i, pair in enumerate(zip(text, other, strict=True)) if pair[0] != pair[1]), len(text))


def _llama_cpp(model, prompt, tokens, capacity):
    """A function that writes `tokens` ids behind `prompt` by llama.cpp, greedily, with as many threads as torch has."""
    import llama_cpp

    threads = torch.get_num_threads()
    peer = llama_cpp.Llama(str(model.path), n_ctx=capacity, n_threads=threads, n_threads_batch=threads, verbose=False)

    def write():
        peer.reset()
        peer.eval(prompt)
        made = []
        for _ in range(tokens):
            made.append(peer.sample(temp=0.0, top_k=1, repeat_penalty=1.0))
            if len(made) < tokens:  # as the others: the last token is not fed
                peer.eval([made[-1]])
        return made

    return write
