"""What each operation of a pass multiplies and moves, and the time that a machine's two rates allow it.

A pass feeds T new positions of B sequences that have S - T cached. It is divided as chapter 4's trace divides it, so that every row
here has a measured time of its own. FLOPs are those of the matmuls, 2 a multiply-add, of the full rectangle of scores; the rest is
counted in bytes only. Bytes are what the plain program moves if every tensor operator reads its operands from memory and writes its
result there: weights once a pass, vectors and scores once for each operator that touches them, keys and values as the cache has
them. A cache of the processor keeps some of it from memory, so these are the most; `least_bytes` is the least: weights, the cache,
and no scores or vectors at all. Shapes: B batch, T new positions, S positions seen, d width, h heads, g with keys and values,
dh head width, f feed-forward width, V vocabulary, L layers.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model" (2009), is the source of `bound`.
"""

from examples.ch02.config import NORMS, Config, GPT2Config, general
from examples.lab.script import BadInput

OPERATIONS = {  # the traced points at which each ends; the time since the point before belongs to it
    "embedding": ("embedding",),
    "norms": ("norm_1", "norm_2", "final_norm"),
    "q, k and v": ("q", "k", "v"),
    "scores": ("scores",),
    "softmax": ("A",),
    "values and output": ("attention",),
    "residual additions": ("residual_mid", "residual"),
    "feed-forward in": ("hidden",),
    "feed-forward out": ("mlp",),
    "output projection": ("logits",),
}
KINDS = ("weight_bytes", "vector_bytes", "score_bytes", "cache_bytes")
NORM_PASSES = {"layer": 13, "rms": 9}  # times that the numbers of a vector go in or out, of all operators of a norm
ACTIVATION_PASSES = {"gelu_new": 20, "gelu": 9, "silu": 8, "relu": 2, "tanh": 2}  # of f numbers a position, likewise
SOFTMAX_PASSES = 2  # of the scores: one operator, in one and out one


def operations(config: GPT2Config | Config, new: int, past: int = 0, batch: int = 1, number: int = 4, weight: float | None = None):
    """Rows [{operation, times, flops, weight_bytes, vector_bytes, score_bytes, cache_bytes, bytes, intensity}] of a pass.

    new: T, positions of each of `batch` sequences that have `past` cached. number: bytes of a number of the computation; weight:
    of a stored weight, where that is another (4.5 bits: 0.5625). times: how often the operation is done; all else is of all times
    together. cache_bytes: keys and values that are read, and the new ones written; without a past they count as vectors, since no
    cache is there. intensity: FLOPs per byte. Logits are made at every new position; `last_only` of `totals` leaves the others out.
    Raises BadInput for less than one new position or sequence, and for mixtures and latent attention, which are not counted here.
    """
    if new < 1 or batch < 1 or past < 0:
        raise BadInput(f"{batch} sequences of {new} new positions behind {past}; give 1 or more, 1 or more, 0 or more")
    c = general(config)
    if c.latent or c.experts:
        raise BadInput(f"a {c.model_type} with experts or latent attention is not counted here; give another config")
    B, T, S, n, w = batch, new, past + new, number, number if weight is None else weight
    d, f, L, h, dh, V = c.n_embd, c.inner_width, c.n_layer, c.n_head, c.head_width, c.vocab_size
    q, kv = h * dh, c.kv_heads * dh  # widths of all queries, and of all keys
    N = B * T  # positions computed
    seen = [S if (window := c.window(layer)) is None else min(S, window + T - 1) for layer in range(L)]
    pairs = B * h * T * sum(seen)  # scores of all layers
    norms = sum(name is not None for name in NORMS[c.norm_place]) * L + c.final_norm + c.embedding_norm
    gains = 2 * d if c.norm == "layer" else d
    biased = {part: part in c.biases for part in ("qkv", "o", "mlp")}
    ins = 2 if c.gated else 1  # matrices that lead into the feed-forward network
    turned = (q + kv) if c.rope else 0
    rows = []

    def add(operation, times, matrix=0, vectors=0, moved=0, scores=0, cached=0, flops=None):
        flops = 2 * matrix * N * times if flops is None else flops
        parts = (w * (matrix + vectors) * times, n * moved, n * scores, n * cached)
        whole = sum(parts)
        kinds = dict(zip(KINDS, map(round, parts), strict=True))
        rows.append(
            {"operation": operation, "times": times, "flops": flops, **kinds, "bytes": round(whole), "intensity": flops / whole}
        )

    tables = 2 if c.positions == "learned" else 1
    add("embedding", 1, vectors=N * d * tables, moved=N * d)
    add("norms", norms, vectors=gains, moved=norms * N * d * NORM_PASSES[c.norm])
    # in: the normalised vector, out: queries, keys and values; a bias reads and writes them again, and so does a rotation, 5 times
    out = q + 2 * kv
    add("q, k and v", L, d * out, out * biased["qkv"], L * N * (d + out + 2 * out * biased["qkv"] + 10 * turned))
    # queries are scaled and read; keys are read from the cache, or as vectors where nothing is cached; the mask is one operator
    keys = B * kv * sum(seen)
    masked = 2 if T > 1 else 0
    appended = 4 * L * N * kv if past else 0  # new keys and values in and out
    fresh = keys if not past else 0
    add("scores", L, moved=3 * L * N * q + fresh, scores=(1 + masked) * pairs, cached=appended + keys - fresh, flops=2 * dh * pairs)
    add("softmax", L, scores=SOFTMAX_PASSES * pairs)
    mixed = 4 * q + d * (1 + 2 * biased["o"])  # mixed values out, put side by side, in again; the sum out, and the bias
    add(
        "values and output",
        L,
        q * d,
        d * biased["o"],
        L * N * mixed + fresh,
        pairs,
        keys - fresh,
        2 * N * q * d * L + 2 * dh * pairs,
    )
    add("residual additions", 2 * L, moved=2 * L * N * 3 * d)
    inner = ins * f * (1 + 2 * biased["mlp"]) + f * ACTIVATION_PASSES[c.activation] + (3 * f if c.gated else 0)
    add("feed-forward in", L, ins * d * f, ins * f * biased["mlp"], L * N * (ins * d + inner))
    add("feed-forward out", L, f * d, d * biased["mlp"], L * N * (f + d * (1 + 2 * biased["mlp"])))
    add("output projection", 1, d * V, moved=N * (d + V))
    return rows


