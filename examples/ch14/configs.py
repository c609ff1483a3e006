"""Chapter 14: what any config costs, from its numbers alone.

    python examples/ch14/configs.py                                    # the table: parameters, FLOPs, cache, memory
    python examples/ch14/configs.py trace llama-3-8b --context 2000    # one decode step, operation by operation
    python examples/ch14/configs.py measure --model smollm2            # a measured step beside what the trace says

The published configurations stand in `configs.json`; a folder or a `config.json` of any family of `variants` works as well.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import argparse
import math

import torch

from examples.ch02.layout import is_buffer, weight_shapes
from examples.ch02.model import check_finite, load, require
from examples.ch10.kv_cache import cache_bytes
from examples.ch14 import family_agreement as ex
from examples.ch14 import serving
from examples.ch14.costs import flops_per_token, kv_bytes_per_token, parameter_count
from examples.lab.script import BadInput, Parser, command, number_list, show, table, whole_number

MOST = 10**9  # of sequences and positions
CONFIG = "a model of the table, embedded, a folder, or a config.json"


def options():
    """The script's argument parser, one sub-parser for each command."""
    parser = Parser(
        prog="configs.py",
        description="What a config costs. Without a command: the table, whose options `table --help` lists.",
        default_command="table",
    )

    def add(name, function, summary, *shared):
        return parser.add_command(name, function, summary, *shared, "json")

    def served(sub, batch, tokens, about="positions of each sequence"):
        sub.add_argument("--batch", type=whole_number(1, MOST), default=batch, metavar="B", help="sequences at once")
        sub.add_argument("--context", type=whole_number(1, MOST), default=tokens, metavar="N", help=about)
        sub.add_argument("--bytes", type=whole_number(1, 8), default=2, metavar="N", help="bytes a number")
        return sub

    sub = served(add("table", costs, "what models take to serve, the cheapest to hold first"), 32, 8192)
    sub.add_argument("configs", nargs="*", metavar="CONFIG", help=f"{CONFIG}; by default all that are kept here")
    about = "positions of each sequence; by default 2,000 or as many as the config has"
    sub = served(add("count", count, "parameters by component, FLOPs and cache of one config"), 1, None, about)
    sub.add_argument("config", metavar="CONFIG", help=CONFIG)
    sub = served(add("trace", trace, "one decode step, operation by operation"), 1, 2000)
    sub.add_argument("config", metavar="CONFIG", help=CONFIG)
    sub.add_argument("--tflops", type=_positive, default=serving.PEAK / 1e12, metavar="X", help="10^12 FLOP/s of the machine")
    sub.add_argument("--tbps", type=_positive, default=serving.BANDWIDTH / 1e12, metavar="X", help="10^12 bytes/s of its memory")
    sub = add("window", window, "the cache of one request with and without the config's window")
    sub.add_argument("--tokens", type=whole_number(1, MOST), default=32768, metavar="N", help="positions of the request")
    sub.add_argument("--bytes", type=whole_number(1, 8), default=2, metavar="N", help="bytes a number")
    sub = add("measure", measure, "a Llama's decode step, measured, beside what the trace says", "model", "threads")
    sub.set_defaults(model="smollm2")
    sub.add_argument("--contexts", type=number_list(1), default=[16, 512, 2000], metavar="N,N", help="positions cached")
    sub.add_argument("--batch", type=whole_number(1, 10**4), default=1, metavar="B", help="sequences at once")
    return parser


