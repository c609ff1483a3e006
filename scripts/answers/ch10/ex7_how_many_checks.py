"""Checks of ch10.7: bytes of a cache, and how many sequences fit."""

from scripts.grading.answers import Mutant


def cases(draw):
    for B in (1, 1, 1, 1, 1, 1, 1, 1):
        sizes = {"L": draw.whole(2, 48), "g": draw.whole(2, 30), "dh": draw.whole(16, 128), "T": draw.whole(2, 900)}
        yield "the bytes of one sequence", "cache_bytes", {**sizes, "B": B, "b": draw.choice((1, 2, 4))}
        yield "the bytes of several", "cache_bytes", {**sizes, "B": draw.whole(2, 9), "b": draw.choice((1, 2, 4))}
    for _ in range(10):
        cache, parameters, weight = draw.whole(1000, 9000), draw.whole(5000, 90_000), draw.choice((1, 2, 4))
        fit = draw.whole(3, 60)
        like = {"parameters": parameters, "weight": weight, "cache": cache}
        over = draw.whole(cache // 2 + 1, cache - 1)
        yield "how many fit", "sequences_that_fit", {"memory": parameters * weight + fit * cache + over, **like}
        yield "just enough for the last", "sequences_that_fit", {"memory": parameters * weight + fit * cache, **like}
        yield (
            "no room",
            "sequences_that_fit",
            {"memory": parameters * weight + draw.choice((-3, -1, 0)) * cache + cache // 2, **like},
        )


MUTANTS = [
    Mutant("the keys alone are counted, or the values alone", "2 * L", "L"),
    Mutant("these are numbers, not bytes", " * B * b", " * B"),
    Mutant("two bytes a number are taken, whatever b is", " * B * b", " * B * 2"),
    Mutant("one sequence is counted, whatever B is", " * T * B * b", " * T * b"),
    Mutant("one layer is counted, not all", "2 * L * g", "2 * g"),
    Mutant("the number of heads is left out: a head's width is not the model's", "L * g * dh", "L * dh"),
    Mutant("the width of a head is left out", "L * g * dh", "L * g"),
    Mutant("one token is counted, not T", "dh * T * B", "dh * B"),
    Mutant("the tokens are squared: that is the scores, not the cache", "dh * T * B", "dh * T * T * B"),
    Mutant("the weights' bytes are not taken off", "memory - parameters * weight", "memory"),
    Mutant("the parameters are taken off as if they had one byte each", "memory - parameters * weight", "memory - parameters"),
    Mutant("the weights are held once, not by each sequence", "left // cache", "memory // (cache + parameters * weight)"),
    Mutant("a part of a sequence is counted as one: this is rounded up", "left // cache", "-(-left // cache)"),
    Mutant("this is rounded to the nearest; the last has to fit whole", "left // cache", "round(left / cache)"),
    Mutant("where a sequence fits exactly it is left out", "left // cache", "(left - 1) // cache"),
    Mutant("where the weights do not fit, this is negative", "max(0, left // cache)", "left // cache"),
    Mutant("this is as many as outweigh what is left, one more than fit", "left // cache)", "left // cache + 1)"),
]

RANGES = {
    "weights_gib": (2.89, 2.91),
    "left_gib": (21.09, 21.11),
    "cache_mib": (300, 300),
    "sequences": (72, 72),
    "sequences_half": (144, 144),
}
MISTAKES = {
    "weights_gib": [(3.1, 3.13, "these are GB of 10^9 bytes"), (5.78, 5.83, "these are four bytes a number")],
    "cache_mib": [(150, 150, "these are the keys alone, or the values alone"), (600, 600, "these are four bytes a number")],
    "sequences": [
        (81, 82, "the weights are not taken off"),
        (73, 73, "the last of these does not fit whole"),
        (10, 11, "this is how many outweigh the weights, or fit into as much"),
        (144, 144, "these are sequences of half the bytes"),
    ],
    "sequences_half": [
        (149, 151, "the weights are halved as well; only the cache is"),
        (36, 36, "half the bytes let more fit, not fewer"),
        (163, 164, "the weights are not taken off"),
    ],
}
