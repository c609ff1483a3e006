"""Checks of ch14.4: the mask of a window, the ring, the reach, and the bytes."""

from scripts.grading.answers import Mutant


def mixed(draw, L, every, longest=40):
    """L windows, a full layer at each `every`-th place."""
    return [None if every and (i + 1) % every == 0 else draw.whole(1, longest) for i in range(L)]


def cases(draw):
    for T, window in ((1, 1), (5, 2), (7, 3), (6, 1), (4, 9)):
        yield "the mask", "window_mask", {"T": T, "S": T, "window": window}
    for T, S, window in ((1, 6, 3), (3, 8, 4), (2, 9, 2), (4, 10, draw.whole(3, 8))):
        yield "the mask of the last positions", "window_mask", {"T": T, "S": S, "window": window}
    for T, S in ((1, 1), (4, 4), (3, 7), (draw.whole(5, 8), 9)):
        yield "the mask without a window", "window_mask", {"T": T, "S": S, "window": None}
    for seen, slots in ((0, 3), (2, 4), (4, 4), (9, 4), (13, 5), (draw.whole(20, 90), 7), (3, 1)):
        yield "what the slots hold", "held_positions", {"seen": seen, "slots": slots}
    for B, g, slots, dh, seen in ((1, 1, 4, 2, 0), (2, 3, 5, 4, 3), (1, 2, 3, 4, 11), (3, 1, 6, 2, draw.whole(12, 80))):
        ring = draw.normal(B, g, slots, dh)
        yield "one new position", "write", {"ring": ring, "seen": seen, "new": draw.normal(B, g, 1, dh)}
        yield "several new positions", "write", {"ring": ring, "seen": seen, "new": draw.normal(B, g, draw.whole(2, slots), dh)}
        more = draw.normal(B, g, slots + draw.whole(1, 2 * slots), dh)
        yield "more new positions than slots", "write", {"ring": ring, "seen": seen, "new": more}
    for B, h, slots, dh, seen in ((1, 1, 4, 4, 4), (2, 3, 5, 6, 17), (1, 2, 1, 4, 3), (3, 2, 6, 2, 6)):
        like = {name: draw.normal(B, h, slots, dh) for name in ("keys", "values")}
        yield "attention over a full ring", "attend", {"q": draw.normal(B, h, dh, scale=2.0), **like, "seen": seen}
    for B, h, slots, dh, seen in ((1, 2, 4, 4, 1), (2, 3, 5, 6, 4), (3, 1, 6, 2, 3)):
        like = {name: draw.normal(B, h, slots, dh) for name in ("keys", "values")}
        yield "attention over a ring with empty slots", "attend", {"q": draw.normal(B, h, dh, scale=2.0), **like, "seen": seen}
    for L in (1, 2, 3, 5, 8, 12):
        yield "the reach of windows", "first_reached", {"windows": mixed(draw, L, 0), "position": 40 * L + draw.whole(1, 99)}
        yield "the reach of windows", "first_reached", {"windows": [draw.whole(1, 4)] * L, "position": 90}
    for position in (0, 3, 17, 250, 99):
        yield "the reach at a text's start, and of full layers", "first_reached", {"windows": [60] * 5, "position": position}
        yield (
            "the reach at a text's start, and of full layers",
            "first_reached",
            {"windows": mixed(draw, 4, 2, 6), "position": position},
        )
    for L, every, context in ((1, 0, 100), (4, 0, 30), (6, 2, 500), (8, 4, 77), (9, 3, 1), (5, 1, 64), (7, 2, 20), (12, 4, 9000)):
        like = {"g": draw.whole(1, 9), "dh": 2 * draw.whole(2, 64), "bytes_per_number": draw.choice((1, 2, 4))}
        yield "the bytes of a request", "cache_bytes", {"windows": mixed(draw, L, every), "context": context, **like}
    for _ in range(8):
        size, count = draw.whole(10**6, 10**7), draw.whole(5, 60)
        weights, rest = draw.whole(10**7, 10**9), draw.choice((0, 1, size // 3, size - 1))
        yield (
            "how many requests fit",
            "requests",
            {"memory_bytes": weights + count * size + rest, "weight_bytes": weights, "request_bytes": size},
        )
    for weights in (10**9, 10**9 - 1, 3 * 10**9):
        yield (
            "how many requests fit",
            "requests",
            {"memory_bytes": 10**9, "weight_bytes": weights, "request_bytes": draw.whole(2, 10**6)},
        )


SUM = "sum(W - 1 for W in windows)"
MUTANTS = [
    Mutant(
        "the window is one too long: it sees W positions before its own, and its own is one of W", "back >= window", "back > window"
    ),
    Mutant(
        "the window is one too short: its own position is one of W, not beside them", "back >= window", "back >= max(1, window - 1)"
    ),
    Mutant("the mask hides the position itself", "hidden = back < 0", "hidden = back <= 0"),
    Mutant(
        "the mask shows what comes, not what stands before",
        "torch.arange(S - T, S)[:, None] - torch.arange(S)",
        "torch.arange(S) - torch.arange(S - T, S)[:, None]",
    ),
    Mutant(
        "a position sees all that comes; a window does not stand in for the causal mask",
        "hidden = back < 0",
        "hidden = torch.zeros(T, S, dtype=torch.bool)",
    ),
    Mutant(
        "the queries are taken for the first T positions; they are the last T of S", "torch.arange(S - T, S)", "torch.arange(T)"
    ),
    Mutant(
        "the window also hides what stands before all windows only: the first W keys are kept for every query",
        "hidden | (back >= window)",
        "hidden | ((back >= window) & (torch.arange(S) >= window))",
    ),
    Mutant(
        "the mask is true and false or 1 and 0; it is 0 and minus infinity",
        "torch.zeros(T, S).masked_fill(hidden, -math.inf)",
        "(~hidden).float()",
    ),
    Mutant("the mask has -1e9 in place of minus infinity", "masked_fill(hidden, -math.inf)", "masked_fill(hidden, -1e9)"),
    Mutant(
        "the newest position stands in the last slot: this is a list that moves, not a ring",
        "    held = [-1] * slots\n",
        "    if seen > slots:\n        return list(range(seen - slots, seen))\n    held = [-1] * slots\n",
    ),
    Mutant("the slots are counted from 1: position 0 goes to slot 0", "held[p % slots] = p", "held[(p + 1) % slots] = p"),
    Mutant("empty slots hold 0; they hold no position, -1", "[-1] * slots", "[0] * slots"),
    Mutant(
        "a full ring keeps its first positions; new ones go over the oldest",
        "held[p % slots] = p",
        "held[p % slots] = p if held[p % slots] < 0 else held[p % slots]",
    ),
    Mutant("position `seen` is taken for written; the last is seen - 1", "for p in range(seen)", "for p in range(seen + 1)"),
    Mutant("position `seen` is missing: the first new one goes to slot seen mod slots", "(seen + i) %", "(seen + i + 1) %"),
    Mutant("writing starts at slot 0, wherever the ring stands", "(seen + i) %", "i %"),
    Mutant("only the first new position is written", "range(new.shape[2])", "range(1)"),
    Mutant("only the last new position is written", "range(new.shape[2])", "range(new.shape[2] - 1, new.shape[2])"),
    Mutant(
        "of more new positions than slots the first ones are kept; the last ones are",
        "range(new.shape[2])",
        "reversed(range(new.shape[2]))",
    ),
    Mutant("the ring is changed in place, and whoever called has another now", "ring = ring.clone()", "pass"),
    Mutant("empty slots take part in the softmax", "scores.masked_fill(empty, -math.inf)", "scores"),
    Mutant(
        "the scores of empty slots are 0; their weights have to be",
        "scores.masked_fill(empty, -math.inf)",
        "scores.masked_fill(empty, 0.0)",
    ),
    Mutant("one filled slot too few is read", ">= seen", ">= max(1, seen - 1)"),
    Mutant(
        "only the newest position's slot is read",
        "torch.arange(keys.shape[2]) >= seen",
        "torch.arange(keys.shape[2]) != (seen - 1) % keys.shape[2]",
    ),
    Mutant("the scores are not divided by the root of dh", " / math.sqrt(q.shape[-1])", ""),
    Mutant(
        "the scores are divided by the root of the slots' number, not of dh", "math.sqrt(q.shape[-1])", "math.sqrt(keys.shape[2])"
    ),
    Mutant("what is summed is the keys, not the values", "(A[..., None] * values)", "(A[..., None] * keys)"),
    Mutant("each layer is taken to reach W positions back; its own is one of them, so that it is W - 1", SUM, "sum(windows)"),
    Mutant("only one layer's window counts; each reads what the one below has read", SUM, "max(windows) - 1"),
    Mutant("the windows are multiplied; they add up", SUM, "math.prod(windows)"),
    Mutant(
        "the reach goes before position 0",
        "max(0, position - sum(W - 1 for W in windows))",
        "position - sum(W - 1 for W in windows)",
    ),
    Mutant(
        "full layers are left out of the reach; one is enough to see everything",
        "    if None in windows:\n        return 0\n",
        "    windows = [W or 1 for W in windows]\n",
    ),
    Mutant("keys are counted and values are not", "return 2 * kept", "return kept"),
    Mutant("the windows do not shorten the cache", "context if W is None else min(context, W)", "context"),
    Mutant("full layers are left out of the cache", "context if W is None else min(context, W)", "min(context, W or 0)"),
    Mutant("a layer keeps its whole window even of a shorter request", "min(context, W)", "W"),
    Mutant("a window keeps W - 1 positions; it keeps W", "min(context, W)", "min(context, W - 1)"),
    Mutant(
        "the cache is that of one layer",
        "kept = sum(context if W is None else min(context, W) for W in windows)",
        "kept = [context if W is None else min(context, W) for W in windows][0]",
    ),
    Mutant("a number always has two bytes, whatever was asked for", "dh * bytes_per_number", "dh * 2"),
    Mutant("these are numbers, not bytes", "dh * bytes_per_number", "dh"),
    Mutant("the weights are not taken off the memory", "memory_bytes - weight_bytes", "memory_bytes"),
    Mutant(
        "the number of requests is rounded to the nearest; only whole ones fit",
        "max(0, memory_bytes - weight_bytes) // request_bytes",
        "max(0, round((memory_bytes - weight_bytes) / request_bytes))",
    ),
    Mutant(
        "the number of requests is rounded up; only whole ones fit",
        "max(0, memory_bytes - weight_bytes) // request_bytes",
        "-(-max(0, memory_bytes - weight_bytes) // request_bytes)",
    ),
    Mutant(
        "fewer than no requests fit where the weights do not",
        "max(0, memory_bytes - weight_bytes)",
        "(memory_bytes - weight_bytes)",
    ),
    Mutant("this is no whole number", ") // request_bytes", ") / request_bytes"),
]

RANGES = {
    "every_layer_mib": (512, 512),
    "every_other_mib": (2304, 2304),
    "three_of_four_mib": (1408, 1408),
    "no_layer_mib": (4096, 4096),
    "requests_windowed": (53, 53),
    "requests_full": (6, 6),
}
HEADS = "the cache is counted with h heads; it keeps g"
KEYS = "keys are counted and values are not"
ALL = "the weights are not taken off the memory"
MISTAKES = {
    "every_layer_mib": [(2048, 2048, HEADS), (256, 256, KEYS)],
    "every_other_mib": [(9216, 9216, HEADS), (1152, 1152, KEYS)],
    "three_of_four_mib": [(5632, 5632, HEADS), (704, 704, KEYS), (3200, 3200, "this is the window in one of four layers")],
    "no_layer_mib": [(16384, 16384, HEADS), (2048, 2048, KEYS)],
    "requests_windowed": [(80, 80, ALL), (54, 54, "this is rounded up; only whole requests fit")],
    "requests_full": [(10, 10, ALL), (7, 7, "this is rounded; only whole requests fit")],
}

RUBRIC = """
1 point: the ratio is 8 with all layers windowed, and in the mixed cases 1.78 and 2.91, which grow towards 2 and 4 with the request,
since only the full layers go on growing.
1 point: 53 and 6 have a ratio of 8.8 and not 8, because only whole requests count and a part of the memory is left over.
"""
