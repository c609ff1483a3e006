"""What figures 18 to 28 must show: the numbers of chapters 4, 10 and 11, by their own functions, and small ones by a run."""

import math
import re
from dataclasses import replace
from functools import cache

import torch

from examples.ch02.model import load, load_config
from examples.ch03.tokens import encode
from examples.ch04.cost_model import parameter_count
from examples.ch05.generate import generate
from examples.ch10.cache_cost import flops_of_step
from examples.ch10.cache_memory import GPT3, sequences_to_outweigh
from examples.ch10.kv_cache import Cached, cache_bytes, positions
from examples.ch10.wrong_caches import RingCache, always_zero
from examples.ch11.accelerators import accelerator
from examples.ch11.intensity import intensities, prefix_at_ridge
from scripts.markers import load_records
from scripts.web_edition.figure_data import PASSAGE
from tests.support import ROOT
from tests.web_support import figure, figures_of_page, fixed, integer

GIB, MIB = 2**30, 2**20
WIDE = torch.float16.itemsize  # bytes of a number where a figure has no choice of them


def texts(numbers):
    """{key: text} of whole numbers."""
    return {key: f"{n:,}" for key, n in numbers.items()}


def about(x):
    """x as book.about writes it."""
    return fixed(x, 0 if x >= 100 or x == 0 else 1 if x >= 10 else 2 if x >= 1 else 3)


@cache
def lengths(prompt, emitted):
    """[(ids given, pairs held)] of each pass of a real run of the loop with a cache, after a prompt of so many ids."""
    model, found = load("embedded"), []
    forward = Cached(model)

    def counting(ids):
        logits = forward(ids)
        found.append((ids.shape[1], forward.cache.length))
        return logits

    generate(torch.arange(prompt)[None], model, emitted, end=None, forward=counting)
    return found


CELLS = tuple(f"{kind}{i}" for kind in "pt" for i in range(1, 8))  # names of tokens: of the prompt, and of those emitted


@figure("slots", literals=CELLS)
def slots(prompt, emitted):
    """Figure 18: the pairs that the cache holds when a token has been chosen, by running the loop."""
    held = [0, *(pairs for _, pairs in lengths(prompt, emitted))] if emitted else [0, 0]
    return texts({"prompt": prompt, "emitted": emitted, "fed": held[-1] - held[-2], "pairs": held[-1], "tokens": prompt + emitted})


