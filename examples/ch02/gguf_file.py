"""A model in one GGUF file, as llama.cpp uses them: its config, its weights dequantised, its tokenizer.

Only the `llama` architecture is read. Three things differ from Hugging Face's files and are set right here: dimensions are listed
in the other order; the rows of q and k lie as pairs side by side, for a rotation of pairs (2i, 2i + 1), where Hugging Face's
pair (i, i + dh / 2); and the rope of a Llama 3.1 or later is no table of settings, but a tensor of what divides each frequency.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from examples.ch02.config import Config, Rope
from examples.ch02.families import read_config
from examples.ch02.gguf_tokenizer import tokenizer_of
from examples.ch02.layout import weight_shapes
from examples.lab.script import BadInput

NAMES = {  # GGUF's names within a layer, blk.N.NAME
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ROPE_FACTORS = "rope_freqs.weight"
FIELDS = {  # of a config.json, by their names here
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "head_dim": "attention.key_length",
}
DEFAULTS = {"num_key_value_heads": "attention.head_count", "rope_theta": 10000.0, "head_dim": None}
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")  # of a text, of a turn in a chat, of a message in a turn
AGAIN = "fetch it again"
WITHOUT_EFFECT = {  # fields llama.NAME that say nothing which the tensors' shapes do not, or nothing that matters
    *("vocab_size", "attention.value_length", "rope.scaling.original_context_length", "rope.scaling.finetuned"),
    *("tensor_data_layout", "rope.scaling.factor"),
}


def opened(path: Path) -> tuple[dict, dict]:
    """(metadata, {GGUF's name: the library's tensor, mapped from the file}) of the file at `path`.

    Raises BadInput, in one line, for a file that is cut off or no GGUF, or of another architecture.
    """
    from gguf import GGUFReader

    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise BadInput(f"{path} does not start with GGUF's mark, so it is another kind of file; {AGAIN}")
    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        stored = {t.name: t for t in reader.tensors}
    except Exception as error:  # the library checks nothing: a cut file is whatever reading beyond its end raises
        raise BadInput(f"{path} is cut off or damaged ({str(error).splitlines()[0] if str(error) else error!r}); {AGAIN}") from None
    size = path.stat().st_size
    short = [t.name for t in stored.values() if t.data_offset + t.n_bytes > size]
    if short:
        raise BadInput(f"{path} is cut off: {short[0]} would reach beyond its end; {AGAIN}")
    if fields.get("general.architecture") != "llama":
        raise BadInput(f"{path}: the architecture is {fields.get('general.architecture')!r}; only 'llama' is read from GGUF here")
    parts = fields.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise BadInput(
            f"{path} is one of {parts} parts (split.count); join them with `llama-gguf-split --merge` and give the whole"
        )
    return fields, stored


def numbers(tensor, path: Path) -> np.ndarray:
    """The float32 numbers of one of the library's tensors; raises BadInput for a format that cannot be undone."""
    from gguf import dequantize

    try:
        return dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    except (NotImplementedError, ValueError, KeyError) as error:
        what = f"{tensor.name} is stored as {tensor.tensor_type.name}, which cannot be undone here ({error})"
        raise BadInput(f"{path}: {what}; use another file") from None


def describe(path: Path) -> tuple[Config, dict, dict, list]:
    """(Config, metadata, {Hugging Face's name: the library's tensor}, buffers' rows) of the file at `path`.

    The tensors stand in the order of the pass. Each one's name and shape is checked against the config, and no weight is read.
    Raises BadInput like `opened`, for a tensor that is missing, left over or of another shape, and for a rope that the file scales
    in a way not known here.
    """
    fields, stored = opened(path)
    config = config_of(fields, stored, path)
    buffers = []
    if ROPE_FACTORS in stored:
        config = replace(config, rope=_rope_with(config, numbers(stored[ROPE_FACTORS], path), path))
        buffers.append(_row(ROPE_FACTORS, stored.pop(ROPE_FACTORS)))
    shapes, found = weight_shapes(config), {}
    for name, tensor in stored.items():
        ours = hugging_face_name(name)
        if ours not in shapes:
            raise BadInput(f"{path} has the tensor {name}, which a llama of its config does not; use another file")
        shape = _shape(tensor)
        if tuple(shape) != shapes[ours]:
            raise BadInput(f"{path}: {name} is {shape}, not {list(shapes[ours])}; the file is not of one model")
        found[ours] = tensor
    absent = [name for name in shapes if name not in found]
    if absent:
        raise BadInput(f"{path} lacks {', '.join(absent[:5])}; {AGAIN}")
    return config, fields, {name: found[name] for name in shapes}, buffers


def weight(name: str, tensor, config: Config, path: Path) -> torch.Tensor:
    """The float32 numbers of the weight `name`, in Hugging Face's order of rows."""
    data = numbers(tensor, path)
    if ".self_attn.q_proj." in name or ".self_attn.k_proj." in name:
        data = halves_apart(data, config.n_head if "q_proj" in name else config.kv_heads)
    return torch.from_numpy(np.ascontiguousarray(data))


