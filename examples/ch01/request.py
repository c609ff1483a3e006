"""Chapter 1: a request, timed: what a model's answer to one prompt spends its time on, stage by stage.

    python examples/ch01/request.py                                     # one request to the embedded model
    python examples/ch01/request.py --prompt "JULIET:" --tokens 60 --runs 5 --plot steps.svg
    python examples/ch01/request.py --record requests.jsonl             # and a line about it in a file of records
    python examples/ch01/request.py --record requests.jsonl --dtype bfloat16
    python examples/ch01/request.py show requests.jsonl                 # what the file holds, and what changed between two runs

The forward pass is the library's (transformers), one block here. The clock starts when the library is imported, before the model is
loaded, and stops when the text is there. The first request of a process is a cold one: its passes also pay for what later ones
find ready.
"""

import itertools
import statistics
import sys
import textwrap
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch01.library import import_classes, load_library, random_ids, serve
from examples.ch01.record import PASSES, STAGES, Stopwatch, append, check_file, compare, read, request_record, summary
from examples.lab.environment import versions
from examples.lab.experiment import Experiment, largest, tolerance, worst
from examples.lab.figure import check_target, label_ends, new_figure, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, progress_bar, table, whole_number

PROMPT = "Good night, good night! parting is such sweet sorrow,\nThat I"  # 18 tokens of the embedded model
PROMPT_TOKENS = 18  # random ids, for a model without a tokenizer
TOKENS = 40
RUNS = 5  # requests that an experiment takes medians of, after the first
DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}


# ------------------------------------------------------------------------------------------------------- the measurements


def measure(model, prompt=None, tokens=TOKENS, runs=RUNS, seed=0, dtype="float32", file=None, progress=lambda: None):
    """Where the time of requests to a model goes: medians of `runs` of them, after a first one that is discarded; of one
    run, that one, which is cold.

    model: a source as `--model` has it, or a model that was loaded from one; the library loads it anew. file: where a record of
    each request is appended, the first too. prompt: a text; by default PROMPT, or random ids where there is no tokenizer.
    request_ms and all shares are of the request without loading, which is done once for all of them.
    """
    source = model if isinstance(model, str) else model.manifest["source"]
    import_classes()  # before the clock starts: its import is no part of a request
    watch = Stopwatch()
    with watch.stage("load"):
        library = load_library(source, DTYPES[dtype], seed)
    served = [serve(library, prompt_for(library, prompt, tokens, seed), tokens, watch)]
    progress()
    for _ in range(runs if runs > 1 else 0):
        served.append(serve(library, prompt_for(library, prompt, tokens, seed), tokens))
        progress()
    of = {"artefact": library.artefact() if file else {}, "threads": torch.get_num_threads(), "dtype": dtype}
    of["settings"] = {"temperature": 0.0}
    records = [request_record("transformers", len(s.prompt), len(s.new), s.stages, s.seconds, **of) for s in served]
    for record in records if file else ():
        append(file, record)
    return {"runs": runs, "cold": runs == 1, **_medians(served[-runs:], records), "text": served[0].text}


def prompt_for(library, prompt=None, tokens=TOKENS, seed=0):
    """The prompt of a request: the text given, or PROMPT; random ids [1, T] where there is no tokenizer to read either."""
    if prompt is not None or library.tokenizer is not None:
        return PROMPT if prompt is None else prompt
    return random_ids(library, max(1, min(PROMPT_TOKENS, library.positions - tokens + 1)), seed)


def _medians(served, records):
    """The values of `measure`, of the requests that count and of all records, the first of which has the load."""
    found = [summary(record) for record in records][-len(served) :]
    rows = []
    for name in STAGES[1:]:  # loading is no part of the request
        times = [s.stages.get(name, []) for s in served]
        ms = [1e3 * sum(t) for t in times]
        shares = [100 * m / f["request_ms"] for m, f in zip(ms, found, strict=True)]
        rows.append({"stage": name, "times": len(times[0]), "ms": statistics.median(ms), "percent": statistics.median(shares)})
    rest = statistics.median(f["unexplained_percent"] * f["request_ms"] / 100 for f in found)
    middle = {key: statistics.median(f[key] for f in found if f[key] is not None) for key in ("request_ms", "prefill_ms")}
    middle |= {key: statistics.median(f[key] for f in found) for key in ("passes_percent", "unexplained_percent")}
    rows.append({"stage": "unexplained", "times": 1, "ms": rest, "percent": middle["unexplained_percent"]})
    steps = [[s.steps[i] for s in served] for i in range(len(served[0].steps))]
    steps = [
        {"step": i, **{k: 1e3 * statistics.median(t[j] for t in times) for j, k in enumerate(("pass_ms", "choose_ms"))}}
        for i, times in enumerate(steps, start=1)
    ]
    later = [row["pass_ms"] for row in steps[1:]]
    return {
        "prompt_tokens": len(served[0].prompt),
        "output_tokens": len(served[0].new),
        **middle,
        "decode_step_ms": statistics.median(later) if later else None,
        "load_ms": summary(records[0])["load_ms"],
        "first_request_ms": summary(records[0])["request_ms"],
        "stages": rows,
        "steps": steps,
    }


