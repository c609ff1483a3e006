"""Each operation beside its bound, on a clock of our own: every moment belongs to an operation, and the bounds are the counts'."""

import unittest
from unittest import mock

import torch

from examples.ch04.component_timing import Stopwatch
from examples.ch04.gpt2_from_scratch import POINTS
from examples.ch11 import roofline as room
from examples.ch11.operations import OPERATIONS, operations, pass_bound
from examples.ch11.roofline import beside_the_bound, draw, draw_ratios, main, measure
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import LLAMA, llama_model, model, write_folder

MODEL, LLAMAS = model(), llama_model()
RATES = {"flop_per_s": 1e6, "bytes_per_s": 2e5}
MOMENTS = {"embedding": 1, "norms": 5, "q, k and v": 6, "scores": 2, "softmax": 2, "values and output": 2}  # of two layers
MOMENTS |= {"residual additions": 4, "feed-forward in": 2, "feed-forward out": 2, "output projection": 1}


def measured(one, *args, **kwargs):
    """`measure` with a machine of RATES, and a clock that ticks a second a reading."""
    state = {"now": 0.0}

    def timer():
        state["now"] += 1
        return state["now"]

    with mock.patch.object(room, "machine_rates", return_value=RATES):
        return measure(one, *args, timer=timer, **kwargs)


class Measure(unittest.TestCase):
    def test_every_point_belongs_to_one_operation(self):
        self.assertEqual(sorted(POINTS), sorted(p for points in OPERATIONS.values() for p in points))
        watch = Stopwatch(torch.device("cpu"), parts=OPERATIONS)
        self.assertEqual(list(watch.seconds), list(OPERATIONS))

    def test_rows(self):
        for one in (MODEL, LLAMAS):
            found = measured(one, [4, 16], [3, 15], runs=1)
            self.assertEqual(
                [(r["kind"], r["tokens"]) for r in found["passes"]],
                [(k, n) for k, ns in (("prefill", (4, 16)), ("decode", (3, 15))) for n in ns],
            )
            for whole in found["passes"]:
                new, past = (whole["tokens"], 0) if whole["kind"] == "prefill" else (1, whole["tokens"])
                counts = operations(one.config, new, past)
                rows = [r for r in found["operations"] if (r["kind"], r["tokens"]) == (whole["kind"], whole["tokens"])]
                self.assertEqual({r["operation"]: r["ms"] / 1e3 for r in rows}, MOMENTS)
                for r, count in zip(rows, counts, strict=True):
                    self.assertEqual((r["mflop"], r["mb"]), (count["flops"] / 1e6, count["bytes"] / 1e6))
                    least = max(count["flops"] / 1e6, count["bytes"] / 2e5)
                    self.assertAlmostEqual(r["bound_ms"], 1e3 * least)
                    self.assertAlmostEqual(r["measured_over_bound"], MOMENTS[r["operation"]] / least)
                    self.assertAlmostEqual(r["gflop_per_s"], count["flops"] / MOMENTS[r["operation"]] / 1e9)
                bound = pass_bound(counts, RATES)
                self.assertAlmostEqual(whole["bound_ms"], 1e3 * bound["seconds"])
                self.assertAlmostEqual(whole["memory_ms"], 1e3 * bound["memory_s"])
                self.assertLessEqual(whole["least_ms"], whole["bound_ms"])
                self.assertEqual((whole["ms"], whole["untraced_ms"]), (27e3, 1e3))
                over = {r["operation"]: r["ms"] - r["bound_ms"] for r in rows}
                self.assertEqual((whole["most_over"], whole["most_over_ms"]), max(over.items(), key=lambda item: item[1]))
            self.assertAlmostEqual(found["ridge"], 5)
            of = [r for r in found["passes"] if r["kind"] == "decode"]
            self.assertAlmostEqual(found["mean_ratio_decode"], sum(r["ms"] for r in of) / sum(r["bound_ms"] for r in of))

    def test_rates_are_the_medians_of_the_run(self):
        """The machine is measured before each length, here twice as slow the second time and not at all the third."""
        seen = [{"flop_per_s": f, "bytes_per_s": b} for f, b in ((3e6, 4e6), (2e6, 1e6), (1e6, 2e6))]
        with mock.patch.object(room, "machine_rates", side_effect=seen):
            found = measure(MODEL, [2, 4], [3], runs=1)
        self.assertEqual((found["gflop_per_s"], found["gb_per_s"], found["ridge"]), (2e-3, 2e-3, 1))

    def test_limits(self):
        rows = [
            {"operation": "a", "flops": 50, "bytes": 2, "intensity": 25},
            {"operation": "b", "flops": 0, "bytes": 30, "intensity": 0},
        ]
        one, two = beside_the_bound(rows, {"a": 10, "b": 6}, {"flop_per_s": 10, "bytes_per_s": 10})
        self.assertEqual((one["limit"], one["bound_ms"], one["measured_over_bound"]), ("arithmetic", 5e3, 2))
        self.assertEqual((two["limit"], two["bound_ms"], two["measured_over_bound"]), ("memory", 3e3, 2))

    def test_the_cache_is_left_as_it_was(self):
        step = room.decode_step(MODEL, 5)
        self.assertTrue(torch.equal(step(None), step(None)))

    def test_default_lengths(self):
        found = measured(MODEL, runs=1)
        self.assertEqual([(r["kind"], r["tokens"]) for r in found["passes"]], [("prefill", 16), ("decode", 15)])
        for lengths, words in ((([17],), "17 tokens are more than"), (([4], [16]), "16 cached positions and a new one")):
            with self.assertRaisesRegex(BadInput, words):
                measured(MODEL, *lengths, runs=1)


