"""A chapter's `exact` and `tolerance` records, measured again: what each chapter's evidence test shares."""

from scripts import evidence
from scripts.registry import EXPERIMENTS, measure_by_id
from tests.support import ROOT, agreement_at_size

MODELS = evidence.Models()


def of(chapter):
    """{id: record} of a chapter, as they stand in the repository."""
    return evidence.read_results(evidence.results_path(ROOT, chapter))


def again(id):
    """The values of an experiment measured now, on its own model."""
    if id == "ch04.agreement-at-size":
        return evidence.plain(agreement_at_size())
    experiment = next(e for e in EXPERIMENTS if e.id == id)
    model = MODELS.get(experiment.model) if experiment.loads else None
    return evidence.plain(measure_by_id(id, model))


def without_worst(values):
    """A tolerance's values but for the worst one seen, which is this machine's."""
    return {key: value for key, value in values.items() if key != "worst"}


class MeasuredAgain:
    """Mixed into a test case that says which chapter it is of, and how many records of each kind there are at least."""

    chapter, exact, tolerance = None, 1, 1

    def ids(self, kind):
        return sorted(e.id for e in EXPERIMENTS if e.chapter == self.chapter and e.kind == kind)

    def test_exact(self):
        self.assertGreaterEqual(len(self.ids("exact")), self.exact)
        for id in self.ids("exact"):
            with self.subTest(id):
                self.assertEqual(again(id), of(self.chapter)[id]["values"])

    def test_tolerance(self):
        self.assertGreaterEqual(len(self.ids("tolerance")), self.tolerance)
        for id in sorted(self.ids("tolerance"), key=lambda id: of(self.chapter)[id]["model"]):
            with self.subTest(id):
                found = again(id)
                self.assertTrue(found["held"], found)
                self.assertLessEqual(found["worst"], found["bound"])
                self.assertEqual(without_worst(found), without_worst(of(self.chapter)[id]["values"]))
