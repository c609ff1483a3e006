"""Chapter 14's stored weights: logits and loss of weights that have been through chapter 2's formats."""

import unittest
from unittest import mock

import torch

from examples.ch02.model import run
from examples.ch02.storage_formats import CHOICES, as_stored
from examples.ch14 import stored_weights as room
from examples.ch14.held_text import held_windows, losses
from examples.ch14.stored_weights import divergences, main, measure
from tests.rooms import RoomCase
from tests.support import loaded, slow

MODEL = loaded()


class Measure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = measure(MODEL, 64)
        cls.rows = {r["format"]: r for r in cls.found["formats"]}

    def test_float32_changes_nothing(self):
        row = self.rows["float32"]
        self.assertEqual([row[k] for k in ("largest_change", "kl", "loss_change", "standard_error")], [0, 0, 0, 0])
        self.assertEqual((row["same_best"], self.found["positions"], self.found["windows"]), (64, 64, 1))

    def test_one_format_by_itself(self):
        ids = held_windows(MODEL, 64)
        stored, size = as_stored(MODEL, "Q4_1")
        before, after = run(MODEL, ids[:, :-1])[0], run(stored, ids[:, :-1])[0]
        row = self.rows["Q4_1"]
        self.assertEqual((row["bytes"], row["largest_change"]), (size, (after - before).abs().max().item()))
        self.assertEqual(row["same_best"], int((after.argmax(-1) == before.argmax(-1)).sum()))
        self.assertAlmostEqual(row["loss"], losses(ids, stored)[0].mean().item())
        self.assertAlmostEqual(row["loss_change"], row["loss"] - self.rows["float32"]["loss"])
        change = losses(ids, stored)[0] - losses(ids, MODEL)[0]
        self.assertAlmostEqual(row["standard_error"], change.std().item() / 8)  # of 64 positions
        self.assertEqual(self.found["largest_logit"], before.abs().max().item())

    def test_fewer_bits_are_further_off(self):
        order = ["float32", "float16", "bfloat16", "Q8_0", "Q4_1"]
        for key in ("largest_change", "kl"):
            values = [self.rows[name][key] for name in order]
            self.assertEqual(values, sorted(values), key)
        self.assertEqual(set(self.rows), set(CHOICES))

    def test_divergences(self):
        p = torch.tensor([[0.0, 0.0], [0.0, 3.0]])
        q = torch.tensor([[0.0, torch.tensor(3.0).log()], [5.0, 8.0]])
        right = 0.5 * torch.tensor([0.5 / 0.25, 0.5 / 0.75]).double().log().sum().item()
        found = divergences(p, q)
        self.assertAlmostEqual(found[0].item(), right, places=6)
        self.assertAlmostEqual(found[1].item(), 0, places=12)


class Script(RoomCase):
    @slow
    def test_json_is_what_was_measured(self):
        self.assertMeasured(self.values(main, "--tokens", 32), **{"stored-weights": measure(MODEL, 32)})

    def test_pages(self):
        with mock.patch.object(room, "measure", return_value=measure(MODEL, 16)):
            out = self.page(main)
        for text in ("Q4_1, table Q8_0", "16 positions in 1 windows", "std. error"):
            self.assertIn(text, out)

    def test_bad_input(self):
        self.assertBad(main, ["--model", self.folder / "none"], "no model")
        self.assertBad(main, ["--tokens", "99999"], "99999 tokens")
        self.assertBad(main, ["--tokens", "0"], "0 is not 1")
        self.assertBad(main, ["--model", self.tiny()], "no tokenizer")


if __name__ == "__main__":
    unittest.main()
