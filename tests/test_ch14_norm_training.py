"""Chapter 14's small trainings: the rate, the batches, whose loss counts; the entropy that losses are compared with; the script."""

import math
import unittest
from unittest import mock

import torch

from examples.ch03.held_text import PLAY
from examples.ch14 import norm_training
from examples.ch14.norm_training import byte_entropy, measure_some, training
from examples.lab.script import finite, parse_json
from tests.support import FolderCase, call


def setUpModule():
    torch.set_num_threads(1)


class Training(unittest.TestCase):
    def test_byte_entropy(self):
        text = PLAY.read_bytes()
        wanted = -sum(n / len(text) * math.log(n / len(text)) for n in (text.count(b) for b in set(text)))
        self.assertAlmostEqual(byte_entropy(), wanted, places=9)

    def test_it_learns(self):
        first = training("pre", 2, steps=1, width=16)
        self.assertGreater(first, math.log(256) - 1)  # before any step it guesses
        self.assertLess(training("pre", 2, steps=60, width=16, rate=3e-3), first - 1)
        self.assertEqual(training("post", 2, seed=3, steps=3, width=16), training("post", 2, seed=3, steps=3, width=16))
        self.assertNotEqual(training("post", 2, seed=3, steps=3, width=16), training("post", 2, seed=4, steps=3, width=16))

    def test_the_last_twenty_steps_count(self):
        with mock.patch.object(norm_training.statistics, "mean", side_effect=list):
            losses = training("pre", 1, steps=25, width=16)
            self.assertEqual(len(losses), 20)
            self.assertEqual(training("pre", 1, steps=24, width=16)[1:], losses[:-1])

    def test_a_warm_up_starts_slowly(self):
        rates, calls = [], []
        right = torch.optim.Adam.step

        def step(adam, *args, **kwargs):
            rates.append(adam.param_groups[0]["lr"])
            return right(adam, *args, **kwargs)

        with mock.patch.object(torch.optim.Adam, "step", step):
            training("pre", 1, steps=6, rate=1.0, width=16, warm_up=4, progress=lambda: calls.append(1))
        self.assertEqual(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0])
        self.assertEqual(len(calls), 6)

    def test_all_places_see_the_same_batches(self):
        seen, right = {}, norm_training.run
        for place in ("pre", "post", "both"):

            def kept(model, ids, place=place):
                seen.setdefault(place, []).append(ids)
                return right(model, ids)

            with mock.patch.object(norm_training, "run", kept):
                training(place, 1, steps=3, width=16)
        for place in ("post", "both"):
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(seen["pre"], seen[place], strict=True)))
        self.assertFalse(torch.equal(seen["pre"][0], seen["pre"][1]))


def told(norm_place, layers, seed=0, steps=0, rate=0.0, warm_up=1, progress=None):
    """A loss that says what it was asked for."""
    place = ("pre", "post", "both").index(norm_place)
    return 1000 * place + 10 * layers + seed + steps / 1e4 + rate + warm_up / 1e6


class Measured(unittest.TestCase):
    def test_some(self):
        with mock.patch.object(norm_training, "training", told):
            found = measure_some((2, 3), ("post", "pre"), seeds=2, seed=5, steps=7, rate=0.25, warm_up=9)
        self.assertEqual(
            [(r["norm_place"], r["layers"]) for r in found["rows"]], [("post", 2), ("post", 3), ("pre", 2), ("pre", 3)]
        )
        losses = [told("post", 3, seed, 7, 0.25, 9) for seed in (5, 6)]
        self.assertEqual((found["rows"][1]["losses"], found["rows"][1]["loss"]), (losses, sum(losses) / 2))
        self.assertEqual((found["post_3"], found["steps"], found["rate"], found["seeds"]), (sum(losses) / 2, 7, 0.25, 2))

    def test_the_whole(self):
        with mock.patch.object(norm_training, "training", told):
            found = norm_training.measure()
        self.assertEqual(len(found["rows"]), 9)
        self.assertEqual(found["post_24"], sum(told("post", 24, s, 150, 1e-3) for s in (0, 1)) / 2)
        self.assertEqual(found["post_24_warmed_up"], told("post", 24, warm_up=100))
        self.assertEqual(found["slow_pre_12"], told("pre", 12, steps=1500, rate=1e-4))
        self.assertEqual(found["slow_post_12"], told("post", 12, steps=1500, rate=1e-4))


class Script(FolderCase):
    QUICK = ("--layers", "1", "--steps", "2")

    def test_text_and_json(self):
        status, out, err = call(norm_training.main, *self.QUICK, "--places", "both")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^both +1 +\d\.\d\d +\d\.\d\d$")
        self.assertIn("0 of 1 kinds did better: none.", out)
        value = parse_json(call(norm_training.main, *self.QUICK, "--json")[1])
        self.assertEqual(value["training"], finite(measure_some((1,), ("pre", "post"), 1, steps=2)))

    def test_the_whole_says_more(self):
        with mock.patch.object(norm_training, "training", told):
            status, out, err = call(norm_training.main, "--whole")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("with a warm-up of 100 steps", out)
        self.assertIn("12 layers for 1,500 steps", out)

    def test_bad_input(self):
        for argv, words in (
            (("--rate", "0"), "above 0"),
            (("--rate", "nan"), "above 0"),
            (("--rate", "fast"), "above 0"),
            (("--places", "none"), "invalid choice"),
            (("--steps", "0"), "--steps"),
            (("--layers", "0"), "1 or more"),
        ):
            self.assertBad(norm_training.main, argv, words)


if __name__ == "__main__":
    unittest.main()
