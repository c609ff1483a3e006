"""Chapter 2's families: defaults are the library's, every spelling of a rope, the names in the files, and what is refused."""

import json
import re
import unittest
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

from examples.ch02.config import general
from examples.ch02.families import READERS, read_config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import load
from examples.ch02.reader import Reader
from examples.ch14 import peers
from examples.lab.script import BadInput
from tests.support import FolderCase, llama_config


def setUpModule():
    torch.set_num_threads(1)


LLAMA3 = {
    **dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
    **dict(original_max_position_embeddings=32),
}


EXPERT_FIELDS = {  # what mixtures of any kind write into their config.json
    **dict(num_local_experts=4, num_experts=4, n_routed_experts=4, moe_num_experts=4, num_experts_per_tok=2, moe_top_k=2),
    **dict(moe_intermediate_size=16, shared_expert_intermediate_size=16, n_shared_experts=1, norm_topk_prob=True),
    **dict(decoder_sparse_step=2, mlp_only_layers=[0], first_k_dense_replace=1, moe_layer_freq=2, n_group=2, topk_group=1),
    **dict(routed_scaling_factor=2.5, scoring_func="softmax", topk_method="greedy", enable_moe_block=True),
}
READ_BY = {  # of which some families read some
    "mixtral": ("num_local_experts", "num_experts", "num_experts_per_tok"),
    "qwen3_moe": ("num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
    + ("decoder_sparse_step", "mlp_only_layers"),
    "deepseek_v3": ("n_routed_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts")
    + ("norm_topk_prob", "first_k_dense_replace", "n_group", "topk_group", "routed_scaling_factor"),
}


class Reading(unittest.TestCase):
    def test_defaults_are_the_library_s(self):
        """A config.json with nothing in it but what must be there reads as transformers fills it up."""
        from transformers import AutoConfig

        old = dict(vocab_size=53, n_positions=32, n_embd=24, n_layer=30, n_head=4)
        new = dict(vocab_size=53, hidden_size=128, intermediate_size=40, num_hidden_layers=30, num_attention_heads=32)
        latent = dict(kv_lora_rank=14, qk_rope_head_dim=8, v_head_dim=7, qk_nope_head_dim=6, n_routed_experts=32)
        bare = dict.fromkeys(("gpt2", "openai-gpt", "gpt_bigcode"), old)
        bare |= dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text"), new)
        bare["deepseek_v3"] = new | latent | dict(num_key_value_heads=32, num_experts_per_tok=8, moe_intermediate_size=18)
        bare["bloom"] = dict(vocab_size=53, hidden_size=24, n_layer=3, n_head=4)
        bare["xglm"] = dict(vocab_size=53, d_model=24, num_layers=3, attention_heads=4, ffn_dim=40)
        self.assertEqual(set(bare), set(READERS))
        for kind, values in bare.items():
            filled = AutoConfig.for_model(kind, **values).to_dict() | {"model_type": kind}
            ours, theirs = (general(read_config(x, "c")) for x in (values | {"model_type": kind}, filled))
            self.assertEqual(ours, theirs, kind)
        windows = new | {"use_sliding_window": True, "model_type": "qwen2"}
        filled = AutoConfig.for_model(**windows).to_dict() | {"model_type": "qwen2"}
        self.assertEqual(read_config(windows, "c"), read_config(filled, "c"))

    def test_gemma_3_s_ropes_in_every_spelling(self):
        sizes = peers.TINY["gemma3_text"] | {"model_type": "gemma3_text"}
        old = read_config(sizes | {"rope_theta": 7e5, "rope_local_base_freq": 3e3}, "c")
        self.assertEqual((old.rope.theta, old.window_rope.theta), (7e5, 3e3))
        nested = {"full_attention": {"rope_theta": 7e5}, "sliding_attention": {"rope_theta": 3e3}}
        self.assertEqual(read_config(sizes | {"rope_parameters": nested}, "c"), old)
        bare = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}
        mixed = sizes | {"rope_parameters": bare, "rope_theta": 7e5, "rope_local_base_freq": 3e3}
        self.assertEqual(read_config(mixed, "c"), old)
        plain = read_config(sizes, "c")
        self.assertEqual((plain.rope.theta, plain.window_rope.theta), (1e6, 1e4))
        for changes in (
            {"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}},
            {"rope_parameters": nested, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"full_attention": 3}},
            {"attn_logit_softcapping": 30.0},
        ):
            with self.assertRaises(BadInput):
                read_config(sizes | changes, "c")

    def test_what_would_be_read_otherwise_is_refused(self):
        llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        for kind, changes, words in (
            ("xglm", dict(pad_token_id=5), "pad_token_id"),
            ("xglm", dict(d_model=3, attention_heads=1), "d_model"),
            ("bloom", dict(slow_but_exact=True), "slow_but_exact"),
            ("bloom", dict(num_attention_heads=5), "two names of one thing"),
            ("openai-gpt", dict(num_attention_heads=8), "two names of one thing"),
            ("xglm", dict(num_attention_heads=8), "two names of one thing"),
            ("qwen2", dict(layer_types=["sliding_attention"] * 3), "use_sliding_window"),
            ("gemma2", dict(sliding_window=None), "sliding_window is null"),
            ("llama", dict(rope_parameters=llama3 | {"high_freq_factor": 0.5}), "low_freq_factor"),
            (
                "llama",
                dict(rope_parameters=llama3 | {"original_max_position_embeddings": 32}, original_max_position_embeddings=16),
                "twice and differs",
            ),
            ("deepseek_v3", dict(rope_parameters=peers.TINY["deepseek_v3"]["rope_parameters"] | {"rope_theta": 1.0}), "yarn"),
            *(
                ("llama", dict(rope_parameters=llama3 | {"original_max_position_embeddings": bad}), "original_max_position")
                for bad in (16.9, 0.5, 0, True, "16")
            ),
            ("llama", dict(rope_parameters={"rope_type": 3, "rope_theta": 1e4}), "the rope type 3 is not known"),
            ("gemma2", dict(sliding_window=..., sliding_window_size=6), "sliding_window_size 6"),
            ("gemma2", dict(sliding_window_size=7), "sliding_window_size 7"),
            ("qwen2", dict(layer_types=["full_attention"], use_sliding_window=False), "layer_types"),
            ("qwen2", dict(layer_types=["chunked"] * 3, use_sliding_window=False), "layer_types"),
            ("gpt_bigcode", dict(multi_query=True, attention_type="multi_head"), "attention_type"),
            ("deepseek_v3", dict(head_dim=9), "head_dim 9"),
            ("deepseek_v3", dict(n_shared_experts=0), "n_shared_experts is 0"),
            ("deepseek_v3", dict(num_key_value_heads=...), "num_key_value_heads"),  # 128 in the library's class
            *(("deepseek_v3", {name: None}, f"{name} is None") for name in ("n_group", "topk_group", "routed_scaling_factor")),
            *(("gpt2", {name: None}, f"{name} is None") for name in ("scale_attn_weights", "tie_word_embeddings")),
            ("llama", dict(tie_word_embeddings=None), "tie_word_embeddings is None"),
            ("llama", dict(num_hidden_layers=10**9), "num_hidden_layers"),
            ("mixtral", dict(num_local_experts=10**9), "num_local_experts"),
            ("qwen3_moe", dict(num_experts=10**9), "num_experts"),
            ("qwen3_moe", dict(num_experts=0), "num_experts is 0"),
            ("qwen3_moe", dict(num_local_experts=6), "two names of one thing"),
            ("qwen3_moe", dict(num_experts_per_tok=6), "6 experts per token of 5"),
            ("qwen3_moe", dict(norm_topk_prob=None), "norm_topk_prob is None"),
            ("qwen3_moe", dict(norm_topk_prob=1), "norm_topk_prob is 1"),
            ("qwen3_moe", dict(decoder_sparse_step=0), "decoder_sparse_step is 0"),
            ("qwen3_moe", dict(decoder_sparse_step=None), "decoder_sparse_step is None"),
            *(("qwen3_moe", dict(mlp_only_layers=bad), "mlp_only_layers is .*a list of layers") for bad in (1, [3], [-1], [True])),
            ("qwen3_moe", dict(layer_types=["sliding_attention"] * 3), "layer_types"),
            ("qwen3_moe", dict(shared_expert_intermediate_size=8), "shared_expert_intermediate_size 8"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                kept = {name: v for name, v in (peers.TINY[kind] | changes).items() if v is not ...}
                read_config(kept | {"model_type": kind}, "c")
        config = read_config(peers.TINY["llama"] | {"model_type": "llama", "rope_parameters": llama3}, "c")
        self.assertEqual(config.rope.original_positions, 64)  # as the library: the positions there are

    def test_fields_of_experts_in_families_that_have_none(self):
        """A config that names experts is never counted and run as a dense model: each field is refused by name."""
        for kind in READERS:
            for name, value in EXPERT_FIELDS.items():
                if name in READ_BY.get(kind, ()):
                    continue
                said = re.escape(f"{name} {value!r} may change the computation, and is not known here of a {kind};")
                with self.subTest(name, kind=kind), self.assertRaisesRegex(BadInput, said):
                    read_config(peers.TINY[kind] | {"model_type": kind, name: value}, "c")
        dense = peers.TINY["llama"] | {"model_type": "llama", "num_local_experts": 4}
        with mock.patch.object(Reader, "finish", return_value=None):  # the planted fault: counted as a dense model
            self.assertIsNone(read_config(dense, "c").experts)

    def test_which_layers_of_a_qwen_3_are_mixtures(self):
        values = peers.TINY["qwen3_moe"] | {"model_type": "qwen3_moe", "num_hidden_layers": 5}
        for step, networks, dense in (
            (1, [], ()),
            (1, [0, 4], (0, 4)),
            (2, [], (0, 2, 4)),
            (2, [1], (0, 1, 2, 4)),
            (9, None, (0, 1, 2, 3, 4)),
        ):
            config = read_config(values | {"decoder_sparse_step": step, "mlp_only_layers": networks}, "c")
            self.assertEqual(config.experts.dense, dense)
            self.assertEqual([i for i in range(5) if not config.has_experts(i)], list(dense))
        old = {name: value for name, value in values.items() if name != "num_experts"}
        self.assertEqual(read_config(old | {"num_local_experts": 5}, "c"), read_config(values, "c"))  # as the library writes it
        self.assertEqual(read_config(values | {"max_window_layers": 2, "sliding_window": 6}, "c").windows, ())

    def test_of_a_llama_what_is_not_understood_is_refused(self):
        for changes, words in (
            (dict(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "'yarn' is not known"),
            (dict(rope_scaling={"type": "dynamic", "factor": 2.0}), "'dynamic' is not known"),
            (dict(rope_scaling={"rope_type": "linear"}), "factor is None"),
            (dict(rope_scaling={"rope_type": "linear", "factor": "4"}), "factor is '4'"),
            (dict(rope_scaling={"rope_type": "linear", "factor": 4.0, "beta": 1}), "'beta'"),
            (dict(rope_scaling={"rope_type": "default", "partial_rotary_factor": 0.5}), "'partial_rotary_factor'"),
            (dict(rope_scaling={k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}), "low_freq_factor is None"),
            (dict(rope_scaling=[4.0]), "no table"),
            (dict(rope_parameters={"rope_theta": 5e5, "rope_type": "default"}), "differ"),
            (dict(rope_theta=-1.0), "rope_theta is -1.0"),
            (dict(rope_theta=float("nan")), "rope_theta is nan"),
            (dict(hidden_act="gelu"), "hidden_act"),
            (dict(num_key_value_heads=3), "4 heads are not divisible by 3"),
            (dict(head_dim=3), "a head of 3 numbers is odd"),
            (dict(head_dim=0), "head_dim is 0"),
            (dict(hidden_size=9, head_dim=None), "not divisible"),
            (dict(vocab_size=None), "lacks vocab_size"),
            (dict(rms_norm_eps=0), "rms_norm_eps"),
            (dict(attention_bias="no"), "attention_bias"),
            (dict(rotary_dim=4), "rotary_dim 4 may change the computation, and is not known here of a llama"),
            (dict(model_type="mamba"), "model_type is 'mamba'; known here are 'gpt2', .*'llama'"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                llama_config(**changes)


class Files(FolderCase):
    def saved(self, kind, **changes):
        peers.library_tiny(kind, **changes).save_pretrained(self.folder / "m")
        return self.folder / "m"

    def test_the_names_are_those_of_the_files(self):
        for kind in peers.TINY:
            folder = self.saved(kind)
            held = load_file(folder / "model.safetensors")
            values = json.loads((folder / "config.json").read_text())
            config = read_config(values, "config.json")
            bare = {k.removeprefix("transformer."): tuple(w.shape) for k, w in held.items()}
            if config.tie_word_embeddings:
                bare.pop("lm_head.weight", None)
            self.assertEqual(bare, tensor_shapes(config), kind)

    def test_what_does_not_fit_is_refused(self):
        for kind in ("bloom", "mixtral", "deepseek_v3", "xglm"):
            folder = self.saved(kind)
            held = load_file(folder / "model.safetensors")
            name = sorted(held)[3]
            save_file({k: v for k, v in held.items() if k != name}, folder / "model.safetensors", metadata={"format": "pt"})
            with self.assertRaisesRegex(BadInput, f"lacks {name.removeprefix('transformer.')}".replace(".", r"\.")):
                load(folder)
            save_file(
                held | {"model.layers.9.extra.weight": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"}
            )
            with self.assertRaisesRegex(BadInput, "does not know"):
                load(folder)

    def test_quantised_weights_are_refused(self):
        folder = self.saved("qwen2")
        values = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "fp8"}}
        (folder / "config.json").write_text(json.dumps(values))
        with self.assertRaisesRegex(BadInput, "quantization_config"):
            load(folder)


if __name__ == "__main__":
    unittest.main()
