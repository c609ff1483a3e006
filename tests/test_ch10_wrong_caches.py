"""The five failures: each leaves the oracle where it must and says nothing, and each is stopped by its guard, which lets the right
cache pass."""

import json
import unittest
from unittest import mock

import torch

from examples.ch02.model import load
from examples.ch03.tokens import decode
from examples.ch05.generate import generate
from examples.ch10 import kv_cache, wrong_caches
from examples.ch10.cache_parity import some_ids
from examples.ch10.kv_cache import Cached, KVCache, forward_cached
from examples.ch10.wrong_caches import FAILURES, GUARDS, Wrong, failure, failure_text, guard, guarded, measure, measure_guards
from examples.lab.script import BadInput
from tests import support
from tests.support import FolderCase, call, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
FULL = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]])
BOUND = 1e-5  # of the largest logit


def setUpModule():
    torch.set_num_threads(1)


class Failures(unittest.TestCase):
    FIRST = (6, 6, 9, 5, 6)  # in the order of FAILURES, for a prompt of 6 and a ring of 9

    def test_each_leaves_the_oracle_where_it_must_and_says_nothing(self):
        for model in (MODEL, MODEL.to(dtype=torch.float64)):
            for name, first in zip(FAILURES, self.FIRST, strict=True):
                ids = FULL[:, :15]  # the position one too far would be the model's last at 16
                found = failure(model, name, ids, 6, 9)
                self.assertIsNone(found["raised"], name)
                self.assertEqual(found["first"], first, name)
                self.assertGreater(found["at_first"], 1e-3, name)
                before = found["by_position"][:first]
                if name == "another prefix":  # of which the first positions came out of the wrong cache
                    self.assertEqual(before, [None] * first)
                else:
                    self.assertLess(max(before), BOUND, name)
                self.assertEqual(found["positions"], 15 - before.count(None))

    def test_the_right_one_does_not(self):
        with mock.patch.object(wrong_caches, "wrong", lambda model, *_: Cached(model)):
            found = failure(MODEL, "none", FULL, 6, 9)
        self.assertEqual((found["first"], found["moved"], found["raised"]), (None, 0, None))
        with mock.patch.object(wrong_caches, "wrong", lambda model, *_: Wrong(model)):  # no fault in it
            found = failure(MODEL, "none", FULL, 6, 9)
        self.assertEqual((found["first"], found["moved"], found["raised"]), (None, 0, None))

    def test_an_exception_would_be_told(self):
        found = failure(MODEL, "position off by one", FULL, 6, 9)  # at the last position the table ends
        self.assertIn("IndexError", found["raised"])

    def test_each_guard_stops_its_failure(self):
        for name in FAILURES:
            message = guard(MODEL, name, FULL[:, :15], 6, 9)
            self.assertIsNotNone(message, name)
            self.assertIn(name, GUARDS)

    def test_the_guards_let_the_right_one_pass(self):
        for name in FAILURES:
            right = Wrong(MODEL)
            with mock.patch.object(wrong_caches, "wrong", lambda *_, right=right: right):
                self.assertIsNone(guard(MODEL, name, FULL, 6, 9), name)
        for past, new in ((0, 1), (0, 5), (3, 1), (3, 4)):
            cache = KVCache(MODEL)
            if past:
                forward_cached(FULL[:, :past], MODEL, cache)
            ids = FULL[:, past : past + new]
            guarded(ids, MODEL.config, cache, kv_cache.positions(past, new), kv_cache.mask_after(past, new))
            if new > 1:
                with self.assertRaisesRegex(BadInput, "align the mask"):
                    guarded(ids, MODEL.config, cache, kv_cache.positions(past, new), None)

    def test_text(self):
        model = load()
        ids = some_ids(model, 12)
        right = generate(ids, model, 20, end=None).sequence()
        zero = failure_text(model, "position always 0", ids, 20, 24)
        self.assertNotEqual(zero, decode(right, model))
        self.assertIsInstance(failure_text(MODEL, "ring buffer", FULL[:, :6], 9, 9), str)


class Measured(unittest.TestCase):
    def test_failures(self):
        found = measure(MODEL, FULL[:, :15], 6, 9)
        self.assertEqual([r["first"] for r in found["failures"]], list(Failures.FIRST))
        for row in found["failures"]:
            self.assertAlmostEqual(row["at_first_percent"], 100 * row["by_position"][row["first"]])
            self.assertAlmostEqual(row["largest_percent"], 100 * max(x for x in row["by_position"] if x is not None))
        self.assertEqual(found["smallest_at_first_percent"], min(r["at_first_percent"] for r in found["failures"]))
        right = generate(FULL[:, :6], MODEL, 10, end=None).sequence()
        self.assertEqual(found["right_text"], str(right))
        self.assertEqual(found["texts_as_right"], sum(r["text"] == str(right) for r in found["failures"]))

    def test_guards(self):
        found = measure_guards(MODEL, FULL[:, :15], 6, 9)
        self.assertEqual((found["raised_unguarded"], found["stopped"]), (0, 5))
        for target, name, fault in (
            (KVCache, "shared_prefix", lambda cache, ids: cache.length),  # a prefix that is taken on trust
            (KVCache, "check_room", lambda cache, new: None),  # a cache that grows in silence
        ):
            with mock.patch.object(target, name, fault):
                self.assertEqual(measure_guards(MODEL, FULL[:, :15], 6, 9)["stopped"], 4, name)
        with mock.patch.object(wrong_caches, "RingCache", KVCache):  # the right one refuses
            self.assertEqual(measure_guards(MODEL, FULL[:, :15], 6, 9)["raised_unguarded"], 1)
        with mock.patch.object(wrong_caches, "guarded"):
            self.assertEqual(measure_guards(MODEL, FULL[:, :15], 6, 9)["stopped"], 2)


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        folder = write_folder(self.folder / "m")
        status, out, err = call(wrong_caches.main, "--model", folder, "--plot", self.folder / "f.svg")
        self.assertEqual((status, err), (0, ""))
        for text in ("ring buffer", "What stops each", "nothing", "align the mask"):
            self.assertIn(text, out)
        self.assertIn("position always 0", (self.folder / "f.svg").read_text())
        status, out, err = call(wrong_caches.main, "--model", folder, "--json")
        found = json.loads(out)
        self.assertEqual([f["failure"] for f in found["failures"]["failures"]], list(FAILURES))
        self.assertTrue(all(f["guard"] for f in found["guards"]["failures"]))

    def test_bad_input(self):
        self.assertBad(wrong_caches.main, ["--plot", "x.txt"], "x.txt")
        self.assertBad(wrong_caches.main, ["--model", "nowhere"], "no model")


if __name__ == "__main__":
    unittest.main()
