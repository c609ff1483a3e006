"""Chapter 10: how near decoding with a cache comes to what the machine can do, and to transformers.

    python examples/ch10/decode_rate.py
    python examples/ch10/decode_rate.py --model random:gpt2          # the chapter's numbers, in a minute

A decode step has to read every weight once. The floor is the time of that alone: each matrix times a vector, and nothing else. No
step can take less, so the rate at the floor is the highest that there is.
"""

import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import program
from examples.ch02.model import load_for, require
from examples.ch03.tokens import random_ids
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10.kv_cache import Cached, KVCache, stream_cached
from examples.lab.experiment import Experiment, far_from_record
from examples.lab.script import BadInput, Parser, answer, command, counted, progress_bar, table, whole_number
from examples.lab.timing import median_after

TOKENS = 64  # of each text
RUNS = 5  # timed texts of each program, after a discarded one


def matrices(model):
    """The weight matrices that a decode step reads whole: all but the position table; the token table as the head."""
    require(model.config, "gpt2", "the floor of decoding")
    tied = model.config.tie_word_embeddings
    skip = {"wpe.weight"} | (set() if tied else {"wte.weight"})
    return [
        w if name in ("wte.weight", "lm_head.weight") else w.t()
        for name, w in model.weights.items()
        if w.ndim == 2 and name not in skip
    ]


def check_contexts(config, contexts):
    """Raise BadInput for one of `contexts`, numbers of cached positions, that leaves no position for a new token."""
    over = [n for n in contexts if n + 1 > config.n_positions]
    if over:
        raise BadInput(f"{over[0]} cached positions and a new one are more than n_positions {config.n_positions}; give fewer")


def filled(model, batch, tokens):
    """A cache of `tokens` positions for `batch` sequences, full of noise: what a decode step costs does not depend on values."""
    cache, generator = KVCache(model, batch, tokens + 1), torch.Generator().manual_seed(0)
    for x in (*cache.keys, *cache.values):
        x.normal_(generator=generator)
    cache.length = tokens
    return cache


def one_step(model, cache, ids, tokens):
    """A function that feeds `ids` [B, 1] to a cache of `tokens` positions, makes the logits, and takes the token back."""

    def step():
        cache.truncate(tokens)
        return program(model).unembed(stream_cached(ids, model, cache), model.weights, model.config)  # [B, 1, V]

    return step


def decode_rates(model, tokens=TOKENS, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Tokens per second of greedy decoding, batch 1, from a prompt of one token: ours, the library's, and the bare floor.

    Ours is `generate` with `Cached`; the library's its own `generate` with its cache and its default, fused attention; the floor
    multiplies every matrix of the model by a vector, once for each token, and does nothing else. They take turns, in another
    order each time; the first turn is discarded, and medians of `runs` are taken.
    """
    library = library_model(model)
    library.set_attn_implementation("sdpa")
    ids = random_ids(model, 1, seed=seed)
    pairs = [(w, torch.randn(w.shape[1], dtype=w.dtype)) for w in matrices(model)]

    def floor():
        for _ in range(tokens):
            for w, x in pairs:
                torch.mv(w, x)

    calls = {
        "ours": lambda: generate(ids, model, tokens, end=None, forward=Cached(model, capacity=tokens)),
        "library": lambda: library_greedy(library, ids, tokens),
        "floor": floor,
    }
    times = {name: [] for name in calls}
    with torch.inference_mode():
        for turn in range(runs + 1):
            order = list(calls)
            for name in order[turn % 3 :] + order[: turn % 3]:
                start = timer()
                calls[name]()
                times[name].append(timer() - start)
                progress()
    rate = {name: tokens / median_after(times[name]) for name in calls}
    return {
        "tokens": tokens,
        **{f"{name}_per_s": rate[name] for name in calls},
        "over_library": rate["ours"] / rate["library"],
        "over_floor": rate["ours"] / rate["floor"],
        "library_over_floor": rate["library"] / rate["floor"],
    }


def measure(model, tokens=TOKENS, runs=RUNS, seed=0, progress=lambda: None):
    """`decode_rates`, with the number of its runs."""
    return {"runs": runs, **decode_rates(model, tokens, runs, seed, progress=progress)}


def report(values):
    """Text of {"decode": ...}."""
    v = values["decode"]
    rows = [
        ["the floor's rate, the highest: every matrix times a vector", f"{v['floor_per_s']:.1f}", ""],
        ["generate with the cache", f"{v['ours_per_s']:.1f}", f"{v['over_floor']:.2f}"],
        ["transformers' generate, fused attention", f"{v['library_per_s']:.1f}", f"{v['library_over_floor']:.2f}"],
    ]
    return "\n".join(
        [
            f"{v['tokens']} tokens from a prompt of one, greedy; medians of {v['runs']} runs in turn after a discarded one:",
            "",
            table(["", "tokens per second", "of the floor"], rows),
            "",
            f"The hand-written loop runs at {v['over_library']:.2f} of the library's speed, and at {v['over_floor']:.2f} of the "
            "highest.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch10.decode",
        "timing",
        "Decoding one token at a time runs near the speed at which the weights alone can be multiplied by a vector.",
        "One thread of one processor, float32, batch 1, 64 tokens from a prompt of one.",
        measure,
        headline=("over_floor", "g2"),
        model="random:gpt2",
        seconds=45,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="decode_rate.py", description=__doc__, keys=__file__)
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="of each text")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print tokens per second, beside the library and the floor."""
    args = options().parse_args(argv)
    model = load_for(args)
    require(model.config, "gpt2", "the floor of decoding")
    with progress_bar("text", 3 * (args.runs + 1)) as bar:
        values = {"decode": measure(model, args.tokens, args.runs, args.seed, bar.update)}
    threads = counted(args.threads, "thread")
    head, far = f"{args.model}: {threads}, torch {torch.__version__}\n", far_from_record("ch10.decode", args, values["decode"])
    answer(args, values, lambda values: head + report(values), notes=far)


if __name__ == "__main__":
    sys.exit(main())
