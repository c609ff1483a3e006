"""The checks of the exercises are proven: each solution passes, each known mistake fails with the message meant for it, and what a
reader starts from fails every check and breaks nothing. `LAB_EXERCISE=ch04.2` tests one exercise alone."""

import os
import unittest

from scripts.grading.answers import answers, key
from scripts.grading.exercises import exercise, exercises
from scripts.grading.runner import carried, results
from scripts.grading.verdict import OPEN, judge

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


if __name__ == "__main__":
    unittest.main()
