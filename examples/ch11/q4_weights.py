"""Chapter 11: the four-bit weights of a GGUF file, read as they lie in it and packed so that a processor's lanes can work on them.

Two types are read. A block of either holds 32 numbers of one row:

    Q4_1, 20 bytes: a scale d and a minimum m in half precision, then 16 bytes; byte i holds number i in its low four bits and
    number i + 16 in its high ones. Number n of the block is d n + m.
    Q8_0, 34 bytes: a scale d in half precision, then 32 signed bytes. Number n of the block is d n.

Nothing is rounded: what `fast_decode.py` reads for each token is the file's own scales, minima and integers, in another order. Four
bytes make a word of 32 bits, and a tile is as many rows as a vector register has lanes:

    words  [N / lanes, K / 32, words of a block, lanes]     N rows of K numbers; four words of a block in Q4_1, eight in Q8_0
    scales [N / lanes, K / 32, lanes]                       in Q4_1 d and m side by side in one word, in Q8_0 d in half precision

so that one load brings the same word of all rows of a tile. Words are held as float32, whose bits are never used as such: the
compiler loads those with one instruction, and views them as integers.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from examples.ch02.config import Config
from examples.ch02.gguf_file import describe, halves_apart
from examples.ch02.model import Model
from examples.lab.script import BadInput

BLOCK = 32  # numbers that share a scale
TYPES = {"Q4_1": 20, "Q8_0": 34}  # bytes of a block
NIBBLE_SIGN = np.uint32(0x80000000)  # the top bit of a word's highest four, and those of its three lower bytes
BYTE_SIGNS = np.uint32(0x00808080)
PARTS = {  # what a layer multiplies by, and of which of the file's matrices it is made, one below the other
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate": ("mlp.gate_proj",),
    "up": ("mlp.up_proj",),
    "down": ("mlp.down_proj",),
}


@dataclass(frozen=True)
class Packed:
    """A matrix [rows, columns] in tiles: `kind` is Q4_1 or Q8_0, words and scales as this file's docstring says.

    Where the rows do not fill the last tile, it ends with rows of zeros.
    """

    kind: str
    rows: int
    words: Tensor
    scales: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that a product with this matrix reads."""
        return self.words.nbytes + self.scales.nbytes


@dataclass(frozen=True)
class PackedLayer:
    """One layer: {part of PARTS: Packed}, its gains {norm: [d]}, and {part: bias [rows]} where it has any."""

    parts: dict
    gains: dict
    biases: dict

    @property
    def nbytes(self) -> int:
        """Bytes that a step reads of this layer."""
        return sum(x.nbytes for x in (*self.parts.values(), *self.gains.values(), *self.biases.values()))


@dataclass(frozen=True)
class PackedModel:
    """What a decode step reads of a model: L layers, the gain of the last norm [d] and the head [V, d].

    table: the token table [V, d] in float32, of which a step reads one row for each id.
    """

    config: Config
    layers: list
    gain: Tensor
    head: Packed
    table: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that a step reads: all layers, the last norm and the head, and a row of the table; without the cache."""
        return sum(layer.nbytes for layer in self.layers) + self.gain.nbytes + self.head.nbytes + self.table[0].nbytes


def lanes() -> int:
    """float32 numbers in a vector register of this processor, as torch uses it: the rows of a tile."""
    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8


def pack(model: Model, tile: int | None = None) -> PackedModel:
    """The matrices of a `Model` that was loaded from a GGUF file, read from that file once more, in tiles of `tile` rows.

    Norms, biases and the token table are the model's own tensors. Raises BadInput for a model of another file, of another dtype
    than float32, or with a matrix of another type than TYPES has, which it names.
    """
    path = gguf_of(model)
    config, _, stored, _ = describe(path)
    tile = tile or lanes()
    layers = []
    for i in range(config.n_layer):
        parts = {
            part: packed([blocks(f"model.layers.{i}.{name}.weight", stored, config, path) for name in names], tile)
            for part, names in PARTS.items()
        }
        layers.append(PackedLayer(parts, *gains_and_biases(model, i)))
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return PackedModel(
        config,
        layers,
        model.weights["model.norm.weight"],
        packed([blocks(head, stored, config, path)], tile),
        model.weights["model.embed_tokens.weight"],
    )


def gguf_of(model: Model) -> Path:
    """The GGUF file of a `Model`; raises BadInput where it is from none, or not in float32 on the processor."""
    where = model.manifest.get("source", "this model")
    if model.path is None or model.path.suffix != ".gguf":
        raise BadInput(f"{where} is not a GGUF file, and only one has four-bit weights; give smollm2 or a .gguf file")
    if model.dtype != torch.float32 or model.device.type != "cpu":
        name = str(model.dtype).removeprefix("torch.")
        raise BadInput(f"{where} is {name} on {model.device}; the four-bit path computes in float32 on the processor")
    return model.path


def gains_and_biases(model, layer):
    """({norm: gain [d]}, {part: bias}) of one layer; the biases of a part's matrices one behind the other, 0 where one has none."""
    weights, name = model.weights, f"model.layers.{layer}"
    gains = {norm: weights[f"{name}.{norm}.weight"] for norm in ("input_layernorm", "post_attention_layernorm")}
    biases = {}
    for part, names in PARTS.items():
        if any(f"{name}.{n}.bias" in weights for n in names):
            rows = [weights[f"{name}.{n}.weight"].shape[0] for n in names]
            found = [weights.get(f"{name}.{n}.bias", torch.zeros(r)) for n, r in zip(names, rows, strict=True)]
            biases[part] = torch.cat(found)
    return gains, biases


