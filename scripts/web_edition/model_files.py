"""The embedded model as two classic scripts, which a page reads from a file with no server.

tokenizer.js makes `book_model = {config, ends, tokenizer, bytes}`, so that ids can be shown before the weights are there; ends are the
ids that end a text, bytes is the size of the other script. weights.js, which comes after it, adds `tensors`, rows of [name, shape, offset in numbers], and `data`, all of them
in float16, the lower byte first, as base64. The same files give the same bytes.
"""

import base64
import json
from dataclasses import asdict
from pathlib import Path

import torch

from examples.ch02.model import Model, load
from examples.ch03.bpe import read_bpe
from examples.ch05.generate import end_tokens

TOKENIZER, WEIGHTS = "tokenizer.js", "weights.js"


def write_model_files(folder: Path) -> dict[str, int]:
    """Write the embedded model's scripts into `folder`: {name: bytes}."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, text in model_files(load(dtype=None)).items():
        sizes[name] = (folder / name).write_bytes(text.encode("utf-8"))
    return sizes


def model_files(model: Model) -> dict[str, str]:
    """{name: text} of the scripts of a GPT-2 with a byte-level BPE."""
    bpe = read_bpe(model)
    pieces = sorted(bpe.ids | bpe.whole, key=(bpe.ids | bpe.whole).get)
    merges = [list(pair) for pair in bpe.ranks]
    weights, rows, offset = [], [], 0
    for name, tensor in model.weights.items():
        weights.append(tensor.to(torch.float16).contiguous().numpy().astype("<f2").tobytes())
        rows.append([name, list(tensor.shape), offset])
        offset += tensor.numel()
    data = base64.b64encode(b"".join(weights)).decode("ascii")
    script = f"Object.assign(book_model, {_written({'tensors': rows, 'data': data})});\n"
    facts = {
        "config": asdict(model.config),
        "ends": sorted(end_tokens(model)),
        "tokenizer": {"pieces": pieces, "merges": merges, "whole": bpe.whole},
        "bytes": len(script),
    }
    return {TOKENIZER: f"var book_model = {_written(facts)};\n", WEIGHTS: script}


def rounded(model: Model) -> Model:
    """The model with the weights that the page has: in float16, and then as float32 again."""
    return model.to(dtype=torch.float16).to(dtype=torch.float32)


def _written(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
