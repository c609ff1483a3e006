"""Chapter 4: our forward pass beside the library's, prompt by prompt, length by length, and point by point.

    python examples/ch04/agreement.py
    python examples/ch04/agreement.py --model smollm2          # any family, each by its own program
    python examples/ch04/agreement.py --model random:gpt2

transformers runs the same files in eager mode. An agreement says something only because it fails on a wrong program: the tests
plant the faults that a hand-written GPT-2 is known for, and each one breaks the bound.
"""

import json
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import DTYPES, load_for, run
from examples.ch03.tokens import PROMPTS, prompt_batches, random_ids
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch04.library import library_model, library_trace
from examples.lab.experiment import Experiment, largest, relative, tolerance, worst, worst_row
from examples.lab.script import Parser, answer, command, progress_bar, table

BOUND = 1e-5  # of the largest logit, for float32 programs that compute the same function
LONGEST = 2048  # tokens of the longest comparison: of the 8,192 that SmolLM2 takes, the scores are 4.8 GB per layer in float64


def agreement(ours, theirs):
    """How far two logits tensors [B, T, V] are apart: largest difference, largest logit, and where the argmax is the same."""
    finite = ours.isfinite().all(-1) & theirs.isfinite().all(-1)  # [B, T]; among NaNs no argmax means anything
    same = (ours.argmax(-1) == theirs.argmax(-1)) & finite
    top = largest(theirs)
    difference = largest(ours.double() - theirs.double())
    return {
        "batch": ours.shape[0],
        "tokens": ours.shape[1],
        "largest_difference": difference,
        "largest_logit": top,
        "relative_difference": relative(difference, top),
        "same_argmax": int(same.sum()),
        "positions": same.numel(),
    }


def edge_shapes(config):
    """(B, T) at the edges of what the model takes: 1, 2, the last but one, the full context, a batch of four.

    Of a context beyond LONGEST, LONGEST and the last but one before it.
    """
    full = min(config.n_positions, LONGEST)
    shapes = [(1, 1), (1, 2), (1, full - 1), (1, full), (4, min(64, full))]
    return sorted({(b, t) for b, t in shapes if 1 <= t <= full})


def edge_batches(model, seed=0):
    """Random ids of each of `edge_shapes`."""
    return [random_ids(model, t, b, seed) for b, t in edge_shapes(model.config)]


@torch.no_grad()
def measure(model, texts=PROMPTS, library=None, shapes=None, bound=BOUND, seed=0, progress=lambda: None):
    """Our logits beside the library's on each text, and on random ids of each of `shapes`: a `tolerance` of the largest logit.

    library: the same model in transformers, by default loaded. shapes: (B, T) each, by default `edge_shapes`. A model without a
    tokenizer takes random ids for the texts.
    """
    library = library_model(model) if library is None else library

    def beside(ids):
        progress()
        return agreement(run(model, ids), library(ids, use_cache=False).logits)

    batches = prompt_batches(model, texts, seed)
    named = texts if model.tokenizer else ["random ids"] * len(batches)
    prompts = [{"prompt": text, **beside(ids)} for text, ids in zip(named, batches, strict=True)]
    shapes = edge_shapes(model.config) if shapes is None else shapes
    edges = [beside(random_ids(model, t, b, seed)) for b, t in shapes]
    rows = prompts + edges
    positions, same = (sum(r[name] for r in rows) for name in ("positions", "same_argmax"))
    return tolerance(
        bound,
        worst(r["relative_difference"] for r in rows),
        same == positions,  # the claim has two halves
        prompts=prompts,
        edges=edges,
        largest_logit=worst(r["largest_logit"] for r in rows),
        positions=positions,
        same_argmax=same,
    )


