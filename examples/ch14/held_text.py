"""Chapter 14: texts that a model has not seen, cut into windows; its loss on them, position by position, and what it writes.

Shapes: n windows, T positions fed, V vocabulary.
"""

from itertools import pairwise

import torch

from examples.ch02.model import Model, run
from examples.ch03.held_text import held_text
from examples.ch03.tokens import before_text, encode
from examples.ch05.generate import generate
from examples.lab.script import BadInput

LONGEST = 2048  # tokens of the longest window: of the 8,192 that SmolLM2 takes, the scores are 2.4 GB per layer
BINS = 8  # of positions
ROWS = 256  # positions whose logits are widened to float64 at once: V numbers of 8 bytes each


def prompt(model: Model, new: int = 1) -> torch.Tensor:
    """The short prompt [1, P] that is gone on from; raises BadInput where the model has no room for `new` tokens behind it."""
    ids = encode("Good morrow, my" if model.manifest.get("source") == "embedded" else "The capital of France is", model)
    room = model.config.n_positions - ids.shape[1] + 1  # the last token is never fed
    if not 1 <= new <= room:
        raise BadInput(f"{new} new tokens; behind the prompt there is room for 1 to {room}, give one of these")
    return ids


def held_windows(model: Model, tokens: int | None = None) -> torch.Tensor:
    """ids [n, T + 1] of n windows of the held text: of each, the first T are fed and the last T predicted, nothing carried over.

    T is the model's full context, LONGEST at most, or the whole text where that is shorter. Windows follow one another, so that
    no token is predicted twice; what is left behind the last whole one is not used. tokens: how many positions to use at most;
    None is all. What the tokenizer puts before a text stands before each window. Raises BadInput for more than the text has.
    """
    ids, before = encode(held_text(model), model, special=False)[0], torch.tensor(before_text(model), dtype=torch.int64)  # [N], [b]
    most = len(ids) - 1
    tokens = most if tokens is None else tokens
    if not 1 <= tokens <= most:
        raise BadInput(f"{tokens} tokens; the held text has 1 to {most} to predict, give one of these")
    T = min(model.config.n_positions, LONGEST, tokens)
    starts = range(0, tokens - T + 1, T)
    return torch.stack([torch.cat([before, ids[s : s + T + 1]])[: T + 1] for s in starts])


def bins(T: int, count: int = BINS) -> list[tuple[int, int]]:
    """[(first, last)] of equal stretches of positions 0 to T - 1, `count` or, of a shorter text, T; each position is in one."""
    count = min(count, T)
    edges = [i * T // count for i in range(count + 1)]
    return [(a, b - 1) for a, b in pairwise(edges)]


@torch.no_grad()
def losses(ids: torch.Tensor, model: Model, causal: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """(nats [n, T] float64, argmaxes [n, T]) of `ids` [n, T + 1], whose first T are fed and last T are the answers.

    The logits are float32, the cross-entropy is float64. An argmax among logits that are no numbers is -1.

    Without the mask (causal=False) this loss is no measure of prediction and is not to be compared with the others: position t
    is asked for token t + 1, which stands in the text that it attends to, together with all that follows. So the loss may come
    out below the untouched model's, and says nothing good of the model where it does; and it may come out above, since weights
    that were trained with the mask never saw a key ahead of its query. Generation shows the damage without this doubt: at the last
    position nothing lies ahead, and only the streams of the earlier ones are other than those the weights were trained on.
    """
    nats, best = [], []
    for row in ids:  # one at a time: the logits of a real vocabulary are 0.2 MB per position
        logits = run(model, row[None, :-1], causal=causal)[0]  # [T, V]
        found = logits.argmax(-1)  # [T]
        best.append(torch.where(logits.isfinite().all(-1), found, -1))
        parts = []
        for part, answers in zip(logits.split(ROWS), row[1:].split(ROWS), strict=True):
            wide = part.double()  # [ROWS, V]
            parts.append(wide.logsumexp(-1) - wide.gather(-1, answers[:, None])[:, 0])
        nats.append(torch.cat(parts))
    return torch.stack(nats), torch.stack(best)


class _NoNumbers(Exception):
    """Logits that hold NaN or infinity, among which nothing is most probable."""


@torch.no_grad()
def greedy(model: Model, causal: bool, new: int) -> list[int] | None:
    """The `new` most probable ids, one after another, behind `prompt`; the whole text is run anew each time. None: no numbers."""

    def forward(ids):
        logits = run(model, ids, causal=causal)  # [1, t, V]
        if not logits[:, -1].isfinite().all():
            raise _NoNumbers
        return logits

    try:
        return generate(prompt(model, new), model, new, end=None, forward=forward).sequence()
    except _NoNumbers:
        return None


def cycle(ids: list[int]) -> int | None:
    """The shortest period with which `ids` end, seen at least three times over; None without one."""
    for period in range(1, len(ids) // 3 + 1):
        tail = ids[-3 * period :]
        if tail == 3 * tail[:period]:
            return period
    return None
