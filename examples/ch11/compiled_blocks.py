"""Chapter 11: the passes of GPT-2 and Llama with each layer compiled: torch.compile turns a block into loops in C++.

A program like the others: a model runs by it whose `module` names it. The block is the family's own, as it stands. The compiler
leaves the matmuls to torch's library and makes one loop of what stands between two of them, so that no vector goes to memory and
back for each operator, and Python is not asked for each operator either. One block is compiled, not the whole pass: every layer
is the same computation on other weights, which come to it under the names of layer 0. It is compiled for one new position and for
several, and for lengths that change; the first calls take seconds, and need a C++ compiler.
"""

import functools
import os
import shutil

import torch
from torch import Tensor

from examples.ch02.config import Config, GPT2Config
from examples.ch02.families import program
from examples.ch04.gpt2_from_scratch import causal_mask, check_ids, no_trace
from examples.lab.script import BadInput

FORMS = 64  # of one block that may be compiled in a process: models, dtypes, one position or several
LAYERS = {"gpt2": "h.", "llama": "model.layers."}


def check(config: GPT2Config | Config) -> None:
    """Raise BadInput for a model whose layers are not one computation, or where no C++ compiler is."""
    if config.model_type not in LAYERS or getattr(config, "scale_attn_by_inverse_layer_idx", False):
        raise BadInput(f"compiled blocks are written for gpt2 and llama, not for this {config.model_type}; give another model")
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++")):
        raise BadInput("no C++ compiler; install g++")


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
        x, angles = weights["wte.weight"][ids] + weights["wpe.weight"][at], ()  # [B, T, d]
    else:
        x = weights["model.embed_tokens.weight"][ids]  # [B, T, d]
        angles = (family.rotation(at, config.rope, config.head_width, x.dtype),)  # cos and sin, each [T, dh]
    if cache is not None:
        cache.check_room(ids.shape[1])
    for layer, own in enumerate(by_layer(weights, config)):
        held = () if cache is None else (cache.keys[layer], cache.values[layer], cache.length)
        with torch._dynamo.config.patch(recompile_limit=FORMS, fail_on_recompile_limit_hit=True):
            x = compiled()(family.block, x, own, config, angles, mask, held)  # [B, T, d]
    return x


def unembed(x: Tensor, weights: dict, config: GPT2Config | Config, trace=None) -> Tensor:
    """Logits [B, T, V] of the last stream x [B, T, d], by the family's own function, which is one norm and one matmul."""
    return program(config).unembed(x, weights, config, trace)


def new_cache(config: GPT2Config | Config, batch: int, capacity: int, **like) -> list[tuple[Tensor, Tensor]]:
    """Room for keys and values, as the family's own."""
    return program(config).new_cache(config, batch, capacity, **like)


class Room:
    """One layer of a cache: `extend` as chapter 10's. What is checked is checked before, and nothing is counted."""

    def __init__(self, keys: Tensor, values: Tensor, length: int):
        self.keys, self.values, self.length = keys, values, length

    def extend(self, layer, k, v):
        """All keys and values [B, g, S, dh], the new ones [B, g, T, dh] written behind the old."""
        new = k.shape[2]
        self.keys.narrow(2, self.length, new).copy_(k)
        self.values.narrow(2, self.length, new).copy_(v)
        return self.keys.narrow(2, 0, self.length + new), self.values.narrow(2, 0, self.length + new)


def one_block(block, x, weights, config, angles, mask, held):
    """The family's `block` as layer 0 on the stream x [B, T, d], with the one layer of a cache that `held` is."""
    return block(x, weights, config, 0, *angles, mask, no_trace, Room(*held) if held else None)


@functools.cache
def compiled():
    """`one_block`, to be compiled as it is first called with arguments of a new form."""
    return torch.compile(one_block)


def by_layer(weights: dict, config: GPT2Config | Config):
    """Of each layer its own weights, under the names of layer 0."""
    start = LAYERS[config.model_type]
    first = f"{start}0."
    own = [name.removeprefix(first) for name in weights if name.startswith(first)]
    for layer in range(config.n_layer):
        yield {f"{first}{name}": weights[f"{start}{layer}.{name}"] for name in own}
