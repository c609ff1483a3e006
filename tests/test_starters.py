"""What a reader starts from: each starter can be imported, fails every check with the same words, and breaks nothing.

A release for students carries this file, so it uses nothing that a release leaves out.
"""

import ast
import unittest

from scripts.exercise import key_of
from scripts.grading.exercises import exercises
from scripts.grading.runner import module_of, results
from scripts.grading.verdict import OPEN, judge


class Starters(unittest.TestCase):
    def test_each_can_be_imported_and_does_no_work(self):
        for of in exercises():
            with self.subTest(of.id):
                module = module_of(of.source, of.name)
                self.assertEqual(module.EXERCISE["id"], of.id)
                allowed = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef)
                self.assertEqual([n for n in ast.parse(of.source).body if not isinstance(n, allowed)], [])

    def test_each_fails_every_check(self):
        for of in exercises():
            with self.subTest(of.id):
                key = key_of(of)
                request = {"name": of.name, "source": of.source, "driver": key.driver, "calls": key.calls}
                verdicts = judge(key, list(results(request)))
                self.assertEqual([v.check for v in verdicts], key.checks)
                self.assertLessEqual({(v.passed, v.message) for v in verdicts}, {(False, OPEN)})


if __name__ == "__main__":
    unittest.main()
