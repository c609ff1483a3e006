"""What a config.json says."""


def choices(config):
    family, L, h = config["model_type"], config["num_hidden_layers"], config["num_attention_heads"]
    g = config.get("num_key_value_heads") or h
    W, first = 0, 0
    if family in ("mistral", "mixtral"):
        W = config.get("sliding_window") or 0
    if family in ("qwen2", "qwen3") and config.get("use_sliding_window"):
        W, first = config["sliding_window"], config["max_window_layers"]
    biases = "qkv" if family == "qwen2" else ""
    if family in ("llama", "qwen3") and config.get("attention_bias"):
        biases = "qkvo"
    mixture = family == "mixtral"
    return {
        "attention": "MHA" if g == h else "MQA" if g == 1 else "GQA",
        "group": h // g,
        "head_width": config.get("head_dim") or config["hidden_size"] // h,
        "tied": bool(config.get("tie_word_embeddings")),
        "biases": biases,
        "windows": [0 if layer < first else W for layer in range(L)],
        "experts": config["num_local_experts"] if mixture else 1,
        "active_experts": config["num_experts_per_tok"] if mixture else 1,
    }


def shape(config):
    V, d, f, L = (config[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"))
    h = config["num_attention_heads"]
    return V, d, f, L, h, config.get("num_key_value_heads") or h


def matrices(config, active):
    (_, d, f, _, h, g), found = shape(config), choices(config)
    attention = d * found["head_width"] * (2 * h + 2 * g)
    router = d * found["experts"] if config["model_type"] == "mixtral" else 0
    taken = found["active_experts"] if active else found["experts"]
    return attention, 3 * d * f * taken + router


def parameter_count(config, active=False):
    (V, d, _, L, h, g), found = shape(config), choices(config)
    dh = found["head_width"]
    attention, network = matrices(config, active)
    bias = {"": 0, "qkv": dh * (h + 2 * g), "qkvo": dh * (h + 2 * g) + d}[found["biases"]]
    inner = 2 * dh if config["model_type"] == "qwen3" else 0
    counts = {
        "token_table": V * d,
        "attention": L * (attention + bias),
        "feed_forward": L * network,
        "norms": L * (2 * d + inner) + d,
        "output": 0 if found["tied"] else V * d,
    }
    return {**counts, "total": sum(counts.values())}


def flops_per_token(config, context):
    (V, d, _, L, h, _), found = shape(config), choices(config)
    seen = sum(min(context, W or context) for W in found["windows"])
    return 2 * (L * sum(matrices(config, True)) + V * d) + 4 * h * found["head_width"] * seen


def kv_bytes_per_token(config, bytes_per_number=2):
    _, _, _, L, _, g = shape(config)
    return 2 * L * g * choices(config)["head_width"] * bytes_per_number


def memory_gib(config, context, batch, bytes_per_number=2):
    per_layer = kv_bytes_per_token(config, bytes_per_number) / config["num_hidden_layers"]
    kept = sum(min(context, W or context) for W in choices(config)["windows"])
    return (parameter_count(config)["total"] * bytes_per_number + batch * per_layer * kept) / 2**30
