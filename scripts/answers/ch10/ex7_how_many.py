"""Bytes of a cache, and how many fit."""


def cache_bytes(L, g, dh, T, B, b):
    return 2 * L * g * dh * T * B * b


def sequences_that_fit(memory, parameters, weight, cache):
    left = memory - parameters * weight
    return max(0, left // cache)
