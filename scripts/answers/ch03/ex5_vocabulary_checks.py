"""Checks of ch03.5: the table's share, the vocabulary for a share, and both uses of the table."""

import torch

from scripts.grading.answers import Mutant


def shape(draw):
    return {"d": draw.whole(30, 300), "layers": draw.whole(1, 12), "positions": draw.whole(50, 900)}


def cases(draw):
    for tied in (True, False):
        check = "tied" if tied else "not tied"
        for _ in range(5):
            yield f"the share, {check}", "embedding_share", {"V": draw.whole(2000, 50_000), **shape(draw), "tied": tied}
        for _ in range(9):
            yield (
                f"the vocabulary for a share, {check}",
                "vocabulary_for",
                {"share": draw.uniform(0.1, 0.9), **shape(draw), "tied": tied},
            )
    for V, T in ((5, 1), (9, 7), (30, 4)):
        yield "one-hot rows", "one_hot", {"ids": draw.ids(V, T), "V": V}
    yield "one-hot rows of an id that stands there twice", "one_hot", {"ids": draw.ids(6, 1).expand(3).clone(), "V": 6}
    for B, T, V, d in ((1, 1, 5, 3), (2, 6, 4, 4), (3, 2, 9, 5)):
        table = draw.normal(V, d)
        yield "the look-up", "look_up", {"ids": draw.ids(V, B, T), "table": table}
        yield "the scores", "scores", {"x": draw.normal(B, T, d), "table": table}
    double = draw.normal(7, 3, dtype=torch.float64)
    yield "in float64", "look_up", {"ids": draw.ids(7, 2, 3), "table": double}
    yield "in float64", "scores", {"x": draw.normal(1, 4, 3, dtype=torch.float64), "table": double}


TOLERANCE = {"the vocabulary for a share, tied": 1e-7, "the vocabulary for a share, not tied": 1e-7}

MUTANTS = [
    Mutant("the position table is missing from the model", "positions * d + layers", "layers"),
    Mutant("the layers' biases and norms are missing", "(12 * d**2 + 13 * d)", "(12 * d**2)"),
    Mutant("the last norm is missing", " + 2 * d\n", "\n"),
    Mutant("a layer has 12 d^2 in its matrices; these are the feed-forward network's alone", "(12 * d**2", "(8 * d**2"),
    Mutant("a head that is not tied is left out of the model", "(1 if tied else 2) * V * d", "V * d"),
    Mutant("a tied head is counted as a second table", "(1 if tied else 2) * V * d", "2 * V * d"),
    Mutant(
        "of a head that is not tied the first number counts as well; it is the embedding table's alone",
        "[V * d, (1",
        "[V * d * (1 if tied else 2), (1",
    ),
    Mutant(
        "whole model and table are in the other order",
        "return [V * d, (1 if tied else 2) * V * d + rest]",
        "return [(1 if tied else 2) * V * d + rest, V * d]",
        (("layers, positions)[1]", "layers, positions)[0]"),),
    ),
    Mutant("the second number is the rest without the table", "(1 if tied else 2) * V * d + rest", "rest + (0 if tied else V * d)"),
    Mutant("the share is taken of the rest, not of the whole model", "share / (1 - share)", "share"),
    Mutant("the head that is not tied does not count for the share", " / (1 if tied else 2)", ""),
    Mutant("these are the table's parameters, not its rows", "* rest / d /", "* rest /"),
    Mutant(
        "the result is rounded to a whole number",
        "    return share / (1 - share) * rest / d / (1 if tied else 2)",
        "    return float(round(share / (1 - share) * rest / d / (1 if tied else 2)))",
    ),
    Mutant("the share is left over for the rest: 1 less the share has been taken", "share / (1 - share)", "(1 - share) / share"),
    Mutant(
        "the 1 stands in the row of the id, not in its column",
        "rows = torch.zeros(len(ids), V)\n    rows[torch.arange(len(ids)), ids] = 1.0\n    return rows",
        "rows = torch.zeros(V, len(ids))\n    rows[ids, torch.arange(len(ids))] = 1.0\n    return rows",
    ),
    Mutant("every row has a 1 for every id of the text", "rows[torch.arange(len(ids)), ids] = 1.0", "rows[:, ids] = 1.0"),
    Mutant(
        "the one-hot rows are whole numbers; float32 is asked for",
        "torch.zeros(len(ids), V)",
        "torch.zeros(len(ids), V, dtype=torch.int64)",
    ),
    Mutant("the ids are counted from 1", "return table[ids]", "return table[ids - 1]"),
    Mutant("the look-up holds for a batch of one only", "return table[ids]", "return table[ids[0]][None]"),
    Mutant(
        "columns of the table are taken, not rows",
        "return table[ids]",
        "return table.T[ids % table.shape[1]][..., : table.shape[1]]",
    ),
    Mutant("the scores are turned to probabilities", "return x @ table.T", "return (x @ table.T).softmax(-1)"),
    Mutant("the scores are divided by the root of d", "return x @ table.T", "return x @ table.T / table.shape[1] ** 0.5"),
    Mutant("the scores are those of the last position alone", "return x @ table.T", "return x[:, -1:] @ table.T"),
    Mutant(
        "everything is turned to float32 on the way",
        "return table[ids]",
        "return table.float()[ids]",
        (("return x @ table.T", "return x.float() @ table.float().T"),),
    ),
    Mutant(
        "the sizes are those of GPT-2 small, whatever is given",
        "    rest = positions",
        "    d, layers, positions = 768, 12, 1024\n    rest = positions",
    ),
]

RANGES = {"half_tied": (111_774, 111_774), "half_untied": (55_887, 55_887), "share_200000_percent": (64.1, 64.2)}
MISTAKES = {
    "half_tied": [
        (110_592, 110_592, "the layers' matrices are not all of the rest: biases, norms and the position table are missing")
    ],
    "half_untied": [(111_774, 111_774, "this is the table alone; the head has as many parameters")],
    "share_200000_percent": [(78.0, 78.3, "this is table and head of one that is not tied")],
}

RUBRIC = """
1 point: the curve V d / (V d + rest), which rises ever more slowly, with the rest written out; untied, 2 V d stands in both places.
1 point: to choose V one has to measure what texts of the use take in tokens, and loss per byte and time of models of equal size.
"""
