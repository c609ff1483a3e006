"""The cached pass beside the whole one: any split of any text, point by point, through the loop; and the faults that are seen."""

import json
import unittest
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.ch02.model import load, run
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.agreement import agreement
from examples.ch10 import cache_parity, kv_cache
from examples.ch10.cache_parity import compare_layers, compare_splits, measure, measure_greedy, reuse, splits
from tests import support
from tests.faults import FAULTS
from tests.support import IDS, FolderCase, call, library_gpt2, slow, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
LIBRARY = library_gpt2(MODEL.config, MODEL.weights)
FULL = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]])
BOUND = 1e-5  # of the largest logit
QUIET = settings(max_examples=100, deadline=None, derandomize=True, database=None)
OFF_BY_ONE = lambda past, new, device="cpu": torch.arange(max(0, past - 1), max(0, past - 1) + new)  # noqa: E731


def setUpModule():
    torch.set_num_threads(1)


def in_chunks(model, ids, sizes):
    return cache_parity.in_chunks(model, ids, sizes)[0]


def relative(ours, theirs):
    return agreement(ours, theirs)["relative_difference"]


class Splits(unittest.TestCase):
    @QUIET
    @given(st.data())
    def test_any_split_of_any_batch(self, data):
        """A hundred random texts, batches and splits on G, beside the oracle and transformers' own cache-free pass."""
        batch, tokens = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 16))
        row = st.lists(st.integers(0, 10), min_size=tokens, max_size=tokens)
        ids = torch.tensor(data.draw(st.lists(row, min_size=batch, max_size=batch)))
        sizes = []
        while sum(sizes) < tokens:
            sizes.append(data.draw(st.integers(1, tokens - sum(sizes))))
        found = in_chunks(MODEL, ids, sizes)
        self.assertEqual(found.shape, (batch, tokens, 11))
        self.assertLessEqual(relative(found, run(MODEL, ids)), BOUND)
        self.assertLessEqual(relative(found, LIBRARY(ids, use_cache=False).logits.detach()), BOUND)

    def test_every_split_of_the_full_context(self):
        oracle = run(MODEL, FULL)
        for row in compare_splits(MODEL, FULL):
            self.assertLessEqual(row["relative_difference"], BOUND, row)
            self.assertEqual(row["same_argmax"], 16, row)
        for first in range(1, 16):
            self.assertLessEqual(relative(in_chunks(MODEL, FULL, [first, 16 - first]), oracle), BOUND)
        self.assertEqual([sum(sizes) for sizes in splits(40).values()], [40] * 5)

    def test_layer_by_layer(self):
        for ids, sizes in ((FULL, [5, 1, 7, 3]), (torch.cat([IDS, IDS.flip(1)]), [1] * 8), (IDS, [8])):
            rows = compare_layers(MODEL, ids, sizes)
            self.assertEqual(len(rows), 1 + 12 * 2 + 2)
            for row in rows:
                self.assertLessEqual(row["largest_difference"], BOUND * row["largest_value"], row)

    def test_planted_faults(self):
        """Chapter 4's faults, seen through the cache: each leaves transformers' logits."""
        theirs = LIBRARY(FULL, use_cache=False).logits.detach()
        self.assertLessEqual(relative(in_chunks(MODEL, FULL, [4, 1, 11]), theirs), BOUND)
        for name, (target, fault) in FAULTS.items():
            with mock.patch.object(gpt2, target, fault):
                try:
                    found = relative(in_chunks(MODEL, FULL, [4, 1, 11]), theirs)
                except RuntimeError:
                    continue
            self.assertGreater(found, BOUND, name)

    def test_the_points_of_another_mask_are_seen(self):
        """Scores are compared where either program shows them, so a chunk that hides too much is no agreement."""
        right = kv_cache.mask_after

        def hides_the_first(past, new, device="cpu"):
            mask = right(past, new, device)
            if mask is not None and past:
                mask[:, 0] = -torch.inf
            return mask

        with mock.patch.object(kv_cache, "mask_after", hides_the_first):
            rows = {(r["point"], r["layer"]): r for r in compare_layers(MODEL, FULL, [4, 12])}
        self.assertGreater(rows["scores", 0]["largest_difference"], 0.1 * rows["scores", 0]["largest_value"])

    def test_a_reused_prefix(self):
        for row in reuse(MODEL, FULL[:, :6], [torch.tensor([1]), torch.tensor([2, 3])]):
            self.assertTrue(row["same"], row)
            self.assertEqual((row["computed"], row["from_nothing"]), (row["ending"], 6 + row["ending"]))
        with mock.patch.object(kv_cache, "positions", lambda past, new, device="cpu": torch.arange(new)):
            self.assertFalse(all(r["same"] for r in reuse(MODEL, FULL[:, :6], [torch.tensor([1])])))


