"""Checks of ch14.3: the operations of a decode step, their sums, and their times."""

from scripts.grading.answers import Mutant

CHECKS = {
    "the token rows and the norms": ("embedding", "norms"),
    "the projections": ("q projection", "k projection", "v projection", "o projection"),
    "what is appended": ("append to the cache",),
    "attention over the cache": ("attention over the cache",),
    "the feed-forward network": ("feed-forward matrices",),
    "the head": ("head",),
}
LOADS = ((0, 1), (5, 1), (16, 3), (2000, 8), (300, 64))  # positions cached, sequences


def configs(draw):
    for i, (h, g) in enumerate(((4, 2), (9, 3), (5, 5), (8, 1), (6, 2))):
        dh = 2 * draw.whole(2, 64)
        fields = {
            "vocab_size": draw.whole(300, 60_000),
            "intermediate_size": draw.whole(60, 9000),
            "tie_word_embeddings": i % 2 == 0,
        }
        fields |= {"num_hidden_layers": draw.whole(1, 40), "num_attention_heads": h, "num_key_value_heads": g}
        yield fields | ({"hidden_size": h * dh} if i < 3 else {"hidden_size": draw.whole(100, 900) * 2, "head_dim": dh})


def cases(draw):
    for check, names in CHECKS.items():
        for (context, batch), config in zip(LOADS, configs(draw), strict=True):
            for name in names:
                like = {"context": context, "batch": batch, "bytes_per_number": draw.choice((1, 2, 4))}
                yield check, "operation", {"name": name, "config": config, **like}
    for (context, batch), config in zip(LOADS, configs(draw), strict=True):
        yield (
            "the whole step",
            "step",
            {"config": config, "context": context, "batch": batch, "bytes_per_number": draw.choice((1, 2, 4))},
        )
    for count, bound in ((1, 0), (2, 1), (5, 0), (9, 1), (3, 1)):
        rows = [[draw.whole(0, 9000) * 10**6, draw.whole(0, 9000) * 10**5] for _ in range(count)]
        rows[0][bound] *= 20  # decides which rate binds the whole
        yield (
            "the times",
            "seconds",
            {"operations": rows, "flop_per_s": draw.uniform(3e10, 9e10), "bytes_per_s": draw.uniform(4e9, 8e9)},
        )
    for _ in range(8):
        yield "tokens per second", "tokens_per_s", {"batch": draw.whole(2, 64), "step_s": draw.uniform(0.2, 4.0)}


