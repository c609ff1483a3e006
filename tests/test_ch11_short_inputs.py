"""Weights in a cache and in memory: that both do the same arithmetic, and what the verdicts rest on, with times of our own."""

import json
import unittest
from pathlib import Path
from unittest import mock

import torch

from examples.ch02.model import run
from examples.ch03.tokens import random_ids
from examples.ch11 import short_inputs
from examples.ch11.short_inputs import decode_step, measure, products, report, shared_layers, whole_passes
from examples.ch11.weights_in_cache import beyond_cache, layer_bytes, one_layer_everywhere, rotating, stand_in
from tests import support
from tests.support import FolderCase, call, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
SIZES = {"L2": 2**16, "L3": 2**18}  # bytes: small caches, so that few matrices are made
RATES = {"flop_per_s": 1e9, "bytes_per_s": 1e6}


def setUpModule():
    torch.set_num_threads(1)


def taking(**seconds):
    """An `in_turns` in which each call takes so many seconds, by its name; a number is for all lengths, a list for each in turn."""
    times = {name: iter(t) if isinstance(t, list) else None for name, t in seconds.items()}
    return lambda calls, *_: {name: next(times[name]) if times[name] else seconds[name] for name in calls}


class Weights(unittest.TestCase):
    def test_copied_and_shared_layers_compute_the_same(self):
        base = stand_in(MODEL, 64, 3, 1)
        copied, shared = one_layer_everywhere(base, True), one_layer_everywhere(base, False)
        ids = random_ids(base, 8)
        self.assertTrue(torch.equal(run(copied, ids), run(shared, ids)))
        self.assertFalse(torch.equal(run(base, ids), run(shared, ids)))  # whose layers have weights of their own
        places = {
            m: {w.data_ptr() for n, w in of.weights.items() if n.startswith("h.")} for m, of in (("c", copied), ("s", shared))
        }
        self.assertEqual(len(places["c"]), 3 * len(places["s"]))
        self.assertEqual(layer_bytes(base), 4 * (12 * 64 * 64 + 13 * 64))

    def test_different_layers_are_seen(self):
        """A copy with one weight changed gives other logits, and the room says that they are not the same."""

        def faulty(model, copied):
            found = one_layer_everywhere(model, True)
            if copied:
                found.weights["h.1.attn.c_attn.weight"][0, 0] += 1
            return found

        with mock.patch.object(short_inputs, "one_layer_everywhere", faulty):
            self.assertFalse(shared_layers(MODEL, [4], SIZES, 64, 2, 1)["same_logits"])
        self.assertTrue(shared_layers(MODEL, [4], SIZES, 64, 2, 1)["same_logits"])

    def test_a_pool_is_gone_round(self):
        seen = []

        class Vector:
            def __matmul__(self, w):
                seen.append(w)

        rotating(Vector(), "abc", 7)()
        self.assertEqual("".join(seen), "abcabca")

    def test_no_cache_holds_the_pool(self):
        for size in (2**20, 2**25, 2**28, 2**30):
            self.assertGreaterEqual(beyond_cache({"L3": size}), 2 * size)


