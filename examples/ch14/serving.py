"""What a config costs to serve: memory, and one decode step operation by operation, in FLOPs and bytes."""

from dataclasses import replace
from pathlib import Path

from examples.ch02.config import Config, general
from examples.ch02.families import read_config
from examples.ch02.model import load_config
from examples.ch10.kv_cache import cache_bytes
from examples.ch14.costs import (
    attention_matrices,
    cached_numbers,
    flops_per_token,
    kv_bytes_per_token,
    network_matrices,
    parameter_count,
    seen,
)
from examples.ch14.ten_choices import options_of
from examples.lab.script import BadInput, read_json

CONFIGS = Path(__file__).resolve().parent / "configs.json"
ALIASES = {"smollm2": "smollm2-135m"}  # the name that --model takes
PEAK, BANDWIDTH = 989e12, 3.35e12  # FLOP/s in bfloat16 and bytes/s of one H100 SXM, by its data sheet


def published():
    """{name: {published, released, config}} of the models whose configurations this chapter keeps as data."""
    return read_json(CONFIGS)["models"]


def config_named(source: str) -> Config:
    """The Config of a published model by its name here, of "embedded", or of a folder or a `config.json`; raises BadInput."""
    models = published()
    name = ALIASES.get(source, source)
    if name in models:
        return general(read_config(models[name]["config"], name))
    if source != "embedded" and not Path(source).exists():
        raise BadInput(f"no config {source}: give a config.json, its folder, embedded, or one of {', '.join(models)}")
    return general(load_config(source))


def serving_row(name, config, tokens=8192, batch=32, bytes_per_number=2):
    """What a model takes to serve `batch` sequences of `tokens` positions: parameters, FLOPs, bytes.

    A model made for fewer positions is counted at as many as it has. flops: of one token at that context. step_bytes: what one
    decode step has to read, all weights that the batch uses and every cache, for each of its tokens.
    """
    context = min(max(tokens, 1), config.n_positions)
    counts, active = parameter_count(config), parameter_count(config, active=True)
    cache = cache_bytes(config, context, batch, bytes_per_number)
    weights = counts["total"] * bytes_per_number
    step = decode_step(config, context - 1, batch, bytes_per_number)
    return {
        "model": name,
        "parameters": counts["total"],
        "active": active["total"],
        "flops_per_token": flops_per_token(config, context)["total"],
        "kv_bytes_per_token": kv_bytes_per_token(config, bytes_per_number),
        "context": context,
        "weight_bytes": weights,
        "cache_bytes": cache,
        "memory_bytes": weights + cache,
        "step_bytes_per_token": round(step["bytes"] / batch),
    }


def serving_table(names=None, tokens=8192, batch=32, bytes_per_number=2):
    """`serving_row` of every published model, the cheapest to hold first."""
    rows = [serving_row(n, config_named(n), tokens, batch, bytes_per_number) for n in (names or published())]
    return sorted(rows, key=lambda r: r["memory_bytes"])


# ------------------------------------------------------------------------------------------------------------- one decode step


