"""Chapter 2's storage formats, written by hand: the bytes and numbers of the gguf package, and the errors that rounding allows."""

import unittest
import warnings
from unittest import mock

import gguf
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from examples.ch02 import storage_formats as room
from examples.ch02.model import Model
from examples.ch02.storage_formats import (
    BLOCK,
    CHOICES,
    FORMATS,
    MIXED,
    as_stored,
    format_of,
    main,
    measure_bounds,
    measure_exactness,
    measure_formats,
    measure_library,
    store,
)
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import call, config, loaded, model, weights

KINDS = gguf.GGMLQuantizationType
THEIRS = {"float32": KINDS.F32, "float16": KINDS.F16, "bfloat16": KINDS.BF16, "Q8_0": KINDS.Q8_0, "Q4_1": KINDS.Q4_1}
WIDE = model(n_embd=64, n_inner=64, n_head=2)  # rows that blocks fill

finite = st.floats(-60000, 60000, width=32, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-20)
arrays = hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.sampled_from([32, 64])), elements=finite)


def one_block(*start):
    """float32 [1, 32] that begins with these numbers, and is zero behind them."""
    return np.array([[*start, *[0.0] * (BLOCK - len(start))]], np.float32)


class ByHand(unittest.TestCase):
    @settings(deadline=None, max_examples=200)
    @given(arrays)
    def test_as_the_library(self, x):
        for name, kind in THEIRS.items():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                stored, library = FORMATS[name].store(x), gguf.quantize(x, kind)
                back = gguf.dequantize(library, kind)
            np.testing.assert_array_equal(stored, library.view(np.uint8), name)
            np.testing.assert_array_equal(FORMATS[name].restore(stored), back, name)

    def test_bfloat16_as_torch(self):
        x = torch.randn(100_000, generator=torch.Generator().manual_seed(1)) * torch.logspace(-38, 38, 100_000)
        x = torch.cat([x, torch.tensor([0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 1e-40, torch.finfo(torch.float32).max])])
        back = FORMATS["bfloat16"].restore(FORMATS["bfloat16"].store(x.numpy()))
        self.assertTrue(torch.equal(torch.from_numpy(back), x.bfloat16().float()))

    def test_known_bits(self):
        one = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)  # the two are in the middle of their neighbours
        self.assertEqual(FORMATS["bfloat16"].store(one).view("<u2").tolist(), [0x3F80, 0x3F80, 0x3F82])
        self.assertEqual(FORMATS["float16"].store(one[:1]).view("<u2").tolist(), [0x3C00])
        self.assertEqual(FORMATS["float32"].store(one[:1]).view("<u4").tolist(), [0x3F800000])

    def test_known_blocks(self):
        stored = FORMATS["Q8_0"].store(one_block(127, -64, 0.5, -0.5, 1.49))
        self.assertEqual(stored[0, :2].view("<f2").tolist(), [1.0])
        self.assertEqual(stored[0, 2:7].view(np.int8).tolist(), [127, -64, 1, -1, 1])  # a half goes away from zero
        block = np.arange(BLOCK, dtype=np.float32)[None] % 16 - 3  # -3 to 12, twice
        block[0, 16:] = block[0, 16:][::-1]
        stored = FORMATS["Q4_1"].store(block)
        self.assertEqual(stored[0, :4].view("<f2").tolist(), [1.0, -3.0])
        self.assertEqual([(int(b) & 15, int(b) >> 4) for b in stored[0, 4:]], [(i, 15 - i) for i in range(16)])
        self.assertEqual(FORMATS["Q4_1"].restore(stored).tolist(), block.tolist())

    def test_zeros_and_one_number(self):
        for name in FORMATS:
            zeros = np.zeros((2, 64), np.float32)
            self.assertEqual(FORMATS[name].restore(FORMATS[name].store(zeros)).tolist(), zeros.tolist())
        same = np.full((1, 32), 0.5, np.float32)
        self.assertEqual(FORMATS["Q4_1"].restore(FORMATS["Q4_1"].store(same)).tolist(), same.tolist())

    def test_shapes(self):
        x = np.ones((2, 3, 64), np.float32)
        for name, f in FORMATS.items():
            stored = f.store(x)
            self.assertEqual(stored.shape, (2, 3, 64 * f.bits // (8 * f.numbers)), name)
            self.assertEqual(f.restore(stored).shape, x.shape)


class Models(unittest.TestCase):
    def test_bits(self):
        found = {row["format"]: row for row in measure_formats()["formats"]}
        bytes_per = {name: row["bytes_per_weight"] for name, row in found.items()}
        self.assertEqual(bytes_per, {"float32": 4, "float16": 2, "bfloat16": 2, "Q8_0": 34 / 32, "Q4_1": 20 / 32})
        for row in found.values():
            self.assertEqual(sum(f["bits"] * f["count"] for f in row["fields"]), 8 * row["bytes"])
            kind = THEIRS[row["format"]]
            self.assertEqual((row["numbers"], row["bytes"]), gguf.GGML_QUANT_SIZES[kind])
        self.assertEqual((found["float16"]["largest"], found["bfloat16"]["smallest_normal"]), (65504, 2.0**-126))

    def test_what_is_stored_in_blocks(self):
        for form, tensor, is_table, kind in (
            ("Q8_0", torch.zeros(3, 64), False, "Q8_0"),
            ("Q8_0", torch.zeros(64), False, "float32"),
            ("Q8_0", torch.zeros(64, 33), False, "float32"),
            ("float16", torch.zeros(33), False, "float16"),
            (MIXED, torch.zeros(3, 32), True, "Q8_0"),
            (MIXED, torch.zeros(3, 32), False, "Q4_1"),
        ):
            self.assertEqual(format_of(form, tensor, is_table), kind)
        kinds = {name: kind for name, kind, *_ in store(WIDE, MIXED)}
        self.assertEqual((kinds["wte.weight"], kinds["wpe.weight"], kinds["ln_f.weight"]), ("Q8_0", "Q4_1", "float32"))

    def test_as_stored(self):
        for form in CHOICES:
            stored, size = as_stored(WIDE, form)
            self.assertEqual(list(stored.weights), list(WIDE.weights))
            row = next(r for r in measure_exactness(WIDE)["formats"] if r["format"] == form)
            self.assertEqual(size, row["bytes"])
            same = sum(int((w == WIDE.weights[n]).sum()) for n, w in stored.weights.items())
            self.assertEqual(same, row["bit_for_bit"])
            if form in ("float16", "bfloat16"):
                for name, w in stored.weights.items():
                    self.assertTrue(torch.equal(w, WIDE.weights[name].to(getattr(torch, form)).float()))
        self.assertTrue(all(torch.equal(w, WIDE.weights[n]) for n, w in as_stored(WIDE, "float32")[0].weights.items()))

    def test_exactness(self):
        rows = {r["format"]: r for r in measure_exactness(WIDE)["formats"]}
        self.assertEqual((rows["float32"]["bit_for_bit_percent"], rows["float32"]["largest_relative_error"]), (100, 0))
        self.assertLessEqual(rows["bfloat16"]["largest_relative_error"], 2**-8)
        self.assertEqual(rows["Q8_0"]["in_blocks"], sum(w.numel() for w in WIDE.weights.values() if w.ndim == 2))
        self.assertLess(rows["Q8_0"]["largest_error_in_block"], rows["Q4_1"]["largest_error_in_block"])
        half = Model(config(), {n: w.half().float() for n, w in weights().items()})
        self.assertEqual({r["format"]: r["bit_for_bit_percent"] for r in measure_exactness(half)["formats"]}["float16"], 100)

    def test_bounds(self):
        for one in (WIDE, loaded()):
            found = measure_bounds(one)
            self.assertTrue(found["held"], found)
            self.assertGreater(found["worst"], 0.9)  # so that half of each bound would not do

    def test_a_wrong_scale_is_out_of_bounds(self):
        right = FORMATS["Q8_0"].store

        def wrong(x):
            stored = right(x)
            stored.reshape(-1, 34)[:, 0] ^= 64  # of the scale's lower byte
            return stored

        broken = {**FORMATS, "Q8_0": room.Format(**{**vars(FORMATS["Q8_0"]), "store": wrong})}
        with mock.patch.dict(room.FORMATS, broken):
            self.assertFalse(measure_bounds(WIDE)["held"])

    def test_the_library_finds_a_fault(self):
        self.assertTrue(all(r["same_bytes"] and r["same_numbers"] for r in measure_library(WIDE)["formats"]))

        def half_to_even(x):
            blocks = x.reshape(-1, BLOCK)
            scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
            whole = np.rint(blocks * room.inverse(scale)).astype(np.int8)
            return np.concatenate([room.to_float16(scale), whole.view(np.uint8)], 1).reshape(*x.shape[:-1], -1)

        broken = {**FORMATS, "Q8_0": room.Format(**{**vars(FORMATS["Q8_0"]), "store": half_to_even})}
        with mock.patch.dict(room.FORMATS, broken):
            rows = {r["format"]: r for r in measure_library(WIDE)["formats"]}
        self.assertEqual((rows["Q8_0"]["same_bytes"], rows["Q4_1"]["same_bytes"]), (False, True))

    def test_a_weight_beyond_float16(self):
        big = weights() | {"ln_f.bias": torch.full((8,), 1e6)}
        with self.assertRaisesRegex(BadInput, "ln_f.bias has numbers that float16 cannot hold"):
            measure_exactness(Model(config(), big))


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        self.assertMeasured(self.values(main), formats=measure_formats(), exactness=measure_exactness(loaded()))

    def test_pages(self):
        out = self.page(main)
        for text in ("0.625", "1.0625", "2,226,176", "16 scale + 16 minimum + 32 x 4 whole number"):
            self.assertIn(text, out)
        self.page(main, "--model", self.tiny())

    def test_plot(self):
        self.assertDraws(main)

    def test_bad_input(self):
        self.assertBad(main, ["--model", self.folder / "none"], "no model")
        self.assertEqual(call(main, "--help")[0], 0)


if __name__ == "__main__":
    unittest.main()
