"""The other side of the variants: tiny models of every family in transformers, with random weights that hide nothing.

Each config is as awkward as its family allows: a head width that is not d / h, more than one layer, a window shorter than the
text, a vocabulary that is no round number; gains, biases and the routing's bias are drawn, so that none can be left out unnoticed.
"""

import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

import torch

from examples.ch02.model import Model, load, seeded
from examples.lab.environment import import_transformers

_OLD = dict(vocab_size=53, n_positions=32, n_embd=24, n_layer=3, n_head=4)
_NEW = dict(vocab_size=53, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, head_dim=10)
_NEW |= dict(num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
_NO_DROPOUT = dict(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
_PLAIN = {"rope_theta": 10000.0, "rope_type": "default"}
_YARN = {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_YARN |= {"beta_fast": 4.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.8}
TINY = {  # by model_type: what differs from the library's defaults
    "gpt2": _OLD | _NO_DROPOUT,
    "openai-gpt": _OLD | _NO_DROPOUT | dict(afn="gelu", tie_word_embeddings=True),
    "gpt_bigcode": _OLD | _NO_DROPOUT | dict(n_inner=40),
    "bloom": dict(
        vocab_size=53, seq_length=64, hidden_size=24, n_layer=3, n_head=6, hidden_dropout=0.0, attention_dropout=0.0
    ),  # 6: no power of 2
    "xglm": dict(vocab_size=53, d_model=24, num_layers=3, attention_heads=4, ffn_dim=40, max_position_embeddings=64)
    | dict(dropout=0.0, attention_dropout=0.0),
    "llama": _NEW | dict(rope_parameters=_PLAIN),
    "mistral": _NEW | dict(sliding_window=6, rope_parameters=_PLAIN),
    "mixtral": _NEW | dict(num_local_experts=5, num_experts_per_tok=2, rope_parameters=_PLAIN),
    "qwen2": {k: v for k, v in _NEW.items() if k != "head_dim"} | dict(rope_parameters=_PLAIN),
    "qwen3": _NEW | dict(rope_parameters=_PLAIN | {"rope_theta": 1e6}),
    "qwen3_moe": _NEW
    | dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=18, norm_topk_prob=True, mlp_only_layers=[1])
    | dict(rope_parameters=_PLAIN),
    "gemma": _NEW | dict(num_key_value_heads=1, rope_parameters=_PLAIN),
    "gemma2": _NEW
    | dict(sliding_window=6, query_pre_attn_scalar=20, attn_logit_softcapping=3.0, final_logit_softcapping=4.0)
    | dict(rope_parameters=_PLAIN),
    "gemma3_text": _NEW
    | dict(sliding_window=6, query_pre_attn_scalar=20, layer_types=["sliding_attention"] * 2 + ["full_attention"]),
    "deepseek_v3": {k: v for k, v in _NEW.items() if k != "head_dim"}
    | dict(num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=14, qk_rope_head_dim=8, v_head_dim=7, qk_nope_head_dim=6)
    | dict(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2, moe_intermediate_size=18)
    | dict(first_k_dense_replace=1, num_nextn_predict_layers=0, routed_scaling_factor=1.7)
    | dict(rope_parameters=_YARN),
}


def library_config(model_type, **changes):
    """transformers' config of the tiny model, eager in attention and experts."""
    values = TINY[model_type] | changes
    config = import_transformers().AutoConfig.for_model(
        model_type, **values, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    config._attn_implementation = config._experts_implementation = "eager"
    return config


def library_tiny(model_type, seed=0, **changes):
    """transformers' tiny model of a family, its weights drawn from `seed`."""
    transformers = import_transformers()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    library = transformers.AutoModelForCausalLM.from_config(library_config(model_type, **changes)).eval()
    with torch.no_grad():
        named = dict(library.named_parameters()) | {n: b for n, b in library.named_buffers() if "e_score_correction" in n}
        for name, tensor in named.items():
            noise = torch.randn(tensor.shape, generator=seeded(seed, zlib.crc32(name.encode())))
            is_gain = tensor.ndim == 1 and name.endswith("weight")
            one = 0.0 if model_type.startswith("gemma") else 1.0  # a Gemma's gains are stored as what they differ from 1
            tensor.copy_(one + 0.4 * noise if is_gain else 0.3 * noise)
    return library


def by_files(library) -> Model:
    """The `Model` that chapter 2 reads from the files that `save_pretrained` writes, names and layout and all."""
    with tempfile.TemporaryDirectory() as holder:
        library.save_pretrained(holder)
        model = load(Path(holder))
        weights = {name: w.clone() for name, w in model.weights.items()}  # the files go
    return replace(model, weights=weights, path=None)
