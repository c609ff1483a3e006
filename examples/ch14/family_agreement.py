"""Chapter 14: every family beside transformers, in tiny models that hide nothing; whole, and fed through a cache.

    python examples/ch14/family_agreement.py                     # all fifteen families, some twenty seconds
    python examples/ch14/family_agreement.py --family gemma2

transformers makes each tiny model and writes it to files; chapter 2 reads these, and the configurable forward runs what it read.
Random weights are cruel to a layout, since nothing in them is small or regular; how outliers of trained weights are rounded they do
not tell. An agreement says something only because it fails on a wrong program: for each of the ten choices the tests plant faults.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import general_form, run
from examples.ch03.tokens import random_ids
from examples.ch04.agreement import BOUND, agreement
from examples.ch04.causal_mask import above_diagonal, influence
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch04.library import library_trace
from examples.ch10.kv_cache import KVCache, cache_bytes, forward_cached
from examples.ch14 import peers
from examples.ch14.costs import parameter_count
from examples.ch14.ten_choices import OPTIONS, options_of
from examples.lab.experiment import Experiment, largest, tolerance, worst
from examples.lab.script import Parser, answer, command, progress_bar, table

# (case, model_type, what differs from the tiny model): each family, and the options that a family has beside its own
CASES = (
    *((kind, kind, {}) for kind in peers.TINY),
    ("gpt2, exact GELU", "gpt2", {"activation_function": "gelu"}),
    ("gpt2, SiLU", "gpt2", {"activation_function": "silu"}),
    ("gpt2, untied", "gpt2", {"tie_word_embeddings": False}),
    ("gpt_bigcode, MHA", "gpt_bigcode", {"multi_query": False}),
    ("llama, MQA", "llama", {"num_key_value_heads": 1}),
    ("llama, biases", "llama", {"attention_bias": True, "mlp_bias": True}),
    ("qwen2, windows", "qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2}),
    ("qwen3, biases", "qwen3", {"attention_bias": True}),
    ("deepseek_v3, plain queries", "deepseek_v3", {"q_lora_rank": None}),
    ("mixtral, windows", "mixtral", {"sliding_window": 6}),
    ("qwen3_moe, plain shares", "qwen3_moe", {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": []}),
    ("qwen3_moe, windows", "qwen3_moe", {"use_sliding_window": True, "sliding_window": 6}),
)
LENGTH = 20  # of the text that crosses every window
SPLITS = ([1] * LENGTH, [7, 1, 5, 7], [LENGTH - 1, 1])  # ways to feed a text of LENGTH tokens


def case_models(kind, changes, seed=0):
    """(library, model) of a case: transformers' tiny model, and ours in the general form, read from the files that it writes."""
    library = peers.library_tiny(kind, seed, **changes)
    return library, general_form(peers.by_files(library))


def in_absorbed_form(model):
    """The model with its latent attention in the other of the two forms."""
    return replace(model, config=replace(model.config, latent=replace(model.config.latent, absorbed=True)))


def case_shapes(config):
    """(B, T) that a case is compared on: one token, a batch of two across the windows, one more, and the whole context."""
    return ((1, 1), (2, LENGTH), (1, LENGTH + 1), (1, config.n_positions))


@torch.no_grad()
def case_agreement(case, kind, changes, seed=0):
    """One case beside transformers: logits, traced points, causality, parameters, and the options that it takes.

    worst: largest difference of a logit over the largest logit, over `case_shapes`. worst_point: the same of every tensor that both
    traces have. above_diagonal: the largest change of a logit before the token that changed; 0 is exact.
    """
    library, model = case_models(kind, changes, seed)
    rows = []
    for batch, tokens in case_shapes(model.config):
        ids = random_ids(model, tokens, batch, seed)
        rows.append(agreement(run(model, ids), library(ids, use_cache=False).logits))
    kept, ids = Trace(), random_ids(model, LENGTH, seed=seed)
    run(model, ids, trace=kept)
    points = [largest(kept[key] - right) / largest(right) for key, right in library_trace(library, ids).items()]
    return {
        "case": case,
        "model_type": kind,
        "worst": worst(r["relative_difference"] for r in rows),
        "worst_point": worst(points),
        "points": len(points),
        "same_argmax": sum(r["same_argmax"] for r in rows),
        "positions": sum(r["positions"] for r in rows),
        "above_diagonal": above_diagonal(influence(model, ids)),
        "parameters": parameter_count(model.config)["total"],
        "library_parameters": sum(w.numel() for w in library.parameters()),
        "options": options_of(model.config),
    }


