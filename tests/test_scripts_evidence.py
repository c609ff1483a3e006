"""The records: strict JSON both ways, a schema, written whole, one at a time, and only what may change changes."""

import json
import subprocess
import sys
import unittest
from dataclasses import replace
from unittest import mock

import numpy as np
import torch

from examples.lab.experiment import Experiment, above, rounded, sig
from examples.lab.script import BadInput
from scripts import evidence
from scripts.registry import CLAIMS, EXPERIMENTS
from tests.support import ROOT, FolderCase, call

ONE = Experiment("ch98.one", "exact", "One is one.", "Nothing else.", lambda model: {"n": 1}, model="none", loads=False)
SEEN = replace(ONE, id="ch98.seen", kind="observation", measure=lambda model: {"x": np.float32(1.5), "t": torch.tensor(2)})
NEAR = replace(ONE, id="ch98.near", kind="tolerance", measure=lambda model: {"bound": 1.0, "worst": 0.5, "held": True})
TINY = replace(
    ONE, id="ch98.tiny", model="embedded", loads=True, measure=lambda model: {"parameters": model.manifest["parameters"]}
)


class EvidenceCase(FolderCase):
    def setUp(self):
        super().setUp()
        self.use([ONE, SEEN, NEAR, TINY])

    def use(self, experiments):
        """Let the registry be `experiments`."""
        patch = mock.patch.object(evidence, "EXPERIMENTS", tuple(experiments))
        patch.start()
        self.addCleanup(patch.stop)

    @property
    def path(self):
        return evidence.results_path(self.folder, "ch98")

    def update(self, *experiments, **options):
        return evidence.update(list(experiments), root=self.folder, **options)


class Records(EvidenceCase):
    def test_what_a_record_holds(self):
        self.update(ONE, SEEN, NEAR, TINY)
        records = evidence.read_results(self.path)
        self.assertEqual(list(records), ["ch98.near", "ch98.one", "ch98.seen", "ch98.tiny"])
        for key, record in records.items():
            dated = key == "ch98.seen"
            self.assertEqual(set(record), set(evidence.FIELDS) | (set(evidence.DATED_FIELDS) if dated else set()))
            self.assertEqual(record["command"], f"make evidence ONLY={key}")
        self.assertEqual(records["ch98.seen"]["values"], {"x": 1.5, "t": 2})
        self.assertLessEqual({"processor", "cores", "python", "torch", "transformers"}, records["ch98.seen"]["machine"].keys())
        self.assertEqual(len(records["ch98.tiny"]["model_sha256"]), 64)

    def test_strict_both_ways(self):
        self.update(ONE)
        good = self.path.read_text()
        for bad in (
            good.replace('"n": 1', '"n": NaN'),
            good.replace('"n": 1', '"n": 1, "n": 2'),
            good.replace('"exact"', '"certain"'),
            good.replace('"limits": "Nothing else."', '"limits": ""'),
            good.replace('"seed": 0,', ""),
            good.replace('"seed": 0,', '"seed": 0, "mood": "good",'),
            good.replace('"n": 1', ""),
            good.replace('"exact"', '"tolerance"'),
            good.replace('"exact"', '"timing"'),
            good.replace('"results"', '"outcomes"'),
            json.dumps({"chapter": "ch98", "results": json.loads(good)["results"] * 2}),
            "[]",
            "",
        ):
            self.path.write_text(bad)
            with self.assertRaisesRegex(BadInput, "results.json"):
                evidence.read_results(self.path)
        for value in (float("nan"), float("inf"), np.float64("nan"), torch.tensor(float("inf"))):
            with self.assertRaises(ValueError):
                evidence.plain({"a": [value]})
        with self.assertRaises(TypeError):
            evidence.plain({"a": torch.ones(2, 2).numpy})

    def test_plain(self):
        value = evidence.plain({"a": np.int64(3), "b": (torch.tensor(True), None), "c": np.float32(0.5), "d": "x"})
        self.assertEqual(value, {"a": 3, "b": [True, None], "c": 0.5, "d": "x"})
        self.assertEqual([type(value["a"]), type(value["b"][0]), type(value["c"])], [int, bool, float])

    def test_significant_digits(self):
        self.assertEqual([sig(x) for x in (1234.5, 0.00012345, -9.876, 0.0, None)], [1230.0, 0.000123, -9.88, 0.0, None])
        self.assertEqual(sig(6.8e-7, 1), 7e-7)
        self.assertEqual(
            [above(x) for x in (1.37e-7, 6.8e-7, 9.2e-7, 2e-6, 1.0, 1.01, 0.0, 0)], [2e-7, 7e-7, 1e-6, 2e-6, 1.0, 2.0, 0.0, 0]
        )
        self.assertEqual(rounded([{"a": 1.23456, "b": 7, "c": "x"}], 2), [{"a": 1.2, "b": 7, "c": "x"}])


