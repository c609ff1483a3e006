"""Chapter 11: what a request will cost, said before it runs, and what it cost; ten requests, and where the prediction is wrong.

    python examples/ch11/prediction.py                                    # ten requests, in two minutes
    python examples/ch11/prediction.py --plot prediction.svg
    python examples/ch11/prediction.py --model smollm2 --prompt "Paris is" --record requests.jsonl
    python examples/ch01/request.py show requests.jsonl                   # the record of it, predicted beside measured

The first prediction knows a config, two numbers of tokens, and two rates of this machine. The second adds what the operators cost
by themselves. The third reads memory at the rate of the model's own matrices in place of one large matrix. The request is chapter
10's loop, greedy; all that the predictions need is counted and timed before it runs.
"""

import argparse
import datetime
import statistics
import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch01.record import PASSES, Stopwatch, append, check_file, request_record
from examples.ch02.model import load, load_for
from examples.ch03.tokens import decode, encode, random_ids
from examples.ch05.generate import by_stage, generate, ran
from examples.ch10.kv_cache import Cached
from examples.ch11.machine import machine_rates
from examples.ch11.operations import operations, pass_bound, totals
from examples.ch11.overhead import family_of, operator_seconds, pass_operators, products_alone
from examples.lab.environment import smollm2_file
from examples.lab.experiment import Experiment
from examples.lab.figure import BLACK, COLOURS, MARKERS, check_target, new_figure, plain_ticks, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, progress_bar, table, whole_number
from examples.lab.timing import in_turns, median_after

REQUESTS = (  # model, tokens of the prompt, new tokens
    *(("embedded", 8, 40), ("embedded", 64, 40), ("embedded", 200, 40)),
    *(("smollm2", 8, 24), ("smollm2", 128, 24), ("smollm2", 512, 24), ("smollm2", 1024, 8)),
    *(("random:gpt2", 16, 24), ("random:gpt2", 256, 24), ("random:gpt2", 960, 8)),
)
RUNS, TOKENS, PROMPT = 3, 40, "My lord, what news from the north?"
PROMPT_TOKENS = 16  # of random ids, for a model without a tokenizer
PREDICTIONS = {"rates": "two rates", "operators": "and operators", "matrices": "and own matrices' rate"}

# ---------------------------------------------------------------------------------------------------------- the prediction


def predict(config, prompt: int, new: int, rates: dict, number: int = 4, operators: dict | None = None) -> dict:
    """What the passes of a request will take, said before it runs: `prompt` tokens, `new` more, through chapter 10's loop.

    {flops, bytes, seconds, prefill_s, decode_s, limit, prefill_limit, decode_limit, rates}: the prefill makes logits at its last
    position only; the i-th decode step has prompt + i - 1 positions cached, and there are new - 1 of them, since the last token is
    never fed. Seconds are `pass_bound`'s, operation by operation. limit: what takes the larger part of the seconds, arithmetic or
    memory; None for decoding where there is none. rates: flop_per_s, bytes_per_s, and, where `operators` {"prefill", "decode"} of
    a pass are given, operator_s, which is then added for each of them. number: bytes of a number.
    Raises BadInput for less than a token of either, and like `operations`.
    """
    if new < 1:
        raise BadInput(f"{new} new tokens; give 1 or more")
    passes = {"prefill": [(prompt, 0)], "decode": [(1, prompt + i) for i in range(new - 1)]}
    flops = moved = 0
    parts = {name: {"arithmetic": 0.0, "memory": 0.0} for name in PASSES}
    for name, sizes in passes.items():
        for T, past in sizes:
            rows = operations(config, T, past, number=number)
            whole, bound = totals(rows, last_only=True, new=T), pass_bound(rows, rates, last_only=True, new=T)
            flops, moved = flops + whole["flops"], moved + whole["bytes"]
            for limit in parts[name]:
                parts[name][limit] += bound[f"{limit}_s"]
    extra = {name: len(passes[name]) * operators[name] * rates["operator_s"] if operators else 0.0 for name in PASSES}
    taken = {name: sum(parts[name].values()) + extra[name] for name in PASSES}
    both = {limit: sum(part[limit] for part in parts.values()) for limit in ("arithmetic", "memory")}
    return {
        **{"flops": round(flops), "bytes": round(moved), "seconds": sum(taken.values())},
        **{f"{name}_s": taken[name] for name in PASSES},
        "limit": max(both, key=both.get),
        **{f"{name}_limit": max(parts[name], key=parts[name].get) if passes[name] else None for name in PASSES},
        "rates": dict(rates),
    }


