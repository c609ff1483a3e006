"""Every experiment and every claim of the book: what `make evidence` runs and the register lists.

An experiment measures with functions of a chapter's scripts and returns plain values, with units in their names and floats
rounded to what they mean: `exact` ones to nothing that depends on a machine, worst values to one significant digit, sizes and
times to three.
"""

import math
from dataclasses import replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.families import read_config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import PUBLISHED, load, load_config, run
from examples.ch03.tokens import PROMPTS, decode, default_ids, encode, prompt_batches, random_ids
from examples.ch04 import agreement as ex
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import tiny_transformer as tiny
from examples.ch04.library import library_model
from examples.ch05 import repetition as ch05
from examples.ch05 import sampling
from examples.ch05.generate import generate
from examples.ch10 import cache_parity as ch10
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes
from examples.lab.experiment import Claim, Experiment, rounded, sig, tolerance
from scripts import registry_ch14

SHAPE = "random:gpt2"
GPT2 = load_config("gpt2")
BOUND = 1e-5  # of the largest logit, for float32 programs that compute the same function


# -------------------------------------------------------------------------------------------------------------- chapter 4


def _counts(_):
    parts = gpt2.parameter_count(GPT2)
    total = parts.pop("total")
    deep = gpt2.parameter_count(replace(GPT2, n_layer=48))["total"]
    layer = gpt2.parameter_count(replace(GPT2, n_layer=13))["total"] - total
    shares = {name: f"{name}_share_percent" for name in ("token_embedding", "attention", "feed_forward")}
    matrices = 12 * GPT2.n_embd**2
    return {
        "components": [
            {"component": name.replace("_", " "), "parameters": n, "share_percent": round(100 * n / total, 1)}
            for name, n in parts.items()
        ],
        **{shares[name]: round(100 * parts[name] / total, 1) for name in shares},
        "total": total,
        "tensor_table_total": sum(math.prod(s) for s in tensor_shapes(GPT2).values()),
        "tensors": len(tensor_shapes(GPT2)),
        "token_embedding": parts["token_embedding"],
        "position_embedding": parts["position_embedding"],
        "one_layer": layer,
        "layers_48_total": deep,
        "layers_48_ratio": round(deep / total, 2),
        "feed_forward_share_of_layer_matrices_percent": round(100 * 8 * GPT2.n_embd**2 / matrices, 1),
        "untied_total": gpt2.parameter_count(replace(GPT2, tie_word_embeddings=False))["total"],
        "without_positions": total - parts["position_embedding"],
        "family": [{"config": name, "parameters": gpt2.parameter_count(load_config(name))["total"]} for name in PUBLISHED],
        "embedded_total": gpt2.parameter_count(load_config())["total"],
    }


def _attention(parts):
    return parts["attention_projections"] + parts["attention_scores_and_values"]


def _flops(_):
    per_token = {c: gpt2.flops_per_token(GPT2, c) for c in (1, 16, 128, 512, 1024)}
    contexts = [
        {"context": c, **parts, "output_share_percent": round(100 * parts["output_projection"] / parts["total"], 1)}
        for c, parts in per_token.items()
    ]
    passes = []
    for tokens in (16, 128, 512, 1024):
        full, causal = (gpt2.flops_per_pass(GPT2, tokens, pairs=pairs) for pairs in ("full", "causal"))
        passes.append(
            {
                "tokens": tokens,
                "full_gflop": round(full["total"] / 1e9, 3),
                "causal_gflop": round(causal["total"] / 1e9, 3),
                "attention_share_full_percent": round(100 * _attention(full) / full["total"], 1),
                "attention_share_causal_percent": round(100 * _attention(causal) / causal["total"], 1),
            }
        )
    small = load_config()
    ids = torch.zeros(1, 64, dtype=torch.int64)
    weights = {name: torch.zeros(shape) for name, shape in tensor_shapes(small).items()}
    with FlopCounterMode(display=False) as counter:
        gpt2.forward(ids, weights, small)
    return {
        "contexts": contexts,
        "passes": passes,
        "output_projection_mflop": round(per_token[16]["output_projection"] / 1e6, 1),
        "at_16_gflop": round(per_token[16]["total"] / 1e9, 3),
        "rise_16_to_1024_percent": round(100 * (per_token[1024]["total"] / per_token[16]["total"] - 1), 1),
        "context_ratio": 1024 // 16,
        "embedded_pass_of_64_by_formula": gpt2.flops_per_pass(small, 64)["total"],
        "embedded_pass_of_64_counted": counter.get_total_flops(),
    }


