"""Chapter 2's configs: every field of a config.json is read, or cannot matter, or is refused by name; published shapes are those of
the library."""

import json
import math
import re
import unittest
from unittest import mock

import torch

from examples.ch02 import config as ch02_config
from examples.ch02 import model as ch02
from examples.ch02 import reader as ch02_reader
from examples.ch02.families import READERS, read_config
from examples.ch02.reader import CANNOT_MATTER, Reader
from examples.ch04.gpt2_from_scratch import ACTIVATIONS
from examples.ch14.peers import TINY
from examples.lab.script import BadInput
from tests.loading import LoadCase, logits
from tests.support import BASELINE, IDS, G, config, library_gpt2, published_fields, weights, write_folder


class Config(LoadCase):
    def test_activation_functions(self):
        expected = {
            "gelu": [0.728746, -0.829497, -0.089456, -0.173187],
            "relu": [0.826943, -0.768097, -0.177756, -0.285348],
            "gelu_pytorch_tanh": BASELINE[:4].tolist(),
            "gelu_new": BASELINE[:4].tolist(),
        }
        for name, ours in ch02_config.ACTIVATION_NAMES.items():
            folder = write_folder(self.folder / name, values=G | {"activation_function": name})
            found = logits(folder)
            self.assertEqual(ch02.load(folder).config.activation_function, ours)
            if name in expected:  # gelu and gelu_new are 3.1e-4 apart, so the tolerance tells them apart
                torch.testing.assert_close(found[-1, :4], torch.tensor(expected[name]), atol=1e-5, rtol=0)
            theirs = library_gpt2(config(activation_function=name), weights())(IDS).logits[0]
            torch.testing.assert_close(found, theirs, atol=1e-5, rtol=0)
        self.assertEqual(set(ACTIVATIONS), set(ch02_config.ACTIVATION_NAMES.values()))

    def test_refused_by_name(self):
        for change, word in (
            ({"activation_function": "gelu_fast"}, "gelu_fast"),
            ({"model_type": "mamba"}, "mamba"),
            ({"add_cross_attention": True}, "add_cross_attention"),
            ({"is_causal": False}, "is_causal"),
            ({"num_attention_heads": 4}, "n_head is 2 and num_attention_heads is 4"),
            ({"num_hidden_layers": 1}, "n_layer is 2 and num_hidden_layers is 1"),
            ({"hidden_size": 16}, "n_embd is 8 and hidden_size is 16"),
            ({"max_position_embeddings": 99}, "n_positions is 16 and max_position_embeddings is 99"),
            ({"n_embd": 2 * 10**200}, "n_embd is 2000"),
            ({"quantization_config": {"bits": 4}}, "quantization_config"),
            ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
            ({"n_head": 3}, "width 8 is not divisible by 3 heads"),
            ({"n_head": 0}, "n_head is 0"),
            ({"n_layer": "2"}, "n_layer is '2'"),
            ({"n_layer": True}, "n_layer is True"),
            ({"n_embd": 8.0}, "n_embd is 8.0"),
            ({"n_inner": 0}, "n_inner is 0"),
            ({"n_positions": -1}, "n_positions is -1"),
            ({"layer_norm_epsilon": 0}, "layer_norm_epsilon is 0"),
            ({"layer_norm_epsilon": "1e-5"}, "layer_norm_epsilon is '1e-5'"),
            ({"scale_attn_weights": 1}, "scale_attn_weights is 1"),
            ({"tie_word_embeddings": None}, "tie_word_embeddings is None"),
        ):
            with self.subTest(str(change)):
                self.assertRefused(write_folder(self.folder / "a", values=G | change), "config.json", word)

    def test_the_other_names_of_fields(self):
        renamed = {k: v for k, v in G.items() if k not in ("n_embd", "n_head")} | {"hidden_size": 8, "num_attention_heads": 2}
        self.assertBaseline(write_folder(self.folder / "a", values=renamed | {"num_hidden_layers": 2, "is_causal": True}))

    def test_fields_that_must_be_there(self):
        for name in ("model_type", "vocab_size", "n_positions", "n_embd", "n_layer", "n_head"):
            self.assertRefused(write_folder(self.folder / "a", values={k: v for k, v in G.items() if k != name}), name)

    def test_not_strict_json(self):
        folder = write_folder(self.folder / "a")
        for text in ("", "[]", "{", json.dumps(G)[:-1] + ', "n_layer": 3}', json.dumps(G).replace("1e-05", "NaN")):
            (folder / "config.json").write_text(text)
            self.assertRefused(folder, "config.json", "again")
        (folder / "config.json").write_bytes(b'{"a": "\xff"}')
        self.assertRefused(folder, "config.json")
        (folder / "config.json").unlink()
        self.assertRefused(folder, "config.json does not exist")

    def test_published_shapes(self):
        from transformers import GPT2LMHeadModel

        from examples.ch04.library import library_config

        for name, total in (
            ("distilgpt2", 81_912_576),
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
        ):
            shapes = ch02.tensor_shapes(ch02.load_config(name))
            with torch.device("meta"):
                theirs = GPT2LMHeadModel(library_config(ch02.PUBLISHED[name]))
            named = {n.removeprefix("transformer."): tuple(p.shape) for n, p in theirs.named_parameters()}
            self.assertEqual(named, shapes)
            self.assertEqual(sum(math.prod(s) for s in shapes.values()), total)


