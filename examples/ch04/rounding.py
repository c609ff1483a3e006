"""Chapter 4: what rounding does to the pass, in each dtype, by depth and by length, beside the same program in float64.

    python examples/ch04/rounding.py
    python examples/ch04/rounding.py --model smollm2

Two programs that differ from one another in the seventh digit may both be right: this script says how far each is from the result
in float64, where rounding is a billion times smaller.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import DTYPES, load_for, run
from examples.ch03.tokens import prompt_batches, random_ids
from examples.ch04.agreement import agreement, edge_batches
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch04.library import ROUNDED_IN_FLOAT64, library_model, refuses_float64
from examples.lab.experiment import Experiment, largest, relative, tolerance, worst
from examples.lab.script import Parser, answer, command, progress_bar, table

HALF_WORK = 4e9  # tokens times parameters: 1,100 tokens of the embedded model, 32 of GPT-2 small


@torch.no_grad()
def distance_from_float64(model, batches, dtypes=tuple(DTYPES), progress=lambda: None):
    """How far both programs, in each of `dtypes`, are from our pass in float64 over `batches` of ids; the worst over all of them.

    The library in float64 is compared as well: two programs that agree there share no rounding that could hide a difference.
    That holds where the library computes in float64 throughout. Its Llama does not: norms, softmax and angles are of float32 in
    any dtype, so that its distance is float32's, which grows with the position, and only our pass is a reference. `library` is
    None where the library refuses: it takes no float64 with reorder_and_upcast_attn. Half precision is tens of times slower on a
    CPU, so there only the batches up to HALF_WORK run; `positions` says how many that were.
    """
    exact = model.to(dtype=torch.float64)
    references = [run(exact, ids) for ids in batches]
    top = worst(largest(r) for r in references)
    size = sum(w.numel() for w in model.weights.values())
    rows = []
    for name in dtypes:
        dtype = DTYPES[name]
        ours = model.to(dtype=dtype)
        refused = dtype == torch.float64 and refuses_float64(model)
        theirs = None if refused else library_model(model, dtype, model.device)
        row = {"dtype": name, "largest_logit": top, "ours": 0.0, "library": None if refused else 0.0}
        row |= {"ours_same_argmax": 0, "positions": 0}
        for ids, reference in zip(batches, references, strict=True):
            if dtype.itemsize < 4 and ids.numel() * size > HALF_WORK:
                progress()
                continue
            logits = run(ours, ids)
            row["ours"] = worst([row["ours"], largest(logits.double() - reference)])
            if not refused:
                distance = largest(theirs(ids, use_cache=False).logits.double() - reference)
                row["library"] = worst([row["library"], distance])
            row["ours_same_argmax"] += agreement(logits, reference)["same_argmax"]
            row["positions"] += reference[..., 0].numel()
            progress()
        rows.append(row)
    return rows


def error_by_layer(model, ids):
    """How rounding grows with depth: the stream in float32 beside float64, [{layer, relative_error}]; layer 0 is the embedding.

    The largest difference over the largest value of the stream there.
    """
    streams = []
    for dtype in (torch.float32, torch.float64):
        kept = Trace("embedding", "residual")
        run(model.to(dtype=dtype), ids, trace=kept)
        streams.append(kept.values())
    return [
        {"layer": i, "relative_error": relative(largest(a.double() - b), largest(b))}
        for i, (a, b) in enumerate(zip(*streams, strict=True))
    ]


def error_by_length(model, lengths, seed=0):
    """How rounding grows with length: the logits in float32 beside float64, [{tokens, relative_error}]."""
    exact, rows = model.to(dtype=torch.float64), []
    for tokens in lengths:
        ids = random_ids(model, tokens, seed=seed)
        reference = run(exact, ids)
        error = relative(largest(run(model, ids).double() - reference), largest(reference))
        rows.append({"tokens": tokens, "relative_error": error})
    return rows


def measure_float32(model, batches=None, progress=lambda: None):
    """Our distance from float64 over the library's, both in float32, over `batches` of ids: a `tolerance` of 2, rounded to a tenth.

    float64_programs_agree_within_1e_12: whether the library in float64 gives our reference; None where it refuses float64.
    """
    batches = _batches(model) if batches is None else batches
    rows = {r["dtype"]: r for r in distance_from_float64(model, batches, ("float32", "float64"), progress)}
    single, double = rows["float32"], rows["float64"]
    same = None if double["library"] is None else relative(double["library"], double["largest_logit"]) <= 1e-12
    return tolerance(
        2,
        round(relative(single["ours"], single["library"]), 1),
        float64_programs_agree_within_1e_12=same,
        positions=single["positions"],
    )


def measure_dtypes(model, batches=None, dtypes=("float32", "bfloat16", "float16"), progress=lambda: None):
    """How far both programs are from float64 in each of `dtypes`, as a part of the largest logit, over `batches` of ids, by default
    the prompts and the edges."""
    batches = _batches(model) if batches is None else batches
    rows = distance_from_float64(model, batches, dtypes, progress)
    top = rows[0]["largest_logit"]
    return {
        "largest_logit": top,
        "dtypes": [
            {
                "dtype": r["dtype"],
                "ours": relative(r["ours"], top),
                "transformers": None if r["library"] is None else relative(r["library"], top),
                "same_argmax": r["ours_same_argmax"],
                "positions": r["positions"],
            }
            for r in rows
        ],
    }


def measure_growth(model, seed=0):
    """The rounding error of float32 by layer, on 64 random ids, and by length."""
    full = model.config.n_positions
    lengths = sorted({min(t, full) for t in (1, 16, 64, 256)})
    layers = error_by_layer(model, random_ids(model, min(64, full), seed=seed))
    return {"layers": layers, "lengths": error_by_length(model, lengths, seed)}


def _batches(model, seed=0):
    return prompt_batches(model, seed=seed) + edge_batches(model, seed)


def report(values, model_type="gpt2"):
    """Text of {"half": ..., "error-growth": ...}, of a model of that family."""
    half, growth = values["half"], values["error-growth"]
    rows = [
        [
            r["dtype"],
            "0 (itself)" if r["dtype"] == "float64" else f"{r['ours']:.1e}",
            "refused" if r["transformers"] is None else f"{r['transformers']:.1e}",
            f"{r['same_argmax']:,} of {r['positions']:,}",
        ]
        for r in half["dtypes"]
    ]
    lines = [
        f"Largest distance from our pass in float64, as a part of the largest logit, {half['largest_logit']:.1f}:",
        "",
        table(["dtype", "ours", "transformers", "our argmax as in float64"], rows),
        "",
        "Error of the stream in float32, of its largest value there; 0 is the embedding:",
        "",
        table(["after layer", "error"], [[r["layer"], f"{r['relative_error']:.1e}"] for r in growth["layers"]]),
        "",
        table(["tokens", "error of the logits"], [[r["tokens"], f"{r['relative_error']:.1e}"] for r in growth["lengths"]]),
        "",
    ]
    rounded = ROUNDED_IN_FLOAT64.get(model_type)
    if rounded:
        lines += [f"transformers computes {rounded} in float32 whatever the dtype,", "so its float64 is no reference.", ""]
    single = next(r for r in half["dtypes"] if r["dtype"] == "float32")
    times = relative(single["ours"], single["transformers"])
    first, last = (growth["layers"][i]["relative_error"] for i in (1, -1))
    end = [
        f"In float32 our largest distance from float64 is {times:.1f} times transformers'.",
        f"The error of the stream is {first:.1e} after the first layer and {last:.1e} after the last.",
    ]
    return "\n".join([*lines, *end])


EXPERIMENTS = (
    Experiment(
        "ch04.float64",
        "tolerance",
        "In float32 our largest distance from the float64 result is at most twice the library's.",
        "The float64 reference is our own program; that the library in float64 gives the same to 1e-12 is recorded beside it.",
        measure_float32,
        seconds=10,
    ),
    Experiment(
        "ch04.half",
        "observation",
        "In bfloat16 and float16 both programs are some orders of magnitude further from float64, and most argmaxes stay.",
        "No bar is set: rounding depends on kernels and on the processor.",
        measure_dtypes,
        headline=("dtypes[dtype=bfloat16].ours", "g2"),
        digits={"dtypes": 2},
        seconds=10,
    ),
    Experiment(
        "ch04.error-growth",
        "observation",
        "The rounding error of float32, relative to the values, stays within an order of magnitude over depth and length.",
        "One model of a few layers on random ids; a deeper one needs its own run.",
        measure_growth,
        headline=("lengths[tokens=256].relative_error", "s1"),
        digits=2,
        seconds=3,
    ),
)


def options():
    """The script's argument parser."""
    return Parser(prog="rounding.py", description=__doc__, keys=__file__).add("model", "device", "threads", "seed", "json")


@command
def main(argv=None):
    """Print how far each dtype strays."""
    args = options().parse_args(argv)
    model = load_for(args)
    batches = _batches(model, args.seed)
    with progress_bar("pass", len(batches) * len(DTYPES)) as bar:
        half = measure_dtypes(model, batches, tuple(DTYPES), bar.update)
    values = {"half": half, "error-growth": measure_growth(model, args.seed)}
    answer(args, values, lambda values: report(values, model.config.model_type))


if __name__ == "__main__":
    sys.exit(main())
