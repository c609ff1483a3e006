"""Decode steps of several sequences: ratios on a clock of our own, predictions that follow the counts, products laid out anew."""

import json
import unittest

import torch

from examples.ch02.families import formulas
from examples.ch10.decode_rate import matrices
from examples.ch11 import batches
from examples.ch11.batches import laid_out, measure, predicted, products, products_laid_out
from tests import support
from tests.support import FolderCase, call, llama_model, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads


def setUpModule():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    unittest.addModuleCleanup(torch.set_num_threads, threads)


class Clock:
    """A timer by which the i-th timed call, counted from 0, takes as many seconds as `takes(i)` says."""

    def __init__(self, takes):
        self.takes, self.now, self.reads = takes, 0.0, 0

    def __call__(self):
        self.reads += 1
        if self.reads % 2 == 0:  # the end of a call
            self.now += self.takes(self.reads // 2 - 1)
        return self.now


class Measurement(unittest.TestCase):
    def test_ratios_and_medians(self):
        """Two rates take 1 s each; then, in turn, steps of 1, 2 and 4 sequences that take 4, 4 and 8 s, and products of 3 s."""
        runs, steps = 3, (4.0, 4.0, 8.0)
        names = 9 if laid_out(MODEL, 4) else 6

        def takes(i):
            i -= 2 * (runs + 1)  # both rates
            return 1.0 if i < 0 else 1000.0 if i < names else (*steps, *[3.0] * 6)[i % names]  # and a discarded turn

        found = measure(MODEL, (1, 2, 4), 8, runs, timer=Clock(takes))
        rows = found["batches"]
        self.assertEqual([r["step_ms"] for r in rows], [1e3 * s for s in steps])
        self.assertEqual([r["tokens_per_s"] for r in rows], [0.25, 0.5, 0.5])
        self.assertEqual([r["gain"] for r in rows], [1, 2, 2])
        self.assertEqual([r["share"] for r in rows], [1, 1, 0.5])
        self.assertEqual((found["linear_to"], found["most_gain"]), (2, 2))
        self.assertEqual([r["products_ms"] for r in rows], [3000] * 3)
        self.assertAlmostEqual(found["ridge_flop_per_byte"], found["gflop_per_s"] / found["gb_per_s"])
        self.assertAlmostEqual(found["arithmetic_from"], 2 * found["ridge_flop_per_byte"])  # float32: 2 FLOPs for 4 bytes
        for r in rows:
            self.assertAlmostEqual(r["ratio"], r["step_ms"] / r["bound_ms"])
            self.assertAlmostEqual(r["bound_per_s"] * r["bound_ms"], 1e3 * r["batch"])

    def test_a_prediction_follows_both_rates(self):
        """All memory: bytes over the bandwidth; all arithmetic: FLOPs over the peak; and the matrices change at the ridge."""
        config = support.config(n_embd=64, n_positions=64)
        slow = predicted(config, 32, 4, {"flop_per_s": 1e18, "bytes_per_s": 1e3})
        twice = predicted(config, 32, 4, {"flop_per_s": 1e18, "bytes_per_s": 2e3})
        self.assertAlmostEqual(slow["bound_ms"], 2 * twice["bound_ms"])
        self.assertLess(slow["least_ms"], slow["bound_ms"])
        work = predicted(config, 32, 4, {"flop_per_s": 1e3, "bytes_per_s": 1e18})
        flops = 4 * formulas(config).flops_per_token(config, 33)["total"]
        self.assertAlmostEqual(work["bound_ms"] / flops, 1, places=6)
        ridge = {"flop_per_s": 4e9, "bytes_per_s": 1e9}  # 8 sequences in float32
        found = [predicted(config, 32, n, ridge)["limit"] for n in (4, 8, 9)]
        self.assertEqual(found, ["memory", "memory", "arithmetic"])  # biases are bytes as well

    def test_products_are_of_every_matrix(self):
        for n in (1, 3):
            self.assertEqual([tuple(y.shape) for y in products(MODEL, n)()], [(n, w.shape[0]) for w in matrices(MODEL)])

    def test_laid_out_products_are_the_same(self):
        pairs = laid_out(MODEL, 4)
        if pairs is None:
            self.skipTest("torch has no such kernel here")
        for n in (1, 4):
            torch.manual_seed(0)
            plain = products(MODEL, n)()
            torch.manual_seed(0)
            for one, other in zip(plain, products_laid_out(pairs, n)(), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

    def test_another_family_has_no_products(self):
        found = measure(llama_model(), (1, 2), 8, 1)
        self.assertEqual([(r["products_ms"], r["laid_out_ms"]) for r in found["batches"]], [(None, None)] * 2)


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        argv = ("--model", write_folder(self.folder / "m"), "--context", "8", "--runs", "2", "--batches", "4,1,2")
        status, out, _ = call(batches.main, *argv, "--plot", self.folder / "b.svg")
        self.assertEqual(status, 0)
        self.assertIn("At 4 sequences the tokens per second are", out)
        self.assertIn("measured steps", (self.folder / "b.svg").read_text())
        status, out, _ = call(batches.main, *argv, "--json")
        self.assertEqual([r["batch"] for r in json.loads(out)["batches"]["batches"]], [1, 2, 4])

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        self.assertBad(batches.main, ["--model", folder, "--context", "16"], "n_positions")
        self.assertBad(batches.main, ["--batches", "0"], "--batches")
        self.assertBad(batches.main, ["--plot", self.folder / "none" / "x.svg"], "not a folder")


if __name__ == "__main__":
    unittest.main()
