"""Chapter 11: self-speculation, what a draft from the text itself is worth: tokens per pass on four kinds of text, and the speed.

    python examples/ch11/speculation.py                     # SmolLM2 where it is installed, else the embedded model
    python examples/ch11/speculation.py --time              # predicted by the roofline, then measured
    python examples/ch11/speculation.py --time --four-bits  # on the file's own four bits, compiled
    python examples/ch11/speculation.py --time --dtype bfloat16 --draft 5

A pass of a few positions reads the weights once, as a pass of one does. So tokens are drafted from the text so far, as what
followed its last words when they stood there before, and one pass says which of them greedy decoding chooses. The text is the same.
"""

import functools
import sys
import textwrap
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for
from examples.ch03.tokens import decode, encode
from examples.ch05.generate import generate
from examples.ch10.kv_cache import Cached
from examples.ch11.drafts import DRAFT, LONGEST, replay, speculate
from examples.ch11.fast_decode import FastDecode
from examples.ch11.faster_paths import default_model
from examples.ch11.machine import machine_rates
from examples.ch11.operations import operations, pass_bound
from examples.ch11.paths import CachedStep
from examples.ch11.q4_weights import pack
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_figure, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, progress_bar, table, whole_number
from examples.lab.timing import in_turns

PASSAGE = (
    "The ferry leaves the north bank at seven in the morning, when the market opens. It carries twelve people, or eight people and "
    "four sheep, or one cart with its horse. Whoever comes late rings the small brass bell on the far bank, and the ferryman turns "
    "round. In winter, when the river is high, he waits until the branches have gone by, and nobody has ever heard him say why."
)
PROMPTS = {
    "a copy": f"Write this text a second time, word for word.\n\nFirst time:\n{PASSAGE}\n\nSecond time:\n",
    "a story": "Once upon a time, an old ferryman lived beside a wide river with his dog.",
    "code": (
        'class Stack:\n    """A stack of items."""\n\n    def __init__(self):\n        self.items = []\n\n'
        "    def push(self, item):\n"
    ),
    "a cycle": "It was late in the evening when Anna came home and found a letter on the kitchen table.",
}
TOKENS, DRAFTS, RUNS = 80, 6, 3


def prompts(model, tokens, prompt=None):
    """{kind: ids [1, T]} of PROMPTS, or of one text; a prompt of ours that leaves no room for `tokens` new ones loses its start."""
    room = model.config.n_positions - tokens + 1
    if room < 1:
        raise BadInput(f"{tokens} new tokens need {tokens} positions, and n_positions is {model.config.n_positions}; ask for fewer")
    if prompt is not None:
        return {"the prompt": encode(prompt, model)}
    return {kind: encode(text, model)[:, -room:] for kind, text in PROMPTS.items()}


def measure(model, tokens=TOKENS, draft=DRAFT, prompt=None, progress=lambda: None):
    """{tokens, draft, longest, kinds}: what plain greedy decoding writes behind each prompt, and how many passes drafts would need.

    Of a kind: {kind, prompt_tokens, new_tokens, text, same, by_draft}; by_draft has a row for drafts of 0 to DRAFTS tokens,
    replayed on the text. same: whether `speculate` with drafts of `draft` wrote the same tokens, in the passes of the replay.
    """
    rows = []
    for kind, ids in prompts(model, tokens, prompt).items():
        made = generate(ids, model, tokens, forward=Cached(model, capacity=ids.shape[1] + tokens - 1)).sequence()
        found, said = speculate(ids, model, tokens, draft), replay(ids[0].tolist(), made, tokens, draft)
        same = found.ids == made and (found.drafted, found.accepted) == (said.drafted, said.accepted)
        by_draft = []
        for n in range(DRAFTS + 1):
            r = replay(ids[0].tolist(), made, tokens, n)
            counts = {"passes": r.passes, "drafted": sum(r.drafted), "accepted": sum(r.accepted)}
            by_draft.append({"draft_tokens": n, **counts, "tokens_per_pass": r.tokens_per_pass})
        about = {"kind": kind, "prompt_tokens": ids.shape[1], "new_tokens": len(made), "text": decode(made, model)}
        rows.append({**about, "same": same, "by_draft": by_draft})
        progress()
    return {"tokens": tokens, "draft": draft, "longest": LONGEST, "kinds": rows}


def predicted(model, prompt_tokens, drafted, accepted, rates, weight=None):
    """Seconds of the passes that feed one token and so many drafted ones each, by the roofline; of a draft 0 the plain steps.

    weight: bytes of a stored weight, where that is not a number of the computation.
    """
    seconds, past = 0.0, prompt_tokens - 1
    for d, a in zip(drafted, accepted, strict=True):
        rows = operations(model.config, 1 + d, past, number=model.dtype.itemsize, weight=weight)
        seconds += pass_bound(rows, rates)["seconds"]
        past += 1 + a
    return seconds


