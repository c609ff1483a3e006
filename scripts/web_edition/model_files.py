"""The embedded model as two classic scripts, which a page reads from a file with no server.

tokenizer.js makes `book_model = {config, ends, tokenizer}`, so that ids can be shown before the weights are there; ends are the ids
that end a text. weights.js, which comes after it, adds `tensors`, rows of [name, shape, offset in numbers], and `data`, all of them
in float16, the lower byte first, as base64. The same files give the same bytes.
"""

import base64
import itertools
import json
from dataclasses import asdict
from pathlib import Path

import torch

from examples.ch02.model import Model, load
from examples.ch03.bpe import read_bpe
from examples.ch05.generate import end_tokens
from examples.lab.script import BadInput

TOKENIZER, WEIGHTS = "tokenizer.js", "weights.js"
# What the page's program takes for granted; its matrix products also take widths in fours.
PLAIN = dict(
    activation_function="gelu_new", scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, tie_word_embeddings=True
)


def write_model_files(folder: Path) -> dict[str, int]:
    """Write the embedded model's scripts into `folder`: {name: bytes}."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for name, text in model_files(load(dtype=None)).items():
        sizes[name] = (folder / name).write_bytes(text.encode("ascii"))
    return sizes


def model_files(model: Model) -> dict[str, str]:
    """{name: text} of the scripts of a GPT-2 with a byte-level BPE; raises BadInput for one that the page does not compute."""
    for name, value in PLAIN.items():
        if getattr(model.config, name) != value:
            raise BadInput(f"{name} is {getattr(model.config, name)!r}, and content/web/try/gpt2.js computes {value!r} only")
    bpe = read_bpe(model)
    ids = bpe.ids | bpe.whole
    tokenizer = {"pieces": sorted(ids, key=ids.get), "merges": list(bpe.ranks), "whole": bpe.whole}
    tokenizer |= dict(zip(("letters", "digits"), characters(model.tokenizer.pre_tokenizer), strict=True))
    facts = {"config": asdict(model.config), "ends": sorted(end_tokens(model)), "tokenizer": tokenizer}
    parts, rows, offset = [], [], 0
    for name, tensor in model.weights.items():
        parts.append(tensor.to(torch.float16).numpy().astype("<f2").tobytes())
        rows.append([name, list(tensor.shape), offset])
        offset += tensor.numel()
    data = base64.b64encode(b"".join(parts)).decode("ascii")
    script = f"Object.assign(book_model, {_written({'tensors': rows, 'data': data})});\n"
    facts["bytes"] = len(script)  # a page says what it is about to load
    return {TOKENIZER: f"var book_model = {_written(facts)};\n", WEIGHTS: script}


def rounded(model: Model) -> Model:
    """The model with the weights that the page has: in float16, and then as float32 again."""
    return model.to(dtype=torch.float16).to(dtype=torch.float32)


def characters(pre_tokenizer) -> tuple[list[int], list[int]]:
    """What the library takes for a letter and for a digit, each as runs: [how many others, how many such, how many others, ...].

    It is asked, because its tables of Unicode are of another year than those of Python and of a browser. Of `aX1` the character
    X is a letter where a word goes on with it, and a digit where a word goes on behind it.
    """
    letters, digits = [], []
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]  # surrogates are no characters
    for some in (codes[at : at + 4096] for at in range(0, len(codes), 4096)):
        text = "".join(f"a{chr(code)}1\n" for code in some)
        starts = {start for _, (start, _) in pre_tokenizer.pre_tokenize_str(text)}
        for i, code in enumerate(some):
            before, behind = 4 * i + 1 not in starts, 4 * i + 2 not in starts
            letters += [code] if before else []
            digits += [code] if behind and code != ord(" ") else []  # a word may begin with a blank
    return _runs(letters), _runs(digits)


def _runs(codes):
    runs, end = [], 0
    for _, group in itertools.groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        found = [code for _, code in group]
        runs += [found[0] - end, len(found)]
        end = found[-1] + 1
    return runs


def _written(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
