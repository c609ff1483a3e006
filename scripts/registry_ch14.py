"""Chapter 14's experiments and claims, for the registry."""

import math

import torch

from examples.ch02.layout import is_buffer, weight_shapes
from examples.ch03.tokens import default_ids, encode
from examples.ch14 import ablations, serving
from examples.ch14 import family_agreement as ex
from examples.ch14.costs import parameter_count
from examples.lab.experiment import Experiment, sig, tolerance, worst

REAL = "smollm2"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)

# --------------------------------------------------------------------------------------------------------- Llama, on real weights


def rounded(rows, digits=3):
    return [{k: sig(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


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


def _windows(_=None):
    rows = []
    for r in serving.window_rows():
        keep = {k: r[k] for k in ("model", "window", "layers_with_window", "layers")}
        more = {"full_mib": r["full_bytes"] / 2**20, "windowed_mib": r["windowed_bytes"] / 2**20}
        rows.append(keep | {k: round(v) for k, v in more.items()} | {"times_as_many": round(r["times_as_many"], 2)})
    reached = ex.reaches()
    return {
        **{"requests": rows, "tokens": 32768, "reach": reached, "reach_cases": len(reached)},
        "reach_as_the_formula": all(r["farthest"] == r["formula"] for r in reached),
        "mistral_times": rows[0]["times_as_many"],
        "gemma_2_times": rows[1]["times_as_many"],
        "gemma_3_times": rows[2]["times_as_many"],
        "mistral_reach": 32 * (4096 - 1),
    }


# ------------------------------------------------------------------------------------------------- norms, positions, ablations


def _depth(_=None):
    rows = rounded(ex.depths())
    by = {(r["norm_place"], r["layers"]): r for r in rows}
    return {
        "rows": rows,
        "seeds": 9,
        "pre_growth_2": by["pre", 2]["growth"],
        "pre_growth_64": by["pre", 64]["growth"],
        "post_growth": by["post", 64]["growth"],
        "pre_last_2": by["pre", 2]["last_gradient"],
        "pre_last_64": by["pre", 64]["last_gradient"],
        "post_last_2": by["post", 2]["last_gradient"],
        "post_last_64": by["post", 64]["last_gradient"],
        "pre_gradient_smallest": min(r["gradient"] for r in rows if r["norm_place"] == "pre"),
        "pre_gradient_largest": max(r["gradient"] for r in rows if r["norm_place"] == "pre"),
        "post_gradient_smallest": min(r["gradient"] for r in rows if r["norm_place"] == "post"),
        "post_gradient_largest": max(r["gradient"] for r in rows if r["norm_place"] == "post"),
    }


def _training(_=None):
    rows = [{**r, "losses": [sig(x) for x in r["losses"]], "loss": sig(r["loss"])} for r in ex.trainings()]
    by = {(r["norm_place"], r["layers"]): r["loss"] for r in rows}
    warm = sig(ex.training("post", 24, warm_up=100))
    found = {f"{place}_{n}": loss for (place, n), loss in by.items()}
    slow = {f"slow_{place}_12": sig(ex.training(place, 12, steps=1500, rate=1e-4)) for place in ("pre", "post")}
    found |= slow | {"rate": 1e-3, "slow_rate": 1e-4, "slow_steps": 1500}
    return {
        "steps": 150,
        "seeds": 2,
        "rows": rows,
        **found,
        "warm_up": 100,
        "post_24_warmed_up": warm,
        "byte_entropy": sig(ex.byte_entropy()),
    }


def _shift(model):
    ids = default_ids(model, 20)
    rows = [ex.shift(model, ids, by) for by in (1, 100, 1000)]
    values = tolerance(
        1e-4,
        worst(r["worst"] for r in rows),
        tokens=ids.shape[1],
        shifts=[{"by": r["by"], "same_argmax": r["same_argmax"], "positions": r["positions"]} for r in rows],
    )
    return values | {"held": values["held"] and all(r["same_argmax"] == r["positions"] for r in rows)}


def _shift_learned(model):
    ids = default_ids(model, 20)
    rows = [ex.shift(model, ids, by) for by in (1, 100)]
    shown = [
        {"by": r["by"], "off_percent": sig(100 * r["worst"]), "same_argmax": r["same_argmax"], "positions": r["positions"]}
        for r in rows
    ]
    return {"tokens": ids.shape[1], "shifts": shown}


def _prefix(model):
    before, ids = encode(ex.BEFORE, model), default_ids(model, 17)
    rows = ex.prefix_keys(model, before, ids)
    later = rows[2:]
    return {
        **{"before": before.shape[1], "tokens": ids.shape[1], "layers": rounded(rows, 2), "first_keys": sig(rows[0]["keys"], 2)},
        **{"first_values": rows[0]["values"], "second_values_percent": sig(100 * rows[1]["values"], 2)},
        "smallest_later_percent": sig(100 * min(min(r["keys"], r["values"]) for r in later), 2),
    }


def _ablations(model):
    rows, right = [], None
    for r in ablations.run_all(model):
        right = right or r
        rows.append(
            {
                "name": r["name"],
                "loss": sig(r["mean_loss"], 4),
                "more": _more(r["mean_loss"], right["mean_loss"]),
                **{f"{end}_more": _more(r["by_position"][i]["loss"], right["by_position"][i]["loss"]) for end, i in ENDS},
                "argmax_kept_percent": round(100 * r["argmax_kept"] / r["positions"], 1),
                "writes": _short(r["text"]),
                "text": r["text"],
                "by_position": [{**b, "loss": sig(b["loss"], 4)} for b in r["by_position"]],
            }
        )
    stretches = right["by_position"]
    found = {"rows": rows, "positions": right["positions"], "stretches": len(stretches), "stretch": stretches[0]["last"] + 1}
    return found | {"even_guess": sig(math.log(model.config.vocab_size), 4)}


ENDS = (("first", 0), ("last", -1))  # stretches of positions


def _more(loss, right):
    """How much more a loss is than the untouched model's; None where it is no number."""
    return None if loss is None else sig(loss - right)


def _short(text, most=60):
    """The start of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most].rstrip() + " ..."


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
RANDOM = dict(model="random models of width 64", loads=False, movable=False)

EXPERIMENTS = (
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
        "ch14.windows",
        "exact",
        "L layers with a window of W, the query included, reach L (W - 1) positions back; and what windows do to a cache.",
        "The reach is of random models, where every path counts; a trained model need not use it.",
        _windows,
        model="random models, and configs.json",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch14.depth",
        "observation",
        "In random models the pre-norm stream grows with depth while its last layer's gradient falls; post-norm's does neither.",
        "Width 64, variance-preserving weights, nine seeds; at the start, before any training.",
        _depth,
        seconds=10,
        **RANDOM,
    ),
    Experiment(
        "ch14.training",
        "observation",
        "At one rate deep post-norm models get stuck where pre-norm models learn; at a tenth of it both learn.",
        "Width 64, Adam on a short text: 150 steps, two seeds; at the lower rate 1,500 steps, 12 layers, one seed.",
        _training,
        seconds=150,
        **RANDOM,
    ),
    Experiment(
        "ch14.shift",
        "tolerance",
        "With RoPE a text with nothing before it has the same logits wherever it starts, within 1e-4 of the largest.",
        "One text of 20 tokens on SmolLM2, up to 1,000 positions later, float32 angles.",
        _shift,
        model=REAL,
        seconds=3,
    ),
    Experiment(
        "ch14.shift-learned",
        "observation",
        "With learned positions the same move changes the logits.",
        "One text of 20 tokens on the embedded model.",
        _shift_learned,
        seconds=1,
    ),
    Experiment(
        "ch14.prefix",
        "observation",
        "Keys of a text computed alone and turned on are right after another text in the first layer only.",
        "One text after one other on SmolLM2; largest differences.",
        _prefix,
        model=REAL,
        seconds=2,
    ),
    Experiment(
        "ch14.ablations",
        "observation",
        "What one thing taken out of the embedded model does to its loss, its predictions and its text.",
        "One trained model on the start of its validation play; a model trained without that thing would do otherwise.",
        _ablations,
        seconds=10,
    ),
    Experiment(
        "ch14.ablations-llama",
        "observation",
        "What one thing taken out of SmolLM2, or a wrong theta, does to its loss by position, its predictions and its text.",
        "One trained model on one essay; a model trained without that thing would do otherwise.",
        _ablations,
        model=REAL,
        seconds=150,
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