UNKNOWN = {  # fields that change what is computed in some family, by kinds of which they are not known
    "num_local_experts": (8, "gpt2 gpt_bigcode bloom llama gemma2"),
    "num_experts_per_tok": (2, "gpt2 gpt_bigcode bloom llama gemma2"),
    "moe_intermediate_size": (16, "gpt2 gpt_bigcode bloom llama gemma2"),
    "partial_rotary_factor": (0.5, "gpt2 gpt_bigcode bloom llama gemma2"),
    "sliding_window": (64, "gpt2 gpt_bigcode bloom llama"),
    "attention_multiplier": (0.1, "gpt2 gpt_bigcode bloom llama gemma2"),
    "scale_attn_by_inverse_layer_idx": (True, "gpt_bigcode bloom llama gemma2"),
    "layer_types": (["sliding_attention"] * 3, "gpt2 gpt_bigcode bloom llama"),
    "alibi": (True, "gpt2 gpt_bigcode bloom llama gemma2"),
    "rope_scaling": ({"rope_type": "linear", "factor": 2.0}, "gpt2 gpt_bigcode bloom"),
    "a_field_of_next_year": ("yes", "gpt2 gpt_bigcode bloom llama gemma2"),
}
HARMLESS = {
    **dict(attn_pdrop=0.1, resid_pdrop=0.1, embd_pdrop=0.1, attention_dropout=0.1, hidden_dropout=0.1, initializer_range=0.5),
    **dict(bos_token_id=1, eos_token_id=2, pad_token_id=3, decoder_start_token_id=1, id2label={"0": "NO", "1": "YES"}),
    **dict(label2id={"NO": 0, "YES": 1}, torch_dtype="float16", architectures=["AnyForCausalLM"], summary_type="mean"),
    **dict(task_specific_params={"text-generation": {"do_sample": True}}, transformers_version="4.0.0", use_cache=False),
    **dict(gradient_checkpointing=True, pretraining_tp=2, _name_or_path="somebody/model", tokenizer_class="Any", n_ctx=16),
}


