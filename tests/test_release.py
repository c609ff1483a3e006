"""A release for students, in an empty folder: its README is followed, one exercise is solved and its check passes, a mistake is
named, its own tests pass, and no answer is found in it, by whatever search."""

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

from scripts import grade as script
from scripts.grading import release
from scripts.grading.answers import answers, key
from scripts.grading.exercises import ROOT, exercise, exercises, of_chapters
from scripts.grading.keys import read_key, write_key
from tests.support import FolderCase, slow

CHAPTER = "ch04"
LEAST = 24  # characters of a line that gives something away; shorter ones, `return x`, stand anywhere


def given_away(of):
    """Lines and phrases of an exercise's answers that no release may hold: of its solution, its mutants, its rubric and ranges."""
    found = answers(of)
    lines = {line.strip() for text in (found.solution, *(m.new for m in found.mutants)) for line in text.splitlines()}
    lines |= {line.strip() for line in found.get("RUBRIC", "").splitlines()}
    lines |= {f"({low}, {high})" for low, high in found.get("RANGES", {}).values()} | {m.message for m in found.mutants}
    starters = of.source + "\n".join(e.source for e in exercises())
    return {line for line in lines if len(line) >= LEAST and line not in starters}


class Release(FolderCase):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "for students"
        self.found = of_chapters([CHAPTER])

    def run_here(self, *command, status=0):
        """What a command prints in the release, which has nothing of ours in its environment."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, cwd=self.out, capture_output=True, text=True, env=environment)
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    @slow
    def test_a_student_follows_the_readme(self):
        release.release(self.found, self.out)
        readme = (self.out / "README.md").read_text(encoding="utf-8")
        first, second = re.findall(r"^make (\S+) EX=(\S+)", readme, re.M)
        self.assertEqual((first[0], second[0], first[1]), ("exercise", "exercise-check", second[1]))
        of = exercise(first[1])
        python, program = sys.executable, "scripts/exercise.py"
        makefile = (self.out / "Makefile").read_text(encoding="utf-8")
        for target, what in (("exercise", "start"), ("exercise-check", "check")):
            self.assertIn(f"$(RUN) {program} {what} $(EX)", re.search(rf"(?m)^{target}: .*\n.*", makefile)[0])
        self.assertIn(of.title, self.run_here(python, program, "list"))
        self.run_here(python, program, "start", of.id)
        mine = self.out / "my" / CHAPTER / of.file("code")
        self.assertEqual(mine.read_text(encoding="utf-8"), of.source)
        self.run_here(python, program, "start", of.id, status=2)
        mine.write_text(answers(of).mutants[0].of(answers(of).solution), encoding="utf-8")
        self.assertIn(answers(of).mutants[0].message, self.run_here(python, program, "check", of.id, status=1))
        mine.write_text(answers(of).solution, encoding="utf-8")
        self.assertRegex(self.run_here(python, program, "check", of.id), r"(\d+) of \1 checks passed")
        self.run_here(python, "-m", "unittest", "discover", "-s", "tests", "-t", ".")

    def test_no_answer_is_in_it(self):
        everything = exercises()
        release.release(everything, self.out)
        files = {path: path.read_bytes() for path in self.out.rglob("*") if path.is_file()}
        self.assertGreater(len(files), 20)
        for path in files:
            self.assertFalse({"answers", "answers.py", "content", "research"} & set(path.relative_to(self.out).parts), path)
            self.assertFalse(path.name.endswith("_checks.py"), path)
        text = b"\0".join(files.values())
        for of in everything:
            self.assertEqual([phrase for phrase in given_away(of) if phrase.encode() in text], [], of.id)

    def test_a_key_tells_no_value(self):
        """Taken apart, a key holds inputs, digests and words for mistakes: no line of a solution, and no number that it returns."""
        release.release(self.found, self.out)
        for of in self.found:
            path = self.out / "scripts" / "keys" / CHAPTER / f"{of.name}.key"
            content, found = zlib.decompress(path.read_bytes()), read_key(path)
            messages = {m.message for m in answers(of).mutants}
            for phrase in given_away(of) - messages:
                self.assertNotIn(phrase.encode(), content)
            for check, digest in found.expected.items():
                self.assertLess(len(digest.projections) + 1, digest.count, (of.id, check))
            self.assertEqual(found.rubric, "")

    def test_a_key_comes_back_as_it_was(self):
        for of in self.found:
            made, path = key(of, 3), self.folder / "a.key"
            write_key(made, path)
            self.assertEqual(read_key(path).expected, made.expected)
            self.assertEqual(read_key(path).checks, made.checks)
        for damaged in (b"", path.read_bytes()[:-20], b"x" * 100):
            path.write_bytes(damaged)
            with self.assertRaisesRegex(ValueError, "no key"):
                read_key(path)

    def test_where_it_may_not_go(self):
        (self.folder / "full").mkdir()
        (self.folder / "full" / "file").write_text("here")
        for out in (self.folder / "full", self.folder / "full" / "file", ROOT / "release"):
            self.assertBad(script.main, ["release", "--chapters", CHAPTER, "--out", out], str(out))
        self.assertEqual((self.folder / "full" / "file").read_text(), "here")

    def test_a_starter_that_imports_an_answer_is_refused(self):
        for path in release.files(self.found):
            self.assertTrue((ROOT / path).is_file(), path)
        self.assertIn("examples/lab/script.py", release.files(self.found))
        self.assertFalse([p for p in release.files(self.found) if Path(p).parts[:2] == ("scripts", "answers")])
        self.assertTrue(release.imported("scripts/grade.py") & {"scripts/grading/answers.py"})


if __name__ == "__main__":
    import unittest

    unittest.main()