def known_before(model, runs=5, timer=time.perf_counter) -> dict:
    """What the predictions for a model need, measured without running a request: {"rates", "operators", "matrices_per_s"}.

    rates: of the machine, with an operator's cost, operator_s, in a narrow model of the family. operators: of the model's passes.
    matrices_per_s: bytes/s at which the model's matrices, one after the other, multiply a vector.
    """
    family = family_of(model.config)
    rates = {**machine_rates(timer=timer), "operator_s": operator_seconds((family,), timer=timer)[family]}
    alone, moved = products_alone(model)  # again and again, as the passes read them: a small model's stay in the cache
    with torch.inference_mode():
        seconds = in_turns({"alone": alone}, runs, timer)["alone"]
    return {"rates": rates, "operators": pass_operators(model), "matrices_per_s": moved / seconds}


def three(model, prompt, new, known) -> dict:
    """{name of PREDICTIONS: what `predict` says with it} of a request to the model."""
    about, rates = (model.config, prompt, new), known["rates"]
    own = rates | {"bytes_per_s": known["matrices_per_s"]}
    plain = {key: rates[key] for key in ("flop_per_s", "bytes_per_s")}
    number, operators = model.dtype.itemsize, known["operators"]
    return {
        "rates": predict(*about, plain, number),
        "operators": predict(*about, rates, number, operators),
        "matrices": predict(*about, own, number, operators),
    }


# ------------------------------------------------------------------------------------------------------------ the request


def request(model, ids, new, timer=time.perf_counter, progress=lambda: None):
    """(new ids, stages, seconds) of one greedy request through a new cache, for ids [1, T] and no end token: as many as asked."""
    watch = Stopwatch(timer)
    forward = Cached(model, capacity=ids.shape[1] + new - 1)
    passes, told = by_stage(forward, lambda *_: progress(), watch)
    made = generate(ids, model, new, end=None, forward=passes, on_token=told).sequence()
    return made, watch.stages, watch.seconds()


def measure_one(model, ids, new=TOKENS, file=None, timer=time.perf_counter, progress=lambda: None):
    """One request: predicted, then run once, then compared. file: where its record is appended, `predicted` in it."""
    check_request(model.config, ids.shape[1], new)
    said = three(model, ids.shape[1], new, known_before(model, timer=timer))
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    made, stages, seconds = request(model, ids, new, timer, progress)
    if file is not None:
        about = {"artefact": ran(model), "threads": torch.get_num_threads(), "dtype": model.dtype, "device": model.device}
        about |= {"settings": {"temperature": 0.0}, "predicted": {"at": at, **recorded(said)}}
        append(file, request_record("prediction.py", ids.shape[1], len(made), stages, seconds, **about))
    text = decode(made, model) if model.tokenizer else None
    return {"text": text, "prompt_tokens": ids.shape[1], "new_tokens": len(made), **compared(said, stages)}


def recorded(said):
    """The field `predicted` of a record: the first prediction whole, and of the others what they say of the seconds."""
    keys = ("seconds", "prefill_s", "decode_s")
    return said["rates"] | {f"with_{name}": {k: said[name][k] for k in (*keys, "rates")} for name in ("operators", "matrices")}


