"""How scripts are called and answer: one line for bad input, strict JSON, files written whole."""

import argparse
import contextlib
import io
import math
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch

from examples.lab.script import (
    BadInput,
    Parser,
    answer,
    as_number,
    as_whole,
    command,
    dump_json,
    finite,
    number_list,
    parse_json,
    progress_bar,
    read_json,
    table,
    whole_number,
    write_whole,
)
from tests.support import ROOT, FolderCase, call


class Command(FolderCase):
    def test_progress_is_shown_on_a_terminal_alone(self):
        for terminal in (True, False):
            err = io.StringIO()
            err.isatty = lambda terminal=terminal: terminal
            with contextlib.redirect_stderr(err), progress_bar("pass", 2) as bar:
                bar.update()
            self.assertEqual("0/2" in err.getvalue(), terminal)
            self.assertEqual(err.getvalue() == "", not terminal)

    def test_what_becomes_one_line_and_status_two(self):
        def main_that(error):
            @command
            def main(argv):
                raise error

            return main

        self.assertBad(main_that(BadInput("a is wrong;\n  do b")), [], "error: a is wrong; do b\n")
        self.assertBad(main_that(PermissionError(13, "Permission denied", "/x/y")), [], "/x/y: Permission denied")
        self.assertBad(main_that(OSError("the disk is on fire")), [], "error: the disk is on fire\n")
        self.assertEqual(call(main_that(KeyboardInterrupt()))[::2], (130, "error: interrupted\n"))
        with self.assertRaises(ZeroDivisionError):  # a defect of ours is not dressed up as bad input
            call(main_that(ZeroDivisionError()))

    def test_success_is_zero(self):
        @command
        def main(argv):
            print("done", argv)

        self.assertEqual(call(main, "a"), (0, "done ['a']\n", ""))

    def test_a_stream_that_cannot_show_everything(self):
        @command
        def main(argv):
            print("é🤖")

        data = io.BytesIO()
        with mock.patch("sys.stdout", io.TextIOWrapper(data, "ascii")) as out:
            self.assertEqual(main([]), 0)
            out.flush()
            self.assertEqual(data.getvalue(), b"\\xe9\\U0001f916\n")

    def test_a_stream_that_is_closed(self):
        """As in `python script.py >&-`, where Python has no stream at all."""

        @command
        def main(argv):
            print("words")
            print("words", file=sys.stderr)

        for closed, other in (("stdout", "stderr"), ("stderr", "stdout")):
            with mock.patch.object(sys, closed, None), mock.patch.object(sys, other, io.StringIO()):
                self.assertEqual(main([]), 0)
                getattr(sys, closed).close()

    def test_parser(self):
        parser = Parser(prog="x").add("model", "dtype", "device", "prompt", "threads", "seed", "plot", "json")
        args = parser.parse_args([])
        self.assertEqual((args.model, args.threads, args.seed, args.json), ("embedded", 1, 0, False))
        self.assertEqual((args.dtype, args.device, args.prompt, args.plot), ("float32", "cpu", None, None))
        self.assertIn("default: embedded", parser.format_help())
        args = parser.parse_args(["--plot", "a/b.svg", "--prompt", "", "--dtype", "float16", "--seed", str(2**63 - 1)])
        self.assertEqual((args.plot, args.prompt, args.dtype, args.seed), (Path("a/b.svg"), "", "float16", 2**63 - 1))
        for argv in (
            *(["--thr", "1"], ["--threads", "0"], ["--threads", "1025"], ["--threads", "x"], ["--seed", "-1"]),
            *(["--seed", str(2**63)], ["more"], ["--model"], ["--dtype", "int8"], ["--device", "tpu"]),
        ):
            with self.assertRaisesRegex(BadInput, "x --help"):
                parser.parse_args(argv)

    def test_help_has_the_first_line_and_the_examples_as_they_stand(self):
        long = "python a.py --model somebody/a-model-with-a-very-long-name-indeed"
        shown = Parser(prog="a.py", description=f"What it shows.\n\n    python a.py\n    {long}  # words\n\nMore.").format_help()
        self.assertIn("\n\nWhat it shows.\n\n", shown)
        self.assertTrue(shown.endswith(f"\nexamples:\n  python a.py\n  {long}  # words\n"), shown)
        self.assertNotIn("More.", shown)
        self.assertNotIn("example", Parser(prog="a.py", description="What it shows.").format_help())
        Parser(prog="a.py", description=None).format_help()  # as where Python takes docstrings out

    def test_numbers_of_other_kinds(self):
        for value in (7, np.int64(7), np.uint8(7)):
            self.assertIs(type(as_whole(value)), int)
            self.assertEqual((as_whole(value), as_number(value)), (7, 7))
        for value in (7.0, np.float32(0.5)):
            self.assertIs(type(as_number(value)), float)
            self.assertEqual((as_whole(value), as_number(value)), (None, value))
        for value in (True, np.bool_(True), "7", None, [7], np.array([7])):
            self.assertEqual((as_whole(value), as_number(value)), (None, None))

    def test_numbers(self):
        self.assertEqual(whole_number(1)("7"), 7)
        self.assertEqual(number_list(1)("1,20,3"), [1, 20, 3])
        for text in ("", "0", "1,", "1,x", "1.5", "-1"):
            with self.assertRaises(argparse.ArgumentTypeError):
                number_list(1)(text)
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "9 is not 1 to 8"):
            whole_number(1, 8)("9")

    def test_a_reader_that_stops_reading(self):
        code = (
            "import sys; from examples.lab.script import command\n"
            "@command\ndef main(argv):\n    for i in range(10**6): print(i)\n"
            "sys.exit(main())"
        )
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"0\n")
        process.stdout.close()
        self.assertEqual((process.stderr.read(), process.wait()), (b"", 0))
        process.stderr.close()


