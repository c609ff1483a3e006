"""The worst of some numbers: a NaN is worse than any, and nothing is a part of nothing."""

import math
import unittest

import torch

from examples.lab.experiment import largest, median_after, relative, worst, worst_row


class Worst(unittest.TestCase):
    def test_of_numbers(self):
        self.assertEqual((worst([]), worst([1.0, 2.0]), worst(x for x in (3.0, 1.0))), (0.0, 2.0, 3.0))
        for values in ([0.0, math.nan, 1.0], [math.nan], [1.0, math.nan]):
            self.assertTrue(math.isnan(worst(values)))

    def test_of_rows(self):
        rows = [{"a": 1.0}, {"a": 3.0}, {"a": 2.0}]
        self.assertIs(worst_row(rows, "a"), rows[1])
        for at in range(3):
            broken = [dict(row) for row in rows]
            broken[at]["a"] = math.nan
            self.assertIs(worst_row(broken, "a"), broken[at])

    def test_of_a_tensor(self):
        self.assertEqual(largest(torch.tensor([1.0, -3.0])), 3.0)
        self.assertTrue(math.isnan(largest(torch.tensor([1.0, math.nan]))))

    def test_relative(self):
        self.assertEqual((relative(1.0, 4.0), relative(3.0, 0.0), relative(0.0, 0.0)), (0.25, 3.0, 0.0))
        self.assertTrue(math.isnan(relative(1.0, math.nan)))
        self.assertTrue(math.isnan(relative(math.nan, 0.0)))

    def test_the_first_call_is_discarded_and_the_median_taken(self):
        """The first call of anything costs what later ones do not."""
        self.assertEqual(median_after([1000, 10, 12, 10, 11, 500]), 11)
        self.assertEqual(median_after([1000, 10]), 10)
        self.assertEqual(median_after([1000, 900, 10, 12, 11], discarded=2), 11)


if __name__ == "__main__":
    unittest.main()