def compared(said, stages):
    """Counts and limits of a request, and `stages`: of each, and of both together, the milliseconds said and measured."""
    took = {name: sum(stages.get(name, [])) for name in PASSES}
    took["passes"] = sum(took.values())
    rows = []
    for name in (*PASSES, "passes"):
        key = "seconds" if name == "passes" else f"{name}_s"
        row = {"stage": name, "limit": said["rates"]["limit" if name == "passes" else f"{name}_limit"], "ms": 1e3 * took[name]}
        for which in PREDICTIONS:
            row |= {f"{which}_ms": 1e3 * said[which][key]}
            row |= {f"{which}_ratio": took[name] / said[which][key] if said[which][key] and took[name] else None}
        rows.append(row)
    first = said["rates"]
    return {"gflop": first["flops"] / 1e9, "gb": first["bytes"] / 1e9, "limit": first["limit"], "stages": rows}


def check_request(config, prompt, new):
    """Raise BadInput for a request that is longer than the model reaches."""
    if prompt + new - 1 > config.n_positions:
        room = f"{prompt} tokens of prompt and {new} new ones need {prompt + new - 1} positions"
        raise BadInput(f"{room}, and n_positions is {config.n_positions}; give fewer")


def measure(requests=REQUESTS, runs=RUNS, seed=0, timer=time.perf_counter, progress=lambda: None):
    """`requests`, a row for each (model, tokens of the prompt, new tokens): predicted, and measured, the medians of `runs` after a
    discarded one; and `errors`, a row for each prediction. left_out: models that are not installed here.

    All models are loaded and all predictions of a model are made before the first of its requests runs.
    """
    rows, machines, left_out = [], [], []
    for source in dict.fromkeys(model for model, _, _ in requests):
        if source == "smollm2" and not installed():
            left_out.append(source)
            continue
        model, own = load(source, seed=seed), [(p, n) for m, p, n in requests if m == source]
        for prompt, new in own:
            check_request(model.config, prompt, new)
        known = known_before(model, timer=timer)
        said = [three(model, prompt, new, known) for prompt, new in own]
        for (prompt, new), expected in zip(own, said, strict=True):
            ids, times = random_ids(model, prompt, seed=seed), {name: [] for name in PASSES}
            for _ in range(runs + 1):
                _, stages, _ = request(model, ids, new, timer)
                for name in PASSES:
                    times[name].append(sum(stages.get(name, [])))
                progress()
            middle = {name: [median_after(t)] for name, t in times.items()}
            rows.append({"model": source, "prompt_tokens": prompt, "new_tokens": new, **compared(expected, middle)})
        rates = {"gflop_per_s": known["rates"]["flop_per_s"] / 1e9, "gb_per_s": known["rates"]["bytes_per_s"] / 1e9}
        rates |= {"operator_us": 1e6 * known["rates"]["operator_s"], "matrices_gb_per_s": known["matrices_per_s"] / 1e9}
        machines.append({"model": source, **rates, **{f"{name}_operators": known["operators"][name] for name in PASSES}})
    if not rows:
        raise BadInput("no request can run here: smollm2 is not installed; `make real-model` installs it")
    errors = [{"prediction": which, **errors_of(rows, which)} for which in PREDICTIONS]
    medians = {f"{which}_median_error_percent": row["median_percent"] for which, row in zip(PREDICTIONS, errors, strict=True)}
    return {"runs": runs, "machines": machines, "requests": rows, "errors": errors, **medians, "left_out": left_out}


def installed():
    """Whether SmolLM2 is here."""
    try:
        return smollm2_file().is_file()
    except BadInput:
        return False


def errors_of(rows, which):
    """Of the requests `rows`, how far a prediction is from the measured time, in per cent of that: median and largest, of the
    passes together and of each stage."""
    found = {}
    for stage in ("passes", *PASSES):
        of = [s for r in rows for s in r["stages"] if s["stage"] == stage and s["ms"]]
        errors = [100 * abs(s[f"{which}_ms"] / s["ms"] - 1) for s in of]
        start = "" if stage == "passes" else f"{stage}_"
        found |= {f"{start}median_percent": statistics.median(errors) if errors else None}
        found |= {f"{start}largest_percent": max(errors, default=None)}
    return found


