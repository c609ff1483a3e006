"""Shapes of a layer, and the count in closed form."""


def layer_shapes(config, attention_bias=True):
    d = config["n_embd"]
    f = config["n_inner"] or 4 * d
    attention = [[d, 3 * d], [3 * d], [d, d], [d]]
    if not attention_bias:
        attention = [[d, 3 * d], [d, d]]
    return [[d], [d], *attention, [d], [d], [d, f], [f], [f, d], [d]]


def parameter_count(config, attention_bias=True):
    V, d, L = config["vocab_size"], config["n_embd"], config["n_layer"]
    f = config["n_inner"] or 4 * d
    bias = 4 * d if attention_bias else 0
    counts = {
        "token_embedding": V * d,
        "position_embedding": config["n_positions"] * d,
        "attention": L * (4 * d * d + bias),
        "feed_forward": L * (2 * d * f + f + d),
        "norms": L * 4 * d + 2 * d,
    }
    return {**counts, "total": sum(counts.values())}
