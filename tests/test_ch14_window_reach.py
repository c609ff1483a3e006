"""Chapter 14's windows: how far they reach, by perturbation; what they save of a cache, by hand and by brute force; the script."""

import unittest
from collections import deque
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.model import general_form, run
from examples.ch03.tokens import random_ids
from examples.ch10 import kv_cache
from examples.ch10.kv_cache import cache_bytes
from examples.ch14 import peers, variants, window_reach
from examples.ch14.configs import config_named
from examples.ch14.decode_trace import decode_step
from examples.ch14.prefix_reuse import forward_at
from examples.ch14.window_reach import measure, reach, request_row
from examples.lab.script import finite, parse_json
from scripts.experiments import experiment
from scripts.records import read_results, results_path
from tests.support import ROOT, FolderCase, call

WIDER = mock.patch.object(variants, "windowed", lambda mask, back, window, right=variants.windowed: right(mask, back, window + 1))


def setUpModule():
    torch.set_num_threads(1)


class Reach(unittest.TestCase):
    def test_the_formula(self):
        for window, layers, wanted in ((1, 3, 0), (2, 3, 3), (4, 4, 12), (6, 1, 5)):
            self.assertEqual(reach(window, layers, seed=1), dict(window=window, layers=layers, farthest=wanted, formula=wanted))

    def test_all_that_the_record_has(self):
        for window in window_reach.WINDOWS:
            for layers in window_reach.LAYERS:
                row = reach(window, layers)
                self.assertEqual(row["farthest"], row["formula"], row)

    def test_a_text_that_ends_before(self):
        self.assertEqual(reach(6, 4, tokens=12)["farthest"], 11)

    def test_a_window_that_leaves_the_query_out(self):
        with WIDER:
            self.assertEqual(reach(4, 2)["farthest"], 8)

    def test_the_record_breaks(self):
        """The fault breaks the record, which is what the code makes without it."""
        record = read_results(results_path(ROOT, "ch14"))["ch14.windows"]["values"]
        self.assertEqual((record["mistral_times"], record["reach_as_the_formula"]), (8.0, True))
        with WIDER:
            self.assertNotEqual(experiment("ch14.windows").values(), record)


class Caches(unittest.TestCase):
    """What a windowed layer has to keep: as many positions as `cache_bytes` counts, no more and no fewer."""

    def check_bytes(self, config, *lengths):
        """Beside queues, one per layer, that drop their oldest position."""
        for tokens in lengths:
            caches = [deque(range(tokens), maxlen=config.window(layer)) for layer in range(config.n_layer)]
            wanted = sum(map(len, caches)) * 2 * config.kv_heads * config.head_width * 2
            self.assertEqual(cache_bytes(config, tokens, bytes_per_number=2), wanted, tokens)

    def test_beside_brute_force(self):
        for name in ("mistral-7b", "gemma-2-9b", "gemma-3-1b", "llama-3-8b"):
            with self.subTest(name):
                self.check_bytes(config_named(name), 1, 511, 512, 513, 5000)

    def test_planted_faults(self):
        right = kv_cache.general
        for change in (lambda windows: (), lambda windows: tuple(w and w + 1 for w in windows)):
            wrong = lambda config, change=change: replace(right(config), windows=change(right(config).windows))  # noqa: E731
            for name in ("mistral-7b", "gemma-3-1b"):
                with mock.patch.object(kv_cache, "general", wrong), self.assertRaises(AssertionError):
                    self.check_bytes(config_named(name), 5000)

    def test_a_decode_step_needs_one_less_than_the_window(self):
        model = general_form(peers.by_files(peers.library_tiny("mistral")))
        config, tokens = model.config, 20
        ids, W = random_ids(model, tokens), config.windows[0]
        one = replace(model, config=replace(config, n_layer=1))
        whole = run(one, ids)[0, -1]
        for kept, same in ((W, True), (W - 1, False)):  # the last W positions, the new one with them, are all that one layer sees
            part = forward_at(one, ids[:, -kept:], torch.arange(tokens - kept, tokens))[0, -1]
            self.assertEqual(torch.allclose(part, whole, atol=1e-5), same)
        step = decode_step(config, 3 * W, 1, 1)
        self.assertEqual(step["cache_bytes"], config.n_layer * (W - 1) * 2 * config.kv_heads * config.head_width)