def measure_speed(
    model, tokens=TOKENS, draft=DRAFT, runs=RUNS, prompt=None, four_bits=False, timer=time.perf_counter, progress=lambda: None
):
    """Decoding with drafts beside decoding without, predicted and measured: {tokens, draft, runs, pass_ms, wide_pass_ms,
    predicted_pass_ratio, kinds}.

    Predicted first: the roofline of each pass that the replayed text needs, over that of its plain steps. Then both are run, in
    turns, behind a prompt that is held but for its last token. pass_ms, wide_pass_ms: of a pass of one position and of 1 + `draft`;
    predicted_pass_ratio: the second over the first by the roofline.
    four_bits: on the compiled step of `fast_decode.py`, which has a kernel for a few positions; raises BadInput like it.
    from_passes: the speed that those two times and the replay give. Of a kind: {kind, same, tokens_per_pass,
    predicted_times_as_fast, from_passes_times_as_fast, times_as_fast, plain_per_s, with_drafts_per_s}.
    """
    rates, kinds = machine_rates(runs, timer=timer), prompts(model, tokens, prompt)
    packed = pack(model) if four_bits else None
    weight = packed.nbytes / sum(w.numel() for w in model.weights.values()) if four_bits else None

    def new_step(capacity):
        return FastDecode(model, capacity, packed) if four_bits else CachedStep(model, capacity)

    steps, said, expected = {}, {}, {}
    for kind, ids in kinds.items():
        made = speculate(ids, model, tokens, 0, step=(step := new_step(ids.shape[1] + tokens - 1)))
        one, several = (replay(ids[0].tolist(), made.ids, tokens, n) for n in (0, draft))
        steps[kind], said[kind] = step, several
        plain = predicted(model, ids.shape[1], one.drafted, one.accepted, rates, weight)
        expected[kind] = plain / predicted(model, ids.shape[1], several.drafted, several.accepted, rates, weight)
        progress()
    ids, step = next((ids, steps[kind]) for kind, ids in kinds.items())
    widths = {n: ids[0, :1].repeat(n) for n in (1, 1 + draft)}

    def one_pass(n):
        step.truncate(ids.shape[1] - 1)
        step.step(widths[n])

    passes = in_turns({n: (lambda n=n: one_pass(n)) for n in widths}, 3 * runs, timer)
    rows = []
    for kind, ids in kinds.items():
        texts = {}

        def text(n, ids=ids, step=steps[kind], texts=texts):
            step.truncate(ids.shape[1] - 1)
            texts[n] = speculate(ids, model, tokens, n, step=step)
            progress()

        seconds = in_turns({n: (lambda n=n: text(n)) for n in (0, draft)}, runs, timer)
        r, new = said[kind], len(texts[0].ids)
        own = sum(passes[1] if d == 0 else passes[1] + (passes[1 + draft] - passes[1]) * d / draft for d in r.drafted)
        rows.append(
            {
                **{"kind": kind, "same": texts[0].ids == texts[draft].ids, "tokens_per_pass": r.tokens_per_pass},
                **{"predicted_times_as_fast": expected[kind], "from_passes_times_as_fast": new * passes[1] / own},
                **{"times_as_fast": seconds[0] / seconds[draft], "plain_per_s": new / seconds[0]},
                "with_drafts_per_s": new / seconds[draft],
            }
        )
    held = next(iter(kinds.values())).shape[1]
    one, wide = (predicted(model, held, [d], [0], rates, weight) for d in (0, draft))
    about = {"tokens": tokens, "draft": draft, "runs": runs, "pass_ms": 1e3 * passes[1], "wide_pass_ms": 1e3 * passes[1 + draft]}
    return about | {"predicted_pass_ratio": wide / one, "kinds": rows}


def report(values):
    """Text of {"speculation": ..., "speed": ...}, the second where it was measured."""
    v, n = values["speculation"], values["speculation"]["draft"]
    rows, other = [], [r["kind"] for r in v["kinds"] if not r["same"]]
    for r in v["kinds"]:
        at = r["by_draft"][min(n, DRAFTS)]
        share = f"{at['accepted'] / at['drafted']:.0%}" if at["drafted"] else "n/a"
        rows.append([r["kind"], r["new_tokens"], *(f"{x['tokens_per_pass']:.2f}" for x in r["by_draft"]), share])
    best, least = (f(v["kinds"], key=lambda r: r["by_draft"][min(n, DRAFTS)]["tokens_per_pass"]) for f in (max, min))
    ends = [
        f"{r['kind']}, {r['by_draft'][min(n, DRAFTS)]['tokens_per_pass']:.2f} tokens per pass with drafts of {min(n, DRAFTS)}"
        for r in (best, least)
    ]
    same = f"all but {', '.join(other)}" if other else "all"
    lines = [
        "Tokens per pass by the tokens of a draft, and of those of the chosen length the share that stood:",
        "",
        table(["text", "tokens", *map(str, range(DRAFTS + 1)), "stood"], rows),
        "",
        textwrap.fill(f"The plain loop's tokens, with drafts of {n}, in the passes that the replay says: {same}.", 98),
    ]
    if "speed" in values:
        lines += ["", *speed_lines(values["speed"])]
    else:
        lines += ["--time says what that is worth here."]
    end = f"A draft from the text itself is worth most where the text repeats itself: {ends[0]}."
    lines += [textwrap.fill(end if best is least else f"{end[:-1]}, against {ends[1]}.", 98)]
    return "\n".join(lines)


