"""Intensity, bound and the rows at the ridge."""

import math


def intensity(rows, n, m, number):
    return 2 * rows * n * m / (number * (rows * n + n * m + rows * m))


def bound(flops, moved, flop_per_s, bytes_per_s):
    compute, memory = flops / flop_per_s, moved / bytes_per_s
    return max(compute, memory), "arithmetic" if compute > memory else "memory"


def rows_at_ridge(n, m, number, ridge):
    gained = 2 * n * m - ridge * number * (n + m)
    if gained <= 0:
        return 0
    return math.ceil(ridge * number * n * m / gained)
