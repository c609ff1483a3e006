"""Checks of ch02.7: gaps, where the best token changes, and whether the two kinds overlap."""

import torch

from scripts.grading.answers import Mutant


def cases(draw):
    for T, V in ((1, 2), (9, 30), (5, 4)):
        yield "the gaps", "gaps", {"logits": draw.normal(T, V, scale=4.0)}
    same = draw.normal(10, 6)
    same[:, 2] = same[:, 4] = 9.0
    same[5:, 2] = 9.5
    yield "the gaps where two are equal", "gaps", {"logits": same}
    double = draw.normal(9, 7, dtype=torch.float64)
    yield "the gaps in float64", "gaps", {"logits": double}
    for T, V in ((60, 12), (40, 5), (1, 4)):
        before = draw.normal(T, V, scale=2.0)
        yield "gaps by change", "by_change", {"before": before, "after": before + draw.normal(T, V, scale=0.8)}
    yield "gaps where nothing changes", "by_change", {"before": before, "after": before}
    yield "gaps where nothing changes", "by_change", {"before": (x := draw.normal(9, 5)), "after": x * 2}
    for m, n in ((7, 20), (3, 50), (1, 1), (12, 5), (8, 8), (2, 30), (4, 4), (30, 6)):
        yield "the overlap", "overlap", {"changed": draw.normal(m).abs(), "kept": draw.normal(n).abs() + draw.uniform(0, 0.7)}
        yield "the overlap of equal gaps", "overlap", {"changed": draw.ids(4, m).float(), "kept": draw.ids(4, n).float()}
    for scale in (0.2, 0.5, 1.0):
        before = draw.normal(40, 6, scale=2.0)
        yield "whether it could change", "can_change", {"before": before, "after": before + draw.normal(40, 6, scale=scale)}


MUTANTS = [
    Mutant("this is the gap between the largest and the smallest", "best[:, 0] - best[:, 1]", "logits.amax(-1) - logits.amin(-1)"),
    Mutant("the gap has the wrong sign", "best[:, 0] - best[:, 1]", "best[:, 1] - best[:, 0]"),
    Mutant(
        "the second largest has to be a smaller number: two equal ones give no gap of 0",
        "best = logits.topk(2, dim=-1).values",
        "best = logits.topk(2, dim=-1).values\n"
        "    rest = torch.where(logits < best[:, :1], logits, -torch.inf).amax(-1, keepdim=True)\n"
        "    best = torch.cat([best[:, :1], rest], -1)",
    ),
    Mutant("the gap is one of probabilities, not of logits", "logits.topk(2", "logits.softmax(-1).topk(2"),
    Mutant(
        "the two best are sought over the positions, not over the vocabulary",
        "logits.topk(2, dim=-1).values",
        "logits.T.expand(-1, max(2, len(logits))).topk(2, dim=-1).values",
    ),
    Mutant("the gaps are those of the logits after the change", "found = gaps(before)", "found = gaps(after)"),
    Mutant("changed and kept are in the other order", "found[other], found[~other]", "found[~other], found[other]"),
    Mutant(
        "a best logit that has moved counts as another best token",
        "before.argmax(-1) != after.argmax(-1)",
        "before.amax(-1) != after.amax(-1)",
    ),
    Mutant(
        "the gaps are sorted; they stay in the order of the positions",
        "found[other], found[~other]",
        "found[other].sort().values, found[~other].sort().values",
    ),
    Mutant("all gaps stand on the second side, and not only those that were kept", "found[~other]", "found"),
    Mutant(
        "the share is that of pairs whose changed gap is the smaller",
        "changed[:, None] > kept[None]",
        "changed[:, None] < kept[None]",
    ),
    Mutant("equal gaps count as nothing; they count half", "above + equal / 2", "above"),
    Mutant("equal gaps count whole; they count half", "above + equal / 2", "above + equal"),
    Mutant("this compares the two medians alone", "(above + equal / 2).mean().item()", "float(changed.median() > kept.median())"),
    Mutant("this is a count of pairs, not their share", "(above + equal / 2).mean()", "(above + equal / 2).sum()"),
    Mutant("one logit can fall while another rises: twice the change has to be compared", "torch.gt(2 * most,", "torch.gt(most,"),
    Mutant(
        "rises alone are looked at; a logit that falls counts as well",
        "(after - before).abs().amax(-1)",
        "(after - before).amax(-1)",
    ),
    Mutant("the mean change is compared, not the largest", "(after - before).abs().amax(-1)", "(after - before).abs().mean(-1)"),
    Mutant(
        "the largest change of all positions is compared, not the one of its own",
        "(after - before).abs().amax(-1)",
        "(after - before).abs().amax().expand(len(before))",
    ),
]

RANGES = {"changed_median": (0.085, 0.095), "kept_median": (0.73, 0.755), "changed_largest": (0.61, 0.645)}
MISTAKES = {
    "changed_median": [(0.73, 0.755, "this is the median where it is kept")],
    "kept_median": [(0.085, 0.095, "this is the median where it is changed")],
}

RUBRIC = """
1 point: both distributions, as quantiles or a figure, with how many positions each has.
1 point: they overlap: most changed ones have a small gap, but many small gaps are kept; a small gap is needed, and not enough.
1 point: a best token changes only where two logits move against each other by more than the gap: the change of a logit bounds it.
"""
