"""Checks of ch04.2: the mask, attention and its entropy."""

import torch

from scripts.grading.answers import Mutant

SHAPES = ((1, 1, 1, 4), (2, 3, 5, 4), (1, 2, 7, 6), (3, 1, 2, 8))  # B, h, T, dh


def cases(draw):
    for T in (1, 2, 3, draw.whole(5, 9)):
        yield "the mask", "causal_mask", {"T": T}
    for scaled, check in ((True, "attention"), (False, "attention without the scale")):
        for shape in SHAPES:
            yield check, "attention", {**{name: draw.normal(*shape, scale=1.5) for name in "qkv"}, "scaled": scaled}
    for _ in range(3):
        q, k, v = (draw.normal(2, 2, 3, 4, dtype=torch.float64) for _ in "qkv")
        yield "attention in float64", "attention", {"q": q, "k": k, "v": v}
    for B, h, T in ((1, 1, 1), (2, 3, 5), (1, 2, 8)):
        yield "entropy", "entropy", {"A": torch.softmax(draw.normal(B, h, T, T, scale=2.0), dim=-1)}
    for T in (3, 6):
        yield "entropy of weights with zeros", "entropy", {"A": torch.softmax(draw.normal(2, 2, T, T), dim=-1).tril() ** 2}


MUTANTS = [
    Mutant("the mask hides the position itself: row i lets i look at i too", "triu(1)", "triu(0)"),
    Mutant("the mask is the wrong way round: it hides what stands before a position, not what comes", "triu(1)", "tril(-1)"),
    Mutant("the mask shows one position too many: a position sees the next one", "triu(1)", "triu(2)"),
    Mutant("the scores are divided by dh, not by its root", "math.sqrt(q.shape[-1])", "q.shape[-1]"),
    Mutant("the scale is the root of T, not of dh", "math.sqrt(q.shape[-1])", "math.sqrt(q.shape[-2])"),
    Mutant("the scores are multiplied by the root of dh, not divided", "scores / math.sqrt", "scores * math.sqrt"),
    Mutant("the scale is applied whether `scaled` says so or not", "if scaled:", "if True:"),
    Mutant(
        "the softmax runs over the positions that read, not over those that are read",
        "softmax(scores, dim=-1)",
        "softmax(scores, dim=-2)",
    ),
    Mutant(
        "the mask is added behind the softmax, so that the rows do not sum to 1",
        "    scores = scores + causal_mask(q.shape[-2]).to(q.dtype)\n    A = torch.softmax(scores, dim=-1)",
        "    A = torch.softmax(scores, dim=-1) * (causal_mask(q.shape[-2]) == 0).to(q.dtype)",
    ),
    Mutant("there is no mask in the attention", "scores = scores + causal_mask(q.shape[-2]).to(q.dtype)", "pass"),
    Mutant("what is summed is the keys, not the values", "return A @ v, A", "return A @ k, A"),
    Mutant("the weights are transposed when the values are summed", "return A @ v, A", "return A.transpose(-1, -2) @ v, A"),
    Mutant("the result and the weights are given in the other order", "return A @ v, A", "return A, A @ v"),
    Mutant("it holds for a batch of one only", "return A @ v, A", "return (A[:1] @ v[:1]), A[:1]"),
    Mutant(
        "the queries are changed in place, and whoever called has others now",
        "scores = q @ k",
        "scores = q.mul_(1.0000001).add_(1e-6) @ k",
    ),
    Mutant(
        "everything is turned to float32 on the way",
        "A = torch.softmax(scores, dim=-1)",
        "A = torch.softmax(scores.float(), dim=-1)",
        (("return A @ v, A", "return A @ v.float(), A"),),
    ),
    Mutant(
        "a weight of 0 gives NaN: 0 times minus infinity; leave those out of the sum",
        "torch.where(A > 0, A * torch.log(A), 0.0)",
        "(A * torch.log(A))",
    ),
    Mutant("the entropy has the wrong sign", "return -torch.where", "return torch.where"),
    Mutant("the logarithm is that of base 2; nats want the natural one", "torch.log(A)", "torch.log2(A)"),
    Mutant("the entropy is a mean over the row, not a sum", ".sum(-1)", ".mean(-1)"),
    Mutant("the entropy is summed over the wrong axis", ".sum(-1)", ".sum(-2)"),
]

RUBRIC = """
1 point: the mean entropy by layer, with the scale and without, and that it falls without it.
1 point: the softmax saturates: larger scores put nearly all weight on one position, so that the mixture loses what the others hold.
1 point: the weights were trained with the scale; without it the layers behind read mixtures that they have never seen.
"""
