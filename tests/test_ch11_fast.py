"""Decoding on a file's own four bits: the packed products, the step beside the plain pass, faults, refusals, and the compiler."""

import contextlib
import dataclasses
import io
import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import gguf
import numpy as np
import torch

from examples.ch02.families import fast_path
from examples.ch02.model import Model, load
from examples.ch03.tokens import random_ids
from examples.ch05 import generate as generate_script
from examples.ch05.generate import generate
from examples.ch10.kv_cache import Cached, forward_cached
from examples.ch11 import fast_agreement, fast_decode, fast_rate, fast_step
from examples.ch11.fast_decode import FastDecode, TiledCache, fast_forward
from examples.ch11.q4_weights import TYPES, pack, packed
from examples.lab.script import BadInput
from tests import gguf_writer, support
from tests.rooms import RoomCase
from tests.support import FolderCase, call, needs_smollm2, slow

KIND = gguf.GGMLQuantizationType
SIZES = dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=50)
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
LIMIT = 2e-5  # of the largest logit: random weights round more than a model's do


def write(folder, types=None, layers=KIND.Q4_1, head=KIND.Q8_0, **changes):
    """The path of a tiny Llama's GGUF file with layers and head of these types; types: {GGUF's name: another one}."""
    made = support.llama_model(**SIZES | dict(tie_word_embeddings=True) | changes)
    calm = {name: w * 0.4 if w.ndim == 2 else w for name, w in made.weights.items()}
    made = Model(made.config, calm, fields=made.fields)
    kinds = {f"blk.{i}.{name}.weight": layers for i in range(made.config.n_layer) for name in MATRICES}
    kinds |= {"token_embd.weight" if made.config.tie_word_embeddings else "output.weight": head} | (types or {})
    path = Path(folder) / f"m{len(list(Path(folder).iterdir()))}.gguf"
    return gguf_writer.write(path, made, {"vocab_size": made.config.vocab_size}, types=kinds)


def setUpModule():
    global HOLDER, MODEL
    torch.set_num_threads(1)
    HOLDER = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(HOLDER.cleanup)
    MODEL = load(write(HOLDER.name))


def fast(model=None, **options):
    """A `FastDecode` that needs no compiler."""
    return FastDecode(MODEL if model is None else model, compiles=False, **options)


