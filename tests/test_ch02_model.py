"""Chapter 2: loading is checking. Names, buffers, shapes, shards, damage and pickles, dtypes and devices, sources of models."""

import json
import math
import os
import sys
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
from safetensors.torch import load_file, save, save_file

from examples.ch02 import model as ch02
from examples.ch02.checkpoint import bare_name, read_header
from examples.ch03.tokens import random_ids
from examples.ch04.cost_model import parameter_count
from examples.lab.script import BadInput
from tests import support
from tests.loading import LoadCase, logits
from tests.support import BASELINE, IDS, G, config, library_gpt2, published_fields, weights, write_folder


class Names(LoadCase):
    def test_prefixes_give_the_same_model(self):
        for i, prefix in enumerate(("", "transformer.", "_orig_mod.transformer.", "module.", "_module.transformer.", "model.")):
            with self.subTest(prefix):
                self.assertBaseline(write_folder(self.folder / str(i), prefix=prefix))

    def test_mixed_prefixes(self):
        mixed = {("transformer." if i % 2 else "") + k: w for i, (k, w) in enumerate(weights().items())}
        self.assertBaseline(write_folder(self.folder / "a", mixed))

    def test_an_unknown_prefix_is_an_error_that_names_keys(self):
        self.assertRefused(write_folder(self.folder / "a", prefix="wrapped.by.me."), "wte.weight")

    def test_two_keys_for_one_tensor(self):
        both = weights() | {"transformer.wte.weight": torch.zeros(11, 8)}
        self.assertRefused(write_folder(self.folder / "a", both), "transformer.wte.weight", "both wte.weight")

    def test_bare_name(self):
        for key in ("h.0.ln_1.bias", "transformer.h.0.ln_1.bias", "_orig_mod.module.transformer.h.0.ln_1.bias"):
            self.assertEqual(bare_name(key), "h.0.ln_1.bias")


