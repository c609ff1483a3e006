"""Chapter 5's filters beside transformers' processors, and the frequencies of draws: that they agree, and that faults show."""

import json
import unittest
from unittest import mock

import torch

from examples.ch05 import sampling
from examples.ch05 import sampling_agreement as room
from examples.ch05.sampling import draw, probabilities
from examples.lab.script import finite
from tests.support import FolderCase, call

FIVE = torch.tensor(sampling.LOGITS)
RIGHT_TOP_P = sampling.keep_top_p


class Filters(unittest.TestCase):
    """Ties that top-k or top-p cuts, and temperature 0, are left out: there our rule differs from the library's."""

    def test_they_agree(self):
        found = room.compare_filters(240, seed=1)  # the record has another seed, and a thousand rows
        self.assertTrue(found["held"], found)
        self.assertGreater(found["compared"], 200)
        self.assertEqual((found["same_kept"], found["settings"]), (found["compared"], 120))
        self.assertEqual(found["compared"] + found["ties_cut"], 240)

    def test_a_wrong_filter_shows(self):
        def drops_the_crossing_one(logits, p):
            return RIGHT_TOP_P(logits, max(p - 0.05, 0.01)) if p < 1 else logits

        with mock.patch.object(sampling, "keep_top_p", drops_the_crossing_one):
            found = room.compare_filters(200)
        self.assertLess(found["same_kept"], found["compared"])
        self.assertFalse(found["held"])

    def test_another_order_shows(self):
        def another_order(logits, temperature=1.0, top_k=None, top_p=None):
            logits = RIGHT_TOP_P(logits, top_p) if top_p else logits
            return probabilities(logits, temperature, top_k)

        with mock.patch.object(room, "probabilities", another_order):
            found = room.compare_filters(200)
        self.assertLess(found["same_kept"], found["compared"])

    def test_other_probabilities_show(self):
        def a_little_sharper(*arguments):  # the same tokens, other probabilities
            sharper = probabilities(*arguments) ** 1.001
            return sharper / sharper.sum()

        with mock.patch.object(room, "probabilities", a_little_sharper):
            found = room.compare_filters(200)
        self.assertGreater(found["worst"], 1e-5)
        self.assertFalse(found["held"])

    def test_a_cut_tie_is_seen(self):
        tied = torch.tensor([2.0, 1.0, 1.0, 0.0])
        self.assertTrue(room.cuts_a_tie(tied, probabilities(tied, top_k=2)))
        for k in (1, 3, 4):
            self.assertFalse(room.cuts_a_tie(tied, probabilities(tied, top_k=k)))


class Draws(unittest.TestCase):
    def test_frequencies(self):
        for settings in ({}, {"top_p": 0.9}, {"temperature": 2.0}, {"top_k": 3}):
            rows = room.draw_frequencies(FIVE, 50_000, seed=1, **settings)
            self.assertEqual([r["probability"] for r in rows], probabilities(FIVE, **settings).double().tolist())
            self.assertAlmostEqual(sum(r["frequency"] for r in rows), 1)
            for row in rows:
                self.assertLess(abs(row["deviations"]), 4, row)

    def test_draws_off_by_one_show(self):
        with mock.patch.object(room, "draw", lambda p, g: (draw(p, g) + 1) % p.shape[-1]):
            found = room.measure_draws(1000)
        self.assertGreater(found["worst"], 30)
        self.assertEqual((found["held"], found["cut_ones_never_drawn"]), (False, False))


class Script(FolderCase):
    def test_json(self):
        status, out, err = call(room.main, "--rows", "30", "--draws", "500", "--seed", "3", "--json")
        self.assertEqual((status, err), (0, ""))
        value = json.loads(out)
        self.assertEqual((value["filters"]["rows"], value["draws"]["draws"], value["ran_with"]["seed"]), (30, 500, 3))
        self.assertEqual(value["draws"]["frequencies"], finite({"rows": room.draw_frequencies(FIVE, 500, seed=3)})["rows"])

    def test_text(self):
        status, out, _ = call(room.main, "--rows", "30", "--draws", "500")
        self.assertEqual(status, 0)
        self.assertIn("500 draws", out)
        self.assertLess(max(map(len, out.splitlines())), 101)

    def test_bad_input(self):
        for argv, word in ((["--rows", "0"], "--rows"), (["--draws", "many"], "--draws")):
            self.assertBad(room.main, argv, word)


if __name__ == "__main__":
    unittest.main()
