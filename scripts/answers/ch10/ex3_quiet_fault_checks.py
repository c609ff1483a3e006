"""Checks of ch10.3: a ring buffer's slots, the first wrong position, changed argmaxes, and the shared prefix."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for capacity in (1, 3, 6):
        for fed in (0, 1, capacity - 1, capacity, capacity + 1, 2 * capacity, 3 * capacity + draw.whole(0, capacity)):
            yield "the ring's slots", "ring_slots", {"fed": fed, "capacity": capacity}
    for T in (1, 5, 9, 9, 9, 12, 12, 12):
        oracle = draw.normal(T, 7, scale=3.0)
        ours = oracle + draw.normal(T, 7, scale=1e-6)
        first = draw.whole(0, T - 1)
        ours[first:] += 0.2 * oracle.abs().max() * draw.normal(T - first, 7).sign()
        if first + 1 < T:
            ours[draw.whole(first + 1, T - 1)] += 5.0
        yield "the first wrong position", "first_wrong", {"ours": ours, "oracle": oracle, "bound": 1e-3}
        yield "no wrong position", "first_wrong", {"ours": ours, "oracle": oracle, "bound": 9.0}
    for i in range(10):  # each row is as far off, beside its own largest logit it is more or less
        T = 6
        oracle = draw.normal(T, 7).clamp(-2, 2) * torch.tensor([0.05, 0.1, 0.3, 1.0, 2.0, 3.0])[:, None]
        ours, big = oracle.clone(), oracle.abs().max()
        places, sizes = (((4, 5), (0.003, 0.02)), ((1, 3), (0.003, 0.02)), (sorted(draw.order(T)[:2]), (0.02, 0.03)))[i % 3]
        for at, size in zip(places, sizes, strict=True):
            ours[at, draw.whole(0, 6)] += size * big * draw.choice((1, -1))
        yield "a bound beside all of the oracle", "first_wrong", {"ours": ours, "oracle": oracle, "bound": 0.01}
    for T in (1, 4, 8, 8, 16, 16, 40, 40):
        oracle = draw.normal(T, 6)
        yield "changed argmaxes", "argmax_changed", {"ours": oracle + draw.normal(T, 6, scale=0.7), "oracle": oracle}
    for B in (1, 1, 1, 2, 2, 3, 3, 3):
        text = draw.ids(50, B, 12)
        other = text.clone()
        cut = draw.whole(0, 8)
        other[draw.whole(0, B - 1), cut] += 1
        yield "the shared prefix", "shared_prefix", {"held": text[:, : draw.whole(9, 12)], "ids": other}
        yield "the shared prefix of a longer or shorter text", "shared_prefix", {"held": text[:, : draw.whole(0, 7)], "ids": text}
        yield "the shared prefix of a longer or shorter text", "shared_prefix", {"held": text, "ids": text[:, : draw.whole(1, 11)]}
        yield "the shared prefix of another batch", "shared_prefix", {"held": text, "ids": torch.cat([text, text])}


MUTANTS = [
    Mutant(
        "the ring stops when it is full: nothing is written over",
        "slots[t % capacity] = t",
        "slots[t % capacity] = t if t < capacity else slots[t % capacity]",
    ),
    Mutant(
        "the slots are in the order of their positions, as a shift would leave them",
        "return slots",
        "return sorted(slots, key=lambda t: (t < 0, t))",
    ),
    Mutant("the slots hold how often they were written, not a position", "slots[t % capacity] = t", "slots[t % capacity] += 1"),
    Mutant("slots and positions are counted from 1", "slots[t % capacity] = t", "slots[t % capacity] = t + 1"),
    Mutant("the ring begins at slot 1", "slots[t % capacity] = t", "slots[(t + 1) % capacity] = t"),
    Mutant("one position too few was fed", "range(fed)", "range(fed - 1)"),
    Mutant("an empty slot is taken for position 0", "[-1] * capacity", "[0] * capacity"),
    Mutant(
        "this is the last wrong position, not the first",
        "int(far.int().argmax())",
        "len(far) - 1 - int(far.int().flip(0).argmax())",
    ),
    Mutant(
        "this is the position that is farthest off, not the first one",
        "int(far.int().argmax())",
        "int((ours - oracle).abs().amax(-1).argmax())",
    ),
    Mutant("the bound is absolute, not beside the largest logit", "bound * oracle.abs().max()", "bound"),
    Mutant(
        "the bound is beside the largest logit of the position itself",
        "bound * oracle.abs().max()",
        "bound * oracle.abs().amax(-1)",
    ),
    Mutant(
        "the magnitude of the difference is not taken: what is too small is not seen",
        "(ours - oracle).abs().amax(-1)",
        "(ours - oracle).amax(-1)",
    ),
    Mutant(
        "the mean difference of a position is compared, in which one wrong logit drowns", ".abs().amax(-1) >", ".abs().mean(-1) >"
    ),
    Mutant("where nothing is wrong, this says position 0", " if far.any() else -1", ""),
    Mutant("the positions with the same argmax are counted", "!= oracle", "== oracle"),
    Mutant("argmax is taken over the positions", "ours.argmax(-1) != oracle.argmax(-1)", "ours.argmax(0) != oracle.argmax(0)"),
    Mutant(
        "this says whether any argmax changed, not at how many positions", "oracle.argmax(-1)).sum()", "oracle.argmax(-1)).any()"
    ),
    Mutant("all equal places are counted, those behind the first difference too", "same.int().cumprod(0).sum()", "same.sum()"),
    Mutant("only the first sequence of a batch is compared", ".all(0)", "[0]"),
    Mutant("it is enough that one sequence agrees", ".all(0)", ".any(0)"),
    Mutant("the lengths are compared, not the ids", "return int(same.int().cumprod(0).sum())", "return n"),
    Mutant(
        "a text that agrees to its end counts as one position less",
        "return int(same.int().cumprod(0).sum())",
        "return min(n - 1, int(same.int().cumprod(0).sum())) if n else 0",
    ),
    Mutant(
        "a cache of one sequence is compared with each of a batch",
        "if held.shape[0] != ids.shape[0]:",
        "if held.shape[0] not in (1, ids.shape[0]):",
    ),
]

RUBRIC = """
1 point: the row: first wrong position, error there and largest, changed argmaxes; and the greedy text beside the right one.
1 point: a guard that stops the fault at the first step, with a message that says what is wrong.
1 point: what the guard costs beside the comparison with the oracle: a few integers or one layer's values, not a whole pass.
"""