# ----------------------------------------------------------------------------------------------------- the tables, the figure


def _row(r, name):
    """Cells of one stage of a request."""
    s = next(s for s in r["stages"] if s["stage"] == name)
    ratios = (s[f"{which}_ratio"] for which in PREDICTIONS)
    return [s["limit"] or "", f"{s['rates_ms']:,.1f}", f"{s['ms']:,.1f}", *("" if x is None else f"x{x:.2f}" for x in ratios)]


HEADS = ["limit", "said, ms", "measured, ms", "over said", "+ operators", "+ matrices"]


def report_one(values):
    """Text of {"request": ...}."""
    v = values["request"]
    last = next(s for s in v["stages"] if s["stage"] == "passes")
    text = [f"the new text: {v['text']!r}"[:98], ""] if v["text"] is not None else []
    return "\n".join(
        [
            *text,
            f"{counted(v['prompt_tokens'], 'token')} of prompt, {v['new_tokens']} new; {v['gflop']:,.1f} GFLOP and "
            f"{v['gb']:,.1f} GB. Said before it ran, and measured over said:",
            "",
            table(["stage", *HEADS], [[s["stage"], *_row(v, s["stage"])] for s in v["stages"]]),
            "",
            f"{v['limit'].capitalize()} is the limit that the prediction names; the passes took {last['rates_ratio']:.2f} times "
            "what the two rates say.",
        ]
    )


def report(values):
    """Text of {"prediction": ...}."""
    v = values["prediction"]
    keys = ("gflop_per_s", "gb_per_s", "matrices_gb_per_s", "operator_us")
    machines = [
        [m["model"], *(f"{m[k]:,.1f}" for k in keys), f"{m['prefill_operators']:,}", f"{m['decode_operators']:,}"]
        for m in v["machines"]
    ]
    lines = [
        "Known before the requests: GFLOP/s and GB/s of the machine, GB/s of the model's own matrices, us of",
        "an operator, and operators of a prefill and of a decode step:",
        "",
        table(["model", "GFLOP/s", "GB/s", "matrices'", "operator", "prefill", "decode"], machines),
    ]
    for name in ("passes", *PASSES):
        rows = [[r["model"], f"{r['prompt_tokens']:,} + {r['new_tokens']}", *_row(r, name)] for r in v["requests"]]
        lines += ["", f"{'All passes' if name == 'passes' else name.capitalize()}, and measured over said by each prediction:", ""]
        lines += [table(["model", "tokens", *HEADS], rows)]
    keys = [f"{start}{kind}_percent" for start in ("", "prefill_", "decode_") for kind in ("median", "largest")]
    errors = [[PREDICTIONS[e["prediction"]], *("" if e[k] is None else f"{e[k]:,.0f}%" for k in keys)] for e in v["errors"]]
    first, second, third = (v[f"{which}_median_error_percent"] for which in PREDICTIONS)
    if v["left_out"]:
        lines += ["", "smollm2 is not installed, and its requests are left out; `make real-model` installs it."]
    return "\n".join(
        [
            *lines,
            "",
            f"How far from the measured time, in per cent of it; medians of {counted(v['runs'], 'run')}:",
            "",
            table(["prediction", "median", "largest", "prefill", "largest", "decode", "largest"], errors),
            "",
            f"The median error over {counted(len(v['requests']), 'request')} is {first:.0f} per cent from two rates, "
            f"{second:.0f} with operators,\nand {third:.0f} with the rate of the model's own matrices.",
        ]
    )


