"""Chapter 11's ways to have the weights of the same arithmetic in a cache of the processor, or certainly not."""

import re
from dataclasses import replace
from pathlib import Path

from examples.ch02.model import random_model


def heads_for(width):
    """How many heads of 64 a width has."""
    return max(1, width // 64)


def stand_in(model, width, layers, heads, inner=None, vocabulary=64, seed=0):
    """A random GPT-2 of another size with the operators of `model`, as many for each layer. inner: f, by default 4 d."""
    size = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_inner": inner, "vocab_size": vocabulary}
    return random_model((model.fields or {"model_type": "gpt2"}) | size, seed, source="stand-in")


def one_layer_everywhere(model, copied):
    """`model` with the weights of its first layer in every layer: as copies, or as the very same tensors.

    Both compute the same numbers. The copies have to be read from memory layer after layer; what is shared may stay in a cache.
    """

    def chosen(name, w):
        inside = re.match(r"h\.\d+\.(.*)", name)
        if not inside:
            return w
        first = model.weights[f"h.0.{inside[1]}"]
        return first.clone() if copied else first

    return replace(model, weights={name: chosen(name, w) for name, w in model.weights.items()})


def layer_bytes(model):
    """Bytes of the weights of one layer."""
    return sum(w.nbytes for name, w in model.weights.items() if name.startswith("h.0."))


def native_bfloat16():
    """Whether the processor multiplies bfloat16 itself; None where the system does not tell."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", flags))


def beyond_cache(sizes):
    """Bytes of weights that no cache of {name: bytes} holds: eight times the largest; of a very large one 256 MiB, or twice it."""
    return max(2 * sizes["L3"], min(8 * sizes["L3"], 2**28))


def rotating(x, pool, calls):
    """A function that multiplies x [T, n] by so many matrices [n, n], those of `pool` in turn, round and round."""

    def go():
        for i in range(calls):
            x @ pool[i % len(pool)]

    return go
