"""Chapter 4's timing: every moment of a pass belongs to one component, the first pass is discarded, and shares add up."""

import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from examples.ch02.families import formulas
from examples.ch02.model import Model, load_config, run
from examples.ch03.tokens import random_ids
from examples.ch04 import component_timing as room
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.component_timing import (
    COMPONENTS,
    component_times,
    denormals,
    draw,
    main,
    measure,
    small_flops,
    timing_lengths,
)
from examples.ch14 import llama_from_scratch as llama
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import LLAMA, config, llama_config, llama_model, model, weights, write_folder

MODEL, LLAMAS = model(), llama_model()
POINTS = 3 + 2 * len(gpt2.LAYER_POINTS)  # that a pass of two layers shows
MOMENTS = {"embedding": 1, "norms": 5, "attention": 2 * 6, "feed_forward": 2 * 2, "residual_additions": 2 * 2}
MOMENTS |= {"output_projection": 1}


class Measure(unittest.TestCase):
    def test_every_moment_belongs_to_a_component(self):
        """A clock that ticks one second a reading, a thousand each in the first pass."""
        self.assertEqual(sum(MOMENTS.values()), POINTS)
        for one in (MODEL, LLAMAS):
            state = {"readings": 0, "now": 0.0}

            def timer(state=state):
                state["readings"] += 1
                state["now"] += 1000 if state["readings"] <= POINTS + 3 else 1
                return state["now"]

            found = component_times(one, 8, runs=1, timer=timer)  # a median of three would hide a first pass that counts
            self.assertEqual({c["component"]: c["ms"] / 1e3 for c in found["components"]}, MOMENTS)
            self.assertEqual((found["sum_ms"], found["untraced_ms"], found["unexplained_ms"]), (27e3, 1e3, -26e3))
            self.assertAlmostEqual(sum(c["time_share"] for c in found["components"]), 1)
            flops = formulas(one.config).flops_per_pass(one.config, 8)
            parts = {
                "attention": flops["attention_projections"] + flops["attention_scores_and_values"],
                **{name: flops[name] for name in ("feed_forward", "output_projection")},
            }
            for c in found["components"]:
                name = c["component"]
                self.assertAlmostEqual(c["time_share"], MOMENTS[name] / POINTS)
                self.assertAlmostEqual(c["flop_share"], parts.get(name, 0) / flops["total"])
                if name in parts:
                    self.assertAlmostEqual(c["gflop_per_s"], parts[name] / MOMENTS[name] / 1e9)
                else:
                    self.assertIsNone(c["gflop_per_s"])
            small = sum(small_flops(one.config, 8).values())
            self.assertAlmostEqual(found["small_time_percent"], 100 * 9 / POINTS)
            self.assertAlmostEqual(found["small_flop_percent"], 100 * small / (flops["total"] + small))
            self.assertAlmostEqual(found["gflop"], flops["total"] / 1e9)
            self.assertAlmostEqual(found["gflop_per_s"], flops["total"] / 1e9)

    def test_the_median_of_the_runs(self):
        """Passes of 5, 1, 9 and 2 seconds a moment, of which the first is discarded: the median is 2."""
        speeds, state = (5, 1, 9, 2), {"readings": 0, "now": 0.0}

        def timer():
            state["now"] += speeds[state["readings"] // (POINTS + 3)]
            state["readings"] += 1
            return state["now"]

        found = component_times(MODEL, 8, runs=3, timer=timer)
        self.assertEqual((found["runs"], found["sum_ms"], found["untraced_ms"]), (3, 2e3 * POINTS, 2e3))

    def test_angles_count_to_the_embedding(self):
        """A clock that ticks one second a reading, and a hundred where a Llama's angles are made."""
        now, right = [0.0], llama.rotation

        def timer():
            now[0] += 1
            return now[0]

        def slow(*args):
            now[0] += 100
            return right(*args)

        with mock.patch.object(llama, "rotation", slow):
            found = component_times(LLAMAS, 8, runs=1, timer=timer)
        self.assertEqual([c["ms"] / 1e3 for c in found["components"]], [101, 5, 12, 4, 4, 1])

    def test_flops_of_norms_and_additions_are_what_the_programs_do(self):
        """Elementwise additions and multiplications within the norms, and those of the blocks, counted as the programs run."""
        for one in (MODEL, LLAMAS):
            counted, ids = {"norms": 0, "residual_additions": 0}, random_ids(one, 6)
            program, norm = (gpt2, "layer_norm") if one is MODEL else (llama, "rms_norm")
            right, block = getattr(program, norm), program.block
            within = []

            class Count(TorchFunctionMode):
                def __torch_function__(self, function, types, args=(), kwargs=None, counted=counted, within=within):
                    result = function(*args, **kwargs or {})
                    name = function.__name__.strip("_")
                    tensors = [x for x in args if isinstance(x, torch.Tensor)]
                    if within[-1:] == ["norm"] and name in ("mean", "sub", "mul", "add", "rsub") and tensors[0].shape[-1] > 1:
                        counted["norms"] += tensors[0].numel() if name == "mean" else result.numel()
                    if within[-1:] == ["block"] and name == "add":
                        counted["residual_additions"] += result.numel()
                    return result

            def inside(where, function, within=within):
                def call(*args, **kwargs):
                    within.append(where)
                    try:
                        return function(*args, **kwargs)
                    finally:
                        within.pop()

                return call

            planted = {norm: inside("norm", right), "block": inside("block", block)}
            planted |= {name: inside(name, getattr(program, name)) for name in ("attention", "mlp")}
            with mock.patch.multiple(program, **planted), Count():
                run(one, ids)
            self.assertEqual(counted, small_flops(one.config, 6))

    def test_flops_of_other_places_for_norms(self):
        gemma = replace(LLAMAS.config, norm_place="both", embedding_norm=True)
        self.assertEqual(small_flops(gemma)["norms"], (4 * 2 + 2) * 4 * gemma.n_embd)
        self.assertEqual(small_flops(load_config("gpt2")), {"norms": 25 * 7 * 768, "residual_additions": 24 * 768})

    def test_rows_and_what_compares_them(self):
        one = model(n_positions=128)
        found = measure(one, [16, 128], runs=2)
        self.assertEqual([r["tokens"] for r in found["lengths"]], [16, 128])
        self.assertEqual(found["runs"], 2)
        for r in found["lengths"]:
            components = [c for c in found["components"] if c["tokens"] == r["tokens"]]
            self.assertEqual([c["component"].replace(" ", "_") for c in components], list(COMPONENTS))
            self.assertAlmostEqual(sum(c["time_percent"] for c in components), 100)
            self.assertAlmostEqual(sum(c["flop_percent"] for c in components), 100)
            self.assertAlmostEqual(sum(c["ms"] for c in components), r["sum_ms"])
            self.assertAlmostEqual(r["unexplained_ms"], r["untraced_ms"] - r["sum_ms"])
            self.assertAlmostEqual(r["unexplained_percent"], 100 * r["unexplained_ms"] / r["untraced_ms"])
            total = formulas(one.config).flops_per_pass(one.config, r["tokens"])["total"]
            self.assertAlmostEqual(r["gflop_per_s"], total / r["untraced_ms"] / 1e6)
            for c in components:
                name = c["component"].replace(" ", "_")
                pair = (r[f"{name}_time_percent"], r[f"{name}_flop_percent"])
                self.assertEqual(pair, (c["time_percent"], c["flop_percent"]))
        short, long = found["lengths"]
        norms = sorted((short["norms_time_percent"], long["norms_time_percent"]))
        self.assertEqual([found["norms_time_percent_min"], found["norms_time_percent_max"]], norms)
        for key in ("small_time_percent", "small_flop_percent"):
            both = sorted((short[key], long[key]))
            self.assertEqual([found[f"{key}_min"], found[f"{key}_max"]], both)
        for r in (short, long):
            parts = r["norms_time_percent"] + r["residual_additions_time_percent"]
            self.assertAlmostEqual(r["small_time_percent"], parts)
        self.assertEqual(found["throughput_ratio_128_to_16"], long["gflop_per_s"] / short["gflop_per_s"])
        ratio = long["attention_time_percent"] / long["attention_flop_percent"]
        self.assertEqual(found["attention_time_over_flops_at_longest"], ratio)
        self.assertIsNone(measure(one, [16], runs=1)["throughput_ratio_128_to_16"])

    def test_denormals(self):
        """Numbers too small for their dtype's exponent, on which arithmetic is slow; 1.2e-38 is the smallest that is none."""
        bias = torch.tensor([0, 1e-39, -1e-44, 1.2e-38, 1.0, -1, 2, 3])
        self.assertEqual(denormals(Model(config(), weights() | {"ln_f.bias": bias})), 2)
        self.assertEqual(denormals(MODEL), 0)

    def test_lengths(self):
        self.assertEqual(timing_lengths(load_config("gpt2")), [16, 128, 512, 1024])
        self.assertEqual(timing_lengths(llama_config(max_position_embeddings=8192)), [16, 128, 512, 1024])
        self.assertEqual(timing_lengths(config(n_positions=200)), [16, 128, 200])
        self.assertEqual(timing_lengths(config(n_positions=3)), [3])
        self.assertEqual(timing_lengths(config(), [3, 16]), [3, 16])
        with self.assertRaisesRegex(BadInput, "17 tokens are more than n_positions 16"):
            timing_lengths(config(), [3, 17])


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        times = measure(MODEL, [4, 16], 1)
        with mock.patch.object(room, "measure", return_value=times) as measured:
            value = self.values(main, "--model", self.tiny(), "--tokens", "4,16", "--runs", 3, "--seed", 5)
        self.assertMeasured(value, time=times)
        self.assertEqual(measured.call_args.args[1:4], ([4, 16], 3, 5))

    def test_pages(self):
        page = self.page(main, "--model", self.tiny(), "--tokens", "4,8", "--runs", 2)
        self.assertIn("1 thread,", page)
        self.assertIn("At 8 tokens attention's share of time", page)
        end = r"Norms and residual additions are [\d.]+% of the FLOPs at most, and [\d.]+% to [\d.]+% of the time\."
        self.assertRegex(page, end)
        llama_folder = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        self.page(main, "--model", llama_folder, "--tokens", "4", "--runs", 1, "--dtype", "bfloat16")

    def test_figures(self):
        folder, found = self.tiny(), measure(MODEL, [4, 16], 1)
        with mock.patch.object(room, "measure", return_value=found):
            self.assertDraws(main, "--model", folder)
        with mock.patch.object(room, "write_figure") as write:
            draw(found, None)
            for bars, name in zip(write.call_args.args[0].axes[0].containers, COMPONENTS, strict=True):
                cells = [c for c in found["components"] if c["component"] == name.replace("_", " ")]
                heights = [x for c in cells for x in (c["time_percent"], c["flop_percent"])]
                self.assertEqual(len(heights), 4)
                for bar, height in zip(bars, heights, strict=True):
                    self.assertAlmostEqual(bar.get_height(), height)

    def test_bad_input(self):
        for argv, words in (
            (["--tokens", "17"], ["17 tokens", "n_positions 16"]),
            (["--tokens", "0"], ["0 is not 1 or more"]),
            (["--tokens", "a"], ["'a' is not a whole number"]),
            (["--runs", "0"], ["0 is not 1"]),
        ):
            self.assertBad(main, ["--model", self.tiny(), *argv], *words)


if __name__ == "__main__":
    unittest.main()