def totals(rows, last_only: bool = False, new: int = 1) -> dict:
    """{flops, weight_bytes, vector_bytes, score_bytes, cache_bytes, bytes, least_bytes} of the rows of a pass.

    last_only: with logits at the last of the `new` positions only. least_bytes: weights and cache.
    """
    parts = {key: sum(_share(r, key, last_only, new) for r in rows) for key in ("flops", *KINDS, "bytes")}
    return parts | {"least_bytes": parts["weight_bytes"] + parts["cache_bytes"]}


def bound(flops: float, bytes: float, flop_per_s: float, bytes_per_s: float) -> dict:
    """The least time that a machine with these two rates needs: {compute_s, memory_s, seconds, limit}.

    seconds: the longer of the two, as if all arithmetic were done while bytes are moved; limit: which one that is.
    """
    compute, memory = flops / flop_per_s, bytes / bytes_per_s
    limit = "memory" if memory >= compute else "arithmetic"
    return {"compute_s": compute, "memory_s": memory, "seconds": max(compute, memory), "limit": limit}


def pass_bound(rows, rates: dict, kind: str = "bytes", last_only: bool = False, new: int = 1) -> dict:
    """The least time of a pass whose operations run one after the other: the sum of each one's own `bound`.

    rates: {"flop_per_s", "bytes_per_s"}. kind: "bytes", or "least_bytes" for weights and cache alone. Returns {seconds, limit,
    arithmetic_s, memory_s}: the last two are how much of `seconds` either limits, and limit names the larger.
    """
    parts = {"arithmetic": 0.0, "memory": 0.0}
    for r in rows:
        moved = _share(r, "bytes", last_only, new) if kind == "bytes" else r["weight_bytes"] + r["cache_bytes"]
        found = bound(_share(r, "flops", last_only, new), moved, rates["flop_per_s"], rates["bytes_per_s"])
        parts[found["limit"]] += found["seconds"]
    limit = max(parts, key=parts.get)
    return {"seconds": sum(parts.values()), "limit": limit, "arithmetic_s": parts["arithmetic"], "memory_s": parts["memory"]}


def _share(row, key, last_only, new):
    """A row's value, of the output projection that of one position in `new` where only the last is wanted; weights are whole."""
    if not (last_only and row["operation"] == "output projection"):
        return row[key]
    if key == "bytes":
        return row["weight_bytes"] + (row["bytes"] - row["weight_bytes"]) / new
    return row[key] if key == "weight_bytes" else row[key] / new
