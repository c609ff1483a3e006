"""The small operations of a decode step: each moment belongs to one component, and shares are of all that was measured."""

import itertools
import unittest
from unittest import mock

import torch

from examples.ch02.families import formulas
from examples.ch04.component_timing import COMPONENTS, small_flops
from examples.ch14 import small_operations as room
from examples.ch14.decode_trace import decode_step
from tests.rooms import RoomCase
from tests.support import LLAMA, llama_model, model, write_folder

LLAMAS = llama_model()


class Measure(unittest.TestCase):
    def test_moments(self):
        """A clock of one tick a reading: 2 layers of 12 points, and embedding, final norm and logits."""
        for one in (LLAMAS, model()):
            v = room.measure(one, (1, 15), batch=2, runs=2, timer=itertools.count().__next__)
            wanted = dict(zip(COMPONENTS, (1, 5, 12, 4, 4, 1), strict=True))
            for context in (1, 15):
                rows = {r["component"].replace(" ", "_"): r for r in v["components"] if r["context"] == context}
                self.assertEqual({name: r["ms"] / 1e3 for name, r in rows.items()}, wanted)
                self.assertAlmostEqual(sum(r["time_percent"] for r in rows.values()), 100)
            for r in v["steps"]:
                self.assertEqual(r["step_ms"], 1e3)
                self.assertAlmostEqual(r["small_time_percent"], 100 * 9 / 27)
                small = sum(small_flops(one.config, 2).values())
                matmuls = 2 * formulas(one.config).flops_per_token(one.config, r["context"] + 1)["total"]
                self.assertAlmostEqual(r["small_flop_percent"], 100 * small / (matmuls + small))
                if one is LLAMAS:
                    self.assertEqual(matmuls, decode_step(one.config, r["context"], 2)["flops"])
            shares = [r["small_flop_percent"] for r in v["steps"]]
            self.assertEqual((v["small_flop_percent_min"], v["small_flop_percent_max"]), (min(shares), max(shares)))
            self.assertGreater(shares[0], shares[1])  # attention grows with what is cached

    def test_the_step_is_that_of_the_cache(self):
        """Every step starts from the cache that was filled, whatever was fed before."""
        lengths = []
        whole = room.stream_cached

        def seen(ids, one, cache, trace):
            lengths.append(cache.length)
            return whole(ids, one, cache, trace)

        with mock.patch.object(room, "stream_cached", seen):
            room.measure(LLAMAS, (7,), runs=2)
        self.assertEqual(lengths, [7] * 6)


class Script(RoomCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        self.model = write_folder(self.folder / "m", LLAMAS.weights, LLAMA)

    def test_page_and_json(self):
        argv = ("--model", self.model, "--context", "1,63", "--runs", 1)
        page = self.page(room.main, *argv)
        for words in ("float32, 1 thread", "residual additions", "Norms and residual additions are"):
            self.assertIn(words, page)
        found = room.measure(LLAMAS, [1, 63], runs=1)
        with mock.patch.object(room, "measure", return_value=found) as measured:
            value = self.values(room.main, *argv)
        self.assertMeasured(value, **{"small-operations": found})
        self.assertEqual(measured.call_args.args[1:], ([1, 63], 1, 1))

    def test_bad_input(self):
        self.assertBad(room.main, ["--model", self.model, "--context", "64"], "64 cached positions", "n_positions 64")
        self.assertBad(room.main, ["--model", self.model, "--context", "0"], "0 is not")


if __name__ == "__main__":
    unittest.main()