def blocks(name: str, stored: dict, config: Config, path: Path) -> tuple[str, np.ndarray]:
    """(type, bytes [rows, K / 32, bytes of a block]) of one matrix, its rows in Hugging Face's order.

    A block lies within a row, so that rows can change places and no block is touched. Raises BadInput for another type.
    """
    tensor = stored[name]
    kind = tensor.tensor_type.name
    if kind not in TYPES:
        raise BadInput(f"{path}: {tensor.name} is stored as {kind}, and the four-bit path reads {' and '.join(TYPES)} only")
    data = tensor.data.reshape(tensor.data.shape[0], -1, TYPES[kind])  # mapped from the file, uint8
    if ".q_proj." in name or ".k_proj." in name:
        data = halves_apart(data, config.n_head if ".q_proj." in name else config.kv_heads)
    return kind, data


def packed(found: list, tile: int) -> Packed:
    """One `Packed` of matrices [(type, blocks)] one below the other; raises BadInput where they are not of one type."""
    kinds = sorted({kind for kind, _ in found})
    if len(kinds) > 1:
        raise BadInput(f"matrices that are read together are stored as {' and '.join(kinds)}; the four-bit path wants one type")
    data = np.concatenate([data for _, data in found])  # [N, K / 32, bytes of a block]
    rows = len(data)
    data = np.pad(data, ((0, -rows % tile), (0, 0), (0, 0)))
    split = 4 if kinds[0] == "Q4_1" else 2  # bytes of the scales, and then the integers'
    words = np.ascontiguousarray(data[..., split:]).view(np.uint32)  # [N, K / 32, words]
    # An integer of 32 bits has a sign, and so have the highest four or eight bits of a word where they are masked and not shifted.
    # With its top bit turned over, a number of 0 to 15 reads as itself less 8. A signed byte at the top is right as it is; of the
    # lower ones the top bit is turned over, and they read as themselves plus 128.
    words = words ^ (NIBBLE_SIGN if kinds[0] == "Q4_1" else BYTE_SIGNS)
    scales = np.ascontiguousarray(data[..., :split])
    scales = scales.view(np.float32 if kinds[0] == "Q4_1" else np.float16)[..., 0]  # [N, K / 32]
    return Packed(kinds[0], rows, _tiles(words, tile).view(torch.float32), _tiles(scales, tile))


def _tiles(rows, tile):
    """[N, ...] as [N / tile, ..., tile]: the rows of a tile side by side."""
    moved = np.moveaxis(rows.reshape(len(rows) // tile, tile, *rows.shape[1:]), 1, -1)
    return torch.from_numpy(np.ascontiguousarray(moved).view(np.int32) if rows.dtype == np.uint32 else np.ascontiguousarray(moved))
