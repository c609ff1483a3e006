"""The benchmark's arithmetic, on a clock of our own: turns, warm-up, medians, ratios; no time is asserted."""

import json
import unittest
from unittest import mock

import torch

from examples.ch02 import model as ch02
from scripts import bench
from tests.support import FolderCase, call, config, slow, start, weights, write_folder

MODEL = ch02.Model(config(), weights())


@slow
class Turns(unittest.TestCase):
    def test_medians_of_turns_after_the_warm_up(self):
        """Ours takes 1 s, theirs 2 s; the first two turns of each 1,000 s more, and one later turn is slow."""
        now, calls = [0.0], {"ours": 0, "theirs": 0}

        def call_it(name, seconds):
            calls[name] += 1
            now[0] += seconds + (1000 if calls[name] <= 2 or calls[name] == 4 else 0)

        with (
            mock.patch.object(bench, "run", side_effect=lambda model, ids: call_it("ours", 1)),
            mock.patch.object(bench, "library_model", side_effect=lambda model: lambda ids, use_cache: call_it("theirs", 2)),
        ):
            self.assertEqual(bench.take_turns(MODEL, 8, 3, timer=lambda: now[0]), (1, 2))
        self.assertEqual(calls, {"ours": 5, "theirs": 5})

    def test_ratio(self):
        with mock.patch.object(bench, "take_turns", return_value=(1.0, 4.0)), mock.patch.object(bench, "load"):
            rows = bench.speed_once("random:gpt2", [16, 32], 9)
        self.assertEqual([r["tokens"] for r in rows], [16, 32])
        self.assertEqual((rows[0]["ours_ms"], rows[0]["theirs_ms"], rows[0]["ratio"]), (1000.0, 4000.0, 0.25))

    def test_middle(self):
        rows = [{"ratio": x} for x in (0.9, 1.2, 0.8)]
        self.assertEqual(bench.middle(rows, "ratio"), {"ratio": 0.9})
        self.assertEqual(bench.middle(rows[:2], "ratio"), {"ratio": 0.9})

    def test_peak_memory_is_in_mib(self):
        code = "from scripts.bench import _peak; import torch; a = _peak(); x = torch.ones(40, 1024, 1024); print(_peak() - a)"
        grown = float(start("-c", code).stdout)  # 160 MiB of float32
        self.assertTrue(120 < grown < 200, grown)


@slow
class Script(FolderCase):
    def test_all_parts_on_a_tiny_model(self):
        """In this process: that a part has a process of its own is seen where one breaks off, below."""

        def here(part, threads, **settings):
            status, out, err = call(bench.child, part, threads, json.dumps(settings))
            self.assertEqual(status, 0, err)
            return json.loads(out)

        folder, threads = write_folder(self.folder / "a"), torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        with mock.patch.object(bench, "_in_a_process", here):
            status, out, err = call(bench.main, "--model", folder, "--tokens", "4", "--runs", "1", "--processes", "1")
        self.assertEqual((status, err), (0, ""))
        words = ("ratio", "all ratios", "load and run, s", "transformers", "ours / floor", "Decoding 16 tokens", "unexplained, %")
        for text in words:
            self.assertIn(text, out)

    def test_bad_input(self):
        tiny = write_folder(self.folder / "a")
        self.assertBad(bench.main, ["--model", "nonsense"], "nonsense")
        self.assertBad(bench.main, ["--model", tiny, "--tokens", "17"], "17 tokens", "n_positions 16")
        self.assertBad(bench.main, ["--settings", "{}"], "--settings")
        with self.assertRaisesRegex(ValueError, "speed benchmark broke off: no model nowhere"):
            bench._in_a_process("speed", 1, source="nowhere", lengths=[4], runs=1)


if __name__ == "__main__":
    unittest.main()