def draw(values, path):
    """Measured against predicted seconds of each request's passes, by two rates and with all that is known, and the diagonal."""
    figure, axes = new_figure()
    models, ends = list(dict.fromkeys(r["model"] for r in values["requests"])), []
    for i, model in enumerate(models):
        of = [s for r in values["requests"] if r["model"] == model for s in r["stages"] if s["stage"] == "passes"]
        look = {"linestyle": "none", "marker": MARKERS[i], "color": COLOURS[i], "markersize": 7}
        for which, fill in (("rates", "none"), ("matrices", "full")):
            said, took = [s[f"{which}_ms"] / 1e3 for s in of], [s["ms"] / 1e3 for s in of]
            label = f"{model}, {'two rates' if which == 'rates' else 'operators and own rate'}"
            axes.loglog(said, took, fillstyle=fill, label=label, **look)
            ends += [*said, *took]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    axes.plot([low, high], [low, high], color=BLACK, linewidth=0.8)
    axes.set(xlabel="predicted seconds", ylabel="measured seconds", title="Requests, predicted and measured")
    axes.legend(frameon=False)
    plain_ticks(axes.xaxis, axes.yaxis)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.prediction",
        "timing",
        "A request's time, predicted from its config and two rates of the machine, is off by less than half in the median of ten, "
        "and by less when operators and the matrices' own rate are known.",
        "One thread of one processor, float32, batch 1, three models, random prompts; loading, sampling and text are left out.",
        measure,
        headline=("rates_median_error_percent", "f0"),
        model="embedded, SmolLM2 and random:gpt2",
        loads=False,
        movable=False,
        seconds=120,
        figures={"prediction.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="prediction.py", description=__doc__, keys=__file__)
    parser.add_argument("--model", default=None, metavar="SOURCE", help="run one request to it; by default the ten requests")
    parser.add_argument(
        "--tokens", type=whole_number(1), default=None, metavar="N", help=f"new tokens of the one request, by default {TOKENS}"
    )
    about = "append chapter 1's record of the one request; examples/ch01/request.py show FILE shows it"
    parser.add_argument("--record", type=Path, default=None, metavar="FILE", help=about)
    about = "in place of the ten, requests as MODEL:PROMPT_TOKENS:NEW_TOKENS"
    parser.add_argument("--requests", type=_requests, default=None, metavar="R,R", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="of each of the ten, after a discarded one")
    return parser.add("prompt", "threads", "seed", "plot", "json")


def _requests(text):
    """An argparse type: embedded:8:40,random:gpt2:16:24."""
    found = []
    for part in text.split(","):
        words = part.rsplit(":", 2)
        if len(words) < 3 or not words[0]:
            raise argparse.ArgumentTypeError(f"{part!r} is no MODEL:PROMPT_TOKENS:NEW_TOKENS")
        found.append((words[0], *(whole_number(1)(word) for word in words[1:])))
    return found


@command
def main(argv=None):
    """Predict one request and run it, or ten."""
    args = options().parse_args(argv)
    check_target(args.plot)
    check_file(args.record)
    one = any(getattr(args, name) is not None for name in ("model", "prompt", "tokens", "record"))
    if one and (args.plot or args.requests):
        raise BadInput(
            "--plot and --requests are of several requests, --model, --prompt, --tokens and --record of one; give either"
        )
    head = f"float32, {counted(args.threads, 'thread')}, torch {torch.__version__}\n"
    if one:
        args.model, args.tokens = "embedded" if args.model is None else args.model, args.tokens or TOKENS
        model = load_for(args)
        if args.prompt is None and model.tokenizer is None:
            ids = random_ids(model, min(PROMPT_TOKENS, model.config.n_positions), seed=args.seed)  # [1, T]
        else:
            ids = encode(PROMPT if args.prompt is None else args.prompt, model)  # [1, T]
        with progress_bar("token", args.tokens) as bar:
            values = {"request": measure_one(model, ids, args.tokens, args.record, progress=bar.update)}
        answer(args, values, lambda values: f"{args.model}: {head}" + report_one(values))
        return
    torch.set_num_threads(args.threads)
    requests = args.requests or REQUESTS
    with progress_bar("request", len(requests) * (args.runs + 1)) as bar:
        values = {"prediction": measure(requests, args.runs, args.seed, progress=bar.update)}
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["prediction"], path))


if __name__ == "__main__":
    sys.exit(main())
