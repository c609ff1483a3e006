"""Every experiment and every claim of the book: what `make evidence` runs and the register lists.

An experiment measures with functions of a chapter's scripts and returns plain values, with units in their names and floats
rounded to what they mean: `exact` ones to nothing that depends on a machine, worst values to one significant digit, sizes and
times to three.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.artefact import PUBLISHED, load_config, tensor_shapes
from examples.ch04 import experiments as ex
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import tiny_transformer as tiny
from examples.ch04.library import library_model

SHAPE = "random:gpt2"
GPT2 = PUBLISHED["gpt2"]
BOUND = 1e-5  # of the largest logit, for float32 programs that compute the same function


@dataclass(frozen=True)
class Experiment:
    """One measurement. measure(model) returns its values; model is None where `loads` is False.

    model: the source it runs on. movable: whether it means something on another model too. seconds: about how long on two
    cores. limits: what it does not show.
    """

    id: str
    kind: str
    claim: str
    limits: str
    measure: Callable
    model: str = "embedded"
    loads: bool = True
    movable: bool = True
    seconds: int = 1
    seed: int = 0
    dtype: str = "float32"
    threads: int = 1

    @property
    def chapter(self):
        return self.id.split(".")[0]


@dataclass(frozen=True)
class Claim:
    """A claim that no single result settles: a hypothesis, or something that the book says it does not show."""

    id: str
    status: str
    claim: str
    evidence: tuple
    limits: str

    @property
    def chapter(self):
        return self.id.split(".")[0]


def sig(x, digits=3):
    """`x` to so many significant digits; None stays None."""
    return None if x is None else float(f"{x:.{digits - 1}e}")


def rounded(rows, digits=3):
    """The rows with every float to `digits` significant digits."""
    return [{k: sig(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


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
        "family": [{"config": name, "parameters": gpt2.parameter_count(c)["total"]} for name, c in PUBLISHED.items()],
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
    found = ex.mask_test(model, ex.default_ids(model, 10))
    dtypes = {}
    for name in ("float64", "bfloat16", "float16"):
        other = ex.with_dtype(model, ex.DTYPES[name])
        dtypes[f"{name}_above_diagonal"] = ex.above_diagonal(ex.influence(other, ex.default_ids(other, 10)))
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
    found = ex.mask_test(model, ex.default_ids(model, 10))
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


def _tolerance(bound, worst, **values):
    return {"bound": bound, "worst": sig(worst, 1), "held": bool(worst <= bound), **values}


def _agreement(model):
    library = library_model(model)
    prompts, edges = ex.compare_prompts(model, library), ex.compare_edges(model, library)
    rows = prompts + edges
    worst = ex.worst(r["relative_difference"] for r in rows)
    found = _tolerance(
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
    rows = ex.compare_layers(model, library_model(model), ex.prompt_batches(model)[-1])
    worst = max(rows, key=lambda r: r["largest_difference"] / r["largest_value"])
    return _tolerance(
        BOUND, worst["largest_difference"] / worst["largest_value"], tensors=len(rows), points=len({r["point"] for r in rows})
    )


def _float64(model):
    batches = ex.prompt_batches(model) + ex.edge_batches(model)
    rows = {r["dtype"]: r for r in ex.distance_from_float64(model, batches, ("float32", "float64"))}
    ours, theirs = rows["float32"]["ours"], rows["float32"]["library"]
    within = rows["float64"]["library"] / rows["float64"]["largest_logit"]
    return _tolerance(2, ours / theirs, float64_programs_agree_within_1e_12=within <= 1e-12, positions=rows["float32"]["positions"])


def _half(model):
    batches = ex.prompt_batches(model) + ex.edge_batches(model)
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
        "layers": rounded(ex.error_by_layer(model, ex.random_ids(model, min(64, full))), 2),
        "lengths": rounded(ex.error_by_length(model, lengths), 2),
    }


def _residual(model):
    ids = ex.default_ids(model, 17)
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
        ids = ex.text_ids(model, text) if text else ex.random_ids(model, min(17, model.config.n_positions), seed=i)
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
    shares = [r["layer_norms_time_percent"] for r in lengths]
    long, short = lengths[-1], lengths[0]
    return {
        "runs": 5,
        "denormal_weights": ex.denormals(model),
        "lengths": lengths,
        "components": components,
        "layer_norms_time_percent_min": min(shares),
        "layer_norms_time_percent_max": max(shares),
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
        "Sizes of single tensors in float32, one text; not the peak of a running program.",
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
)


def measure_by_id(id, model=None):
    """The values of one experiment, measured now."""
    return next(e for e in EXPERIMENTS if e.id == id).measure(model)
