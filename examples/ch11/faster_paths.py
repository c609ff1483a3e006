"""Chapter 11: faster paths, each compared with the oracle before it is timed.

    python examples/ch11/faster_paths.py                       # SmolLM2 where it is installed, else the embedded model
    python examples/ch11/faster_paths.py --model random:gpt2 --threads 2 --plot paths.svg

A path is another way to compute what the plain pass computes: attention as one operator, logits of the last position alone,
compiled blocks, narrower numbers, narrower weights. Each reads a text that the model has not seen, most of it in one pass and
the rest token by token, and its logits are held beside the oracle's. A path that differs by more than its bound gets no speed.
"""

import sys
import textwrap
import time
from pathlib import Path as File

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(File(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import general
from examples.ch02.model import Model, load_for, run, smollm2_file
from examples.ch03.held_text import held_text
from examples.ch03.tokens import encode, random_ids
from examples.ch11.machine import machine_rates
from examples.ch11.operations import operations, pass_bound
from examples.ch11.paths import CachedStep, Path, paths
from examples.lab.experiment import Experiment, largest
from examples.lab.figure import PAGE, bar_style, check_target, new_panels, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, progress_bar, table, whole_number
from examples.lab.timing import in_turns

READ, ONE_BY_ONE = 256, 32  # positions of the held text that are compared: read in one pass, and one at a time behind them
TOKENS, RUNS = 128, 5  # of the prompt that is timed, and timed runs of each path
# Bounds, by whether a path computes the same function: the largest difference as a part of the largest logit, the least share of
# positions with the same most probable token, and the most that the loss may change, in nats.
EXACT = {"relative_difference": 1e-4, "same_argmax_share": 0.99, "loss_change": 1e-4}
ROUGH = {"relative_difference": 0.05, "same_argmax_share": 0.95, "loss_change": 0.02}


def default_model() -> str:
    """SmolLM2; the embedded model where that is not installed, and a line on stderr that says so."""
    try:
        smollm2_file()
    except BadInput:
        print("SmolLM2 is not installed, so this is the embedded model; `make real-model` gets it", file=sys.stderr)
        return "embedded"
    return "smollm2"


def text_ids(model: Model, seed: int = 0) -> tuple[torch.Tensor, int]:
    """(ids [n + 1], how many of them are read in one pass): the held text, or random ids; n are read and the last n predicted."""
    most = min(READ + ONE_BY_ONE, model.config.n_positions)
    ids = encode(held_text(model), model)[0] if model.tokenizer else random_ids(model, most + 1, seed=seed)[0]
    n = min(most, len(ids) - 1)
    return ids[: n + 1], max(1, n - ONE_BY_ONE)


@torch.inference_mode()
def agreement(model: Model, ways: list[Path], seed=0, timer=time.perf_counter, progress=lambda: None):
    """(rows, steps): a row for each path, of its logits beside the oracle's, and {name: CachedStep} of those that agree.

    A row: {path, positions, relative_difference, same_argmax_share, loss_change, first_call_s, bounds, agrees, why_not}; of a path
    that cannot run here all but the name and `why_not` are None.
    """
    ids, read = text_ids(model, seed)
    oracle = run(model, ids[None, :-1])[0]  # [n, V], by the family's own pass and without a cache
    rows, steps = [], {}
    for way in ways:
        row = dict.fromkeys(("positions", *EXACT, "first_call_s", "bounds"))
        try:
            step = CachedStep(way.make(), len(ids) - 1, way.last_only)
        except BadInput as error:
            rows.append({"path": way.name, **row, "agrees": False, "why_not": f"not here: {error}"})
            continue
        start = timer()
        parts = [step.step(ids[:read])]  # [read, V], or [1, V]
        first = timer() - start
        parts += [step.step(ids[i : i + 1]) for i in range(read, len(ids) - 1)]
        logits = torch.cat(parts).float()  # [p, V] of the last p positions
        row |= compared(logits, oracle[-len(logits) :], ids[-len(logits) :])
        bounds = EXACT if way.exact else ROUGH
        why_not = beyond(row, bounds)
        rows.append({"path": way.name, **row, "first_call_s": first, "bounds": bounds, "agrees": not why_not, "why_not": why_not})
        if not why_not:
            steps[way.name] = step
        progress()
    return rows, steps


def compared(logits, oracle, answers):
    """The differences of logits [p, V] from the oracle's, and of the losses of predicting `answers` [p]."""
    same = (logits.argmax(-1) == oracle.argmax(-1)).double().mean().item()
    loss, own = (torch.nn.functional.cross_entropy(x.double(), answers).item() for x in (logits, oracle))
    difference = largest(logits - oracle) / largest(oracle)
    values = {"relative_difference": difference, "same_argmax_share": same, "loss_change": loss - own}
    return {"positions": len(logits), **values}


def beyond(row, bounds):
    """Which bounds a row is beyond, in words; None where it is within all. A NaN is beyond."""
    far = []
    if not row["relative_difference"] <= bounds["relative_difference"]:
        size = f"{row['relative_difference']:.2g} of the largest"
        far.append(f"a logit differs by {size}, more than {bounds['relative_difference']:g}")
    if not row["same_argmax_share"] >= bounds["same_argmax_share"]:
        far.append(f"{row['same_argmax_share']:.1%} of argmaxes are the same, less than {bounds['same_argmax_share']:.0%}")
    if not abs(row["loss_change"]) <= bounds["loss_change"]:
        far.append(f"the loss changes by {row['loss_change']:+.2g}, more than {bounds['loss_change']:g}")
    return "; ".join(far) or None


def bfloat16_rate(runs=RUNS, timer=time.perf_counter):
    """FLOP/s of a square matmul in bfloat16, as `machine_rates` has it for float32."""
    a = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0)).bfloat16()
    return 2 * 1024**3 / in_turns({"matmul": lambda: a @ a}, runs, timer)["matmul"]


