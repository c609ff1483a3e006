"""The benchmark's arithmetic, on a clock of our own: turns, warm-up, medians, ratios; no time is asserted."""

import contextlib
import json
import unittest
from unittest import mock

import torch

from examples.ch02 import model as ch02
from examples.lab.script import BadInput
from scripts import bench, bench_fast, bench_web
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
        no_browser = mock.patch.object(bench.bench_web, "measure", side_effect=BadInput("no browser"))
        with mock.patch.object(bench, "_in_a_process", here), no_browser:
            argv = ("--model", folder, "--fast-model", folder, "--tokens", "4", "--runs", "1", "--processes", "1")
            status, out, err = call(bench.main, *argv)
        self.assertEqual((status, err), (0, ""))
        words = (
            "ratio",
            "all ratios",
            "load and run, s",
            "transformers",
            "ours / floor",
            "Decoding 16 tokens",
            "unexplained, %",
            "not here",
            "The model in a page: not here, no browser",
        )
        for text in words:
            self.assertIn(text, out)

    def test_bad_input(self):
        tiny = write_folder(self.folder / "a")
        self.assertBad(bench.main, ["--model", "nonsense"], "nonsense")
        self.assertBad(bench.main, ["--model", tiny, "--tokens", "17"], "17 tokens", "n_positions 16")
        self.assertBad(bench.main, ["--settings", "{}"], "--settings")
        with self.assertRaisesRegex(ValueError, "speed benchmark broke off: no model nowhere"):
            bench._in_a_process("speed", 1, source="nowhere", lengths=[4], runs=1)

    def test_the_four_bit_part_by_itself_says_why_it_cannot_run(self):
        folder = write_folder(self.folder / "a")
        argv = ["--model", folder, "--part", "fast", "--fast-model", folder, "--tokens", "4"]
        self.assertBad(bench.main, argv, "ours, four bits", "no tokenizer")

    def test_the_page_by_itself_says_why_it_cannot_run(self):
        folder = write_folder(self.folder / "a")
        with mock.patch.object(bench_web.shutil, "which", return_value=None):
            self.assertBad(bench.main, ["--model", folder, "--part", "web", "--tokens", "4"], "nstall")


class Web(unittest.TestCase):
    """What is made of the page's openings; the browser is played."""

    def test_medians(self):
        row = {"opened": 0.1, "load": 0.05, "first": 0.5, "warm": 0.2, "decode": 0.64}
        driver = mock.Mock(capabilities={"browserVersion": "1.2"})
        driver.execute_script.side_effect = [dict.fromkeys(row, 100), row, {**row, "first": 9.0}, row]
        with mock.patch.object(bench_web, "write_model_files", lambda folder: (folder / "weights.js").write_bytes(b"12345")):
            found = bench_web.measure(3, browser=lambda: contextlib.nullcontext(driver))
        self.assertEqual((found["first_s"], found["decode_per_s"], found["bytes"]), (0.5, 200, 5))
        text = bench_web.web_report(found, 3)
        for said in ("Chromium 1.2", "500 ms", "at most 1 s: yes", "200 tokens/s", "at least 50: yes"):
            self.assertIn(said, text)
        self.assertIn("at most 1 s: no", bench_web.web_report({**found, "first_s": 1.2}, 3))


class Fast(unittest.TestCase):
    """What is made of the turns of the four-bit step and its peers; the programs are played."""

    def played(self, ids, seconds):
        """A program's process: ready, and then a turn of so many seconds for every line on its stdin."""
        lines = [{"mb": 2.5}, *({"seconds": s, "ids": ids} for s in seconds)]
        process = mock.Mock(stdin=mock.Mock(), stdout=mock.Mock())
        process.stdout.readline.side_effect = [json.dumps(line) for line in lines]
        return process

    def test_rates_and_texts(self):
        turns = {"fast": ([1, 2, 3], (9, 1, 1)), "plain": ([1, 2, 3], (9, 4, 4)), "transformers": ([1, 2, 3], (9, 8, 8))}
        turns["llama.cpp"] = ([1, 7, 3], (9, 2, 2))
        started = [self.played(*turns[name]) for name in bench_fast.NAMES]
        with (
            mock.patch.object(bench_fast.importlib.util, "find_spec", return_value=True),
            mock.patch.object(bench_fast.subprocess, "Popen", side_effect=started),
        ):
            found = bench_fast.take_turns("x", 3, 2, 1)
        self.assertEqual(found["per_s"], {"fast": 3, "plain": 0.75, "transformers": 0.375, "llama.cpp": 1.5})
        self.assertEqual(found["same_text"], {"fast": 3, "plain": 3, "transformers": 3, "llama.cpp": 1})
        self.assertEqual(found["mb_per_token"], 2.5)
        for process in started:
            process.kill.assert_called_once()
        text = bench_fast.fast_report([found], "x")
        self.assertRegex(text, r"llama\.cpp +1\.5 +2\.00 +1\b")  # twice as fast as it, and one token alike
        self.assertRegex(text, r"transformers, float32 +0\.4 +8\.00 +3\b")

    def test_without_the_peer(self):
        with (
            mock.patch.object(bench_fast.importlib.util, "find_spec", return_value=None),
            mock.patch.object(bench_fast.subprocess, "Popen", side_effect=[self.played([1], (1, 1)) for _ in range(3)]),
        ):
            text = bench_fast.fast_report([bench_fast.take_turns("x", 1, 1, 1)], "x")
        self.assertIn("make bench-peers", text)


if __name__ == "__main__":
    unittest.main()
