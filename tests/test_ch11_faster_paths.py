"""The table of faster paths: one that disagrees gets no speed, one that cannot run says why; speeds are on a clock of ours."""

import itertools
import unittest
from unittest import mock

import torch

from examples.ch02.model import load
from examples.ch11 import faster_paths as room
from examples.ch11.operations import operations, pass_bound
from examples.ch11.paths import Path, paths, widened, with_int8
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import G, model, write_folder

SIZES = {"n_positions": 48, "n_embd": 32, "vocab_size": 32}
ONE = model(**SIZES)
RATES = {"flop_per_s": 1e9, "bytes_per_s": 1e9, "bfloat16_flop_per_s": 4e9}


def setUpModule():
    torch.set_num_threads(1)


def quick(one):
    """The paths without the compiled one, which takes seconds."""
    return [way for way in paths(one) if way.name != "compiled blocks"]


def refuses():
    raise BadInput("no C++ compiler; install g++")


class Agreement(unittest.TestCase):
    def test_the_paths_agree(self):
        rows, steps = room.agreement(ONE, quick(ONE))
        self.assertEqual([r["why_not"] for r in rows], [None] * 6)
        self.assertEqual(list(steps), [r["path"] for r in rows])
        by_name = {r["path"]: r for r in rows}
        self.assertEqual((by_name["plain pass"]["positions"], by_name["last row only"]["positions"]), (48, 33))
        for name in ("plain pass", "fused attention", "last row only"):
            self.assertLess(by_name[name]["relative_difference"], 1e-5)
        for name in ("bfloat16", "int8, widened in blocks", "int8, torch's product"):
            self.assertGreater(by_name[name]["relative_difference"], 1e-4)

    def test_a_path_with_a_wrong_scale_gets_no_speed(self):
        wrong = Path("wrong scale", lambda: with_int8(ONE, lambda x, q, scales: widened(x, q, 1.2 * scales)), exact=False, weight=1)
        tiny = Path("a little off", lambda: ONE.to(torch.bfloat16).to(torch.float32))  # said to compute the same function
        ways = [*quick(ONE)[:2], wrong, tiny]
        found = room.measure(ONE, 8, 1, ways)
        plain, fused, *others = found["paths"]
        self.assertIsNotNone(plain["decode"])
        self.assertIsNotNone(fused["decode"])
        for r, words in zip(others, ("more than 0.05", "more than 0.0001"), strict=True):
            self.assertEqual((r["agrees"], r["prefill"], r["decode"]), (False, None, None))
            self.assertIn(words, r["why_not"])
        shown = room.report({"faster-paths": found})
        self.assertEqual(shown.count("no speed"), 6)  # two cells and a line of each
        self.assertIn("wrong scale: no speed: a logit differs by", shown)

    def test_each_bound(self):
        good = {"relative_difference": 0.01, "same_argmax_share": 0.95, "loss_change": -0.01}
        self.assertIsNone(room.beyond(good, room.ROUGH))
        for key, value in (("relative_difference", 0.06), ("same_argmax_share", 0.89), ("loss_change", -0.03)):
            self.assertIsNotNone(room.beyond(good | {key: value}, room.ROUGH))
            self.assertIsNotNone(room.beyond(good | {key: float("nan")}, room.ROUGH))
        self.assertIsNotNone(room.beyond(good, room.EXACT))

    def test_a_plain_pass_that_is_wrong_ends_it(self):
        wrong = Path("plain pass", lambda: with_int8(ONE), exact=True)
        with self.assertRaisesRegex(BadInput, "not the oracle's"):
            room.measure(ONE, 8, 1, [wrong])

    def test_what_cannot_run(self):
        found = room.measure(ONE, 8, 1, [quick(ONE)[0], Path("compiled blocks", refuses)])
        self.assertEqual(found["paths"][1]["why_not"], "not here: no C++ compiler; install g++")
        shown = room.report({"faster-paths": found})
        self.assertIn("compiled blocks: not here: no C++ compiler; install g++.", shown)
        self.assertNotIn("no speed", shown)
        agreement = room.measure_agreement(ONE, [quick(ONE)[0], Path("compiled blocks", refuses)])
        self.assertEqual([r["agrees"] for r in agreement["paths"]], [True, False])