class Script(RoomCase):
    def test_json_page_and_figures(self):
        found, folder = measured(MODEL, [4, 16], [3, 15], runs=1), self.tiny()
        with mock.patch.object(room, "measure", return_value=found) as called:
            argv = ("--model", folder, "--prefill", "4,16", "--decode", "3,15", "--runs", "3")
            self.assertMeasured(self.values(main, *argv), roofline=found)
            self.assertEqual(called.call_args.args[1:], ([4, 16], [3, 15], 3))
            self.assertDraws(main, "--model", folder)
            self.assertDraws(main, "--ratios", "--model", folder)
            page = self.page(main, "--model", folder)
        self.assertIn("a ridge of 5.0 FLOPs", page)
        self.assertIn("in prefill and", page.splitlines()[-1])

    def test_a_llama(self):
        folder = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        self.page(main, "--model", folder, "--prefill", "4", "--decode", "3", "--runs", "1")

    def test_points_of_the_figures(self):
        found = measured(MODEL, [4, 16], [3, 15], runs=1)
        with mock.patch.object(room, "write_figure") as write:
            draw(found, None)
            for axes, (kind, ends) in zip(write.call_args.args[0].axes, (("prefill", (4, 16)), ("decode", (3, 15))), strict=True):
                roof, *points = axes.lines
                self.assertEqual(list(roof.get_xdata())[1], found["ridge"])
                wanted = {
                    (r["intensity"], r["gflop_per_s"])
                    for r in found["operations"]
                    if r["kind"] == kind and r["tokens"] in ends and r["mflop"]
                }
                self.assertEqual({(p.get_xdata()[0], p.get_ydata()[0]) for p in points}, wanted)
            draw_ratios(found, None)
            for axes, kind in zip(write.call_args.args[0].axes, ("prefill", "decode"), strict=True):
                drawn = [x for line in axes.lines[:-1] for x in line.get_xdata()]
                self.assertEqual(drawn, [r["measured_over_bound"] for r in found["operations"] if r["kind"] == kind])

    def test_bad_input(self):
        for argv, words in (
            (["--prefill", "17"], ["17 tokens", "n_positions 16"]),
            (["--decode", "16"], ["16 cached positions"]),
            (["--runs", "0"], ["0 is not 1"]),
        ):
            self.assertBad(main, ["--model", self.tiny(), *argv], *words)


if __name__ == "__main__":
    unittest.main()
