"""Writes GGUF files as llama.cpp's converter lays them out, for the tests that read them."""

import gguf
import numpy as np

from examples.ch02 import gguf_file


def hf_to_gguf(heads, dh):
    """The order of rows that a converter writes: pairs side by side."""
    return np.arange(heads * dh).reshape(heads, 2, dh // 2).swapaxes(1, 2).reshape(-1)


def write(path, made, fields=(), drop=(), extra=(), order=True, architecture="llama", types=(), tokenizer=None):
    """A GGUF file of `made`, as llama.cpp's converter lays it out; order=False leaves the rows of q and k as they are.

    fields: {key of the architecture: value}. tokenizer: {key of tokenizer.ggml: value}; None is an end token alone, 9.
    """
    of = made.config
    writer = gguf.GGUFWriter(path, architecture)
    facts = {
        **{"context_length": of.n_positions, "embedding_length": of.n_embd, "block_count": of.n_layer},
        **{"feed_forward_length": of.inner_width, "attention.head_count": of.n_head},
        **{"attention.head_count_kv": of.kv_heads, "attention.key_length": of.head_width},
        **{"attention.layer_norm_rms_epsilon": of.norm_eps, "rope.freq_base": float(of.rope.theta)},
    } | dict(fields)
    adds = {
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        bool: writer.add_bool,
        list: writer.add_array,
    }
    for name, value in facts.items():
        if value is not None and name not in drop:
            key = name if name.startswith("split.") else f"{architecture}.{name}"
            adds[type(value)](key, value)
    for name, value in ({"eos_token_id": 9} if tokenizer is None else tokenizer).items():
        adds[type(value)](f"tokenizer.ggml.{name}", value)
    theirs = {v: k for k, v in gguf_file.NAMES.items()}
    outside = {v: k for k, v in gguf_file.OUTSIDE.items()}
    tensors = {}
    for name, w in made.weights.items():
        data = w.numpy()
        if order and (".q_proj." in name or ".k_proj." in name):
            data = data[hf_to_gguf(of.n_head if ".q_proj." in name else of.kv_heads, of.head_width)]
        stem, _, kind = name.rpartition(".")
        if stem in outside:
            tensors[f"{outside[stem]}.{kind}"] = data
        else:
            _, _, i, part = stem.split(".", 3)
            tensors[f"blk.{i}.{theirs[part]}.{kind}"] = data
    for name, data in (tensors | dict(extra)).items():
        if name not in drop:
            data = np.ascontiguousarray(data)
            kind = dict(types).get(name)
            if kind is None:
                writer.add_tensor(name, data)
            else:
                writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