class Requests(unittest.TestCase):
    def rows(self, tokens=32768, bytes_per_number=2):
        return {name: request_row(name, tokens, bytes_per_number) for name in window_reach.MODELS.values()}

    def check_rows(self):
        """Bytes a position and layer by hand: 2 (keys and values) g heads of dh numbers of 2 bytes."""
        rows = self.rows()
        mistral, two, three = (rows[name] for name in ("mistral-7b", "gemma-2-9b", "gemma-3-1b"))
        self.assertEqual((mistral["windows"], mistral["layers_with_window"], mistral["window"]), ("sliding", 32, 4096))
        self.assertEqual(mistral["full_mib"] * 2**20, 32768 * 32 * 2 * 8 * 128 * 2)
        self.assertEqual((mistral["times_as_many"], mistral["windowed_mib"]), (8.0, 512))
        self.assertEqual((two["windows"], two["layers_with_window"], two["layers"], two["made_for"]), ("interleaved", 21, 42, 8192))
        self.assertAlmostEqual(two["times_as_many"], 2 * 32768 / (32768 + 4096))
        self.assertEqual((three["window"], three["layers_with_window"]), (512, 22))
        self.assertAlmostEqual(three["times_as_many"], 26 * 32768 / (22 * 512 + 4 * 32768))

    def test_rows(self):
        self.check_rows()

    def test_planted_faults(self):
        right = kv_cache.cached_numbers
        wrongs = (
            lambda config: right(config) // 2,  # values forgotten
            lambda config: right(config) * config.n_head // config.kv_heads,  # keys of every query
        )
        for wrong in wrongs:
            with mock.patch.object(kv_cache, "cached_numbers", wrong), self.assertRaises(AssertionError):
                self.check_rows()

    def test_a_short_request_gains_nothing(self):
        self.assertEqual([r["times_as_many"] for r in self.rows(512, 1).values()], [1.0] * 3)
        self.assertGreater(self.rows(513, 1)["gemma-3-1b"]["times_as_many"], 1)

    def test_what_is_named(self):
        found = measure(tokens=8192, bytes_per_number=1)
        rows = {r["model"]: r for r in found["requests"]}
        self.assertEqual((found["mistral_times"], found["gemma_2_times"]), (2.0, rows["gemma-2-9b"]["times_as_many"]))
        self.assertEqual((found["gemma_3_times"], found["mistral_reach"]), (rows["gemma-3-1b"]["times_as_many"], 131_040))
        self.assertEqual(rows["mistral-7b"]["full_mib"] * 2**20, 8192 * 32 * 2 * 8 * 128)


class Script(FolderCase):
    def test_text(self):
        status, out, err = call(window_reach.main)
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^6 +5 +10 +15 +20$")
        self.assertRegex(out, r"(?m)^mistral-7b +4,096 +32 of 32 +4,096 +512 +8\.00$")
        self.assertIn("Note: gemma-2-9b was made for fewer positions", out)
        self.assertIn("In 20 of 20 random models", out)
        self.assertNotIn("Note", call(window_reach.main, "--tokens", "8192")[1])

    def test_a_reach_that_is_not_the_formula_s_is_said(self):
        with WIDER:
            out = call(window_reach.main)[1]
        self.assertRegex(out, r"(?m)^6 .* 18 \(not 15\) +24 \(not 20\)$")
        self.assertIn("In 0 of 20 random models", out)

    def test_json(self):
        value = parse_json(call(window_reach.main, "--tokens", "100", "--bytes", "1", "--json")[1])
        self.assertEqual(value["windows"], finite(measure(100, 1)))
        self.assertEqual([r["times_as_many"] for r in value["windows"]["requests"]], [1.0] * 3)

    def test_bad_input(self):
        huge = "1" + "0" * 400
        for argv, words in (
            (("--tokens", huge), "is not"),
            (("--tokens", "0"), "1 to"),
            (("--bytes", "9"), "1 to 8"),
            (("more",), "unknown: more"),
        ):
            self.assertBad(window_reach.main, argv, words)


if __name__ == "__main__":
    unittest.main()
