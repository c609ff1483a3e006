"""Transcripts: which lines are shown, how a command is run, and which are refused."""

import os
import sys
import types
import unittest
from unittest import mock

import torch

from examples.lab.script import BadInput, Parser, command
from scripts import transcripts
from scripts.transcripts import BODY, call, cut, parsed, transcript, transcript_problem
from tests.support import ROOT

CANDIDATES = "python examples/ch05/five_candidates.py"


class Lines(unittest.TestCase):
    def test_markers(self):
        for spec, found in (
            ("python a.py", ("python a.py", None)),
            ("python a.py --x 'a|b' | 3-14,20-", ("python a.py --x 'a|b'", [(3, 14), (20, None)])),
            ("python a.py | 7", ("python a.py", [(7, 7)])),
            ("python a.py | 1, 3-4", ("python a.py", [(1, 1), (3, 4)])),
        ):
            self.assertEqual(parsed(spec), found)
        for lines in ("0-3", "3-2", "3-4,4-5", "5,4", "3-,5", "x", "-3", "3 - 4"):
            with self.assertRaises(ValueError):
                parsed(f"python a.py | {lines}")

    def test_cutting(self):
        output = "a\nb  \n\nd\n\nf\n\n"
        for ranges, shown in (
            (None, "a\nb\n\nd\n\nf"),
            ([(1, 2)], "a\nb\n..."),
            ([(2, 4)], "...\nb\n\nd\n..."),
            ([(1, 1), (4, None)], "a\n...\nd\n\nf"),
            ([(1, 2), (4, 4), (6, 6)], "a\nb\nd\nf"),
            ([(1, 6)], "a\nb\n\nd\n\nf"),
        ):
            self.assertEqual(cut(output, ranges), shown)
        for ranges in ([(1, 7)], [(8, None)], [(9, 9)]):
            with self.assertRaisesRegex(ValueError, "prints 6 lines"):
                cut(output, ranges)


class Running(unittest.TestCase):
    def plant(self, body, *options):
        """The command of a script whose main is `body(args)`."""
        module = types.ModuleType("examples.planted")

        def parser():
            made = Parser(prog="planted.py")
            return made.add(*options)

        module.options = parser
        module.main = command(lambda argv: body(parser().parse_args(argv)))
        patches = (
            mock.patch.dict(sys.modules, {"examples.planted": module}),
            mock.patch.object(transcripts, "command_problem", return_value=None),
        )
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        return "python examples/planted.py"

    def test_what_is_made(self):
        body = transcript(ROOT, f"{CANDIDATES} | 1-3")
        self.assertEqual(
            body,
            f"\n\n```sh\n{CANDIDATES}\n```\n\n```text\ncandidate      score    probability\n-----------  -------  -------------\n"
            "mat              4.0          68.7%\n...\n```\n\n",
        )
        self.assertIsNone(transcript_problem(ROOT, f"{CANDIDATES} | 1-3", body))

    def test_stdout_alone_in_an_empty_folder_with_one_thread(self):
        seen = {}

        def body(args):
            seen.update(here=os.getcwd(), files=os.listdir(), threads=args.threads, columns=os.environ["COLUMNS"])
            print("an answer")
            print("a note", file=sys.stderr)
            torch.set_num_threads(args.threads)

        before, threads = os.getcwd(), torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, threads)
        torch.set_num_threads(2)
        self.assertEqual(call(self.plant(body, "threads") + " --threads 2"), "an answer\n")
        self.assertEqual((seen["files"], seen["threads"], seen["columns"]), ([], 1, "100"))
        self.assertNotEqual(seen["here"], before)
        self.assertEqual((os.getcwd(), torch.get_num_threads()), (before, 2))
        self.assertFalse(os.path.exists(seen["here"]))

    def test_what_is_refused(self):
        times = iter(range(9))

        def fails(args):
            raise BadInput("it is wrong")

        for body, word in (
            (lambda args: print(f"it took {next(times)} s"), "something else in a second run"),
            (fails, "it fails: error: it is wrong"),
            (lambda args: print(), "prints nothing"),
            (lambda args: print("```"), "cannot be shown"),
            (lambda args: print("<!-- x -->"), "cannot be shown"),
        ):
            with self.assertRaisesRegex(ValueError, word):
                transcript(ROOT, self.plant(body))
        with self.assertRaisesRegex(ValueError, "prints 1 lines"):
            transcript(ROOT, self.plant(lambda args: print("x")) + " | 2-3")
        for spec in ("make run", "cat README.md", f".venv/bin/{CANDIDATES}", "python -c 1", f"{CANDIDATES} --no", "python 'x"):
            with self.assertRaises(ValueError):
                transcript(ROOT, spec)

    def test_help(self):
        self.assertIn("five_candidates.py", call(f"{CANDIDATES} --help"))

    def test_the_blocks(self):
        for good in ("\n\n```sh\nx\n```\n\n```text\na\n\nb\n```\n\n", "\n\n```sh\nx\n```\n\n```text\n  a\n```\n\n"):
            self.assertTrue(BODY.fullmatch(good))
        for bad in (
            "",
            "\n\n```sh\nx\n```\n\n```text\n\n```\n\n",
            "\n\n```text\na\n```\n\n",
            "\n```sh\nx\n```\n\n```text\na\n```\n",
        ):
            self.assertFalse(BODY.fullmatch(bad))


if __name__ == "__main__":
    unittest.main()
