"""Chapter 2: loading is checking. C01 C02 C03 C05 C06 C07 C09 C13 C15 and their kinds, the sources, the manifest."""

import json
import math
import re
import sys
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file, save, save_file

from examples.ch02 import config as ch02_config
from examples.ch02 import model as ch02
from examples.ch02 import reader as ch02_reader
from examples.ch02.checkpoint import bare_name, read_header
from examples.ch02.families import READERS, read_config
from examples.ch02.reader import CANNOT_MATTER, Reader
from examples.ch04.gpt2_from_scratch import ACTIVATIONS, forward, parameter_count
from examples.ch14.peers import TINY
from examples.lab.script import BadInput
from tests import support
from tests.support import (
    BASELINE,
    BASELINE_ARGMAX,
    IDS,
    FolderCase,
    G,
    call,
    config,
    library_gpt2,
    slow,
    start,
    weights,
    write_folder,
)


def logits(folder):
    """Logits [8, V] of the tiny input through the model at `folder`."""
    model = ch02.load(folder)
    return forward(IDS, model.weights, model.config)[0]


class LoadCase(FolderCase):
    def assertBaseline(self, folder):
        found = logits(folder)
        torch.testing.assert_close(found[-1], BASELINE, atol=1e-4, rtol=0)
        self.assertEqual(found.argmax(-1).tolist(), BASELINE_ARGMAX)

    def assertRefused(self, folder, *words):
        """Loading raises one line with `words`, and the script says it with status 2."""
        with self.assertRaises(BadInput) as caught:
            ch02.load(folder)
        for word in words:
            self.assertIn(word, str(caught.exception))
        self.assertBad(ch02.main, ["--model", folder], *words)


class Names(LoadCase):
    def test_prefixes_give_the_same_model(self):  # C01
        for i, prefix in enumerate(("", "transformer.", "_orig_mod.transformer.", "module.", "_module.transformer.", "model.")):
            with self.subTest(prefix):
                self.assertBaseline(write_folder(self.folder / str(i), prefix=prefix))

    def test_mixed_prefixes(self):  # C01
        mixed = {("transformer." if i % 2 else "") + k: w for i, (k, w) in enumerate(weights().items())}
        self.assertBaseline(write_folder(self.folder / "a", mixed))

    def test_an_unknown_prefix_is_an_error_that_names_keys(self):  # C01
        self.assertRefused(write_folder(self.folder / "a", prefix="wrapped.by.me."), "wte.weight")

    def test_two_keys_for_one_tensor(self):  # C01
        both = weights() | {"transformer.wte.weight": torch.zeros(11, 8)}
        self.assertRefused(write_folder(self.folder / "a", both), "transformer.wte.weight", "both wte.weight")

    def test_bare_name(self):
        for key in ("h.0.ln_1.bias", "transformer.h.0.ln_1.bias", "_orig_mod.module.transformer.h.0.ln_1.bias"):
            self.assertEqual(bare_name(key), "h.0.ln_1.bias")


class Buffers(LoadCase):
    def buffers(self, layers=2):
        masks = {f"h.{i}.attn.bias": torch.tril(torch.ones(1, 1, 16, 16)) for i in range(layers)}
        return masks | {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(layers)}

    def test_reported_never_counted_never_required(self):  # C02
        plain = ch02.load(write_folder(self.folder / "a"))
        for i, prefix in enumerate(("", "transformer.")):
            folder = write_folder(self.folder / f"b{i}", weights() | self.buffers(), prefix=prefix)
            model = ch02.load(folder)
            self.assertBaseline(folder)
            self.assertEqual(model.manifest["parameters"], 1976)
            self.assertEqual(len(model.manifest["buffers"]), 4)
            self.assertEqual(model.weights.keys(), plain.weights.keys())
            self.assertIn("h.0.attn.c_attn.bias", model.weights)  # ends in attn.bias to a careless filter
        self.assertEqual(plain.manifest["buffers"], [])

    def test_a_buffer_of_a_layer_that_is_not_there(self):
        self.assertRefused(write_folder(self.folder / "a", weights() | self.buffers(layers=3)), "h.2.attn.bias")

    def test_old_masks_of_bytes_or_booleans(self):
        for i, dtype in enumerate((torch.uint8, torch.bool)):
            mask = {"h.0.attn.bias": torch.tril(torch.ones(1, 1, 16, 16)).to(dtype)}
            self.assertBaseline(write_folder(self.folder / str(i), weights() | mask))