class Rerunning(EvidenceCase):
    def test_only_what_may_change_changes(self):
        self.update(ONE, SEEN, NEAR)
        first = self.path.read_bytes()
        with mock.patch.object(evidence, "commit", return_value="another"):
            rows = self.update(ONE, SEEN, NEAR)
        self.assertEqual([change for _, change, _ in rows], ["same"] * 3)
        self.assertEqual(self.path.read_bytes(), first)
        other = replace(SEEN, measure=lambda model: {"x": 1.6, "t": 2})
        self.assertEqual([change for _, change, _ in self.update(ONE, other, NEAR)], ["same", "changed", "same"])
        with mock.patch.object(evidence, "machine", return_value={"processor": "another"}):
            self.assertEqual([change for _, change, _ in self.update(other)], ["changed"])

    def test_one_experiment_leaves_the_others(self):
        self.update(ONE, SEEN)
        before = evidence.read_results(self.path)
        self.update(replace(ONE, measure=lambda model: {"n": 2}))
        after = evidence.read_results(self.path)
        self.assertEqual(after["ch98.seen"], before["ch98.seen"])
        self.assertEqual(after["ch98.one"]["values"], {"n": 2})

    def test_another_model_stands_beside(self):
        from examples.ch02.model import EMBEDDED

        self.update(TINY)
        before = evidence.read_results(self.path)
        self.update(TINY, model=str(EMBEDDED))
        after = evidence.read_results(self.path)
        self.assertEqual(after["ch98.tiny"], before["ch98.tiny"])
        beside = after[f"ch98.tiny@{EMBEDDED}"]
        self.assertEqual(beside["command"], f"make evidence ONLY=ch98.tiny MODEL={EMBEDDED}")

    def test_what_the_registry_no_longer_has_goes(self):
        self.update(ONE, SEEN)
        self.use([ONE])
        self.update(ONE)
        self.assertEqual(list(evidence.read_results(self.path)), ["ch98.one"])

    def test_a_run_that_breaks_off_leaves_the_old_file(self):
        self.update(ONE)
        before = self.path.read_bytes()

        def stop(model):
            raise KeyboardInterrupt

        changed = replace(ONE, measure=lambda model: {"n": 2})
        with self.assertRaises(KeyboardInterrupt):
            self.update(changed, replace(SEEN, measure=stop))
        with self.assertRaises(ValueError):
            self.update(changed, replace(SEEN, measure=lambda model: {"x": float("nan")}))
        self.assertEqual(self.path.read_bytes(), before)
        self.assertEqual([p.name for p in self.path.parent.iterdir()], ["results.json"])

    def test_two_at_once(self):
        code = (
            "import sys; from scripts import evidence\n"
            "with evidence.only_one(sys.argv[1]):\n    print('in', flush=True); sys.stdin.read()"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.assertEqual(other.stdout.readline(), b"in\n")
        with self.assertRaisesRegex(BadInput, "another make evidence"), evidence.only_one(self.folder):
            pass
        other.kill()  # a process that dies leaves no lock behind
        other.communicate()
        with evidence.only_one(self.folder):
            pass


class Options(EvidenceCase):
    def test_choosing(self):
        every = [ONE, SEEN, replace(TINY, id="ch97.tiny"), replace(ONE, id="ch97.fixed", movable=False)]
        choose = lambda *args: [e.id for e in evidence.choose(*args, experiments=every)]  # noqa: E731
        self.assertEqual(choose(), [e.id for e in every])
        self.assertEqual(choose("ch97"), ["ch97.tiny", "ch97.fixed"])
        self.assertEqual(choose(None, ["ch98.seen"]), ["ch98.seen"])
        self.assertEqual(choose("ch97", None, "somebody/model"), ["ch97.tiny"])
        for args, word in ((("ch50",), "ch50"), ((None, ["ch98.none"]), "ch98.none"), ((None, ["ch97.fixed"], "x"), "ch97.fixed")):
            with self.assertRaisesRegex(BadInput, word):
                evidence.choose(*args, experiments=every)

    def test_script(self):
        status, out, err = call(evidence.main, "--list")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("ch98.one", out)
        self.assertBad(evidence.main, ["--only", "ch04.nothing"], "ch04.nothing", "evidence-list")
        self.assertBad(evidence.main, ["--chapter", "4"], "'4'", "there are")

    def test_a_model_that_is_not_installed_is_told_at_once(self):
        ran = []
        real = replace(ONE, id="ch98.real", model="smollm2", loads=True)
        self.use([replace(ONE, measure=lambda model: ran.append(1) or {"n": 1}), real])
        absent = BadInput("smollm2: the package is not installed here; run `make real-model`")
        with mock.patch.object(evidence, "smollm2_file", side_effect=absent):
            self.assertBad(evidence.main, [], "make real-model")
        self.assertEqual(ran, [])


class Registry(unittest.TestCase):
    def test_every_entry_is_whole(self):
        ids = [e.id for e in EXPERIMENTS] + [c.id for c in CLAIMS]
        self.assertEqual(len(ids), len(set(ids)))
        for e in EXPERIMENTS:
            self.assertIn(e.kind, evidence.KINDS)
            self.assertTrue(e.claim.endswith(".") and e.limits.endswith("."), e.id)
            self.assertRegex(e.id, r"^ch\d\d\.[a-z0-9-]+$")
        for c in CLAIMS:
            self.assertIn(c.status, ("hypothesis", "not shown here"))
            self.assertLessEqual(set(c.evidence), {e.id for e in EXPERIMENTS})


if __name__ == "__main__":
    unittest.main()
