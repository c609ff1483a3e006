"""The machine's rates on a clock of our own: the work is counted right, the ridge is their quotient, and threads come back."""

import itertools
import unittest
from unittest import mock

import torch

from examples.ch11 import machine as room
from examples.ch11.machine import MATVEC, SUM, main, measure, threads_set
from tests.rooms import RoomCase

TINY = {"sizes": (8, 16), "read": 2**14, "runs": 3}


class Rates(unittest.TestCase):
    def test_every_call_takes_a_second(self):
        found = measure((1,), **TINY, timer=itertools.count().__next__)
        for r in found["products"]:
            self.assertEqual({r["gflop_low"], r["gflop_per_s"], r["gflop_high"]}, {2 * r["size"] ** 3 / 1e9})
        for r in found["reads"]:
            self.assertEqual({r["gb_low"], r["gb_per_s"], r["gb_high"]}, {2**14 / 1e9})
        self.assertEqual([(r["read"], r["dtype"]) for r in found["reads"]][:2], [(SUM, "float32"), (MATVEC, "float32")])
        ridge = 2 * 16**3 / 2**14
        for r, number in zip(found["machine"], (4, 2), strict=True):
            self.assertAlmostEqual(r["ridge_flop_per_byte"], ridge)
            self.assertAlmostEqual(r["prefix_tokens"], ridge * number / 2)
        self.assertAlmostEqual(found["ridge"], ridge)
        self.assertEqual((found["runs"], found["read_mib"]), (3, 1 / 64))

    def test_the_faster_way_to_read_is_the_bandwidth(self):
        """Four calls in turn: products and a sum of a second, a matrix times a vector of two. The first turn is discarded."""
        lengths, state = (1, 1, 1, 2), {"calls": 0, "now": 0}

        def timer():
            call, end = divmod(state["calls"], 2)
            state["calls"] += 1
            state["now"] += (lengths[call % 4] + (1000 if call % 16 < 4 else 0)) if end else 0
            return state["now"]

        for r in measure((1,), **TINY, timer=timer)["machine"]:
            self.assertAlmostEqual(r["gb_per_s"], 2**14 / 1e9)
            self.assertAlmostEqual(r["matvec_gb_per_s"], 2**14 / 2e9)
            self.assertAlmostEqual(r["ridge_at_matvec"], 2 * r["ridge_flop_per_byte"])
            self.assertAlmostEqual(r["prefix_at_matvec"], 2 * r["prefix_tokens"])

    def test_low_and_high_are_quartiles(self):
        self.assertEqual(room.rate_of(1e9, [1, 2, 4, 5, 8]), [1 / 5, 1 / 4, 1 / 2])

    def test_threads(self):
        before = torch.get_num_threads()
        with self.assertRaises(ZeroDivisionError), threads_set(before + 1):
            self.assertEqual(torch.get_num_threads(), before + 1)
            _ = 1 / 0
        self.assertEqual(torch.get_num_threads(), before)
        found = measure((1, 2), **TINY)
        self.assertEqual([(r["threads"], r["dtype"]) for r in found["machine"]][::2], [(1, "float32"), (2, "float32")])
        self.assertEqual(torch.get_num_threads(), before)


class Script(RoomCase):
    def test_json_page_and_figure(self):
        argv = ["--threads", "1", "--sizes", "8,16", "--read", "1", "--runs", "2"]
        found = measure((1,), (8, 16), 2**20, 2)
        with mock.patch.object(room, "measure", return_value=found) as measured:
            self.assertMeasured(self.values(main, *argv), machine=found)
            self.assertEqual(measured.call_args.args, ([1], [8, 16], 2**20, 2))
            self.assertDraws(lambda rest: main([*argv, *(a for a in rest if a != "--model" and "no-model" not in a)]))
        self.assertIn("With 1 thread in float32", self.page(main, *argv))

    def test_bad_arguments(self):
        for argv, words in (
            (["--threads", "0"], ["0 is not 1 or more"]),
            (["--sizes", "a"], ["'a' is not a whole number"]),
            (["--read", "0"], ["0 is not 1"]),
        ):
            self.assertBad(main, argv, *words)


if __name__ == "__main__":
    unittest.main()
