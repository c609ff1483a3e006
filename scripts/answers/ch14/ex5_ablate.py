"""Llama's pass with three switches, and what tells of what breaks."""

import math

import torch
from torch.nn.functional import silu


def rms_norm(x, gain, epsilon):
    return gain * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)


def rotate(x, angles):
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def attention(q, k, v, causal):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def forward(ids, weights, config, causal=True, rotated=True, residual=True):
    h, eps = config["num_attention_heads"], config["rms_norm_eps"]
    g = config.get("num_key_value_heads") or h
    dh = config.get("head_dim") or config["hidden_size"] // h
    B, T = ids.shape
    angles = torch.arange(T)[:, None] * config["rope_theta"] ** (-torch.arange(0, dh, 2) / dh)
    table = weights["model.embed_tokens.weight"]
    x = table[ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."

        def times(x, matrix, name=name):
            return x @ weights[f"{name}{matrix}.weight"].T

        n = rms_norm(x, weights[f"{name}input_layernorm.weight"], eps)
        q = times(n, "self_attn.q_proj").view(B, T, h, dh).transpose(1, 2)
        k = times(n, "self_attn.k_proj").view(B, T, g, dh).transpose(1, 2)
        v = times(n, "self_attn.v_proj").view(B, T, g, dh).transpose(1, 2)
        if rotated:
            q, k = rotate(q, angles), rotate(k, angles)
        mixed = times(attention(q, k, v, causal).transpose(1, 2).reshape(B, T, h * dh), "self_attn.o_proj")
        x = x + mixed if residual else mixed
        n = rms_norm(x, weights[f"{name}post_attention_layernorm.weight"], eps)
        made = times(silu(times(n, "mlp.gate_proj")) * times(n, "mlp.up_proj"), "mlp.down_proj")
        x = x + made if residual else made
    x = rms_norm(x, weights["model.norm.weight"], eps)
    return x @ (table if config.get("tie_word_embeddings") else weights["lm_head.weight"]).T


def loss_by_position(logits, ids):
    p = torch.log_softmax(logits[:, :-1].double(), dim=-1)
    return -p.gather(-1, ids[:, 1:, None])[..., 0].mean(0)


def kept_percent(before, after):
    return 100 * (before.argmax(-1) == after.argmax(-1)).double().mean().item()


def change_before(before, after, position):
    changed = (before[:, :position] - after[:, :position]).abs()
    return changed.max().item() if position else 0.0