def _shapes(_):
    rows = gpt2.tensor_table(GPT2, 1024)
    scores = next(r for r in rows if r["point"] == "scores")
    small = {r["point"]: r for r in gpt2.tensor_table(GPT2, 512)}
    return {
        "tokens": 1024,
        "tensors": [
            {
                "tensor": r["point"],
                "how_many": r["count"],
                "shape": " x ".join(map(str, r["shape"])),
                "bytes": r["bytes"],
                "grows_with": r["growth"],
            }
            for r in rows
        ],
        "scores_bytes": scores["bytes"],
        "scores_growth_from_512": scores["bytes"] // small["scores"]["bytes"],
        "hidden_growth_from_512": next(r for r in rows if r["point"] == "hidden")["bytes"] // small["hidden"]["bytes"],
    }


def _mixing(model):
    return {f"{part}_keeps_the_bits": same for part, same in ex.position_by_itself(model).items()}


def _mask(model):
    found = ex.mask_test(model, default_ids(model, 10))
    dtypes = {}
    for name in ("float64", "bfloat16", "float16"):
        other = model.to(dtype=ex.DTYPES[name])
        dtypes[f"{name}_above_diagonal"] = ex.above_diagonal(ex.influence(other, default_ids(other, 10)))
    return {
        "tokens": found["tokens"],
        "earlier_positions": found["tokens"] - 1,
        "largest_earlier_change": max(found["change_with_mask"][:-1]),
        "earlier_predictions_rewritten": found["earlier_argmax_moved_with_mask"],
        "influence_above_diagonal": found["largest_above_diagonal"],
        "sharpened_above_diagonal": found["sharpened_above_diagonal"],
        **dtypes,
    }


def _mask_off(model):
    found = ex.mask_test(model, default_ids(model, 10))
    rows = zip(found["change_with_mask"], found["change_without_mask"], strict=True)
    return {
        "tokens": found["tokens"],
        "positions": [{"position": i, "mask_on": sig(a), "mask_off": sig(b)} for i, (a, b) in enumerate(rows)],
        "smallest_earlier_change": sig(min(found["change_without_mask"][:-1])),
        "largest_earlier_change": sig(max(found["change_without_mask"][:-1])),
        "change_at_last_with_mask": sig(found["change_with_mask"][-1]),
        "change_at_last_without_mask": sig(found["change_without_mask"][-1]),
        "earlier_predictions_rewritten": found["earlier_argmax_moved_without_mask"],
        "influence": [[sig(x) for x in row] for row in found["influence"]],
        "minus_1e4_sharpened_above_diagonal": sig(found["sharpened_above_diagonal_at_minus_1e4"]),
    }


def _agreement(model):
    library = library_model(model)
    prompts, edges = ex.compare_prompts(model, library), ex.compare_edges(model, library)
    rows = prompts + edges
    worst = ex.worst(r["relative_difference"] for r in rows)
    found = tolerance(
        BOUND,
        worst,
        prompts=[_prompt_row(r) for r in prompts],
        edges=[{"batch": r["batch"], "tokens": r["tokens"], **_same(r)} for r in edges],
        largest_logit=sig(max(r["largest_logit"] for r in rows)),
        positions=sum(r["positions"] for r in rows),
        same_argmax=sum(r["same_argmax"] for r in rows),
    )
    return found | {"held": found["held"] and found["same_argmax"] == found["positions"]}  # the claim has two halves