def agreements(progress=lambda: None, cases=CASES, seed=0):
    """`case_agreement` of every case."""
    rows = []
    for case in cases:
        rows.append(case_agreement(*case, seed))
        progress()
    return rows


@torch.no_grad()
def cached_agreement(case, kind, changes, seed=0):
    """One case fed through its cache in each of SPLITS: {case, worst, same_argmax, positions, bytes_as_counted}.

    worst: the largest difference of a logit from the whole pass, over the largest logit; latent attention in both forms.
    bytes_as_counted: whether after every chunk the cache holds exactly what `cache_bytes` says.
    """
    _, model = case_models(kind, changes, seed)
    forms = [model] + ([in_absorbed_form(model)] if model.config.latent else [])
    ids, rows, counted = random_ids(model, LENGTH, 2, seed), [], True
    for form in forms:
        whole = run(form, ids)
        for sizes in SPLITS:
            cache, logits, start = KVCache(form, ids.shape[0], LENGTH), [], 0
            for size in sizes:
                logits.append(forward_cached(ids[:, start : start + size], form, cache))
                start += size
                live = sum(x.nbytes for layer in range(form.config.n_layer) for x in cache.live(layer))
                counted = counted and live == cache_bytes(form.config, start, 2)
            rows.append(agreement(torch.cat(logits, 1), whole))
    return {
        "case": case,
        "worst": worst(r["relative_difference"] for r in rows),
        "same_argmax": sum(r["same_argmax"] for r in rows),
        "positions": sum(r["positions"] for r in rows),
        "bytes_as_counted": counted,
    }


# --------------------------------------------------------------------------------------------------------- the measurements


def by_option(rows):
    """For each of OPTIONS, how many of the cases in `rows`, as `case_agreement` has them, take it, and their worst agreement."""
    found = []
    for choice, option, _ in OPTIONS:
        takers = [c for c in rows if c["options"][choice] == option]
        off = worst(c["worst"] for c in takers) if takers else None
        found.append({"choice": choice, "option": option, "takers": len(takers), "relative_difference": off})
    return found


def measure(cases=CASES, seed=0, progress=lambda: None):
    """Every case beside transformers: a `tolerance` of the largest logit, with a row for each case, and for each of OPTIONS.

    It holds where the argmax is the library's at every position, every traced point is within the bound of the largest value there,
    no change reaches an earlier position, and the closed formula counts the library's own parameters.
    """
    rows = agreements(progress, cases, seed)
    same, positions = sum(c["same_argmax"] for c in rows), sum(c["positions"] for c in rows)
    points = all(c["worst_point"] <= BOUND for c in rows)
    counted = all(c["parameters"] == c["library_parameters"] for c in rows)
    causal = worst(c["above_diagonal"] for c in rows)
    taken = by_option(rows)
    return tolerance(
        BOUND,
        worst(c["worst"] for c in rows),
        same == positions and points and counted and causal == 0,
        cases=[
            {
                **{key: c[key] for key in ("case", "model_type", "positions", "same_argmax", "points", "parameters")},
                "relative_difference": c["worst"],
                "relative_difference_at_points": c["worst_point"],
            }
            for c in rows
        ],
        count=len(rows),
        model_types=len({c["model_type"] for c in rows}),
        positions=positions,
        same_argmax=same,
        points_within_1e_5=points,
        parameters_as_the_library=counted,
        influence_above_diagonal=causal,
        options_verified=sum(r["takers"] > 0 for r in taken),
        options=len(taken),
        by_option=taken,
    )


