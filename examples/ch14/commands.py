"""The command of `llama_from_scratch.py`: agreement with transformers, measured and printed."""

import json

import torch

from examples.ch01.command import Parser, dump_json, table, whole_number
from examples.ch02.artefact import load, require
from examples.ch03.tokens import decode, encode
from examples.ch04 import experiments as ch04
from examples.ch05.experiments import library_greedy
from examples.ch05.generate import generate
from examples.ch14.library import library_model, library_trace
from examples.ch14.llama_from_scratch import Cached

PROMPT = "The capital of France is"
LONG = 2048  # tokens of the longest comparison, where the model takes as many
BAR = 1e-4  # of the largest logit


def run(argv):
    """Parse `argv`, run the command it names (`compare` when it names none), print tables or JSON."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    value, text = args.command(args)
    print(dump_json(value) if args.json else text + "\n", end="")


def options():
    """The script's argument parser, one sub-parser for each command."""
    parser = Parser(prog="llama_from_scratch.py", description="Llama by hand.", default_command="compare")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    summary = "agreement with transformers: prompts, edges, layer by layer, greedy tokens"
    sub = commands.add_parser("compare", help=summary, description=summary).add("model", "threads", "seed", "json")
    sub.set_defaults(command=compare, model="smollm2")
    sub.add_argument("--prompt", default=PROMPT, help="the text to compare layer by layer and to go on from")
    sub.add_argument("--tokens", type=whole_number(1), default=40, metavar="N", help="greedy tokens to compare")
    return parser


def compare(args):
    """The agreement of one model with transformers, which reads a GGUF file by itself."""
    model = load(args.model, seed=args.seed)
    require(model.config, "llama", "chapter 14's script")
    library = library_model(model)
    prompts = ch04.compare_prompts(model, library) if model.tokenizer else []
    full = min(LONG, model.config.n_positions)
    edges = []
    for batch, tokens in sorted({(1, 1), (1, min(2, full)), (4, min(64, full)), (1, full)}):
        ids = ch04.random_ids(model, tokens, batch, args.seed)
        with torch.no_grad():
            edges.append(ch04.agreement(ch04.run(model, ids), library(ids, use_cache=False).logits))
    ids = encode(args.prompt, model.tokenizer) if model.tokenizer else ch04.random_ids(model, min(5, full), seed=args.seed)
    layers = ch04.compare_layers(model, library, ids, library_trace)
    new = min(args.tokens, model.config.n_positions - ids.shape[1] + 1)
    cached = Cached(model, capacity=ids.shape[1] + new - 1)  # the last token is never fed
    ours = generate(ids, model, new, end=None, forward=cached).row()
    theirs = library_greedy(library, ids, new)
    rows = prompts + edges
    worst = ch04.worst(r["relative_difference"] for r in rows)
    same, positions = sum(r["same_argmax"] for r in rows), sum(r["positions"] for r in rows)
    greedy = sum(a == b for a, b in zip(ours, theirs, strict=True))
    value = {"model": args.model, "threads": args.threads, "parameters": model.manifest["parameters"], "bar": BAR}
    value |= {"prompts": prompts, "edges": edges, "layers": layers, "worst": worst, "same_argmax": same, "positions": positions}
    value |= {"greedy": ours, "greedy_tokens": new, "greedy_same": greedy, "within": worst <= BAR and same == positions}

    def row(first, r):
        numbers = [f"{r['largest_difference']:.1e}", f"{r['largest_logit']:.2f}", f"{r['relative_difference']:.1e}"]
        return [first, f"{r['batch']} x {r['tokens']:,}", *numbers, f"{r['same_argmax']:,} of {r['positions']:,}"]

    shown = [row(json.dumps(r["text"]), r) for r in prompts] + [row("random ids", r) for r in edges]
    points = {}
    for r in layers:
        points.setdefault(r["point"], []).append(r["largest_difference"] / r["largest_value"])
    by_point = [[point, len(x), f"{ch04.worst(x):.1e}"] for point, x in points.items()]
    heads = ["text", "batch x tokens", "largest difference", "largest logit", "difference / logit", "same argmax"]
    text = decode(ours, model.tokenizer) if model.tokenizer else str(ours)
    lines = [
        f"{args.model}: a Llama of {model.config.n_layer} layers, width {model.config.n_embd}, {model.config.n_head} heads with "
        f"{model.config.kv_heads} of keys and values, {value['parameters']:,} parameters; beside transformers, eager, float32",
        "",
        table(heads, shown),
        "",
        table(["point of the pass", "tensors", "difference / value"], by_point),
        "",
        f"{'Within' if value['within'] else 'OUTSIDE'} the bar of {BAR:g} of the largest logit with the same argmax: {worst:.1e}, "
        f"{same:,} of {positions:,} positions.",
        f"Greedy with our cache, {greedy} of {new} tokens as transformers': {json.dumps(text)}",
    ]
    return value, "\n".join(lines)
