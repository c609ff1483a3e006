"""Chapter 14's experiments and claims, for the registry."""

import math

from examples.ch03.tokens import default_ids, encode
from examples.ch04.causal_mask import above_diagonal, influence
from examples.ch04.component_timing import component_times
from examples.ch04.residual_trace import OTHERS, residual_statistics
from examples.ch14 import ablations, serving
from examples.ch14 import family_agreement as ex
from examples.ch14.costs import cached_numbers, flops_per_token, kv_bytes_per_token
from examples.lab.experiment import Experiment, sig, tolerance, worst

REAL = "smollm2"

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


# ---------------------------------------------------------------------------------------------------------------- counting


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


TINY = dict(model="tiny models (random, seed 0)", loads=False, movable=False)
RANDOM = dict(model="random models of width 64", loads=False, movable=False)

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
)