def measure_cached(cases=CASES, seed=0, progress=lambda: None):
    """Every case through its cache in each of SPLITS, beside its own whole pass: a `tolerance` of the largest logit.

    It holds where the argmax is the same everywhere and the cache has after every chunk exactly the bytes that are counted.
    """
    rows = []
    for case in cases:
        rows.append(cached_agreement(*case, seed))
        progress()
    same, positions = sum(r["same_argmax"] for r in rows), sum(r["positions"] for r in rows)
    counted = all(r["bytes_as_counted"] for r in rows)
    return tolerance(
        BOUND,
        worst(r["worst"] for r in rows),
        counted and same == positions,
        cases=[{"case": r["case"], "positions": r["positions"], "relative_difference": r["worst"]} for r in rows],
        count=len(rows),
        splits=len(SPLITS),
        positions=positions,
        same_argmax=same,
        bytes_as_counted=counted,
    )


# ---------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"families": ..., "cached": ...}."""
    whole, cached = values["families"], values["cached"]
    rows = [
        [
            c["case"],
            f"{c['parameters']:,}",
            f"{c['relative_difference']:.1e}",
            f"{c['relative_difference_at_points']:.1e}",
            f"{c['same_argmax']} of {c['positions']}",
            f"{in_chunks['relative_difference']:.1e}",
        ]
        for c, in_chunks in zip(whole["cases"], cached["cases"], strict=True)
    ]
    taken = [
        [f"{r['choice']}: {r['option']}", r["takers"], f"{r['relative_difference']:.1e}"] for r in whole["by_option"] if r["takers"]
    ]
    held = "Within" if whole["held"] and cached["held"] else "OUTSIDE"
    return "\n".join(
        [
            "Tiny random models beside transformers', float32, eager: differences, over the largest value there.",
            f"In chunks: through the cache, in {cached['splits']} ways, beside the whole pass.",
            "",
            table(["case", "parameters", "logits", "points", "same argmax", "in chunks"], rows),
            "",
            table(["choice: option", "models that take it", "logits"], taken),
            "",
            f"The bytes that the caches hold are {'' if cached['bytes_as_counted'] else 'NOT '}those counted.",
            f"The largest change of a logit before the token that changed: {whole['influence_above_diagonal']:g}.",
            f"{held} the bounds (models: {whole['count']}, families: {whole['model_types']}): at most {whole['worst']:.1e} of the "
            f"largest logit apart,",
            f"and {whole['same_argmax']:,} of {whole['positions']:,} argmaxes the same.",
        ]
    )


TINY = dict(model="tiny models (random, seed 0)", loads=False, movable=False)
ONE_MACHINES_ROUNDING = ("relative_difference", "relative_difference_at_points")
EXPERIMENTS = (
    Experiment(
        "ch14.families",
        "tolerance",
        "One configurable forward has the logits of transformers' model of every family within 1e-5 of the largest, and is causal.",
        "Tiny random models, eager attention and eager experts, float32; four shapes each, the longest the model's context.",
        measure,
        leaves_out=ONE_MACHINES_ROUNDING,
        seconds=10,
        **TINY,
    ),
    Experiment(
        "ch14.cached",
        "tolerance",
        "Fed through its cache in chunks each family has the whole pass's logits within 1e-5, and exactly the counted bytes.",
        "The same tiny random models, a batch of two, three ways to feed 20 tokens; latent attention in both forms.",
        measure_cached,
        leaves_out=ONE_MACHINES_ROUNDING,
        seconds=4,
        **TINY,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="family_agreement.py", description=__doc__, keys=__file__)
    about = f"only the cases of one model_type: {', '.join(peers.TINY)}"
    parser.add_argument("--family", choices=list(peers.TINY), default=None, metavar="KIND", help=about)
    return parser.add("threads", "seed", "json")


@command
def main(argv=None):
    """Print how far every family's passes are from transformers'."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    cases = [case for case in CASES if args.family in (None, case[1])]
    with progress_bar("pass", 2 * len(cases)) as bar:
        values = {
            "families": measure(cases, args.seed, bar.update),
            "cached": measure_cached(cases, args.seed, bar.update),
        }
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
