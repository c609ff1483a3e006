"""The commands of `gpt2_from_scratch.py`: their options, and how each prints what `experiments` measures."""

import json
import math
from pathlib import Path

import torch

from examples.ch02.layout import tensor_shapes
from examples.ch02.model import load, load_config, require
from examples.ch03.tokens import PROMPTS, decode, default_ids, encode, prompt_batches
from examples.ch04 import agreement as ex
from examples.ch04 import plots
from examples.ch04.gpt2_from_scratch import flops_per_pass, flops_per_token, parameter_count, tensor_table
from examples.ch04.library import ROUNDED_IN_FLOAT64, library_model
from examples.lab.figure import check_target
from examples.lab.script import BadInput, Parser, number_list, progress_bar, show, table, whole_number

CONTEXTS = (16, 128, 512, 1024)


def run(argv):
    """Parse `argv`, run the command it names (the tour when it names none), print a table or JSON."""
    args = options().parse_args(argv)
    if "threads" in args:
        torch.set_num_threads(args.threads)
    show(args)


def options():
    """The script's argument parser, one sub-parser for each command."""
    parser = Parser(
        prog="gpt2_from_scratch.py",
        description="GPT-2 by hand; what takes --model takes any family. Without a command: the tour (`tour --help`).",
        default_command="tour",
    )

    def add(name, function, summary, *options):
        sub = parser.add_command(name, function, summary, *options)
        if "model" in options:
            sub.add_argument("--dtype", choices=list(ex.DTYPES), default="float32", help="what to compute in")
            sub.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to compute")
        return sub

    def add_config(sub):
        about = "a published shape, embedded, a folder, or a config.json"
        sub.add_argument("--config", default="gpt2", metavar="NAME or FILE", help=about)
        sub.add_argument("--layers", type=whole_number(1, 1000), default=None, metavar="L", help="another depth")
        return sub

    measured = ("model", "threads", "seed", "json")
    prompt = dict(default=None, help="the text; by default one of the chapter's, or random ids for random weights")
    add("tour", tour, "a first look: next tokens, agreement, the mask", *measured).add_argument("--prompt", **prompt)
    add_config(add("count", count, "parameters by component", "json"))
    sub = add_config(add("flops", flops, "matmul FLOPs by component", "json"))
    sub.add_argument(
        "--context", type=number_list(1), default=None, metavar="N,N", help="positions seen; by default 16,128,512,1024"
    )
    sub = add_config(add("shapes", shapes, "every tensor of a pass and its bytes", "json"))
    sub.add_argument("--tokens", type=whole_number(1), default=None, metavar="T", help="by default the full context")
    add("compare", compare, "agreement with transformers", *measured).add_argument("--prompt", **prompt)
    add("mask", mask, "what the causal mask does", *measured).add_argument("--prompt", **prompt)
    sub = add("residual", residual, "the numbers in the residual stream", *measured)
    sub.add_argument("--prompt", **prompt)
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg, .png or .pdf")
    sub = add("time", time, "where the time goes", *measured)
    sub.add_argument(
        "--tokens", type=number_list(1), default=None, metavar="N,N", help="by default 16,128,512,1024, as far as the model reaches"
    )
    sub.add_argument("--runs", type=whole_number(1), default=5, metavar="N", help="timed passes after the warm-up")
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg, .png or .pdf")
    return parser


def _load(args):
    """The model that the arguments name, in their dtype and on their device."""
    if args.device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch sees no such device here; leave it out")
    model = load(args.model, dtype=ex.DTYPES[args.dtype], seed=args.seed)
    ex.check_finite(model, args.model)
    return model.to(device=args.device)


def _piece(piece):
    return "n/a" if piece is None else repr(piece)


def _prompt(model, args, tokens):
    """ids [1, T] of the text that was given, whole; without one, `tokens` of the chapter's own."""
    return default_ids(model, tokens, args.seed) if args.prompt is None else encode(args.prompt, model)


