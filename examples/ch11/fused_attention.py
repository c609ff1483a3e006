"""Chapter 11: the passes of GPT-2 and Llama with attention as one operator, which never writes the scores to memory.

A program like the others, with `forward`, `pass_over`, `unembed` and `new_cache`: a model runs by it whose `module` names it. All
functions but attention are the family's own, and what attention computes is the same. The plain pass writes all scores
[B, h, T, S], hides some, takes a softmax and reads them again; the one operator goes through keys and values block by block, keeps
for each query the largest score, the sum of exponentials and the mixture so far, and corrects both when a larger score comes.

Dao, Fu, Ermon, Rudra and Ré, "FlashAttention" (2022), section 3. Shapes as in chapter 4: B batch, T new positions, S positions
seen, d width, h heads, g with keys and values, dh head width.
"""

import torch
from torch import Tensor

from examples.ch02.config import Config, GPT2Config
from examples.ch02.families import program
from examples.ch04.gpt2_from_scratch import attention_scale, causal_mask, check_ids, no_trace
from examples.lab.script import BadInput


def check(config: GPT2Config | Config) -> None:
    """Raise BadInput for a model whose attention is not written here: one that is neither GPT-2's nor Llama's."""
    if config.model_type not in ("gpt2", "llama") or getattr(config, "reorder_and_upcast_attn", False):
        raise BadInput(f"attention as one operator is written for gpt2 and llama, not for this {config.model_type}; give another")


def forward(ids: Tensor, weights: dict, config: GPT2Config | Config, causal: bool = True, trace=None) -> Tensor:
    """Logits [B, T, V] of `ids` [B, T]; arguments and errors as chapter 4's `forward`. Nothing within the layers is traced."""
    check_ids(ids, config)
    T = ids.shape[1]
    mask = causal_mask(T, T, ids.device) if causal else None
    x = pass_over(ids, weights, config, torch.arange(T, device=ids.device), mask)  # [B, T, d]
    return unembed(x, weights, config, trace)  # [B, T, V]


def pass_over(ids: Tensor, weights: dict, config: GPT2Config | Config, at: Tensor, mask: Tensor | None, trace=None, cache=None):
    """The stream [B, T, d] after the last layer; arguments as chapter 4's `pass_over`, but that nothing is traced.

    Raises BadInput like `check`.
    """
    check(config)
    family = program(config)
    if config.model_type == "gpt2":
        x = weights["wte.weight"][ids] + weights["wpe.weight"][at]  # [B, T, d]
        for layer in range(config.n_layer):
            normed = family.layer_norm(x, weights, f"h.{layer}.ln_1", config)  # [B, T, d]
            x = x + gpt2_attention(family, normed, weights, config, layer, mask, cache)  # [B, T, d]
            normed = family.layer_norm(x, weights, f"h.{layer}.ln_2", config)  # [B, T, d]
            x = x + family.mlp(normed, weights, config, layer, no_trace)  # [B, T, d]
        return x
    x = weights["model.embed_tokens.weight"][ids]  # [B, T, d]
    angles = family.rotation(at, config.rope, config.head_width, x.dtype)  # cos and sin, each [T, dh]
    for layer in range(config.n_layer):
        name = f"model.layers.{layer}"
        normed = family.rms_norm(x, weights, f"{name}.input_layernorm", config)  # [B, T, d]
        x = x + llama_attention(family, normed, weights, config, layer, angles, mask, cache)  # [B, T, d]
        normed = family.rms_norm(x, weights, f"{name}.post_attention_layernorm", config)  # [B, T, d]
        x = x + family.mlp(normed, weights, config, layer, no_trace)  # [B, T, d]
    return x


def unembed(x: Tensor, weights: dict, config: GPT2Config | Config, trace=None) -> Tensor:
    """Logits [B, T, V] of the last stream x [B, T, d], by the family's own function."""
    return program(config).unembed(x, weights, config, trace)


def new_cache(config: GPT2Config | Config, batch: int, capacity: int, **like) -> list[tuple[Tensor, Tensor]]:
    """Room for keys and values, as the family's own."""
    return program(config).new_cache(config, batch, capacity, **like)


def gpt2_attention(family, x, weights, config, layer, mask, cache=None):
    """What attention adds [B, T, d], from one matrix for queries, keys and values."""
    B, T, d = x.shape
    qkv = family.linear(x, weights, f"h.{layer}.attn.c_attn")  # [B, T, 3d]
    q, k, v = qkv.view(B, T, 3, config.n_head, -1).permute(2, 0, 3, 1, 4)  # each [B, h, T, dh]
    k, v = (k, v) if cache is None else cache.extend(layer, k, v)  # each [B, h, S, dh]
    mixed = one_operator(q, k, v, mask, attention_scale(config, layer))  # [B, h, T, dh]
    return family.linear(mixed.transpose(1, 2).reshape(B, T, d), weights, f"h.{layer}.attn.c_proj")  # [B, T, d]


def llama_attention(family, x, weights, config, layer, angles, mask, cache=None):
    """What attention adds [B, T, d], with rotated queries and keys, and g heads of keys and values."""
    B, T, _ = x.shape
    name, dh = f"model.layers.{layer}.self_attn", config.head_width
    q = family.linear(x, weights, f"{name}.q_proj").view(B, T, config.n_head, dh).transpose(1, 2)  # [B, h, T, dh]
    k = family.linear(x, weights, f"{name}.k_proj").view(B, T, config.kv_heads, dh).transpose(1, 2)  # [B, g, T, dh]
    v = family.linear(x, weights, f"{name}.v_proj").view(B, T, config.kv_heads, dh).transpose(1, 2)  # [B, g, T, dh]
    q, k = family.rotate(q, angles), family.rotate(k, angles)
    k, v = (k, v) if cache is None else cache.extend(layer, k, v)  # each [B, g, S, dh]
    mixed = one_operator(q, k, v, mask, dh**-0.5)  # [B, h, T, dh]
    return family.linear(mixed.transpose(1, 2).reshape(B, T, -1), weights, f"{name}.o_proj")  # [B, T, d]


def one_operator(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """The mixtures [B, h, T, dh] of v [B, g, S, dh] by softmax(scale q k): query head i reads head i // (h / g) of k and v."""
    hidden = None if mask is None else mask.to(q.dtype)  # [T, S], 0 and minus infinity
    groups = q.shape[1] != k.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden, scale=scale, enable_gqa=groups)