class EveryField(LoadCase):
    """What a config.json says is read, or cannot matter, or is refused: nothing is passed over."""

    def test_what_is_not_known_is_refused_by_name(self):
        seen = set()
        for name, (value, kinds) in UNKNOWN.items():
            for kind in kinds.split():
                with self.subTest(name, kind=kind):
                    seen.add(kind)
                    values, said = published_fields(kind), f"{name} {repr(value)[:40]} may change the computation"
                    self.assertRefused(write_folder(self.folder / "a", values=values | {name: value}), "config.json", said, kind)
                    with self.assertRaises(BadInput) as caught:
                        read_config(values | {name: value}, "c.json")
                    self.assertTrue(str(caught.exception).startswith(f"c.json: {said}, and is not known here of a {kind};"))
        self.assertEqual(seen, {"gpt2", "gpt_bigcode", "bloom", "llama", "gemma2"})

    def test_a_number_that_may_be_none_is_refused_too(self):
        """Whether 0 says that something is not there depends on the field, so it is refused."""
        with self.assertRaisesRegex(BadInput, "num_local_experts 0 may change"):
            read_config(published_fields("llama", num_local_experts=0), "c.json")

    def test_within_the_rope(self):
        for kind in ("llama", "gemma2"):
            rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
            with self.assertRaisesRegex(BadInput, "the rope has 'partial_rotary_factor'"):
                read_config(published_fields(kind, rope_parameters=rope), "c.json")

    def test_what_says_that_something_is_not_there(self):
        for name, (_, kinds) in UNKNOWN.items():
            for kind in kinds.split():
                values = published_fields(kind)
                for nothing in (None, False, {}, [], ""):
                    with self.subTest(name, kind=kind, nothing=nothing):
                        self.assertEqual(read_config(values | {name: nothing}, "c.json"), read_config(values, "c.json"))

    def test_what_cannot_matter(self):
        for kind in READERS:
            values = published_fields(kind)
            harmless = HARMLESS | ({"pad_token_id": 1} if kind == "xglm" else {})
            for name, value in harmless.items():
                with self.subTest(name, kind=kind):
                    self.assertRegex(name, CANNOT_MATTER)
                    self.assertEqual(read_config(values | {name: value}, "c.json"), read_config(values, "c.json"))
            together = values | harmless | {"quantization_config": {"bits": 4}}  # of the weights' storage: `load` refuses it
            self.assertEqual(read_config(together, "c.json"), read_config(values, "c.json"))
        self.assertBaseline(write_folder(self.folder / "a", values=G | HARMLESS))

    def test_it_does_not_matter_to_the_library(self):
        from transformers import AutoConfig, AutoModelForCausalLM

        def library(kind, **fields):
            of = AutoConfig.for_model(kind, **TINY[kind] | fields)
            return AutoModelForCausalLM.from_config(of, dtype=torch.float32, attn_implementation="eager").eval()

        for kind in ("gpt2", "gpt_bigcode", "bloom", "llama", "gemma2"):
            plain, other = library(kind), library(kind, **HARMLESS)
            other.load_state_dict(plain.state_dict())
            with torch.no_grad():
                self.assertTrue(torch.equal(plain(IDS).logits, other(IDS).logits), kind)
        plain, other = library("gpt2"), library("gpt2", scale_attn_weights=False)  # one that does is seen
        other.load_state_dict(plain.state_dict())
        self.assertFalse(torch.equal(plain(IDS).logits, other(IDS).logits))

    def test_what_is_read_is_not_on_the_list(self):
        for kind, reader in READERS.items():
            r = Reader(published_fields(kind), "c.json")
            reader(r)
            self.assertGreater(len(r.seen), 8)
            self.assertEqual([name for name in r.seen if CANNOT_MATTER.fullmatch(name)], [], kind)

    def test_planted_faults(self):
        """Without the check, and with a list that has everything, what is not known is passed over."""
        for target, name, fault in ((Reader, "finish", lambda r: None), (ch02_reader, "CANNOT_MATTER", re.compile(".*"))):
            with mock.patch.object(target, name, fault), self.assertRaises(AssertionError), self.assertRaises(BadInput):
                read_config(published_fields("llama", partial_rotary_factor=0.5), "c.json")


if __name__ == "__main__":
    unittest.main()
