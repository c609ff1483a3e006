"""Chapter 14: what any of the fifteen families stores, multiplies and caches, from its config alone, in closed form.

    python examples/ch14/costs.py
    python examples/ch14/costs.py --config deepseek-v3 --context 2000
    python examples/ch14/costs.py --all              # every published configuration, beside transformers' own model

Conventions, chapter 4's: a multiply-add is 2 FLOPs; matmuls only, the output projection with them, look-ups and norms without; a
context is what one new token attends over, itself included, and nothing is halved for the mask. A window caps a layer's context.
A mixture counts as *active* the experts that one token takes, the shared ones and the router. Latent attention is counted in one
of two forms, both exact: "expanded", in which each position's keys and values are made once and kept for every head, as no program
here keeps them, and "absorbed", in which only the short vector is kept, and the matrices that would expand it act on the query and
on the result.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import NORMS, Config
from examples.ch02.layout import is_buffer, weight_shapes
from examples.ch10 import kv_cache
from examples.ch10.kv_cache import cache_bytes
from examples.ch14.configs import SOURCE, config_named, published
from examples.lab.environment import import_transformers
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, progress_bar, table, whole_number

FORMS = ("absorbed", "expanded")
MOST = 10**9  # of sequences and positions that a script counts

# ---------------------------------------------------------------------------------------------------------- the formulas


def attention_matrices(config: Config) -> int:
    """Weights in one layer's attention matrices, biases not included."""
    d, h, m = config.n_embd, config.n_head, config.latent
    if m is None:
        return d * config.head_width * (2 * h + 2 * config.kv_heads)  # q and o, k and v
    q = d * h * config.query_width if m.q_rank is None else m.q_rank * (d + h * config.query_width)
    return q + d * (m.kv_rank + m.turned) + m.kv_rank * h * (m.plain + m.value) + h * m.value * d


def network_matrices(config: Config, width: int) -> int:
    """Weights in the matrices of one feed-forward network of `width`."""
    return (3 if config.gated else 2) * config.n_embd * width


def feed_forward_matrices(config: Config, layer: int, active: int | None) -> int:
    """Weights in the matrices of one layer's feed-forward network; of a mixture those of `active` experts, None for all."""
    if not config.has_experts(layer):
        return network_matrices(config, config.inner_width)
    e = config.experts
    return ((e.count if active is None else active) + e.shared) * network_matrices(config, e.width) + e.count * config.n_embd


def parameter_count(config: Config, active: bool = False) -> dict[str, int]:
    """{component: parameters, ..., "total"}. Each number is one weight; a tied head is counted once.

    active: of a mixture only what one token uses. Buffers are not counted: sinusoids, and the bias of DeepSeek's routing. Nor are
    the layers that DeepSeek-V3 has for predicting a second token.
    """
    d, L, V = config.n_embd, config.n_layer, config.vocab_size
    vector = 2 * d if config.norm == "layer" else d
    norms = sum(name is not None for name in NORMS[config.norm_place]) * L + config.final_norm + config.embedding_norm
    inner_norms = (
        2 * config.head_width * config.qk_norm if config.latent is None else config.latent.kv_rank + (config.latent.q_rank or 0)
    )
    attention_biases = ("qkv" in config.biases) * config.head_width * (config.n_head + 2 * config.kv_heads) + (
        "o" in config.biases
    ) * d
    network_biases = ("mlp" in config.biases) * (config.inner_width * (2 if config.gated else 1) + d)
    counts = {
        "token_embedding": V * d,
        "position_embedding": config.n_positions * d if config.positions == "learned" else 0,
        "attention": L * (attention_matrices(config) + attention_biases),
        "feed_forward": sum(
            feed_forward_matrices(config, i, config.experts.active if config.experts and active else None) for i in range(L)
        )
        + L * network_biases,
        "norms": norms * vector + L * inner_norms,
        "output_projection": 0 if config.tie_word_embeddings else V * d,
    }
    return counts | {"total": sum(counts.values())}


def seen(config: Config, layer: int, context: int) -> int:
    """Positions that a token sees in a layer, of `context`."""
    window = config.window(layer)
    return context if window is None else min(context, window)


def flops_per_token(config: Config, context: int, form: str = "absorbed") -> dict[str, int]:
    """{component: FLOPs, ..., "total"} of the matmuls for one token that attends over `context` positions, itself included.

    form: of latent attention. The expanded form does 2 h (query + value width) a position seen, the absorbed one
    2 h (2 kv_rank + turned), and either uses each weight once. Raises BadInput for a context outside 1 to n_positions.
    """
    if not 1 <= context <= config.n_positions:
        raise BadInput(f"context {context} is not within 1 to n_positions {config.n_positions}; give one that is")
    if form not in FORMS:
        raise BadInput(f"the form {form!r} of latent attention is not known; give {' or '.join(FORMS)}")
    width = config.query_width + config.value_width
    if config.latent and form == "absorbed":
        width = 2 * config.latent.kv_rank + config.latent.turned
    flops = {
        "attention_projections": 2 * config.n_layer * attention_matrices(config),
        "attention_scores_and_values": sum(2 * config.n_head * width * seen(config, i, context) for i in range(config.n_layer)),
        "feed_forward": sum(
            2 * feed_forward_matrices(config, i, config.experts.active if config.experts else None) for i in range(config.n_layer)
        ),
        "output_projection": 2 * config.n_embd * config.vocab_size,
    }
    return flops | {"total": sum(flops.values())}


