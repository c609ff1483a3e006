"""Checks of ch14.5: the pass with its switches, the loss by position, and what changed."""

import torch

from scripts.answers.ch14.ex1_llama_checks import tiny
from scripts.grading.answers import Mutant

SHAPES = ((8, 12, 2, 2, 1, None, True), (16, 10, 1, 4, 2, None, False), (12, 9, 2, 3, 3, 4, False))
SWITCHES = {
    "the pass as it is": {},
    "no mask": {"causal": False},
    "no rotation": {"rotated": False},
    "no residual": {"residual": False},
    "nothing of the three": {"causal": False, "rotated": False, "residual": False},
}


def cases(draw):
    for check, switches in SWITCHES.items():
        for shape in SHAPES:
            weights, config = tiny(draw, *shape)
            for B, T in ((1, 1), (2, 6)):
                yield check, "forward", {"ids": draw.ids(13, B, T), "weights": weights, "config": config, **switches}
    for B, T, V in ((1, 2, 5), (2, 6, 9), (3, 4, 7), (1, 7, 3)):
        yield "the loss by position", "loss_by_position", {"logits": draw.normal(B, T, V, scale=3.0), "ids": draw.ids(V, B, T)}
    yield "the loss by position", "loss_by_position", {"logits": 900 + draw.normal(2, 5, 6, scale=40.0), "ids": draw.ids(6, 2, 5)}
    for B, T in ((1, 3), (2, 5), (3, 7), (4, 4), (1, 8), (2, 9), (5, 3), (2, 2)):
        before = draw.normal(B, T, 4)
        yield "what is kept", "kept_percent", {"before": before, "after": before + draw.normal(B, T, 4, scale=0.7)}
    for B, T, V in ((1, 3, 5), (2, 5, 4), (3, 7, 6), (1, 8, 3)):
        before, after = draw.normal(B, T, V), draw.normal(B, T, V)
        after[:, T - 1] += 9.0 * torch.sign(after[:, T - 1])
        for position in (0, 1, draw.whole(1, T - 1), T - 1):
            yield "the change before a position", "change_before", {"before": before, "after": after, "position": position}


