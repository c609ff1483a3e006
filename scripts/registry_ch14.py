"""Chapter 14's experiments and claims, for the registry."""

import torch

from examples.ch02.layout import is_buffer, weight_shapes
from examples.ch03.tokens import default_ids, encode
from examples.ch04.causal_mask import above_diagonal, influence
from examples.ch04.component_timing import component_times
from examples.ch04.residual_trace import OTHERS, residual_statistics
from examples.ch14 import family_agreement as ex
from examples.ch14 import serving
from examples.ch14.costs import cached_numbers, flops_per_token, kv_bytes_per_token, parameter_count
from examples.lab.experiment import Experiment, sig, tolerance, worst

REAL = "smollm2"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)

# --------------------------------------------------------------------------------------------------------- Llama, on real weights


def rounded(rows, digits=3):
    return [{k: sig(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def _agreement(model):
    found = ex.llama_agreement(model)
    rows = found["prompts"] + found["edges"]
    points = {}
    for r in found["layers"]:
        points.setdefault(r["point"], []).append(r["largest_difference"] / r["largest_value"])
    values = tolerance(
        ex.BAR,
        found["worst"],
        prompts=[{"prompt": r["text"], "tokens": r["tokens"], "positions": r["positions"]} for r in found["prompts"]],
        longest=max(r["tokens"] for r in rows),
        positions=found["positions"],
        same_argmax=found["same_argmax"],
        greedy_tokens=found["greedy_tokens"],
        greedy_same=found["greedy_same"],
        points=len(points),
        tensors=len(found["layers"]),
        points_within_1e_5=all(x <= 1e-5 for row in points.values() for x in row),
        parameters=model.manifest["parameters"],
    )
    held = found["within"] and found["greedy_same"] == found["greedy_tokens"] and values["points_within_1e_5"]
    return values | {"held": values["held"] and held}


def _mask(model):
    found = influence(model, default_ids(model, 10))
    return {"tokens": len(found), "influence_above_diagonal": above_diagonal(found)}


def _residual(model):
    rows = rounded(residual_statistics(model, default_ids(model, 17)))
    top = max(rows, key=lambda r: r["largest"])
    written = max(rows[1:], key=lambda r: r["mlp_norm"])
    return {
        "tokens": 17,
        "layers": rows,
        "shown": [r for r in rows if r["layer"] in (0, 1, 2, 4, 8, 10, 11, 12, 16, 20, 24, 28, 29, 30)],
        "top": top,
        "first_massive_layer": next((r["layer"] for r in rows if r["largest_over_median"] > 1000), None),
        "written_by_feed_forward_of_layer": written["layer"],
        "its_norm": written["mlp_norm"],
        "last": rows[-1],
        "before_top": rows[top["layer"] - 1],
    }


def _residual_others(model):
    rows = []
    for text in OTHERS:
        found = residual_statistics(model, encode(text, model))
        top = max(found, key=lambda r: r["largest"])
        keep = {k: top[k] for k in ("layer", "largest", "position", "dimension", "largest_over_median")}
        rows.append({"text": text, **rounded([keep])[0]})
    return {
        "prompts": rows,
        "at_position_0": sum(r["position"] == 0 for r in rows),
        "dimensions": sorted({r["dimension"] for r in rows}),
        "different_dimensions": len({r["dimension"] for r in rows}),
    }


def _time(model):
    rows = []
    for tokens in (16, 128, 512):
        found = component_times(model, tokens, runs=3)
        for c in found["components"]:
            name = c["component"].replace("_", " ")
            rows.append(
                {"tokens": tokens, "component": name, "ms": c["ms"], "time_percent": 100 * c["time_share"]}
                | {"flop_percent": 100 * c["flop_share"]}
            )
    return {"runs": 3, "components": rounded(rows)}


# ------------------------------------------------------------------------------------------------------------- the families


def _families(_=None):
    cases = ex.agreements()
    shown = [
        {"case": c["case"], "positions": c["positions"], "same_argmax": c["same_argmax"], "parameters": c["parameters"]}
        for c in cases
    ]
    values = tolerance(
        ex.BOUND,
        worst(c["worst"] for c in cases),
        cases=shown,
        count=len(cases),
        model_types=len({c["model_type"] for c in cases}),
        positions=sum(c["positions"] for c in cases),
        same_argmax=sum(c["same_argmax"] for c in cases),
        points_within_1e_5=all(c["worst_point"] <= ex.BOUND for c in cases),
        parameters_as_the_library=all(c["parameters"] == c["library_parameters"] for c in cases),
        influence_above_diagonal=max(c["above_diagonal"] for c in cases),
        options_verified=len({(k, v) for c in cases for k, v in c["options"].items()} & {(a, b) for a, b, _ in ex.OPTIONS}),
        options=len(ex.OPTIONS),
    )
    also = values["same_argmax"] == values["positions"] and values["points_within_1e_5"] and values["parameters_as_the_library"]
    return values | {"held": values["held"] and also and values["influence_above_diagonal"] == 0}


def _cached(_=None):
    rows = [ex.cached_agreement(*case) for case in ex.CASES]
    values = tolerance(
        ex.BOUND,
        worst(r["worst"] for r in rows),
        count=len(rows),
        splits=len(ex.SPLITS),
        positions=sum(r["positions"] for r in rows),
        same_argmax=sum(r["same_argmax"] for r in rows),
        bytes_as_counted=all(r["bytes_as_counted"] for r in rows),
    )
    return values | {"held": values["held"] and values["bytes_as_counted"] and values["same_argmax"] == values["positions"]}


def _alibi(_=None):
    return rounded([ex.alibi_rounding()], 2)[0]


def _latent(_=None):
    config = serving.config_named("deepseek-v3")
    forms = [
        {
            "form": form,
            "gflop_per_token_2000": round(flops_per_token(config, 2000, form)["total"] / 1e9, 1),
            "numbers_per_layer": cached_numbers(config, form),
            "kv_bytes_per_token": kv_bytes_per_token(config, 2, form),
        }
        for form in ("absorbed", "expanded")
    ]
    ratio = forms[1]["kv_bytes_per_token"] / forms[0]["kv_bytes_per_token"]
    found = ex.absorbed()
    return tolerance(ex.BOUND, found["relative_difference"], forms=forms, cache_ratio=round(ratio, 1), positions=found["positions"])


def _effects(_=None):
    rows = []
    for r in ex.option_effects():
        rows.append(
            {
                **{"choice": r["choice"], "option": r["option"] + (" (base)" if r["is_base"] else "")},
                "families": ", ".join(r["families"]) or "none of these",
                "parameters_change_millions": round(r["parameters_change"] / 1e6, 4),
                "kv_kib_per_token": r["kv_bytes_per_token"] / 1024,
                "cache_mib": round(r["cache_bytes"] / 2**20),
                "gflop_change": round(r["flops_change"] / 1e9, 2),
            }
        )
    ranks = [{k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()} for r in ex.ranking()]
    tokens, batch = ex.SERVED
    attention, feed = ranks[0], ranks[1]
    loads = []
    for load in ex.LOADS:
        ratios = {r["choice"]: r["step_ratio"] for r in ex.ranking(ex.option_effects(load))}
        named = ("attention", "feed-forward", "window", "activation")
        rest = max(ratio for choice, ratio in ratios.items() if choice not in named)
        row = {"positions": load[0], "sequences": load[1], **{n.replace("-", "_"): round(ratios[n], 2) for n in named}}
        loads.append(row | {"rest": round(rest, 2), "first": max(ratios, key=ratios.get)})
    return {
        "loads": loads,
        **{"base": ex.BASE, "tokens": tokens, "sequences": batch, "options": rows, "ranking": ranks},
        **{"first": attention["choice"], "second": feed["choice"], "third": ranks[2]["choice"]},
        "attention_step_ratio": round(attention["step_ratio"], 1),
        "feed_forward_step_ratio": round(feed["step_ratio"], 1),
        "window_step_ratio": round(ranks[2]["step_ratio"], 1),
        "largest_ratio_of_the_rest_but_activation": max(r["step_ratio"] for r in ranks[4:]),
        "activation_step_ratio": round(ranks[3]["step_ratio"], 2),
    }


# ---------------------------------------------------------------------------------------------------------------- counting


def _counts(_=None):
    from transformers import AutoConfig, AutoModelForCausalLM, logging

    logging.set_verbosity_error()
    rows = []
    for name, row in serving.published().items():
        config = serving.config_named(name)
        with torch.device("meta"):
            library = AutoModelForCausalLM.from_config(AutoConfig.for_model(**row["config"]))
        counted = sum(w.numel() for w in library.parameters())
        total = parameter_count(config)["total"]
        table = sum(torch.Size(s).numel() for n, s in weight_shapes(config).items() if not is_buffer(n))
        active = parameter_count(config, active=True)["total"]
        rows.append(
            {"model": name, "family": config.model_type, "parameters": total, "active": active, "same": total == counted == table}
        )
    buffers = sum(torch.Size(s).numel() for n, s in weight_shapes(serving.config_named("deepseek-v3")).items() if is_buffer(n))
    return {
        "models": rows,
        "count": len(rows),
        "families": len({r["family"] for r in rows}),
        "all_the_same": all(r["same"] for r in rows),
        "deepseek_routing_biases": buffers,
    }


def _costs(_=None):
    tokens, batch = ex.SERVED
    rows = []
    for r in serving.serving_table(tokens=tokens, batch=batch):
        rows.append(
            {
                **{"model": r["model"], "context": r["context"]},
                "parameters_billions": round(r["parameters"] / 1e9, 3),
                "active_billions": round(r["active"] / 1e9, 3),
                "gflop_per_token": round(r["flops_per_token"] / 1e9, 2),
                "kv_kib_per_token": round(r["kv_bytes_per_token"] / 1024, 1),
                **{f"{k}_gb": round(r[f"{k}_bytes"] / 1e9, 1) for k in ("weight", "cache", "memory")},
                "mb_read_per_token": round(r["step_bytes_per_token"] / 1e6),
            }
        )
    whole = [r for r in rows if r["context"] == tokens]
    alone = [r for r in serving.serving_table(tokens=tokens, batch=1) if r["context"] == tokens]
    smallest = min(whole, key=lambda r: r["parameters_billions"])
    return {
        **{"tokens": tokens, "sequences": batch, "models": rows, "whole": whole},
        **{"cheapest": whole[0]["model"], "smallest": smallest["model"], "cheapest_is_smallest": whole[0] is smallest},
        "times_the_parameters": round(whole[0]["parameters_billions"] / smallest["parameters_billions"], 1),
        "cheapest_of_one_text": alone[0]["model"],
        "cheapest_to_read": min(whole, key=lambda r: r["mb_read_per_token"])["model"],
    }


def _trace(_=None):
    config = serving.config_named("llama-3-8b")
    small, large = serving.decode_step(config, 2000), serving.decode_step(config, 32768, 64)
    times, later = serving.step_times(small), serving.step_times(large)
    rows = [
        {
            **{"operation": r["operation"], "times": r["times"], "mflop": round(r["flops"] / 1e6, 1)},
            "weight_mb": round(r["weight_bytes"] / 1e6, 2),
            "cache_mb": round(r["cache_bytes"] / 1e6, 2),
            "written_kb": round(r["written_bytes"] / 1e3, 1),
        }
        for r in small["operations"]
    ]
    balance = []
    for batch in BATCHES:
        one, two = serving.decode_step(config, 2000, batch), serving.decode_step(config, 32768, batch)
        balance.append(
            {
                **{"batch": batch, "weight_gb": round(one["weight_bytes"] / 1e9, 3)},
                **{"cache_2000_gb": round(one["cache_bytes"] / 1e9, 3), "cache_32768_gb": round(two["cache_bytes"] / 1e9, 3)},
            }
        )
    attention = next(r for r in small["operations"] if r["operation"].startswith("attention"))
    feed = next(r for r in small["operations"] if r["operation"].startswith("feed"))
    head = next(r for r in small["operations"] if r["operation"] == "head")
    deep = serving.config_named("llama-3-70b")
    listed = [r["times"] // deep.n_layer for r in serving.decode_step(deep, 2000)["operations"] if r["times"] >= deep.n_layer]
    kernels = sum(listed) + 3  # the feed-forward line is three matrices, and the gate's product
    return {
        **{"kernels_per_layer": kernels, "kernels_80_layers": 80 * kernels, "launch_ms_at_5_us": 80 * kernels * 5 / 1000},
        **{"operations": rows, "gflop": round(small["flops"] / 1e9, 2), "weight_gb": round(small["weight_bytes"] / 1e9, 2)},
        **{"cache_gb": round(small["cache_bytes"] / 1e9, 3), "gb": round(small["bytes"] / 1e9, 2)},
        **{
            "stored_gb": round(2 * parameter_count(config)["total"] / 1e9, 2),
            "table_gb": round(2 * config.vocab_size * config.n_embd / 1e9, 2),
        },
        **{"compute_ms": sig(1e3 * times["compute_s"]), "memory_ms": sig(1e3 * times["memory_s"]), "ratio": round(times["ratio"])},
        "attention_mflop_per_layer": round(attention["flops"] / config.n_layer / 1e6, 1),
        "cache_read_mb_per_layer": round(attention["cache_bytes"] / config.n_layer / 1e6, 1),
        "append_kb_per_layer": small["written_bytes"] / config.n_layer / 1e3,
        "append_mb_per_layer": small["written_bytes"] / config.n_layer / 1e6,
        "append_bytes_per_layer": small["written_bytes"] // config.n_layer,
        "feed_forward_flop_percent": round(100 * feed["flops"] / small["flops"], 1),
        "feed_forward_weight_percent": round(100 * feed["weight_bytes"] / small["weight_bytes"], 1),
        "head_flop_percent": round(100 * head["flops"] / small["flops"], 1),
        "peak_tflop_per_s": serving.PEAK / 1e12,
        "bandwidth_tb_per_s": serving.BANDWIDTH / 1e12,
        **{"large_batch": 64, "large_context": 32768, "large_cache_gb": round(large["cache_bytes"] / 1e9, 1)},
        **{"large_weight_gb": round(large["weight_bytes"] / 1e9, 1), "large_gb": round(large["bytes"] / 1e9, 1)},
        **{"large_memory_ms": sig(1e3 * later["memory_s"]), "large_tokens_per_s": round(later["tokens_per_s"])},
        "large_cache_over_weights": round(large["cache_bytes"] / large["weight_bytes"], 1),
        "balance": balance,
        "smollm2_mflop": round(serving.decode_step(serving.config_named("smollm2-135m"), 2000, 1, 4)["flops"] / 1e6, 1),
    }


# ------------------------------------------------------------------------------------------------------------------- time


def _decode(model):
    found = ex.decode_beside_trace(model)
    return {
        "runs": 9,
        "gflop_per_s": sig(found["gflop_per_s"]),
        "gb_per_s": sig(found["gb_per_s"]),
        "steps": rounded(found["steps"]),
    }


def _option_times(model):
    return {"runs": 7, "context": 1000, "sequences": 8, "options": rounded(ex.option_times(model))}


DATA = dict(model="the configurations kept in configs.json", loads=False, movable=False)
TINY = dict(model="tiny models (random, seed 0)", loads=False, movable=False)

EXPERIMENTS = (
    Experiment(
        "ch14.agreement",
        "tolerance",
        "On SmolLM2 our Llama has transformers' logits within 1e-4 of the largest, its argmaxes and 40 greedy tokens.",
        "Four prompts and four shapes of random ids up to 2,048 tokens, one model, float32, eager attention, a CPU.",
        _agreement,
        model=REAL,
        seconds=90,
    ),
    Experiment(
        "ch14.mask",
        "exact",
        "On SmolLM2, changing a token changes nothing before it: the logits there are bit for bit the same.",
        "One text of ten tokens on a CPU; runs of one shape.",
        _mask,
        model=REAL,
        seconds=3,
    ),
    Experiment(
        "ch14.residual",
        "observation",
        "SmolLM2's residual stream has a massive activation at its first position, written by one feed-forward network.",
        "One text of 17 tokens on one model.",
        _residual,
        model=REAL,
        seconds=2,
    ),
    Experiment(
        "ch14.residual-others",
        "observation",
        "On five other texts it stands at the first position too, in the same dimension.",
        "Five texts.",
        _residual_others,
        model=REAL,
        seconds=3,
    ),
    Experiment(
        "ch14.time",
        "timing",
        "Where a pass of SmolLM2 spends its time, component by component, beside the shares of FLOPs.",
        "One thread of one processor, float32, unfused.",
        _time,
        model=REAL,
        seconds=15,
    ),
    Experiment(
        "ch14.families",
        "tolerance",
        "One configurable forward has the logits of transformers' model of every family within 1e-5 of the largest, and is causal.",
        "Tiny random models, eager attention and eager experts, float32; four shapes each, the longest the model's context.",
        _families,
        seconds=10,
        **TINY,
    ),
    Experiment(
        "ch14.cached",
        "tolerance",
        "Fed through its cache in chunks each family has the whole pass's logits within 1e-5, and exactly the counted bytes.",
        "The same tiny random models, a batch of two, three ways to feed 20 tokens; latent attention in both forms.",
        _cached,
        seconds=4,
        **TINY,
    ),
    Experiment(
        "ch14.alibi",
        "observation",
        "At 2,048 positions the library's ALiBi is some ten times further from float64 than ours: one function, rounded otherwise.",
        "One tiny random model with six heads.",
        _alibi,
        seconds=8,
        **TINY,
    ),
    Experiment(
        "ch14.latent",
        "tolerance",
        "Latent attention gives the same logits absorbed or expanded, within 1e-5 of the largest.",
        "The agreement is of a tiny random model; the counts are of DeepSeek-V3's configuration.",
        _latent,
        **TINY,
    ),
    Experiment(
        "ch14.counts",
        "exact",
        "The closed formula, the table of tensors and transformers' own model have the same parameters, in all configurations.",
        "Counts; a configuration is what its config.json says.",
        _counts,
        seconds=15,
        **DATA,
    ),
    Experiment(
        "ch14.effects",
        "exact",
        "What each option does to Llama-3-8B's parameters, cache and FLOPs, all else as it is; and the ranking of the choices.",
        "One shape, 32 sequences of 8,192 positions at two bytes a number; what an option does to quality is not in it.",
        _effects,
        **DATA,
    ),
    Experiment(
        "ch14.costs",
        "exact",
        "Parameters, FLOPs, cache and memory of the published models, 32 sequences of 8,192 positions at two bytes a number.",
        "Weights and caches only; expected experts are those of a uniform choice; nothing about quality.",
        _costs,
        **DATA,
    ),
    Experiment(
        "ch14.trace",
        "exact",
        "One decode step of Llama-3-8B, operation by operation, in FLOPs and bytes.",
        "Matmul FLOPs, weights and cache; the times are those counts over a data sheet's peaks, and nothing was run.",
        _trace,
        **DATA,
    ),
    Experiment(
        "ch14.decode",
        "timing",
        "A measured decode step of SmolLM2 beside what the trace says of it at this machine's own rates.",
        "One thread of one processor, float32, batch 1; the cache is full of noise.",
        _decode,
        model=REAL,
        seconds=10,
    ),
    Experiment(
        "ch14.option-times",
        "timing",
        "A decode step of SmolLM2's shape with one option changed, beside what the bytes of the trace say.",
        "One thread of one processor, float32, random weights, 8 sequences of 1,000 positions.",
        _option_times,
        model=REAL,
        seconds=20,
    ),
)