class Measured(unittest.TestCase):
    def test_splits(self):
        found = measure(MODEL, FULL)
        self.assertTrue(found["held"])
        self.assertEqual(found["same_argmax"], found["positions"])
        self.assertEqual(found["positions"], 5 * 16 + 5 * 3 * 16 + 16)
        self.assertEqual((found["tensors"], found["full_context"]), (1 + 12 * 2 + 2, 16))
        self.assertLessEqual(max(r["relative_difference"] for r in found["by_point"]), found["worst"])
        with mock.patch.object(kv_cache, "positions", OFF_BY_ONE):
            self.assertFalse(measure(MODEL, FULL)["held"])

    def test_a_point_alone_is_enough(self):
        """A tensor on the way that is off makes the worst value, even where the logits agree."""
        rows = [{"point": "q", "layer": 1, "largest_difference": 1.0, "largest_value": 2.0}]
        with mock.patch.object(cache_parity, "compare_layers", return_value=rows):
            found = measure(MODEL, FULL)
        self.assertEqual((found["worst"], found["held"]), (0.5, False))

    def test_at_size_on_a_small_model(self):
        model = support.model(n_positions=64)
        found = cache_parity.measure_at_size(model)
        self.assertTrue(found["held"])
        self.assertEqual(found["positions"], 5 * 20 + 64)
        self.assertEqual(found["splits"][-1]["chunks"], 9)
        with mock.patch.object(kv_cache, "positions", OFF_BY_ONE):
            self.assertFalse(cache_parity.measure_at_size(model)["held"])

    @slow
    def test_greedy(self):
        found = measure_greedy(load(), tokens=5)
        self.assertTrue(found["held"])
        self.assertEqual((found["tokens"], found["same"]), (4 * 5 + 4 * 40, 4 * 5 + 4 * 40))
        self.assertEqual((found["prompt"], found["pairs_held"], found["computed"]), (5, 24, 24))
        with mock.patch.object(kv_cache, "positions", OFF_BY_ONE):
            self.assertFalse(measure_greedy(load(), tokens=5)["held"])
        with mock.patch.object(cache_parity, "reuse", return_value=[{"same": False}]):
            self.assertFalse(measure_greedy(load(), tokens=5)["held"])


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        folder = write_folder(self.folder / "m")
        status, out, err = call(cache_parity.main, "--model", folder)
        self.assertEqual((status, err), (0, ""))
        for text in ("one by one", "16 of 16", "residual_mid", "336 of 336"):
            self.assertIn(text, out)
        status, out, err = call(cache_parity.main, "--model", folder, "--json")
        self.assertEqual((status, err), (0, ""))
        found = json.loads(out)
        self.assertEqual(set(found), {"ran_with", "splits"})  # without a tokenizer there is no text to write
        self.assertTrue(found["splits"]["held"])

    @slow
    def test_on_the_embedded_model(self):
        status, out, err = call(cache_parity.main, "--tokens", "3")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("3 of 3", out)
        self.assertIn("holds 24 positions", out)
        self.assertNotIn(" NO", out)

    def test_bad_input(self):
        small = write_folder(self.folder / "s", support.weights(support.config(n_positions=3)), support.G | {"n_positions": 3})
        huge = support.weights() | {"wte.weight": torch.full((11, 8), 3e38)}
        self.assertBad(cache_parity.main, ["--model", small], "n_positions is 3")
        self.assertBad(cache_parity.main, ["--model", write_folder(self.folder / "h", huge)], "NaN or infinity")
        self.assertBad(cache_parity.main, ["--model", "nowhere"], "no model")


if __name__ == "__main__":
    unittest.main()
