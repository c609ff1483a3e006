"""What a machine holds and how fast it decodes: against the same sums by other ways, where limits change, GPT-3, and bad input."""

import json
import math
import unittest
from unittest import mock

from examples.ch02.families import formulas
from examples.ch02.model import load_config
from examples.ch10.cache_memory import GPT3, sequences_to_outweigh
from examples.ch10.kv_cache import KVCache
from examples.ch11 import capacity, gpt3_memory
from examples.ch11.accelerators import accelerator, accelerators, cpu_rates
from examples.ch11.capacity import (
    decode_rows,
    first,
    held,
    limits,
    machine,
    measure,
    measure_all,
    rates_of,
    sequences_that_fit,
    step,
)
from examples.ch11.operations import totals
from examples.ch14.configs import config_named
from examples.ch14.decode_trace import decode_step
from examples.lab.script import BadInput
from tests import support
from tests.support import FolderCase, call

LLAMA = load_config("llama-3-8b")


class Sheets(unittest.TestCase):
    def test_each_has_what_a_roofline_needs_and_where_it_comes_from(self):
        for name, sheet in accelerators().items():
            for key in ("flop_per_s", "float32_flop_per_s", "bytes_per_s", "memory_bytes"):
                self.assertGreater(sheet[key], 1e9, (name, key))
            self.assertGreaterEqual(sheet["flop_per_s"], sheet["float32_flop_per_s"], name)
            self.assertTrue(sheet["published"].startswith("https://"), name)
            for key in ("name", "title", "sheet", "derived"):
                self.assertTrue(sheet[key], (name, key))

    def test_dense_numbers_and_not_those_of_sparse_matrices(self):
        """A sheet names the doubled number: 1,979, 624, 733 TFLOP/s."""
        doubled = {"h100": 1979, "h200": 1979, "a100": 624, "l40s": 733}
        for name, tflop in doubled.items():
            self.assertIn(f"{tflop:,}", accelerator(name)["sheet"])
            self.assertAlmostEqual(accelerator(name)["flop_per_s"] / 1e12 / (tflop / 2), 1, delta=0.02)

    def test_a_cpu_is_computed_from_its_parts(self):
        for sheet in accelerators().values():
            if "cpu" in sheet:
                rates = cpu_rates(**sheet["cpu"])
                self.assertAlmostEqual(rates["flop_per_s"] / sheet["float32_flop_per_s"], 1)
                self.assertAlmostEqual(rates["bytes_per_s"] / sheet["bytes_per_s"], 1)
        self.assertEqual(cpu_rates(2, 16, 1e9, 1, 8, 1e9), {"flop_per_s": 32e9, "bytes_per_s": 8e9})

    def test_machine(self):
        self.assertEqual(machine()["flop_per_s"], 989e12)
        self.assertEqual(machine(dtype="float32")["flop_per_s"], 67e12)
        eight = machine("H100", devices=8)
        self.assertEqual((eight["memory_bytes"], eight["bytes_per_s"], eight["accelerator"]), (640e9, 8 * 3.35e12, "H100 SXM"))
        other = machine("h100", memory=96e9)
        self.assertEqual((other["memory_bytes"], other["bytes_per_s"], other["accelerator"]), (96e9, 3.35e12, None))
        self.assertEqual(machine(None, memory=1e9, bandwidth=2.0, peak=10.0)["flop_per_s"], 10.0)
        self.assertEqual(rates_of(machine())["ridge_flop_per_byte"], 989e12 / 3.35e12)


