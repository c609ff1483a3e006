"""What each operation of a pass multiplies and moves, and the time that a machine's two rates allow it.

A pass feeds T new positions of B sequences that have S - T cached. It is divided as chapter 4's trace divides it, so that every row
here has a measured time of its own. FLOPs are those of the matmuls, 2 a multiply-add, of the full rectangle of scores; the rest is
counted in bytes only.

Bytes are what the plain program moves if every tensor operator reads each of its operands from memory and writes its result there:
weights once a pass, vectors and scores once for each operator that touches them, keys and values as the cache has them. Views move
nothing; a copy that is made because a view would not do is counted, and of a table only the rows that are looked up. That is what
torch's dispatcher sees chapter 4's and chapter 14's Llama's programs do in float32, to the byte; the tests count it. Left out are
ids, and what a rotation does in float64 to make its frequencies. In a narrower dtype the programs widen the numbers within a norm
and narrow the mask, and move a little more than is counted here; the families of chapter 14's configurable forward have further
operators of their own, 1 per cent at most in a qwen2 and a mistral.

A cache of the processor keeps some of it from memory, so these are the most; `least_bytes` is the least: weights, the cache, and
no scores or vectors at all. Shapes: B batch, T new positions, S positions seen, d width, h heads, g with keys and values, dh head
width, f feed-forward width, V vocabulary, L layers.

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
# Times that numbers go in or out, of all operators of a kind: of the d of a position's vector in a norm, and of the one number a
# position that is a mean or a variance; of the f in an activation; of the scores in the softmax, one operator.
NORM_PASSES, NORM_SINGLES = {"layer": 12, "rms": 7}, {"layer": 8, "rms": 6}
ACTIVATION_PASSES = {"gelu_new": 20, "gelu": 11, "silu": 9, "relu": 2, "tanh": 2}
ANGLE_PASSES = 10  # of the [T, dh] angles, from their product to cosine and sine
SOFTMAX_PASSES = 2


def operations(config: GPT2Config | Config, new: int, past: int = 0, batch: int = 1, number: int = 4, weight: float | None = None):
    """Rows [{operation, times, flops, weight_bytes, vector_bytes, score_bytes, cache_bytes, bytes, intensity}] of a pass.

    new: T, positions of each of `batch` sequences that have `past` cached. number: bytes of a number of the computation; weight:
    of a stored weight, where that is another (4.5 bits: 0.5625). times: how often the operation is done; all else is of all times
    together. cache_bytes: keys and values that are read, the new ones among them, and the new ones' copy into the cache, which
    reads and writes; without a past keys and values count as vectors, since no cache is there. vector_bytes: activations and, of
    scores, copies of queries, keys and values. score_bytes: scores, weights of attention and the mask. intensity: FLOPs per byte.
    Logits are made at every new position; `last_only` of `totals` leaves the others out.
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

    # the rows looked up, in and out; positions serve all sequences, so that theirs are T, and the addition reads and writes again
    learned = c.positions == "learned"
    summed = 2 * N * d + 2 * T * d if learned else 0
    angles = ANGLE_PASSES * T * dh + 2 * T + dh if c.rope else 0  # and positions and frequencies, in and out
    add("embedding", 1, vectors=(N + T * learned) * d, moved=N * d + summed + angles)
    add("norms", norms, vectors=gains, moved=norms * N * (d * NORM_PASSES[c.norm] + NORM_SINGLES[c.norm]))
    # in: the normalised vector, for each matrix; out: queries, keys and values. A bias reads and writes them again, and a rotation
    # 5 times: half negated, two halves joined, times cosine, times sine, added
    packed = c.model_type == "gpt2"  # one matrix makes all three
    out = q + 2 * kv
    inputs = d if packed else 3 * d
    add(
        "q, k and v",
        L,
        d * out,
        out * biased["qkv"],
        L * (N * (inputs + out + 2 * out * biased["qkv"] + 10 * turned) + (4 * T * dh if c.rope else 0)),
    )
    # Queries are scaled and read; keys are read from the cache, or as vectors where nothing is cached. bmm wants the sequences and
    # heads of an operand as one axis: queries whose heads share keys are put side by side, and those of several sequences, and
    # keys and values of several sequences that come from no cache, are copied.
    copied_q = 2 * L * N * q * (T > 1 and (h > c.kv_heads or B > 1 < h))
    copied_kv = 2 * L * N * kv * (not past and B > 1 < c.kv_heads and (T > 1 or packed))
    keys = B * kv * sum(seen)
    appended = 4 * L * N * kv if past else 0  # new keys and values in and out
    fresh = keys if not past else 0
    # the mask [T, S] is compared with 0, which makes a byte a pair; both choose what a score becomes, in and out
    masked = T > 1 or not past
    mask = masked * T * sum(seen) * (2 + 2 / n)
    add(
        "scores",
        L,
        moved=3 * L * N * q + copied_q + copied_kv + fresh,
        scores=(1 + 2 * masked) * pairs + mask,
        cached=appended + keys - fresh,
        flops=2 * dh * pairs,
    )
    add("softmax", L, scores=SOFTMAX_PASSES * pairs)
    # mixed values out, heads put side by side, for one position or head a view, and in again; the sum out, and the bias
    mixed = (4 if T > 1 < h else 2) * q + d * (1 + 2 * biased["o"])
    add(
        "values and output",
        L,
        q * d,
        d * biased["o"],
        L * N * mixed + fresh + copied_kv,
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
