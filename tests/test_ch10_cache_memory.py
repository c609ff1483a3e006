"""The bytes of a cache: GPT-3's, any config's, the sequences that outweigh the weights."""

import json
import unittest
from unittest import mock

from examples.ch02.model import load_config
from examples.ch04.cost_model import parameter_count
from examples.ch10 import cache_memory
from examples.ch10.cache_memory import GPT3, measure, sequences_to_outweigh
from examples.ch10.kv_cache import cache_bytes
from tests import support
from tests.support import FolderCase, call


class Memory(unittest.TestCase):
    def test_memory_of_gpt3(self):
        found = measure()
        self.assertEqual(found["per_token_mib"], 4.5)
        self.assertEqual([(r["tokens"], r["gib"]) for r in found["tokens"][1:]], [(512, 2.25), (2048, 9.0)])
        self.assertEqual((found["sequences_to_outweigh"], found["sequences_that_fit_below_the_weights"]), (37, 36))
        self.assertEqual(f"{found['weights_gib']:.0f}", "325")
        self.assertEqual([r["sequences"] for r in found["sequences"]], [1, 8, 16, 24, 32, 40, 48])
        self.assertTrue(found["as_the_tensors"])
        twice = lambda *args: 2 * cache_bytes(*args)  # noqa: E731  queries counted for keys, say
        with mock.patch.object(cache_memory, "cache_bytes", twice):
            self.assertFalse(measure()["as_the_tensors"])

    def test_the_sequences_that_outweigh(self):
        for config in (GPT3, load_config("gpt2"), support.config()):
            weights, one = 2 * parameter_count(config)["total"], cache_bytes(config, config.n_positions, 1, 2)
            n = sequences_to_outweigh(config)
            self.assertGreater(n * one, weights)
            self.assertLessEqual((n - 1) * one, weights)

    def test_batch_and_bytes(self):
        found = measure(load_config("gpt2"), [1024], 4, batch=2)
        self.assertEqual(found["tokens"][0]["bytes"], 2 * 75_497_472)
        self.assertEqual(found["tokens"][0]["gib"], 2 * 75_497_472 / 2**30)
        self.assertEqual(found["sequences"][-1]["cache_gib"] > found["weights_gib"], True)


class Script(FolderCase):
    def test_tables(self):
        for argv, texts in (
            ([], ("2.250", "9.000", "4,718,592", "325.2 GiB", "37")),
            (["--config", "gpt2", "--bytes", "4", "--batch", "2"], (f"{2 * 75_497_472:,}",)),
        ):
            status, out, err = call(cache_memory.main, *argv)
            self.assertEqual((status, err), (0, ""), argv)
            for text in texts:
                self.assertIn(text, out, argv)

    def test_json_and_figure(self):
        status, out, err = call(cache_memory.main, "--tokens", "2048", "--json", "--plot", self.folder / "m.svg")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(json.loads(out)["memory"]["tokens"][0]["bytes"], 9 * 2**30)
        self.assertIn("shape at two bytes per number", (self.folder / "m.svg").read_text())

    def test_bad_input(self):
        for argv, word in (
            (["--tokens", "2049"], "n_positions 2048"),
            (["--config", "gpt5"], "gpt5"),
            (["--bytes", "3"], "--bytes"),
            (["--batch", "1" + "0" * 400], "--batch"),
            (["--plot", "x.txt"], "x.txt"),
        ):
            self.assertBad(cache_memory.main, argv, word)


if __name__ == "__main__":
    unittest.main()
