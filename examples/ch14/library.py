"""The same Llama in transformers: the other side of every agreement of chapter 14."""

import contextlib
import io
from pathlib import Path

import torch

from examples.ch04.library import in_order, watched

ROUNDED_IN_FLOAT64 = "a Llama's norms, softmax and angles"  # what transformers computes in float32 even in float64


def library_config(config):
    """Our LlamaConfig as transformers' own, eager, with no end or start token."""
    from transformers import LlamaConfig

    rope = config.rope
    parameters = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind != "default":
        parameters["factor"] = rope.factor
    if rope.kind == "llama3":
        parameters |= {"low_freq_factor": rope.low, "high_freq_factor": rope.high}
        parameters["original_max_position_embeddings"] = rope.original_positions
    same = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
    same += ("attention_bias", "mlp_bias", "tie_word_embeddings", "max_position_embeddings")
    return LlamaConfig(
        **{name: getattr(config, name) for name in same},
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_width,
        rope_parameters=parameters,
        **dict(bos_token_id=None, eos_token_id=None, pad_token_id=None),
        attn_implementation="eager",
    )


def library_model(model, dtype=torch.float32, device="cpu"):
    """transformers' LlamaForCausalLM for the `Artefact` `model`, in evaluation mode, with eager attention.

    Where the model came out of a GGUF file, transformers reads that file by itself, so that our reading is compared too.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    path = Path(model.manifest.get("path", ""))
    if path.suffix == ".gguf":
        settings = dict(gguf_file=path.name, dtype=dtype, attn_implementation="eager")
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar asks nobody
            return transformers.LlamaForCausalLM.from_pretrained(path.parent, **settings).to(device).eval()
    library = transformers.LlamaForCausalLM(library_config(model.config)).to(dtype)
    names = {name: w.to(dtype) for name, w in model.weights.items()}
    if model.config.tie_word_embeddings:
        names["lm_head.weight"] = names["model.embed_tokens.weight"]
    library.load_state_dict(names)
    library.tie_weights()
    return library.to(device).eval()


@torch.no_grad()
def library_trace(library, ids):
    """{(point, layer): tensor} of one pass over `ids` [B, T], under the names of our trace: all but the scores and q."""
    with watched() as (kept, keep):
        body = library.model
        keep(body.embed_tokens, "embedding", None)
        for layer, block in enumerate(body.layers):
            keep(block.input_layernorm, "norm_1", layer)
            keep(block.self_attn.v_proj, "v", layer)
            keep(block.self_attn, "attention", layer)
            keep(block.post_attention_layernorm, "residual_mid", layer, lambda inputs, output: inputs[0])
            keep(block.post_attention_layernorm, "norm_2", layer)
            keep(block.mlp.down_proj, "hidden", layer, lambda inputs, output: inputs[0])
            keep(block.mlp, "mlp", layer)
            keep(block, "residual", layer)
        keep(body.norm, "final_norm", None)
        output = library(ids, output_attentions=True, use_cache=True)
    kept["logits", None] = output.logits
    for layer, A in enumerate(output.attentions):
        kept["A", layer] = A
        held = output.past_key_values.layers[layer]
        kept["k", layer] = held.keys  # [B, g, T, dh], after the rotation
        kept["v", layer] = kept["v", layer].unflatten(-1, held.values.shape[1:2] + (-1,)).transpose(1, 2)  # [B, g, T, dh]
    return in_order(kept)
