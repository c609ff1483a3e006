"""Masks beside parameters."""


def parameters(positions, layers, d, vocabulary):
    return vocabulary * d + positions * d + layers * (12 * d * d + 13 * d) + 2 * d


def mask_bytes(positions, layers, each=4):
    return layers * positions**2 * each


def outweighed_from(layers, d, vocabulary, each=4):
    low, high = 0, 2**40
    while high - low > 1:
        middle = (low + high) // 2
        if mask_bytes(middle, layers, each) > 4 * parameters(middle, layers, d, vocabulary):
            high = middle
        else:
            low = middle
    return high
