"""What holds exactly of a cache: it does in every way of feeding a text, and each of the six is seen to fail on a fault."""

import json
import unittest
from unittest import mock

import torch

from examples.ch10 import cache_invariants, kv_cache
from examples.ch10.cache_invariants import invariants, measure
from examples.ch10.cache_parity import splits
from examples.ch10.kv_cache import KVCache
from tests import support
from tests.support import IDS, FolderCase, call, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
FULL = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]])


def setUpModule():
    torch.set_num_threads(1)


class Invariants(unittest.TestCase):
    def test_exactly(self):
        for ids in (FULL, IDS):
            for sizes in splits(ids.shape[1]).values():
                found = invariants(MODEL, ids, sizes)
                self.assertEqual(set(found.values()), {True}, (sizes, found))

    def test_planted_faults(self):
        right = KVCache.extend

        def rewrites(cache, layer, k, v):
            keys, values = right(cache, layer, k, v)
            cache.keys[layer][:, :, 0] += 1e-7
            return keys, values

        def leaks(cache, layer, k, v):
            keys, values = right(cache, layer, k, v)
            if cache.length:
                cache.values[layer][:, :, 0] += v[:, :, -1]
            return keys, values

        def writes_behind(cache, layer, k, v):
            found = right(cache, layer, k, v)
            cache.keys[layer][:, :, -1] += 1
            return found

        def looks_ahead(past, new, device="cpu"):
            return right_mask(past, new).roll(-1, 0) if new > 1 else None

        right_mask = kv_cache.mask_after
        with mock.patch.object(KVCache, "extend", rewrites):
            self.assertFalse(invariants(MODEL, FULL, [4, 12])["old_pairs_kept"])
        with mock.patch.object(KVCache, "extend", leaks):
            self.assertFalse(invariants(MODEL, FULL, [4, 12])["causal_pairs"])
        with mock.patch.object(KVCache, "extend", writes_behind):
            self.assertFalse(invariants(MODEL, IDS, [4, 4])["nothing_behind_them"])
        with mock.patch.object(kv_cache, "mask_after", looks_ahead):
            self.assertFalse(invariants(MODEL, FULL, [4, 12])["causal_logits"])
        with mock.patch.object(KVCache, "advance", lambda cache, ids: setattr(cache, "length", cache.length + 1)):
            self.assertFalse(invariants(MODEL, FULL, [4, 12])["holds_t_pairs"])
        with mock.patch.object(cache_invariants, "cache_bytes", return_value=1):
            self.assertFalse(invariants(MODEL, FULL, [4, 12])["bytes_as_counted"])

    def test_one_broken_way_is_enough(self):
        found = measure(MODEL, FULL)
        self.assertEqual((found["splits"], found["tokens"], len(found["by_split"])), (5, 16, 5))
        right = kv_cache.mask_after
        looks_ahead = lambda past, new, device="cpu": right(past, new).roll(-1, 0) if past and new > 1 else right(past, new)  # noqa: E731
        with mock.patch.object(kv_cache, "mask_after", looks_ahead):  # only chunks behind others have it
            broken = measure(MODEL, FULL)
        rows = {row["fed"]: row["causal_logits"] for row in broken["by_split"]}
        self.assertFalse(broken["causal_logits"])
        self.assertEqual([name for name, held in rows.items() if not held], ["one, then the rest", "uneven chunks"])
        self.assertIn("one, then the rest; uneven chunks", cache_invariants.report({"invariants": broken}))


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        folder = write_folder(self.folder / "m")
        status, out, err = call(cache_invariants.main, "--model", folder)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("6 of 6 hold", out)
        status, out, err = call(cache_invariants.main, "--model", folder, "--json")
        found = json.loads(out)["invariants"]
        self.assertEqual([value for key, value in found.items() if key not in ("splits", "tokens", "by_split")], [True] * 6)

    def test_bad_input(self):
        self.assertBad(cache_invariants.main, ["--model", "nowhere"], "no model")


if __name__ == "__main__":
    unittest.main()