def measure_points(model, ids=None, library=None):
    """One pass on `ids` [1, T], point by point beside the library: a `tolerance` of the largest value at the point.

    ids: by default the longest of the book's prompts. Compared is what the family's trace finds in the library: all but the scores,
    of a Llama all but them and q, of the others the stream, the weights and the logits.
    """
    ids = prompt_batches(model)[-1] if ids is None else ids
    library = library_model(model) if library is None else library
    ours, points = Trace(), {}
    run(model, ids, trace=ours)
    for (point, layer), theirs in library_trace(library, ids).items():
        found = {"largest_difference": largest(ours[point, layer].double() - theirs.double()), "in_layer": layer}
        points.setdefault(point, []).append(found | {"largest_value": largest(theirs)})
    rows = [
        {
            "point": point,
            "tensors": len(found),
            **worst_row(found, "largest_difference"),
            "largest_value": worst(r["largest_value"] for r in found),
        }
        for point, found in points.items()
    ]
    off = [relative(r["largest_difference"], r["largest_value"]) for found in points.values() for r in found]
    return tolerance(BOUND, worst(off), tensors=len(off), points=len(points), by_point=rows)


def report(values):
    """Text of {"agreement": ..., "layers": ...}."""
    found, layers = values["agreement"], values["layers"]

    def cells(first, r):
        same = f"{r['same_argmax']:,} of {r['positions']:,}"
        return [*first, f"{r['largest_difference']:.1e}", f"{r['largest_logit']:.2f}", f"{r['relative_difference']:.1e}", same]

    heads = ["difference", "largest logit", "relative", "same argmax"]
    within = "within" if found["worst"] <= found["bound"] else "MORE than"
    points = [
        [
            r["point"],
            r["tensors"],
            f"{r['largest_difference']:.1e}",
            "" if r["in_layer"] is None else r["in_layer"],
            f"{r['largest_value']:.3g}",
        ]
        for r in layers["by_point"]
    ]
    return "\n".join(
        [
            "Our pass beside transformers' (eager): how far a logit is off at most, and relative to the largest:",
            "",
            table(["prompt", "tokens", *heads], [cells([_short(r["prompt"]), r["tokens"]], r) for r in found["prompts"]]),
            "",
            table(["random ids: batch x tokens", *heads], [cells([f"{r['batch']} x {r['tokens']:,}"], r) for r in found["edges"]]),
            "",
            table(["point of the pass", "tensors", "largest difference", "in layer (from 0)", "largest value"], points),
            "",
            f"Point by point at most {layers['worst']:.1e} of the largest value there apart.",
            f"The logits are at most {found['worst']:.1e} of the largest apart, {within} {found['bound']}, float32's bound,",
            f"and the most probable token is the same at {found['same_argmax']:,} of {found['positions']:,} positions.",
        ]
    )


def _short(text, width=32):
    text = json.dumps(text)
    return text if len(text) <= width else text[: width - 4] + " ..."


ONE_MACHINES_ROUNDING = ("largest_difference", "relative_difference")
EXPERIMENTS = (
    Experiment(
        "ch04.agreement",
        "tolerance",
        "In float32 our logits are those of transformers within 1e-5 of the largest, with the same argmax at every position.",
        "Four prompts and five edge shapes on one model, eager attention, a CPU.",
        measure,
        leaves_out=ONE_MACHINES_ROUNDING,
        seconds=3,
    ),
    Experiment(
        "ch04.agreement-at-size",
        "tolerance",
        "On random weights of GPT-2's shape the same agreement holds up to 1,024 tokens and in a batch.",
        "Random weights have smaller logits and no outliers; a trained GPT-2 needs its own run.",
        measure,
        model="random:gpt2",
        movable=False,
        leaves_out=ONE_MACHINES_ROUNDING,
        seconds=40,
    ),
    Experiment(
        "ch04.layers",
        "tolerance",
        "Point by point of the pass our tensors are the library's within 1e-5 of the largest value there.",
        "One prompt; the scores are left out, since the library does not show them.",
        measure_points,
        leaves_out=("largest_difference", "in_layer", "largest_value"),
        seconds=2,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="agreement.py", description=__doc__, keys=__file__)
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Print how far our pass and the library's are apart."""
    args = options().parse_args(argv)
    model = load_for(args)
    library = library_model(model, DTYPES[args.dtype], args.device)
    texts = PROMPTS if args.prompt is None else (args.prompt,)
    with progress_bar("pass", len(prompt_batches(model, texts)) + len(edge_shapes(model.config))) as bar:
        found = measure(model, texts, library, seed=args.seed, progress=bar.update)
    ids = prompt_batches(model, texts, args.seed)[-1]
    answer(args, {"agreement": found, "layers": measure_points(model, ids, library)}, report)


if __name__ == "__main__":
    sys.exit(main())