def speed_lines(v):
    """The lines of `measure_speed`."""
    rows = [
        [r["kind"], f"{r['tokens_per_pass']:.2f}", f"{r['predicted_times_as_fast']:.2f}", f"{r['from_passes_times_as_fast']:.2f}"]
        + [f"{r['times_as_fast']:.2f}", f"{r['plain_per_s']:.1f}", f"{r['with_drafts_per_s']:.1f}", "yes" if r["same"] else "no"]
        for r in v["kinds"]
    ]
    wide = v["wide_pass_ms"] / v["pass_ms"]
    said = (
        f"A pass of {counted(1 + v['draft'], 'position')} takes {v['wide_pass_ms']:.1f} ms, {wide:.2f} times one of one position "
        f"({v['pass_ms']:.1f} ms), where the roofline has {v['predicted_pass_ratio']:.2f}; medians of {counted(v['runs'], 'run')} "
        "in turn. The column by passes has the speed that the two measured times leave of the tokens per pass."
    )
    heads = ["text", "per pass", "roofline", "by passes", "measured", "plain/s", "drafts/s", "same"]
    return [table(heads, rows), "", textwrap.fill(said, 98), ""]


def draw(values, path):
    """Tokens per pass by the length of the draft, a line for each kind of text."""
    figure, axes = new_figure()
    for i, r in enumerate(values["kinds"]):
        at = [x["draft_tokens"] for x in r["by_draft"]]
        axes.plot(at, [x["tokens_per_pass"] for x in r["by_draft"]], label=r["kind"], **style(i))
    axes.plot(at, [n + 1 for n in at], label="every draft stands", color="#777777", linewidth=0.8)
    axes.set(title="Tokens per pass", xlabel="tokens of a draft", ylim=(0, None))
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch11.speculation",
        "observation",
        "Drafts from the text so far, verified by one pass, leave greedy text as it is; they save most passes where a text is "
        "copied, and few where a story is told.",
        "One small model, one prompt of each kind, 80 tokens; where two logits are equal to within rounding, the text may differ.",
        measure,
        model="smollm2",
        headline=("kinds[kind=a_copy].by_draft[draft_tokens=3].tokens_per_pass", "f2"),
        figures={"speculation.svg": draw},
        seconds=90,
    ),
    Experiment(
        "ch11.speculation-speed",
        "timing",
        "Drafts make decoding faster by less than the passes that they save: a pass of a few positions takes longer than one.",
        "One thread of one processor, float32, batch 1, torch's own products; other kernels for a few positions give other speeds.",
        measure_speed,
        model="smollm2",
        headline=("kinds[kind=a_copy].times_as_fast", "g2"),
        seconds=150,
    ),
    Experiment(
        "ch11.speculation-four-bits",
        "timing",
        "On the four-bit step drafts make a copy faster and a story slower: unpacking costs time for every position of a pass.",
        "One thread of one processor, batch 1, one kernel for one position and one for four.",
        functools.partial(measure_speed, four_bits=True),
        model="smollm2",
        movable=False,
        headline=("kinds[kind=a_copy].times_as_fast", "g2"),
        seconds=90,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="speculation.py", description=__doc__, keys=__file__)
    about = "a folder, a .gguf file or a hub id; by default smollm2, or embedded where that is not installed"
    parser.add_argument("--model", default=None, metavar="SOURCE", help=about)
    about = "one text to go on from, in place of the four"
    parser.add_argument("--prompt", default=None, metavar="TEXT", help=about)
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="new tokens at most")
    about = "tokens of a draft in the runs that are compared and timed"
    parser.add_argument("--draft", type=whole_number(1, 64), default=DRAFT, metavar="N", help=about)
    parser.add_argument("--time", action="store_true", help="measure the speed as well, after predicting it")
    about = "with --time: on the file's own four bits, compiled, as generate.py --fast"
    parser.add_argument("--four-bits", action="store_true", help=about)
    parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help="timed runs after a discarded one")
    return parser.add("dtype", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print tokens per pass, and with --time what they are worth."""
    args = options().parse_args(argv)
    check_target(args.plot)
    args.model = args.model or default_model()
    model = load_for(args)
    texts = len(prompts(model, args.tokens, args.prompt))  # raises before anything long
    with progress_bar("text", texts * (2 + 2 * (args.runs + 1) if args.time else 1)) as bar:
        values = {"speculation": measure(model, args.tokens, args.draft, args.prompt, bar.update)}
        if args.time:
            values["speed"] = measure_speed(
                model, args.tokens, args.draft, args.runs, args.prompt, args.four_bits, progress=bar.update
            )
    head = f"{args.model}: {args.dtype}, {counted(args.threads, 'thread')}, torch {torch.__version__}\n\n"
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["speculation"], path))


if __name__ == "__main__":
    sys.exit(main())