class Shapes(LoadCase):
    def test_the_square_matrix_is_not_transposed(self):  # C03
        turned = {k: w.T.contiguous() if k.endswith("attn.c_proj.weight") else w for k, w in weights().items()}
        found = logits(write_folder(self.folder / "a", turned))
        torch.testing.assert_close(found[-1, :4], torch.tensor([-0.201933, -0.405053, -1.399164, 1.312640]), atol=1e-4, rtol=0)
        self.assertEqual(set(found.argmax(-1).tolist()), {3})

    def test_out_in_matrices_are_refused_not_transposed_by_guess(self):  # C03
        turned = weights()
        turned["h.1.attn.c_attn.weight"] = turned["h.1.attn.c_attn.weight"].T.contiguous()
        self.assertRefused(write_folder(self.folder / "a", turned), "h.1.attn.c_attn.weight is [24, 8], not [8, 24]")

    def test_missing_tensors_are_named(self):  # C05
        for name in weights():
            with self.subTest(name):
                left = {k: w for k, w in weights().items() if k != name}
                with self.assertRaisesRegex(BadInput, name.replace(".", r"\.")):
                    ch02.load(write_folder(self.folder / "a", left))

    def test_unexpected_tensors_are_named(self):  # C05
        self.assertRefused(write_folder(self.folder / "a", weights() | {"h.2.ln_1.weight": torch.ones(8)}), "h.2.ln_1.weight")
        self.assertRefused(write_folder(self.folder / "b", weights() | {"score.weight": torch.ones(8)}), "score.weight")

    def test_the_config_is_of_another_model(self):
        self.assertRefused(write_folder(self.folder / "a", values=G | {"n_positions": 17}), "wpe.weight is [16, 8], not [17, 8]")
        self.assertRefused(write_folder(self.folder / "b", values=G | {"n_layer": 3}), "h.2.ln_1.weight", "and 7 more")

    def test_n_inner(self):  # C15
        no_field = {k: v for k, v in G.items() if k != "n_inner"}
        self.assertBaseline(write_folder(self.folder / "a", values=no_field))
        narrow = config(n_inner=20)
        folder = write_folder(self.folder / "b", weights(narrow), G | {"n_inner": 20})
        expected = torch.tensor([0.010313, -1.124168, -0.612303, 1.404934])
        torch.testing.assert_close(logits(folder)[-1, :4], expected, atol=1e-4, rtol=0)
        self.assertEqual(ch02.load(folder).manifest["parameters"], 1568)
        self.assertEqual(parameter_count(narrow)["total"], 1568)
        self.assertRefused(
            write_folder(self.folder / "c", values=G | {"n_inner": 20}), "h.0.mlp.c_fc.weight is [8, 32], not [8, 20]"
        )


class Head(LoadCase):
    def test_a_copy_of_a_tied_head(self):
        copy = weights() | {"lm_head.weight": weights()["wte.weight"]}
        folder = write_folder(self.folder / "a", copy)
        self.assertBaseline(folder)
        manifest = ch02.load(folder).manifest
        self.assertEqual((manifest["head"], manifest["parameters"]), ("tied, with a copy in the file", 1976))

    def test_a_head_that_contradicts_a_tied_config_names_both(self):
        other = weights() | {"lm_head.weight": weights()["wte.weight"] + 1}
        self.assertRefused(write_folder(self.folder / "a", other), "lm_head.weight", "wte.weight", "tie_word_embeddings")
        wide = weights() | {"lm_head.weight": torch.zeros(12, 8)}
        self.assertRefused(write_folder(self.folder / "b", wide), "lm_head.weight is [12, 8], not [11, 8]")

    def test_untied(self):
        untied = config(tie_word_embeddings=False)
        values = G | {"tie_word_embeddings": False}
        folder = write_folder(self.folder / "a", weights(untied), values)
        model = ch02.load(folder)
        self.assertEqual((model.manifest["head"], model.manifest["parameters"]), ("untied", 1976 + 88))
        theirs = library_gpt2(untied, weights(untied))(IDS).logits[0]
        torch.testing.assert_close(logits(folder), theirs, atol=1e-5, rtol=0)
        self.assertRefused(write_folder(self.folder / "b", values=values), "lm_head.weight")