class Answer(FolderCase):
    """A script's answer: text, or with --json one strict object; the figure is drawn first, of the same values."""

    def answer(self, values, draw=None, **args):
        args = SimpleNamespace(**dict(model="embedded", seed=3, json=False) | args)
        return call(command(lambda argv: answer(args, values, lambda v: f"n is {v['one']['n']}.", draw)))

    def test_text_or_json(self):
        self.assertEqual(self.answer({"one": {"n": 2}}), (0, "n is 2.\n", ""))
        status, out, err = self.answer({"one": {"n": 2.5}, "two": {"rows": [1, None, "é"]}}, json=True, plot=None)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(
            parse_json(out),
            {"ran_with": {"model": "embedded", "seed": 3}, "one": {"n": 2.5}, "two": {"rows": [1, None, "é"]}},
        )

    def test_what_is_no_number_is_null_with_a_reason(self):
        out = self.answer({"one": {"n": math.nan, "rows": [{"a": 1.0}, {"a": -math.inf}]}}, json=True)[1]
        value = parse_json(out)
        self.assertEqual(value["one"], {"n": None, "rows": [{"a": 1.0}, {"a": None}]})
        self.assertEqual(value["not_finite"], ["one.n: nan", "one.rows[1].a: -inf"])
        self.assertNotIn("not_finite", finite({"n": 1.0}))

    def test_a_figure_is_drawn_of_the_same_values(self):
        drawn, path = [], self.folder / "a.svg"

        def draw(values, where):
            drawn.append((values, where))

        values = {"one": {"n": 2}}
        self.assertEqual(self.answer(values, draw, plot=path)[1], f"n is 2.\n\nplot: {path}\n")
        self.assertNotIn("plot", self.answer(values, draw, plot=path, json=True)[1])
        self.assertEqual(drawn, [(values, path)] * 2)
        self.assertEqual(self.answer(values, draw, plot=None)[1], "n is 2.\n")

    def test_a_figure_that_cannot_be_drawn_prints_nothing(self):
        def draw(values, where):
            raise BadInput("no room")

        self.assertEqual(self.answer({"one": {"n": 2}}, draw, plot=self.folder / "a.svg"), (2, "", "error: no room\n"))


class Json(FolderCase):
    def test_writing_refuses_what_is_not_json(self):
        for value in (float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                dump_json({"a": value})
        for value in (np.float32(1.5), np.int64(3), torch.tensor(1.5)):
            with self.assertRaises(TypeError):
                dump_json({"a": value})
        self.assertEqual(parse_json(dump_json({"b": [1, 2.5, None], "a": "ü"})), {"b": [1, 2.5, None], "a": "ü"})

    def test_reading_refuses_it_too(self):
        for text in (
            '{"a": NaN}',
            '{"a": Infinity}',
            '{"a": -Infinity}',
            '{"a": 1, "a": 2}',
            '[{"a": 1, "a": 1}]',
            "",
            "[" * 100_000,
        ):
            with self.assertRaises(ValueError):
                parse_json(text)

    def test_read_json_names_the_file(self):
        path = self.folder / "x.json"
        for data in (None, b"[1]", b"{", b"\xff"):
            if data is not None:
                path.write_bytes(data)
            with self.assertRaisesRegex(BadInput, "x.json"):
                read_json(path)


class Files(FolderCase):
    def test_whole_or_not_at_all(self):
        path = self.folder / "a.txt"
        write_whole(path, "one")
        write_whole(path, b"two")
        self.assertEqual(path.read_text(), "two")
        with self.assertRaises(TypeError):
            write_whole(path, None)
        with self.assertRaisesRegex(BadInput, "d.txt cannot be written"):
            (self.folder / "d.txt").mkdir()
            write_whole(self.folder / "d.txt", "x")
        (self.folder / "d.txt").rmdir()
        self.assertEqual((path.read_text(), os.listdir(self.folder)), ("two", ["a.txt"]))

    @unittest.skipUnless(hasattr(signal, "SIGKILL"), "kills a process outright, which this system cannot do")
    def test_killed_half_way(self):
        """A process that writes two large texts in turn is killed at some moment: the file holds one or the other."""
        path = self.folder / "a.txt"
        code = (
            "import sys; from examples.lab.script import write_whole\n"
            "while True:\n    for c in 'ab': write_whole(sys.argv[1], c * 3_000_000)"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT)
        while not path.exists() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        text = path.read_text()
        self.assertIn(text, ("a" * 3_000_000, "b" * 3_000_000))

    def test_table(self):
        self.assertEqual(table(["a", "n"], [["x", "1,234"], ["yy", 5]]).splitlines()[2:], ["x    1,234", "yy       5"])


class ClosedPipe(unittest.TestCase):
    def test_an_interrupt_stays_one(self):
        """Ctrl-C, and nobody left to read what is said about it: 130 all the same; a closed pipe alone is no failure."""

        def after_interrupt(argv):
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise BrokenPipeError  # noqa: B904  as a print in the handler would

        def alone(argv):
            raise BrokenPipeError

        with mock.patch.object(os, "dup2"), mock.patch("sys.stdout", mock.Mock(fileno=lambda: 1)):
            self.assertEqual([command(body)([]) for body in (after_interrupt, alone)], [130, 0])


if __name__ == "__main__":
    unittest.main()
