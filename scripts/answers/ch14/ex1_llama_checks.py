"""Checks of ch14.1: the parts of a Llama, and the whole."""

import torch

from scripts.grading.answers import Mutant

HEADS = ((1, 4, 2, 5, 4), (2, 6, 2, 3, 6), (2, 3, 3, 4, 4), (1, 8, 1, 6, 8), (3, 6, 3, 1, 4))  # B, h, g, T, dh
WHOLE = {  # d, f, L, h, g, dh, tied; None: the field is missing
    "the pass": ((8, 12, 2, 2, 2, None, False), (16, 10, 3, 4, 2, None, False), (24, 9, 1, 6, 2, None, False)),
    "the pass, the output matrix tied": ((16, 12, 2, 4, 2, None, True), (8, 6, 1, 2, 1, None, True)),
    "the pass, with a head_dim of its own": ((12, 10, 2, 4, 2, 6, False), (20, 14, 2, 3, 1, 4, False)),
    "the pass, no num_key_value_heads": ((8, 12, 2, 2, None, None, False), (12, 7, 1, 3, None, None, None)),
}


def tiny(draw, d, f, L, h, g, dh, tied, V=13, dtype=torch.float32):
    """(weights, config) of a random Llama."""
    kept = {"num_key_value_heads": g, "head_dim": dh, "tie_word_embeddings": tied}
    config = {"vocab_size": V, "hidden_size": d, "intermediate_size": f, "num_hidden_layers": L, "num_attention_heads": h}
    config |= {"rms_norm_eps": draw.choice((0.02, 0.1)), "rope_theta": draw.choice((50.0, 300.0, 7000.0)), "model_type": "llama"}
    config |= {name: value for name, value in kept.items() if value is not None}
    g, dh = g or h, dh or d // h
    shapes = {"self_attn.q_proj": (h * dh, d), "self_attn.k_proj": (g * dh, d), "self_attn.v_proj": (g * dh, d)}
    shapes |= {"self_attn.o_proj": (d, h * dh), "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f)}
    weights = {"model.embed_tokens.weight": draw.normal(V, d, dtype=dtype)}
    for layer in range(L):
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{layer}.{name}.weight"] = 1 + draw.normal(d, scale=0.3, dtype=dtype)
        for name, shape in shapes.items():
            weights[f"model.layers.{layer}.{name}.weight"] = draw.normal(*shape, scale=1.5 * shape[1] ** -0.5, dtype=dtype)
    weights["model.norm.weight"] = 1 + draw.normal(d, scale=0.3, dtype=dtype)
    return weights | ({} if tied else {"lm_head.weight": draw.normal(V, d, scale=0.5, dtype=dtype)}), config


def angles(draw, T, planes):
    turned = draw.normal(T, planes, scale=2.0)
    return {"cos": turned.cos(), "sin": turned.sin()}


def cases(draw):
    for shape in ((1, 1, 8), (2, 5, 6), (3, 1, 7), (4, 9)):
        x = 0.7 + draw.normal(*shape, scale=draw.uniform(0.2, 2.0))
        yield "RMS norm", "rms_norm", {"x": x, "gain": 1 + draw.normal(shape[-1], scale=0.4), "epsilon": draw.choice((1e-5, 0.1))}
    x, gain = draw.normal(2, 3, 4, dtype=torch.float64), draw.normal(4, dtype=torch.float64)
    yield "RMS norm", "rms_norm", {"x": x, "gain": gain, "epsilon": 0.5}
    for T, dh, theta in ((1, 4, 100.0), (9, 8, 10_000.0), (5, 6, 300.0), (12, 16, 500_000.0)):
        positions = draw.whole(1, 40) + torch.arange(T)
        yield "the angles", "rotation", {"positions": positions, "dh": dh, "theta": theta}
    for check, function in (("the rotation", "rotate"), ("the interleaved rotation", "rotate_interleaved")):
        for B, heads, _, T, dh in HEADS:
            yield check, function, {"x": draw.normal(B, heads, T, dh), **angles(draw, T, dh // 2)}
        yield check, function, {"x": draw.normal(2, 3, 4, 6, dtype=torch.float64), **angles(draw, 4, 3)}
    for B, h, g, T, dh in HEADS:
        like = {"k": draw.normal(B, g, T, dh), "v": draw.normal(B, g, T, dh)}
        yield "attention", "attention", {"q": draw.normal(B, h, T, dh, scale=2.0), **like}
    for shape, f in (((1, 1, 4), 6), ((2, 3, 5), 5), ((3, 2, 6), 9)):
        like = {
            name: draw.normal(*two) for name, two in (("gate", (f, shape[-1])), ("up", (f, shape[-1])), ("down", (shape[-1], f)))
        }
        yield "the gated network", "feed_forward", {"x": draw.normal(*shape), **like}
    for check, shapes in WHOLE.items():
        for shape in shapes:
            weights, config = tiny(draw, *shape)
            for B, T in ((1, 1), (2, 6)):
                yield check, "forward", {"ids": draw.ids(13, B, T), "weights": weights, "config": config}
    weights, config = tiny(draw, 8, 6, 2, 2, 1, None, False, dtype=torch.float64)
    yield "the pass in float64", "forward", {"ids": draw.ids(13, 2, 4), "weights": weights, "config": config}


TURNED = "[first * cos - second * sin, second * cos + first * sin]"
MUTANTS = [
    Mutant("RMS norm divides by the root of the sum of squares, not of their mean", "(x * x).mean(", "(x * x).sum("),
    Mutant(
        "the mean is taken off, as in layer norm; RMS norm centres nothing",
        "    return gain * x *",
        "    x = x - x.mean(-1, keepdim=True)\n    return gain * x *",
    ),
    Mutant(
        "epsilon is added to the root, not within it",
        "torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)",
        "(1 / ((x * x).mean(-1, keepdim=True).sqrt() + epsilon))",
    ),
    Mutant("epsilon is missing from the norm", ".mean(-1, keepdim=True) + epsilon", ".mean(-1, keepdim=True)"),
    Mutant("the norm has no gain", "gain * x *", "x *"),
    Mutant("one is added to the gain, as in Gemma's norm", "gain * x *", "(1 + gain) * x *"),
    Mutant(
        "theta has the wrong sign in its exponent: later planes turn faster, not more slowly",
        "theta ** (-torch.arange(0, dh, 2) / dh)",
        "theta ** (torch.arange(0, dh, 2) / dh)",
    ),
    Mutant("the exponent is -i / dh for plane i; it is -2 i / dh", "torch.arange(0, dh, 2)", "torch.arange(0, dh // 2)"),
    Mutant("the exponent is over dh / 2, so that the planes slow down twice as fast", "dh, 2) / dh)", "dh, 2) / (dh / 2))"),
    Mutant("positions are counted from 1, not as they are given", "positions[:, None] *", "(1 + positions[:, None]) *"),
    Mutant("cosines and sines are exchanged", "angles.cos(), angles.sin()", "angles.sin(), angles.cos()"),
    Mutant("the rotation turns the wrong way round", TURNED, "[first * cos + second * sin, second * cos - first * sin]"),
    Mutant(
        "both halves have a minus: that is no rotation, it changes lengths",
        TURNED,
        "[first * cos - second * sin, second * cos - first * sin]",
    ),
    Mutant(
        "`rotate` turns neighbouring numbers, 2 i and 2 i + 1; its planes are numbers i and i + dh / 2",
        "first, second = x.chunk(2, dim=-1)",
        "first, second = x[..., 0::2], x[..., 1::2]",
        (
            (
                "torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)",
                "torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)",
            ),
        ),
    ),
    Mutant(
        "the pairs of `rotate` are right, and their results are put side by side instead of half a head apart",
        "torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)",
        "torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)",
    ),
    Mutant(
        "`rotate_interleaved` turns numbers half a head apart, as `rotate` does",
        "even, odd = x[..., 0::2], x[..., 1::2]",
        "return rotate(x, cos, sin)",
    ),
    Mutant(
        "the interleaved pairs are right, and their results stand in halves, not each where it came from",
        "torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)",
        "torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1)",
    ),
    Mutant(
        "query head i reads key head i modulo g; it is i // (h / g): repeat each head, not the row of heads",
        "k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)",
        "k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)",
    ),
    Mutant(
        "the heads of keys are grouped as they should be, and those of values are not",
        "v.repeat_interleave(group, dim=1)",
        "v.repeat(1, group, 1, 1)",
    ),
    Mutant("the scores are divided by dh, not by its root", "math.sqrt(q.shape[-1])", "q.shape[-1]"),
    Mutant("the scores are not divided by the root of dh", " / math.sqrt(q.shape[-1])", ""),
    Mutant("there is no mask: right for T = 1 only", "scores.masked_fill(hidden, -math.inf)", "scores"),
    Mutant("the mask hides the position itself", ".triu(1)", ".triu(0)", (("dim=-1) @ v", "dim=-1).nan_to_num() @ v"),)),
    Mutant("the mask shows one position too many: a position sees the next one", "triu(1)", "triu(2)"),
    Mutant("gate and up are exchanged: SiLU is on the wrong one", "silu(x @ gate.T) * (x @ up.T)", "silu(x @ up.T) * (x @ gate.T)"),
    Mutant(
        "SiLU is taken of the product of gate and up, not of the gate alone",
        "silu(x @ gate.T) * (x @ up.T)",
        "silu((x @ gate.T) * (x @ up.T))",
    ),
    Mutant("the gate passes the sigmoid alone; SiLU is z times the sigmoid of z", "silu(x @ gate.T)", "torch.sigmoid(x @ gate.T)"),
    Mutant("the gate passes GELU, not SiLU", "silu(x @ gate.T)", "torch.nn.functional.gelu(x @ gate.T)"),
    Mutant("gate and up are added, not multiplied", "silu(x @ gate.T) * (x @ up.T)", "silu(x @ gate.T) + (x @ up.T)"),
    Mutant(
        "the width of a head is always d / h; a head_dim in the config comes first", 'config.get("head_dim") or config', "config"
    ),
    Mutant(
        "the token table is always the output matrix, whatever tie_word_embeddings says",
        'table if config.get("tie_word_embeddings") else weights["lm_head.weight"]',
        "table",
    ),
    Mutant(
        "where tie_word_embeddings is missing it is taken for true",
        'config.get("tie_word_embeddings")',
        'config.get("tie_word_embeddings", True)',
    ),
    Mutant(
        "lm_head.weight is read whether the config ties it or not; a tied model has none",
        'table if config.get("tie_word_embeddings") else weights["lm_head.weight"]',
        'weights["lm_head.weight"]',
    ),
    Mutant(
        "num_key_value_heads is read as if it were always there; where it is missing it is h",
        'config.get("num_key_value_heads") or h',
        'config["num_key_value_heads"]',
    ),
    Mutant("theta is always 10,000, whatever the config says", 'config["rope_theta"]', "10000.0"),
    Mutant("epsilon is a constant; it is the config's rms_norm_eps", 'config["rms_norm_eps"]', "1e-6"),
    Mutant(
        "values are turned as well; only queries and keys are",
        "rotate(k, cos, sin), v)",
        "rotate(k, cos, sin), rotate(v, cos, sin))",
    ),
    Mutant("queries are turned and keys are not", "rotate(k, cos, sin), v)", "k, v)"),
    Mutant("the pass has no rotation at all", "attention(rotate(q, cos, sin), rotate(k, cos, sin), v)", "attention(q, k, v)"),
    Mutant(
        "heads and positions are not exchanged before the heads are put side by side",
        "mixed.transpose(1, 2).reshape",
        "mixed.reshape",
    ),
    Mutant("attention reads the stream itself, not its normalised copy", 'n = rms_norm(x, of["input_layernorm"], eps)', "n = x"),
    Mutant(
        "the network reads what attention read, not the stream behind attention",
        'n = rms_norm(x, of["post_attention_layernorm"], eps)',
        "pass",
    ),
    Mutant(
        "the norm before the network has the gain of the norm before attention",
        'of["post_attention_layernorm"]',
        'of["input_layernorm"]',
    ),
    Mutant("what attention makes replaces the stream; it is added to it", "x = x + mixed", "x = mixed"),
    Mutant("what the network makes replaces the stream; it is added to it", "x = x + feed_forward", "x = feed_forward"),
    Mutant("the final norm is missing", '    x = rms_norm(x, weights["model.norm.weight"], eps)\n', ""),
    Mutant(
        "these are the logits of the last position; those of all are asked for", "return x @ output.T", "return x[:, -1] @ output.T"
    ),
    Mutant("the first sequence of a batch stands for all", "x = table[ids]", "x = table[ids[:1]].repeat(B, 1, 1)"),
    Mutant(
        "the token table is changed in place, and whoever called has another now", "x = table[ids]", "x = table.mul_(1.001)[ids]"
    ),
    Mutant(
        "the pass turns everything to float32 on the way",
        "x = table[ids]",
        "weights = {name: w.float() for name, w in weights.items()}\n    x = table[ids].float()",
        (("output = table if", "output = table.float() if"),),
    ),
]

RANGES = {"largest_difference": (1e-8, 1e-3), "positions_interleaved": (1, 1)}
MISTAKES = {
    "largest_difference": [
        (3, 100, "as large as logits are: the rotation is of the other pairs, a matrix is transposed, or theta is not the config's")
    ],
    "positions_interleaved": [
        (0, 0, "one position does agree: that at which nothing is turned"),
        (2048, 2048, "all agree: the pass still turns numbers half a head apart, or both files and pass are in the other order"),
    ],
}

RUBRIC = """
1 point: the bound is stated before the comparison, and the largest difference is given for each text, at the last position too.
1 point: interleaved rotations agree at position 0 only, because there no angle turns anything, in either form.
"""