def predicted(config, way: Path, rates: dict, new: int, past: int) -> float:
    """Seconds of a path's pass of `new` positions behind `past` others, by the roofline of each operation.

    rates: {"flop_per_s", "bytes_per_s", "bfloat16_flop_per_s"}.
    """
    rows = []
    for r in operations(config, new, past, number=way.number, weight=way.weight):
        spared = dict.fromkeys(way.spares, 0)
        rows.append({**r, **spared, "bytes": r["bytes"] - sum(r[kind] for kind in way.spares)})
    flops = rates["bfloat16_flop_per_s" if way.bfloat16 else "flop_per_s"]
    own = {"flop_per_s": flops, "bytes_per_s": rates["bytes_per_s"]}
    return pass_bound(rows, own, last_only=way.last_only, new=new)["seconds"]


@torch.inference_mode()
def speeds(model: Model, ways: list[Path], steps: dict, tokens: int, runs: int, timer=time.perf_counter, progress=lambda: None):
    """{name: {prefill, decode}} of the paths in `steps`, each {ms, times_as_fast, predicted_times_as_fast}.

    prefill: `tokens` positions into an empty cache; decode: one position behind them. All take turns. times_as_fast: the plain
    pass's time over the path's. Of one position there is only a last row, so decode of `last_only` is None.
    """
    ids, found = random_ids(model, tokens + 1)[0], {name: {} for name in steps}
    ways = {way.name: way for way in ways}
    own = {name: CachedStep(step.model, tokens + 1, step.last_only) for name, step in steps.items()}
    rates = machine_rates(runs, timer=timer) | {"bfloat16_flop_per_s": bfloat16_rate(runs, timer)}

    def pass_of(step, start, stop):
        def one():
            step.truncate(start)
            step.step(ids[start:stop])
            progress()

        return one

    for what, start, stop in (("prefill", 0, tokens), ("decode", tokens, tokens + 1)):
        timed = {name: step for name, step in own.items() if what == "prefill" or not step.last_only}
        seconds = in_turns({name: pass_of(step, start, stop) for name, step in timed.items()}, runs, timer)
        bounds = {name: predicted(model.config, ways[name], rates, stop - start, start) for name in timed}
        plain = next(iter(timed))
        for name in found:
            found[name][what] = None
        for name, s in seconds.items():
            row = {"ms": 1e3 * s, "times_as_fast": seconds[plain] / s, "predicted_times_as_fast": bounds[plain] / bounds[name]}
            found[name][what] = row
    return found


def measure_agreement(model, ways=None, seed=0, timer=time.perf_counter, progress=lambda: None):
    """Rows of `agreement`, without the times of the first calls; by default of all `paths`."""
    rows, _ = agreement(model, paths(model) if ways is None else ways, seed, timer, progress)
    return {"paths": [{key: x for key, x in r.items() if key != "first_call_s"} for r in rows]}


def measure(model, tokens=TOKENS, runs=RUNS, ways=None, seed=0, timer=time.perf_counter, progress=lambda: None):
    """{tokens, runs, paths}: the rows of `agreement`, each with prefill and decode of `speeds`, None for a path without a speed.

    tokens: at most as many as leave room for one more. Raises BadInput where the plain pass itself is beyond its bounds: nothing
    is then left to compare times with.
    """
    ways = paths(model) if ways is None else ways
    tokens = min(tokens, model.config.n_positions - 1)
    rows, steps = agreement(model, ways, seed, timer, progress)
    if not rows[0]["agrees"]:
        raise BadInput(f"the plain pass with a cache is not the oracle's ({rows[0]['why_not']}); give another model")
    found = speeds(model, ways, steps, tokens, runs, timer, progress)
    return {"tokens": tokens, "runs": runs, "paths": [r | found.get(r["path"], {"prefill": None, "decode": None}) for r in rows]}


def speed_cells(row, what):
    """Cells of a measured and a predicted speed."""
    if not row["agrees"]:
        return ["not here" if row["bounds"] is None else "no speed", ""]
    found = row[what]
    return ["n/a", ""] if found is None else [f"{found['times_as_fast']:.2f}", f"{found['predicted_times_as_fast']:.2f}"]


