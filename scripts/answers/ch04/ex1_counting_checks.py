"""Checks of ch04.1: the shapes of a layer, and the count."""

from scripts.grading.answers import Mutant

DEPTHS = (1, 2, 3, 7, 12)


def configs(draw):
    for i, L in enumerate(DEPTHS):
        inner = None if i % 2 else draw.whole(5, 300)
        sizes = {"vocab_size": draw.whole(30, 60_000), "n_positions": draw.whole(8, 2000), "n_embd": draw.whole(1, 900)}
        yield {**sizes, "n_layer": L, "n_inner": inner}


def cases(draw):
    for check, function in (("the shapes of a layer", "layer_shapes"), ("the count", "parameter_count")):
        for config in configs(draw):
            yield check, function, {"config": config}
        for config in configs(draw):
            yield f"{check}, no bias in attention", function, {"config": config, "attention_bias": False}


MUTANTS = [
    Mutant(
        "the matrices are [out, in], as torch's modules have them; GPT-2's files have [in, out]",
        "[[d, 3 * d], [3 * d], [d, d], [d]]",
        "[[3 * d, d], [3 * d], [d, d], [d]]",
        (("[[d, 3 * d], [d, d]]", "[[3 * d, d], [d, d]]"), ("[d, f], [f], [f, d], [d]]", "[f, d], [f], [d, f], [d]]")),
    ),
    Mutant(
        "without bias in attention only the first of its two biases is left out",
        "[[d, 3 * d], [d, d]]",
        "[[d, 3 * d], [d, d], [d]]",
        (("else 0", "else d"),),
    ),
    Mutant(
        "the shapes of attention stay the same without its biases: the table must change as well as the count",
        "if not attention_bias:",
        "if False:",
    ),
    Mutant(
        "the count of attention stays the same without its biases: the count must change as well as the table",
        "if attention_bias else 0",
        "if True else 0",
    ),
    Mutant(
        "the bias of queries, keys and values is d wide, and should be there for all three",
        "[3 * d], [d, d], [d]]",
        "[d], [d, d], [d]]",
        (("bias = 4 * d", "bias = 2 * d"),),
    ),
    Mutant(
        "the width of the feed-forward network is taken as 4 d whatever the config says",
        '    f = config["n_inner"] or 4 * d\n    bias',
        "    f = 4 * d\n    bias",
        (('    f = config["n_inner"] or 4 * d\n    attention', "    f = 4 * d\n    attention"),),
    ),
    Mutant("the final norm is not counted", "L * 4 * d + 2 * d", "L * 4 * d"),
    Mutant("a layer has two norms, and one is counted", "L * 4 * d + 2 * d", "L * 2 * d + 2 * d"),
    Mutant("the norms have a gain and a shift, and one of the two is counted", "L * 4 * d + 2 * d", "L * 2 * d + d"),
    Mutant("the biases of the feed-forward network are missing from the count", "2 * d * f + f + d", "2 * d * f"),
    Mutant(
        "the output projection is counted beside the token embedding, with which it is shared",
        '"total": sum(counts.values())',
        '"total": sum(counts.values()) + V * d',
    ),
    Mutant(
        "the position table is missing from the total",
        '"total": sum(counts.values())',
        '"total": sum(counts.values()) - counts["position_embedding"]',
    ),
    Mutant(
        "only one layer is counted",
        "L * (4 * d * d + bias)",
        "(4 * d * d + bias)",
        (("L * (2 * d * f", "(2 * d * f"), ("L * 4 * d +", "4 * d +")),
    ),
]

RUBRIC = """
1 point: both tables, with the count equal to the tensors at all five depths; each layer adds the same number.
1 point: 4 d parameters a layer fall away, and why both the table of tensors and the formula must change.
"""
