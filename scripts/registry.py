"""Every experiment and every claim of the book: what `make evidence` runs and the register lists.

An experiment measures with functions of a chapter's scripts and returns plain values, with units in their names and floats
rounded to what they mean: `exact` ones to nothing that depends on a machine, worst values to one significant digit, sizes and
times to three.
"""

import torch

from examples.ch02.families import read_config
from examples.ch02.model import load, load_config, run
from examples.ch03.tokens import PROMPTS, decode, encode, random_ids
from examples.ch04.agreement import agreement
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import all_same, compare_greedy, compare_sequences
from examples.ch05.repetition import draw_repetition, measure_policies
from examples.ch10 import cache_parity as ch10
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes
from examples.lab.experiment import Experiment, sig, tolerance
from examples.lab.experiment import worst as find_worst
from scripts import registry_ch14

SHAPE = "random:gpt2"
GPT2 = load_config("gpt2")
BOUND = 1e-5  # of the largest logit, for float32 programs that compute the same function


def rounded(rows, digits=3):
    return [{k: sig(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


# -------------------------------------------------------------------------------------------------------------- chapter 10


def _split_rows(rows):
    return [{"fed": r["split"], "chunks": r["chunks"], "same_argmax": r["same_argmax"], "positions": r["positions"]} for r in rows]


def _splits(model):
    text = ch10.some_ids(model, 40)
    batch = random_ids(model, min(24, model.config.n_positions), batch=3)
    full = random_ids(model, model.config.n_positions, seed=1)
    rows = ch10.compare_splits(model, text)
    last = ch10.in_chunks(model, full, [full.shape[1] - 3, 1, 2])[0]
    more = [*ch10.compare_splits(model, batch), agreement(last, run(model, full))]
    layers = ch10.compare_layers(model, text, ch10.splits(40)["uneven chunks"])
    worst = find_worst(
        [r["relative_difference"] for r in rows + more] + [r["largest_difference"] / r["largest_value"] for r in layers]
    )
    exact = model.to(dtype=torch.float64)
    in_float64 = find_worst(r["relative_difference"] for r in ch10.compare_splits(exact, text))
    found = tolerance(
        BOUND,
        worst,
        splits=_split_rows(rows),
        tensors=len(layers),
        positions=sum(r["positions"] for r in rows + more),
        same_argmax=sum(r["same_argmax"] for r in rows + more),
        in_float64_within_1e_12=in_float64 <= 1e-12,
    )
    return found | {"held": found["held"] and found["same_argmax"] == found["positions"] and found["in_float64_within_1e_12"]}


def _splits_at_size(model):
    full = random_ids(model, model.config.n_positions)
    rows = ch10.compare_splits(model, random_ids(model, 10, batch=2, seed=1))
    sizes = [full.shape[1] - 20, 13, *[1] * 7]
    rows.append(
        {"split": "the full context", "chunks": len(sizes)} | agreement(ch10.in_chunks(model, full, sizes)[0], run(model, full))
    )
    found = tolerance(
        BOUND,
        find_worst(r["relative_difference"] for r in rows),
        splits=_split_rows(rows),
        positions=sum(r["positions"] for r in rows),
        same_argmax=sum(r["same_argmax"] for r in rows),
    )
    return found | {"held": found["held"] and found["same_argmax"] == found["positions"]}


def _invariants(model):
    ids = ch10.some_ids(model, 40)
    found = {name: ch10.invariants(model, ids, sizes) for name, sizes in ch10.splits(40).items()}
    keys = next(iter(found.values()))
    return {key: all(row[key] for row in found.values()) for key in keys} | {"splits": len(found), "tokens": 40}


def _cached_greedy(model):
    library = library_model(model)
    rows = compare_greedy(model, PROMPTS, None, forward=Cached, library=library)
    batch = compare_sequences(model, PROMPTS, 40, 0.8, forward=Cached)
    cached, ids = Cached(model), encode(PROMPTS[0], model)
    generate(ids, model, 20, end=None, forward=cached)
    reused = ch10.reuse(model, ch10.some_ids(model, 40), [torch.tensor([1]), torch.tensor([2, 3, 4])])
    found = all_same(
        rows + batch,
        tokens_emitted=20,
        prompt=ids.shape[1],
        pairs_held=cached.cache.length,
        computed=cached.computed,
        reuse=reused,
    )
    return found | {"held": found["held"] and all(r["same"] for r in reused)}


FAILURE_TEXT = 40  # tokens: a prompt of 12, then one by one; the ring buffer holds 24


def _failures(model):
    ids, rows = ch10.some_ids(model, FAILURE_TEXT), []
    for name in ch10.FAILURES:
        row = ch10.failure(model, name, ids, 12, 24)
        row["text"] = ch10.failure_text(model, name, ids[:, :12], 30, 24)
        rows.append(row)
    right = decode(generate(ids[:, :12], model, 30, end=None).sequence(), model) if model.tokenizer else None
    texts = [row["text"] for row in rows]
    return {
        "tokens": FAILURE_TEXT,
        "prompt": 12,
        "ring_capacity": 24,
        "right_text": right,
        "failures": [
            {
                "failure": r["failure"],
                "first": r["first"],
                "at_first_percent": sig(100 * r["at_first"]),
                "largest_percent": sig(100 * r["largest"]),
                "moved": r["moved"],
                "positions": r["positions"],
                "text": r["text"],
                "by_position": [sig(x, 2) for x in r["by_position"]],
            }
            for r in rows
        ],
        "smallest_at_first_percent": sig(100 * min(r["at_first"] for r in rows)),
        "texts_as_right": sum(text == right for text in texts),
    }


def _guards(model):
    ids = ch10.some_ids(model, FAILURE_TEXT)
    rows = []
    for name in ch10.FAILURES:
        raised = ch10.failure(model, name, ids, 12, 24)["raised"]
        rows.append({"failure": name, "raised_unguarded": raised or "nothing", "guard": ch10.guard(model, name, ids, 12, 24)})
    return {
        "failures": rows,
        "raised_unguarded": sum(r["raised_unguarded"] != "nothing" for r in rows),
        "stopped": sum(r["guard"] is not None for r in rows),
    }


def _cost(_=None):
    def rows(config, prompt, news):
        found = []
        for m in news:
            naive, cached = ch10.flops_of_loop(config, prompt, m)
            row = ch10.tokens_processed(prompt, m) | {"flop_ratio": round(naive / cached, 1)}
            row |= {"ratio": round(row["ratio"], 1), "ratio_without_prefill": round(row["ratio_without_prefill"], 1)}
            found.append(row | {"naive_gflop": sig(naive / 1e9, 4), "cached_gflop": sig(cached / 1e9, 4)})
        return found

    return {
        "toy_prompt": 5,
        "toy": rows(read_config(ch10.TOY, "toy"), 5, (1, 12)),
        "gpt2_prompt": 20,
        "gpt2": rows(GPT2, 20, (1, 2, 5, 12, 25, 50, 100)),
    }


def _loop_time(model):
    rows = ch10.loop_times(model, 20, 100, (1, 2, 5, 12, 25, 50, 100))
    naive, cached = ch10.flops_of_loop(model.config, 20, 100)
    speeds = {"naive_gflop_per_s": naive / rows[-1]["naive_s"] / 1e9, "cached_gflop_per_s": cached / rows[-1]["cached_s"] / 1e9}
    return {"runs": 3, "prompt": 20, "times": rounded(rows), **rounded([speeds], 2)[0]}


def _loop_time_toy(_=None):
    rows = ch10.loop_times(ch10.toy(), 5, 12, (1, 2, 6, 12), runs=21)
    for r in rows:
        r |= {"naive_ms": 1e3 * r.pop("naive_s"), "cached_ms": 1e3 * r.pop("cached_s")}
    return {"runs": 21, "prompt": 5, "times": rounded(rows)}


def _memory(_=None):
    rows = [ch10.memory(ch10.GPT3, t) for t in (1, 512, 2048)]
    gib = [{"tokens": r["tokens"], "bytes": r["cache_bytes"], "gib": r["cache_bytes"] / 2**30} for r in rows]
    cache = KVCache(load(dtype=torch.float16), batch=2, capacity=100)
    most = rows[-1]["sequences_to_outweigh"]
    return {
        "per_token_mib": rows[0]["cache_bytes"] / 2**20,
        "tokens": gib,
        "at_512_gib": gib[1]["gib"],
        "at_2048_gib": gib[2]["gib"],
        "weights_gib": round(rows[0]["weight_bytes"] / 2**30, 1),
        "sequences_to_outweigh": most,
        "sequences_that_fit_below_the_weights": most - 1,
        "sequences": [
            {"sequences": n, "cache_gib": round(n * gib[2]["gib"], 1), "weight_gib": round(rows[0]["weight_bytes"] / 2**30, 1)}
            for n in (1, 8, 16, 24, 32, 40, 48)
        ],
        "gpt2_1024_float32_bytes": cache_bytes(GPT2, 1024),
        "embedded_per_token_bytes": cache_bytes(load_config(), 1),
        "as_the_tensors": cache.nbytes
        == cache_bytes(load_config(), 100, 2, 2)
        == sum(2 * x.numel() for x in (*cache.keys, *cache.values)),
    }


def _decode(model):
    return {"runs": 5, **rounded([ch10.decode_rates(model)])[0]}


CONFIG_ONLY = dict(model="gpt2 (its config; no weights)", loads=False, movable=False)

EXPERIMENTS = (
    # Chapter 5's measurement of repetition, run with chapter 10's cache, which chapter 5 may not import.
    Experiment(
        "ch05.policies",
        "observation",
        "The higher the temperature, the less of the text repeats itself; greedy text repeats most.",
        "Eight prompts and three seeds, no window, run with chapter 10's cache; repeating less is not being better.",
        lambda model: measure_policies(model, forward=Cached),
        seconds=12,
        figures={"repetition.svg": draw_repetition},
    ),
    Experiment(
        "ch10.splits",
        "tolerance",
        "Fed through the cache in any chunks, a text has the oracle's logits within 1e-5 of the largest, and its other tensors.",
        "Five ways to feed one text and a batch, and the full context in one way, on one model, a CPU, float32 and float64.",
        _splits,
        seconds=3,
    ),
    Experiment(
        "ch10.splits-at-size",
        "tolerance",
        "On random weights of GPT-2's shape the same holds, at the full context and in a batch.",
        "Random weights; the full context is fed in one way only.",
        _splits_at_size,
        model=SHAPE,
        movable=False,
        seconds=15,
    ),
    Experiment(
        "ch10.invariants",
        "exact",
        "After t tokens the cache holds t pairs, old pairs keep their bits, and causality holds exactly through it.",
        "One text in five ways on a CPU; both runs of the causal test have the same chunks.",
        _invariants,
    ),
    Experiment(
        "ch10.greedy",
        "tolerance",
        "With the cache, greedy and sampled text are the same tokens as transformers' and as each row alone, to the last position.",
        "Four prompts; a near tie could part two right programs.",
        _cached_greedy,
        seconds=12,
    ),
    Experiment(
        "ch10.failures",
        "observation",
        "Five wrong caches leave the oracle at once or at the wrap, and some still write the right text.",
        "One text of 40 tokens on one small model; how much each costs depends on model and text.",
        _failures,
        seconds=3,
    ),
    Experiment(
        "ch10.guards",
        "exact",
        "None of the five wrong caches raises anything by itself, and each is stopped by a check of room, positions, mask or ids.",
        "These five faults; a guard checks what it was written for.",
        _guards,
        seconds=2,
    ),
    Experiment(
        "ch10.cost",
        "exact",
        "Positions and FLOPs of a loop with and without a cache, with the prefill counted and without it.",
        "Counts; logits at the last position only, the full rectangle of query and key.",
        _cost,
        **CONFIG_ONLY,
    ),
    Experiment(
        "ch10.time",
        "timing",
        "On GPT-2's shape the cache saves far less time than positions: single positions run at a fraction of the FLOPs a second.",
        "One thread of one processor, float32, a prompt of 20 tokens, random weights of GPT-2's shape; no traffic was measured.",
        _loop_time,
        model=SHAPE,
        seconds=120,
    ),
    Experiment(
        "ch10.time-toy",
        "timing",
        "On the toy of four layers and width 64 the cache saves hardly any time, whatever it saves in positions.",
        "One thread of one processor, milliseconds in all, so the ratios at few tokens are within the noise.",
        _loop_time_toy,
        model="toy (random, seed 0)",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch10.memory",
        "exact",
        "A cache takes 2 L h dh T B numbers: in GPT-3's shape at two bytes 4.5 MiB a token and 9 GiB at 2,048.",
        "Keys and values only, of the published shape; nothing about how a serving system lays them out.",
        _memory,
        model="GPT-3's published shape",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch10.decode",
        "timing",
        "Decoding one token at a time runs near the speed at which the weights alone can be multiplied by a vector.",
        "One thread of one processor, float32, batch 1, 64 tokens from a prompt of one.",
        _decode,
        model=SHAPE,
        seconds=45,
    ),
    *registry_ch14.EXPERIMENTS,
)