class Memory(unittest.TestCase):
    def check_fit(self, config, context, memory, dtype):
        """As many as fit, and not one more, by the weights and caches themselves."""
        fit = sequences_that_fit(config, context, memory, dtype)
        weight, number = capacity.DTYPES[dtype]
        parameters = formulas(config).parameter_count(config)["total"]
        one = (
            2
            * sum(min(context, config_window or context) for config_window in _windows(config))
            * config.kv_heads
            * config.head_width
        )
        self.assertLessEqual(parameters * weight + fit * one * number, memory)
        self.assertGreater(parameters * weight + (fit + 1) * one * number, memory)

    def test_as_many_as_fit(self):
        for name in ("gpt2", "llama-3-8b", "llama-2-7b", "mistral-7b", "gemma-2b"):
            for dtype in capacity.DTYPES:
                config = load_config(name)
                self.check_fit(config, config.n_positions, 80e9, dtype)
                self.check_fit(config, 512, 80e9, dtype)
        with (
            mock.patch.object(
                capacity, "cache_bytes", lambda config, context, batch, n: 2 * n * context * config.n_layer * config.n_embd
            ),
            self.assertRaises(AssertionError),  # keys and values of all heads of a Llama, say
        ):
            self.check_fit(LLAMA, 2048, 80e9, "bfloat16")

    def test_beside_real_tensors(self):
        """The bytes of a model's tensors and of a cache's, in a memory with room for three sequences and a bit."""
        model = support.model()
        weights = sum(w.nbytes for w in model.weights.values())
        one = KVCache(model, 1, 12).nbytes
        self.assertEqual(held(model.config, 12, "float32"), (weights, one))
        self.assertEqual(sequences_that_fit(model.config, 12, weights + 3.5 * one, "float32"), 3)
        self.assertEqual(sequences_that_fit(model.config, 12, weights + 0.5 * one, "float32"), 0)
        self.assertEqual(sequences_that_fit(model.config, 12, weights - 1, "float32"), -1)

    def test_grouped_queries_hold_four_times_the_sequences_of_the_same_cache(self):
        self.assertEqual(held(load_config("llama-2-7b"), 2048)[1], 4 * held(LLAMA, 2048)[1])


def _windows(config):
    return getattr(config, "windows", ()) or [None] * config.n_layer


class Rate(unittest.TestCase):
    def test_one_sequence_takes_the_time_of_its_bytes(self):
        """At batch 1 every operation waits for memory on an H100, so that the step is all bytes over the bandwidth."""
        moved = totals(decode_rows(LLAMA, 2048, 1))
        found = step(LLAMA, 2048, 1, machine())
        self.assertAlmostEqual(found["step_ms"], 1e3 * moved["least_bytes"] / 3.35e12)
        self.assertEqual((found["limit"], found["each_per_s"]), ("memory", found["tokens_per_s"]))

    def test_more_sequences_never_decode_fewer_tokens_nor_each_faster(self):
        for name in accelerators():
            for dtype in ("float32", "bfloat16", "q4"):
                chip = machine(name, dtype)
                rows = [step(LLAMA, 1024, n, chip, dtype) for n in (1, 2, 3, 8, 50, 300, 1000)]
                all_of, each = [r["tokens_per_s"] for r in rows], [r["each_per_s"] for r in rows]
                self.assertEqual(all_of, sorted(all_of), (name, dtype))
                self.assertEqual(each, sorted(each, reverse=True), (name, dtype))

    def test_no_faster_than_either_rate_allows(self):
        for batch in (1, 100, 2000):
            moved, chip = totals(decode_rows(LLAMA, 300, batch)), machine("a100")
            least = max(moved["flops"] / chip["flop_per_s"], moved["least_bytes"] / chip["bytes_per_s"])
            self.assertGreaterEqual(step(LLAMA, 300, batch, chip)["step_ms"], 1e3 * least * (1 - 1e-12))

    def test_smaller_weights_help_one_sequence_most(self):
        chip = machine()
        one, many = (
            step(LLAMA, 2048, n, chip, "q4")["tokens_per_s"] / step(LLAMA, 2048, n, chip)["tokens_per_s"] for n in (1, 238)
        )
        self.assertTrue(3.3 < one < 3.6, one)
        self.assertTrue(1 < many < 1.3, many)