def _about(args, **more):
    """What every measured value carries."""
    return {
        "model": args.model,
        "seed": args.seed,
        "dtype": args.dtype,
        "device": args.device,
        "threads": args.threads,
        "torch": torch.__version__,
    } | more


def _threads(args):
    return "1 thread" if args.threads == 1 else f"{args.threads} threads"


def _text(model, ids):
    return repr(decode(ids[0], model)) if model.tokenizer else f"random ids {ids[0].tolist()}"


# ------------------------------------------------------------------------------------------------------------------- tour


def tour(args):
    model = _load(args)
    ids = encode(ex.PREDICT, model) if args.prompt is None and model.tokenizer else _prompt(model, args, 10)
    library = library_model(model, ex.DTYPES[args.dtype], args.device)
    found = ex.agreement(ex.run(model, ids), library(ids, use_cache=False).logits.detach())
    best = ex.next_tokens(model, ids)
    last = ex.change_last(model, ids)[0]
    earlier = ex.worst(last[:-1])
    config = model.config
    fewer = f" with {config.kv_heads} of keys and values" if config.kv_heads < config.n_head else ""
    value = _about(
        args, ids=ids[0].tolist(), next_tokens=best, agreement=found, mask_change_earlier=earlier, mask_change_last=last[-1]
    )
    lines = [
        f"The model: {args.model}, a {config.model_type} of {config.n_layer} layers, width {config.n_embd}, {config.n_head} "
        f"heads{fewer}, {model.manifest['parameters']:,} parameters.",
        f"The prompt: {_text(model, ids)}, {ids.shape[1]} tokens.",
        "",
        table(["next token", "id", "probability"], [[_piece(b["piece"]), b["id"], f"{b['probability']:.2%}"] for b in best]),
        "",
        f"Agreement: our logits and transformers' differ by {found['largest_difference']:.1e} at most, on logits up to "
        f"{found['largest_logit']:.1f}; the same most probable token at {found['same_argmax']} of {found['positions']} positions.",
        f"The mask: with another last token the logits before it change by {earlier} and those at it by {last[-1]:.2f}.",
        "",
        "Next: the same script with count, flops, shapes, compare, mask, residual or time; --help says what each takes.",
    ]
    return value, "\n".join(lines)


# -------------------------------------------------------------------------------------------------------------- cost model


def _config(args):
    config = load_config(args.config)
    require(config, "gpt2", "chapter 4's cost model")
    if args.layers:
        config = ex.replace(config, n_layer=args.layers)
    sizes = {"V": config.vocab_size, "d": config.n_embd, "L": config.n_layer, "h": config.n_head, "f": config.inner_width}
    return config, f"{args.config}: " + ", ".join(f"{letter} {n:,}" for letter, n in sizes.items())


def count(args):
    config, head = _config(args)
    counts = parameter_count(config)
    total = counts["total"]
    stored = sum(math.prod(s) for s in tensor_shapes(config).values())
    per_layer = (counts["attention"] + counts["feed_forward"]) // config.n_layer + 4 * config.n_embd
    d, ff = config.n_embd, 2 * config.n_embd * config.inner_width
    value = {
        "config": args.config,
        "layers": config.n_layer,
        "parameters": counts,
        "in_the_tensor_table": stored,
        "one_layer": per_layer,
        "feed_forward_share_of_matrices": ff / (ff + 4 * d * d),
        "shares": {name: n / total for name, n in counts.items()},
        "times_its_own_depth": total / parameter_count(load_config(args.config))["total"],
    }
    share = value["feed_forward_share_of_matrices"]
    if stored != total:  # two derivations, one number
        raise AssertionError(f"the formula counts {total:,} and the tensor table {stored:,}")
    rows = [[name.replace("_", " "), f"{n:,}", f"{n / total:.1%}"] for name, n in counts.items()]
    notes = [
        f"The table of tensors that loading is checked against holds {stored:,} in {len(tensor_shapes(config))} tensors: the same.",
        f"One layer holds {per_layer:,}, its norms included; {config.n_layer} layers {config.n_layer * per_layer:,}.",
        f"Of a layer's matrices the feed-forward network holds {ff:,} weights, attention {4 * d * d:,}: {share:.1%}.",
    ]
    if args.layers:
        own = load_config(args.config)
        more = f"{value['times_its_own_depth']:.2f} times the {parameter_count(own)['total']:,} of {own.n_layer} layers"
        notes.append(f"{config.n_layer} layers of this width make {total:,}, {more}.")
    if config.tie_word_embeddings:
        notes.append("The output projection is the token embedding, transposed: counted once.")
    return value, "\n".join([head, "", table(["component", "parameters", "share"], rows), "", *notes])