def flops_per_pass(config: Config, tokens: int, batch: int = 1, pairs: str = "full") -> dict[str, int]:
    """{component: FLOPs, ..., "total"} of one pass over [batch, tokens]; pairs as in chapter 4's.

    "full" is the whole rectangle in every layer, "causal" only the pairs that are seen, a window's as well.
    """
    if pairs not in ("full", "causal"):
        raise BadInput(f"pairs is {pairs!r}; give full or causal")
    flops = {name: n * batch * tokens for name, n in flops_per_token(config, tokens, "expanded").items() if name != "total"}
    each = 2 * config.n_head * (config.query_width + config.value_width)
    one = (lambda i: tokens * tokens) if pairs == "full" else (lambda i: _pairs(tokens, seen(config, i, tokens)))
    visible = sum(one(i) for i in range(config.n_layer))
    flops["attention_scores_and_values"] = batch * each * visible
    return flops | {"total": sum(flops.values())}


def _pairs(tokens, window):
    """Pairs of query and key that are seen: min(i + 1, window) summed over the positions i."""
    return window * (window + 1) // 2 + (tokens - window) * window


def cached_numbers(config: Config, form: str = "absorbed") -> int:
    """Numbers that one layer keeps for one position, by chapter 10; of latent attention expanded, keys and values of all heads."""
    if config.latent is None or form == "absorbed":
        return kv_cache.cached_numbers(config)
    return config.n_head * (config.query_width + config.value_width)


def kv_bytes_per_token(config: Config, bytes_per_number: int = 2, form: str = "absorbed") -> int:
    """Bytes that one more token adds to the cache, while no layer's window is full: 2 L g dh bytes, or MLA's."""
    return config.n_layer * cached_numbers(config, form) * bytes_per_number


# -------------------------------------------------------------------------------------------------------- the measurements


def measure(name="llama-3-8b", context=None, batch=1, bytes_per_number=2):
    """What one config stores, multiplies and caches: of each component its parameters and, of a mixture, the active ones.

    flops_per_token: of one token that attends over `context` positions; cache_bytes: of `batch` sequences of as many. context: by
    default 2,000, or as many as the config has. Latent attention is absorbed; its other form stands beside, None of any other.
    Raises BadInput for what is no config, and for more positions than it has.
    """
    config = config_named(name)
    context = min(2000, config.n_positions) if context is None else context
    parameters, active = parameter_count(config), parameter_count(config, active=True)
    expanded = {"flops_per_token_expanded": None, "kv_bytes_per_token_expanded": None}
    if config.latent:
        expanded["flops_per_token_expanded"] = flops_per_token(config, context, "expanded")["total"]
        expanded["kv_bytes_per_token_expanded"] = kv_bytes_per_token(config, bytes_per_number, "expanded")
    return {
        "config": name,
        "model_type": config.model_type,
        "parameters": parameters,
        "active": active,
        "tensor_table_total": tensor_table_total(config),
        "context": context,
        "batch": batch,
        "bytes_per_number": bytes_per_number,
        "flops_per_token": flops_per_token(config, context),
        "kv_bytes_per_token": kv_bytes_per_token(config, bytes_per_number),
        "cache_bytes": cache_bytes(config, context, batch, bytes_per_number),
        **expanded,
    }


def tensor_table_total(config: Config, buffers: bool = False) -> int:
    """Numbers in the table of tensors that loading is checked against: the parameters, or the buffers that stand beside them."""
    return sum(math.prod(shape) for name, shape in weight_shapes(config).items() if is_buffer(name) == buffers)


def library_parameters(fields: dict) -> int:
    """Parameters of the model that transformers makes of a config.json's fields, on the meta device, where it takes no memory."""
    transformers = import_transformers()
    transformers.logging.set_verbosity_error()
    with torch.device("meta"):
        library = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**fields))
    return sum(w.numel() for w in library.parameters())