@figure("context", literals=("GPT-3",))
def context(context, number):
    """Figure 19: bytes of GPT-3's cache."""

    def gib(tokens):
        return fixed(cache_bytes(GPT3, tokens, 1, number) / GIB, 2)

    quarters = {i: GPT3.n_positions * i // 4 for i in (1, 2, 3, 4)}
    return {
        "context": f"{context:,}",
        "gib": gib(context),
        "token_mib": fixed(cache_bytes(GPT3, 1, 1, number) / MIB, 2),
        "number_text": "1 byte" if number == 1 else f"{number} bytes",
        "layers": str(GPT3.n_layer),
        "width": f"{GPT3.n_head * GPT3.head_width:,}",
        **{f"tokens{i}": f"{n:,}" for i, n in quarters.items()},
        **{f"gib{i}": gib(n) for i, n in quarters.items()},
    }


@cache
def ring_of(fed):
    """Which position each slot of chapter 10's ring of 8 holds, None for an empty one: before the first write, and after each."""
    cache_, seen = RingCache(load("embedded"), capacity=8), [[None] * 8]
    for position in range(fed):
        cache_.advance(torch.tensor([[position]]))  # the ids that it keeps are the positions themselves
        live = min(cache_.length, 8)
        seen.append(cache_.ids[0, :live].tolist() + [None] * (8 - live))
    return seen


@figure("ring")
def ring(fed, window):
    """Figure 20: what the ring of `wrong_caches.py` holds, and what the newest token would have to read."""
    *earlier, after = ring_of(fed)
    before = earlier[-1]
    slot = next(i for i in range(8) if before[i] != after[i])
    needed = set(range(max(0, fed - window) if window else 0, fed))
    numbers = {"slots": len(after), "position": fed - 1, "slot": slot, "needed": len(needed), "lost": len(needed - set(after))}
    held = {i: {row[i] for row in earlier} & needed - set(after) for i in range(8)}  # what a slot has held and lost
    gone = {f"lost{i}": ", ".join(map(str, sorted(positions))) for i, positions in held.items() if positions}
    numbers |= {"window": window} if window else {}
    numbers |= {} if before[slot] is None else {"over": before[slot]}
    return texts(numbers | {f"slot{i}": i for i in range(8)} | {f"at{i}": t for i, t in enumerate(after) if t is not None}) | gone


@figure("position", literals=("0",))
def position(fed, fault):
    """Figure 21: the positions that chapter 10's cached pass gives, and its wrong one."""
    prompt, give = 4, always_zero if fault else positions
    given = give(0, prompt).tolist() + [give(past, 1).item() for past in range(prompt, prompt + fed)]
    right = positions(prompt + fed - 1, 1).item()
    numbers = {"right": right, "got": given[-1], "drift": right - given[-1]}
    return texts(numbers | {f"given{i}": t for i, t in enumerate(given)})


@cache
def machines():
    """[(bytes of a number, ridge)] of figure 22's three choices."""
    rows = load_records(ROOT)["ch11.machine"]["values"]["machine"]
    ridges = {row["dtype"]: row["ridge_flop_per_byte"] for row in rows if row["threads"] == 1}
    sheet = accelerator("h100")
    return [(4, ridges["float32"]), (2, ridges["bfloat16"]), (2, sheet["flop_per_s"] / sheet["bytes_per_s"])]


@figure("intensity", literals=("0.25", "1", "4", "16", "64", "256", "1,024", "16 bits", "float32", "bfloat16", "H100"))
def intensity(power, machine):
    """Figure 22: chapter 11's rule for a prompt and for a decode step, and the ridge."""
    number, ridge = machines()[machine]
    prompt, config = 2**power, load_config("gpt2")
    prefill, decode = (intensities(config, new, 0, number)["rule"] for new in (prompt, 1))
    return {
        "prompt": f"{prompt:,}",
        "prefill": fixed(prefill, 1) if prefill < 1 else f"{prefill:,.0f}",
        "decode": fixed(decode, 1) if decode < 1 else f"{decode:,.0f}",
        "ridge": fixed(ridge, 1),
        "number": str(number),
        "first": f"{math.ceil(prefix_at_ridge(ridge, number)):,}",
        "share": fixed(100 * min(1, prefill / ridge), 1),
        "decode_share": fixed(100 * decode / ridge, 1),
    }


def weights_of(config):
    return parameter_count(config)["total"] * WIDE


@figure("one-cache")
def one_cache(context):
    """Figure 23: the weights and one cache of GPT-3's shape."""
    weights, held = weights_of(GPT3), cache_bytes(GPT3, context, 1, WIDE)
    found = {"context": f"{context:,}", "weights": fixed(weights / GIB, 1), "cache": fixed(held / GIB, 2)}
    return found | {"percent": fixed(100 * held / weights, 2)}


@figure("many-caches")
def many_caches(sequences):
    """Figure 24: caches of many sequences at the full context."""
    full = GPT3.n_positions
    weights, caches = weights_of(GPT3), cache_bytes(GPT3, full, sequences, WIDE)
    return {
        "sequences": str(sequences),
        "full": f"{full:,}",
        "weights": fixed(weights / GIB, 1),
        "cache": fixed(cache_bytes(GPT3, full, 1, WIDE) / GIB, 0),
        "caches": integer(caches / GIB),
        "ratio": fixed(caches / weights, 3),
        "fewest": str(sequences_to_outweigh(GPT3, WIDE)),
    }


@figure("parts", literals=("GPT-2",))
def parts(size):
    """Figure 25: chapter 4's count; the blocks are what a model without layers lacks."""
    config = load_config(size)
    counts, bare = parameter_count(config), parameter_count(replace(config, n_layer=0))
    found = {
        "blocks": counts["total"] - bare["total"],
        "attention": counts["attention"],
        "feed": counts["feed_forward"],
        "tokens": counts["token_embedding"],
        "positions": counts["position_embedding"],
        "last": bare["norms"],
    }
    shares = {f"{name}_percent": fixed(100 * n / counts["total"], 4 if name == "last" else 1) for name, n in found.items()}
    counted = {name: found[name] for name in ("tokens", "positions", "last")}
    return texts(counted | {"layers": config.n_layer, "total": counts["total"]}) | shares


@cache
def sections():
    """{id of a figure: the section of the page that it stands in}."""
    page = (ROOT / "content/pages/forward-pass.md").read_text(encoding="utf-8")
    found, section = {}, None
    for heading, id in re.findall(r'^## (\d+)\.|<figure id="figure-([\w-]+)"', page, re.M):
        section = heading or section
        if id:
            found[id] = section
    return found


EXPLAINED = (  # by the parts of figure 26's loop
    *(("slots",), ("autoregression",), ("naive-or-cached",), ("context", "ring")),
    *(("stages", "block", "position", "intensity"), ("logits",), ("temperature", "top-k", "top-p", "greedy"), ("slots",)),
    ("closed-loop",),
)


@figure("loop", literals=("0", "-1", "-1:"))  # in the code
def loop(at):
    """Figure 26: the numbers of the figures and sections that a line refers to, as the page has them."""
    found = {"at": str(at), "last": str(len(EXPLAINED))}
    for i, id in enumerate(EXPLAINED[at - 1]):
        found |= {f"figure{i}": str(figures_of_page().index(id) + 1), f"section{i}": sections()[id]}
    return found


@figure("costs", literals=("GPT-2", "GPT-3"))
def costs(shape, prompt):
    """Figure 27: FLOPs and bytes of three passes, as chapter 10's table of token costs has them."""
    config = GPT3 if shape == "gpt3" else load_config(shape)
    weights = weights_of(config)
    passes = {"prefill": (0, prompt), "decode": (prompt, 1), "naive": (0, prompt + 1)}
    flops = {name: flops_of_step(config, *pass_) for name, pass_ in passes.items()}
    found = {"prompt": str(prompt), "weights": about(weights / GIB), "ratio": integer(flops["naive"] / flops["decode"])}
    for name, (past, fed) in passes.items():
        read, written = (0, 0) if name == "naive" else (cache_bytes(config, n, 1, WIDE) for n in (past, fed))
        found |= {
            f"{name}_fed": f"{fed:,}",
            f"{name}_gflop": about(flops[name] / 1e9),
            f"{name}_read": about(read / MIB),
            f"{name}_written": about(written / MIB),
            f"{name}_intensity": about(flops[name] / weights),
        }
    return found


@cache
def passage_prompt():
    return encode(PASSAGE, load("embedded")).shape[1]


@figure("closed-loop", literals=CELLS)
def closed_loop(step, closed):
    """Figure 28: tokens and pairs at each stage of each turn, by running the loop."""
    prompt, stages = passage_prompt(), 6
    turn, stage = divmod((step if closed else min(step, stages)) - 1, stages)
    held = [0, *(pairs for _, pairs in lengths(prompt, turn + 1))]
    appended = turn + (stage == stages - 1)
    numbers = {
        "turn": turn + 1,
        "fed": held[turn + 1] - held[turn],
        "held": held[turn],
        "emitted": appended,
        "tokens": prompt + appended,
    }
    return texts(numbers | {"pairs": held[turn + (stage >= 2)]})
