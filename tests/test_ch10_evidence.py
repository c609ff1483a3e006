"""Chapter 10's `exact` and `tolerance` records, measured again; and mutations of the code, each of which breaks one."""

import unittest
from unittest import mock

import torch

from examples.ch10 import cache_parity as ex
from examples.ch10 import kv_cache
from examples.ch10.kv_cache import KVCache
from tests import records
from tests.support import slow

RECORDS = records.of("ch10")
RIGHT_EXTEND, RIGHT_PREFIX, RIGHT_COUNT = KVCache.extend, KVCache.shared_prefix, ex.tokens_processed


def setUpModule():
    torch.set_num_threads(2)


@slow
class MeasuredAgain(records.MeasuredAgain, unittest.TestCase):
    chapter, exact, tolerance = "ch10", 4, 3

    def test_what_the_records_say(self):
        invariants = RECORDS["ch10.invariants"]["values"]
        self.assertEqual([k for k, v in invariants.items() if v is not True], ["splits", "tokens"])
        guards = RECORDS["ch10.guards"]["values"]
        self.assertEqual((guards["raised_unguarded"], guards["stopped"]), (0, 5))
        cost = RECORDS["ch10.cost"]["values"]
        self.assertEqual([(r["ratio"], r["ratio_without_prefill"]) for r in cost["toy"]], [(1.0, 5.0), (7.9, 10.5)])
        self.assertEqual((cost["gpt2"][-1]["ratio"], cost["gpt2"][-1]["ratio_without_prefill"]), (58.4, 69.5))
        memory = RECORDS["ch10.memory"]["values"]
        self.assertEqual((memory["per_token_mib"], memory["at_512_gib"], memory["at_2048_gib"]), (4.5, 2.25, 9.0))
        self.assertTrue(memory["as_the_tensors"])
        failures = {r["failure"]: r["first"] for r in RECORDS["ch10.failures"]["values"]["failures"]}
        self.assertEqual(failures, dict(zip(ex.FAILURES, (12, 12, 24, 11, 12), strict=True)))


@slow
class Mutations(unittest.TestCase):
    """Each fault, planted in the code, makes a record fail to come out again."""

    def assertBreaks(self, id, module, name, wrong):
        with mock.patch.object(module, name, wrong):
            self.assertNotEqual(records.without_worst(records.again(id)), records.without_worst(RECORDS[id]["values"]))

    def test_positions_off_by_one(self):
        right = kv_cache.positions
        wrong = lambda past, new, device="cpu": right(max(0, past - 1), new, device)  # noqa: E731
        for id in ("ch10.splits", "ch10.greedy"):
            self.assertBreaks(id, kv_cache, "positions", wrong)

    def test_the_mask_top_left(self):
        self.assertBreaks("ch10.splits", kv_cache, "mask_after", lambda past, new, device="cpu": ex.top_left(past, new))

    def test_old_pairs_rewritten(self):
        def rewrites(cache, layer, k, v):
            keys, values = RIGHT_EXTEND(cache, layer, k, v)
            cache.values[layer][:, :, 0] *= 1.0000002
            return keys, values

        self.assertBreaks("ch10.invariants", KVCache, "extend", rewrites)

    def test_a_prefix_that_is_taken_on_trust(self):
        self.assertBreaks("ch10.guards", KVCache, "shared_prefix", lambda cache, ids: cache.length)

    def test_a_cache_that_grows_in_silence(self):
        self.assertBreaks("ch10.guards", KVCache, "check_room", lambda cache, new: None)

    def test_queries_counted_as_keys(self):
        right = ex.cache_bytes
        self.assertBreaks("ch10.memory", ex, "cache_bytes", lambda *args: 2 * right(*args))

    def test_the_prefill_forgotten(self):
        def without(prompt, new):
            found = RIGHT_COUNT(prompt, new)
            return found | {"cached": new, "ratio": found["naive"] / new}

        self.assertBreaks("ch10.cost", ex, "tokens_processed", without)


if __name__ == "__main__":
    unittest.main()
