"""Chapter 14's exercises beside the laboratory: their solutions compute what its scripts compute, and the ranges of the numbers
handed in hold what these print. That the checks see mistakes is tested with all exercises, in test_exercises."""

import contextlib
import io
import json
import re
import sys
import types
import unittest
from unittest import mock

import torch

from examples.ch02.model import load
from examples.ch10.kv_cache import cache_bytes
from examples.ch14 import llama_from_scratch
from examples.ch14.configs import config_named, published, shapes
from examples.ch14.costs import flops_per_token, kv_bytes_per_token, parameter_count
from examples.ch14.decode_trace import decode_step
from examples.ch14.window_reach import reach
from scripts.answers.ch14 import ex1_llama, ex2_archaeology, ex3_trace, ex4_window, ex5_ablate
from scripts.grading.answers import key
from scripts.grading.exercises import exercise
from scripts.grading.verdict import judge_numbers
from scripts.markers import manuscripts
from tests.support import ROOT, installed, slow

FAMILIES = ("llama", "mistral", "mixtral", "qwen2", "qwen3")
BLOCK = re.compile(r"^## Exercises$.*?^```python\n(.*?)^```$", re.M | re.S)


def verdicts(id, numbers):
    """{key: whether it passed} of numbers handed in."""
    return {v.check: v.passed for v in judge_numbers(key(exercise(id), 0), json.dumps(numbers))}


class Solutions(unittest.TestCase):
    def test_the_pass_is_the_chapters(self):
        model, config = load("random:tiny-llama"), shapes()["tiny-llama"]
        ids = torch.randint(model.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(0))
        for causal in (True, False):
            ours = llama_from_scratch.forward(ids, model.weights, model.config, causal)  # [B, T, V]
            self.assertLess((ex5_ablate.forward(ids, model.weights, config, causal) - ours).abs().max(), 1e-5)
            self.assertEqual((ex1_llama.forward(ids, model.weights, config) - ours).abs().max() < 1e-5, causal)

    def test_counts_are_the_chapters(self):
        found = {name: m["config"] for name, m in published().items() if m["config"]["model_type"] in FAMILIES}
        self.assertGreaterEqual(len(found), 10)
        for name, fields in found.items():
            with self.subTest(name):
                config = config_named(name)
                for active in (False, True):
                    counted = ex2_archaeology.parameter_count(fields, active)["total"]
                    self.assertEqual(counted, parameter_count(config, active)["total"])
                self.assertEqual(ex2_archaeology.flops_per_token(fields, 2000), flops_per_token(config, 2000)["total"])
                self.assertEqual(ex2_archaeology.kv_bytes_per_token(fields, 4), kv_bytes_per_token(config, 4))
                held = 2 * parameter_count(config)["total"] + cache_bytes(config, 5000, 3, 2)
                self.assertAlmostEqual(ex2_archaeology.memory_gib(fields, 5000, 3), held / 2**30, places=9)

    def test_the_step_is_the_chapters(self):
        for name in ("smollm2-135m", "llama-3-8b", "llama-3.2-1b"):
            for context, batch, size in ((2000, 1, 4), (16, 8, 2)):
                step = decode_step(config_named(name), context, batch, size)
                sums = ex3_trace.step(published()[name]["config"], context, batch, size)
                self.assertEqual(sums, [step[k] for k in ("flops", "weight_bytes", "cache_bytes", "written_bytes")])

    def test_windows_reach_as_far_as_they_are_seen_to(self):
        for window, layers in ((1, 2), (3, 2), (4, 3)):
            farthest = reach(window, layers)["farthest"]
            self.assertEqual(ex4_window.first_reached([window] * layers, farthest), 0)
            self.assertEqual(ex4_window.first_reached([window] * layers, farthest + 1), 1)