def flops(args):
    config, head = _config(args)
    contexts = sorted(set(args.context or (min(c, config.n_positions) for c in CONTEXTS)))
    per_token = {c: flops_per_token(config, c) for c in contexts}
    passes = {c: {pairs: flops_per_pass(config, c, pairs=pairs) for pairs in ("full", "causal")} for c in contexts}
    value = {
        "config": args.config,
        "contexts": [
            {
                "context": c,
                "per_token": per_token[c],
                "output_projection_share": per_token[c]["output_projection"] / per_token[c]["total"],
                "pass": passes[c],
                "attention_share": {pairs: _attention(p) / p["total"] for pairs, p in passes[c].items()},
            }
            for c in contexts
        ],
        "rise_from_first_to_last": per_token[contexts[-1]]["total"] / per_token[contexts[0]]["total"] - 1,
    }
    names = list(per_token[contexts[0]])
    rows = [[n.replace("_", " "), *(f"{per_token[c][n]:,}" for c in contexts)] for n in names]
    rows.append(
        ["output projection's share", *(f"{per_token[c]['output_projection'] / per_token[c]['total']:.1%}" for c in contexts)]
    )
    share = [
        [
            f"{pairs} pass" + (" (what this program executes)" if pairs == "full" else " (visible pairs only)"),
            *(f"{passes[c][pairs]['total'] / 1e9:.3f}" for c in contexts),
        ]
        for pairs in ("full", "causal")
    ]
    share += [
        [
            f"attention's share with its projections, {pairs}",
            *(f"{_attention(passes[c][pairs]) / passes[c][pairs]['total']:.1%}" for c in contexts),
        ]
        for pairs in ("full", "causal")
    ]
    heads = [f"{c:,}" for c in contexts]
    parts = [
        head,
        "",
        "FLOPs of the matmuls for one output token that attends over so many positions; 2 a multiply-add:",
        "",
        table(["context", *heads], rows),
        "",
        "GFLOP of a whole pass over as many tokens:",
        "",
        table(["tokens", *heads], share),
    ]
    if len(contexts) > 1:
        first, last = (per_token[c]["total"] for c in (contexts[0], contexts[-1]))
        parts += ["", f"From {contexts[0]:,} to {contexts[-1]:,} positions one token costs {last / first - 1:.1%} more."]
    return value, "\n".join(parts)


def _attention(components):
    return components["attention_projections"] + components["attention_scores_and_values"]


def shapes(args):
    config, head = _config(args)
    tokens = args.tokens or config.n_positions
    rows = tensor_table(config, tokens)
    value = {"config": args.config, "tokens": tokens, "tensors": rows}
    lines = [[r["point"], f"{r['count']} x {r['shape']}", f"{r['bytes']:,}", r["growth"]] for r in rows]
    scores = next(r for r in rows if r["point"] == "scores")
    note = (
        f"With T^2 grow the scores and A, h T^2 numbers of 4 bytes each, {scores['bytes']:,} bytes "
        f"({scores['bytes'] / 1e6:.1f} MB) a layer and text for either at T = {tokens:,}, and the mask, T^2 numbers once for all."
    )
    head += f"; one sequence of {tokens:,} tokens in float32"
    return value, "\n".join([head, "", table(["tensor", "how many, shape", "bytes of one", "grows with"], lines), "", note])


