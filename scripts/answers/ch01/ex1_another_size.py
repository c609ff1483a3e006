"""The estimate: weights, FLOPs and the head's share."""


def weights(layers, d, vocabulary, positions):
    matrices, head = layers * 12 * d**2, vocabulary * d
    rest = positions * d + layers * 13 * d + 2 * d
    return {"layers": matrices, "head": head, "multiplied": matrices + head, "all": matrices + head + rest}


def position_gflop(layers, d, vocabulary, seen=0):
    attention = layers * 4 * d * seen
    return (2 * (layers * 12 * d**2 + vocabulary * d) + attention) / 1e9


def head_percent(layers, d, vocabulary, seen=0):
    return 100 * (2 * vocabulary * d / 1e9) / position_gflop(layers, d, vocabulary, seen)
