"""Chapter 2's buffers: what masks weigh, that the published file holds nothing else, and that loading needs none."""

import unittest
from unittest import mock

import torch

from examples.ch02 import buffers as room
from examples.ch02.buffers import main, masks, measure_loading, measure_sizes, sizes
from examples.ch02.model import load, load_config
from tests.rooms import RoomCase
from tests.support import config, llama_model, loaded, write_folder


class Measure(unittest.TestCase):
    def test_masks(self):
        made = masks(config())
        self.assertEqual(list(made), ["h.0.attn.bias", "h.1.attn.bias"])
        mask = made["h.0.attn.bias"]
        self.assertEqual((mask.shape, mask.dtype), ((1, 1, 16, 16), torch.uint8))
        self.assertTrue(all(mask[0, 0, i, j] == (j <= i) for i in range(16) for j in range(16)))

    def test_sizes(self):
        found = sizes(config())
        self.assertEqual((found["parameters"], found["mask_bytes_uint8"], found["mask_bytes_float32"]), (1976, 512, 2048))
        self.assertAlmostEqual(found["float32_masks_percent"], 100 * 512 / (1976 + 512))
        small = sizes(load_config("random:gpt2"))
        self.assertEqual((small["parameters"], small["mask_bytes_uint8"]), (124_439_808, 12 * 1024 * 1024))

    def test_the_published_file(self):
        found = measure_sizes()
        self.assertTrue(found["masks_are_all_else"])
        self.assertEqual(found["published_file"]["beside_parameters"], 4 * 12 * 1024 * 1024)
        with mock.patch.dict(room.FILE, {"file_bytes": room.FILE["file_bytes"] + 1}):
            self.assertFalse(measure_sizes()["masks_are_all_else"])

    def test_loading(self):
        found = measure_loading(loaded())
        by = {r["file"]: r for r in found["files"]}
        self.assertEqual(by["masks, uint8"]["more_bytes_of_tensors"], found["mask_numbers"])
        self.assertEqual(by["masks, float32"]["more_bytes_of_tensors"], 4 * found["mask_numbers"])
        for row in found["files"]:
            self.assertEqual((row["buffers"], row["parameters"], row["same_weights"]), (4, 3_487_232, True))

    def test_a_loader_that_took_a_mask_for_a_weight_is_noticed(self):
        def wrong(folder):
            made = load(folder)
            name = "h.0.ln_1.bias"
            return type(made)(made.config, made.weights | {name: made.weights[name] + 1}, manifest=made.manifest)

        with mock.patch.object(room, "load", wrong):
            self.assertFalse(any(r["same_weights"] for r in measure_loading(loaded())["files"]))


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        tiny = self.tiny()
        measured = {"buffers": measure_sizes(), "buffers-loaded": measure_loading(load(tiny, dtype=None))}
        self.assertMeasured(self.values(main, "--model", tiny), **measured)
        self.assertMeasured(self.values(main, "--sizes-only"), buffers=measure_sizes())

    def test_pages(self):
        out = self.page(main)
        for text in ("50,331,648", "548,105,171", "to the byte", "262,144", "3,487,232"):
            self.assertIn(text, out)
        self.assertNotIn("same weights", self.page(main, "--sizes-only"))

    def test_bad_input(self):
        made = llama_model()
        folder = write_folder(self.folder / "llama", made.weights, made.fields)
        self.assertBad(main, ["--model", folder], "takes a gpt2")
        self.assertBad(main, ["--model", self.folder / "none"], "no model")


if __name__ == "__main__":
    unittest.main()
