"""Chapter 4's attention between its two projections, in ways that do the same arithmetic and touch memory differently.

Each takes queries, keys and values [B, h, T, dh], the scale of the scores and the mask [T, T] of chapter 4, and returns what the
heads mix, side by side: [B, T, d]. All but the fused ones compute the full rectangle of T x T scores a head.
Shapes: B batch, T positions, h heads, dh head width, d = h dh.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

BLOCK = 64  # queries: their scores at T = 1,024 are 256 KiB


def plain(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor) -> Tensor:
    """Chapter 4's own operators: scores and weights are new tensors [B, h, T, T]."""
    scores = new_scores(q, k, scale)
    hide(scores, mask)
    return new_mix(torch.softmax(scores, dim=-1), v)


def new_scores(q, k, scale):
    """[B, h, T, T], in memory of their own."""
    return (q * scale) @ k.transpose(-1, -2)


def hide(scores, mask):
    """The mask's minus infinity takes the place of hidden scores [..., T], in place, as in chapter 4."""
    torch.where(mask == 0, scores, mask, out=scores)


def new_mix(A, v):
    """[B, T, d]: the values that the weights A [B, h, T, T] mix, heads side by side."""
    return side_by_side(A @ v)


def side_by_side(mixed):
    """[B, T, d] of the heads' [B, h, T, dh]."""
    B, h, T, dh = mixed.shape
    return mixed.transpose(1, 2).reshape(B, T, h * dh)


class Kept:
    """The same operators, with results written into memory that was made once: no call asks the system for any [B, h, T, T]."""

    def __init__(self, q: Tensor):
        B, h, T, dh = q.shape
        self.scores, self.A = torch.empty(B, h, T, T), torch.empty(B, h, T, T)
        self.mixed = torch.empty(B, h, T, dh)

    def new_scores(self, q, k, scale):
        return torch.matmul(q * scale, k.transpose(-1, -2), out=self.scores)

    def softmax(self, scores):
        return torch.softmax(scores, dim=-1, out=self.A)

    def new_mix(self, A, v):
        return side_by_side(torch.matmul(A, v, out=self.mixed))

    def __call__(self, q, k, v, scale, mask):
        scores = self.new_scores(q, k, scale)
        hide(scores, mask)
        return self.new_mix(self.softmax(scores), v)


class InBlocks:
    """One head after the other, `rows` queries at a time, so that no more than [rows, T] scores are alive.

    With rows = T it is heads in turn.
    """

    def __init__(self, q: Tensor, rows: int = BLOCK):
        B, h, T, dh = q.shape
        self.rows = min(rows, T)
        self.scores, self.A = torch.empty(self.rows, T), torch.empty(self.rows, T)
        self.mixed = torch.empty(B, T, h, dh)

    def __call__(self, q, k, v, scale, mask):
        B, h, T, dh = q.shape
        q, hidden = q * scale, mask == 0
        for b in range(B):
            for head in range(h):
                keys, values = k[b, head].T, v[b, head]  # [dh, T], [T, dh]
                for start in range(0, T, self.rows):
                    end = min(start + self.rows, T)
                    scores, A = self.scores[: end - start], self.A[: end - start]  # [rows, T]
                    torch.mm(q[b, head, start:end], keys, out=scores)
                    torch.where(hidden[start:end], scores, mask[start:end], out=scores)
                    torch.softmax(scores, dim=-1, out=A)
                    self.mixed[b, start:end, head] = A @ values  # [rows, dh]
        return self.mixed.view(B, T, h * dh)


def fused(q, k, v, scale, mask):
    """torch's one kernel for all of it, with the same mask given as a tensor: the full rectangle."""
    return side_by_side(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale))


def fused_causal(q, k, v, scale, mask):
    """The same kernel told that the mask is causal, so that it leaves out blocks that are hidden whole. `mask` is not read."""
    return side_by_side(scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale))


def ways(q: Tensor) -> dict:
    """{name: function} of all ways for queries of this shape; the first is chapter 4's."""
    return {
        "plain": plain,
        "memory kept": Kept(q),
        "heads in turn": InBlocks(q, q.shape[2]),
        f"blocks of {BLOCK} queries": InBlocks(q),
        "fused": fused,
        "fused, causal": fused_causal,
    }


def repeated(function, times):
    """A function that calls `function` so many times."""

    def run():
        for _ in range(times):
            function()

    return run


def on_block(q, k, v, scale, mask):
    """({piece: function}, over): each does one piece of attention on one block of one head again and again, for B h T queries.

    over: what a time is to be multiplied by, 1 where the blocks add up to just so many queries.
    The block is the middle one, whose queries see about half of the keys. Scores and weights [rows, T] stay where they are.
    """
    B, h, T, _ = q.shape
    rows = min(BLOCK, T)
    at = slice((T - rows) // 2, (T - rows) // 2 + rows)
    some, keys, values = (q[0, 0, at] * scale).contiguous(), k[0, 0].contiguous().T, v[0, 0].contiguous()
    hidden, part = mask[at] == 0, mask[at].contiguous()
    scores, A, mixed = some @ keys, torch.empty(rows, T), some @ keys @ values
    torch.where(hidden, scores, part, out=scores)
    calls = {
        "scores": lambda: torch.mm(some, keys, out=product),
        "mask": lambda: torch.where(hidden, scores, part, out=scores),
        "softmax": lambda: torch.softmax(scores, dim=-1, out=A),
        "values": lambda: torch.mm(A, values, out=mixed),
        "copy": lambda: A.copy_(scores),
    }
    product = torch.empty_like(scores)
    torch.softmax(scores, dim=-1, out=A)
    times = B * h * T // rows
    return {name: repeated(call, times) for name, call in calls.items()}, B * h * T / (times * rows)
