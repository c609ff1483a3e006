"""`rope_freqs.weight`, where a GGUF file has the rope of Llama 3.1 and later: the same logits as from the folder with that rope."""

import unittest

import numpy as np
import torch

from examples.ch02 import manifest
from examples.ch02 import model as ch02
from examples.ch02.model import load, run
from examples.ch04 import agreement
from examples.lab.script import BadInput
from tests.gguf_writer import write as write_gguf
from tests.support import FolderCase, call, llama_fields, llama_model, write_folder

ROPE = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
SIZES = dict(head_dim=8, max_position_embeddings=256, rope_theta=100.0)


class Factors(FolderCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "m.gguf"
        self.made = llama_model(rope_scaling=ROPE, **SIZES)
        self.ids = torch.arange(200).mul(7).remainder(11)[None]

    def factors(self):
        """What llama.cpp's converter writes for the config: by the wavelength of each pair, 1, the factor, or what lies between."""
        pair = np.arange(0, 8, 2) / 8
        wavelength = 2 * np.pi * 100.0**pair
        turns = 32 / wavelength  # within the original context
        smooth = (turns - 1) / 3
        between = 1 / ((1 - smooth) / 8 + smooth)
        return np.where(turns > 4, 1.0, np.where(turns < 1, 8.0, between)).astype(np.float32)

    def write(self, **options):
        return write_gguf(self.path, self.made, **({"extra": {"rope_freqs.weight": self.factors()}} | options))

    def test_the_same_as_the_folder(self):
        folder = write_folder(self.folder / "a", self.made.weights, llama_fields(rope_scaling=ROPE, **SIZES))
        right, ours = load(folder), load(self.write())
        self.assertEqual(len(set(self.factors().tolist())), 3)  # all three kinds of pairs
        torch.testing.assert_close(run(ours, self.ids), run(right, self.ids), atol=1e-5, rtol=0)
        self.assertEqual(ours.config.rope.factors, tuple(self.factors().tolist()))
        self.assertEqual(ours.manifest["parameters"], right.manifest["parameters"])
        self.assertEqual([(b["name"], b["shape"]) for b in ours.manifest["buffers"]], [("rope_freqs.weight", [4])])
        self.assertEqual(call(manifest.main, "--model", self.path)[0], 0)
        self.assertEqual(ch02.general_form(ours).config.rope, ours.config.rope)

    def test_the_faults(self):
        right = run(self.made, self.ids)
        for wrong in (np.ones(4, np.float32), 1 / self.factors(), self.factors()[::-1]):
            ours = load(self.write(extra={"rope_freqs.weight": wrong}))
            self.assertGreater((run(ours, self.ids) - right).abs().max(), 0.1)

    def test_refused(self):
        for factors, words in (
            (np.ones(8, np.float32), "rope_freqs.weight is \\[8\\], not \\[4\\]"),
            (np.zeros(4, np.float32), "divides no frequency"),
            (np.array([1, 1, np.nan, 1], np.float32), "divides no frequency"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                load(self.write(extra={"rope_freqs.weight": factors}))
        linear = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
        with self.assertRaisesRegex(BadInput, "rope_freqs.weight stands beside llama.rope.scaling.type 'linear'"):
            load(self.write(fields=linear))

    def test_the_library_passes_over_them(self):
        """transformers 5.24 reads such a file as if they were not there: that is no peer, and is said."""
        self.write(fields={"rope.dimension_count": 8, "vocab_size": 11})
        self.assertBad(agreement.main, ["--model", self.path], "rope_freqs.weight", "compare the model's folder")


if __name__ == "__main__":
    unittest.main()
