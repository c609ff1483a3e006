"""A decode step in FLOPs and bytes."""

OPERATIONS = (
    *("embedding", "norms", "q projection", "k projection", "v projection", "append to the cache", "attention over the cache"),
    *("o projection", "feed-forward matrices", "head"),
)


def operation(name, config, context, batch, bytes_per_number):
    V, d, f, L = (config[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"))
    h, g = config["num_attention_heads"], config["num_key_value_heads"]
    dh = config.get("head_dim") or d // h
    matrix = {
        "q projection": L * d * h * dh,
        "k projection": L * d * g * dh,
        "v projection": L * d * g * dh,
        "o projection": L * h * dh * d,
        "feed-forward matrices": L * 3 * d * f,
        "head": V * d,
    }.get(name, 0)
    gains = {"embedding": batch * d, "norms": (2 * L + 1) * d}.get(name, 0)
    flops = 2 * batch * matrix
    held, written = 0, 0
    if name == "attention over the cache":
        flops = 4 * batch * L * h * dh * (context + 1)
        held = 2 * batch * L * g * dh * context
    if name == "append to the cache":
        written = 2 * batch * L * g * dh
    weights = matrix + gains
    return [flops, weights * bytes_per_number, held * bytes_per_number, written * bytes_per_number]


def step(config, context, batch, bytes_per_number):
    rows = [operation(name, config, context, batch, bytes_per_number) for name in OPERATIONS]
    return [sum(column) for column in zip(*rows, strict=True)]


def seconds(operations, flop_per_s, bytes_per_s):
    compute = sum(flops for flops, _ in operations) / flop_per_s
    memory = sum(size for _, size in operations) / bytes_per_s
    return {
        "compute": compute,
        "memory": memory,
        "whole": max(compute, memory),
        "one_by_one": sum(max(flops / flop_per_s, size / bytes_per_s) for flops, size in operations),
    }


def tokens_per_s(batch, step_s):
    return batch / step_s
