"""Parameters, FLOPs and cache of any of the fourteen families, in closed form, from the choices alone.

Conventions, chapter 4's: a multiply-add is 2 FLOPs; matmuls only, the output projection with them, look-ups and norms without; a
context is what one new token attends over, itself included, and nothing is halved for the mask. A window caps a layer's context.
A mixture counts as *active* the experts that one token takes, the shared ones and the router. Latent attention is counted in one
of two forms, both exact: "expanded", in which each position's keys and values are made once and kept for every head, as no program
here keeps them, and "absorbed", in which only the short vector is kept, and the matrices that would expand it act on the query and
on the result.
"""

from examples.ch02.config import NORMS, Config
from examples.ch10 import kv_cache
from examples.lab.script import BadInput

FORMS = ("absorbed", "expanded")


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