def measure_steps(model, tokens=TOKENS):
    """Whether the scores that a request chose from, pass by pass with the library's cache, are those of one whole pass.

    worst: the largest difference at any step, as a part of the largest score.
    """
    library = load_library(model if isinstance(model, str) else model.manifest["source"])
    seen = []
    served = serve(library, prompt_for(library), tokens, on_logits=lambda logits: seen.append(logits.clone()))
    whole = torch.tensor([served.prompt + served.new[:-1]])  # [1, T + n - 1]: the last token is never fed
    with torch.inference_mode():
        logits = library.model(whole, use_cache=False).logits[0, len(served.prompt) - 1 :]  # [n, V]
    difference = worst(largest(a - b) for a, b in zip(seen, logits, strict=True)) / largest(logits)
    same = [a.argmax().item() for a in logits] == served.new
    return tolerance(1e-5, difference, held=same, prompt_tokens=len(served.prompt), output_tokens=len(served.new), same_tokens=same)


# ------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"request": ...}."""
    v = values["request"]
    rows = [["load", "1", f"{v['load_ms']:,.1f}", ""]]
    rows += [[r["stage"], str(r["times"]), f"{r['ms']:,.2f}", f"{r['percent']:.2f}%"] for r in v["stages"] if r["times"]]
    rows += [["the request, less load", "", f"{v['request_ms']:,.2f}", "100.00%"]]
    about = "the first request of its process" if v["cold"] else f"medians of {v['runs']} requests after the first"
    step = v["decode_step_ms"]
    later = f" and {step:.2f} ms for each token after it" if step else ""
    said = ["", *textwrap.wrap(f"the new text: {v['text']!r}", 98), ""] if v["text"] is not None else [""]
    return "\n".join(
        [
            *said,
            f"{v['prompt_tokens']} tokens of prompt, {v['output_tokens']} new ones; {about}:",
            "",
            table(["stage", "times", "ms", "of the request"], rows),
            "",
            f"The first token took {v['prefill_ms']:.2f} ms of passes,{later}; loading took {v['load_ms']:,.0f} ms.",
            f"The forward passes, {' and '.join(PASSES)}, are {v['passes_percent']:.1f} per cent of the request.",
        ]
    )


def draw(values, path):
    """Milliseconds of the pass and of choosing a token, step by step, from what `measure` returns."""
    figure, axes = new_figure()
    steps = [r["step"] for r in values["steps"]]
    for i, (name, key) in enumerate((("forward pass", "pass_ms"), ("choosing\nthe token", "choose_ms"))):
        axes.plot(steps, [r[key] for r in values["steps"]], label=name, **style(i))
    about = f"prompt of {values['prompt_tokens']} tokens in step 1, then one token per step"
    axes.set(xlabel=f"step ({about})", ylabel="milliseconds", yscale="log", title="A request, step by step")
    plain_ticks(axes.yaxis)
    label_ends(axes)
    write_figure(figure, path)


# ------------------------------------------------------------------------------------------------------- a file of records


def measure_file(path):
    """What a file of records holds: a row for each, what changed from each to the next, and what could not be read."""
    found, problems = read(path)
    rows = [{"line": line, **summary(record)} for line, record in found]
    pairs = itertools.pairwise(found)
    changes = [{"from_line": a, "to_line": b, **compare(one, other)} for (a, one), (b, other) in pairs]
    return {"records": rows, "changes": changes, "problems": problems}


def _known(value, form="{}", width=14):
    """A value in a cell; its end where it is longer than the cell."""
    text = "unknown" if value is None else form.format(value)
    return text if len(text) <= width else "..." + text[3 - width :]


def _change(what, value):
    return _known(value, width=64)[:8] if what in ("weights", "config", "commit") else _known(value, width=24)


def show(values):
    """Text of {"show": ...}: what ran, how long it took, what was predicted of it, what changed from each record to the next, and
    what could not be read."""
    v = values["show"]
    heads = ["line", "at (UTC)", "program", "model", "weights", "threads", "dtype", "tokens"]
    ran = []
    for r in v["records"]:
        at, weights = _known(r["at"], width=25)[:16].replace("T", " "), _known(r["sha256"], width=64)[:8]
        tokens = f"{_known(r['prompt_tokens'])} + {_known(r['output_tokens'])}"
        names = [_known(r[key]) for key in ("program", "model", "threads", "dtype")]
        ran.append([r["line"], at, *names[:2], weights, *names[2:], tokens])
    keys = ("load_ms", "prefill_ms", "decode_step_ms", "request_ms")
    times = [
        [r["line"], *(_known(r[key], "{:,.1f}") for key in keys)]
        + [_known(r[f"{part}_percent"], "{:.1f}%") for part in ("passes", "unexplained")]
        for r in v["records"]
    ]
    parts = ["There is no record in the file."]
    if ran:
        words = ["line", "load, ms", "prefill, ms", "decode step, ms", "request, ms", "passes", "unexplained"]
        parts = [table(heads, ran), table(words, times)]
        parts += _predictions(v["records"])
    for c in v["changes"]:
        changed = [f"{d['what']} {_change(d['what'], d['from'])} -> {_change(d['what'], d['to'])}" for d in c["changed"]]
        ratios = [f"{what} x{ratio:.2f}" for what, ratio in c["ratios"].items() if ratio is not None]
        lines = [_folded(f"line {c['from_line']} to {c['to_line']}:", changed or ["nothing but the times"])]
        parts.append("\n".join([*lines, _folded("    time:", ratios or ["unknown"])]))
    count = len(v["records"])
    read_ = f"{count} record{'' if count == 1 else 's'} read"
    if v["problems"]:
        parts.append("\n".join(textwrap.fill(problem, 98, subsequent_indent="    ") for problem in v["problems"]))
        read_ += ", and what is wrong with the file stands above"
    parts.append(f"{read_}.\nA factor is the later time over the earlier one: below 1, the later run was faster.")
    return "\n\n".join(parts)


