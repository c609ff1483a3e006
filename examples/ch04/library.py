"""The same models in transformers, and their intermediate tensors under the names of our trace.

This is the other side of every agreement, and it shares no reading with ours: transformers gets the folder, the GGUF file, or the
fields of `config.json` as they stand, never our config turned back. It runs its eager attention, which computes the scores that we
compute.
"""

import contextlib
import io
import json
import math
import tempfile
from pathlib import Path

import torch

from examples.ch02 import checkpoint
from examples.ch02.model import Model
from examples.ch02.reader import CANNOT_MATTER
from examples.ch04.gpt2_from_scratch import POINTS
from examples.lab.environment import import_transformers
from examples.lab.script import BadInput

NO_FLOAT64 = ("xglm",)  # the library's mask is a number that its float64 scores cannot take
ROUNDED_IN_FLOAT64 = {  # what the library computes in float32 even in float64
    **dict.fromkeys(("gpt_bigcode", "bloom"), "the softmax"),
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"), "norms, softmax and angles"),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "deepseek_v3"), "norms, softmax and angles"),
}


@torch.no_grad()
def library_model(model: Model, dtype: torch.dtype = torch.float32, device="cpu"):
    """transformers' own model for `model`, in evaluation mode, eager in attention and experts, with no start or end token.

    It reads the model's files by itself. Weights that are in no file, or under names that it does not know (a training wrapper's
    prefix), are handed to it. Raises BadInput for a dtype that it refuses, and for a model that has neither files nor fields.
    """
    transformers = import_transformers()
    from huggingface_hub.errors import StrictDataclassError

    if dtype == torch.float64 and refuses_float64(model):
        raise BadInput(f"transformers' {model.config.model_type} takes no float64; give another dtype")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    settings = dict(dtype=dtype, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar for GGUF asks nobody
            library, about = _load(model, settings)
            if not about["missing_keys"]:
                library.eval()(torch.zeros(1, 1, dtype=torch.int64), use_cache=False)  # some configs fail only here
    except BadInput:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())[:200] or repr(error)
        raise BadInput(f"transformers cannot make this model by itself ({reason}), so there is nothing to compare with") from None
    if about["missing_keys"]:
        raise BadInput(f"transformers does not find {sorted(about['missing_keys'])[0]}; compare the model from its own files")
    library.generation_config = transformers.GenerationConfig()
    return library.to(device).eval()


def _load(model, settings):
    """(the library's model, what it says of loading it), from the model's files, its fields, or its weights."""
    transformers = import_transformers()
    if model.path is not None and model.path.is_file():
        if getattr(model.config, "rope", None) and model.config.rope.factors:
            raise BadInput("transformers passes over a GGUF file's rope_freqs.weight: compare the model's folder, not this file")
        return transformers.AutoModelForCausalLM.from_pretrained(model.path.parent, gguf_file=model.path.name, **settings)
    config = library_config(model.fields)
    kind = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if model.path is not None:
        library, about = kind.from_pretrained(model.path, config=config, **settings)
        if not about["missing_keys"]:  # else it would go on with random weights in their place
            return library, about
    return kind.from_pretrained(None, config=config, state_dict=_named(model, kind.base_model_prefix), **settings)


def library_config(fields: dict | None):
    """transformers' config of the fields of a `config.json`, less those that cannot matter, and without special tokens."""
    transformers = import_transformers()
    if fields is None:
        raise BadInput("this model has neither files nor the fields of a config.json, so transformers cannot make it")
    kept = {name: value for name, value in fields.items() if not CANNOT_MATTER.fullmatch(name)}
    with tempfile.TemporaryDirectory() as folder:  # read by the library as a file, with whatever it makes of a model_type
        (Path(folder) / "config.json").write_text(json.dumps(kept | {"model_type": fields["model_type"]}), encoding="utf-8")
        config = transformers.AutoConfig.from_pretrained(folder)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    return config