def _same(row):
    return {"largest_logit": sig(row["largest_logit"]), "positions": row["positions"], "same_argmax": row["same_argmax"]}


def _prompt_row(row):
    return {"prompt": row["text"] or "random ids", "tokens": row["tokens"], **_same(row)}


def _layers(model):
    rows = ex.compare_layers(model, library_model(model), prompt_batches(model)[-1])
    worst = max(rows, key=lambda r: r["largest_difference"] / r["largest_value"])
    return tolerance(
        BOUND, worst["largest_difference"] / worst["largest_value"], tensors=len(rows), points=len({r["point"] for r in rows})
    )


def _float64(model):
    batches = prompt_batches(model) + ex.edge_batches(model)
    rows = {r["dtype"]: r for r in ex.distance_from_float64(model, batches, ("float32", "float64"))}
    ours, theirs = rows["float32"]["ours"], rows["float32"]["library"]
    within = rows["float64"]["library"] / rows["float64"]["largest_logit"]
    return tolerance(
        2,
        ours / theirs,
        sig(ours / theirs, 1),
        float64_programs_agree_within_1e_12=within <= 1e-12,
        positions=rows["float32"]["positions"],
    )


def _half(model):
    batches = prompt_batches(model) + ex.edge_batches(model)
    rows = ex.distance_from_float64(model, batches, ("float32", "bfloat16", "float16"))
    return {
        "largest_logit": sig(rows[0]["largest_logit"]),
        "dtypes": [
            {
                "dtype": r["dtype"],
                "ours": sig(r["ours"], 2),
                "transformers": sig(r["library"], 2),
                "same_argmax": r["ours_same_argmax"],
                "positions": r["positions"],
            }
            for r in rows
        ],
    }


def _error_growth(model):
    full = model.config.n_positions
    lengths = sorted({min(t, full) for t in (1, 16, 64, 256)})
    return {
        "layers": rounded(ex.error_by_layer(model, random_ids(model, min(64, full))), 2),
        "lengths": rounded(ex.error_by_length(model, lengths), 2),
    }


def _residual(model):
    ids = default_ids(model, 17)
    rows = ex.residual_statistics(model, ids)
    last = rows[-1]
    return {
        "tokens": ids.shape[1],
        "layers": rounded(rows),
        "rms_growth": sig(last["rms"] / rows[0]["rms"], 2),
        "largest_growth": sig(last["largest"] / rows[0]["largest"], 2),
        "largest_over_median_max": sig(max(r["largest_over_median"] for r in rows)),
        "dimensions_of_the_largest": len({r["dimension"] for r in rows[1:]}),
    }


def _residual_others(model):
    rows = []
    texts = ex.OTHERS if model.tokenizer else (None,) * len(ex.OTHERS)
    for i, text in enumerate(texts):
        ids = encode(text, model) if text else random_ids(model, min(17, model.config.n_positions), seed=i)
        last = ex.residual_statistics(model, ids)[-1]
        last = {k: last[k] for k in ("largest", "position", "dimension", "largest_over_median")}
        rows.append({"text": text or f"random ids {i}", "tokens": ids.shape[1], **rounded([last])[0]})
    return {
        "prompts": rows,
        "at_position_0": sum(r["position"] == 0 for r in rows),
        "different_positions": len({r["position"] for r in rows}),
        "different_dimensions": len({r["dimension"] for r in rows}),
    }