class Buffers(LoadCase):
    def buffers(self, layers=2):
        masks = {f"h.{i}.attn.bias": torch.tril(torch.ones(1, 1, 16, 16)) for i in range(layers)}
        return masks | {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(layers)}

    def test_reported_never_counted_never_required(self):
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
    def test_the_square_matrix_is_not_transposed(self):
        turned = {k: w.T.contiguous() if k.endswith("attn.c_proj.weight") else w for k, w in weights().items()}
        found = logits(write_folder(self.folder / "a", turned))
        torch.testing.assert_close(found[-1, :4], torch.tensor([-0.201933, -0.405053, -1.399164, 1.312640]), atol=1e-4, rtol=0)
        self.assertEqual(set(found.argmax(-1).tolist()), {3})

    def test_out_in_matrices_are_refused_not_transposed_by_guess(self):
        turned = weights()
        turned["h.1.attn.c_attn.weight"] = turned["h.1.attn.c_attn.weight"].T.contiguous()
        self.assertRefused(write_folder(self.folder / "a", turned), "h.1.attn.c_attn.weight is [24, 8], not [8, 24]")

    def test_missing_tensors_are_named(self):
        for name in weights():
            with self.subTest(name):
                left = {k: w for k, w in weights().items() if k != name}
                with self.assertRaisesRegex(BadInput, name.replace(".", r"\.")):
                    ch02.load(write_folder(self.folder / "a", left))

    def test_unexpected_tensors_are_named(self):
        self.assertRefused(write_folder(self.folder / "a", weights() | {"h.2.ln_1.weight": torch.ones(8)}), "h.2.ln_1.weight")
        self.assertRefused(write_folder(self.folder / "b", weights() | {"score.weight": torch.ones(8)}), "score.weight")

    def test_the_config_is_of_another_model(self):
        self.assertRefused(write_folder(self.folder / "a", values=G | {"n_positions": 17}), "wpe.weight is [16, 8], not [17, 8]")
        self.assertRefused(write_folder(self.folder / "b", values=G | {"n_layer": 3}), "h.2.ln_1.weight", "and 7 more")

    def test_n_inner(self):
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
    def setUp(self):
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

    def test_cut_off_or_grown(self):
        self.assertDamaged(self.good[:-4], "cut off")
        self.assertDamaged(self.good + b"abc", "3 bytes after its last tensor")
        self.assertDamaged(self.good[:20], "cut off within its header")
        for size in (0, 7):
            self.assertDamaged(self.good[:size], f"cut off: {size} bytes")

    def test_not_weights_at_all(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548105171\n"
        self.assertDamaged(pointer, "Git LFS pointer", "not downloaded")
        for page in (b"<!DOCTYPE html><html><body>404</body></html>", b"\n <html>", b"<?xml version='1.0'?><Error/>"):
            self.assertDamaged(page, "web page")
        self.assertDamaged(b"\xff" * 100, "not a safetensors file")

    def header(self, text, data=b"\0" * 24):
        return len(text.encode()).to_bytes(8, "little") + text.encode() + data

    def test_damaged_headers(self):
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
    def test_never_opened(self):
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

    def test_every_kind_of_pickle(self):
        for i, name in enumerate(("pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl")):
            folder = write_folder(self.folder / str(i))
            (folder / "model.safetensors").unlink()
            torch.save(weights(), folder / name)
            self.assertRefused(folder, name, "is a pickle")
            self.assertRefused(folder / name, name, "is a pickle")

    def test_not_a_fallback_for_a_broken_file(self):
        folder = write_folder(self.folder / "a")
        torch.save(weights(), folder / "pytorch_model.bin")
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:-4])
        self.assertRefused(folder, "model.safetensors is cut off")


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

    def test_a_seed_that_is_no_whole_number(self):
        for bad in (1.5, "1", None, True, -1, 2**63, [1]):
            for made in (
                lambda seed=bad: ch02.load("random:gpt2", seed=seed),
                lambda seed=bad: ch02.random_tensor("a", (2,), seed),
                lambda seed=bad: random_ids(support.model(), 3, seed=seed),
            ):
                with self.assertRaisesRegex(BadInput, "the seed is .*; give a whole number, 0 to 2"):
                    made()
        same = (ch02.random_tensor("a", (2,), seed) for seed in (7, np.int64(7), np.uint8(7)))
        self.assertEqual(len({tuple(tensor.tolist()) for tensor in same}), 1)

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

    def test_shapes_of_later_chapters(self):
        shapes = ch02.published_shapes()
        self.assertEqual(list(shapes)[: len(ch02.PUBLISHED) + 1], [*ch02.PUBLISHED, "tiny-llama"])
        self.assertIs(shapes["gpt2"], ch02.PUBLISHED["gpt2"])
        for name in ("smollm2-135m", "llama-3-8b", "deepseek-v3"):
            self.assertEqual(ch02.load_config(name), ch02.load_config(f"random:{name}"))
        model = ch02.load("random:tiny-llama", seed=3)
        self.assertEqual((model.config.model_type, model.config.n_head, model.config.kv_heads), ("llama", 8, 2))
        self.assertEqual({n: tuple(w.shape) for n, w in model.weights.items()}, ch02.tensor_shapes(model.config))
        again, other = (ch02.load("random:tiny-llama", seed=seed).token_table for seed in (3, 4))
        self.assertTrue(torch.equal(model.token_table, again))
        self.assertFalse(torch.equal(model.token_table, other))
        self.assertEqual(ch02.run(model, torch.tensor([[1, 2, 3]])).shape, (1, 3, 512))
        with self.assertRaisesRegex(BadInput, "no config gpt9: give .*gpt2-xl.*llama-3-8b"):
            ch02.load_config("gpt9")
        (self.folder / "llama-3-8b").mkdir()  # a folder of that name comes before the shape
        (self.folder / "llama-3-8b" / "config.json").write_text(json.dumps(G))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.assertEqual(ch02.load_config("llama-3-8b"), config())

    def test_random_weights_that_do_not_fit(self):
        """Refused before one is drawn: 8,030,261,248 weights of 4 bytes are 29.9 GiB, of 2 bytes 15.0."""
        drawn = mock.patch.object(ch02, "random_tensor", side_effect=AssertionError("drawn"))
        for free, dtype, words in (
            (8 * 2**30, torch.float32, "weights in float32 take 29.9 GiB, and this machine has 8.0 GiB free; take a smaller shape"),
            (4 * 8_030_261_248 - 1, torch.float32, "29.9 GiB"),
            (8 * 2**30, torch.bfloat16, "weights in bfloat16 take 15.0 GiB"),
        ):
            with mock.patch.object(ch02, "free_memory", return_value=free), drawn, self.assertRaisesRegex(BadInput, words):
                ch02.load("random:llama-3-8b", dtype=dtype)
        for free in (4 * 8_030_261_248, None):  # it fits; or nobody knows
            with mock.patch.object(ch02, "free_memory", return_value=free), drawn, self.assertRaisesRegex(AssertionError, "drawn"):
                ch02.load("random:llama-3-8b")

    def test_free_memory(self):
        self.assertGreater(ch02.free_memory(), 2**28)
        with mock.patch.object(Path, "read_text", return_value="MemTotal: 9 kB\nMemAvailable:    1024 kB\n"):
            self.assertEqual(ch02.free_memory(), 2**20)
        with mock.patch.object(Path, "read_text", side_effect=FileNotFoundError):
            self.assertGreater(ch02.free_memory(), 2**28)  # all that there is
            with mock.patch.object(os, "sysconf", side_effect=ValueError):
                self.assertIsNone(ch02.free_memory())

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


