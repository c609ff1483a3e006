"""Chapter 14: one decode step of any config, operation by operation, in FLOPs and bytes.

    python examples/ch14/decode_trace.py
    python examples/ch14/decode_trace.py --config deepseek-v3 --context 32768 --batch 64
    python examples/ch14/decode_trace.py --plot balance.svg

Nothing runs here: these are counts, and times are counts divided by a machine's two rates. `decode_times.py` measures a step. Bytes
are counted in 10^6 and 10^9, as the data sheet counts those that it moves in a second and those that it holds.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.config import Config
from examples.ch11.accelerators import accelerator
from examples.ch14.configs import SOURCE, config_named
from examples.ch14.costs import FORMS, MOST, attention_matrices, cached_numbers, network_matrices, parameter_count, seen
from examples.lab.experiment import Experiment
from examples.lab.figure import check_target, label_ends, new_figure, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, counted, positive_number, table, whole_number

ACCELERATOR = accelerator("h100")  # by its data sheet; FLOP/s are of bfloat16, dense
PEAK, BANDWIDTH, MEMORY = (ACCELERATOR[key] for key in ("flop_per_s", "bytes_per_s", "memory_bytes"))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)  # of the balance between weights and caches
LARGE = (32768, 64)  # positions cached and sequences at once: a load under which the caches are what counts
ONCE = ("embedding", "head", "softmax", "rms norm of", "layer norm of", "rms norm before", "layer norm before")  # lines of no layer

# ------------------------------------------------------------------------------------------------------------- the step


def decode_step(config: Config, context: int, batch: int = 1, bytes_per_number: int = 2, form: str = "absorbed") -> dict:
    """One new token for each of `batch` sequences that have `context` positions cached: {operations, flops, bytes, ...}.

    operations: [{operation, times, flops, weight_bytes, cache_bytes, written_bytes, activation_bytes}], each for all its `times`
    together. The new token attends over context + 1 positions, its own included; it reads the cached ones and writes its own.
    Weights are read once per step, whatever the batch; of a mixture as many experts as the batch is expected to choose, if all are
    equally likely: E (1 - (1 - k/E)^batch). Activations are the vectors of the new tokens that an operation reads and writes, each
    once. FLOPs are those of the matmuls, as in `flops_per_token`; form: of latent attention, as there. Raises BadInput for no
    sequence, a context below 0, and an unknown form.
    """
    if batch < 1 or context < 0:
        raise BadInput(f"a batch of {batch} with {context} positions cached; give 1 sequence or more, and 0 positions or more")
    if form not in FORMS:
        raise BadInput(f"the form {form!r} of latent attention is not known; give {' or '.join(FORMS)}")
    B, n, d, L, m = batch, bytes_per_number, config.n_embd, config.n_layer, config.latent
    rows = []

    def add(operation, times, weights=0, flops=None, vectors=0, cached=0, written=0, moved=0):
        total = times * 2 * weights * B if flops is None else flops  # flops: of all the times together
        weights = weights + vectors  # vectors: biases and gains, which are read and are no matmul
        rows.append(
            {
                **{"operation": operation, "times": times, "flops": total, "weight_bytes": round(times * weights * n)},
                **{"cache_bytes": cached * n, "written_bytes": written * n, "activation_bytes": times * B * moved * n},
            }
        )

    def of_norm(times, where):
        add(f"{config.norm} norm {where}", times, vectors=2 * d if config.norm == "layer" else d, moved=2 * d)

    add("embedding", 1, vectors=B * d * (2 if config.positions == "learned" else 1), moved=d)
    if config.embedding_norm:
        of_norm(1, "of the embedding")
    per_layer = {"pre": 1, "post": 1, "both": 2}[config.norm_place]
    of_norm(L * per_layer, "at attention")
    h, q, kv, value = config.n_head, config.n_head * config.query_width, config.kv_heads * config.head_width, config.value_width
    biased = {part: part in config.biases for part in ("qkv", "o", "mlp")}
    width = config.query_width + value  # of what attention does with a position that it sees, for each head
    if m:
        queries, short = m.q_rank or 0, m.kv_rank + m.turned
        made = h * (m.plain + value)  # expanded: keys and values of the new position; absorbed: queries and mixtures of rank width
        if form == "absorbed":
            width, made = 2 * m.kv_rank + m.turned, h * (2 * m.kv_rank + value)
        weights = attention_matrices(config) - h * value * d
        add("latent projections but o", L, weights, vectors=queries + m.kv_rank, moved=d + queries + q + short + made)
    else:
        for part, out in (("q", q), ("k", kv), ("v", kv)):
            add(f"{part} projection", L, d * out, vectors=out * biased["qkv"], moved=d + out)
        if config.qk_norm:
            add("norms of q and k", L, vectors=2 * config.head_width, moved=2 * (q + kv))
    if config.positions == "rope":
        add("rotation of q and k", L, moved=2 * (h + 1) * m.turned if m else 2 * (q + kv))
    kept = cached_numbers(config, form)
    add("append to the cache", L, written=B * L * kept)
    held = sum(seen(config, i, context + 1) - 1 for i in range(L))  # without the new position itself
    add("attention over the cache", L, flops=2 * B * h * width * (held + L), cached=B * held * kept, moved=h * width)
    add("o projection", L, h * value * d, vectors=d * biased["o"], moved=h * value + d)
    add("residual additions", 2 * L, moved=3 * d)
    of_norm(L * per_layer, "at feed-forward")
    inner = 3 if config.gated else 1  # vectors within a network: the gate, what it gates, and their product; or one
    dense = sum(not config.has_experts(i) for i in range(L))
    if dense:
        f = config.inner_width
        biases = (f * (2 if config.gated else 1) + d) * biased["mlp"]
        add("feed-forward matrices", dense, network_matrices(config, f), vectors=biases, moved=2 * d + inner * f)
    if L - dense:
        e, one = config.experts, network_matrices(config, config.experts.width)
        add("routing", L - dense, e.count * d, moved=d + e.count)
        read, used = e.count * (1 - (1 - e.active / e.count) ** B) + e.shared, e.active + e.shared
        moved = (
            e.active * (2 * d + inner * e.width) + bool(e.shared) * 2 * d + inner * e.shared * e.width
        )  # the shared ones are one
        add(f"experts ({used} a token)", L - dense, read * one, flops=2 * B * used * one * (L - dense), moved=moved)
    if config.final_norm:
        of_norm(1, "before the head")
    add("head", 1, d * config.vocab_size, moved=d + config.vocab_size)
    add("softmax and choice", 1, moved=2 * config.vocab_size)
    totals = {key: sum(r[key] for r in rows) for key in rows[0] if key not in ("operation", "times")}
    traffic = totals["weight_bytes"] + totals["cache_bytes"] + totals["written_bytes"]
    return {"context": context, "batch": B, "bytes_per_number": n, "operations": rows, **totals, "bytes": traffic}


def step_times(step: dict, peak: float = PEAK, bandwidth: float = BANDWIDTH) -> dict:
    """Seconds that the step's FLOPs take at `peak` FLOP/s and its bytes at `bandwidth` bytes/s; which is longer, and how often.

    bytes: weights and cache read, and what is appended; activations are left out, since they stay on the chip.
    """
    compute, memory = step["flops"] / peak, step["bytes"] / bandwidth
    return {
        "compute_s": compute,
        "memory_s": memory,
        "bound": "memory" if memory >= compute else "compute",
        "ratio": max(compute, memory) / min(compute, memory),
        "tokens_per_s": step["batch"] / max(compute, memory),
    }


def held_bytes(config: Config, step: dict) -> int:
    """Bytes that have to be in memory for a step: all weights, read or not, and the caches with the new tokens in them."""
    return step["bytes_per_number"] * parameter_count(config)["total"] + step["cache_bytes"] + step["written_bytes"]


# --------------------------------------------------------------------------------------------------------- the measurement


def measure(
    name="llama-3-8b", context=2000, batch=1, bytes_per_number=2, form="absorbed", peak=PEAK, bandwidth=BANDWIDTH, memory=MEMORY
):
    """The trace of one decode step: `operations`, a row each, their totals, the times at two rates, and what they show.

    Beside it stand the same step under a large load, LARGE, the bytes of weights and caches at every batch of BATCHES, and how
    many kernels a layer takes if each operation is one, and the feed-forward line one for each of its matrices and one for what
    stands between them (None of a mixture and of latent attention, whose lines are of many parts). held_gb and large_held_gb: all
    weights and caches of the two loads; fits and large_fits: whether they are within `memory` bytes. accelerator: the name of that
    with these rates and this memory, None where no name is known.
    """
    config = config_named(name)

    def step_at(context, batch):
        return decode_step(config, context, batch, bytes_per_number, form)

    step, large = step_at(context, batch), step_at(*LARGE)
    times, later = step_times(step, peak, bandwidth), step_times(large, peak, bandwidth)
    held, large_held = held_bytes(config, step), held_bytes(config, large)
    L, operations = config.n_layer, step["operations"]
    balance = []
    for b in BATCHES:
        one, two = step_at(context, b), step_at(LARGE[0], b)
        caches = {f"cache_{s['context']}_gb": s["cache_bytes"] / 1e9 for s in (one, two)}
        balance.append({"batch": b, "weight_gb": one["weight_bytes"] / 1e9, **caches})

    def total(key, *names):
        return sum(r[key] for r in operations if r["operation"].startswith(names))

    network = ("feed-forward", "routing", "experts")
    kernels = None
    if not config.latent and not config.experts:
        kernels = sum(r["times"] for r in operations if not r["operation"].startswith(ONCE)) // L + (3 if config.gated else 2)
    return {
        "config": name,
        "made_for": config.n_positions,
        **{key: step[key] for key in ("context", "batch", "bytes_per_number")},
        "operations": [
            {
                **{"operation": r["operation"], "times": r["times"], "mflop": r["flops"] / 1e6},
                **{"weight_mb": r["weight_bytes"] / 1e6, "cache_mb": r["cache_bytes"] / 1e6},
                **{"written_mb": r["written_bytes"] / 1e6, "activation_mb": r["activation_bytes"] / 1e6},
            }
            for r in operations
        ],
        "gflop": step["flops"] / 1e9,
        **{f"{key}_gb": step[f"{key}_bytes"] / 1e9 for key in ("weight", "cache", "written", "activation")},
        "gb": step["bytes"] / 1e9,
        "stored_gb": bytes_per_number * parameter_count(config)["total"] / 1e9,
        "table_gb": bytes_per_number * config.vocab_size * config.n_embd / 1e9,
        "accelerator": ACCELERATOR["name"] if (peak, bandwidth, memory) == (PEAK, BANDWIDTH, MEMORY) else None,
        **{"peak_tflop_per_s": peak / 1e12, "bandwidth_tb_per_s": bandwidth / 1e12, "memory_gb": memory / 1e9},
        **{"held_gb": held / 1e9, "fits": held <= memory, "large_held_gb": large_held / 1e9, "large_fits": large_held <= memory},
        **{"compute_ms": 1e3 * times["compute_s"], "memory_ms": 1e3 * times["memory_s"]},
        **{key: times[key] for key in ("bound", "ratio", "tokens_per_s")},
        "attention_mflop_per_layer": total("flops", "attention over") / L / 1e6,
        "cache_read_mb_per_layer": step["cache_bytes"] / L / 1e6,
        "append_mb_per_layer": step["written_bytes"] / L / 1e6,
        "append_bytes_per_layer": step["written_bytes"] // L,
        "feed_forward_flop_percent": 100 * total("flops", *network) / step["flops"],
        "feed_forward_weight_percent": 100 * total("weight_bytes", *network) / step["weight_bytes"],
        "head_flop_percent": 100 * total("flops", "head") / step["flops"],
        "head_weight_percent": 100 * total("weight_bytes", "head") / step["weight_bytes"],
        "head_gb": total("weight_bytes", "head") / 1e9,
        "head_parameters_billions": config.vocab_size * config.n_embd / 1e9,
        "parameters_billions": parameter_count(config)["total"] / 1e9,
        "head_parameters_percent": 100 * config.vocab_size * config.n_embd / parameter_count(config)["total"],
        **{"large_context": large["context"], "large_batch": large["batch"], "large_gb": large["bytes"] / 1e9},
        **{"large_weight_gb": large["weight_bytes"] / 1e9, "large_cache_gb": large["cache_bytes"] / 1e9},
        **{"large_memory_ms": 1e3 * later["memory_s"], "large_tokens_per_s": later["tokens_per_s"]},
        "large_cache_over_weights": large["cache_bytes"] / large["weight_bytes"],
        "balance": balance,
        "kernels_per_layer": kernels,
        "kernels_80_layers": kernels and 80 * kernels,
        "launch_ms_at_5_us": kernels and 80 * kernels * 5 / 1e3,
    }


# ----------------------------------------------------------------------------------------------------- the table, the figure


def report(values):
    """Text of {"trace": ...}."""
    v = values["trace"]

    def numbers(r):
        keys = ("mflop", "weight_mb", "cache_mb", "written_mb", "activation_mb")
        return [f"{r[key]:,.{1 if key == 'mflop' else 2}f}" if r[key] else "" for key in keys]

    sums = {"mflop": 1e3 * v["gflop"]} | {f"{key}_mb": 1e3 * v[f"{key}_gb"] for key in ("weight", "cache", "written", "activation")}
    rows = [[r["operation"], r["times"], *numbers(r)] for r in v["operations"]] + [["total", "", *numbers(sums)]]
    heads = ["operation", "times", "MFLOP", "weights", "cache", "written", "vectors"]
    text = [
        f"{v['config']}: one new token for each of {counted(v['batch'], 'sequence')} with {v['context']:,} cached, "
        f"{v['bytes_per_number']} bytes per number.",
        "MB, 10^6 bytes, of weights and cache read, of cache written, and of the new tokens' vectors:",
        "",
        table(heads, rows),
        "",
        f"{v['gflop']:,.2f} GFLOP at {v['peak_tflop_per_s']:g} TFLOP/s: {v['compute_ms']:.3f} ms. {v['gb']:,.2f} GB "
        f"(weights {v['weight_gb']:,.2f}, cache {v['cache_gb']:,.2f})",
        f"at {v['bandwidth_tb_per_s']:g} TB/s: {v['memory_ms']:.3f} ms.",
        f"The head is {v['head_weight_percent']:.1f}% of the weights read, {v['head_gb']:,.2f} GB, and "
        f"{v['head_flop_percent']:.1f}% of the FLOPs.",
        f"All weights and the caches are {_held(v['held_gb'], v['fits'], v)}.",
    ]
    most, cached = v["balance"][-1], v["balance"][-1][f"cache_{v['context']}_gb"]
    text += [
        f"At batch {most['batch']} with {v['context']:,} cached the caches are {cached:,.1f} GB beside "
        f"{most['weight_gb']:,.1f} GB of weights read;",
        f"at batch {v['large_batch']} with {v['large_context']:,}, {v['large_cache_gb']:,.1f} GB, "
        f"{v['large_cache_over_weights']:,.2f} times the weights read,",
        f"and all weights with them {_held(v['large_held_gb'], v['large_fits'], v)}.",
    ]
    if v["context"] + 1 > v["made_for"]:
        text.append(f"Note: {v['config']} was made for {v['made_for']:,} positions; this is what more would cost.")
    end = f"The step is bound by {v['bound']}, {v['ratio']:,.0f} to 1; at best {v['tokens_per_s']:,.0f} tokens/s over all sequences"
    return "\n".join([*text, "", end + ("." if v["fits"] else ",\nif they fitted into its memory.")])


def _held(gb, fits, v):
    """So many GB beside the memory of the accelerator, in words."""
    whose = f"an {v['accelerator']}" if v["accelerator"] else "this accelerator"
    return f"{gb:,.1f} GB, and {'fit into' if fits else 'do NOT fit into'} the {v['memory_gb']:,.4g} GB of {whose}"


def draw(values, path):
    """Bytes of weights and of caches in a decode step by batch, at two contexts, from what `measure` returns."""
    figure, axes = new_figure()
    rows, short, long = values["balance"], values["context"], values["large_context"]
    batches = [r["batch"] for r in rows]
    lines = [("weight_gb", "weights")]
    lines += [(f"cache_{n}_gb", f"caches,\n{n:,} positions") for n in dict.fromkeys((short, long))]
    for i, (key, label) in enumerate(lines):
        axes.loglog(batches, [r[key] for r in rows], label=label, **style(i))
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.minorticks_off()
    plain_ticks(axes.yaxis)
    n = values["bytes_per_number"]
    title = f"{values['config']} at {'two' if n == 2 else n} bytes per number"
    axes.set(xlabel="sequences at once", ylabel="GB read in one decode step", title=title)
    label_ends(axes)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch14.trace",
        "exact",
        "Counted operation by operation, Llama-3-8B's decode step takes an H100 hundreds of times longer to read than to compute.",
        "Matmul FLOPs, weights and cache; the times are those counts over a data sheet's peaks, and nothing was run.",
        measure,
        headline=("ratio", "f0"),
        model="the configurations kept in configs.json",
        loads=False,
        movable=False,
        figures={"balance.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="decode_trace.py", description=__doc__, keys=__file__)
    parser.add_argument("--config", default="llama-3-8b", metavar="NAME or FILE", help=SOURCE)
    parser.add_argument("--context", type=whole_number(1, MOST), default=2000, metavar="N", help="positions cached")
    parser.add_argument("--batch", type=whole_number(1, MOST), default=1, metavar="B", help="sequences at once")
    parser.add_argument("--bytes", type=whole_number(1, 8), default=2, metavar="N", help="bytes per number")
    parser.add_argument("--form", choices=FORMS, default=FORMS[0], help="of latent attention, where a config has it")
    parser.add_argument("--tflops", type=positive_number, default=PEAK / 1e12, metavar="X", help="10^12 FLOP/s of the machine")
    parser.add_argument("--tbps", type=positive_number, default=BANDWIDTH / 1e12, metavar="X", help="10^12 bytes/s of its memory")
    parser.add_argument("--gb", type=positive_number, default=MEMORY / 1e9, metavar="X", help="10^9 bytes that its memory holds")
    return parser.add("plot", "json")


@command
def main(argv=None):
    """Print the trace of one decode step."""
    args = options().parse_args(argv)
    check_target(args.plot)
    rates = 1e12 * args.tflops, 1e12 * args.tbps, 1e9 * args.gb
    values = {"trace": measure(args.config, args.context, args.batch, args.bytes, args.form, *rates)}
    answer(args, values, report, lambda values, path: draw(values["trace"], path))


if __name__ == "__main__":
    sys.exit(main())
