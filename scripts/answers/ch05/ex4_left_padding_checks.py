"""Checks of ch05.4: ids, positions and mask of prompts padded on the left, and softmax of rows that see nothing."""

import torch

from scripts.grading.answers import Mutant

LENGTHS = ((4, 2, 5), (1, 3), (6,), (2, 2, 2), (5, 1, 3, 4))


def cases(draw):
    for lengths in LENGTHS:
        prompts = [draw.ids(90, n).add(5).tolist() for n in lengths]
        yield "ids and positions", "padded", {"prompts": prompts, "pad": draw.whole(1, 4)}
    for lengths in LENGTHS:
        yield "the mask", "padding_mask", {"lengths": list(lengths)}
    for dtype in (torch.float64, torch.bfloat16):
        # a dtype is no value that can be carried; the driver names it
        yield "the mask in another dtype", "mask_in", {"lengths": [draw.whole(2, 3), 4], "name": str(dtype).removeprefix("torch.")}
    for shape in ((7,), (3, 5), (2, 2, 3, 4), (4, 1)):
        yield "softmax", "masked_softmax", {"scores": draw.normal(*shape, scale=2.0)}
    yield "softmax in float64", "masked_softmax", {"scores": draw.normal(3, 4, dtype=torch.float64)}
    for size in (1e4, 1e30, -1e30):
        yield "softmax of large scores", "masked_softmax", {"scores": size * (2 + draw.normal(2, 6).sign())}
    for shape in ((4, 6), (2, 3, 3, 5)):
        scores = draw.normal(*shape)
        scores[0], scores[..., -1, : draw.whole(1, 2)] = -torch.inf, -torch.inf
        yield "softmax of a row that sees nothing", "masked_softmax", {"scores": scores}


DRIVER = '''
import torch


def mask_in(module, lengths, name):
    """The mask in the dtype of that name."""
    return module.padding_mask(lengths, getattr(torch, name))
'''

MUTANTS = [
    Mutant(
        "the padding stands on the right",
        "[pad] * (T - len(p)) + p",
        "p + [pad] * (T - len(p))",
        (("[0] * (T - len(p)) + list(range(len(p)))", "list(range(len(p))) + [0] * (T - len(p))"),),
    ),
    Mutant(
        "positions are counted from the padding on, so that they depend on the longest prompt",
        "[0] * (T - len(p)) + list(range(len(p)))",
        "list(range(T))",
    ),
    Mutant("positions begin at 1", "list(range(len(p)))", "list(range(1, len(p) + 1))"),
    Mutant(
        "positions of the padding are negative, which would read the table from its end",
        "[0] * (T - len(p)) + list(range(len(p)))",
        "list(range(len(p) - T, len(p)))",
    ),
    Mutant("the padding is always id 0, whatever `pad` is", "[pad] *", "[0] *"),
    Mutant(
        "long prompts are cut to the shortest",
        "T = max(map(len, prompts))",
        "T = min(map(len, prompts))",
        (("[pad] * (T - len(p)) + p", "p[-T:]"), ("[0] * (T - len(p)) + list(range(len(p)))", "list(range(T))")),
    ),
    Mutant("the padding can be seen: the mask is only causal", "(j <= i) & (j >= first)", "(j <= i) & (j >= 0 * first)"),
    Mutant("what comes can be seen: the mask hides the padding only", "(j <= i) & (j >= first)", "(j >= first) & (i >= 0)"),
    Mutant("the position itself is hidden", "j <= i", "j < i"),
    Mutant("the padding's last position can be seen: one too few is hidden", "j >= first", "j >= first - 1"),
    Mutant("a row's first own token is hidden: one too many", "j >= first", "j > first"),
    Mutant(
        "the mask hides the length where the padding should be hidden",
        "T - torch.tensor(lengths)[:, None, None]",
        "torch.tensor(lengths)[:, None, None]",
    ),
    Mutant("rows and columns are exchanged: the padding's queries are masked and not its keys", "j >= first", "i >= first"),
    Mutant(
        "one mask, that of the first row, is used for the whole batch",
        "torch.tensor(lengths)[:, None, None]",
        "torch.tensor(lengths[:1] * len(lengths))[:, None, None]",
    ),
    Mutant("the mask has no axis for the heads: [B, T, T] where [B, 1, T, T] is asked for", ".to(dtype)[:, None]", ".to(dtype)"),
    Mutant("the mask's dtype is not the one asked for", ".to(dtype)[:, None]", "[:, None]"),
    Mutant(
        "a row that sees nothing is NaN: zero divided by zero", ".masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)", ""
    ),
    Mutant(
        "a row that sees nothing gets equal weights, as with a large finite number for minus infinity",
        "torch.softmax(scores, dim=-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)",
        "torch.softmax(scores.clamp(min=torch.finfo(scores.dtype).min), dim=-1)",
    ),
    Mutant(
        "the largest score is not subtracted, and the exponential overflows",
        "torch.softmax(scores, dim=-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)",
        "(scores.exp() / scores.exp().sum(-1, keepdim=True)).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)",
    ),
    Mutant("softmax runs over the wrong axis", "torch.softmax(scores, dim=-1)", "torch.softmax(scores, dim=0)"),
    Mutant("everything is turned to float32 on the way", "torch.softmax(scores, dim=-1)", "torch.softmax(scores.float(), dim=-1)"),
    Mutant(
        "the scores that were given are changed in place",
        "torch.softmax(scores, dim=-1)",
        "torch.softmax(scores.sub_(1.0), dim=-1)",
    ),
]

RUBRIC = """
1 point: with the mask and shifted positions each row's tokens are those of the row alone; without the mask they are not.
1 point: a position in the padding may look at nothing: all its scores are minus infinity, and softmax gives NaN.
1 point: says how far the NaN spreads (a hidden value of NaN times a weight of 0 is NaN) and what was done against it.
"""
