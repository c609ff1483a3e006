"""Checks of ch05.7: the penalty as tools have it, the right one, and repetition."""

import torch

from scripts.grading.answers import Mutant


def text(draw, V, count, length):
    some = draw.order(V)[:count]
    return [*some, *(draw.choice(some) for _ in range(length - count))]


def cases(draw):
    for check, function in (("the tools' penalty", "divided"), ("the right penalty", "penalised")):
        for V, count, length in ((9, 3, 3), (20, 6, 6), (5, 5, 5), (1, 1, 1)):
            logits = draw.normal(V, scale=3.0)
            yield check, function, {"logits": logits, "ids": text(draw, V, count, length), "constant": draw.uniform(1.1, 2.0)}
        for dtype in (torch.float64, torch.float16):
            logits = draw.normal(8, scale=3.0, dtype=dtype)
            yield check, function, {"logits": logits, "ids": text(draw, 8, 4, 4), "constant": 1.5}
        for V, count, length in ((9, 3, 8), (6, 2, 9), (12, 4, 30)):
            logits = draw.normal(V, scale=3.0)
            yield (
                f"{check} of tokens that are there often",
                function,
                {
                    "logits": logits,
                    "ids": text(draw, V, count, length),
                    "constant": draw.uniform(1.1, 2.0),
                },
            )
    for n in (1, 2, 3, 4):
        for length in (12, 30):
            body = draw.ids(3, length).tolist()
            yield "repetition", "repeated", {"ids": body, "n": n}
        yield "repetition where two runs overlap", "repeated", {"ids": [draw.whole(5, 9)] * (n + 4), "n": n}
        a, b = draw.whole(5, 6), draw.whole(7, 9)
        yield "repetition where two runs overlap", "repeated", {"ids": [a, b] * (n + 1), "n": n}
        for length in (0, 1, 2, 3):
            yield "repetition in a short text", "repeated", {"ids": [draw.whole(1, 9)] * length, "n": n}


MUTANTS = [
    Mutant(
        "the tools' penalty is right already: this divides positive logits only",
        "logits[ids] / constant",
        "torch.where(logits[ids] > 0, logits[ids] / constant, logits[ids] * constant)",
    ),
    Mutant("the tools' penalty multiplies where it divides", "logits[ids] / constant", "logits[ids] * constant"),
    Mutant(
        "a token that is there often is divided as often",
        "new[ids] = logits[ids] / constant",
        "for i in ids:\n        new[i] = new[i] / constant",
    ),
    Mutant(
        "all logits are divided, not those of the text's tokens alone",
        "new[ids] = logits[ids] / constant",
        "new = logits / constant",
    ),
    Mutant(
        "the tokens that the text does not have are divided",
        "new[ids] = logits[ids] / constant",
        "new = logits / constant\n    new[ids] = logits[ids]",
    ),
    Mutant(
        "only the last token of the text is penalised",
        "new[ids] = logits[ids] / constant",
        "new[ids[-1:]] = logits[ids[-1:]] / constant",
        (("there[ids] = True", "there[ids[-1:]] = True"),),
    ),
    Mutant("the constant is subtracted, as another penalty does", "logits[ids] / constant", "logits[ids] - constant"),
    Mutant("the logits that were given are changed in place", "new = logits.clone()", "new = logits"),
    Mutant(
        "everything is turned to float32 on the way",
        "new = logits.clone()",
        "new, logits = logits.float().clone(), logits.float()",
        (("smaller = torch", "logits = logits.float()\n    smaller = torch"),),
    ),
    Mutant("a negative logit is still divided, and its token becomes more probable", "logits * constant)", "logits / constant)"),
    Mutant("a negative logit is left as it is; it should become smaller", "logits * constant)", "logits)"),
    Mutant("positive and negative logits are exchanged", "logits > 0", "logits < 0"),
    Mutant(
        "all logits are penalised, not those of the text's tokens alone",
        "return torch.where(there, smaller, logits)",
        "return smaller",
    ),
    Mutant("the tokens that the text does not have are penalised", "there, smaller, logits", "there, logits, smaller"),
    Mutant(
        "a token that is there often is penalised as often",
        "return torch.where(there, smaller, logits)",
        "c = constant ** torch.bincount(torch.tensor(ids), minlength=len(logits))\n"
        "    return torch.where(logits > 0, logits / c, logits * c).to(logits.dtype)",
    ),
    Mutant("runs of n + 1 tokens are compared", "ids[t - n + 1 : t + 1]) if t >= n - 1", "ids[t - n : t + 1]) if t >= n"),
    Mutant("runs of n - 1 tokens are compared", "ids[t - n + 1 : t + 1]", "ids[t - n + 2 : t + 1]"),
    Mutant(
        "every run counts as seen: it is noted before it is looked up",
        "        flags.append(gram in seen)\n        if gram is not None:\n            seen.add(gram)\n",
        "        if gram is not None:\n            seen.add(gram)\n        flags.append(gram in seen)\n",
    ),
    Mutant("the first n - 1 tokens have no flag; there is one for each token", "return flags", "return flags[n - 1 :]"),
    Mutant(
        "runs that overlap do not count; they should",
        "        if gram is not None:\n            seen.add(gram)\n",
        "        if t >= 2 * n - 2:\n            seen.add(tuple(ids[t - 2 * n + 2 : t - n + 2]))\n",
    ),
    Mutant(
        "the flag marks the first token of a run, not the last",
        "return flags",
        "return flags[n - 1 :] + [False] * min(n - 1, len(flags))",
    ),
    Mutant(
        "a run of equal tokens at once is meant by repetition here; any earlier place counts",
        "gram in seen",
        "t > 0 and gram is not None and tuple(ids[t - n : t]) == gram",
    ),
    Mutant("the run is looked for in either order", "tuple(ids[t - n + 1 : t + 1])", "tuple(sorted(ids[t - n + 1 : t + 1]))"),
    Mutant("this is how often, not whether", "return flags", "return [sum(flags)]"),
]

RUBRIC = """
1 point: the share of repeated tokens with the penalty and without, in greedy and in sampled text, settings and prompts stated.
1 point: a row with negative logits: dividing them makes their tokens more probable, with the numbers before and after.
1 point: the correction, and the same row with it; says that the outcome depends on where 0 is, which softmax does not know.
"""