# ----------------------------------------------------------------------------------------------------------------- compare


def compare(args):
    model = _load(args)
    library = library_model(model, ex.DTYPES[args.dtype], args.device)
    texts = PROMPTS if args.prompt is None else (args.prompt,)
    batches = prompt_batches(model, texts, args.seed)
    prompts = ex.compare_prompts(model, library, texts, args.seed)
    edges = ex.compare_edges(model, library, args.seed)
    layers = ex.compare_layers(model, library, batches[-1])
    everything = batches + ex.edge_batches(model, args.seed)
    with progress_bar("pass", len(everything) * len(ex.DTYPES)) as bar:
        dtypes = ex.distance_from_float64(model, everything, progress=bar.update)
    value = _about(args, prompts=prompts, edges=edges, layers=layers, from_float64=dtypes)

    def row(first, r):
        same = f"{r['same_argmax']:,} of {r['positions']:,}"
        return [*first, f"{r['largest_difference']:.1e}", f"{r['largest_logit']:.2f}", f"{r['relative_difference']:.1e}", same]

    heads = ["largest difference", "largest logit", "difference / logit", "same argmax"]
    worst = {}
    for r in layers:
        worst.setdefault(r["point"], []).append(r)
    point_rows = []
    for point, found in worst.items():
        r = max(found, key=lambda r: r["largest_difference"])
        where = "" if r["layer"] is None else r["layer"]
        point_rows.append(
            [point, len(found), f"{r['largest_difference']:.1e}", where, f"{max(f['largest_value'] for f in found):.3g}"]
        )
    rounded = ROUNDED_IN_FLOAT64.get(model.config.model_type)
    note = f"transformers computes {rounded} in float32 whatever the dtype, so its float64 is no reference."
    text = [
        f"{args.model} in {args.dtype}: our pass beside transformers' (eager), {_threads(args)}",
        "",
        table(
            ["prompt", "tokens", *heads],
            [row([json.dumps(r["text"]) if r["text"] else "random ids", r["tokens"]], r) for r in prompts],
        ),
        "",
        table(["random ids: batch x tokens", *heads], [row([f"{r['batch']} x {r['tokens']:,}"], r) for r in edges]),
        "",
        table(["point of the pass", "tensors", "largest difference", "in layer (from 0)", "largest value"], point_rows),
        "",
        f"Largest distance from our pass in float64, over all of these ids (logits up to {dtypes[0]['largest_logit']:.1f}):",
        "",
        table(
            ["dtype", "ours", "transformers", "our argmax as in float64"],
            [
                [
                    r["dtype"],
                    "0 (itself)" if r["dtype"] == "float64" else f"{r['ours']:.1e}",
                    "refused" if r["library"] is None else f"{r['library']:.1e}",
                    f"{r['ours_same_argmax']:,} of {r['positions']:,}",
                ]
                for r in dtypes
            ],
        ),
        *(["", note] if rounded else []),
    ]
    return value, "\n".join(text)


# -------------------------------------------------------------------------------------------------------------------- mask


