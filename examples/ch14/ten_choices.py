"""The choices in which families of transformers differ, in words: the options of a config, and what it computes line by line."""

from examples.ch02.config import Config

_ACTIVATIONS = {"gelu_new": "GELU, tanh form", "gelu": "GELU, exact", "silu": "SiLU"}


def options_of(config: Config) -> dict[str, str]:
    """{choice: option}: which of the table's options a config takes in each of the ten choices."""
    act = _ACTIVATIONS.get(config.activation, config.activation)
    attention = "MLA" if config.latent else {1: "MQA", config.n_head: "MHA"}.get(config.kv_heads, "GQA")
    windows = set(config.windows) or {None}
    return {
        "normalisation": {"rms": "RMS norm", "layer": "layer norm"}[config.norm],
        "its place": config.norm_place,
        "positions": {"rope": "RoPE", "alibi": "ALiBi"}.get(config.positions, config.positions),
        "attention": attention,
        "activation": f"gated {act}" if config.gated else act,
        "feed-forward": "mixture of experts" if any(map(config.has_experts, range(config.n_layer))) else "dense",
        "head": "tied" if config.tie_word_embeddings else "untied",
        "biases": {("qkv", "o", "mlp"): "present", ("qkv",): "on q, k and v", (): "absent"}.get(
            config.biases, " and ".join(config.biases)
        ),
        "window": "full" if windows == {None} else "interleaved" if None in windows else "sliding",
        "q and k norm": "yes" if config.qk_norm else "no",
    }


def explain(config: Config) -> list[str]:
    """Which computation a config is, line by line in the order of the pass: a list of sentences."""
    chosen = options_of(config)
    lines = [
        f"{config.n_layer} layers of width {config.n_embd:,} on a vocabulary of {config.vocab_size:,}; made for up to "
        f"{config.n_positions:,} positions."
    ]
    start = "The stream starts as the token's row of the table"
    if config.embedding_scale != 1:
        start += f", times {config.embedding_scale:.6g}, the square root of the width"
    if config.positions == "learned":
        start += ", plus the position's row of a second, learned table"
    if config.positions == "sinusoidal":
        start += f", plus sines and cosines of the position, which are counted from {config.first_position} and stored nowhere"
    lines.append(start + (", and is then layer-normalised" if config.embedding_norm else "") + ".")
    gains = ", gains stored as what they differ from 1" if config.unit_gain else ""
    kind = f"{chosen['normalisation']} (epsilon {config.norm_eps:g}{gains})"
    where = {
        "pre": "each of the two sublayers reads a normalised copy of the stream and adds to the stream itself",
        "post": "each of the two sublayers reads the stream and adds to it, and the sum is normalised",
        "both": "each of the two sublayers reads a normalised copy, and what it adds is normalised before it is added",
    }[config.norm_place]
    final = "there is one more norm before the head" if config.final_norm else "there is no norm before the head"
    lines.append(f"{kind[0].upper()}{kind[1:]}: {where}; {final}.")
    lines += _explain_attention(config, chosen) + _explain_feed_forward(config, chosen)
    biases = {"present": "Every matrix of a layer has a bias", "absent": "No matrix has a bias"}
    lines.append(biases.get(chosen["biases"], f"Biases: {chosen['biases']}") + ".")
    head = (
        "The token's table, transposed, gives the logits" if config.tie_word_embeddings else "A matrix of its own gives the logits"
    )
    lines.append(head + (f", bent by tanh to stay within {config.logit_cap:g}" if config.logit_cap else "") + ".")
    return lines


def _explain_attention(config, chosen):
    if config.latent:
        m = config.latent
        queries = f"queries from a vector of {m.q_rank:,}, " if m.q_rank else ""
        lines = [
            f"Attention: MLA, {config.n_head} heads; {queries}keys and values from one of {m.kv_rank:,}; a query and a key have "
            f"{m.plain} numbers without position and {m.turned} that turn, the key's the same for all heads; a value has {m.value}."
        ]
    else:
        shared = "" if chosen["attention"] == "MHA" else f", each shared by {config.n_head // config.kv_heads} heads of queries"
        width = (
            ""
            if config.head_width * config.n_head == config.n_embd
            else f" ({config.n_head} x {config.head_width}, not the width {config.n_embd:,})"
        )
        kv = f"{config.kv_heads} of keys and values{shared}" if config.kv_heads > 1 else "one of keys and values, shared by all"
        lines = [f"Attention: {chosen['attention']}, {config.n_head} heads of {config.head_width} numbers{width}, {kv}."]
    if config.qk_norm:
        lines.append("Each head's query and key are RMS-normalised by themselves before they turn.")
    if config.positions == "rope":
        lines.append(_explain_rope(config))
    if config.positions == "alibi":
        lines.append("Positions: ALiBi, a slope for each head is taken from the score for every position of distance.")
    plain = config.query_width**-0.5
    scale = plain if config.score_scale is None else config.score_scale
    more = "" if abs(scale - plain) < 1e-12 else f", not 1 / sqrt({config.query_width}) = {plain:.6g}"
    cap = f", and bent by tanh to stay within {config.score_cap:g}" if config.score_cap else ""
    by_layer = ", and divided by the layer's number" if config.score_scale_by_layer else ""
    wide = "; they are of float32 even where weights are narrower" if config.wide_scores else ""
    lines.append(f"Scores are multiplied by {scale:.6g}{more}{by_layer}{cap}{wide}.")
    if chosen["window"] == "full":
        lines.append("A position sees itself and all before it.")
    else:
        w = next(w for w in config.windows if w)
        some = sum(x is not None for x in config.windows)
        which = "every layer" if some == config.n_layer else f"{some} of {config.n_layer} layers, the others see everything before"
        lines.append(f"A position sees {w:,} positions, itself included, in {which}.")
    return lines


def _explain_rope(config):
    def one(rope):
        extra = {"default": "", "linear": f", all frequencies divided by {rope.factor:g}"}.get(
            rope.kind, f", slow frequencies divided by {rope.factor:g} ({rope.kind})"
        )
        return f"theta {rope.theta:,.0f}{extra}"

    pairs = "neighbouring numbers" if config.interleaved else "numbers half a head apart"
    more = f"; in layers with a window {one(config.window_rope)}" if config.window_rope else ""
    return f"Positions: RoPE turns queries and keys, {pairs} in pairs, {one(config.rope)}{more}."


def _explain_feed_forward(config, chosen):
    parts = 3 if config.gated else 2
    lines = []
    dense = config.n_layer if config.experts is None else min(config.experts.first_dense, config.n_layer)
    if dense:
        which = f" in the first {dense} layers" if dense < config.n_layer else ""
        lines.append(f"Feed-forward{which}: {chosen['activation']}, {parts} matrices, inner width {config.inner_width:,}.")
    if dense < config.n_layer:
        e = config.experts
        shared = f", and {e.shared} more for every token" if e.shared else ""
        soft = e.routing == "softmax"
        route = "a softmax over all" if soft else "a logistic score each, with a bias to choose by"
        route += ", the chosen ones renormalised" if e.renormalise else ""
        route += f", times {e.scale:g}" if e.scale != 1 else ""
        groups = f", from the best {e.best_groups} of {e.groups} groups" if e.groups > 1 else ""
        one = f"{e.count} experts ({chosen['activation']}, inner width {e.width:,})"
        after = " after them" if e.first_dense else ""
        lines.append(f"Feed-forward{after}: {one}, {e.active} for each token{shared}; routed by {route}{groups}.")
    return lines
