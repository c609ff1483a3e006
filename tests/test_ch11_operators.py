"""Operators of a pass: counted in two ways and by hand, what one costs on a clock of our own, and the parts of a step."""

import unittest
from unittest import mock

import torch

from examples.ch02.model import random_model
from examples.ch10.kv_cache import Cached
from examples.ch11 import operators, overhead
from examples.ch11.operations import operations, totals
from examples.ch11.operators import fitted, step_parts, width_of
from examples.ch11.overhead import FAMILIES, cached_steps, count, fields, operator_seconds, pass_operators, products, profiled
from examples.ch14.decode_trace import measure as trace
from tests import support
from tests.rooms import RoomCase

GPT2_LAYER = {  # by hand, from chapter 4's program with a cache
    **{"layer norms": 2 * 9, "products with a bias": 4 * 2, "scale, scores, softmax, values": 4, "gelu_new": 9},
    **{"residual additions": 2, "key and value into the cache": 2},
}
OF_SEVERAL = {"mask": 2, "heads side by side": 1}  # what a pass over several positions has beside it


def setUpModule():
    torch.set_num_threads(1)


def tiny(family, layers=2):
    return random_model(fields(family, 16, layers))


class Counts(unittest.TestCase):
    def test_both_counts_are_the_same(self):
        for model in (tiny("gpt2"), tiny("llama"), support.model(), support.llama_model()):
            for name, call in cached_steps(model, 3).items():
                self.assertEqual(count(call)[0].total(), profiled(call).total(), (model.config.model_type, name))

    def test_a_view_counted_as_work_is_seen(self):
        call = cached_steps(tiny("gpt2"))["decode"]
        with mock.patch.object(overhead, "VIEWS", overhead.VIEWS - {"aten::_unsafe_view"}):
            self.assertGreater(profiled(call).total(), count(call)[0].total())

    def test_a_gpt2_s_layer_by_hand(self):
        one, two = (pass_operators(tiny("gpt2", layers)) for layers in (1, 2))
        self.assertEqual(two["decode"] - one["decode"], sum(GPT2_LAYER.values()))
        self.assertEqual(two["prefill"] - one["prefill"], sum({**GPT2_LAYER, **OF_SEVERAL}.values()))

    def test_what_is_an_operator_and_what_a_view(self):
        x, w = torch.ones(2, 3, 4), torch.ones(4, 5)
        cases = {
            lambda: x + 1: (1, 0),
            lambda: x.view(6, 4): (0, 1),
            lambda: x[0]: (0, 1),
            lambda: x.clone().mul_(2): (2, 0),  # what is done in place lies in its operand's memory, and is work
            lambda: torch.softmax(x, dim=-1): (1, 0),
            lambda: (x @ w).sum(): (2, 2),  # [6, 4] @ [4, 5] between two views
        }
        for call, wanted in cases.items():
            found = count(call)
            self.assertEqual(tuple(c.total() for c in found), wanted, found)
            self.assertEqual(profiled(call).total(), wanted[0])

    def test_how_many_positions_there_are_makes_no_difference(self):
        for family in FAMILIES:
            model = tiny(family)
            self.assertEqual(pass_operators(model, 2), pass_operators(model, 20))

    def test_the_decode_step_is_one_position(self):
        seen = []
        with mock.patch.object(overhead, "Cached", side_effect=lambda *a, **k: seen.append(Cached(*a, **k)) or seen[-1]):
            steps = cached_steps(tiny("llama"), 5)
        for call, computed in ((steps["decode"], 1), (steps["decode"], 1), (steps["prefill"], 5), (steps["decode"], 1)):
            before = seen[0].computed
            call()
            self.assertEqual(seen[0].computed - before, computed)

    def test_products_are_those_of_a_decode_step(self):
        """Their FLOPs are all of a step's but for attention's own."""
        for model in (support.model(), support.model(tie_word_embeddings=False), support.llama_model()):
            rows = operations(model.config, 1, 0)
            c, flops = model.config, sum(2 * w.numel() for _, w in products(model))
            attention = 4 * c.n_layer * c.n_head * c.head_width  # one position seen
            self.assertEqual(flops, totals(rows)["flops"] - attention)