class Numbers(unittest.TestCase):
    def assertHeld(self, id, numbers):
        """Each number passes, and fails where it is half as much again, but for those of the reader's own machine or page."""
        self.assertEqual(set(verdicts(id, numbers).values()), {True}, verdicts(id, numbers))
        self.assertEqual(set(verdicts(id, {k: 1.5 * v for k, v in numbers.items()}).values()), {False})

    def test_archaeology(self):
        load = config_named("qwen3-4b")
        numbers = {
            "qwen2_7b_parameters": parameter_count(config_named("qwen2-7b"))["total"],
            "mixtral_8x7b_gflop": flops_per_token(config_named("mixtral-8x7b"), 8192)["total"] / 1e9,
            "qwen3_4b_memory_gib": (2 * parameter_count(load)["total"] + cache_bytes(load, 8192, 32, 2)) / 2**30,
        }
        self.assertHeld("ch14.2", numbers)

    def test_trace(self):
        step = decode_step(config_named("smollm2"), 2000, 1, 4)
        numbers = {"mflop": step["flops"] / 1e6, "weight_mb": step["weight_bytes"] / 1e6, "cache_mb": step["cache_bytes"] / 1e6}
        self.assertHeld("ch14.3", {**numbers, "measured_over_predicted": 9.0})
        printed = {k: float(f"{v:.1f}") for k, v in numbers.items()}  # as the script has them
        self.assertEqual(set(verdicts("ch14.3", {**printed, "measured_over_predicted": 1.4}).values()), {True})

    def test_window(self):
        weights = 2 * parameter_count(config_named("mistral-7b"))["total"]
        windows = {"every_layer_mib": [4096] * 32, "every_other_mib": [4096, None] * 16, "no_layer_mib": [None] * 32}
        windows["three_of_four_mib"] = [4096, 4096, 4096, None] * 8
        sizes = {name: ex4_window.cache_bytes(of, 32_768, 8, 128, 2) for name, of in windows.items()}
        self.assertEqual(sizes["every_layer_mib"], cache_bytes(config_named("mistral-7b"), 32_768, 1, 2))
        fit = {"requests_windowed": (40 * 2**30 - weights) // sizes["every_layer_mib"]}
        fit["requests_full"] = (40 * 2**30 - weights) // sizes["no_layer_mib"]
        self.assertHeld("ch14.4", {name: size // 2**20 for name, size in sizes.items()} | fit)

    def test_ablation(self):
        for losses in ((3.082, 4.754, 5.081, 15.79), (3.481, 4.585, 4.292, 8.233)):  # of SmolLM2 and of the embedded model
            names = ("loss_as_it_is", "loss_no_mask", "loss_no_positions", "loss_no_residual")
            self.assertEqual(set(verdicts("ch14.5", dict(zip(names, losses, strict=True))).values()), {True})


class Page(unittest.TestCase):
    """The program under "Exercises" with the solution in the reader's place."""

    def compared(self, text, forward=ex1_llama.forward):
        """(largest difference, that at the last position) as the program prints them, with 60 ids."""
        mine = types.ModuleType("my.ch14.ex1_llama")
        mine.forward = forward
        places = {"my": types.ModuleType("my"), "my.ch14": types.ModuleType("my.ch14"), "my.ch14.ex1_llama": mine}
        sys.modules.update(places)  # no patch.dict, which would take out what the program imports besides
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in places])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(text.replace("(1, 2048)", "(1, 60)"), "page", "exec"), {})
        return [float(x) for x in re.findall(r"tensor\((.+?)\)", printed.getvalue())]

    def setUp(self):
        self.text = BLOCK.search(manuscripts(ROOT)["ch14"].read_text(encoding="utf-8"))[1]

    def test_it_finds_agreement_and_a_fault(self):
        every, last = self.compared(self.text)
        self.assertTrue(verdicts("ch14.1", {"largest_difference": every})["largest_difference"])
        self.assertLessEqual(last, every)
        with mock.patch.object(ex1_llama, "rotate", ex1_llama.rotate_interleaved):
            self.assertGreater(self.compared(self.text)[1], 1e-3)

    @slow
    @unittest.skipUnless(installed(), "SmolLM2 is not installed")
    def test_on_smollm2_it_is_within_a_thousandth(self):
        text = self.text.replace("random:tiny-llama", "smollm2").replace('shapes()["tiny-llama"]', 'shapes()["smollm2-135m"]')
        every, _ = self.compared(text)
        self.assertTrue(verdicts("ch14.1", {"largest_difference": every})["largest_difference"])
        with mock.patch.object(ex1_llama, "rotate", ex1_llama.rotate_interleaved):
            self.assertGreater(self.compared(text)[0], 3)


if __name__ == "__main__":
    unittest.main()
