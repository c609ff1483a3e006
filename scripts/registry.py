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
from examples.ch05 import cycles as ch05
from examples.ch05 import sampling
from examples.ch05.generate import generate
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


# -------------------------------------------------------------------------------------------------------------- chapter 5


def _example(_=None):
    logits = torch.tensor(sampling.LOGITS)
    found = sampling.worked_example(logits)
    rows = sampling.candidates(logits, count=len(logits))
    names = sampling.CANDIDATES

    def percent(x):
        return round(100 * x, 1)

    return {
        "candidates": [{"candidate": names[r["id"]], "logit": sig(r["logit"]), "percent": percent(r["probability"])} for r in rows],
        "mat_percent": percent(rows[0]["probability"]),
        "temperatures": [
            {
                "temperature": t["temperature"],
                **{name: percent(x) for name, x in zip(names, t["probabilities"], strict=True)},
                "probabilities": [round(x, 4) for x in t["probabilities"]],
            }
            for t in found["by_temperature"]
        ],
        "top_k": [{"k": r["k"], "cut_percent": percent(r["cut"])} for r in found["by_top_k"]],
        "top_p": [{"p": r["p"], "kept": r["kept"], "mass_percent": percent(r["mass"])} for r in found["by_top_p"]],
        "after_temperature_half_kept_at_p_0_9": int((sampling.probabilities(logits, 0.5, top_p=0.9) > 0).sum()),
        "after_temperature_2_kept_at_p_0_9": int((sampling.probabilities(logits, 2.0, top_p=0.9) > 0).sum()),
    }


def _filters(_=None):
    found = ch05.compare_filters()
    counts = {key: found[key] for key in ("rows", "ties_cut", "compared", "same_kept")}
    strays = found["library_in_float32"] > 1e-4
    counts |= {"settings": len(ch05.SETTINGS), "library_in_float32_strays_above_1e_4": strays}
    within = tolerance(1e-6, found["largest_difference"], **counts)
    return within | {"held": within["held"] and found["same_kept"] == found["compared"]}


def _draws(_=None):
    rows = ch05.draw_frequencies(torch.tensor(sampling.LOGITS), 100_000)
    kept = ch05.draw_frequencies(torch.tensor(sampling.LOGITS), 100_000, top_p=0.9)
    never = all(r["frequency"] == 0 for r in kept if r["probability"] == 0)
    worst = find_worst(abs(r["deviations"]) for r in rows + kept)
    found = tolerance(4, worst, draws=100_000, candidates=len(rows), cut_ones_never_drawn=never)
    return found | {"held": found["held"] and never}


def _all_same(rows, **values):
    """A tolerance of no differing token at all, from rows with `tokens` and `same`."""
    tokens, same = sum(r["tokens"] for r in rows), sum(r["same"] for r in rows)
    return tolerance(0, tokens - same, tokens=tokens, same=same, rows=rows, **values)


def _greedy(model):
    library = library_model(model)
    whole = ch05.compare_greedy(model, PROMPTS[:1], None, library=library)
    return _all_same(whole + ch05.compare_greedy(model, PROMPTS[1:], 60, library=library), positions=model.config.n_positions)


def _rows(model):
    rows = ch05.compare_sequences(model, PROMPTS, 40, 0.8)
    return _all_same(rows, prompts=len(rows), longest=max(r["prompt"] for r in rows), shortest=min(r["prompt"] for r in rows))


def _bigram(_=None):
    model, forward, words = ch05.bigram()
    rows = []
    for i, word in enumerate(words):
        whole = [i, *generate([[i]], model, 3 * len(words), forward=forward).sequence()]
        start, length = ch05.cycle(whole, 1)
        rows.append({"starts_with": word, "enters_after": start, "length": length})
    shown = [words[i] for i in generate([[words.index("cat")]], model, 8, forward=forward).sequence()]
    out = [words[i] for i in generate([[words.index("mat")]], model, 8, forward=forward).sequence()]
    return {
        "sentence": " ".join(ch05.SENTENCE),
        "words": len(words),
        "starts": rows,
        "starts_that_cycle": sum(r["length"] is not None for r in rows),
        "cycle_length": rows[0]["length"],
        "longest_way_in": max(r["enters_after"] for r in rows),
        "from_cat": " ".join(shown),
        "from_mat": " ".join(out),
    }


def _cycles(model):
    rows, texts = ch05.greedy_cycles(model)
    found = [r for r in rows if r["length"]]
    rounds = [
        ch05.probability_by_round(model, text["ids"], text["start"], r["length"], rounds=4)
        for r, text in zip(rows, texts, strict=True)
        if r["length"]
    ]
    full = [x for x in rounds if len(x) == 4]
    return {
        "window": ch05.WINDOW,
        "tokens": ch05.LONG,
        "prompts": rows,
        "prompts_count": len(rows),
        "in_a_cycle": len(found),
        "first_entry": min((r["enters_after"] for r in found), default=None),
        "last_entry": max((r["enters_after"] for r in found), default=None),
        "shortest": min((r["length"] for r in found), default=None),
        "longest": max((r["length"] for r in found), default=None),
        "rounds": [{"round": i + 1, "mean_probability": sig(sum(x[i] for x in full) / len(full))} for i in range(4 if full else 0)],
        "surer_in_round_4": sum(x[3] > x[0] for x in full),
        "with_4_rounds": len(full),
    }


