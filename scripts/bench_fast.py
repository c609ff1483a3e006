"""Decoding SmolLM2 from its file's own four bits beside two peers, interleaved in one process: `scripts/bench.py --part fast`.

The peers are transformers' `generate` on the same weights in float32, and llama.cpp on the same file where llama-cpp-python is
installed (`make bench-peers`). All write as many tokens greedily behind the same prompt, with the threads that are given.
"""

import importlib.util
import time

import torch

from examples.ch02.model import load
from examples.ch03.tokens import encode
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10.kv_cache import Cached
from examples.ch11.fast_decode import FastDecode
from examples.lab.script import counted, table
from examples.lab.timing import in_turns

PROMPT = "The capital of France is"
PEER = "llama_cpp"  # the module of llama-cpp-python
FAST_TOKENS, FAST_RUNS = 128, 6
NAMES = {
    **{"fast": "ours, four bits", "plain": "ours, plain cached pass"},
    **{"transformers": "transformers, float32", "llama.cpp": "llama.cpp"},
}


@torch.inference_mode()
def fast_once(source, tokens, runs):
    """One process's part of the table: {program: tokens per second}, the ratios that the goals are about, and the bytes per token.

    same_text: of each program, how many of its first tokens are those of the plain cached pass. llama.cpp computes with activations
    of eight bits, so that its text may differ. Raises BadInput where the fast path does not serve the model.
    """
    model = load(source)
    ids = encode(PROMPT, model)  # [1, P]
    capacity = ids.shape[1] + tokens
    fast = FastDecode(model, capacity)
    library = library_model(model)
    library.set_attn_implementation("sdpa")

    def ours(forward):
        return generate(ids, model, tokens, end=None, forward=forward).ids[0].tolist()

    def from_the_start():
        fast.truncate(0)
        return ours(fast)

    programs = {
        "fast": from_the_start,
        "plain": lambda: ours(Cached(model, capacity=capacity)),
        "transformers": lambda: library_greedy(library, ids, tokens),
    }
    if importlib.util.find_spec(PEER) is not None:
        programs["llama.cpp"] = _llama_cpp(model, ids[0].tolist(), tokens, capacity)
    with torch.inference_mode():
        texts = {name: program()[-tokens:] for name, program in programs.items()}
        seconds = in_turns(programs, runs, time.perf_counter)
    rate = {name: tokens / s for name, s in seconds.items()}
    return {
        "tokens": tokens,
        "per_s": rate,
        "same_text": {name: _shared(text, texts["plain"]) for name, text in texts.items()},
        "over_transformers": rate["fast"] / rate["transformers"],
        "over_llama_cpp": rate["fast"] / rate["llama.cpp"] if "llama.cpp" in rate else None,
        "mb_per_token": fast.packed.nbytes / 1e6,
        "gb_per_s": fast.packed.nbytes * rate["fast"] / 1e9,
    }


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
