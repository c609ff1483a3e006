"""A model in one GGUF file, as llama.cpp uses them: its config, its weights dequantised, its tokenizer.

Only the `llama` architecture is read. Two things differ from Hugging Face's files and are set right here: dimensions are listed
in the other order, and the rows of q and k lie as pairs side by side, for a rotation of pairs (2i, 2i + 1), where Hugging Face's
pair (i, i + dh / 2).
"""

from pathlib import Path

import numpy as np
import torch

from examples.ch02.config import Config
from examples.ch02.families import read_config
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
AGAIN = "fetch it again"
WITHOUT_EFFECT = {  # fields llama.NAME that say nothing which the tensors' shapes do not, or nothing that matters
    *("vocab_size", "attention.value_length", "rope.scaling.original_context_length", "rope.scaling.finetuned"),
    *("tensor_data_layout", "rope.scaling.factor"),
}


def read(path: Path) -> tuple[Config, dict, object, dict]:
    """(Config, {name: float32 tensor} by Hugging Face's names, tokenizer or None, facts) of the GGUF file at `path`.

    facts: {tensors: rows for the manifest, eos_token_id}. Raises BadInput, in one line, for a file that is cut off or no GGUF,
    another architecture, a quantisation that cannot be undone, or a rope that the file scales in a way not known here.
    """
    from gguf import GGUFReader, dequantize

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
    config = config_of(fields, stored, path)
    shapes, weights, rows = weight_shapes(config), {}, []
    for name, tensor in stored.items():
        ours = hugging_face_name(name)
        if ours not in shapes:
            raise BadInput(f"{path} has the tensor {name}, which a llama of its config does not; use another file")
        try:
            data = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        except (NotImplementedError, ValueError, KeyError) as error:
            raise BadInput(
                f"{path}: {name} is stored as {tensor.tensor_type.name}, which cannot be undone here ({error})"
            ) from None
        if data.shape != shapes[ours]:
            raise BadInput(f"{path}: {name} is {list(data.shape)}, not {list(shapes[ours])}; the file is not of one model")
        if ".self_attn.q_proj." in ours or ".self_attn.k_proj." in ours:
            data = halves_apart(data, config.n_head if "q_proj" in ours else config.kv_heads)
        weights[ours] = torch.from_numpy(np.ascontiguousarray(data))
        rows.append({"name": ours, "shape": list(data.shape), "dtype": tensor.tensor_type.name, "bytes": int(tensor.n_bytes)})
    absent = [name for name in shapes if name not in weights]
    if absent:
        raise BadInput(f"{path} lacks {', '.join(absent[:5])}; {AGAIN}")
    facts = {"tensors": rows, "eos_token_id": fields.get("tokenizer.ggml.eos_token_id")}
    return config, {name: weights[name] for name in shapes}, tokenizer_of(fields), facts


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
    """The Config that a file's fields and tensors say. A file without an output head has a tied one."""

    seen = set(WITHOUT_EFFECT)

    def field(name, default=None):
        seen.add(name)
        value = fields.get(f"llama.{name}", default)
        if value is None:
            raise BadInput(f"{path} lacks llama.{name}; {AGAIN}")
        return value

    if "token_embd.weight" not in stored:
        raise BadInput(f"{path} lacks token_embd.weight; {AGAIN}")
    factor = fields.get("llama.rope.scaling.factor")
    kind = field("rope.scaling.type", "none" if factor in (None, 0, 1) else "linear")  # which llama.cpp takes where none is named
    if kind not in ("none", "linear") or "rope_freqs.weight" in stored:
        what = "rope_freqs.weight" if "rope_freqs.weight" in stored else repr(kind)
        raise BadInput(f"{path}: the rope is scaled by {what}, which is not known here; known are 'none' and 'linear'")
    scaling = {"rope_type": "linear", "factor": factor} if kind == "linear" else None
    values = {
        "vocab_size": int(stored["token_embd.weight"].shape[1]),
        "hidden_size": field("embedding_length"),
        "intermediate_size": field("feed_forward_length"),
        "num_hidden_layers": field("block_count"),
        "num_attention_heads": field("attention.head_count"),
        "num_key_value_heads": field("attention.head_count_kv", field("attention.head_count")),
        "max_position_embeddings": field("context_length"),
        "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
        "rope_theta": field("rope.freq_base", 10000.0),
        "rope_scaling": scaling,
        "tie_word_embeddings": "output.weight" not in stored,
        "attention_bias": "blk.0.attn_q.bias" in stored,
    }
    if "llama.attention.key_length" in fields:
        values["head_dim"] = field("attention.key_length")
    config = read_config({"model_type": "llama", **values}, path)
    turned = field("rope.dimension_count", config.head_width)
    if turned != config.head_width:
        raise BadInput(f"{path}: the rope turns {turned} of {config.head_width} numbers of a head, which is not known here")
    for name, value in fields.items():
        on = name == "llama.attention.causal"  # the one switch that is on here
        says_nothing = bool(value) == on if isinstance(value, (bool, np.bool_)) else not value
        if name.startswith("llama.") and name.removeprefix("llama.") not in seen and not says_nothing:
            raise BadInput(f"{path}: {name} {repr(value)[:40]} may change the computation, and is not known here; use another file")
    return config


def tokenizer_of(fields: dict):
    """The byte-level BPE that the fields hold, as `tokenizers.Tokenizer`; None for another kind of tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    splits = {"gpt-2": [], "gpt2": [], "smollm": [pre_tokenizers.Digits(individual_digits=True)]}
    kind = fields.get("tokenizer.ggml.pre", "gpt-2")
    if fields.get("tokenizer.ggml.model") != "gpt2" or kind not in splits:
        return None
    pieces = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits[kind], level])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields.get("tokenizer.ggml.token_type", [])
    special = [piece for piece, number in zip(pieces, kinds, strict=False) if number == 3]  # 3: a control token
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in special])
    return tokenizer
