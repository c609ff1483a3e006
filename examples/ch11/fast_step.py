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
PLACES = {kind: base ** -torch.arange(n, dtype=torch.float32) for kind, n, base in (("Q4_1", 8, 16.0), ("Q8_0", 4, 256.0))}


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


def prepare(x: Tensor, kind: str, group: int) -> Tensor:
    """x [T, K] as a product with a matrix of `kind` reads it, [T, K / 32, words / group, group integers + 2].

    Of each `group` of words the numbers that its integers meet, in their order and divided by what a mask leaves the integers
    multiplied by; then what corrects the signs; then their sum.
    """
    T = x.shape[0]
    if kind == "Q4_1":  # byte i of a block: number i in its low half, i + 16 in its high half; four bytes a word
        numbers = x.view(T, -1, 2, 4, 4).permute(0, 1, 3, 4, 2).reshape(T, -1, 4, 8)  # [T, K / 32, word, nibble]
        correction = 8 * numbers[..., 7:]  # the highest reads as itself less 8
    else:
        numbers = x.view(T, -1, 8, 4)  # [T, K / 32, word, byte]
        correction = -128 * numbers[..., :3]  # the three lower ones read as themselves plus 128
    by_group = (T, numbers.shape[1], numbers.shape[2] // group, -1)
    scaled = (numbers * PLACES[kind]).view(by_group)
    sums = [part.reshape(by_group).sum(-1, keepdim=True) for part in (correction, numbers)]
    return torch.cat([scaled, *sums], dim=-1)


def product(words: Tensor, scales: Tensor, ready: Tensor, kind: str, rows: int) -> Tensor:
    """The product [T, rows] of a packed matrix with what `prepare` made of x [T, K]."""
    T, _, groups, _ = ready.shape
    each = len(PLACES[kind])  # integers in a word
    whole = words.view(torch.int32).unflatten(2, (groups, -1))  # [N / lanes, K / 32, groups, words, lanes]
    if kind == "Q4_1":
        pair = scales.view(torch.int32)[:, :, None]  # [N / lanes, K / 32, 1, lanes]
        scale, minimum = half(pair << 13, pair << 16), half(pair >> 3, pair)
    else:
        scale, minimum = scales[:, :, None].float(), None
    found = []
    for t in range(T):
        *numbers, total, of_all = ready[t].unsqueeze(-1).unbind(-2)  # each [K / 32, groups, 1]
        for word in range(whole.shape[3]):
            for j in range(each):
                total = total + (whole[:, :, :, word] & mask(j, 32 // each)).float() * numbers[word * each + j]
        of_groups = total * scale if minimum is None else total * scale + minimum * of_all  # [N / lanes, K / 32, groups, lanes]
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


def group_of(T: int, kind: str) -> int:
    """Words that a product takes at once: those of a whole block for one position; fewer for several, whose sums fill registers."""
    return {"Q4_1": 4 if T == 1 else 1, "Q8_0": 8 if T == 1 else 2}[kind]


# ------------------------------------------------------------------------------------------------------------------ one layer


def layer(x: Tensor, cos: Tensor, sin: Tensor, at: Tensor, keys: Tensor, values: Tensor, weights: dict, shape: Shape) -> Tensor:
    """One layer of chapter 14's Llama: the stream [T, d] after it, of the stream x [T, d] before it.

    cos, sin: [T, dh / 2], of the angles of the positions `at` [T]. keys [n, g, dh, 16] and values [n, 16, g, dh]: written at `at`,
    and read up to there. weights: "parts" {part: (words, scales)}, "gains" {norm: [d]} and "biases" {part: [N]}.
    """
    T, d = x.shape
    h, g, dh = shape.heads, shape.kv_heads, shape.head_width

    def times(part, ready):
        y = product(*weights["parts"][part], ready, shape.kind(part), shape.row(part))  # [T, N]
        return y + weights["biases"][part] if part in weights["biases"] else y

    def ready(y, part):
        return prepare(y, shape.kind(part), group_of(T, shape.kind(part)))

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
    return product(words, scales, prepare(rms(x, gain, eps), kind, group_of(x.shape[0], kind)), kind, rows)


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