def _one_step(model):
    rows = []
    for row, text in zip(*ch05.greedy_cycles(model, ch05.PROMPTS[4:]), strict=True):
        if row["length"]:
            found = ch05.one_sampled_step(model, text["ids"], text["start"], row["length"])
            rows += [{"text": row["text"], "old_length": row["length"], **r} for r in found]
    moved = [r for r in rows if not r["same_token"]]
    return {
        "steps": rows,
        "draws": len(rows),
        "another_token": len(moved),
        "in_a_cycle_again": sum(r["same_cycle"] is not None for r in moved),
        "back_in_the_old_cycle": sum(r["same_cycle"] is True for r in moved),
        "in_another_cycle": sum(r["same_cycle"] is False for r in moved),
        "in_none_within_300": sum(r["same_cycle"] is None for r in moved),
        "longest_way_to_a_cycle": max((r["after"] for r in moved if r["after"] is not None), default=None),
    }


def _policies(model):
    seeds = (0, 100, 200)
    runs = [ch05.repetition_by_policy(model, seed=seed, forward=Cached) for seed in seeds]
    rows = []
    for same in zip(*runs, strict=True):
        shares = [sum(x) / len(x) for x in zip(*(r["shares"] for r in same), strict=True)]  # [stretches]
        rows.append(
            {
                "policy": same[0]["policy"],
                "percent": round(100 * sum(r["share"] for r in same) / len(same), 1),
                "least_percent": round(100 * min(r["share"] for r in same), 1),
                "most_percent": round(100 * max(r["share"] for r in same), 1),
                "last_percent": round(100 * shares[-1], 1),
                "shares": [round(x, 3) for x in shares],
            }
        )
    return {
        "width": 30,
        "prompts": len(ch05.PROMPTS),
        "seeds": len(seeds),
        "tokens": 30 * len(rows[0]["shares"]),
        "policies": rows,
        "greedy_last_percent": rows[0]["last_percent"],
        "temperature_1_last_percent": rows[3]["last_percent"],
    }


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
    rows = ch05.compare_greedy(model, PROMPTS, None, forward=Cached, library=library)
    batch = ch05.compare_sequences(model, PROMPTS, 40, 0.8, forward=Cached)
    cached, ids = Cached(model), encode(PROMPTS[0], model)
    generate(ids, model, 20, end=None, forward=cached)
    reused = ch10.reuse(model, ch10.some_ids(model, 40), [torch.tensor([1]), torch.tensor([2, 3, 4])])
    found = _all_same(
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
    Experiment(
        "ch05.example",
        "exact",
        "Temperature reshapes probabilities and keeps their order; top-k cuts to a count, top-p to a mass.",
        "Five candidates with made-up scores, each filter alone unless it is said.",
        _example,
        model="five candidates",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch05.filters",
        "tolerance",
        "Our probabilities are those of transformers' processors within 1e-6, and the kept sets are the same.",
        "Rows whose last kept token has an equal among the cut ones are left out: there the two have different rules.",
        _filters,
        model="1,000 rows of random logits",
        loads=False,
        movable=False,
        seconds=2,
    ),
    Experiment(
        "ch05.draws",
        "tolerance",
        "The ids that are drawn have the frequencies that their probabilities say, within four standard deviations.",
        "One seed, five candidates; nothing about the generator's quality beyond this.",
        _draws,
        model="five candidates",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch05.greedy",
        "tolerance",
        "Greedy decoding by the oracle gives transformers' tokens, one by one, up to the model's last position.",
        "One prompt to the last position and three for 60 tokens; a near tie could part two right programs.",
        _greedy,
        seconds=15,
    ),
    Experiment(
        "ch05.rows",
        "tolerance",
        "In a batch of unequal prompts, sampled, each row has the tokens that it has alone.",
        "Four prompts, 40 tokens each; rounding differs between batches, so a near tie could part them.",
        _rows,
        seconds=4,
    ),
    Experiment(
        "ch05.bigram",
        "exact",
        "A greedy model that sees only the last word enters a cycle from every start, and the cycle need not be of one word.",
        "A table of word pairs, not a transformer.",
        _bigram,
        model="a bigram table",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch05.cycles",
        "observation",
        "With a window, greedy decoding of the embedded model enters a cycle from every prompt tried, of many tokens.",
        "Eight prompts, one small model, a window of 64; how soon and how long depends on all three.",
        _cycles,
        seconds=35,
    ),
    Experiment(
        "ch05.one-step",
        "observation",
        "One sampled token does not end the repetition: greedy decoding is soon in a cycle again, mostly in the old one.",
        "Four prompts and four draws each, one in each quarter of the third round; 300 tokens looked at.",
        _one_step,
        seconds=60,
    ),
    Experiment(
        "ch05.policies",
        "observation",
        "The higher the temperature, the less of the text repeats itself; greedy text repeats most.",
        "Eight prompts and three seeds, no window, run with chapter 10's cache; repeating less is not being better.",
        _policies,
        seconds=12,
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
