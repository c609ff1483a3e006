"""Decoding beside the library and the floor: what the floor reads, and ratios and medians on a clock of our own."""

import json
import unittest
from unittest import mock

import torch

from examples.ch02.model import Model
from examples.ch04.cost_model import flops_per_token
from examples.ch10 import decode_rate
from examples.ch10.decode_rate import decode_rates, matrices
from tests import support
from tests.support import FolderCase, call, config, weights, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads


def setUpModule():
    torch.set_num_threads(1)


class Rates(unittest.TestCase):
    def test_the_floor_reads_every_matrix_once(self):
        for of in (config(), config(tie_word_embeddings=False)):
            flops = sum(2 * w.numel() for w in matrices(Model(of, weights(of))))
            counted = flops_per_token(of, 1)
            self.assertEqual(flops, counted["total"] - counted["attention_scores_and_values"])

    def test_medians_and_ratios(self):
        """Ours takes 2 s a text, the library's 4, the floor 1 (a matrix each its share); the first turn of each 1,000 s more."""
        now, calls = [0.0], {"ours": 0, "library": 0, "floor": 0}

        def takes(name, seconds):
            calls[name] += 1
            now[0] += seconds + (1000 if calls[name] == 1 else 0)

        one_matrix = [torch.zeros(3, 2)]
        with (
            mock.patch.object(decode_rate, "generate", side_effect=lambda *_, **options: takes("ours", 2)),
            mock.patch.object(decode_rate, "library_greedy", side_effect=lambda *_: takes("library", 4)),
            mock.patch.object(decode_rate, "matrices", return_value=one_matrix),
            mock.patch.object(torch, "mv", side_effect=lambda w, x: takes("floor", 0.25)),
        ):
            found = decode_rates(MODEL, tokens=4, runs=3, timer=lambda: now[0])
        self.assertEqual((found["ours_per_s"], found["library_per_s"], found["floor_per_s"]), (2.0, 1.0, 4.0))
        self.assertEqual((found["over_library"], found["over_floor"], found["library_over_floor"]), (2.0, 0.5, 0.25))
        self.assertEqual(calls, {"ours": 4, "library": 4, "floor": 16})


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        folder = write_folder(self.folder / "m")
        status, out, err = call(decode_rate.main, "--model", folder, "--tokens", "4", "--runs", "2")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("of the floor", out)
        status, out, err = call(decode_rate.main, "--model", folder, "--tokens", "4", "--runs", "2", "--json")
        found = json.loads(out)["decode"]
        self.assertEqual((found["runs"], found["tokens"]), (2, 4))
        self.assertAlmostEqual(found["over_floor"], found["ours_per_s"] / found["floor_per_s"])

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        self.assertBad(decode_rate.main, ["--model", folder, "--tokens", "17"], "n_positions")
        self.assertBad(decode_rate.main, ["--runs", "0"], "--runs")


if __name__ == "__main__":
    unittest.main()