def block_bytes(kind, rows, columns):
    """Bytes [rows, columns / 32, bytes of a block] with random integers, and scales of either sign, some of them very small."""
    stream = np.random.RandomState(0)
    data = stream.randint(0, 256, (rows, columns // 32, TYPES[kind])).astype(np.uint8)
    scales = stream.standard_normal((rows, columns // 32, 2 if kind == "Q4_1" else 1)).astype(np.float16)
    scales[0], scales[1, 0], scales[2] = 3e-7, 0, scales[2] / 1e4  # the smallest halves have no leading one
    data[..., : 2 * scales.shape[-1]] = scales.view(np.uint8)
    return data


class Products(unittest.TestCase):
    def test_products_are_those_of_the_dequantised_matrix(self):
        """Both types; tiles of 8 and 16 rows, the last not full; one position and several, and words in any groups."""
        for kind in TYPES:
            data = block_bytes(kind, 21, 96)
            matrix = torch.from_numpy(gguf.dequantize(data.reshape(21, -1), KIND[kind])).double()  # [21, 96]
            for tile, T, groups in ((16, 1, 1), (8, 3, 4), (16, 2, 2)):
                p, x = packed([(kind, data[:5]), (kind, data[5:])], tile), torch.randn(T, 96, generator=torch.manual_seed(0))
                found = fast_step.product(p.words, p.scales, fast_step.prepare(x, kind, groups), kind, p.rows)
                self.assertEqual((found.shape, p.rows), ((T, 21), 21))
                sizes = x.double().abs() @ matrix.T.abs()  # what the terms of each sum add up to
                self.assertLess(((found - x.double() @ matrix.T).abs() / sizes).nan_to_num(0).max(), 3e-6)

    def test_a_step_reads_the_files_bytes_and_no_others(self):
        p = pack(MODEL)
        rows = MODEL.manifest["tensors"]
        stored = sum(r["bytes"] for r in rows if ".weight" in r["name"])
        padding = sum(x.words.shape[0] * x.words.shape[-1] - x.rows for layer in p.layers for x in layer.parts.values())
        self.assertEqual(padding, 0)
        head = (p.head.words.shape[0] * p.head.words.shape[-1]) / p.head.rows
        self.assertEqual(sum(layer.nbytes for layer in p.layers) + p.head.nbytes / head + p.gain.nbytes, stored)


class Step(unittest.TestCase):
    def test_it_agrees_with_the_plain_pass(self):
        for changes in (
            {},
            dict(tie_word_embeddings=False),
            dict(layers=KIND.Q8_0),
            dict(head=KIND.Q4_1),
            dict(attention_bias=True),
        ):
            with self.subTest(**changes), tempfile.TemporaryDirectory() as folder:
                found = fast_agreement.measure(load(write(folder, **changes)), 40, 20, (1, 4, 3), compiles=False)
                self.assertLess(found["worst"], LIMIT)
                self.assertEqual({r["best_same"] for r in found["rows"]}, {40})
                self.assertEqual(found["tokens_same"], 20)

    def test_planted_faults_are_far_off(self):
        """Nibbles in the other order, each block with its neighbour's scale, and no minimum: one fault in one part of one layer."""
        good = pack(MODEL)

        def swapped(p):
            bits = p.words.view(torch.int32)
            return dict(words=(((bits & 0x0F0F0F0F) << 4) | ((bits >> 4) & 0x0F0F0F0F)).view(torch.float32))

        faults = {
            "nibbles": swapped,
            "neighbour": lambda p: dict(scales=p.scales.roll(1, dims=1)),
            "minimum": lambda p: dict(scales=(p.scales.view(torch.int32) & 0xFFFF).view(torch.float32)),
        }
        for name, fault in faults.items():
            with self.subTest(name):
                first = good.layers[0]
                bad = dataclasses.replace(first.parts["down"], **fault(first.parts["down"]))
                layers = [dataclasses.replace(first, parts=first.parts | {"down": bad}), *good.layers[1:]]
                found = fast_agreement.measure(MODEL, 32, 8, fast=fast(packed=dataclasses.replace(good, layers=layers)))
                self.assertFalse(found["held"])
                self.assertGreater(found["worst"], 100 * LIMIT)

    def test_steps_prefills_and_truncation_mix(self):
        ids, f = random_ids(MODEL, 40)[0], fast()
        with torch.inference_mode():
            plain = forward_cached(ids[None], MODEL, Cached(MODEL).cache)[0]  # [T, V]
            parts = [f.step(ids[:3]), f.step(ids[3:4])]
            f.step(ids[30:35])  # a draft that is not taken
            f.truncate(4)
            parts += [f.prefill(ids[4:20]), f.step(ids[20:29]), f.step(ids[29:])]
        expected = torch.cat([plain[:4], plain[19:20], plain[20:]])
        self.assertLess((torch.cat(parts) - expected).abs().max() / plain.abs().max(), LIMIT)
        self.assertEqual(f.length, 40)

    def test_the_loop_reuses_what_is_shared_and_nothing_else(self):
        f, a, b = fast(), random_ids(MODEL, 6, seed=1), random_ids(MODEL, 9, seed=2)
        texts = [generate(ids, MODEL, 12, end=None, forward=f).sequence() for ids in (a, b, a)]
        self.assertEqual(texts, [generate(ids, MODEL, 12, end=None).sequence() for ids in (a, b, a)])
        self.assertEqual(f.computed, (6 + 11) + (9 + 11) + (6 + 11))

    def test_it_reaches_its_capacity_and_no_further(self):
        most = MODEL.config.n_positions
        ids, f = random_ids(MODEL, most)[0], fast()
        with torch.inference_mode():
            oracle = forward_cached(ids[None], MODEL, Cached(MODEL).cache)[0]
            f.prefill(ids[:-1])
            self.assertLess((f.step(ids[-1:]) - oracle[-1:]).abs().max() / oracle.abs().max(), LIMIT)
            for refused in (lambda: f.step(ids[:1]), lambda: f.truncate(most + 1), lambda: f.step(torch.tensor([50]))):
                self.assertRaises(BadInput, refused)
        for capacity in (0, most + 1, 2.0):
            self.assertRaises(BadInput, TiledCache, MODEL, capacity)


class Refusals(FolderCase):
    def refused(self, model, *words):
        with self.assertRaises(BadInput) as caught:
            pack(model)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_other_types_are_refused_by_name(self):
        self.refused(load(write(self.folder, types={"blk.1.ffn_up.weight": KIND.Q5_0})), "blk.1.ffn_up.weight", "Q5_0", "Q4_1")
        self.refused(load(write(self.folder, types={"token_embd.weight": KIND.F16})), "token_embd.weight", "F16")
        self.refused(load(write(self.folder, types={"blk.0.attn_v.weight": KIND.Q8_0})), "Q4_1 and Q8_0")

    def test_other_models_are_refused(self):
        self.refused(support.loaded(), "embedded", "GGUF")
        self.refused(MODEL.to(torch.bfloat16), "bfloat16")


class Compiler(FolderCase):
    """What needs one, and what happens without."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(fast_decode, "COMPILED", self.folder / "compiled")
        patch.start()
        self.addCleanup(patch.stop)

    @slow
    def test_compiled_it_is_the_same_and_is_kept(self):
        f = FastDecode(MODEL)
        self.assertLess(fast_agreement.measure(MODEL, 40, 20, (1,), fast=f)["worst"], 2 * LIMIT)
        kept = sorted(p.name for p in fast_decode.COMPILED.iterdir())
        self.assertEqual((len(kept), {Path(name).suffix for name in kept}), (2, {".pt2"}))
        self.assertNotEqual((torch.tensor([1e-40]) * 1).item(), 0)  # compiled code has not told the processor to drop such numbers
        with mock.patch.object(fast_decode, "_compile", side_effect=AssertionError):
            FastDecode(MODEL)

    def test_without_a_compiler_it_is_the_plain_pass_and_a_line_says_so(self):
        for what in (
            mock.patch("torch._inductor.config.cpp.cxx", (None, "no-such-compiler")),
            mock.patch.object(torch.export, "export", side_effect=RuntimeError("it fails")),
        ):
            lines = []
            with what:
                forward = fast_forward(MODEL, 30, say=lines.append)
            self.assertIsInstance(forward, Cached)
            self.assertEqual(len(lines), 1)
            self.assertIn("cannot be compiled here", lines[0])
            self.assertEqual(list(fast_decode.COMPILED.rglob("*")), [])


class Script(RoomCase):
    def setUp(self):
        super().setUp()
        self.path = write(self.folder)

    def test_generate_fast_writes_the_plain_text(self):
        argv = ["--model", self.path, "--tokens", "12", "--temperature", "0", "--json"]
        with mock.patch.object(fast_decode, "FastDecode", lambda model, capacity: fast(model, capacity=capacity)):
            status, out, err = call(generate_script.main, *argv, "--fast")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(
            json.loads(out)["generation"]["ids"], json.loads(call(generate_script.main, *argv)[1])["generation"]["ids"]
        )

    def test_generate_fast_on_another_model_says_that_it_is_the_plain_pass(self):
        argv = ["--tokens", "5", "--json"]
        status, out, err = call(generate_script.main, *argv, "--fast")
        self.assertEqual(status, 0)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("embedded is not a GGUF file", err)
        self.assertEqual(
            json.loads(out)["generation"]["ids"], json.loads(call(generate_script.main, *argv)[1])["generation"]["ids"]
        )
        self.assertBad(generate_script.main, ["--fast", "--window", "8"], "--fast", "--window")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertIsInstance(fast_path(support.model(), 8), Cached)
        self.assertIn("this is the plain cached pass", said.getvalue())

    def test_agreement(self):
        argv = ["--model", self.path, "--uncompiled", "--positions", "24", "--tokens", "4"]
        self.assertIn("4 of 4 tokens are the same", self.page(fast_agreement.main, *argv))
        found = self.values(fast_agreement.main, *argv, "--at-once", "2")["fast-agreement"]
        self.assertEqual([r["at_once"] for r in found["rows"]], [2])
        self.assertBad(fast_agreement.main, ["--model", self.path, "--positions", "65"], "n_positions 64")
        self.assertBad(fast_agreement.main, ["--model", "embedded"], "embedded is not a GGUF file")

    def test_rates_are_ratios_of_medians(self):
        """On a clock that goes on by 1 s a call: each run takes a second, and all are as fast."""
        now = iter(range(10**6))
        found = fast_rate.measure(MODEL, 4, 2, (1,), compiles=False, timer=lambda: next(now))
        row = found["rows"][0]
        self.assertEqual((row["fast_per_s"], row["over_library"], row["over_plain"]), (4.0, 1.0, 1.0))
        self.assertEqual(row["read_gb_per_s"], fast_rate.READ / 1e9)
        cache = found["mean_cache_bytes"]
        self.assertAlmostEqual(row["floor_per_s"], fast_rate.READ / (found["step_bytes"] + cache))
        self.assertEqual(found["over_library"], 1.0)

    def test_rate(self):
        argv = ["--model", self.path, "--uncompiled", "--tokens", "3", "--runs", "1", "--use-threads", "1"]
        with mock.patch.object(fast_rate, "READ", 2**16):
            self.assertIn("of limit", self.page(fast_rate.main, *argv))


class Real(unittest.TestCase):
    @slow
    @needs_smollm2
    def test_smollm2(self):
        model = support.loaded("smollm2")
        self.assertTrue(fast_agreement.measure(model)["held"])


if __name__ == "__main__":
    unittest.main()
