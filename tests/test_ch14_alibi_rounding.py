"""Chapter 14's two programs for ALiBi: how far each is from float64, and a fault that is more than rounding."""

import unittest
from unittest import mock

import torch

from examples.ch14 import alibi_rounding, variants
from tests.rooms import RoomCase


def setUpModule():
    torch.set_num_threads(1)


class Rounding(RoomCase):
    def test_both_are_rounding_and_a_fault_is_not(self):
        found = alibi_rounding.measure(200)
        for name in ("ours", "library", "library_float64"):
            self.assertTrue(0 < found[name] < 1e-5, found)
        right = variants.slopes
        with mock.patch.object(variants, "slopes", lambda n: right(n).flip(0)):
            found = alibi_rounding.measure(50)
        self.assertLess(found["ours"], 1e-5)  # beside itself in float64: the fault is in both
        self.assertGreater(found["library"], 1e-3)

    def test_the_script(self):
        value = self.values(alibi_rounding.main, "--tokens", "8,16")
        self.assertMeasured(value, alibi=[alibi_rounding.measure(n) for n in (8, 16)])
        self.page(alibi_rounding.main, "--tokens", "8,16")

    def test_bad_input(self):
        for tokens, words in (("0", "0 is not 1 or more"), ("x", "not a whole number"), ("9000", "more than 8192")):
            self.assertBad(alibi_rounding.main, ["--tokens", tokens], words)


if __name__ == "__main__":
    unittest.main()
