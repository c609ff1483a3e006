"""Refreshing: what is made from records and code follows them, and what cannot be made is left as it is, and named."""

import unittest
from unittest import mock

from scripts import evidence, refresh
from scripts.register import register_path
from tests.small_book import ONE, SmallBook
from tests.support import call


class Refreshing(SmallBook):
    def test_all_of_it(self):
        before = {
            p: p.read_bytes() for p in (self.chapter, register_path(self.folder), self.folder / "research/ch98/figures/seen.svg")
        }
        self.replace(self.chapter, ">1,234<", ">1,235<")
        self.replace(self.chapter, "|      128 |", "|      129 |")
        self.replace(self.chapter, "return y.add_", "return y.sub_")
        self.replace(self.chapter, "mat              4.0", "mat              4.1")
        for path in list(before)[1:]:
            path.unlink()
        self.assertEqual(refresh.refresh(self.folder), [])
        self.assertEqual({p: p.read_bytes() for p in before}, before)

    def test_what_names_nothing_stays(self):
        self.replace(self.chapter, "=ch98.time run_ms ms1-->12.3 ms", "=ch98.time walk_ms ms1-->9.9 ms")
        self.replace(self.chapter, "gpt2_from_scratch.py linear-->", "gpt2_from_scratch.py quadratic-->")
        self.replace(self.chapter, "| 1-3,7-", "| 1-3,700-")
        before = self.chapter.read_text()
        code, run = refresh.refresh(self.folder)
        self.assertIn("there is no 'quadratic'", code.what)
        self.assertIn("line 700 is asked for", run.what)
        for problem in (code, run):
            self.assertIn("<!--", before.split("\n")[problem.line - 1])
        self.assertEqual(self.chapter.read_text(), before)

    def test_a_command_is_run_twice_however_often_it_is_shown(self):
        marker = "<!--run python examples/ch05/bigram.py--><!--/-->"
        self.replace(self.chapter, "Text.", f"{marker}\n\n{marker}\n")
        readme = self.folder / "README.md"
        readme.write_text(f"{readme.read_text()}\n{marker}\n")
        with mock.patch("examples.ch05.bigram.main", side_effect=lambda argv: print("x") or 0) as main:
            self.assertEqual(refresh.refresh(self.folder), [])
        self.assertEqual(main.call_count, 2)
        self.assertIn("```text\nx\n```", readme.read_text())

    def test_the_script(self):
        with mock.patch.object(refresh, "ROOT", self.folder):
            self.assertEqual(call(refresh.main)[0], 0)
            self.replace(self.chapter, "gpt2_from_scratch.py linear-->", "gpt2_from_scratch.py quadratic-->")
            status, out, err = call(refresh.main)
        self.assertEqual((status, len(err.splitlines())), (2, 1))
        self.assertIn("quadratic", out)

    def test_evidence_refreshes_at_its_end(self):
        self.replace(self.chapter, "return y.add_", "return y.sub_")
        with mock.patch.object(evidence, "ROOT", self.folder):
            self.assertEqual(call(evidence.main, "--only", ONE.id)[0], 0)
            self.assertIn("return y.add_", self.chapter.read_text())
            self.replace(self.chapter, "gpt2_from_scratch.py linear-->", "gpt2_from_scratch.py quadratic-->")
            status, out, err = call(evidence.main, "--only", ONE.id)
        self.assertEqual((status, len(err.splitlines())), (2, 1))
        self.assertIn("quadratic", out)


if __name__ == "__main__":
    unittest.main()