def _named(model, prefix):
    """{name: tensor} as the library's classes have them, of the tensors in the model's files, or else of its weights."""
    tensors = checkpoint.read_tensors(checkpoint.by_bare_name(checkpoint.find_tensors(model.path))) if model.path else model.weights
    bare = {name.removeprefix("model."): w for name, w in tensors.items()}
    return {name if name.startswith("lm_head.") else f"{prefix}.{name}": w for name, w in bare.items()}


def refuses_float64(model: Model) -> bool:
    """Whether transformers cannot compute this model in float64: a GPT-2 with its upcast switch, and some families."""
    return getattr(model.config, "reorder_and_upcast_attn", False) or model.config.model_type in NO_FLOAT64


# ------------------------------------------------------------------------------------------------------------- its own trace

# By family, where each point is an output of one of the library's modules, or (marked <) what goes into it. Of the other families
# only the stream, A and the logits are looked at, which all of them show.
MODULES = {
    "gpt2": {
        **{"embedding": "transformer.drop", "norm_1": "transformer.h.{}.ln_1", "qkv": "transformer.h.{}.attn.c_attn"},
        **{"attention": "transformer.h.{}.attn", "residual_mid": "<transformer.h.{}.ln_2", "norm_2": "transformer.h.{}.ln_2"},
        **{"hidden": "transformer.h.{}.mlp.act", "mlp": "transformer.h.{}.mlp", "residual": "transformer.h.{}"},
        "final_norm": "transformer.ln_f",
    },
    "llama": {
        **{"embedding": "model.embed_tokens", "norm_1": "model.layers.{}.input_layernorm"},
        **{"attention": "model.layers.{}.self_attn", "residual_mid": "<model.layers.{}.post_attention_layernorm"},
        **{"norm_2": "model.layers.{}.post_attention_layernorm", "hidden": "<model.layers.{}.mlp.down_proj"},
        **{"mlp": "model.layers.{}.mlp", "residual": "model.layers.{}", "final_norm": "model.norm"},
    },
}


@torch.no_grad()
def library_trace(library, ids: torch.Tensor) -> dict:
    """{(point, layer): tensor} of one pass of the library over `ids` [B, T], in the order of the pass: of a GPT-2 all of POINTS but
    the scores, which it hides; of a Llama all but them and q; of the others the stream, A and the logits."""
    kind, modules = library.config.model_type, dict(library.named_modules())
    layers, kept, hooks = library.config.num_hidden_layers, {}, []

    def keep(point, layer, where):
        def hook(module, inputs, output):
            found = inputs[0] if where.startswith("<") else output
            kept[point, layer] = (found[0] if isinstance(found, tuple) else found).detach().clone()

        hooks.append(modules[where.lstrip("<").format(layer)].register_forward_hook(hook))

    try:
        for point, where in MODULES.get(kind, {}).items():
            for layer in range(layers) if "{}" in where else [None]:
                keep(point, layer, where)
        output = library(ids, output_attentions=True, output_hidden_states=True, use_cache=kind == "llama")
    finally:
        for hook in hooks:
            hook.remove()
    for layer, A in enumerate(output.attentions):
        kept["A", layer] = A
        if kind == "llama":  # what it caches are keys after the rotation
            held = output.past_key_values.layers[layer]
            kept["k", layer], kept["v", layer] = held.keys, held.values
        if kind == "gpt2":
            for point, part in zip("qkv", kept.pop(("qkv", layer)).chunk(3, dim=-1), strict=True):  # each [B, T, d]
                kept[point, layer] = part.unflatten(-1, (library.config.n_head, -1)).transpose(1, 2)  # [B, h, T, dh]
    if kind not in MODULES:
        first, *inner, last = output.hidden_states  # the last one has been through the final norm, where there is one
        kept |= {("embedding", None): first, ("final_norm", None): last}
        kept |= {("residual", layer): stream for layer, stream in enumerate(inner)}
    kept["logits", None] = output.logits
    return {key: kept[key] for key in sorted(kept, key=_order)}


def _order(key):
    """(layer, place in the pass), with the embedding before all layers and the final norm and the logits after them."""
    point, layer = key
    if layer is None:
        layer = -1 if point == "embedding" else math.inf
    return layer, list(POINTS).index(point)