class Speeds(unittest.TestCase):
    def test_ratios(self):
        """On a clock of ours: a pass of the plain path takes 4 s, one of any other 1 s."""
        ways, now = quick(ONE)[:3], [0.0]
        _, steps = room.agreement(ONE, ways)
        plain = room.CachedStep.step

        def step(self, ids):
            now[0] += 4 if self.cache in first else 1
            return plain(self, ids)

        made, first = room.CachedStep.__init__, []

        def init(self, *args):
            made(self, *args)
            first.extend([self.cache] if not first else [])

        with (
            mock.patch.object(room.CachedStep, "step", step),
            mock.patch.object(room.CachedStep, "__init__", init),
            mock.patch.object(room, "machine_rates", return_value=RATES),
            mock.patch.object(room, "bfloat16_rate", return_value=4e9),
        ):
            found = room.speeds(ONE, ways, steps, 8, 2, timer=lambda: now[0])
        self.assertEqual([found[way.name]["prefill"]["times_as_fast"] for way in ways], [1, 4, 4])
        self.assertEqual(found["plain pass"]["decode"]["ms"], 4000)
        self.assertIsNone(found["last row only"]["decode"])

    def test_predictions(self):
        """Narrower weights move fewer bytes, a last row leaves out its share, and bfloat16 has its own rate of arithmetic."""
        of, ways = load("embedded").config, {way.name: way for way in paths(load("embedded"))}
        plain = pass_bound(operations(of, 1, 100), RATES)["seconds"]
        self.assertEqual(room.predicted(of, ways["plain pass"], RATES, 1, 100), plain)
        slow = RATES | {"bytes_per_s": 1e3}  # memory alone counts
        times = {name: room.predicted(of, way, slow, 1, 100) for name, way in ways.items()}
        self.assertAlmostEqual(times["plain pass"] / times["bfloat16"], 2, places=2)
        self.assertGreater(times["plain pass"] / times["int8, torch's product"], 2.5)
        self.assertLess(times["fused attention"], times["plain pass"])
        busy = RATES | {"bytes_per_s": 1e18}  # arithmetic alone
        times = {name: room.predicted(of, way, busy, 100, 0) for name, way in ways.items()}
        self.assertAlmostEqual(times["plain pass"] / times["bfloat16"], 4)
        self.assertAlmostEqual(times["plain pass"], times["int8, widened in blocks"])
        head = 2 * of.n_embd * of.vocab_size * 99 / 1e9
        self.assertAlmostEqual(times["plain pass"] - times["last row only"], head)


class Script(RoomCase):
    def setUp(self):
        super().setUp()
        self.model = write_folder(self.folder / "m", ONE.weights, G | SIZES)
        held = mock.patch.object(room, "paths", quick)
        held.start()
        self.addCleanup(held.stop)

    def test_page_json_and_figure(self):
        argv = ("--model", self.model, "--tokens", 8, "--runs", 1)
        page = self.page(room.main, *argv)
        for words in ("float32, 1 thread", "a prompt of 8 tokens", "Of the other paths that agree, the fastest for prefill is "):
            self.assertIn(words, page)
        found = room.measure(ONE, 8, 1, timer=itertools.count().__next__)
        with mock.patch.object(room, "measure", return_value=found) as measured:
            value = self.values(room.main, *argv)
            self.assertDraws(room.main, *argv)
        self.assertMeasured(value, **{"faster-paths": found})
        self.assertEqual(measured.call_args.args[1:3], (8, 1))

    def test_bad_input(self):
        self.assertBad(room.main, ["--model", self.model, "--tokens", "0"], "0 is not")
        self.assertBad(room.main, ["--model", self.folder / "none"], "no model")


if __name__ == "__main__":
    unittest.main()
