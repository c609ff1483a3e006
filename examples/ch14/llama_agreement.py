"""The command of `llama_from_scratch.py`: agreement with transformers, measured and printed."""

import json

import torch

from examples.ch02.model import check_finite, load, require
from examples.ch03.tokens import decode
from examples.ch14 import family_agreement as ex
from examples.lab.script import Parser, progress_bar, show, table, whole_number


def run(argv):
    """Parse `argv`, run the command it names (`compare` when it names none), print tables or JSON."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    show(args)


def options():
    """The script's argument parser, one sub-parser for each command."""
    parser = Parser(prog="llama_from_scratch.py", description="Llama by hand.", default_command="compare")
    summary = "agreement with transformers: prompts, edges, layer by layer, greedy tokens"
    sub = parser.add_command("compare", compare, summary, "model", "threads", "seed", "json")
    sub.set_defaults(model="smollm2")
    sub.add_argument("--prompt", default=ex.PROMPT, help="the text to compare layer by layer and to go on from")
    sub.add_argument("--tokens", type=whole_number(1), default=40, metavar="N", help="greedy tokens to compare")
    return parser


def compare(args):
    """The agreement of one model with transformers, which reads a GGUF file by itself."""
    model = load(args.model, seed=args.seed)
    require(model.config, "llama", "chapter 14's script")
    check_finite(model, args.model)
    with progress_bar("comparison") as bar:
        found = ex.llama_agreement(model, args.prompt, args.tokens, args.seed, bar.update)
    value = {"model": args.model, "threads": args.threads, "parameters": model.manifest["parameters"], "bar": ex.BAR, **found}
    prompts, edges, layers, worst = (found[key] for key in ("prompts", "edges", "layers", "worst"))

    def row(first, r):
        numbers = [f"{r['largest_difference']:.1e}", f"{r['largest_logit']:.2f}", f"{r['relative_difference']:.1e}"]
        return [first, f"{r['batch']} x {r['tokens']:,}", *numbers, f"{r['same_argmax']:,} of {r['positions']:,}"]

    shown = [row(json.dumps(r["text"]), r) for r in prompts] + [row("random ids", r) for r in edges]
    points = {}
    for r in layers:
        points.setdefault(r["point"], []).append(r["largest_difference"] / (r["largest_value"] or 1))
    by_point = [[point, len(x), f"{worst(x):.1e}"] for point, x in points.items()]
    heads = ["text", "batch x tokens", "largest difference", "largest logit", "difference / logit", "same argmax"]
    text = decode(found["greedy"], model) if model.tokenizer else str(found["greedy"])
    lines = [
        f"{args.model}: a Llama of {model.config.n_layer} layers, width {model.config.n_embd}, {model.config.n_head} heads with "
        f"{model.config.kv_heads} of keys and values, {value['parameters']:,} parameters; beside transformers, eager, float32",
        "",
        table(heads, shown),
        "",
        table(["point of the pass", "tensors", "difference / value"], by_point),
        "",
        f"{'Within' if found['within'] else 'OUTSIDE'} the bar, {ex.BAR:g} of the largest logit and the same argmax: {worst:.1e}, "
        f"{found['same_argmax']:,} of {found['positions']:,} positions.",
        f"Greedy with our cache, {found['greedy_same']} of {found['greedy_tokens']} tokens as transformers': {json.dumps(text)}",
    ]
    return value, "\n".join(lines)
