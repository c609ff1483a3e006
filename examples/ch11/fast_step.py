"""Chapter 11: one decode step on four-bit weights, written as plain tensor operations that a compiler can fuse.

The functions below run as they stand, slowly, and `fast_decode.py` compiles them: the result is the same but for rounding. Shapes:
T new positions (one, or a few), d width, h heads, g of them with keys and values, dh head width, f feed-forward width; of a
matrix N rows and K columns; keys and values lie in n tiles of 16 positions.

A product with a packed matrix never makes the matrix. For a block of 32 numbers n with scale a and minimum m, and the 32 numbers x
that they meet, sum((a n + m) x) = a sum(n x) + m sum(x). A word holds eight n. Each is masked where it stands, which leaves
16^j times it, and meets 16^-j x instead of x: powers of two change no bit of a product, and a mask costs less than a shift and a
mask. What meets the words is the same for all rows, so it is prepared once for each product.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

POSITIONS = 16  # of a tile of keys and values
BLOCK = 32  # numbers that share a scale
# Where number n of a block stands, by [half, word, byte]: in Q4_1 numbers 0 to 15 are the low halves of bytes, 16 to 31 the high
# ones; in Q8_0 each has a byte. PLACES: 1 over what the integer is multiplied by there. SIGNS: what its number adds to a sum
# because the highest four bits of a word read as themselves less 8, and the three lower bytes as themselves plus 128.
PLACES = {
    "Q4_1": (16.0 ** -torch.arange(8.0)).view(4, 2).T[:, None].repeat(1, 4, 1),  # [2, 4, 4]
    "Q8_0": (256.0 ** -torch.arange(4.0)).repeat(1, 8, 1),  # [1, 8, 4]
}
SIGNS = {
    "Q4_1": torch.tensor([[0.0, 0, 0, 0], [0, 0, 0, 8]])[:, None].repeat(1, 4, 1),
    "Q8_0": torch.tensor([-128.0, -128, -128, 0]).repeat(1, 8, 1),
}


@dataclass(frozen=True)
class Shape:
    """What a compiled step is compiled for: the sizes of a layer, the rows of each of its parts and the type of each."""

    heads: int
    kv_heads: int
    head_width: int
    eps: float
    rows: tuple  # (part, rows) pairs, as are the kinds
    kinds: tuple

    def row(self, part):
        return dict(self.rows)[part]

    def kind(self, part):
        return dict(self.kinds)[part]


# ------------------------------------------------------------------------------------------------- products with packed words


def prepare(x: Tensor, kind: str, groups: int) -> Tensor:
    """x [T, K] as a product with a matrix of `kind` reads it, [T, K / 32, 32 + 2 groups].

    Of each block its 32 numbers, divided by what a mask leaves the integers that they meet multiplied by; then, for each of the
    `groups` that the block's words are taken in, what corrects the signs of the integers, and the sum of the numbers.
    """
    places, signs = PLACES[kind], SIGNS[kind]  # each [halves, words, 4]
    blocks = x.view(x.shape[0], -1, *places.shape)  # [T, K / 32, halves, words, 4]
    by_group = blocks.unflatten(3, (groups, -1))  # [T, K / 32, halves, groups, words of one, 4]
    corrections = (by_group * signs.unflatten(1, (groups, -1))).sum((2, 4, 5))  # [T, K / 32, groups]
    return torch.cat([(blocks * places).flatten(2), corrections, by_group.sum((2, 4, 5))], dim=-1)


def product(words: Tensor, scales: Tensor, ready: Tensor, kind: str, rows: int) -> Tensor:
    """The product [T, rows] of a packed matrix with what `prepare` made of x [T, K]."""
    halves, groups = len(PLACES[kind]), (ready.shape[2] - BLOCK) // 2
    whole = words.view(torch.int32).unflatten(2, (groups, -1))  # [N / lanes, K / 32, groups, words of one, lanes]
    if kind == "Q4_1":
        pair = scales.view(torch.int32)[:, :, None]  # [N / lanes, K / 32, 1, lanes]
        scale, minimum = half(pair << 13, pair << 16), half(pair >> 3, pair)
    else:
        scale, minimum = scales[:, :, None].float(), None
    found = []
    for x in ready.unsqueeze(-1):  # [K / 32, 32 + 2 groups, 1]
        numbers = x[:, :BLOCK].unflatten(1, (halves, groups, -1, 4))  # [K / 32, halves, groups, words of one, 4, 1]
        total, of_all = x[:, BLOCK : BLOCK + groups], x[:, BLOCK + groups :]  # [K / 32, groups, 1]
        for word in range(whole.shape[3]):
            for j in range(4 * halves):
                integers = (whole[:, :, :, word] & mask(j, 8 // halves)).float()  # [N / lanes, K / 32, groups, lanes]
                total = total + integers * numbers[:, j % halves, :, word, j // halves]
        of_groups = total * scale if minimum is None else total * scale + minimum * of_all
        found.append(of_groups.sum((1, 2)).flatten()[:rows])  # [rows]
    return torch.stack(found)


def mask(j: int, bits: int) -> int:
    """The bits of integer j in a word of 32, as a signed number."""
    m = ((1 << bits) - 1) << (bits * j)
    return m - 2**32 if m >= 2**31 else m


def half(bits: Tensor, sign: Tensor) -> Tensor:
    """float32 of a half-precision number whose exponent and mantissa lie at bits 13 to 27 of `bits`, and its sign at 31 of `sign`.

    A half's exponent is less by 112 than a float's of the same number; zeros and the smallest numbers come out right by that too.
    """
    return ((bits & 0x0FFFE000) | (sign & -(2**31))).view(torch.float32) * 2.0**112


def groups_of(T: int) -> int:
    """In how many groups the words of a block are taken: one for one position, more for several, whose sums fill the registers."""
    return 1 if T == 1 else 4


# ------------------------------------------------------------------------------------------------------------------ one layer


def layer(x: Tensor, cos: Tensor, sin: Tensor, at: Tensor, keys: Tensor, values: Tensor, weights: dict, shape: Shape) -> Tensor:
    """One layer of chapter 14's Llama: the stream [T, d] after it, of the stream x [T, d] before it.

    cos, sin: [T, dh / 2], of the angles of the positions `at` [T]. keys [n, g, dh, 16] and values [n, 16, g, dh]: written at `at`,
    and read up to there. weights: "parts" {part: (words, scales)}, "gains" {norm: [d]} and "biases" {part: [N]}.
    """
    T = x.shape[0]
    h, g, dh = shape.heads, shape.kv_heads, shape.head_width

    def times(part, ready):
        y = product(*weights["parts"][part], ready, shape.kind(part), shape.row(part))  # [T, N]
        return y + weights["biases"][part] if part in weights["biases"] else y

    def ready(y, part):
        return prepare(y, shape.kind(part), groups_of(T))

    normed = rms(x, weights["gains"]["input_layernorm"], shape.eps)  # [T, d]
    qkv = times("qkv", ready(normed, "qkv")).view(T, h + 2 * g, dh)
    q, k, v = rotate(qkv[:, :h], cos, sin), rotate(qkv[:, h : h + g], cos, sin), qkv[:, h + g :]
    keep(keys, values, k, v, at)
    x = x + times("o", ready(attend(q, keys, values, at), "o"))  # [T, d]
    normed = rms(x, weights["gains"]["post_attention_layernorm"], shape.eps)  # [T, d]
    same = ready(normed, "gate")
    gate, up = times("gate", same), times("up", same if shape.kind("up") == shape.kind("gate") else ready(normed, "up"))
    return x + times("down", ready(torch.nn.functional.silu(gate) * up, "down"))  # [T, d]


def head(x: Tensor, gain: Tensor, words: Tensor, scales: Tensor, kind: str, rows: int, eps: float) -> Tensor:
    """Logits [T, V] of the last stream x [T, d]."""
    return product(words, scales, prepare(rms(x, gain, eps), kind, groups_of(x.shape[0])), kind, rows)


def rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """x [T, d] over its root mean square, times `gain` [d]."""
    return gain * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, dh] with each pair (i, i + dh / 2) turned by its angle; cos and sin are [T, dh / 2]."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]], dim=-1)


def keep(keys: Tensor, values: Tensor, k: Tensor, v: Tensor, at: Tensor) -> None:
    """Write k and v [T, g, dh] into their tiles, at positions `at` [T]: a tile of keys has its positions side by side, so that the
    scores of 16 positions come of one register; a tile of values has the numbers of a head side by side.
    """
    tile, lane = at // POSITIONS, at % POSITIONS  # [T]
    heads, numbers = torch.arange(k.shape[1])[:, None], torch.arange(k.shape[2])
    keys.index_put_((tile[:, None, None], heads, numbers, lane[:, None, None]), k)
    values.index_put_((tile, lane), v)


def attend(q: Tensor, keys: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """What T queries [T, h, dh] at positions `at` [T] gather, [T, h dh].

    keys [n, g, dh, 16] and values [n, 16, g, dh], in n tiles of 16 positions; the new ones are in them already.
    """
    T, h, dh = q.shape
    n, g = keys.shape[:2]
    grouped = q.view(T, g, h // g, 1, dh, 1) * dh**-0.5
    scores = (grouped * keys.transpose(0, 1)[None, :, None]).sum(4)  # [T, g, h / g, n, 16]
    place = torch.arange(n * POSITIONS, device=q.device).view(n, POSITIONS)
    scores = torch.where(place <= at.view(T, 1, 1, 1, 1), scores, float("-inf"))
    e = torch.exp(scores - scores.amax((-1, -2), keepdim=True))  # [T, g, h / g, n, 16]
    mixed = (e.flatten(3)[..., None] * values.flatten(0, 1).transpose(0, 1)[None, :, None]).sum(3)  # [T, g, h / g, dh]
    return (mixed / e.sum((-1, -2))[..., None]).view(T, h * dh)
