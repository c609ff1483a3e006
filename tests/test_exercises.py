"""The checks of the exercises are proven: each solution passes, each known mistake fails with the message meant for it, and what a
reader starts from fails every check and breaks nothing. `LAB_EXERCISE=ch04.2` tests one exercise alone."""

import copy
import json
import math
import os
import subprocess
import sys
import unittest

import torch

from examples.lab.script import BadInput
from scripts import exercise as script
from scripts.check import check_exercises
from scripts.grading.answers import answers, key
from scripts.grading.exercises import ROOT, exercise, exercises, section, start
from scripts.grading.keys import place_of, range_key
from scripts.grading.runner import carried, results
from scripts.grading.values import digest
from scripts.grading.verdict import OPEN, judge
from tests.support import FolderCase, slow

ONE = os.environ.get("LAB_EXERCISE")
EXERCISES = [exercise(ONE)] if ONE else exercises()
WITH_CODE = [e for e in EXERCISES if "code" in e.points]
SEEDS = (0, 1)
MUTANTS = 5  # of an exercise with code, at least


def verdicts(of, source, seed=0):
    """The verdicts on a source of ours, which runs in this process."""
    known = key(of, seed)
    rows = results({"name": of.name, "source": source, "driver": known.driver, "calls": known.calls})
    return judge(known, [r | {"value": carried(r["value"])} if "value" in r else r for r in rows])


class Matrix(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)

    def test_every_solution_passes_on_every_seed(self):
        for of in WITH_CODE:
            with self.subTest(of.id):
                for seed in SEEDS:
                    found = verdicts(of, answers(of).solution, seed)
                    self.assertGreaterEqual(len(found), 1)
                    self.assertEqual([v for v in found if not v.passed], [])

    def test_other_seeds_have_other_inputs(self):
        for of in WITH_CODE:
            with self.subTest(of.id):
                first, second = (key(of, seed) for seed in SEEDS)
                self.assertNotEqual(first.fingerprint(), second.fingerprint())
                self.assertEqual(first.checks, second.checks)

    def test_every_mutant_fails_with_its_message(self):
        for of in WITH_CODE:
            with self.subTest(of.id):
                mutants = answers(of).mutants
                self.assertGreaterEqual(len(mutants), MUTANTS)
                self.assertEqual(len({m.message for m in mutants}), len(mutants))
                for mutant in mutants:
                    for seed in SEEDS:
                        failed = [v for v in verdicts(of, mutant.of(answers(of).solution), seed) if not v.passed]
                        self.assertTrue(failed, f"{mutant.message!r} passes with seed {seed}")
                        self.assertTrue(all(v.message.endswith(mutant.message) for v in failed), (mutant.message, failed))

    def test_every_starter_fails_every_check(self):
        for of in WITH_CODE:
            with self.subTest(of.id):
                self.assertEqual({(v.passed, v.message) for v in verdicts(of, of.source)}, {(False, OPEN)})


class Whole(unittest.TestCase):
    def test_every_exercise_has_what_its_parts_want(self):
        for of in EXERCISES:
            with self.subTest(of.id):
                known = key(of, 0)
                self.assertEqual("code" in of.points, bool(known.calls))
                self.assertEqual("paragraph" in of.points, bool(known.rubric))
                self.assertIn("*Hand in:*", of.text)
                self.assertIn("*A right answer shows*", of.text)
                self.assertTrue(all(points > 0 for points in of.points.values()))


class Digests(unittest.TestCase):
    """What a check notices, of values that it never keeps."""

    def same(self, a, b, tolerance=1e-4):
        first, second = (digest([{"value": v} for v in values], "salt") for values in (a, b))
        self.assertEqual(first.same(second, tolerance), second.same(first, tolerance))
        return first.same(second, tolerance)

    def test_one_wrong_number_among_many_is_seen(self):
        for shape in ((9,), (2, 3, 4), (40, 500)):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)
            self.assertTrue(self.same([x, x], [x, x * (1 + 1e-6)]))
            for change in (0.1, -1.0, math.inf, -math.inf, math.nan):
                y = x.clone()
                y.view(-1)[-1] += change
                self.assertFalse(self.same([x, x], [x, y]), change)
            self.assertFalse(self.same([x], [x.flip(0)]))
            self.assertFalse(self.same([x], [x.float()]))
            self.assertFalse(self.same([x], [x[None]]))

    def test_whole_numbers_and_texts_are_exact(self):
        for a, b in (
            ([10**9, 5], [10**9, 6]),
            ([{"a": 1, "b": "x"}], [{"a": 1, "b": "y"}]),
            ([["ab", "c"]], [["a", "bc"]]),
            ([[1, 2, 3]], [[1, 3, 2]]),
            ([[1, 2]], [[1, 2, 0]]),
            ([True], [False]),
            ([None], [0]),
            ([torch.arange(9)], [torch.arange(9).flip(0)]),
            ([{"a": [1]}], [{"a": [[1]]}]),
            ([True], [1]),
        ):
            self.assertTrue(self.same(a, copy.deepcopy(a)), a)
            self.assertFalse(self.same(a, b), a)

    def test_an_infinity_is_kept_apart_from_a_zero(self):
        mask = torch.full((4, 4), -math.inf).triu(1)
        self.assertTrue(self.same([mask], [mask.clone()]))
        self.assertFalse(self.same([mask], [torch.zeros(4, 4)]))
        self.assertFalse(self.same([mask], [-mask]))

    def test_numbers_handed_in(self):
        for low, high, inside, outside in (
            (29.15, 29.3, (29.15, 29.2, 29.3), (28.9, 30, -29.2, 0, 1e300, math.nan)),
            (0, 0, (0, 0.0), (1, -1, 7)),
            (131_072, 131_072, (131_072,), (131_071, 131_073, 65_536)),
            (0.25, 0.25, (0.25,), (0.250001, 0.249999)),
            (5, 50_000, (5, 100, 49_999), (-5, 0, 2, 90_000)),
        ):
            grid = range_key(low, high, (), "salt")
            self.assertTrue(all(place_of(x, grid, "salt") in grid["places"] for x in inside), low)
            self.assertFalse(any(place_of(x, grid, "salt") in grid["places"] for x in outside), low)
        grid = range_key(8, 9, [(80, 81, "ten times too large")], "salt")
        self.assertEqual(grid["mistakes"][place_of(80.5, grid, "salt")], "ten times too large")