def _time(model):
    lengths, components = [], []
    for tokens in ex.timing_lengths(model.config):
        found = ex.component_times(model, tokens, runs=5)
        row = {k: sig(found[k]) for k in ("tokens", "sum_ms", "untraced_ms", "unexplained_ms", "gflop_per_s")}
        row |= {"tokens": tokens, "unexplained_percent": round(100 * found["unexplained_ms"] / found["untraced_ms"], 1)}
        for c in found["components"]:
            name = c["component"]
            row |= {
                f"{name}_time_percent": round(100 * c["time_share"], 1),
                f"{name}_flop_percent": round(100 * c["flop_share"], 1),
            }
            components.append(
                {
                    "tokens": tokens,
                    "component": name.replace("_", " "),
                    "ms": sig(c["ms"]),
                    "time_percent": round(100 * c["time_share"], 1),
                    "flop_percent": round(100 * c["flop_share"], 1),
                    "gflop_per_s": sig(c["gflop_per_s"], 2),
                }
            )
        lengths.append(row)
    shares = [r["norms_time_percent"] for r in lengths]
    long, short = lengths[-1], lengths[0]
    return {
        "runs": 5,
        "denormal_weights": ex.denormals(model),
        "lengths": lengths,
        "components": components,
        "norms_time_percent_min": min(shares),
        "norms_time_percent_max": max(shares),
        "throughput_ratio_128_to_16": sig(lengths[1]["gflop_per_s"] / short["gflop_per_s"], 2),
        "attention_time_over_flops_at_longest": sig(long["attention_time_percent"] / long["attention_flop_percent"], 2),
    }


def _last_position(model):
    rows = [ex.last_position_saving(model, t) for t in (16, 128, 512) if t <= model.config.n_positions]
    for row in rows:
        row |= {"all_ms": sig(row["all_ms"]), "last_ms": sig(row["last_ms"])}
        row |= {k: round(row[k], 1) for k in ("time_saving_percent", "flop_saving_percent")}
    return {"runs": 5, "lengths": rows}


def _tiny(_):
    config = tiny.TinyConfig()
    weights = tiny.make_weights(config)
    ids = torch.randint(config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(0))
    rows = tiny.count_depths(config)
    return {
        "depths": rows,
        "all_equal": all(r["formula"] == r["counted"] for r in rows),
        "largest_earlier_change": tiny.causal_check(config, weights, ids)["earlier"],
        "changes_without_mask": tiny.causal_check(config, weights, ids, causal=False)["earlier"] > 0,
    }


# -------------------------------------------------------------------------------------------------------------- chapter 5


def _example(_):
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


def _filters(_):
    found = ch05.compare_filters()
    counts = {key: found[key] for key in ("rows", "ties_cut", "compared", "same_kept")}
    strays = found["library_in_float32"] > 1e-4
    counts |= {"settings": len(ch05.SETTINGS), "library_in_float32_strays_above_1e_4": strays}
    within = tolerance(1e-6, found["largest_difference"], **counts)
    return within | {"held": within["held"] and found["same_kept"] == found["compared"]}


def _draws(_):
    rows = ch05.draw_frequencies(torch.tensor(sampling.LOGITS), 100_000)
    kept = ch05.draw_frequencies(torch.tensor(sampling.LOGITS), 100_000, top_p=0.9)
    never = all(r["frequency"] == 0 for r in kept if r["probability"] == 0)
    worst = ex.worst(abs(r["deviations"]) for r in rows + kept)
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


