"""What a record keeps of a measurement: plain values, rounded by the kind of evidence."""

import math
import unittest
from dataclasses import replace

import numpy as np
import torch

from examples.lab.experiment import Experiment, above, largest, plain, relative, sig, tolerance, worst, worst_row

VALUES = {"x": 1.23456, "n": 1234567, "rows": [{"ms": 9.8765, "shares": [0.123456, 2], "name": "a"}], "deep": {"ms": [1.23456]}}


def of(kind, **changes):
    return replace(Experiment("ch98.one", kind, "One is one.", "Nothing else.", dict), **changes)


class Kept(unittest.TestCase):
    def test_what_is_exact_stays(self):
        self.assertEqual(of("exact").kept(VALUES), VALUES)
        self.assertEqual(of("exact", digits=2).kept({"x": 0.1 + 0.2}), {"x": 0.1 + 0.2})

    def test_three_digits_of_what_was_observed_or_timed(self):
        wanted = {"x": 1.23, "n": 1234567, "rows": [{"ms": 9.88, "shares": [0.123, 2], "name": "a"}], "deep": {"ms": [1.23]}}
        for kind in ("observation", "timing"):
            self.assertEqual(of(kind).kept(VALUES), wanted)

    def test_as_many_as_the_experiment_says(self):
        found = of("timing", digits=2).kept(VALUES)
        self.assertEqual(
            found, {"x": 1.2, "n": 1234567, "rows": [{"ms": 9.9, "shares": [0.12, 2], "name": "a"}], "deep": {"ms": [1.2]}}
        )
        found = of("timing", digits={"ms": 1, "x": 5}).kept(VALUES)  # by key, at any depth
        self.assertEqual(
            found, {"x": 1.2346, "n": 1234567, "rows": [{"ms": 10.0, "shares": [0.123, 2], "name": "a"}], "deep": {"ms": [1.0]}}
        )
        found = of("timing", digits={"rows": 2, "shares": 4}).kept(VALUES)  # what stands below a key has that key's
        self.assertEqual(found["rows"], [{"ms": 9.9, "shares": [0.1235, 2], "name": "a"}])
        self.assertEqual((found["x"], found["deep"]), (1.23, {"ms": [1.23]}))

    def test_the_worst_of_a_tolerance_goes_up_to_one_digit(self):
        found = of("tolerance").kept(tolerance(1.5e-5, 1.21e-6, largest=12.3456))
        self.assertEqual(found, {"bound": 1.5e-5, "worst": 2e-6, "held": True, "largest": 12.3})
        self.assertEqual(of("tolerance", digits=5).kept(tolerance(1, 0.41))["worst"], 0.5)

    def test_what_no_record_keeps(self):
        found = of("exact", leaves_out=("ms", "n")).kept(VALUES)
        self.assertEqual(found, {"x": 1.23456, "rows": [{"shares": [0.123456, 2], "name": "a"}], "deep": {}})
        self.assertEqual(VALUES["rows"][0]["ms"], 9.8765)  # the measurement itself is left whole

    def test_measured_with_the_model_or_with_nothing(self):
        self.assertEqual(of("exact", measure=lambda model: {"model": model}).values("m"), {"model": "m"})
        self.assertEqual(of("exact", measure=lambda: {"n": 1}, loads=False).values("m"), {"n": 1})

    def test_a_kind_that_is_none(self):
        with self.assertRaisesRegex(ValueError, "ch98.one has kind 'certain'"):
            of("certain")


class Plain(unittest.TestCase):
    def test_scalars_of_numpy_and_torch(self):
        value = plain({"a": np.int64(3), "b": (torch.tensor(True), None), "c": np.float32(0.5), "d": "x", "e": torch.tensor(2.5)})
        self.assertEqual(value, {"a": 3, "b": [True, None], "c": 0.5, "d": "x", "e": 2.5})
        self.assertEqual([type(x) for x in (value["a"], value["b"][0], value["c"], value["e"])], [int, bool, float, float])

    def test_what_is_no_result(self):
        for value in (float("nan"), float("inf"), np.float64("nan"), torch.tensor(float("-inf"))):
            for kind in ("exact", "tolerance", "observation", "timing"):
                with self.assertRaisesRegex(ValueError, "is not a result"):
                    of(kind).kept({"worst": 0.0, "a": [{"b": value}]})
        with self.assertRaises(ValueError):
            of("tolerance").kept(tolerance(1.0, float("nan")))
        for value in (object(), {1, 2}, torch.ones(2).numpy):
            with self.assertRaises(TypeError):
                plain({"a": value})


class Numbers(unittest.TestCase):
    def test_significant_digits(self):
        self.assertEqual([sig(x) for x in (1234.5, 0.00012345, -9.876, 0.0, None)], [1230.0, 0.000123, -9.88, 0.0, None])
        self.assertEqual(sig(6.8e-7, 1), 7e-7)

    def test_up_to_one_digit(self):
        for x, wanted in (
            (1.37e-7, 2e-7),
            (6.8e-7, 7e-7),
            (9.2e-7, 1e-6),
            (2e-6, 2e-6),
            (1.0, 1.0),
            (1.01, 2.0),
            (0.0, 0.0),
            (0, 0),
        ):
            self.assertEqual(above(x), wanted)

    def test_tolerances(self):
        self.assertEqual(tolerance(1.0, 1.0, n=2), {"bound": 1.0, "worst": 1.0, "held": True, "n": 2})
        self.assertFalse(tolerance(1.0, 1.1)["held"])
        self.assertFalse(tolerance(1.0, 0.0, held=False)["held"])
        self.assertFalse(tolerance(1.0, float("nan"))["held"])

    def test_largest_and_worst(self):
        self.assertEqual((largest(torch.tensor([1.0, -3.0])), worst([0.5, 2.0]), worst([])), (3.0, 2.0, 0.0))
        for found in (largest(torch.tensor([1.0, float("nan")])), worst([float("nan"), 1.0]), worst([1.0, float("nan")])):
            self.assertNotEqual(found, found)


class Worst(unittest.TestCase):
    """The worst of some numbers: a NaN is worse than any, and nothing is a part of nothing."""

    def test_of_rows(self):
        rows = [{"a": 1.0}, {"a": 3.0}, {"a": 2.0}]
        self.assertIs(worst_row(rows, "a"), rows[1])
        for at in range(3):
            broken = [dict(row) for row in rows]
            broken[at]["a"] = math.nan
            self.assertIs(worst_row(broken, "a"), broken[at])

    def test_relative(self):
        self.assertEqual((relative(1.0, 4.0), relative(3.0, 0.0), relative(0.0, 0.0)), (0.25, 3.0, 0.0))
        self.assertTrue(math.isnan(relative(1.0, math.nan)))
        self.assertTrue(math.isnan(relative(math.nan, 0.0)))


if __name__ == "__main__":
    unittest.main()
