"""Checks of ch11.3: caches, capacity and the rate of a batch."""

from scripts.grading.answers import Mutant


def cases(draw):
    for _ in range(9):
        sizes = {"layers": draw.whole(2, 40), "kv_heads": draw.whole(1, 12), "head_width": draw.choice([32, 64, 128])}
        yield "the cache", "cache_bytes", {**sizes, "tokens": draw.whole(1, 900), "number": draw.choice([1, 2, 4])}
    for weights, cache, memory in ((100, 10, 150), (100, 10, 159), (100, 10, 100), (100, 10, 109), (100, 30, 99), (100, 30, 20)):
        yield "what fits", "fits", {"weights": weights, "cache": cache, "memory": memory}
    for _ in range(5):
        weights = draw.whole(200, 900)
        yield "what fits", "fits", {"weights": weights, "cache": draw.whole(3, 40), "memory": weights + draw.whole(50, 900)}
    for weights, cache in ((100, 10), (100, 30), (7, 9), (90, 90)):
        yield "what outweighs", "outweigh", {"weights": weights, "cache": cache}
    for _ in range(6):
        yield "what outweighs", "outweigh", {"weights": draw.whole(200, 900), "cache": draw.whole(3, 40)}
    for batch in (1, 1, 2, 3, 8, 16, 40, 100, 250):
        sizes = {"weights": draw.whole(200, 900), "cache": draw.whole(3, 40), "batch": batch}
        yield "the rate", "tokens_per_s", {**sizes, "bytes_per_s": draw.uniform(1e3, 1e4)}


TOLERANCE = 1e-7

MUTANTS = [
    Mutant("keys are counted and values are not", "return 2 * layers", "return layers"),
    Mutant("the cache is that of one layer", "2 * layers * kv_heads", "2 * kv_heads"),
    Mutant("numbers are counted, not bytes", "* tokens * number", "* tokens"),
    Mutant("the weights are left out: they take memory too", "(memory - weights) // cache", "memory // cache"),
    Mutant(
        "where the weights alone do not fit, the count is below 0",
        "max(0, (memory - weights) // cache)",
        "(memory - weights) // cache",
    ),
    Mutant(
        "the count is rounded up, so that the last sequence does not fit",
        "(memory - weights) // cache",
        "-(-(memory - weights) // cache)",
    ),
    Mutant(
        "a memory that is filled to the last byte is taken for too small",
        "(memory - weights) // cache",
        "(memory - weights - 1) // cache",
    ),
    Mutant(
        "this is the most sequences whose caches do not outweigh the weights, one fewer", "weights // cache + 1", "weights // cache"
    ),
    Mutant("caches that are just as large as the weights do not outweigh them", "weights // cache + 1", "-(-weights // cache)"),
    Mutant(
        "every sequence reads the weights again; a batch shares them",
        "(weights + batch * cache)",
        "(batch * weights + batch * cache)",
    ),
    Mutant("one cache is read for the whole batch; each sequence has its own", "(weights + batch * cache)", "(weights + cache)"),
    Mutant("this is the rate of one sequence, not of all", "return batch * bytes_per_s", "return bytes_per_s"),
    Mutant("the caches are not counted as read", "(weights + batch * cache)", "weights"),
]

RANGES = {"fit": (29, 29), "outweigh": (15, 15)}
MISTAKES = {
    "fit": [
        (44, 45, "the weights are left out"),
        (30, 30, "the last one does not fit whole"),
        (32, 33, "the L40S has 48 times 10^9 bytes"),
    ],
    "outweigh": [(14, 14, "these do not outweigh the weights yet")],
}

RUBRIC = """
1 point: with half of the bytes twice as many fit, since the weights stay, and the number that outweighs them doubles.
1 point: tokens per second of all rise where the caches are most of what is read, and hardly for one sequence.
"""