def _bigram(_):
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
    more = [*ch10.compare_splits(model, batch), ex.agreement(last, run(model, full))]
    layers = ch10.compare_layers(model, text, ch10.splits(40)["uneven chunks"])
    worst = ex.worst(
        [r["relative_difference"] for r in rows + more] + [r["largest_difference"] / r["largest_value"] for r in layers]
    )
    exact = model.to(dtype=torch.float64)
    in_float64 = ex.worst(r["relative_difference"] for r in ch10.compare_splits(exact, text))
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
        {"split": "the full context", "chunks": len(sizes)} | ex.agreement(ch10.in_chunks(model, full, sizes)[0], run(model, full))
    )
    found = tolerance(
        BOUND,
        ex.worst(r["relative_difference"] for r in rows),
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


def _cost(_):
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


def _loop_time_toy(_):
    rows = ch10.loop_times(ch10.toy(), 5, 12, (1, 2, 6, 12), runs=21)
    for r in rows:
        r |= {"naive_ms": 1e3 * r.pop("naive_s"), "cached_ms": 1e3 * r.pop("cached_s")}
    return {"runs": 21, "prompt": 5, "times": rounded(rows)}


def _memory(_):
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
        "ch04.counts",
        "exact",
        "The closed formula counts every parameter of GPT-2, and the table that loading is checked against holds the same number.",
        "Counts what is stored, not what is useful; says nothing of memory beyond the weights.",
        _counts,
        **CONFIG_ONLY,
    ),
    Experiment(
        "ch04.flops",
        "exact",
        "Matmul FLOPs follow from the config, 2 a weight and token and 4 L T h dh for attention, and PyTorch's counter agrees.",
        "Matrix products only: softmax, GELU, norms, look-ups and additions are left out, and FLOPs are not time.",
        _flops,
        **CONFIG_ONLY,
    ),
    Experiment(
        "ch04.shapes",
        "exact",
        "Only the attention scores and weights, and the mask, one table of booleans, grow with the square of the length.",
        "Sizes of single tensors in float32, one sequence; not the peak of a running program.",
        _shapes,
        **CONFIG_ONLY,
    ),
    Experiment(
        "ch04.tiny",
        "exact",
        "The tiny transformer's parameter formula matches its tensors at five depths, and its mask holds exactly.",
        "A random model: nothing about a trained one.",
        _tiny,
        model="tiny (random, seed 0)",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch04.mixing",
        "exact",
        "Embedding, layer norm and feed-forward network give a position the same bits whatever its neighbours; attention does not.",
        "Inputs of one shape; another shape may sum in another order.",
        _mixing,
    ),
    Experiment(
        "ch04.mask",
        "exact",
        "With the mask, changing a token changes nothing before it: the logits there are bit for bit the same.",
        "One text of ten tokens on a CPU; runs of one shape, since another shape may sum in another order.",
        _mask,
    ),
    Experiment(
        "ch04.mask-off",
        "observation",
        "Without the mask, changing the last token changes the logits at every earlier position.",
        "One text; how much changes depends on it and the model. A mask of -1e4 is seen to leak only on sharpened weights.",
        _mask_off,
    ),
    Experiment(
        "ch04.agreement",
        "tolerance",
        "In float32 our logits are those of transformers within 1e-5 of the largest, with the same argmax at every position.",
        "Four prompts and five edge shapes on one model, eager attention, a CPU.",
        _agreement,
        seconds=3,
    ),
    Experiment(
        "ch04.agreement-at-size",
        "tolerance",
        "On random weights of GPT-2's shape the same agreement holds up to 1,024 tokens and in a batch.",
        "Random weights have smaller logits and no outliers; a trained GPT-2 needs its own run.",
        _agreement,
        model=SHAPE,
        movable=False,
        seconds=40,
    ),
    Experiment(
        "ch04.layers",
        "tolerance",
        "Point by point of the pass our tensors are the library's within 1e-5 of the largest value there.",
        "One prompt; the scores are left out, since the library does not show them.",
        _layers,
        seconds=2,
    ),
    Experiment(
        "ch04.float64",
        "tolerance",
        "In float32 our largest distance from the float64 result is at most twice the library's.",
        "The float64 reference is our own program; that the library in float64 gives the same to 1e-12 is recorded beside it.",
        _float64,
        seconds=10,
    ),
    Experiment(
        "ch04.half",
        "observation",
        "In bfloat16 and float16 both programs are some orders of magnitude further from float64, and most argmaxes stay.",
        "No bar is set: rounding depends on kernels and on the processor.",
        _half,
        seconds=10,
    ),
    Experiment(
        "ch04.error-growth",
        "observation",
        "The rounding error of float32, relative to the values, stays within an order of magnitude over depth and length.",
        "One model of a few layers on random ids; a deeper one needs its own run.",
        _error_growth,
        seconds=3,
    ),
    Experiment(
        "ch04.residual",
        "observation",
        "The values in the residual stream grow with depth.",
        "One text on one small model; a massive activation of the first edition's kind is looked for, not assumed.",
        _residual,
    ),
    Experiment(
        "ch04.residual-others",
        "observation",
        "Where the largest value of the last stream stands, on five other texts.",
        "Five texts; no claim about how general it is.",
        _residual_others,
    ),
    Experiment(
        "ch04.time",
        "timing",
        "At 1,024 tokens attention takes a larger share of time than of FLOPs, in this unfused program.",
        "One thread of one processor, float32, random weights of GPT-2's shape; a fused kernel divides its time otherwise.",
        _time,
        model=SHAPE,
        seconds=110,
    ),
    Experiment(
        "ch04.last-position",
        "timing",
        "Computing the logits at the last position only saves nearly the output projection's share of a short pass.",
        "One thread of one processor; the saving in time depends on how fast the other parts run.",
        _last_position,
        model=SHAPE,
        seconds=50,
    ),
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