class Costs(unittest.TestCase):
    def test_an_operator_is_a_share_of_a_narrow_step(self):
        with mock.patch.object(
            overhead, "in_turns", lambda steps, *_: {name: 0.054 if name == "gpt2" else 0.0536 for name in steps}
        ):
            found = operator_seconds()
        self.assertAlmostEqual(found["gpt2"], 0.054 / pass_operators(random_model(fields("gpt2", 16)))["decode"])
        self.assertAlmostEqual(found["llama"], 0.0536 / pass_operators(random_model(fields("llama", 16)))["decode"])

    def test_the_fit(self):
        found = fitted([(mb, 2 + 0.05 * mb) for mb in (0, 1, 10, 100, 600)])
        self.assertAlmostEqual(found["constant_ms"], 2)
        self.assertAlmostEqual(found["ms_per_mb"], 0.05)

    def test_the_width_that_moves_so_much(self):
        for family in FAMILIES:
            mb = totals(operations(random_model(fields(family, 64)).config, 1, operators.CACHED))["bytes"] / 1e6
            self.assertEqual((width_of(family, mb), width_of(family, mb * 1.001)), (64, 72))
            self.assertIsNone(width_of(family, 1e9))

    def test_by_width_on_a_clock_of_our_own(self):
        """Steps that take 2 ms, and 1 ms for each 10^7 bytes: bytes take as long where 20 MB move, nine times that at nine."""

        def clock(steps, *_):
            moved = {w: totals(operations(random_model(fields("gpt2", w)).config, 1, operators.CACHED))["bytes"] for w in steps}
            return {w: 2e-3 + 1e-10 * b for w, b in moved.items()}

        with mock.patch.object(operators, "in_turns", clock):
            found = operators.by_width("gpt2", (8, 64, 256), {"flop_per_s": 1e18, "bytes_per_s": 1e10})
        fit = found["fit"]
        self.assertAlmostEqual(fit["constant_ms"], 2)
        self.assertAlmostEqual(fit["gb_per_s"], 10)
        self.assertAlmostEqual(fit["worst_percent"], 0)
        self.assertEqual(fit["equal_width"], width_of("gpt2", 20))
        self.assertEqual(fit["hidden_width"], width_of("gpt2", 180))
        self.assertAlmostEqual(found["rows"][2]["bound_ms"], found["rows"][2]["mb"] / 10)

    def test_the_parts_of_a_step(self):
        model = support.llama_model()
        number = count(cached_steps(model)["decode"])[0].total()
        few = pass_operators(random_model(fields("llama", 16)))["decode"]
        seconds = {"large": 2**27 / 1e10, "same": 2**27 / 5e9, "step": 1.0, "narrow": few * 1e-3, "alone": 0.25}
        with (
            mock.patch.object(operators, "large_matrix", lambda n: torch.ones(2**15 // n, n).expand(1, -1, -1)[0]),
            mock.patch.object(operators, "in_turns", lambda steps, *_: {name: seconds[name] for name in steps}),
        ):
            found = step_parts(model, 1e18)
        moved = totals(operations(model.config, 1, operators.CACHED))["bytes"]
        rate = 4 * 2**15 / seconds["large"]
        self.assertEqual(found["operators"], number)
        self.assertAlmostEqual(found["operator_us"], 1e3)
        self.assertAlmostEqual(found["bound_ms"], 1e3 * moved / rate)
        self.assertAlmostEqual(found["operators_ms"], number)
        matrices = 4 * sum(w.numel() for _, w in products(model))
        self.assertAlmostEqual(found["slower_matrices_ms"], 250 - 1e3 * matrices / rate)
        whole = sum(found[key] for key in ("bound_ms", "slower_matrices_ms", "operators_ms", "rest_ms"))
        self.assertAlmostEqual(whole, found["ms"])

    def test_what_was_published(self):
        """80 layers of ten kernels at 5 us are 4 ms; chapter 14's trace of a Llama has 15 a layer, which would be 6."""
        p = operators.PUBLISHED
        self.assertAlmostEqual(p["layers"] * p["kernels_a_layer"] * p["us"] / 1e3, 4)
        traced = trace()
        self.assertEqual((traced["kernels_80_layers"], traced["launch_ms_at_5_us"]), (1200, 6))


class Script(RoomCase):
    def test_answer(self):
        arguments = ("--model", "embedded", "--width", "8,16", "--runs", "1")
        rates = mock.patch.object(operators, "row_rates", lambda lengths, **_: dict.fromkeys(lengths, 1e9))
        large = mock.patch.object(operators, "large_matrix", lambda n: torch.ones(8, n))
        with rates, large:
            page = self.page(operators.main, *arguments)
            found = self.values(operators.main, *arguments)["operators"]
        self.assertIn("operators' own cost", page)
        self.assertTrue(found["same_count"])
        self.assertEqual([r["operators_a_layer"] for r in found["counts"]], [46, 43, 46, 42])
        self.assertEqual(found["published"]["ms"], 4)
        self.assertEqual(found["ours_80_layers"]["operators"], 80 * 42)
        path = self.folder / "a.svg"
        operators.draw(found, path)
        self.assertIn(b"constant", path.read_bytes())

    def test_bad_input(self):
        for widths in ("8", "8,8", "12,16", "0,8"):
            self.assertBad(operators.main, ["--model", "embedded", "--width", widths], "idth")
        self.assertBad(operators.main, ["--model", "random:tiny-mixtral", "--width", "8,16"], "random:")


if __name__ == "__main__":
    unittest.main()