class Shards(LoadCase):
    def setUp(self):  # C06
        super().setUp()
        keys = sorted(weights())
        self.parts = {"model-00001-of-00002.safetensors": keys[:10], "model-00002-of-00002.safetensors": keys[10:]}
        self.map = {f"transformer.{k}": name for name, part in self.parts.items() for k in part}
        (self.folder / "config.json").write_text(json.dumps(G))
        for name, part in self.parts.items():
            self.write(name, part)
        self.index(self.map)

    def write(self, name, keys):
        save_file({f"transformer.{k}": weights()[k] for k in keys}, self.folder / name)

    def index(self, weight_map):
        (self.folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    def test_both_shards(self):
        self.assertBaseline(self.folder)
        files = [f["name"] for f in ch02.load(self.folder).manifest["files"]]
        self.assertEqual(files, ["config.json", "model.safetensors.index.json", *self.parts])

    def test_a_shard_is_missing(self):
        (self.folder / "model-00002-of-00002.safetensors").unlink()
        self.assertRefused(self.folder, "model-00002-of-00002.safetensors is missing")

    def test_a_tensor_is_not_where_the_index_says(self):
        second = [k for k in self.parts["model-00002-of-00002.safetensors"] if k != "wte.weight"]
        self.write("model-00002-of-00002.safetensors", second)
        self.assertRefused(self.folder, "model-00002-of-00002.safetensors lacks transformer.wte.weight")

    def test_a_stray_file_is_not_read(self):
        save_file({"transformer.wte.weight": torch.zeros(11, 8)}, self.folder / "stray.safetensors")
        self.assertBaseline(self.folder)

    def test_a_shard_holds_what_the_index_does_not_name(self):
        self.index({k: v for k, v in self.map.items() if k != "transformer.wte.weight"})
        self.assertRefused(self.folder, "transformer.wte.weight in model-00002-of-00002.safetensors")

    def test_a_path_that_leaves_the_folder(self):
        other = self.folder.parent / "model-elsewhere.safetensors"
        for name in ("../other/model.safetensors", str(other), "sub/model.safetensors", "..\\model.safetensors", "model.bin"):
            with self.subTest(name):
                self.index(self.map | {"transformer.wte.weight": name})
                self.assertRefused(self.folder, "not a safetensors file in the same folder")

    def test_a_damaged_index(self):
        for text in (
            '{"weight_map": {}}',
            '{"weight_map": ["a"]}',
            "{}",
            '{"weight_map": {"a": 1}}',
            "[]",
            "{",
            '{"a": 1, "a": 2}',
        ):
            with self.subTest(text):
                (self.folder / "model.safetensors.index.json").write_text(text)
                self.assertRefused(self.folder, "model.safetensors.index.json", "again")


class Damage(LoadCase):
    def setUp(self):
        super().setUp()
        write_folder(self.folder)
        self.path = self.folder / "model.safetensors"
        self.good = self.path.read_bytes()

    def assertDamaged(self, data, *words):
        self.path.write_bytes(data)
        self.assertRefused(self.folder, str(self.path), *words)

    def test_cut_off_or_grown(self):  # C07
        self.assertDamaged(self.good[:-4], "cut off")
        self.assertDamaged(self.good + b"abc", "3 bytes after its last tensor")
        self.assertDamaged(self.good[:20], "cut off within its header")
        for size in (0, 7):
            self.assertDamaged(self.good[:size], f"cut off: {size} bytes")

    def test_not_weights_at_all(self):  # C07
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548105171\n"
        self.assertDamaged(pointer, "Git LFS pointer", "not downloaded")
        for page in (b"<!DOCTYPE html><html><body>404</body></html>", b"\n <html>", b"<?xml version='1.0'?><Error/>"):
            self.assertDamaged(page, "web page")
        self.assertDamaged(b"\xff" * 100, "not a safetensors file")

    def header(self, text, data=b"\0" * 24):
        return len(text.encode()).to_bytes(8, "little") + text.encode() + data

    def test_damaged_headers(self):  # C07
        one = '"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}'
        self.path.write_bytes(self.header("{" + one + "}"))
        self.assertEqual(read_header(self.path)["a"].bytes, 24)
        for text, word in (
            ("{" + one + ", " + one + "}", "twice"),
            ('{"a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 24]}}', "needs 32"),
            ("{" + one + ', "b": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]}}', "not where the one before it ends"),
            ('{"a": {"dtype": "F32", "shape": [-2, -3], "data_offsets": [0, 24]}}', "whole numbers"),
            ('{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0]}}', "damaged header"),
            ('{"a": {"shape": [2, 3], "data_offsets": [0, 24]}}', "damaged header"),
            ('{"a": 3}', "damaged header"),
            ("[]", "damaged header"),
            ("{", "damaged header"),
            ('{"a": NaN}', "damaged header"),
            ('{"a": {"dtype": "F4", "shape": [2, 3], "data_offsets": [0, 24]}}', "F4"),
        ):
            with self.subTest(text):
                self.assertDamaged(self.header(text), word)

    def test_what_the_library_reads_ours_reads(self):
        self.path.write_bytes(save({"a": torch.ones(2, 3), "b": torch.ones(4), "empty": torch.ones(0, 3)}))
        theirs = load_file(self.path)
        self.assertEqual({k: t.shape for k, t in read_header(self.path).items()}, {k: tuple(t.shape) for k, t in theirs.items()})

    def test_sizes_of_every_dtype(self):
        kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool)
        kinds += (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
        tensors = {str(kind): torch.zeros(3, dtype=kind) for kind in kinds}
        self.path.write_bytes(save(tensors))
        found = read_header(self.path)
        self.assertEqual({k: t.bytes for k, t in found.items()}, {k: t.nbytes for k, t in tensors.items()})

    def test_headers_that_the_library_is_stricter_about(self):
        one = '"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}'
        for about in ('{"a": 1}', "[1]", "3"):
            self.assertDamaged(self.header('{"__metadata__": ' + about + ", " + one + "}"), "damaged header")
        huge = '"h.0.attn.bias": {"dtype": "F32", "shape": [0, 1' + "0" * 30 + '], "data_offsets": [24, 24]}'
        self.assertDamaged(self.header("{" + one + ", " + huge + "}"), "damaged header")
        odd = weights() | {"h." + "9" * 400 + ".attn.bias": torch.zeros(1), "h.00.attn.bias": torch.zeros(1)}
        write_folder(self.folder, odd)
        self.assertRefused(self.folder, "attn.bias")

    def test_a_link_that_leads_nowhere(self):
        self.path.unlink()
        self.path.symlink_to(self.folder / "gone")
        self.assertRefused(self.folder, "model.safetensors does not exist")

    def test_a_folder_where_the_file_should_be(self):
        self.path.unlink()
        self.path.mkdir()
        self.assertRefused(self.folder, "is not a file")


class Pickles(LoadCase):
    def test_never_opened(self):  # C09
        touched = self.folder / "touched"

        class Probe:  # harmless: creates an empty file
            def __reduce__(self):
                return (open, (str(touched), "w"))

        write_folder(self.folder / "a")
        path = self.folder / "a" / "pytorch_model.bin"
        torch.save({"wte.weight": torch.ones(2), "x": Probe()}, path)
        (self.folder / "a" / "model.safetensors").unlink()
        self.assertRefused(self.folder / "a", "pytorch_model.bin", "pickle", "convert it to safetensors")
        self.assertRefused(path, "pickle", "convert it to safetensors")
        self.assertFalse(touched.exists())

    def test_every_kind_of_pickle(self):  # C09
        for i, name in enumerate(("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl")):
            folder = write_folder(self.folder / str(i))
            (folder / "model.safetensors").unlink()
            torch.save(weights(), folder / name)
            self.assertRefused(folder, name, "is a pickle")
            self.assertRefused(folder / name, name, "is a pickle")

    def test_not_a_fallback_for_a_broken_file(self):  # C09
        folder = write_folder(self.folder / "a")
        torch.save(weights(), folder / "pytorch_model.bin")
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:-4])
        self.assertRefused(folder, "model.safetensors is cut off")