def report(values):
    """Text of {"faster-paths": ...}."""
    v = values["faster-paths"]
    rows = []
    for r in v["paths"]:
        if r["bounds"] is None:
            cells = ["n/a"] * 3
        else:
            cells = [f"{r['relative_difference']:.1e}", f"{r['same_argmax_share']:.1%}", f"{r['loss_change']:+.4f}"]
        rows.append([r["path"], *cells, *speed_cells(r, "prefill"), *speed_cells(r, "decode")])
    heads = ["path", "differs", "argmax", "loss", "prefill", "roofline", "decode", "roofline"]
    refused = [f"{r['path']}: {'no speed: ' if r['bounds'] else ''}{r['why_not']}." for r in v["paths"] if not r["agrees"]]
    plain, most = v["paths"][0], max(r["positions"] or 0 for r in v["paths"])
    about = (
        f"Differences are of {most} positions of a held text, as parts of the largest logit, with the share of argmaxes that are "
        "the same and the change of the loss in nats. Speeds, measured and as the roofline has them, are times that of the plain "
        f"pass, for a prompt of {counted(v['tokens'], 'token')} and for one token behind it: "
        f"{plain['prefill']['ms']:.1f} and {plain['decode']['ms']:.1f} ms; medians of {counted(v['runs'], 'run')} in turn."
    )
    return "\n".join([table(heads, rows), "", *(textwrap.fill(x, 98) for x in [*refused, about, in_words(v["paths"])])])


def in_words(rows):
    """What to see in the table: the fastest of each, as predicted and as measured."""
    said = []
    for what in ("prefill", "decode"):
        best = max((r for r in rows[1:] if r.get(what)), key=lambda r: r[what]["times_as_fast"], default=None)
        if best is None:
            said.append(f"for {what} there is none")
        else:
            found = best[what]
            said.append(
                f"the fastest for {what} is {best['path']}, {found['times_as_fast']:.2f} times as fast as the plain pass where the "
                f"bytes and FLOPs that it spares allow {found['predicted_times_as_fast']:.2f}"
            )
    return f"Of the other paths that agree, {said[0]}, and {said[1]}."


def draw(values, path):
    """Speeds of the paths that agree, measured and predicted, for prefill and for decode."""
    figure, panels = new_panels(1, 2, (PAGE, 3.4), sharey=True)
    rows = [r for r in values["paths"] if r["agrees"]][::-1]
    for axes, what in zip(panels, ("prefill", "decode"), strict=True):
        for i, (key, label) in enumerate((("predicted_times_as_fast", "predicted"), ("times_as_fast", "measured"))):
            places = [y + 0.2 - 0.4 * i for y in range(len(rows))]
            widths = [r[what][key] if r[what] else 0 for r in rows]
            axes.barh(places, widths, height=0.38, label=label, **bar_style(i))
        axes.axvline(1, color="0.3", linewidth=0.8)
        axes.set(title=f"{what}, {values['tokens']} tokens" if what == "prefill" else f"decode, behind {values['tokens']}")
        axes.set_xlabel("times as fast as the plain pass")
    panels[0].set_yticks(range(len(rows)), [r["path"] for r in rows])
    panels[1].legend(loc="best", fontsize=9)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.paths-agreement",
        "observation",
        "Fused attention, a last row alone and compiled blocks give the oracle's logits within 1e-4 of the largest; int8 weights "
        "with one scale a row change more than one most probable token in twenty, and bfloat16 fewer.",
        "288 positions of one text, one small model, float32 on one kind of processor; paths that cannot run there are not in it.",
        measure_agreement,
        model="smollm2",
        headline=("paths[path=bfloat16].relative_difference", "g2"),
        digits=2,
        seconds=90,
    ),
    Experiment(
        "ch11.paths",
        "timing",
        "Half of the bytes do not make a decode step twice as fast: in bfloat16 it gains less than the roofline allows.",
        "One thread of one processor, batch 1, 128 tokens and one behind them; others have other products of bfloat16 and int8.",
        measure,
        model="smollm2",
        headline=("paths[path=bfloat16].decode.times_as_fast", "g2"),
        figures={"paths.svg": draw},
        seconds=150,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="faster_paths.py", description=__doc__, keys=__file__)
    about = "a folder, a .gguf file, random:NAME or a hub id; by default smollm2, or embedded where that is not installed"
    parser.add_argument("--model", default=None, metavar="SOURCE", help=about)
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="of the prompt that is timed")
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser.add("threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print the table of faster paths."""
    args = options().parse_args(argv)
    check_target(args.plot)
    args.model = args.model or default_model()
    model = load_for(args)
    if general(model.config).n_positions < 2:
        raise BadInput(f"{args.model} takes one position; a prompt and a token behind it need two, give another model")
    ways = paths(model)
    with progress_bar("pass", len(ways) * (1 + 2 * (args.runs + 1))) as bar:
        values = {"faster-paths": measure(model, args.tokens, args.runs, ways, args.seed, progress=bar.update)}
    head = f"{args.model}: float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["faster-paths"], path))


if __name__ == "__main__":
    sys.exit(main())
