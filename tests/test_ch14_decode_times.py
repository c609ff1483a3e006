"""Measured decode steps: what stands beside the times is the trace's own, the caches hold what they should, and both scripts."""

import itertools
import unittest

import torch

from examples.ch10 import decode_rate
from examples.ch11 import machine
from examples.ch14 import decode_times, option_times
from examples.ch14.decode_trace import decode_step
from examples.lab import timing
from examples.lab.script import parse_json
from tests.support import LLAMA, FolderCase, call, llama_model, write_folder

MODEL = llama_model()


def ticks():
    """A timer of which each call is one tick later."""
    return itertools.count().__next__


class Steps(unittest.TestCase):
    def test_a_step_leaves_the_cache_as_it_was(self):
        cache = decode_rate.filled(MODEL, 3, 5)
        step = decode_rate.one_step(MODEL, cache, torch.tensor([[1], [2], [3]]), 5)
        first, second = step(), step()
        self.assertEqual(tuple(first.shape), (3, 1, 11))
        self.assertTrue(torch.equal(first, second))  # the token was taken back in between
        self.assertEqual(cache.length, 6)

    def test_turns(self):
        called = []
        found = timing.in_turns({n: lambda n=n: called.append(n) for n in "ab"}, 3, ticks())
        self.assertEqual(called, list("abababab"))
        self.assertEqual(found, {"a": 1, "b": 1})

    def test_rates(self):
        rates = machine.machine_rates(runs=1, timer=ticks())
        self.assertEqual(rates, {"flop_per_s": 2 * 1024**3, "bytes_per_s": 4 * 32768 * 1024})

    def test_beside_the_trace(self):
        v = decode_times.measure(MODEL, (1, 63), 2, runs=1, timer=ticks())  # all takes one second
        for r in v["steps"]:
            step = decode_step(MODEL.config, r["context"], 2, 4)
            self.assertEqual((r["mflop"], r["mb"], r["batch"]), (step["flops"] / 1e6, step["bytes"] / 1e6, 2))
            said = max(step["flops"] / 2 / 1024**3, step["bytes"] / 4 / 32768 / 1024)
            self.assertEqual((r["measured_ms"], max(r["compute_ms"], r["memory_ms"])), (1e3, 1e3 * said))
            self.assertAlmostEqual(r["measured_over_said"], 1 / said)

    def test_options(self):
        v = option_times.measure(MODEL, context=8, batch=2, runs=2, timer=ticks())
        rows = {r["option"]: r for r in v["options"]}
        self.assertTrue(all(r["ms"] == 1e3 and r["ratio"] == 1 for r in rows.values()))  # every call takes one tick
        self.assertTrue(all(r["ratio_low"] == r["ratio_high"] == 1 for r in rows.values()))
        self.assertEqual(rows["as it is, once more"]["bytes_ratio"], 1)
        self.assertEqual(rows["as it is"]["bytes_ratio"], 1)
        for option in ("MQA", "a window of a quarter", "half the feed-forward width"):
            self.assertLess(rows[option]["bytes_ratio"], 1, option)
        for option in ("MHA", "biases everywhere"):
            self.assertGreater(rows[option]["bytes_ratio"], 1, option)

    def test_the_spread_of_options(self):
        """Steps of 8 s as it is; once more of 8, 4, 8, 16 and 12 s; all others of 16 s. The first, of 99 s, is discarded."""
        again, state = [99, 8, 4, 8, 16, 12], {"calls": 0, "now": 0}

        def timer():
            call, end = divmod(state["calls"], 2)
            round_, kind = divmod(call, 7)
            state["calls"] += 1
            state["now"] += (8 if kind == 0 else again[round_] if kind == 1 else 16) if end else 0
            return state["now"]

        v = option_times.measure(MODEL, context=8, batch=2, runs=5, timer=timer)
        first, second, third = v["options"][:3]
        for row, wanted in ((first, (8e3, 1, 1, 1)), (second, (8e3, 1, 1, 1.5)), (third, (16e3, 2, 2, 2))):
            self.assertEqual(tuple(row[key] for key in ("ms", "ratio", "ratio_low", "ratio_high")), wanted, row)
        page = option_times.report({"option-times": v})
        self.assertIn("- as it is, once more: 1.00 times its time, half of the runs from 1.00 to 1.50;", page)
        self.assertNotIn("- MHA", page)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)
        self.assertEqual(option_times.quartiles([3.0]), [3.0, 3.0, 3.0])

    def test_the_spread_is_of_one_turn(self):
        """A machine that grows slower from turn to turn has no spread of ratios."""
        state = {"calls": 0, "now": 0}

        def timer():
            state["calls"] += 1
            state["now"] += 1 + (state["calls"] - 1) // 14  # seven kinds, two readings each
            return state["now"]

        v = option_times.measure(MODEL, context=8, batch=2, runs=4, timer=timer)
        self.assertEqual({r[key] for r in v["options"] for key in ("ratio", "ratio_low", "ratio_high")}, {1})


class Scripts(FolderCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        self.tiny = write_folder(self.folder / "tiny", MODEL.weights, LLAMA)

    def test_decode_times(self):
        argv = ("--model", self.tiny, "--context", "1,63", "--runs", "1")
        status, text, err = call(decode_times.main, *argv)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("float32, 1 thread", text)
        value = parse_json(call(decode_times.main, *argv, "--json")[1])
        self.assertEqual((value["ran_with"]["threads"], [r["context"] for r in value["decode"]["steps"]]), (1, [1, 63]))
        self.assertTrue(all(x > 0 for r in value["decode"]["steps"] for x in r.values()))

    def test_option_times(self):
        argv = ("--model", self.tiny, "--context", "8", "--batch", "2", "--runs", "1")
        status, text, err = call(option_times.main, *argv)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("furthest apart for", text)
        value = parse_json(call(option_times.main, *argv, "--json")[1])["option-times"]
        self.assertEqual((value["context"], value["sequences"], len(value["options"])), (8, 2, 7))
        self.assertIn("is noise, and says nothing of an option.", text)

    def test_bad_input(self):
        other = write_folder(self.folder / "g")
        bad = write_folder(self.folder / "nan", {n: w * float("nan") for n, w in MODEL.weights.items()}, LLAMA)
        for main in (decode_times.main, option_times.main):
            self.assertBad(main, ["--model", other], "takes a llama", "gpt2")
            self.assertBad(main, ["--model", self.tiny, "--context", "64"], "64 cached positions", "n_positions 64")
            self.assertBad(main, ["--model", self.tiny, "--context", "0"], "0 is not")
            self.assertBad(main, ["--model", self.folder / "none"], "none")
            self.assertBad(main, ["--model", bad, "--context", "4"], "holds NaN")


if __name__ == "__main__":
    unittest.main()
