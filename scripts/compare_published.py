"""Set what the source text printed beside what is measured here on the real model, with a verdict for each number.

    make compare-published MODEL=openai-community/gpt2

What follows from GPT-2's config alone is recomputed and must be the same. What needs the weights runs on MODEL. Two kinds of
number cannot be compared, and are shown beside ours all the same: timings, which are another machine's, and values of prompts
that the source text did not print.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from examples.ch02.model import load
from examples.ch04 import agreement, causal_mask, component_timing, cost_model, last_position, residual_trace, tensor_sizes
from examples.lab.experiment import plain
from examples.lab.script import BadInput, Parser, command, counted, dump_json, read_json, table, whole_number
from scripts.experiments import ROOT
from scripts.markers import look_up

PUBLISHED = ROOT / "research" / "ch04" / "published.json"
VERDICTS = ("same", "within stated bounds", "different", "not comparable")


def recompute():
    """What follows from the config: {"counts", "flops", "scores_megabytes"}."""
    sizes = tensor_sizes.measure()
    return {
        "counts": cost_model.measure_counts(),
        "flops": cost_model.measure_flops(),
        "scores_megabytes": sizes["scores_bytes"] / 1e6,
    }


def measure(model, runs=5):
    """What needs the weights and the machine: {"agreement", "mask", "residual", "time"}; None where the model is too small."""
    prompts = agreement.measure(model, shapes=())["prompts"]
    mask, off = causal_mask.measure(model, dtypes=()), causal_mask.measure_off(model)
    rows = residual_trace.measure(model)["layers"]
    middle = rows[3:-1] or rows[-1:]
    largest = max(middle, key=lambda r: r["largest"])
    fourth = next((r for r in rows if r["layer"] == 4), {})
    fitting = [t for t in (16, 128, 512) if t <= model.config.n_positions]
    timed = component_timing.measure(model, fitting, runs) if fitting else {"lengths": []}
    lengths = {r["tokens"]: r for r in timed["lengths"]}
    saving = last_position.measure(model, fitting[:1], runs)["lengths"]
    return plain(
        {
            "agreement": {
                "largest_difference": max(r["largest_difference"] for r in prompts),
                "argmax_moved": sum(r["positions"] - r["same_argmax"] for r in prompts),
                **{f"largest_logit_{i}": r["largest_logit"] for i, r in enumerate(prompts, 1)},
            },
            "mask": {
                "largest_earlier_change": mask["largest_earlier_change"],
                "rewritten_without": off["earlier_predictions_rewritten"],
            },
            "residual": {
                "dimension": largest["dimension"],
                "position": largest["position"],
                "least_ratio": min(r["largest_over_median"] for r in middle),
                "rms_4": fourth.get("rms"),
                "rms_4_without_first": fourth.get("rms_without_first"),
                "rms_last": rows[-1]["rms"],
                "rms_last_without_first": rows[-1]["rms_without_first"],
            },
            "time": {
                **{f"attention_share_{t}": lengths.get(t, {}).get("attention_time_percent") for t in (16, 128, 512)},
                **{f"throughput_{t}": lengths.get(t, {}).get("gflop_per_s") for t in (16, 128, 512)},
                "layer_norm_share_min": timed.get("norms_time_percent_min"),
                "layer_norm_share_max": timed.get("norms_time_percent_max"),
                "last_position_saving_16": saving[0]["time_saving_percent"] if saving else None,
            },
        }
    )


def verdict(entry, measured):
    """One of VERDICTS for a published entry and the number measured, and why where it is not plain."""
    how, value = entry["verdict_by"], entry["value"]
    if how == "machine":
        return "not comparable", "another machine"
    if how == "prompt":
        return "not comparable", "the prompt was not published"
    if measured is None:
        return "not comparable", "this model is too small"
    if how == "equal":
        return ("same" if measured == value else "different"), ""
    if how == "rounds_to":
        return ("same" if round(measured, entry["bound"]) == value else "different"), f"rounded to {entry['bound']} decimals"
    if how == "at_most":
        return ("within stated bounds" if measured <= value else "different"), "a bound from above"
    if how == "at_least":
        return ("within stated bounds" if measured >= value else "different"), "a bound from below"
    raise BadInput(f"{PUBLISHED}: {entry['id']} has the verdict_by {how!r}, which is not known; correct it")


def compare(entries, found):
    """[{id, what, unit, published, measured, verdict, why}] for each entry."""
    rows = []
    for entry in entries:
        measured = look_up({"values": found}, entry["measured"])
        found_verdict, why = verdict(entry, measured)
        row = {"id": entry["id"], "what": entry["what"], "unit": entry["unit"], "published": entry["value"]}
        rows.append(row | {"measured": measured, "verdict": found_verdict, "why": why})
    return rows


def options():
    """The script's argument parser."""
    parser = Parser(prog="compare_published.py", description=__doc__).add("threads", "json")
    about = "the real GPT-2, by hub id or folder"
    parser.add_argument("--model", default="openai-community/gpt2", metavar="SOURCE", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=5, metavar="N", help="timed passes after the warm-up")
    return parser


@command
def main(argv=None):
    """Print published, measured and verdict for every number of the source text."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    entries = read_json(PUBLISHED)["entries"]
    model = load(args.model)
    rows = compare(entries, recompute() | measure(model, args.runs))
    if args.json:
        print(dump_json({"model": args.model, "commit": model.manifest["commit"], "threads": args.threads, "rows": rows}), end="")
        return
    shown = [[r["what"], _number(r["published"]), _number(r["measured"]), r["unit"], _verdict(r)] for r in rows]
    print(
        f"{args.model}, commit {model.manifest['commit']}, float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    )
    print(table(["number of the source text", "published", "measured", "unit", "verdict"], shown))
    counts = {v: sum(r["verdict"] == v for r in rows) for v in VERDICTS}
    print("\n" + ", ".join(f"{n} {v}" for v, n in counts.items()))


def _verdict(row):
    return row["verdict"] + (f": {row['why']}" if row["why"] else "")


def _number(x):
    return "n/a" if x is None else f"{x:,}" if isinstance(x, int) else f"{x:.4g}"


if __name__ == "__main__":
    sys.exit(main())