def _positive(text):
    """An argparse type: a number from 1e-6 to 1e9."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-6 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1e-6 to 1e9")
    return value


def costs(args):
    rows = serving.serving_table(args.configs, args.context, args.batch, args.bytes)
    shown = [
        [
            r["model"],
            f"{r['parameters'] / 1e9:,.3f}",
            f"{r['active'] / 1e9:,.3f}",
            f"{r['flops_per_token'] / 1e9:,.2f}",
            f"{r['kv_bytes_per_token'] / 1024:,.1f}",
            f"{r['context']:,}",
            *(f"{r[k] / 1e9:,.1f}" for k in ("weight_bytes", "cache_bytes", "memory_bytes")),
            f"{r['step_bytes_per_token'] / 1e6:,.0f}",
        ]
        for r in rows
    ]
    heads = ["model", "params, 10^9", "active", "GFLOP a token", "KiB a token", "context"]
    heads += ["weights, GB", "cache, GB", "both, GB", "MB read a token"]
    value = {"batch": args.batch, "context": args.context, "bytes_per_number": args.bytes, "models": rows}
    head = f"{args.batch} sequences of {args.context:,} positions, or as many as a model has; "
    head += f"{args.bytes} bytes a number; MLA absorbed"
    whole = [r for r in rows if r["context"] == args.context]
    text = [head, "", table(heads, shown)]
    if whole:
        small = min(whole, key=lambda r: r["parameters"])
        value |= {"cheapest_to_hold": whole[0]["model"], "smallest": small["model"]}
        value["cheapest_to_read"] = min(whole, key=lambda r: r["step_bytes_per_token"])["model"]
        same = "which is also the smallest" if small is whole[0] else f"and the smallest is {small['model']}"
        text += ["", f"Of those that reach {args.context:,} positions the cheapest to hold is {whole[0]['model']}, {same}."]
    return value, "\n".join(text)


def count(args):
    config = serving.config_named(args.config)
    parts, active = parameter_count(config), parameter_count(config, active=True)
    counted = sum(math.prod(shape) for name, shape in weight_shapes(config).items() if not is_buffer(name))
    if counted != parts["total"]:  # two derivations, one number
        raise AssertionError(f"the formula counts {parts['total']:,} and the tensor table {counted:,}")
    context = min(2000, config.n_positions) if args.context is None else args.context
    flops = flops_per_token(config, context)
    value = {
        **{"config": args.config, "parameters": parts, "active": active, "context": context, "flops_per_token": flops},
        "kv_bytes_per_token": kv_bytes_per_token(config, args.bytes),
        "cache_bytes": cache_bytes(config, context, args.batch, args.bytes),
    }
    rows = [[name.replace("_", " "), f"{n:,}", f"{active[name]:,}"] for name, n in parts.items()]
    work = [[name.replace("_", " "), f"{n:,}"] for name, n in flops.items()]
    text = [
        f"{args.config}, model_type {config.model_type}: the closed formula and the table of tensors give the same total",
        "",
        table(["component", "parameters", "of these active"], rows),
        "",
        table([f"FLOPs of one token at context {context:,}", "FLOPs"], work),
        "",
        f"Cache: {value['kv_bytes_per_token']:,} bytes a token; {value['cache_bytes']:,} for {args.batch} x {context:,}.",
    ]
    if config.latent:
        expanded = flops_per_token(config, context, "expanded")["total"], kv_bytes_per_token(config, args.bytes, "expanded")
        value |= dict(zip(("flops_expanded", "kv_bytes_per_token_expanded"), expanded, strict=True))
        text += [f"Latent attention absorbed; expanded it is {expanded[0]:,} FLOPs and {expanded[1]:,} bytes a token."]
    return value, "\n".join(text)


def trace(args):
    config = serving.config_named(args.config)
    step = serving.decode_step(config, args.context, args.batch, args.bytes)
    times = serving.step_times(step, args.tflops * 1e12, args.tbps * 1e12)
    keys = ("weight_bytes", "cache_bytes", "written_bytes", "activation_bytes")

    def numbers(r):
        return [f"{r['flops'] / 1e6:,.1f}" if r["flops"] else "", *(f"{r[k] / 1e6:,.2f}" if r[k] else "" for k in keys)]

    rows = [[r["operation"], r["times"], *numbers(r)] for r in step["operations"]] + [["total", "", *numbers(step)]]
    heads = ["operation", "times", "MFLOP", "weights, MB", "cache read, MB", "written, MB", "activations, MB"]
    text = [
        f"{args.config}: one new token for each of {args.batch} sequences with {args.context:,} cached, "
        f"{args.bytes} bytes a number",
        "",
        table(heads, rows),
        "",
        f"{step['flops'] / 1e9:,.2f} GFLOP at {args.tflops:g} TFLOP/s: {1e3 * times['compute_s']:.3f} ms. "
        f"{step['bytes'] / 1e9:,.2f} GB (weights {step['weight_bytes'] / 1e9:,.2f}, cache {step['cache_bytes'] / 1e9:,.2f}) at "
        f"{args.tbps:g} TB/s: {1e3 * times['memory_s']:.3f} ms.",
        f"Bound by {times['bound']}, {times['ratio']:,.0f} to 1; at best {times['tokens_per_s']:,.0f} tokens/s over all sequences.",
    ]
    if args.context + 1 > config.n_positions:
        text.append(f"Note: {args.config} was made for {config.n_positions:,} positions; this is what more would cost.")
    return {"config": args.config, **step, **times}, "\n".join(text)


def window(args):
    rows = serving.window_rows(tokens=args.tokens, bytes_per_number=args.bytes)
    shown = [
        [
            r["model"],
            f"{r['window']:,}",
            f"{r['layers_with_window']} of {r['layers']}",
            *(f"{r[k] / 2**20:,.0f}" for k in ("full_bytes", "windowed_bytes")),
            f"{r['times_as_many']:.2f}",
        ]
        for r in rows
    ]
    heads = ["model", "window", "layers with it", "cache without, MiB", "cache with, MiB", "times as many requests fit"]
    text = f"One request of {args.tokens:,} positions\n\n" + table(heads, shown)
    short = [r["model"] for r in rows if r["made_for"] < args.tokens]
    if short:
        text += f"\n\nNote: {', '.join(short)} was made for fewer positions; this is what more would take."
    return {"requests": rows}, text


def measure(args):
    model = load(args.model)
    require(model.config, "llama", "a measured decode step here")
    check_finite(model, args.model)
    torch.set_num_threads(args.threads)
    over = [n for n in args.contexts if n + 1 > model.config.n_positions]
    if over:
        raise BadInput(f"{over[0]} cached positions and a new one are more than n_positions {model.config.n_positions}; give fewer")
    found = ex.decode_beside_trace(model, args.contexts, args.batch)
    keys = ("mflop", "mb", "compute_ms", "memory_ms", "measured_ms", "measured_over_said")
    rows = [[f"{r['context']:,}", *(f"{r[k]:,.2f}" for k in keys)] for r in found["steps"]]
    heads = ["cached positions", "MFLOP", "MB", "compute, ms", "memory, ms", "measured, ms", "measured / larger"]
    threads = "1 thread" if args.threads == 1 else f"{args.threads} threads"
    head = (
        f"{args.model}, float32, {threads}, {args.batch} at once; this machine: {found['gflop_per_s']:.0f} GFLOP/s in a square "
        f"product, {found['gb_per_s']:.1f} GB/s in a matrix times a vector"
    )
    return {"model": args.model, "threads": args.threads, **found}, head + "\n\n" + table(heads, rows)


@command
def main(argv=None):
    """Run one of the script's commands; `table` when none is named."""
    args = options().parse_args(argv)
    show(args)


if __name__ == "__main__":
    sys.exit(main())
