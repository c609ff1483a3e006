"""The same model in transformers, and its intermediate tensors under the names of our trace.

This is the other side of every agreement: transformers reads the folder by itself where there is one, so that our loading is
compared too, and runs its eager attention, which computes the scores that we compute.
"""

import contextlib
import math

import torch

from examples.ch02 import artefact as ch02
from examples.ch04.gpt2_from_scratch import POINTS


def library_model(model, dtype=torch.float32, device="cpu"):
    """transformers' GPT2LMHeadModel for the `Artefact` `model`, in evaluation mode, with eager attention."""
    import transformers

    ch02.require(model.config, "gpt2", "this comparison with transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    library = None if model.folder is None else _from_folder(model, dtype)
    if library is None:
        with torch.device("meta"):  # no memory for weights that are replaced in the next line
            library = transformers.GPT2LMHeadModel(library_config(model.config))
        names = {n if n.startswith("lm_head") else f"transformer.{n}": w for n, w in model.weights.items()}
        if model.config.tie_word_embeddings:
            names["lm_head.weight"] = names["transformer.wte.weight"]
        library.load_state_dict({n: w.to(dtype) for n, w in names.items()}, assign=True)
        library.tie_weights()
    return library.to(device).eval()


def _from_folder(model, dtype):
    """The library's own reading of the folder; None where it does not find every weight there.

    It does not know the prefixes that training wrappers leave, and would go on with random weights in their place.
    """
    import transformers

    settings = {"config": library_config(model.config), "dtype": dtype, "output_loading_info": True}
    library, about = transformers.GPT2LMHeadModel.from_pretrained(model.folder, **settings)
    return None if about["missing_keys"] or about["unexpected_keys"] else library


def library_config(config):
    """Our config as transformers' GPT2Config, with no dropout."""
    import transformers

    same = {name: getattr(config, name) for name in ch02.GPT2Config.__dataclass_fields__}
    none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    return transformers.GPT2Config(**same, **none, attn_implementation="eager")


@contextlib.contextmanager
def watched():
    """(kept, keep): while the block lasts, keep(module, point, layer) has each output of a module copied to kept[point, layer].

    pick: what of (inputs, output) to keep, by default the output; of several outputs the first is meant.
    """
    kept, hooks = {}, []

    def keep(module, point, layer, pick=lambda inputs, output: output):
        def hook(module, inputs, output):
            found = pick(inputs, output[0] if isinstance(output, tuple) else output)
            kept[point, layer] = found.detach().clone()

        hooks.append(module.register_forward_hook(hook))

    try:
        yield kept, keep
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def library_trace(library, ids):
    """{(point, layer): tensor} of one pass of the library over `ids` [B, T]: all of POINTS but the scores, which it hides."""
    with watched() as (kept, keep):
        body = library.transformer
        keep(body.drop, "embedding", None)
        for layer, block in enumerate(body.h):
            keep(block.ln_1, "norm_1", layer)
            keep(block.attn.c_attn, "qkv", layer)
            keep(block.attn, "attention", layer)
            keep(block.ln_2, "residual_mid", layer, lambda inputs, output: inputs[0])
            keep(block.ln_2, "norm_2", layer)
            keep(block.mlp.act, "hidden", layer)
            keep(block.mlp, "mlp", layer)
            keep(block, "residual", layer)
        keep(body.ln_f, "final_norm", None)
        output = library(ids, output_attentions=True, use_cache=False)
    kept["logits", None] = output.logits
    heads = library.config.n_head
    for layer, A in enumerate(output.attentions):
        kept["A", layer] = A
        parts = kept.pop(("qkv", layer)).chunk(3, dim=-1)  # each [B, T, d]
        for point, part in zip("qkv", parts, strict=True):
            kept[point, layer] = part.unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, h, T, dh]
    return in_order(kept)


def in_order(kept):
    """{(point, layer): tensor} in the order of the pass, whatever order the hooks and the outputs came in."""
    return {key: kept[key] for key in sorted(kept, key=_order)}


def _order(key):
    """(layer, place in the pass), with the embedding before all layers and the final norm and the logits after them."""
    point, layer = key
    if layer is None:
        layer = -1 if point == "embedding" else math.inf
    return layer, POINTS.index(point)
