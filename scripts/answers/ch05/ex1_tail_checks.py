"""Checks of ch05.1: softmax with a temperature, top-k, the mass before each token."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for shape in ((5,), (3, 7), (2, 3, 4), (1,)):
        for temperature in (1.0, draw.uniform(0.4, 0.9), draw.uniform(1.2, 3.0)):
            yield "a temperature", "softmax_at", {"logits": draw.normal(*shape, scale=2.0), "temperature": temperature}
    yield "a temperature in float64", "softmax_at", {"logits": draw.normal(3, 6, dtype=torch.float64), "temperature": 0.7}
    for temperature in (1e-46, 1e-39, 1e-6):
        logits = draw.normal(2, 6, scale=5.0)
        logits[0, 1] = logits[0, 4] = logits[0].max() + 1
        yield "a tiny temperature", "softmax_at", {"logits": logits, "temperature": temperature}
    yield "a tiny temperature", "softmax_at", {"logits": 3e38 * torch.sign(draw.normal(2, 6)), "temperature": 0.5}
    for shape in ((6,), (3, 5)):
        logits = draw.normal(*shape)
        logits[..., 3] = logits[..., 1] = 9.0
        yield "temperature 0", "softmax_at", {"logits": logits, "temperature": 0}
    for shape, k in (((7,), 3), ((3, 6), 1), ((2, 2, 5), 4), ((4,), 9), ((1, 1), 1)):
        yield "top-k", "keep_top_k", {"logits": draw.normal(*shape) - 1, "k": k}
    for shape, k in (((9,), 4), ((3, 8), 2), ((2, 8), 5)):
        yield "top-k of equal logits", "keep_top_k", {"logits": torch.round(draw.normal(*shape)), "k": k}
    yield "top-k of equal logits", "keep_top_k", {"logits": torch.full((40,), draw.uniform(1.0, 2.0)), "k": 7}
    for V in (1, 2, 5, 9):
        yield "the mass before", "mass_before", {"probabilities": torch.softmax(draw.normal(V, scale=1.5), dim=-1)}
    yield "the mass before", "mass_before", {"probabilities": torch.tensor([1.0, 2, 1, 1, 3, 2])[draw.order(6)] / 10}


MUTANTS = [
    Mutant("the logits are multiplied by the temperature, not divided", "below.double() / temp", "below.double() * temp"),
    Mutant("the temperature is not used", "below.double() / temperature", "below.double()"),
    Mutant(
        "the probabilities are divided by the temperature, where the logits should be",
        "torch.softmax((below.double() / temperature).to(logits.dtype), dim=-1)",
        "torch.softmax(below, dim=-1) / temperature",
    ),
    Mutant(
        "the largest logit is not subtracted before the division, so that a tiny temperature overflows",
        "logits - logits.amax(-1, keepdim=True)",
        "logits",
    ),
    Mutant(
        "the division is done in float32, which rounds a tiny temperature to 0",
        "(below.double() / temperature)",
        "(below / torch.tensor(temperature, dtype=below.dtype))",
    ),
    Mutant(
        "softmax runs over the first axis, which is right for one row alone",
        "(below.double() / temperature).to(logits.dtype), dim=-1",
        "(below.double() / temperature).to(logits.dtype), dim=0",
    ),
    Mutant("everything is turned to float32 on the way", "temperature).to(logits.dtype)", "temperature).float()"),
    Mutant("temperature 0 is taken for 1", "if temperature == 0:", "temperature = temperature or 1.0\n    if temperature == 0:"),
    Mutant(
        "at temperature 0 equal logits share the probability; the first of them has it all",
        "torch.zeros_like(logits).scatter(-1, best, 1.0)",
        "torch.softmax(torch.where(logits == logits.amax(-1, keepdim=True), 0.0, -math.inf), -1)",
    ),
    Mutant(
        "at temperature 0 the last of equal logits is taken, not the first",
        "logits.argmax(-1, keepdim=True)",
        "logits.shape[-1] - 1 - logits.flip(-1).argmax(-1, keepdim=True)",
    ),
    Mutant("top-k keeps one too many", "order[..., k:]", "order[..., k + 1 :]"),
    Mutant("top-k keeps one too few", "order[..., k:]", "order[..., k - 1 :]"),
    Mutant("top-k cuts the best and keeps the rest", "order[..., k:]", "order[..., :k]"),
    Mutant("what top-k cuts is set to 0, which is a logit like any other", "order[..., k:], -math.inf", "order[..., k:], 0.0"),
    Mutant(
        "all logits that tie with the k-th are kept; there are to be k of them",
        "    order = logits.argsort(dim=-1, descending=True, stable=True)\n"
        "    return logits.scatter(-1, order[..., k:], -math.inf)",
        "    least = logits.sort(-1, descending=True).values[..., min(k, logits.shape[-1]) - 1, None]\n"
        "    return torch.where(logits < least, -math.inf, logits)",
    ),
    Mutant("top-k writes into the logits that it was given", "logits.scatter(", "logits.scatter_("),
    Mutant("a token's own mass is counted as standing before it", "ranked.cumsum(0) - ranked", "ranked.cumsum(0)"),
    Mutant(
        "the sums are in the order of rank; they have to go back to the places of their ids",
        "torch.zeros_like(before).scatter(0, order, before)",
        "before",
    ),
    Mutant(
        "the sums go back to the wrong ids: the order is used where its inverse is needed",
        "torch.zeros_like(before).scatter(0, order, before)",
        "before[order]",
    ),
    Mutant(
        "the mass is summed by id; it has to be sorted first",
        "ranked = probabilities[order]",
        "ranked, order = probabilities, torch.arange(len(order))",
    ),
    Mutant("this is the mass behind each token, not before it", "ranked.cumsum(0) - ranked", "ranked.sum() - ranked.cumsum(0)"),
]

RUBRIC = """
1 point: five scores, with p = 0.9 keeping four at a temperature of 1 and two at 0.5, both tables with the mass before each token.
1 point: says that a token stays where the mass before it is below p, so that the one that crosses stays.
"""