def decode_step(config, context, batch=1, bytes_per_number=2):
    """One new token for each of `batch` sequences that have `context` positions cached: {operations, flops, bytes, ...}.

    operations: [{operation, times, flops, weight_bytes, cache_bytes, written_bytes, activation_bytes}], each for all its `times`
    together. The new token attends over context + 1 positions, its own included; it reads the cached ones and writes its own.
    Weights are read once a step, whatever the batch; of a mixture as many experts as the batch is expected to choose, if all are
    equally likely: E (1 - (1 - k/E)^batch). Activations are what an operation reads and writes of the new tokens' vectors. FLOPs
    are those of the matmuls, as in `flops_per_token`; latent attention is absorbed.
    """
    if batch < 1 or context < 0:
        raise BadInput(f"a batch of {batch} with {context} positions cached; give 1 sequence or more, and 0 positions or more")
    B, n, d, L = batch, bytes_per_number, config.n_embd, config.n_layer
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

    def of_norm(times, where, width=d):
        add(f"{config.norm} norm {where}", times, vectors=2 * width if config.norm == "layer" else width, moved=2 * width)

    add("embedding", 1, vectors=B * d * (2 if config.positions == "learned" else 1), moved=d)
    if config.embedding_norm:
        of_norm(1, "of the embedding")
    per_layer = {"pre": 1, "post": 1, "both": 2}[config.norm_place]
    of_norm(L * per_layer, "at attention")
    h, q, kv = config.n_head, config.n_head * config.query_width, 0 if config.latent else config.kv_heads * config.head_width
    biased = {part: part in config.biases for part in ("qkv", "o", "mlp")}
    if config.latent:
        norms = config.latent.kv_rank + (config.latent.q_rank or 0)
        add(
            "latent projections but o",
            L,
            attention_matrices(config) - h * config.latent.value * d,
            vectors=norms,
            moved=d + q + norms,
        )
    else:
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            add(f"{part} projection", L, d * width, vectors=width * biased["qkv"], moved=d + width)
        if config.qk_norm:
            add("norms of q and k", L, vectors=2 * config.head_width, moved=2 * (q + kv))
    if config.positions == "rope":
        add("rotation of q and k", L, moved=2 * (h + 1) * config.latent.turned if config.latent else 2 * (q + kv))
    add("append to the cache", L, written=B * L * cached_numbers(config))
    held = sum(seen(config, i, context + 1) - 1 for i in range(L))  # without the new position itself
    width = 2 * config.latent.kv_rank + config.latent.turned if config.latent else config.query_width + config.value_width
    add("attention over the cache", L, flops=2 * B * h * width * (held + L), cached=B * held * cached_numbers(config), moved=2 * q)
    add("o projection", L, h * config.value_width * d, vectors=d * biased["o"], moved=h * config.value_width + d)
    add("residual additions", 2 * L, moved=3 * d)
    of_norm(L * per_layer, "at feed-forward")
    dense = sum(not config.has_experts(i) for i in range(L))
    if dense:
        part = network_matrices(config, config.inner_width)
        biases = (config.inner_width * (2 if config.gated else 1) + d) * biased["mlp"]
        add("feed-forward matrices", dense, part, vectors=biases, moved=2 * d + (3 if config.gated else 1) * config.inner_width)
    if L - dense:
        e, one = config.experts, network_matrices(config, config.experts.width)
        touched = e.count * (1 - (1 - e.active / e.count) ** B)
        add("routing", L - dense, e.count * d, moved=d + e.count)
        read, used = touched + e.shared, e.active + e.shared
        work = 2 * B * used * one * (L - dense)
        add(f"experts ({used} a token)", L - dense, read * one, flops=work, moved=used * (2 * d + 3 * e.width))
    if config.final_norm:
        of_norm(1, "before the head")
    add("head", 1, d * config.vocab_size, moved=d + config.vocab_size)
    add("softmax and choice", 1, moved=2 * config.vocab_size)
    totals = {key: sum(r[key] for r in rows) for key in rows[0] if key not in ("operation", "times")}
    traffic = totals["weight_bytes"] + totals["cache_bytes"] + totals["written_bytes"]
    return {"context": context, "batch": B, "bytes_per_number": n, "operations": rows, **totals, "bytes": traffic}


def step_times(step, peak=PEAK, bandwidth=BANDWIDTH):
    """Seconds that the step's FLOPs take at `peak` FLOP/s and its bytes at `bandwidth` bytes/s; which is longer, and how often.

    bytes: weights and cache read, and what is appended; activations are left out, since they stay on the chip.
    """
    compute, memory = step["flops"] / peak, step["bytes"] / bandwidth
    bound = "memory" if memory >= compute else "compute"
    return {
        "compute_s": compute,
        "memory_s": memory,
        "bound": bound,
        "ratio": max(compute, memory) / min(compute, memory),
        "tokens_per_s": step["batch"] / max(compute, memory),
    }


def window_rows(names=("mistral-7b", "gemma-2-9b", "gemma-3-1b"), tokens=32768, bytes_per_number=2):
    """The cache of one request of `tokens` with the windows of each config and without: bytes, and how many more fit."""
    rows = []
    for name in names:
        config = config_named(name)
        capped, full = (cache_bytes(x, tokens, bytes_per_number=bytes_per_number) for x in (config, replace(config, windows=())))
        rows.append(
            {
                **{
                    "model": name,
                    "tokens": tokens,
                    "window": next(w for w in config.windows if w),
                    "windows": options_of(config)["window"],
                },
                **{
                    "layers_with_window": sum(w is not None for w in config.windows),
                    "layers": config.n_layer,
                    "made_for": config.n_positions,
                },
                **{"full_bytes": full, "windowed_bytes": capped, "times_as_many": full / capped},
            }
        )
    return rows
