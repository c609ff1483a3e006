"""What fits beside the weights, and how fast it can be read."""


def cache_bytes(layers, kv_heads, head_width, tokens, number):
    return 2 * layers * kv_heads * head_width * tokens * number


def fits(weights, cache, memory):
    return max(0, (memory - weights) // cache)


def outweigh(weights, cache):
    return weights // cache + 1


def tokens_per_s(weights, cache, batch, bytes_per_s):
    return batch * bytes_per_s / (weights + batch * cache)