class Config(LoadCase):
    def test_activation_functions(self):  # C13
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

    def test_the_two_gelus(self):  # C13
        x = torch.linspace(-6, 6, 120001, dtype=torch.float64)
        gap = (ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_new"](x)).abs()
        self.assertAlmostEqual(gap.max().item(), 4.73e-4, delta=1e-6)
        self.assertAlmostEqual(abs(x[gap.argmax()].item()), 2.699, delta=0.01)
        for at, erf, tanh in (
            (1.0, 0.8413447461, 0.8411919906),
            (-2.0, -0.0455002639, -0.0454023059),
            (3.0, 2.9959503059, 2.9963626079),
        ):
            value = torch.tensor([at], dtype=torch.float64)
            self.assertAlmostEqual(ACTIVATIONS["gelu"](value).item(), erf, places=9)
            self.assertAlmostEqual(ACTIVATIONS["gelu_new"](value).item(), tanh, places=9)

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


def published_fields(kind, **changes):
    """The fields of a tiny config.json of a family, with `changes`."""
    return {"model_type": kind, **TINY[kind], **changes}


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


class Moving(LoadCase):
    """The dtype and the device of a model, and the same model in another or on another."""

    def models(self):
        yield "wte.weight", support.model()
        yield "wte.weight", ch02.load(write_folder(self.folder / "a"))
        for kind in ("llama", "bloom", "deepseek_v3"):
            yield "model.embed_tokens.weight", ch02.random_model(published_fields(kind), seed=1)

    def assertIs_(self, model, dtype, device):
        self.assertEqual((model.dtype, model.device), (dtype, torch.device(device)))
        self.assertEqual({(w.dtype, w.device) for w in model.weights.values()}, {(dtype, torch.device(device))})

    def test_dtype_and_device(self):
        for name, model in self.models():
            self.assertIs_(model, torch.float32, "cpu")
            self.assertIs(model.token_table, model.weights[name])
            self.assertEqual(model.token_table.shape, (model.config.vocab_size, model.config.n_embd))

    def test_to(self):
        for _, model in self.models():
            was = {name: w.clone() for name, w in model.weights.items()}
            for moved, dtype, device in (
                (model.to(), torch.float32, "cpu"),
                (model.to(None), torch.float32, "cpu"),
                (model.to(torch.bfloat16), torch.bfloat16, "cpu"),
                (model.to(dtype=torch.float64), torch.float64, "cpu"),
                (model.to(device="meta"), torch.float32, "meta"),
                (model.to(device=torch.device("meta")), torch.float32, "meta"),
                (model.to(dtype=torch.float16, device="meta"), torch.float16, "meta"),
                (model.to(device="meta").to(torch.float16), torch.float16, "meta"),
            ):
                self.assertIs_(moved, dtype, device)
                self.assertEqual(list(moved.weights), list(model.weights))
                for name, w in moved.weights.items():
                    self.assertEqual(w.shape, was[name].shape)
                    if device == "cpu":
                        self.assertTrue(torch.equal(w, was[name].to(dtype)), name)
                for name in ("config", "tokenizer", "manifest", "fields", "path", "module"):
                    self.assertIs(getattr(moved, name), getattr(model, name))
            self.assertIs_(model, torch.float32, "cpu")  # it stays what it was
            self.assertTrue(all(torch.equal(w, was[name]) for name, w in model.weights.items()))
            for name, w in model.to(torch.float32, "cpu").weights.items():  # nothing to do: nothing copied
                self.assertIs(w, model.weights[name])

    def test_a_moved_model_computes_in_its_dtype(self):
        for _, model in self.models():
            wide, narrow = ch02.run(model.to(torch.float64), IDS), ch02.run(model.to(torch.bfloat16), IDS)
            self.assertEqual((wide.dtype, narrow.dtype), (torch.float64, torch.bfloat16))
            torch.testing.assert_close(wide.float(), ch02.run(model, IDS), atol=1e-4, rtol=0)

    def test_where_a_model_came_from(self):
        folder = write_folder(self.folder / "a")
        model = ch02.load(folder, dtype=torch.float64)
        self.assertEqual((model.path, model.fields, model.dtype), (folder, G, torch.float64))
        random = ch02.load("random:distilgpt2", dtype=torch.bfloat16)
        self.assertEqual((random.path, random.fields, random.dtype), (None, ch02.PUBLISHED["distilgpt2"], torch.bfloat16))


class Precision(LoadCase):
    def test_half_precision_files(self):
        for dtype, name in ((torch.bfloat16, "BF16"), (torch.float16, "F16"), (torch.float32, "F32")):
            folder = write_folder(self.folder / name, {k: w.to(dtype) for k, w in weights().items()})
            kept, wide = ch02.load(folder, dtype=None), ch02.load(folder)
            self.assertEqual({w.dtype for w in kept.weights.values()}, {dtype})
            self.assertEqual({w.dtype for w in wide.weights.values()}, {torch.float32})
            self.assertEqual({t["dtype"] for t in kept.manifest["tensors"]}, {name})
            self.assertEqual((kept.dtype, wide.dtype), (dtype, torch.float32))
            for key, w in weights().items():
                torch.testing.assert_close(wide.weights[key], w.to(dtype).float(), atol=0, rtol=0)

    def test_other_dtypes_are_refused(self):
        for dtype in (torch.float64, torch.int8):
            folder = write_folder(self.folder / "a", weights() | {"ln_f.bias": torch.zeros(8, dtype=dtype)})
            self.assertRefused(folder, "ln_f.bias")

    @unittest.skipUnless(sys.platform == "linux", "reads the process's memory map, which only Linux shows as a file")
    def test_weights_are_mapped_not_copied(self):
        folder = write_folder(self.folder / "a")
        model = ch02.load(folder)
        spans = []
        for line in Path("/proc/self/maps").read_text().splitlines():
            if line.endswith(str(folder / "model.safetensors")):
                begin, end = line.split()[0].split("-")
                spans.append((int(begin, 16), int(end, 16)))
        self.assertTrue(spans)
        for name, w in model.weights.items():
            self.assertTrue(any(b <= w.data_ptr() < e for b, e in spans), name)


class Sources(LoadCase):
    def test_what_is_not_a_model(self):
        (self.folder / "file.txt").write_text("hello")
        (self.folder / "empty").mkdir()
        for source, word in (
            (self.folder / "nothing", "no such folder"),
            (self.folder / "file.txt", "is a file"),
            (self.folder / "empty", "config.json does not exist"),
            ("gpt2", "owner/name"),
            ("random:gpt3", "gpt2-xl"),
            ("random:", "gpt2-xl"),
            ("", "owner/name"),
            ("somebody/model.gguf", "no such file"),
        ):
            with self.subTest(str(source)):
                self.assertRefused(source, word)

    def test_no_weights(self):
        folder = write_folder(self.folder / "a")
        (folder / "model.safetensors").unlink()
        self.assertRefused(folder, "holds neither model.safetensors nor")

    def test_random_weights_come_from_the_seed(self):
        a, b, c = (ch02.random_tensor("h.0.attn.c_attn.weight", (8, 24), seed) for seed in (0, 0, 1))
        self.assertTrue(torch.equal(a, b))
        self.assertFalse(torch.equal(a, c))
        self.assertAlmostEqual(ch02.random_tensor("x.weight", (400, 400), 0).std().item(), 0.02, delta=0.001)
        self.assertAlmostEqual(ch02.random_tensor("ln.weight", (4000,), 0).mean().item(), 1.0, delta=0.01)
        before = torch.random.get_rng_state()
        ch02.random_tensor("x.weight", (4, 4), 0)
        self.assertTrue(torch.equal(before, torch.random.get_rng_state()))

    def test_random_shape(self):
        model = ch02.load("random:distilgpt2", dtype=torch.bfloat16)
        self.assertEqual({n: tuple(w.shape) for n, w in model.weights.items()}, ch02.tensor_shapes(model.config))
        self.assertEqual(model.manifest["parameters"], 81_912_576)
        self.assertIsNone(model.tokenizer)

    def test_save_and_load(self):
        model = ch02.load(write_folder(self.folder / "a"))
        ch02.save(model, self.folder / "b")
        self.assertBaseline(self.folder / "b")
        ch02.save(replace(model, weights={k: w * 2 for k, w in model.weights.items()}), self.folder / "b")  # over the first
        torch.testing.assert_close(ch02.load(self.folder / "b").weights["wte.weight"], 2 * weights()["wte.weight"])
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a", "b"])
        (self.folder / "c").mkdir()
        (self.folder / "c" / "thesis.txt").write_text("precious")
        with self.assertRaisesRegex(BadInput, "not a model folder"):
            ch02.save(model, self.folder / "c")

    def test_everything_is_saved(self):
        """Untied, with a tokenizer, in half precision: what is written is what comes back, and what the library needs."""
        untied = config(tie_word_embeddings=False, vocab_size=1024, n_inner=20)
        tensors = {k: w.bfloat16() for k, w in weights(untied).items()}
        model = ch02.Model(untied, tensors, ch02.load().tokenizer)
        ch02.save(model, self.folder / "a", {"README.md": "words"})
        again = ch02.load(self.folder / "a", dtype=None)
        self.assertEqual(again.config, untied)
        self.assertEqual({k: w.dtype for k, w in again.weights.items()}, dict.fromkeys(tensors, torch.bfloat16))
        self.assertTrue(all(torch.equal(again.weights[k], w) for k, w in tensors.items()))
        self.assertEqual(again.tokenizer.to_str(), model.tokenizer.to_str())
        values = json.loads((self.folder / "a" / "config.json").read_text())
        self.assertEqual([values[k] for k in ("bos_token_id", "eos_token_id", "attn_pdrop", "embd_pdrop")], [1023, 1023, 0.0, 0.0])
        keys = set(load_file(self.folder / "a" / "model.safetensors"))
        self.assertIn("lm_head.weight", keys)
        self.assertIn("transformer.wte.weight", keys)
        self.assertEqual((self.folder / "a" / "README.md").read_text(), "words")
        self.assertEqual((self.folder / "a" / "model.safetensors").stat().st_mode & 0o777, 0o644)

    def test_what_is_not_a_model_of_ours_is_kept(self):
        model = ch02.load(write_folder(self.folder / "a"))
        for i, change in enumerate(({"model_type": "mamba"}, {})):
            other = write_folder(self.folder / f"o{i}", values=G | change)
            (other / "thesis.txt").write_text("precious")
            with self.assertRaisesRegex(BadInput, "not a model folder that was written here"):
                ch02.save(model, other)
            self.assertEqual((other / "thesis.txt").read_text(), "precious")
        (self.folder / "link").symlink_to(write_folder(self.folder / "real"))
        for _ in range(2):
            ch02.save(model, self.folder / "link")
        self.assertTrue((self.folder / "link").is_symlink())
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a", "link", "o0", "o1", "real"])

    def test_saved_models_load_in_the_library(self):
        from transformers import GPT2LMHeadModel

        ch02.save(ch02.load(write_folder(self.folder / "a")), self.folder / "b")
        theirs = GPT2LMHeadModel.from_pretrained(self.folder / "b", attn_implementation="eager").eval()
        torch.testing.assert_close(theirs(IDS).logits[0, -1], BASELINE, atol=1e-4, rtol=0)


class Tokenizer(LoadCase):
    def bpe(self, extra=0):
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, models, pre_tokenizers

        letters = {c: i for i, c in enumerate("abcdefghijk"[: 11 + extra])} | ({"l": 11} if extra else {})
        library = Library(models.BPE(vocab=letters, merges=[]))
        library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        return library

    def test_from_one_file_or_two(self):
        folder = write_folder(self.folder / "a")
        self.assertIsNone(ch02.load(folder).tokenizer)
        self.bpe().model.save(str(folder))
        self.assertEqual(ch02.load(folder).tokenizer.encode("cab").ids, [2, 0, 1])
        self.bpe().save(str(folder / "tokenizer.json"))
        self.assertEqual(ch02.load(folder).tokenizer.encode("cab").ids, [2, 0, 1])

    def test_truncation_in_the_file_is_not_obeyed(self):
        folder = write_folder(self.folder / "a")
        library = self.bpe()
        library.enable_truncation(2)
        library.enable_padding(length=8)
        library.save(str(folder / "tokenizer.json"))
        self.assertEqual(ch02.load(folder).tokenizer.encode("cabcab").ids, [2, 0, 1, 2, 0, 1])

    def test_an_id_outside_the_embedding_table(self):
        folder = write_folder(self.folder / "a")
        self.bpe(extra=1).save(str(folder / "tokenizer.json"))
        self.assertRefused(folder, "id 11", "vocab_size is 11")

    def test_a_damaged_tokenizer(self):
        folder = write_folder(self.folder / "a")
        (folder / "tokenizer.json").write_text("{}")
        self.assertRefused(folder, "tokenizer", "fetch it again")


class Script(LoadCase):
    def test_manifest(self):
        import hashlib

        folder = write_folder(self.folder / "a", weights() | {"h.0.attn.masked_bias": torch.tensor(-1e4)})
        status, out, _ = call(ch02.main, "--model", folder, "--json")
        manifest = json.loads(out)
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        self.assertEqual((status, manifest["parameters"], manifest["head"]), (0, 1976, "tied"))
        self.assertEqual([f["sha256"] for f in manifest["files"] if f["name"] == "model.safetensors"], [digest])
        self.assertEqual(sum(t["bytes"] for t in manifest["tensors"]), 4 * 1976)
        self.assertEqual([b["name"] for b in manifest["buffers"]], ["h.0.attn.masked_bias"])
        self.assertEqual([t["name"] for t in manifest["tensors"]], list(ch02.tensor_shapes(config())))
        self.assertEqual([f["bytes"] for f in manifest["files"]], [(folder / f["name"]).stat().st_size for f in manifest["files"]])
        random = json.loads(call(ch02.main, "--model", "random:distilgpt2", "--json", "--seed", "3")[1])
        self.assertEqual((random["seed"], {t["dtype"] for t in random["tensors"]}), (3, {"F32"}))
        self.assertEqual(sum(t["bytes"] for t in random["tensors"]), 4 * random["parameters"])
        kinds = call(ch02.main, "--model", folder)[1]
        self.assertIn(f"{2 * 8 * 24 * 4:,}", next(row for row in kinds.splitlines() if "h.*.attn.c_attn.weight" in row))
        for more in ([], ["--tensors"]):
            status, out, err = call(ch02.main, "--model", folder, *more)
            self.assertEqual((status, err), (0, ""))
            for text in (digest, "parameters: 1,976 numbers in 28 tensors, 7,904 bytes", "buffers: 1 numbers in 1 tensors"):
                self.assertIn(text, out)
        self.assertIn("h.1.mlp.c_proj.bias", out)

    def test_bad_options(self):
        self.assertBad(ch02.main, ["--modle", "x"], "--modle", "--help")
        self.assertBad(ch02.main, ["--seed", "-1"], "-1 is not 0")
        self.assertBad(ch02.main, ["--seed", "one"], "'one' is not a whole number")

    @slow
    def test_runs_from_anywhere_and_as_a_module(self):
        path = Path(ch02.__file__).resolve()
        for done in (start(path, "--help", cwd=self.folder), start("-m", "examples.ch02.model", "--help")):
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("default: embedded", done.stdout)

    @slow
    def test_no_traceback_in_a_process_of_its_own(self):
        done = start("examples/ch02/model.py", "--model", self.folder)
        self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