class Limits(unittest.TestCase):
    def test_first(self):
        for wanted in (1, 2, 7, 100):
            self.assertEqual(first(lambda n, wanted=wanted: n >= wanted, 1, 100), wanted)
        self.assertIsNone(first(lambda n: False, 1, 100))

    def test_matrices_wait_for_arithmetic_from_the_ridge_on(self):
        """2 FLOPs for each weight and sequence: the ridge times the bytes of a weight over 2."""
        for name, dtype in (("h100", "bfloat16"), ("h200", "bfloat16"), ("l40s", "q4"), ("laptop", "int8")):
            chip = machine(name, dtype)
            wanted = rates_of(chip)["ridge_flop_per_byte"] * capacity.DTYPES[dtype][0] / 2
            self.assertIn(limits(LLAMA, 2048, chip, dtype)["weights_arithmetic_from"], (math.floor(wanted), math.ceil(wanted)))
        self.assertEqual(limits(LLAMA, 2048, machine())["weights_arithmetic_from"], 296)

    def test_the_step_changes_where_it_says(self):
        chip = machine()
        for context in (128, 300, 380):
            turn = limits(LLAMA, context, chip)["arithmetic_from"]
            found = [step(LLAMA, context, n, chip)["limit"] for n in (turn - 1, turn)]
            self.assertEqual(found, ["memory", "arithmetic"], context)

    def test_a_long_context_waits_for_memory_at_any_number(self):
        """With many sequences a token earns its FLOPs over its own cache: 2 N and 4 L h dh S over 2 L g dh S numbers of 2 bytes."""
        chip = machine()
        found, S = limits(LLAMA, 2048, chip), 2048
        matrices = formulas(LLAMA).flops_per_token(LLAMA, S)["total"]
        self.assertAlmostEqual(found["most_flop_per_byte"] / (matrices / (2 * 32 * 8 * 128 * S * 2)), 1, delta=0.005)
        self.assertIsNone(found["arithmetic_from"])
        edge = found["arithmetic_up_to"]
        self.assertTrue(380 < edge < 400, edge)
        self.assertIsNotNone(limits(LLAMA, edge, chip)["arithmetic_from"])
        self.assertIsNone(limits(LLAMA, edge + 1, chip)["arithmetic_from"])

    def test_a_laptop_waits_for_arithmetic(self):
        found = limits(LLAMA, 2048, machine("laptop"))
        self.assertEqual(found["arithmetic_up_to"], LLAMA.n_positions)
        self.assertLess(found["arithmetic_from"], 30)


class Measurement(unittest.TestCase):
    def test_defaults(self):
        found = measure_all()
        self.assertEqual((found["sequences"], found["caches_outweigh_from"], found["limit"]), (238, 60, "memory"))
        self.assertEqual([r["batch"] for r in found["batches"] if r["fits"]][-1], 238)
        self.assertTrue(any(not r["fits"] for r in found["batches"]))
        self.assertAlmostEqual(found["gain"], found["most_per_s"] / found["one_per_s"])
        rows = {(r["accelerator"], r["config"], r["dtype"]): r for r in found["models"]}
        self.assertEqual(len(rows), len(found["machines"]) * len(capacity.TABLE))
        same = rows["H100 SXM", "llama-3-8b", "bfloat16"]
        self.assertEqual([same[key] for key in ("sequences", "most_per_s")], [found[key] for key in ("sequences", "most_per_s")])
        empty = rows["H200 SXM", "llama-3-70b", "bfloat16"]
        self.assertEqual((empty["sequences"], empty["most_per_s"], empty["limit"]), (0, None, None))

    def test_the_line_is_that_of_chapter_14(self):
        """Two counts by different ways: FLOPs are the same, bytes but for the copies of the new keys and values."""
        theirs, ours = decode_step(config_named("llama-3-8b"), 2000), capacity.line()
        self.assertEqual(ours["gflop"], theirs["flops"] / 1e9)
        self.assertEqual(ours["weight_gb"], theirs["weight_bytes"] / 1e9)
        new = 32 * 2 * 8 * 128 * 2  # bytes of the new position's keys and values
        self.assertEqual(round(1e9 * ours["gb"]) - theirs["bytes"], 2 * new)
        self.assertEqual((f"{ours['compute_ms']:.3f}", f"{ours['memory_ms']:.2f}"), ("0.016", "4.56"))
        self.assertEqual(f"{1e3 * theirs['bytes'] / 3.35e12:.2f}", "4.56")

    def test_gpt3(self):
        found = gpt3_memory.measure()
        self.assertEqual((found["parameters"], f"{found['weights_gib']:.1f}"), (174_604_259_328, "325.2"))
        self.assertEqual((found["cache_gib_each"], f"{found['cache_percent']:.2f}"), (9.0, "2.77"))
        self.assertEqual((found["sequences_below"], sequences_to_outweigh(GPT3)), (36, 37))
        rows = {r["sequences"]: r for r in found["steps"]}
        self.assertEqual((rows[36]["caches_gib"], rows[37]["caches_gib"]), (324, 333))
        self.assertTrue(324 < found["weights_gib"] < 333)
        self.assertEqual((found["devices_for_weights"], found["sequences_that_fit"]), (5, 30))
        self.assertEqual([rows[n]["fits"] for n in (1, 30, 36)], [True, True, False])


