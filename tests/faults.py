"""Faults that a hand-written GPT-2 is known for, each a replacement of one name of the oracle's module.

An agreement that none of these breaks shows nothing.
"""

from dataclasses import replace

import torch

from examples.ch04 import gpt2_from_scratch as gpt2

RIGHT_ATTENTION, RIGHT_LINEAR, RIGHT_NORM = gpt2.attention, gpt2.linear, gpt2.layer_norm


def shifted_mask(shift):
    def attention(x, w, c, layer, mask, *rest):
        return RIGHT_ATTENTION(x, w, c, layer, None if mask is None else torch.full_like(mask, -torch.inf).triu(shift), *rest)

    return attention


def head_order(x, w, c, layer, *rest):
    name = f"h.{layer}.attn.c_proj.weight"
    swapped = w[name].unflatten(0, (c.n_head, -1)).flip(0).flatten(0, 1)
    return RIGHT_ATTENTION(x, w | {name: swapped}, c, layer, *rest)


def _interleaved_heads(x, w, c, layer, *rest):
    w = dict(w)
    for part in ("weight", "bias"):
        name = f"h.{layer}.attn.c_attn.{part}"
        w[name] = w[name].unflatten(-1, (3, c.n_head, -1)).transpose(-2, -1).flatten(-3)
    return RIGHT_ATTENTION(x, w, c, layer, *rest)


def _transposed(x, weights, name):
    W = weights[f"{name}.weight"]
    W = W.T if W.shape[0] == W.shape[1] else W
    return x @ W + weights[f"{name}.bias"]


def _no_bias(x, weights, name):
    return x @ weights[f"{name}.weight"]


def _sample_variance(x, weights, name, c):
    gain, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + c.layer_norm_epsilon).sqrt() * gain + bias


def epsilon(x, weights, name, c):
    return RIGHT_NORM(x, weights, name, replace(c, layer_norm_epsilon=1e-3))


FAULTS = {
    "the mask hides the position itself's successor too late": ("attention", shifted_mask(2)),
    "no mask at all": ("attention", lambda x, w, c, i, mask, *rest: RIGHT_ATTENTION(x, w, c, i, None, *rest)),
    "heads in reverse order": ("attention", head_order),
    "heads interleaved": ("attention", _interleaved_heads),
    "the square matrix transposed": ("linear", _transposed),
    "biases forgotten": ("linear", _no_bias),
    "the variance of a sample": ("layer_norm", _sample_variance),
    "another epsilon": ("layer_norm", epsilon),
    "no scaling of scores": ("attention_scale", lambda c, i: 1.0),
    "the exact GELU": ("ACTIVATIONS", gpt2.ACTIVATIONS | {"gelu_new": gpt2.gelu}),
}