CLAIMS = (
    Claim(
        "ch04.short-inputs",
        "hypothesis",
        "Short inputs underuse the processor because each weight that is read serves few tokens.",
        ("ch04.time",),
        "Memory traffic was not measured; chapter 11 tests it.",
    ),
    Claim(
        "ch04.memory-bound-attention",
        "hypothesis",
        "Attention's excess of time over FLOPs at long inputs is memory traffic over the T x T tensors.",
        ("ch04.time", "ch04.shapes"),
        "Memory traffic was not measured; chapters 11 and 13 test it.",
    ),
    Claim(
        "ch04.outliers-and-training",
        "hypothesis",
        "Massive activations at the first position are a matter of scale or training: the embedded model shows none.",
        ("ch04.residual", "ch04.residual-others"),
        "Two models that differ in everything cannot tell which difference matters.",
    ),
    Claim(
        "ch04.no-gpu",
        "not shown here",
        "How time divides on a GPU, in fused kernels or in half precision.",
        (),
        "Every timing is of one CPU thread, unfused, in float32.",
    ),
    Claim(
        "ch04.no-other-families",
        "not shown here",
        "Anything about architectures other than GPT-2.",
        (),
        "Chapter 14 takes them up.",
    ),
    Claim(
        "ch04.no-understanding",
        "not shown here",
        "That agreement on a finite set of inputs is a proof for all of them.",
        ("ch04.agreement", "ch04.agreement-at-size"),
        "It is evidence; the exact results are about structure, the tolerances about cases.",
    ),
    Claim(
        "ch05.why-cycles",
        "hypothesis",
        "Greedy text repeats because each repetition makes the next one more probable.",
        ("ch05.cycles",),
        "The mean probability is measured to rise from round to round, and by little; that this is the cause is not measured.",
    ),
    Claim(
        "ch05.no-quality",
        "not shown here",
        "Which policy writes better text.",
        (),
        "Repetition is counted; nobody read the texts, and the model is small.",
    ),
    Claim(
        "ch05.no-other-models",
        "not shown here",
        "That a large or instructed model enters cycles as soon, or of this length.",
        ("ch05.cycles",),
        "One model of a few million parameters, trained on plays.",
    ),
    Claim(
        "ch10.weights-bound",
        "hypothesis",
        "A decode step's time is that of reading the weights once from memory.",
        ("ch10.decode", "ch10.time"),
        "The floor is a time, not a count of bytes; chapter 11 counts them.",
    ),
    Claim(
        "ch10.overhead",
        "hypothesis",
        "What remains above the floor, and what hides the saving on the toy, is the overhead of many small operations.",
        ("ch10.decode", "ch10.time-toy"),
        "No profile is recorded here.",
    ),
    Claim(
        "ch10.no-serving",
        "not shown here",
        "How caches of many requests are laid out, paged, shared or evicted.",
        (),
        "One cache of fixed capacity, rows of one length.",
    ),
    Claim(
        "ch10.no-gpu",
        "not shown here",
        "Any time on a GPU, in half precision or with fused kernels.",
        (),
        "Every timing is of one CPU thread in float32.",
    ),
    *registry_ch14.CLAIMS,
)


def measure_by_id(id, model=None):
    """The values of one experiment, measured now."""
    return next(e for e in EXPERIMENTS if e.id == id).measure(model)
