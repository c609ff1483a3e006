"""What the cache saves: positions and FLOPs as they run, times on a clock of our own; and a fault that breaks the record."""

import json
import unittest
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch05.generate import generate
from examples.ch10 import cache_cost
from examples.ch10.cache_cost import flops_of_loop, loop_times, measure, measure_time, tokens_processed
from examples.ch10.kv_cache import Cached
from examples.lab.script import finite
from scripts.experiments import experiment
from scripts.records import read_results, results_path
from tests import support
from tests.support import ROOT, FolderCase, call, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
FULL = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]])


def setUpModule():
    torch.set_num_threads(1)


class Cost(unittest.TestCase):
    def test_the_published_ratios(self):
        """5, 10.5 and 69.5 count the new tokens' work alone; with the prefill they are 1.0, 7.9 and 58.4."""
        for prompt, new, without, with_it in ((5, 1, "5.0", "1.0"), (5, 12, "10.5", "7.9"), (20, 100, "69.5", "58.4")):
            found = tokens_processed(prompt, new)
            self.assertEqual((f"{found['ratio_without_prefill']:.1f}", f"{found['ratio']:.1f}"), (without, with_it))
            self.assertEqual(found["ratio_without_prefill"], prompt + (new - 1) / 2)

    def test_positions_are_those_that_run(self):
        for prompt, new in ((5, 1), (3, 7), (1, 16)):
            fed, cached = [], Cached(MODEL)

            def forward(ids, fed=fed):
                fed.append(ids.shape[1])
                return gpt2.forward(ids, MODEL.weights, MODEL.config)

            generate(FULL[:, :prompt], MODEL, new, end=None, forward=forward)
            generate(FULL[:, :prompt], MODEL, new, end=None, forward=cached)
            counted = tokens_processed(prompt, new)
            self.assertEqual((sum(fed), cached.computed), (counted["naive"], counted["cached"]))

    def test_flops_are_those_that_torch_counts(self):
        for prompt, new in ((5, 1), (3, 7), (1, 16)):
            wanted = flops_of_loop(MODEL.config, prompt, new)
            for forward, flops in zip((None, Cached(MODEL)), wanted, strict=True):
                with FlopCounterMode(display=False) as counter:
                    generate.__wrapped__(FULL[:, :prompt], MODEL, new, end=None, forward=forward)
                self.assertEqual(counter.get_total_flops(), flops, (prompt, new, forward))

    def test_times_on_a_clock_of_our_own(self):
        """Each position costs 1 s in either loop; the first run of each 1,000 s more, and is discarded."""
        now, runs = [0.0], [0]

        class Slow(Cached):
            def __call__(self, ids):
                before = self.computed
                found = super().__call__(ids)
                now[0] += self.computed - before
                return found

        def naive(model):
            runs[0] += 1
            first = [1000.0 if runs[0] == 1 else 0.0]

            def forward(ids):
                now[0] += ids.shape[1] + first[0]
                first[0] = 0.0
                return gpt2.forward(ids, model.weights, model.config)

            return forward

        with mock.patch.object(cache_cost, "Cached", Slow), mock.patch.object(cache_cost, "whole_text", naive):
            rows = loop_times(MODEL, 5, 10, (1, 2, 10), runs=3, timer=lambda: now[0])
        for row in rows:
            counted = tokens_processed(5, row["new"])
            self.assertEqual((row["naive_s"], row["cached_s"]), (counted["naive"], counted["cached"]))
            self.assertEqual((row["ratio"], row["positions_ratio"]), (counted["ratio"],) * 2)
        self.assertIsNone(rows[0]["ratio_without_prefill"])
        self.assertAlmostEqual(rows[2]["ratio_without_prefill"], rows[2]["positions_ratio_without_prefill"])

    def test_a_forgotten_prefill_breaks_the_record(self):
        recorded, right = read_results(results_path(ROOT, "ch10"))["ch10.cost"]["values"], tokens_processed
        self.assertEqual(experiment("ch10.cost").values(), recorded)

        def without(prompt, new):
            found = right(prompt, new)
            return found | {"cached": new, "ratio": found["naive"] / new}

        with mock.patch.object(cache_cost, "tokens_processed", without):
            self.assertNotEqual(experiment("ch10.cost").values(), recorded)

    def test_speeds(self):
        rows = [{"new": 1, "naive_s": 1.0, "cached_s": 1.0}, {"new": 3, "naive_s": 2.0, "cached_s": 4.0}]
        with mock.patch.object(cache_cost, "loop_times", return_value=rows):
            found = measure_time(MODEL, 5, (3, 1))
        naive, cached = flops_of_loop(MODEL.config, 5, 3)
        self.assertEqual((found["naive_gflop_per_s"], found["cached_gflop_per_s"]), (naive / 2e9, cached / 4e9))

    def test_the_toy_is_told_in_milliseconds(self):
        rows = [{"new": 1, "naive_s": 0.002, "cached_s": 0.001, "ratio": 2.0}]
        with mock.patch.object(cache_cost, "loop_times", return_value=rows):
            found = cache_cost.measure_time_toy()
        self.assertEqual(found["times"], [{"new": 1, "naive_ms": 2.0, "cached_ms": 1.0, "ratio": 2.0}])


class Script(FolderCase):
    def run_once(self, *argv):
        status, out, err = call(cache_cost.main, *argv)
        self.assertEqual((status, err), (0, ""))
        return out

    def test_the_published_shapes(self):
        out = self.run_once()
        for text in ("7.9", "10.5", "58.4", "69.5", "6,950", "119"):
            self.assertIn(text, out)
        found = json.loads(self.run_once("--json"))["cost"]
        self.assertEqual((found["toy_prompt"], found["gpt2_prompt"], len(found["gpt2"])), (5, 20, 7))
        self.assertEqual([round(found[name][-1]["flop_ratio"], 1) for name in ("toy", "gpt2")], [7.5, 42.9])

    def test_another_model(self):
        folder = write_folder(self.folder / "m")
        argv = ("--model", folder, "--prompt-tokens", "5", "--new", "12,1,12")
        self.assertIn("7.9", self.run_once(*argv))
        found = json.loads(self.run_once(*argv, "--json"))["cost"]
        self.assertEqual(found["model_prompt"], 5)
        self.assertEqual([r["new"] for r in found["model"]], [1, 12])
        self.assertEqual(found, finite(measure({"model": (MODEL.config, 5, (1, 12))})))
        of_gpt2 = json.loads(self.run_once("--new", "100", "--json"))["cost"]["model"]
        self.assertAlmostEqual(of_gpt2[0]["ratio"], 6950 / 119, places=5)

    def test_times(self):
        argv = ("--model", "toy", "--prompt-tokens", "5", "--new", "1,12", "--time", "--runs", "1")
        out = self.run_once(*argv, "--plot", self.folder / "c.svg")
        self.assertIn("Medians of 1 runs", out)
        self.assertIn("FLOPs", (self.folder / "c.svg").read_text())
        found = json.loads(self.run_once(*argv, "--json"))["time"]
        self.assertEqual([t["new"] for t in found["times"]], [1, 12])

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        for argv, word in (
            (["--model", folder, "--new", "100"], "n_positions 16"),
            (["--plot", "x.svg"], "--time"),
            (["--time", "--plot", "x.txt"], "x.txt"),
            (["--model", "gpt2"], "gpt2"),
            (["--new", "0"], "--new"),
        ):
            self.assertBad(cache_cost.main, argv, word)


if __name__ == "__main__":
    unittest.main()