class Scripts(FolderCase):
    def test_a_page_and_a_figure(self):
        status, out, err = call(capacity.main, "--all", "--plot", self.folder / "c.svg")
        self.assertEqual((status, err), (0, ""))
        for text in ("238 sequences fit", "Ryzen 7 7840U", "0.016 ms", "4.56 ms", "61: 2,594"):
            self.assertIn(text, out)
        drawn = (self.folder / "c.svg").read_text()
        for text in ("238 fit", "llama-3-8b, bfloat16, 2,048 positions; H100 SXM", "if caches alone"):
            self.assertIn(text, drawn)

    def test_rates_of_ones_own(self):
        argv = (
            "--config",
            "smollm2-135m",
            "--memory",
            "8",
            "--bandwidth",
            "50",
            "--peak",
            "0.4",
            "--dtype",
            "q4",
            "--context",
            "1024",
        )
        status, out, err = call(capacity.main, *argv, "--json")
        found = json.loads(out)["capacity"]
        self.assertEqual((status, err, found["accelerator"]), (0, "", None))
        self.assertEqual((found["memory_gb"], found["bandwidth_gb_per_s"], found["peak_tflop_per_s"]), (8, 50, 0.4))
        self.assertEqual(found["sequences"], sequences_that_fit(load_config("smollm2-135m"), 1024, 8e9, "q4"))

    def test_one_that_fits(self):
        status, out, err = call(capacity.main, "--memory", "16.4")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("1 sequence fits.", out)
        self.assertIn("The one sequence that fits decodes", out)

    def test_bad_input(self):
        for argv, word in (
            (["--memory", "10"], "16.06 GB in bfloat16, more than the memory of 10 GB"),
            (["--memory", "16.2"], "and a sequence of 2,048 0.2684 GB"),
            (["--context", "9000"], "8,192 positions"),
            (["--context", "1"], "2 to the"),
            (["--accelerator", "b200"], "h100, h200"),
            (["--bandwidth", "0"], "--bandwidth"),
            (["--peak", "nan"], "--peak"),
            (["--dtype", "int3"], "--dtype"),
            (["--config", "mixtral-8x7b", "--memory", "1000"], "experts"),
            (["--config", "nope"], "nope"),
            (["--plot", "x.txt"], "x.txt"),
        ):
            self.assertBad(capacity.main, argv, word)
        self.assertBad(gpt3_memory.main, ["--devices", "4"], "5 or more")

    def test_a_chip_without_rates(self):
        with self.assertRaises(BadInput):
            measure("llama-3-8b", machine(memory=1e9))


if __name__ == "__main__":
    unittest.main()