class LoadFor(LoadCase):
    """The model that a script's arguments name."""

    def load_for(self, model, **arguments):
        return ch02.load_for(SimpleNamespace(**dict(model=str(model), threads=1, seed=0) | arguments))

    def test_dtype_seed_and_threads(self):
        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)
        folder = write_folder(self.folder / "a")
        self.assertEqual(self.load_for(folder).dtype, torch.float32)  # of a script without the option
        self.assertEqual(list(ch02.DTYPES), ["float64", "float32", "bfloat16", "float16"])
        for name, dtype in ch02.DTYPES.items():
            self.assertEqual(self.load_for(folder, dtype=name, device="cpu").dtype, dtype)
        self.load_for(folder, threads=2)
        self.assertEqual(torch.get_num_threads(), 2)
        with mock.patch.dict(ch02.PUBLISHED, {"tiny": G}):
            one, again, other = (self.load_for("random:tiny", seed=seed).token_table for seed in (3, 3, 4))
        self.assertTrue(torch.equal(one, again))
        self.assertFalse(torch.equal(one, other))

    def test_what_is_not_finite(self):
        for i, value in enumerate((math.nan, math.inf, -math.inf)):
            bias = torch.zeros(8)
            bias[3] = value
            folder = write_folder(self.folder / str(i), weights() | {"ln_f.bias": bias})
            with self.assertRaisesRegex(BadInput, f"{folder}: ln_f.bias holds NaN or infinity in float32"):
                self.load_for(folder)
        folder = write_folder(self.folder / "huge", weights() | {"ln_f.bias": torch.full((8,), 1e6)})
        self.load_for(folder, dtype="bfloat16")
        with self.assertRaisesRegex(BadInput, "ln_f.bias holds 1e.06, and float16 ends at 65,504; take a wider dtype"):
            self.load_for(folder, dtype="float16")

    def test_a_device_that_is_not_there(self):
        folder = write_folder(self.folder / "a")
        missing = mock.patch.object(torch.cuda, "is_available", return_value=False)
        with missing, self.assertRaisesRegex(BadInput, "cuda.*leave it out"):
            self.load_for(folder, device="cuda")
        self.assertEqual(self.load_for(folder, device="meta").device.type, "meta")

    def test_another_family_than_is_required(self):
        self.assertIsNone(ch02.require(config(), "gpt2", "this"))
        with self.assertRaisesRegex(BadInput, "this takes a llama, and this model is a gpt2"):
            ch02.require(config(), "llama", "this")


if __name__ == "__main__":
    unittest.main()