def mask(args):
    model = _load(args)
    ids = _prompt(model, args, 10)
    with progress_bar("pass", 3 * ids.shape[1]) as bar:
        found = ex.mask_test(model, ids, bar.update)
    value = _about(args, ids=ids[0].tolist(), **found)
    T = found["tokens"]
    changes = [
        [i, f"{a}" if a == 0 else f"{a:.4f}", f"{b:.4f}"]
        for i, (a, b) in enumerate(zip(found["change_with_mask"], found["change_without_mask"], strict=True))
    ]
    influence = [[i, *(f"{x:.2f}" if x else "0" for x in row)] for i, row in enumerate(found["influence"])]
    text = [
        f"{args.model}: {_text(model, ids)}, {T} tokens",
        "",
        "Only the last id changed; the largest change of a logit at each position:",
        "",
        table(["position", "mask on", "mask off"], changes),
        "",
        f"Most probable tokens rewritten at the {T - 1} earlier positions: {found['earlier_argmax_moved_with_mask']} with the "
        f"mask, {found['earlier_argmax_moved_without_mask']} without.",
        "",
        "Each id changed in turn (columns); the largest change of a logit at each position (rows):",
        "",
        table(["", *range(T)], influence),
        "",
        f"Largest above the diagonal: {found['largest_above_diagonal']}.",
        "With the first layer's q, k and v weights times 300, so that scores below -1e4 occur: "
        f"{found['sharpened_above_diagonal']}; with a mask of -1e4 instead of minus infinity: "
        f"{found['sharpened_above_diagonal_at_minus_1e4']:.3g}, which is more than 0 only where all that a position may see scores "
        "below -1e4.",
    ]
    return value, "\n".join(text)


# ---------------------------------------------------------------------------------------------------------- residual, time


def residual(args):
    check_target(args.plot)
    model = _load(args)
    ids = _prompt(model, args, 17)
    rows = ex.residual_statistics(model, ids)
    value = _about(args, ids=ids[0].tolist(), layers=rows)

    def number(x, form=".2f"):
        return "n/a" if x is None else f"{x:{form}}"

    lines = [
        [
            r["layer"] or "embedding",
            f"{r['largest']:.2f}",
            r["position"],
            r["dimension"],
            number(r["rms"], ".3f"),
            number(r["rms_without_first"], ".3f"),
            number(r["largest_over_median"], ".1f"),
            number(r.get("attention_norm")),
            number(r.get("mlp_norm")),
        ]
        for r in rows
    ]
    heads = [
        "after how many layers",
        "largest",
        "position",
        "dimension",
        "RMS",
        "RMS without position 0",
        "largest / median",
        "attention adds",
        "feed-forward adds",
    ]
    text = (
        f"{args.model}: {_text(model, ids)}, {ids.shape[1]} tokens; what a sublayer adds is the L2 norm over all positions\n\n"
        + table(heads, lines)
    )
    if args.plot:
        plots.plot_residual(rows, args.plot)
        text += f"\n\nplot: {args.plot}"
    return value, text


def time(args):
    check_target(args.plot)
    model = _load(args)
    lengths = ex.timing_lengths(model.config, args.tokens)
    with progress_bar("pass", len(lengths) * (args.runs + 1)) as bar:
        results = [ex.component_times(model, t, args.runs, args.seed, progress=bar.update) for t in lengths]
    denormal = ex.denormals(model)
    value = _about(args, denormal_weights=denormal, lengths=results)
    parts = [
        f"{args.model}: {args.dtype} on {args.device}, {_threads(args)}, torch {torch.__version__}; medians of {args.runs} "
        f"passes after a discarded one; FLOPs of the full square; {denormal} denormal weights"
    ]
    for r in results:
        rows = [
            [
                c["component"].replace("_", " "),
                f"{c['ms']:.2f}",
                f"{c['time_share']:.1%}",
                f"{c['flop_share']:.1%}",
                "" if c["gflop_per_s"] is None else f"{c['gflop_per_s']:.0f}",
            ]
            for c in r["components"]
        ]
        parts += [
            "",
            table([f"{r['tokens']:,} tokens", "ms", "share of time", "share of FLOPs", "GFLOP/s"], rows),
            f"sum {r['sum_ms']:.2f} ms; untraced pass {r['untraced_ms']:.2f} ms, {r['gflop_per_s']:.0f} GFLOP/s; "
            f"unexplained {r['unexplained_ms']:+.2f} ms, {r['unexplained_ms'] / r['untraced_ms']:+.1%}",
        ]
    if args.plot:
        plots.plot_time(results, args.plot)
        parts += ["", f"plot: {args.plot}"]
    return value, "\n".join(parts)