TOLERANCE = {"the times": 1e-7, "tokens per second": 1e-7}
MUTANTS = [
    Mutant("a multiply-add counts one FLOP; it is two", "flops = 2 * batch * matrix", "flops = batch * matrix"),
    Mutant(
        "the FLOPs of the matrices are those of one sequence, whatever the batch",
        "flops = 2 * batch * matrix",
        "flops = 2 * matrix",
    ),
    Mutant(
        "weights are read once for each sequence; a step reads them once for all",
        "weights = matrix + gains",
        "weights = matrix * batch + gains",
    ),
    Mutant("the token table is read whole; only the rows of the new tokens are", '"embedding": batch * d', '"embedding": V * d'),
    Mutant("one row of the token table is read, whatever the batch", '"embedding": batch * d', '"embedding": d'),
    Mutant("the final norm is forgotten", "(2 * L + 1) * d", "2 * L * d"),
    Mutant("there is one norm a layer in the trace; there are two", "(2 * L + 1) * d", "(L + 1) * d"),
    Mutant(
        "the look-up in the token table is given FLOPs; it multiplies nothing",
        "    held, written = 0, 0",
        '    flops += 2 * batch * V * d * (name == "embedding")\n    held, written = 0, 0',
    ),
    Mutant(
        "keys are projected to h heads; there are g of them", '"k projection": L * d * g * dh', '"k projection": L * d * h * dh'
    ),
    Mutant(
        "values are projected to h heads; there are g of them", '"v projection": L * d * g * dh', '"v projection": L * d * h * dh'
    ),
    Mutant(
        "queries are projected to g heads; there are h of them", '"q projection": L * d * h * dh', '"q projection": L * d * g * dh'
    ),
    Mutant("the output projection is d times d; it is h dh times d", '"o projection": L * h * dh * d', '"o projection": L * d * d'),
    Mutant(
        "the width of a head is always d / h; a head_dim in the config comes first", 'config.get("head_dim") or d // h', "d // h"
    ),
    Mutant("the feed-forward network is counted with two matrices; with a gate it has three", "L * 3 * d * f", "L * 2 * d * f"),
    Mutant(
        "the lines are those of one layer, not of all",
        '"feed-forward matrices": L * 3 * d * f',
        '"feed-forward matrices": 3 * d * f',
        (
            ('"q projection": L *', '"q projection":'),
            ('"k projection": L *', '"k projection":'),
            ('"v projection": L *', '"v projection":'),
            ('"o projection": L *', '"o projection":'),
            ("4 * batch * L *", "4 * batch *"),
            ("held = 2 * batch * L *", "held = 2 * batch *"),
            ("written = 2 * batch * L *", "written = 2 * batch *"),
        ),
    ),
    Mutant("the head is in every layer; there is one", '"head": V * d', '"head": L * V * d'),
    Mutant(
        "a tied head is not counted; tying saves memory, and no reading and no arithmetic",
        '"head": V * d',
        '"head": 0 if config.get("tie_word_embeddings") else V * d',
    ),
    Mutant("the new token does not attend to itself: its own position is missing from the FLOPs", "(context + 1)", "context"),
    Mutant("scores and mixture are counted as one product; they are two", "flops = 4 * batch", "flops = 2 * batch"),
    Mutant(
        "scores and mixture are counted for g heads; heads share keys, not products",
        "L * h * dh * (context",
        "L * g * dh * (context",
    ),
    Mutant("attention's FLOPs do not grow with the batch", "flops = 4 * batch *", "flops = 4 *"),
    Mutant("the cache is read for h heads; it holds g", "held = 2 * batch * L * g", "held = 2 * batch * L * h"),
    Mutant("keys are read and values are not", "held = 2 * batch", "held = batch"),
    Mutant("one sequence's cache is read; each has its own", "held = 2 * batch * L", "held = 2 * L"),
    Mutant("the new position is read from the cache; it is written by this step", "g * dh * context\n", "g * dh * (context + 1)\n"),
    Mutant("keys are appended and values are not", "written = 2 * batch", "written = batch"),
    Mutant(
        "each step writes the whole cache; it appends one position",
        "written = 2 * batch * L * g * dh",
        "written = 2 * batch * L * g * dh * (context + 1)",
    ),
    Mutant("one sequence's new position is appended; each has its own", "written = 2 * batch * L", "written = 2 * L"),
    Mutant("what is appended is counted as a read of the cache", "        written = 2", "        held = 2"),
    Mutant("weights always have two bytes, whatever was asked for", "weights * bytes_per_number", "weights * 2"),
    Mutant(
        "the cache always has two bytes a number, whatever was asked for",
        "held * bytes_per_number, written * bytes_per_number",
        "held * 2, written * 2",
    ),
    Mutant(
        "these are numbers, not bytes",
        "[flops, weights * bytes_per_number, held * bytes_per_number, written * bytes_per_number]",
        "[flops, weights, held, written]",
    ),
    Mutant("the head is missing from the sum", "for name in OPERATIONS]", "for name in OPERATIONS[:-1]]"),
    Mutant("the token rows are missing from the sum", "for name in OPERATIONS]", "for name in OPERATIONS[1:]]"),
    Mutant(
        "the time of the whole is the sum of both; if everything overlaps it is the larger",
        "max(compute, memory)",
        "compute + memory",
    ),
    Mutant("the time of the whole is the smaller of the two", "max(compute, memory)", "min(compute, memory)"),
    Mutant("bytes are taken for what always binds", "max(compute, memory)", "memory"),
    Mutant(
        "one by one is the same as the whole; each operation has a larger time of its own",
        "sum(max(flops / flop_per_s, size / bytes_per_s) for flops, size in operations)",
        "max(compute, memory)",
    ),
    Mutant(
        "one by one adds both times of an operation; it is the larger",
        "sum(max(flops / flop_per_s, size / bytes_per_s) for flops, size in operations)",
        "compute + memory",
    ),
    Mutant(
        "the two rates are exchanged",
        "    compute = sum(",
        "    flop_per_s, bytes_per_s = bytes_per_s, flop_per_s\n    compute = sum(",
    ),
    Mutant(
        "the times are milliseconds",
        "    compute = sum(",
        "    flop_per_s, bytes_per_s = flop_per_s / 1e3, bytes_per_s / 1e3\n    compute = sum(",
    ),
    Mutant("a step gives one token, whatever the batch; it gives each sequence one", "batch / step_s", "1 / step_s"),
    Mutant("these are seconds per token; tokens per second are asked for", "batch / step_s", "step_s / batch"),
]

RANGES = {
    "mflop": (407.23, 407.31),
    "weight_mb": (538.02, 538.1),
    "cache_mb": (92.1, 92.3),
    "measured_over_predicted": (0.6, 12),
}
MISTAKES = {
    "mflop": [
        (315.0, 315.2, "scores and mixture are counted for g heads; heads share keys, not products"),
        (350.55, 350.75, "the head is missing: a tied output matrix is multiplied all the same"),
        (407.195, 407.205, "the new token does not attend to itself"),
    ],
    "weight_mb": [
        (424.78, 424.86, "the head is missing: a tied output matrix is read all the same"),
        (651.27, 651.35, "the token table is read whole; only the row of the new token is"),
        (269.0, 269.07, "this is at two bytes a number; float32 has four"),
    ],
    "cache_mb": [
        (276.4, 276.6, "the cache is read for h heads; it holds g"),
        (46.0, 46.2, "keys without values, or two bytes a number in place of four"),
    ],
}

RUBRIC = """
1 point: the trace of the chosen step, batch and context named, with its sums, and which operation reads most.
1 point: two measured rates with how they were measured (threads, sizes, warm-up), and the predicted time beside the measured one.
1 point: an account of the ratio, and a second measurement that could refute it: another context, batch, or one operation alone.
"""
