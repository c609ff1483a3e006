"""Llama's pass."""

import math

import torch
from torch.nn.functional import silu


def rms_norm(x, gain, epsilon):
    return gain * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)


def rotation(positions, dh, theta):
    frequencies = theta ** (-torch.arange(0, dh, 2) / dh)
    angles = positions[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rotate_interleaved(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def attention(q, k, v):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v


def feed_forward(x, gate, up, down):
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def forward(ids, weights, config):
    h, eps = config["num_attention_heads"], config["rms_norm_eps"]
    g = config.get("num_key_value_heads") or h
    dh = config.get("head_dim") or config["hidden_size"] // h
    B, T = ids.shape
    cos, sin = rotation(torch.arange(T), dh, config["rope_theta"])
    table = weights["model.embed_tokens.weight"]
    x = table[ids]
    for layer in range(config["num_hidden_layers"]):
        of = {name: weights[f"model.layers.{layer}.{name}.weight"] for name in NAMES}
        n = rms_norm(x, of["input_layernorm"], eps)
        q = (n @ of["self_attn.q_proj"].T).view(B, T, h, dh).transpose(1, 2)
        k = (n @ of["self_attn.k_proj"].T).view(B, T, g, dh).transpose(1, 2)
        v = (n @ of["self_attn.v_proj"].T).view(B, T, g, dh).transpose(1, 2)
        mixed = attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + mixed.transpose(1, 2).reshape(B, T, h * dh) @ of["self_attn.o_proj"].T
        n = rms_norm(x, of["post_attention_layernorm"], eps)
        x = x + feed_forward(n, of["mlp.gate_proj"], of["mlp.up_proj"], of["mlp.down_proj"])
    x = rms_norm(x, weights["model.norm.weight"], eps)
    output = table if config.get("tie_word_embeddings") else weights["lm_head.weight"]
    return x @ output.T


PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
NAMES = ("input_layernorm", *PARTS, "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
