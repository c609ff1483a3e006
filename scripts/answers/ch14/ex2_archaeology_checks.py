"""Checks of ch14.2: what a config.json says, stores, multiplies and keeps."""

from scripts.grading.answers import Mutant

ODD = {  # what a config of the family has beside its shape: once for each number of layers
    "llama": ({}, {"attention_bias": True}, {"attention_bias": False, "tie_word_embeddings": True, "sliding_window": 16}),
    "mistral": ({"sliding_window": None}, {"sliding_window": 8}, {"sliding_window": 20, "tie_word_embeddings": False}),
    "mixtral": ({}, {"sliding_window": None}, {"sliding_window": 30, "tie_word_embeddings": True}),
    "qwen2": (
        {"sliding_window": 24},
        {"sliding_window": 24, "use_sliding_window": False, "max_window_layers": 1},
        {"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 2, "tie_word_embeddings": True},
    ),
    "qwen3": (
        {"attention_bias": False, "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True},
        {"attention_bias": True},
        {"use_sliding_window": True, "sliding_window": 21, "max_window_layers": 4},
    ),
}
HEADS = ((4, 2), (6, 1), (12, 3))  # h, g
NAMES = {"llama": "Llama", "mistral": "Mistral", "mixtral": "Mixtral", "qwen2": "Qwen 2", "qwen3": "Qwen 3"}
ANY = (*HEADS, (5, 5), (3, None), (8, 8))


def config(draw, family, i, heads=None, head_dim=None):
    """A config of the family with the i-th of its `ODD` fields; heads (h, g), head_dim or None for a missing field."""
    h, g = heads or HEADS[i]
    dh = 2 * draw.whole(3, 40)
    d = h * dh if head_dim is None else 2 * draw.whole(20, 400)
    fields = {
        "model_type": family,
        "vocab_size": draw.whole(300, 9000),
        "hidden_size": d,
        "intermediate_size": draw.whole(50, 3000),
    }
    fields |= {"num_hidden_layers": (3, 4, 7)[i], "num_attention_heads": h, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0}
    fields |= {} if g is None else {"num_key_value_heads": g}
    fields |= {} if head_dim is None else {"head_dim": dh}
    if family == "mixtral":
        E = draw.whole(4, 12)
        fields |= {"num_local_experts": E, "num_experts_per_tok": draw.whole(2, E - 1)}
    return fields | ODD[family][i]


def shapes(draw):
    """A Llama with each of `ANY`, with a head_dim and without."""
    for i, heads in enumerate(ANY):
        yield config(draw, "llama", i % 3, heads, head_dim=(None, True)[i // 3])
    for i in range(3):
        yield config(draw, "llama", i, ((7, 7), (16, 4), (1, 1))[i], head_dim=True)


def cases(draw):
    for made in shapes(draw):
        yield "the choices, of any heads", "choices", {"config": made}
    for family, name in NAMES.items():
        for i in range(3):
            yield f"the choices of {name}", "choices", {"config": config(draw, family, i)}
    for made in shapes(draw):
        yield "the parameters, of any heads", "parameter_count", {"config": made}
    for family, name in NAMES.items():
        for i in range(3):
            yield (
                f"the parameters of {name}",
                "parameter_count",
                {"config": config(draw, family, i, head_dim=(None, True, None)[i])},
            )
            if family == "mixtral":
                yield "its active parameters", "parameter_count", {"config": config(draw, family, i), "active": True}
    for i, made in enumerate(shapes(draw)):
        yield "FLOPs, of any heads", "flops_per_token", {"config": made, "context": (1, 7, 300, 2000)[i % 4]}
    for check, families in (("FLOPs with experts", ("mixtral",)), ("FLOPs with windows", ("mistral", "qwen2", "qwen3"))):
        for family in families:
            for i in range(3):
                for context in (1, 15, 1000):
                    yield check, "flops_per_token", {"config": config(draw, family, i), "context": context}
    for made in shapes(draw):
        yield "bytes of cache per token", "kv_bytes_per_token", {"config": made}
        yield (
            "bytes of cache per token, of another width",
            "kv_bytes_per_token",
            {"config": made, "bytes_per_number": draw.choice((1, 4))},
        )
    for i in range(3):
        yield "bytes of cache per token", "kv_bytes_per_token", {"config": config(draw, "mistral", i)}
    for i, made in enumerate(shapes(draw)):
        like = {"context": draw.whole(20, 50) * 1000, "batch": (1, 3, 32)[i % 3], "bytes_per_number": (2, 4)[i % 2]}
        yield "memory", "memory_gib", {"config": made, **like}
    for family in ("mistral", "mixtral", "qwen2", "qwen3"):
        for i in range(3):
            yield (
                "memory with windows and experts",
                "memory_gib",
                {"config": config(draw, family, i), "context": 60_000, "batch": 20},
            )
            yield "memory with windows and experts", "memory_gib", {"config": config(draw, family, i), "context": 7, "batch": 9000}


TOLERANCE = {"memory": 1e-6, "memory with windows and experts": 1e-6}
G = 'config.get("num_key_value_heads") or h\n    W'
WIDTH = 'config.get("head_dim") or config["hidden_size"] // h'
BIAS = '"qkvo": dh * (h + 2 * g) + d}'
MUTANTS = [
    Mutant("the width of a head is always d / h; where there is a head_dim it is that", WIDTH, 'config["hidden_size"] // h'),
    Mutant(
        "a missing num_key_value_heads is taken for one head; it stands for h",
        G,
        'config.get("num_key_value_heads") or 1\n    W',
        (
            (
                'return V, d, f, L, h, config.get("num_key_value_heads") or h',
                'return V, d, f, L, h, config.get("num_key_value_heads") or 1',
            ),
        ),
    ),
    Mutant(
        "MHA and GQA are told apart by g > 1; MHA is g = h",
        '"MHA" if g == h else "MQA" if g == 1 else "GQA"',
        '"MQA" if g == 1 else "MHA"',
    ),
    Mutant("the group is g / h; it is h / g", "h // g", "g // h or g"),
    Mutant(
        "a missing tie_word_embeddings is taken for true; in these families it is false",
        'config.get("tie_word_embeddings")',
        'config.get("tie_word_embeddings", True)',
    ),
    Mutant(
        "Qwen's sliding_window is used although use_sliding_window is false",
        ' and config.get("use_sliding_window")',
        ' and config.get("sliding_window")',
        (
            (
                'W, first = config["sliding_window"], config["max_window_layers"]',
                'W, first = config["sliding_window"], config.get("max_window_layers", 0)',
            ),
        ),
    ),
    Mutant(
        "Qwen's windows are in the first max_window_layers; they are in the others",
        "0 if layer < first else W",
        "W if layer < first or not first else 0",
    ),
    Mutant("Qwen's windows are in all layers; those before max_window_layers have none", "0 if layer < first else W", "W"),
    Mutant(
        "a Llama is given the window of its sliding_window, a field that plays no part there",
        '("mistral", "mixtral")',
        '("mistral", "mixtral", "llama")',
    ),
    Mutant("Qwen 2's biases on q, k and v are forgotten: no field tells of them", '"qkv" if family == "qwen2" else ""', '""'),
    Mutant(
        "Qwen 2 is given a bias on o; it has none there",
        '"qkv" if family == "qwen2" else ""',
        '"qkvo" if family == "qwen2" else ""',
    ),
    Mutant("attention_bias is taken for q, k and v only; it is o's as well", 'biases = "qkvo"', 'biases = "qkv"'),
    Mutant("attention_bias is not read", ' and config.get("attention_bias")', " and False"),
    Mutant("keys and values are counted with h heads; they have g", "(2 * h + 2 * g)", "4 * h"),
    Mutant("the output matrix of attention is forgotten: q and o both have h dh times d", "(2 * h + 2 * g)", "(h + 2 * g)"),
    Mutant("values are forgotten beside keys among the matrices", "(2 * h + 2 * g)", "(2 * h + g)"),
    Mutant("the feed-forward network is counted with two matrices; with a gate it has three", "3 * d * f", "2 * d * f"),
    Mutant("the router is forgotten", " * taken + router", " * taken"),
    Mutant(
        "all experts count, although only the active ones were asked for",
        'taken = found["active_experts"] if active else found["experts"]',
        'taken = found["experts"]',
    ),
    Mutant(
        "only the active experts are counted where all are held",
        'taken = found["active_experts"] if active else found["experts"]',
        'taken = found["active_experts"]',
    ),
    Mutant(
        "of the router only the active experts' part is counted; a token is scored for all",
        'router = d * found["experts"]',
        'router = d * found["active_experts" if active else "experts"]',
    ),
    Mutant("biases are not counted among the parameters", "L * (attention + bias)", "L * attention"),
    Mutant("the final norm is forgotten", "(2 * d + inner) + d", "(2 * d + inner)"),
    Mutant("there is one norm a layer in the count; there are two", "(2 * d + inner) + d", "(d + inner) + d"),
    Mutant("Qwen 3's norms of queries and keys are forgotten", '2 * dh if config["model_type"] == "qwen3" else 0', "0"),
    Mutant(
        "norms of queries and keys are counted for each head; the heads share one of each", "inner = 2 * dh", "inner = dh * (h + g)"
    ),
    Mutant("norms are counted with a shift, as layer norm has it", "L * (2 * d + inner) + d", "2 * (L * (2 * d + inner) + d)"),
    Mutant("a tied output matrix is counted a second time", '"output": 0 if found["tied"] else V * d', '"output": V * d'),
    Mutant(
        "the output matrix is not counted where it is the model's own", '"output": 0 if found["tied"] else V * d', '"output": 0'
    ),
    Mutant("the look-up in the token table is counted among the FLOPs", " + V * d)", " + 2 * V * d)"),
    Mutant("the output matrix is missing from the FLOPs", " + V * d)", ")"),
    Mutant(
        "a tied output matrix is left out of the FLOPs; tying saves memory and no arithmetic",
        " + V * d)",
        ' + (0 if found["tied"] else V * d))',
    ),
    Mutant("a multiply-add counts one FLOP for weights; it is two", "return 2 * (L", "return (L"),
    Mutant("scores and mixture are counted as one product; they are two, of two FLOPs each", "+ 4 * h", "+ 2 * h"),
    Mutant("scores and mixture are counted for g heads; heads share keys, not products", "4 * h *", '4 * (h // found["group"]) *'),
    Mutant("attention's FLOPs are counted with d; it is h dh", '4 * h * found["head_width"]', "4 * d"),
    Mutant("the FLOPs are those of all experts", "matrices(config, True)", "matrices(config, False)"),
    Mutant("the FLOPs know no window", 'seen = sum(min(context, W or context) for W in found["windows"])', "seen = L * context"),
    Mutant("keys are counted and values are not in the cache", "return 2 * L * g", "return L * g"),
    Mutant("the cache is counted with h heads; it keeps g", "return 2 * L * g", 'return 2 * L * config["num_attention_heads"]'),
    Mutant("the cache is that of one layer", "return 2 * L * g", "return 2 * g"),
    Mutant(
        "a number of the cache always has two bytes, whatever was asked for",
        '["head_width"] * bytes_per_number',
        '["head_width"] * 2',
    ),
    Mutant(
        "the memory knows no window",
        'kept = sum(min(context, W or context) for W in choices(config)["windows"])',
        'kept = context * config["num_hidden_layers"]',
    ),
    Mutant(
        "weights are held once for each sequence; all share them",
        '["total"] * bytes_per_number',
        '["total"] * bytes_per_number * batch',
    ),
    Mutant("the memory holds one cache, whatever the batch", "+ batch * per_layer", "+ per_layer"),
    Mutant("weights always have two bytes, whatever was asked for", '["total"] * bytes_per_number', '["total"] * 2'),
    Mutant(
        "the memory holds the active parameters only; all have to be there",
        'parameter_count(config)["total"]',
        'parameter_count(config, True)["total"]',
    ),
    Mutant("these are GB of 10^9 bytes; a GiB is 2^30", "/ 2**30", "/ 1e9"),
]

RANGES = {
    "qwen2_7b_parameters": (7_615_616_512, 7_615_616_512),
    "mixtral_8x7b_gflop": (29.78, 29.8),
    "qwen3_4b_memory_gib": (43.46, 43.52),
}
MISTAKES = {
    "qwen2_7b_parameters": [
        (7_615_487_488, 7_615_487_488, "Qwen 2's biases on q, k and v are forgotten: no field tells of them"),
        (7_615_716_864, 7_615_716_864, "Qwen 2 is given a bias on o; it has none there"),
        (7_070_619_136, 7_070_619_136, "one of the two tables is missing; this model's output matrix is not tied"),
    ],
    "mixtral_8x7b_gflop": [
        (97.43, 97.45, "these are the FLOPs of all experts; a token takes two"),
        (25.75, 25.77, "this is twice the active parameters: it counts the look-up, and no scores and mixtures"),
    ],
    "qwen3_4b_memory_gib": [
        (29.31, 29.35, "the width of a head is taken for d / h; the config has a head_dim"),
        (152.53, 152.56, "the cache is counted with h heads; it keeps g"),
        (46.68, 46.72, "these are GB of 10^9 bytes; a GiB is 2^30"),
        (25.47, 25.51, "keys are counted and values are not in the cache"),
    ],
}

RUBRIC = """
1 point: a table of five models, three of the chapter's and two others, with all four numbers for each and the load stated.
1 point: the functions and the scripts agree to the last parameter, or the field is named that was forgotten, and what it costs.
1 point: says which is cheapest to serve at this load, why (caches beside weights), and whether it is the smallest.
"""