class Shares(unittest.TestCase):
    def test_products(self):
        """The longest runs at its full rate in the cache: 100 us for 64 tokens. 16 tokens are 25 us of it, in the cache 50, from
        memory 125: of an excess of 100 us 75 are memory's."""
        found = dict(L2=[50, 100], L3=[60, 100], memory=[125, 150], half_L2=[40, 60], half_memory=[75, 90])
        n = 64
        calls = -(-beyond_cache(SIZES) // (4 * n * n))
        times = taking(**{name: [calls * 1e-6 * t for t in us] for name, us in found.items()})
        with (
            mock.patch.object(short_inputs, "in_turns", times),
            mock.patch.object(short_inputs, "native_bfloat16", return_value=True),
        ):
            p = products([16, 64], SIZES)
        first, last = p["rows"]
        self.assertEqual((p["width"], p["matrices"]), (64, calls))
        self.assertAlmostEqual(first["excess_us"], 100)
        self.assertAlmostEqual(first["memory_percent"], 75)
        self.assertAlmostEqual(first["product_percent"], 25)
        self.assertAlmostEqual(first["past_l3_percent"], 65)  # of memory's 75: L3 is 10 us slower than L2
        self.assertAlmostEqual(first["past_l2_percent"], 10)
        self.assertAlmostEqual(first["saved_by_cache_percent"], 60)
        self.assertAlmostEqual(first["saved_by_half_percent"], 40)
        self.assertAlmostEqual(first["saved_by_half_in_cache_percent"], 20)
        self.assertAlmostEqual(first["L2_gflop_per_s"], 2 * 16 * n * n / 50e-6 / 1e9)
        self.assertIsNone(last["memory_percent"])

    def test_without_instructions_for_bfloat16(self):
        with mock.patch.object(short_inputs, "native_bfloat16", return_value=None):
            (row,) = products([2], SIZES, runs=1)["rows"]
        self.assertEqual((row["half_memory_us"], row["saved_by_half_percent"]), (None, None))

    def test_layers(self):
        times = taking(copied=[8.0, 9.0], shared=[4.0, 8.0], bare=[1.0, 1.0])
        with mock.patch.object(short_inputs, "in_turns", times):
            first, last = shared_layers(MODEL, [4, 16], SIZES, 64, 2)["rows"]
        own = 8000 * first["flops"] / last["flops"]  # ms
        self.assertAlmostEqual(first["excess_ms"], 8000 - own)
        self.assertAlmostEqual(first["memory_percent"], 100 * 4000 / (8000 - own))
        self.assertAlmostEqual(first["overhead_percent"], 100 * 1000 / (8000 - own))
        self.assertAlmostEqual(sum(first[f"{name}_percent"] for name in ("memory", "overhead", "rest")), 100)
        self.assertIsNone(last["rest_percent"])

    def test_passes_beside_their_bound(self):
        with mock.patch.object(short_inputs, "in_turns", taking(**{"pass": [0.05, 0.10]})):
            first, last = whole_passes(MODEL, [1, 16], RATES)
        self.assertEqual(first["limit"], "memory")
        self.assertAlmostEqual(first["over_bound"], first["ms"] / first["bound_ms"])
        self.assertAlmostEqual(first["excess_ms"], 50 - 100 * first["flops"] / last["flops"])
        self.assertAlmostEqual(first["at_most_memory_percent"], 100 * first["weights_ms"] / first["excess_ms"])
        self.assertIsNone(last["at_most_memory_percent"])

    def test_decode(self):
        with mock.patch.object(short_inputs, "in_turns", taking(step=0.010, floor=0.006, bare=0.001)):
            d = decode_step(MODEL, RATES)
        self.assertAlmostEqual(d["floor_percent"], 60)
        self.assertAlmostEqual(d["over_floor_ms"], 4)
        self.assertAlmostEqual(d["overhead_percent"], 25)

    def test_a_clock_of_our_own(self):
        now = [0]

        def timer():
            now[0] += 1
            return now[0]

        d = decode_step(MODEL, RATES, runs=1, timer=timer)
        self.assertEqual([d[f"{name}_ms"] for name in ("step", "floor", "bare")], [1000] * 3)
        self.assertIsNone(d["overhead_percent"])  # nothing is above the floor

    def verdicts(self, L2, memory, step):
        """{hypothesis: verdict} where a product of 1 and of 16 tokens takes so long in the cache and from memory."""
        times = taking(**{"L2": [L2, L2, 16.0], "L3": L2, "memory": [memory, memory, 16.0], "half_L2": 1.0, "half_memory": 1.0})
        rest = taking(copied=1.0, shared=1.0, bare=0.2, floor=1.0, step=step, **{"pass": 1.0})

        def in_turns(calls, *_):
            return (times if "L2" in calls else rest)(calls)

        with (
            mock.patch.object(short_inputs, "in_turns", in_turns),
            mock.patch.object(short_inputs, "machine_rates", return_value=RATES),
            mock.patch.object(short_inputs, "caches", return_value=SIZES),
        ):
            found = measure(support.model(n_positions=64), [1, 16, 64], width=64, layers=1)
        self.assertIn("short", report({"short-inputs": found}))
        return {x["hypothesis"]: x["verdict"] for x in found["verdicts"]}

    def test_verdicts(self):
        self.assertEqual(
            self.verdicts(4.5, 8.0, 1.3), {"short_inputs": "supported", "weights_bound": "supported", "overhead": "supported"}
        )
        # as slow in the cache: neither waits for memory, whatever share of the step its matrices are
        self.assertEqual(
            self.verdicts(8.0, 8.2, 3.0), {"short_inputs": "refuted", "weights_bound": "refuted", "overhead": "refuted"}
        )
        self.assertEqual(self.verdicts(7.0, 9.0, 2.5)["weights_bound"], "supported in part")


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        folder, plot = write_folder(self.folder / "m"), self.folder / "b.svg"
        few = ["--model", folder, "--runs", "1", "--width", "64", "--layers", "2", "--tokens", "1,8,16"]
        with (
            mock.patch.object(short_inputs, "caches", return_value=SIZES),
            mock.patch.object(short_inputs, "machine_rates", return_value=RATES),
        ):
            status, out, _ = call(short_inputs.main, *few, "--plot", plot)
            self.assertEqual(status, 0)
            self.assertIn("the logits are the same", out)
            self.assertIn("in memory", Path(plot).read_text())
            status, out, _ = call(short_inputs.main, *few, "--json")
        found = json.loads(out)["short-inputs"]
        self.assertEqual([r["tokens"] for r in found["passes"]], [1, 8, 16])
        self.assertEqual(found["caches_kib"], {"L1": None, "L2": 64, "L3": 256})

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        self.assertBad(short_inputs.main, ["--model", folder, "--tokens", "17"], "n_positions")
        self.assertBad(short_inputs.main, ["--layers", "0"], "--layers")
        self.assertBad(short_inputs.main, ["--model", "random:tiny-llama"], "gpt2")


if __name__ == "__main__":
    unittest.main()