class Reader(FolderCase):
    """A reader's two commands."""

    def call(self, *argv, status=0):
        ended = subprocess.run([sys.executable, "scripts/exercise.py", *argv], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def test_a_starter_is_never_written_over(self):
        of = next(e for e in exercises() if len(e.points) == 3)
        made = start(of, self.folder)
        self.assertEqual([p.suffix for p in made], [".py", ".json", ".md"])
        self.assertEqual(made[0].read_text(encoding="utf-8"), of.source)
        self.assertEqual(set(json.loads(made[1].read_text())), set(of.numbers))
        made[0].unlink()
        made[2].write_text("mine")
        self.assertBad(script.main, ["start", of.id, "--folder", self.folder], "stays as it is", made[1].name)
        self.assertEqual((made[0].exists(), made[2].read_text()), (False, "mine"))

    @slow
    def test_a_check_tells_the_mistake_and_its_status(self):
        of, mine = exercise("ch04.7"), self.folder / "ch04" / "ex7_rms_norm.py"
        start(of, self.folder)
        mine.write_text(answers(of).mutants[1].of(answers(of).solution))
        told = self.call("check", of.id, "--folder", str(self.folder), status=1)
        self.assertIn(answers(of).mutants[1].message, told)
        self.assertIn("nobody but a reader", told)
        mine.write_text(answers(of).solution)
        self.assertIn("5 of 5 checks passed.", self.call("check", of.id, "--folder", str(self.folder), "--seed", "5"))

    def test_bad_calls(self):
        for argv, words in (
            (["check"], "wants an exercise"),
            (["start", "ch04.99"], "ch04.1"),
            (["start", "nothing"], "there are: ch"),
            (["check", "ch04.7", "--folder", self.folder], "make exercise EX=ch04.7"),
            (["check", "ch04.7", "--file", ROOT / "README.rst"], "nothing that ch04.7 asks for"),
        ):
            self.assertBad(script.main, argv, words)


STARTER = (
    'r"""A title.\n\nDo $a + b$, see `examples/ch04/tour.py`. *Hand in:* it. *A right answer shows* it.\n"""\n\nEXERCISE = HEAD\n'
)
STARTER_HEAD = {"id": "ch98.1", "difficulty": 1, "minutes": 5, "points": {"code": 2}}


class Text(FolderCase):
    """The manuscript's text is the starters'."""

    def write(self, name="ex1_a", text=STARTER, **changes):
        path = self.folder / "examples" / "ch98" / "exercises" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("HEAD", repr({**STARTER_HEAD, **changes})))

    def test_it_is_made_and_checked(self):
        self.write()
        page = self.folder / "content" / "books" / "inference" / "98-chapter.md"
        page.parent.mkdir(parents=True)
        body = section(self.folder, page, "ch98")
        self.assertIn("1. **A title.** (`ch98.1`: difficulty 1 of 3, 5 minutes; code.) Do $a + b$, see", body)
        self.assertIn("[`tour.py`](../../../examples/ch04/tour.py)", body)
        good = f"<!--exercises ch98-->{body}<!--/-->"
        self.assertEqual(check_exercises(self.folder, page, "x", good), [])
        for bad, words in (
            (good.replace("title", "name"), "not what the starters hold"),
            (good.replace("ch98-->", "ch97-->"), "ch97"),
        ):
            self.assertIn(words, check_exercises(self.folder, page, "x", bad)[0].what)

    def test_what_is_no_starter_is_named(self):
        for changes in (
            *({"id": "ch98.2"}, {"difficulty": 4}, {"points": {"song": 1}}, {"points": {"numbers": 1}}, {"numbers": {"a": "b"}}),
            {"points": None},
        ):
            self.write(**changes)
            with self.assertRaisesRegex(BadInput, "is no starter"):
                exercises(self.folder)
        self.write(text="x = 1\n")
        with self.assertRaisesRegex(BadInput, "is no starter"):
            exercises(self.folder)
        self.write()
        self.write("ex1_b")
        with self.assertRaisesRegex(BadInput, "two starters"):
            exercises(self.folder)


if __name__ == "__main__":
    unittest.main()