_SAID = (("said_ms", "{:,.1f}"), ("took_ms", "{:,.1f}"), ("ratio", "x{:.2f}"))


def _predictions(rows):
    """A table of what was predicted of the passes beside what they took, of the records that say so; of none of them, none."""
    rows = [(r["line"], r["predicted"]) for r in rows if r["predicted"]]
    keys = [(f"{name}_{key}", form) for name in PASSES for key, form in _SAID]
    cells = [[line, _known(p["limit"]), *(_known(p[key], form) for key, form in keys)] for line, p in rows]
    heads = ["line", "limit", "prefill said, ms", "took", "ratio", "decode said, ms", "took", "ratio"]
    return [table(heads, cells)] if rows else []


def _folded(head, items, width=100):
    """`head` and the items behind it, with commas, in lines of `width`."""
    lines = [head]
    for i, item in enumerate(items):
        item += "," if i + 1 < len(items) else ""
        if len(lines[-1]) + len(item) + 1 > width:
            lines.append("       ")
        lines[-1] += f" {item}"
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------- the experiments

_LIMITS = "One thread of one processor, float32, one prompt, 40 new tokens, greedy; loading is left out of the request."
EXPERIMENTS = (
    Experiment(
        "ch01.request",
        "timing",
        "Nearly all the time of a request to the embedded model goes into forward passes.",
        f"{_LIMITS} A model so small makes the rest look large.",
        measure,
        figures={"request.svg": draw},
        headline=("passes_percent", "pct1"),
        seconds=5,
    ),
    Experiment(
        "ch01.request-gpt2",
        "timing",
        "Nearly all the time of a request to a model of GPT-2's shape goes into forward passes.",
        f"{_LIMITS} Random weights, so there is no text, and neither tokenising nor detokenising.",
        measure,
        model="random:gpt2",
        figures={"request-gpt2.svg": draw},
        headline=("passes_percent", "pct1"),
        seconds=20,
    ),
    Experiment(
        "ch01.request-smollm2",
        "timing",
        "Nearly all the time of a request to SmolLM2 goes into forward passes.",
        _LIMITS,
        measure,
        model="smollm2",
        headline=("passes_percent", "pct1"),
        seconds=60,
    ),
    Experiment(
        "ch01.steps",
        "tolerance",
        "The scores of a request's steps, made with the library's cache, are those of one pass over the whole text.",
        "One model, one prompt, 40 steps, float32.",
        measure_steps,
        seconds=2,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="request.py", description=__doc__, keys=__file__)
    parser.add_argument(
        "action", nargs="?", choices=["run", "show"], default="run", help="time a request, or show a file of records"
    )
    parser.add_argument("file", nargs="?", type=Path, default=None, help="for show: the file")
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="new tokens at most")
    parser.add_argument("--runs", type=whole_number(1), default=1, metavar="N", help="more than 1: medians of N after a first one")
    parser.add_argument("--record", type=Path, default=None, metavar="FILE", help="append a record of each request, the first too")
    return parser.add("model", "dtype", "prompt", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Time a request, or show a file of records."""
    args = options().parse_args(argv)
    if args.action == "show":
        if args.file is None:
            raise BadInput("show takes a file of records: request.py show FILE; write one with --record FILE")
        answer(args, {"show": measure_file(args.file)}, show)
        return
    if args.file is not None:
        raise BadInput(f"unknown: {args.file}; to show a file of records: request.py show {args.file}")
    check_target(args.plot)
    check_file(args.record)
    torch.set_num_threads(args.threads)
    wanted = {"prompt": args.prompt, "runs": args.runs, "seed": args.seed, "dtype": args.dtype, "file": args.record}
    with progress_bar("request", args.runs + (args.runs > 1)) as bar:
        values = measure(args.model, tokens=args.tokens, progress=bar.update, **wanted)
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
    using = f"{args.model}: {args.dtype}, {threads}, torch {torch.__version__}, transformers {versions()['transformers']}\n"
    answer(args, {"request": values}, lambda v: using + report(v), lambda v, path: draw(v["request"], path))


if __name__ == "__main__":
    sys.exit(main())