def read(path: Path) -> tuple[Config, dict, object, dict]:
    """(Config, {name: float32 tensor} by Hugging Face's names, tokenizer or None, facts) of the GGUF file at `path`.

    facts: {tensors and buffers: rows for the manifest, eos_token_id: an id, several or None}. Raises BadInput like `describe`, for
    a quantisation that cannot be undone, or a tokenizer that cannot be read.
    """
    config, fields, stored, buffers = describe(path)
    weights = {name: weight(name, tensor, config, path) for name, tensor in stored.items()}
    rows = [_row(name, tensor) for name, tensor in sorted(stored.items(), key=lambda pair: pair[1].data_offset)]
    ends = list(dict.fromkeys(fields[f"tokenizer.ggml.{name}"] for name in ENDS if f"tokenizer.ggml.{name}" in fields))
    facts = {"tensors": rows, "buffers": buffers, "eos_token_id": ends if len(ends) > 1 else ends[0] if ends else None}
    return config, weights, tokenizer_of(fields, config.vocab_size, path), facts


def _shape(tensor):
    return [int(n) for n in reversed(tensor.shape)]


def _row(name, tensor):
    return {"name": name, "shape": _shape(tensor), "dtype": tensor.tensor_type.name, "bytes": int(tensor.n_bytes)}


def _rope_with(config, factors, path):
    """The config's rope with each frequency divided by one of `factors` [dh / 2], as llama.cpp has it of Llama 3.1 and later."""
    where = f"{path}: {ROPE_FACTORS}"
    if config.rope.kind != "default":
        raise BadInput(f"{where} stands beside llama.rope.scaling.type {config.rope.kind!r}, and only one can be; use another file")
    if factors.shape != (config.head_width // 2,):
        raise BadInput(f"{where} is {list(factors.shape)}, not [{config.head_width // 2}], half a head's width; {AGAIN}")
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise BadInput(f"{where} holds what divides no frequency, a number that is not above 0; {AGAIN}")
    factors = tuple(factors.tolist())
    return Rope(theta=config.rope.theta, kind="factors", factor=max(factors), factors=factors)


def halves_apart(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads dh, ...] of q or k from GGUF's order to Hugging Face's: of each head first the even ones, then the odd.

    k takes its own number of heads, which with grouped queries is not that of q.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, dh / 2, 2, ...]
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def hugging_face_name(name: str) -> str | None:
    """`name` of a GGUF tensor as Hugging Face's files have it; None for one that is not known."""
    parts = name.split(".")
    if parts[0] == "blk" and len(parts) == 4 and parts[2] in NAMES:
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.{parts[3]}"
    return f"{OUTSIDE[parts[0]]}.{parts[1]}" if len(parts) == 2 and parts[0] in OUTSIDE else None


def config_of(fields: dict, stored: dict, path: Path) -> Config:
    """The Config that a file's fields and tensors say, less `rope_freqs.weight`. One without an output head has a tied one."""

    seen = set(WITHOUT_EFFECT)

    def field(name, default=None, kinds=(int, float)):
        seen.add(name)
        value = fields.get(f"llama.{name}", default)
        if value is None:
            raise BadInput(f"{path} lacks llama.{name}; {AGAIN}")
        if not isinstance(value, kinds) or isinstance(value, bool):  # a list: one number for each layer
            raise BadInput(f"{path}: llama.{name} is {repr(value)[:40]}, which is not known here; use another file")
        return value

    if "token_embd.weight" not in stored:
        raise BadInput(f"{path} lacks token_embd.weight; {AGAIN}")
    if stored["token_embd.weight"].shape.size != 2:
        raise BadInput(f"{path}: token_embd.weight is no table; {AGAIN}")
    factor = fields.get("llama.rope.scaling.factor")
    # where none is named, llama.cpp takes linear
    kind = field("rope.scaling.type", "none" if factor in (None, 0, 1) else "linear", str)
    if kind not in ("none", "linear"):
        raise BadInput(f"{path}: the rope is scaled by {kind!r}, which is not known here; known are 'none' and 'linear'")
    scaling = {"rope_type": "linear", "factor": factor} if kind == "linear" else None
    values = {
        "vocab_size": int(stored["token_embd.weight"].shape[1]),
        "rope_scaling": scaling,
        "tie_word_embeddings": "output.weight" not in stored,
        "attention_bias": "blk.0.attn_q.bias" in stored,
    }
    for theirs, name in FIELDS.items():
        default = DEFAULTS.get(theirs)
        if theirs not in DEFAULTS or default is not None or f"llama.{name}" in fields:
            values[theirs] = field(name, fields.get(f"llama.{default}") if isinstance(default, str) else default)
    try:
        config = read_config({"model_type": "llama", **values}, path)
    except BadInput as error:
        raise BadInput(_in_ggufs_words(str(error))) from None
    turned = field("rope.dimension_count", config.head_width)
    if turned != config.head_width:
        raise BadInput(f"{path}: the rope turns {turned} of {config.head_width} numbers of a head, which is not known here")
    for name, value in fields.items():
        on = name == "llama.attention.causal"  # the one switch that is on here
        says_nothing = bool(value) == on if isinstance(value, (bool, np.bool_)) else not value
        if name.startswith("llama.") and name.removeprefix("llama.") not in seen and not says_nothing:
            raise BadInput(f"{path}: {name} {repr(value)[:40]} may change the computation, and is not known here; use another file")
    return config


def _in_ggufs_words(message):
    """A line about a config.json as one about the file's own fields."""
    for theirs, ours in FIELDS.items():
        message = re.sub(rf"\b{theirs}\b", f"llama.{ours}", message)
    return message.replace("correct config.json", AGAIN)