def shape_of(config: Config) -> dict:
    """What a count by hand needs of a config, by the chapter's symbols: {"L": layers, ..., "experts", "window", "tied"}.

    g and dh are None with latent attention, which has neither; f is the width in layers that are no mixture, None where all are.
    """
    e, windows = config.experts, [w for w in config.windows if w]
    latent, mixed = config.latent is not None, all(map(config.has_experts, range(config.n_layer)))
    experts = f"{e.count} of {e.width:,}, {e.active} active" + (f", {e.shared} shared" if e.shared else "") if e else ""
    return {
        **{"L": config.n_layer, "d": config.n_embd, "h": config.n_head, "g": None if latent else config.kv_heads},
        **{"dh": None if latent else config.head_width, "f": None if mixed else config.inner_width, "V": config.vocab_size},
        "experts": experts,
        "window": f"{windows[0]:,} in {len(windows)}" if windows else "",
        "tied": "yes" if config.tie_word_embeddings else "no",
    }


def measure_counts(progress=lambda: None):
    """The shape and parameters of every published configuration, and whether three derivations of the latter agree: the closed
    formula, the table of tensors, and transformers' own model."""
    rows = []
    for name, model in published().items():
        config = config_named(name)
        total = parameter_count(config)["total"]
        same = total == tensor_table_total(config) == library_parameters(model["config"])
        active = parameter_count(config, active=True)["total"]
        rows.append(
            {"model": name, "family": config.model_type, "parameters": total, "active": active, "same": same, **shape_of(config)}
        )
        progress()
    return {
        "models": rows,
        "count": len(rows),
        "families": len({r["family"] for r in rows}),
        "all_the_same": all(r["same"] for r in rows),
        "deepseek_routing_biases": tensor_table_total(config_named("deepseek-v3"), buffers=True),
    }


# --------------------------------------------------------------------------------------------------------------- the tables


def report(values):
    """Text of {"cost": ...}, or of {"counts": ...}."""
    return _report_counts(values["counts"]) if "counts" in values else _report_cost(values["cost"])


def _report_cost(v):
    parts, active, flops = v["parameters"], v["active"], v["flops_per_token"]
    if v["tensor_table_total"] != parts["total"]:  # two derivations, one number
        raise AssertionError(f"the formula counts {parts['total']:,} and the tensor table {v['tensor_table_total']:,}")
    rows = [[name.replace("_", " "), f"{n:,}", f"{active[name]:,}"] for name, n in parts.items()]
    work = [[name.replace("_", " "), f"{n:,}"] for name, n in flops.items()]
    text = [
        f"{v['config']}, model_type {v['model_type']}; {v['bytes_per_number']} bytes per number",
        "",
        table(["component", "parameters", "of these active"], rows),
        "",
        f"The table of tensors that loading is checked against holds {v['tensor_table_total']:,} too.",
        "",
        table([f"FLOPs of one token at context {v['context']:,}", "FLOPs"], work),
        "",
    ]
    if v["flops_per_token_expanded"] is not None:
        text.append(
            f"Latent attention absorbed; expanded it is {v['flops_per_token_expanded']:,} FLOPs and "
            f"{v['kv_bytes_per_token_expanded']:,} bytes per token."
        )
    end = f"A token adds {v['kv_bytes_per_token']:,} bytes to the cache while no window is full;"
    return "\n".join([*text, end, f"{v['batch']:,} x {v['context']:,} positions take {v['cache_bytes']:,}."])


def _report_counts(v):
    rows = [[r["model"], r["family"], *(f"{r[k]:,}" for k in ("parameters", "active")), r["same"]] for r in v["models"]]
    agree = sum(r["same"] for r in v["models"])
    return "\n".join(
        [
            table(["model", "family", "parameters", "active for a token", "all three the same"], rows),
            "",
            f"In {agree} of {v['count']} configurations of {v['families']} families the formula, the table of tensors and",
            "transformers' own model have the same number.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch14.counts",
        "exact",
        "The closed formula, the table of tensors and transformers' own model have the same parameters, in all configurations.",
        "Counts; a configuration is what its config.json says.",
        measure_counts,
        headline=("count", "int"),
        model="the configurations kept in configs.json",
        loads=False,
        movable=False,
        seconds=15,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="costs.py", description=__doc__, keys=__file__)
    parser.add_argument("--config", default="llama-3-8b", metavar="NAME or FILE", help=SOURCE)
    about = "positions of each sequence; by default 2,000, or as many as the config has"
    parser.add_argument("--context", type=whole_number(1, MOST), default=None, metavar="N", help=about)
    parser.add_argument("--batch", type=whole_number(1, MOST), default=1, metavar="B", help="sequences at once")
    parser.add_argument("--bytes", type=whole_number(1, 8), default=2, metavar="N", help="bytes per number")
    about = "every published configuration beside transformers' own model instead; about fifteen seconds"
    parser.add_argument("--all", action="store_true", help=about)
    return parser.add("json")


@command
def main(argv=None):
    """Print what a config costs, or the parameters of all."""
    args = options().parse_args(argv)
    if args.all:
        with progress_bar("model", len(published())) as bar:
            values = {"counts": measure_counts(bar.update)}
    else:
        values = {"cost": measure(args.config, args.context, args.batch, args.bytes)}
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