TOLERANCE = {"what is kept": 1e-9, "the loss by position": 1e-6}
MUTANTS = [
    Mutant("the mask stays whether `causal` says so or not", "    if causal:", "    if True:"),
    Mutant("there is no mask, whatever `causal` says", "    if causal:", "    if False:"),
    Mutant(
        "without the mask a position sees nothing but what comes; it sees all",
        "    if causal:",
        "    if not causal:\n        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-1)\n"
        "        scores = scores.masked_fill(ahead, -math.inf)\n    if causal:",
    ),
    Mutant("the rotation stays whether `rotated` says so or not", "        if rotated:", "        if True:"),
    Mutant("there is no rotation, whatever `rotated` says", "        if rotated:", "        if False:"),
    Mutant(
        "only queries are left unturned; keys are turned still",
        "        if rotated:\n",
        "        k = rotate(k, angles) if not rotated else k\n        if rotated:\n",
    ),
    Mutant(
        "without RoPE queries are all turned by one angle; nothing is to be turned",
        "        if rotated:\n",
        "        q = rotate(q, angles[-1:] + 1) if not rotated else q\n        if rotated:\n",
    ),
    Mutant(
        "the residual connections stay whether `residual` says so or not",
        "x = x + mixed if residual else mixed",
        "x = x + mixed",
        (("x = x + made if residual else made", "x = x + made"),),
    ),
    Mutant(
        "only attention's residual connection is taken out; the network's stays",
        "x = x + made if residual else made",
        "x = x + made",
    ),
    Mutant(
        "only the network's residual connection is taken out; attention's stays",
        "x = x + mixed if residual else mixed",
        "x = x + mixed",
    ),
    Mutant(
        "without residuals a sublayer's result is left out; it replaces the stream",
        "x = x + mixed if residual else mixed",
        "x = x + mixed if residual else x",
        (("x = x + made if residual else made", "x = x + made if residual else x"),),
    ),
    Mutant(
        "without residuals the network still adds to what attention read",
        "x = x + made if residual else made",
        "x = x + made if residual else n + made",
    ),
    Mutant(
        "`rotate` turns neighbouring numbers; its planes are numbers i and i + dh / 2",
        "first, second = x.chunk(2, dim=-1)",
        "first, second = x[..., 0::2], x[..., 1::2]",
        (
            (
                "torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)",
                "torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)",
            ),
        ),
    ),
    Mutant(
        "query head i reads key head i modulo g; it is i // (h / g)",
        "k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)",
        "k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)",
    ),
    Mutant(
        "gate and up are exchanged: SiLU is on the wrong one",
        'silu(times(n, "mlp.gate_proj")) * times(n, "mlp.up_proj")',
        'silu(times(n, "mlp.up_proj")) * times(n, "mlp.gate_proj")',
    ),
    Mutant(
        "the logits at a position are held against its own token; they predict the next",
        "logits[:, :-1].double(), dim=-1)",
        "logits[:, 1:].double(), dim=-1)",
    ),
    Mutant("the loss is a mean over the positions; it is asked for by position", ".mean(0)", ".mean(1)"),
    Mutant("the loss is summed over the batch, not averaged", "[..., 0].mean(0)", "[..., 0].sum(0)"),
    Mutant("the loss is that of the first sequence of the batch", "[..., 0].mean(0)", "[..., 0][0]"),
    Mutant("the loss has the wrong sign", "return -p.gather", "return p.gather"),
    Mutant("the loss is in bits; nats want the natural logarithm", "[..., 0].mean(0)", "[..., 0].mean(0) / math.log(2)"),
    Mutant(
        "the loss is the logit, without the softmax",
        "torch.log_softmax(logits[:, :-1].double(), dim=-1)",
        "logits[:, :-1].double()",
    ),
    Mutant(
        "the softmax runs over the positions, not over the vocabulary",
        "logits[:, :-1].double(), dim=-1)",
        "logits[:, :-1].double(), dim=1)",
    ),
    Mutant(
        "the exponentials are made without the largest logit taken off, and overflow",
        "torch.log_softmax(logits[:, :-1].double(), dim=-1)",
        "(logits[:, :-1].exp() / logits[:, :-1].exp().sum(-1, keepdim=True)).log().double()",
    ),
    Mutant("the losses are float32; float64 is asked for", "[..., 0].mean(0)", "[..., 0].mean(0).float()"),
    Mutant("this is a share, not per cent", "100 * (before", "(before"),
    Mutant(
        "this is what changed, not what is kept", "before.argmax(-1) == after.argmax(-1)", "before.argmax(-1) != after.argmax(-1)"
    ),
    Mutant(
        "the least probable tokens are compared", "before.argmax(-1) == after.argmax(-1)", "before.argmin(-1) == after.argmin(-1)"
    ),
    Mutant(
        "only the last position is compared",
        "(before.argmax(-1) == after.argmax(-1))",
        "(before[:, -1].argmax(-1) == after[:, -1].argmax(-1))",
    ),
    Mutant(
        "the largest logits of positions are sought along the wrong axis",
        "before.argmax(-1) == after.argmax(-1)",
        "before.argmax(1) == after.argmax(1)",
    ),
    Mutant(
        "the position itself counts; only those before it do",
        "(before[:, :position] - after[:, :position])",
        "(before[:, : position + 1] - after[:, : position + 1])",
    ),
    Mutant(
        "what comes is compared, not what stands before",
        "(before[:, :position] - after[:, :position])",
        "(before[:, position:] - after[:, position:])",
    ),
    Mutant(
        "the largest difference is sought, not the largest magnitude of one", "after[:, :position]).abs()", "after[:, :position])"
    ),
    Mutant(
        "position 0 raises an error; nothing stands before it", "changed.max().item() if position else 0.0", "changed.max().item()"
    ),
    Mutant("the mean change is given, not the largest", "changed.max()", "changed.mean()"),
]

RANGES = {"loss_as_it_is": (1.2, 4.5), "loss_no_mask": (0.6, 8), "loss_no_positions": (3, 9), "loss_no_residual": (7.5, 25)}
GUESS = "about what guessing evenly among 49,152 tokens costs: logits and tokens are a position apart, or it is another tokenizer's"
MISTAKES = {"loss_as_it_is": [(10.3, 14, GUESS)]}

RUBRIC = """
1 point: a prediction for each of the three, made before its run, and what was wrong in it.
1 point: without residuals: each sublayer reads what the one before made, and the token itself is lost; the loss is above guessing.
1 point: without RoPE: the set of tokens is known and their order is not, so that texts repeat; the loss by position shows where.
1 point: without the mask: a position reads the token that it is to predict, so its loss may even fall; what it writes is broken.
"""
