"""The median of timed runs, and what says of made-up runs that the machine was busy; nothing here takes time."""

import contextlib
import importlib
import io
import unittest
from types import SimpleNamespace
from unittest import mock

from examples.lab import experiment, timing
from examples.lab.environment import processor
from examples.lab.experiment import far_from_record
from examples.lab.script import answer, dump_json
from examples.lab.timing import busy, in_turns, median_after, warn_if_busy
from tests.support import FolderCase

QUIET = [0.100, 0.101, 0.102, 0.101, 0.100]
BUSY = [0.100, 0.151, 0.102, 0.160, 0.180]


class Spread(unittest.TestCase):
    def setUp(self):
        timing._timed.clear()
        patch = mock.patch("os.getloadavg", return_value=(0.0, 0.0, 0.0), create=True)
        self.load = patch.start()
        self.addCleanup(patch.stop)

    def said(self, call, *args):
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            call(*args)
        return err.getvalue()

    def test_median(self):
        self.assertEqual(median_after([100.0, 1.0, 3.0, 2.0]), 2.0)
        self.assertEqual(median_after([100.0, 50.0, 3.0], discarded=2), 3.0)

    def test_runs_that_differ(self):
        self.assertEqual(busy([QUIET, QUIET]), [])
        self.assertEqual(
            busy([QUIET, BUSY]), ["the middle half of the runs of one thing differ by 38%"]
        )  # 0.102 to 0.160, of 0.151
        self.assertEqual(busy([[*QUIET, 3.0]]), [])  # a median does not mind a single slow run
        self.assertEqual(busy([[x / 1000 for x in BUSY], [0.0, 0.0], [0.2]]), [])  # too short, nothing, one run

    def test_more_processes_than_cores(self):
        self.assertEqual(busy([QUIET], 2.0, 2), [])
        self.assertEqual(busy([QUIET], 7.94, 2), ["7.9 processes wanted to run on 2 cores"])
        self.assertEqual(len(busy([BUSY], 1.5, 1)), 2)
        self.assertEqual(busy([QUIET], None, 2), [])  # a system that does not tell
        self.assertEqual(busy([QUIET], 3.0, None), [])

    def test_the_note_is_one_line_and_of_the_runs_since_the_last(self):
        median_after([9.0, *QUIET])
        median_after([9.0, *BUSY])
        note = self.said(warn_if_busy)
        self.assertEqual(len(note.splitlines()), 1)
        self.assertTrue(note.startswith("note: the machine was busy") and note.endswith(".\n"), note)
        self.assertIn("differ by 38%", note)
        self.assertEqual(self.said(warn_if_busy), "")
        median_after([9.0, *QUIET])  # the first is discarded
        self.assertEqual(self.said(warn_if_busy), "")
        self.load.return_value = (99.0, 0.0, 0.0)
        self.assertEqual(self.said(warn_if_busy), "")  # nothing was timed
        median_after([9.0, *QUIET])
        with mock.patch("os.cpu_count", return_value=4):
            self.assertIn("99.0 processes wanted to run on 4 cores", self.said(warn_if_busy))

    def test_every_answer_says_it_on_stderr(self):
        """A script cannot forget it; with --json too, and stdout stays JSON alone."""
        for json in (True, False):
            median_after([9.0, *BUSY])
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                answer(SimpleNamespace(json=json), {"a": {"n": 1}}, lambda values: "It is one.")
            self.assertIn("differ by 38%", err.getvalue())
            self.assertEqual(out.getvalue(), dump_json({"ran_with": {}, "a": {"n": 1}}) if json else "It is one.\n")
        self.assertIn("far away", self.said(answer, SimpleNamespace(json=True), {}, str, None, ["far away"]))

    def test_each_script_that_times_hands_its_runs_over(self):

        for name in (
            "ch04.last_position",
            "ch10.cache_cost",
            "ch10.decode_rate",
            "ch01.estimate",
            "ch04.component_timing",
        ):
            self.assertIs(importlib.import_module(f"examples.{name}").median_after, median_after, name)
        for name in ("ch14.decode_times", "ch11.machine"):  # these leave the median to `in_turns`
            self.assertIs(importlib.import_module(f"examples.{name}").in_turns, in_turns, name)


class Record(FolderCase):
    def setUp(self):
        super().setUp()
        self.args = SimpleNamespace(model="smollm2", threads=1)
        self.record = {
            **{"id": "ch98.decode", "model": "smollm2", "threads": 1, "machine": {"processor": processor()}},
            "values": {"gflop_per_s": 60.0, "gb_per_s": 10.0, "runs": 9},
        }
        self.write(self.record)

    def write(self, *records):
        path = self.folder / "research" / "ch98" / "results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dump_json({"chapter": "ch98", "results": [{"id": "ch98.other"}, *records]}))

    def far(self, **values):
        return far_from_record("ch98.decode", self.args, values, self.folder)

    def test_a_rate_far_from_it(self):
        self.assertEqual(self.far(gflop_per_s=41.0, gb_per_s=14.0, runs=1, more_per_s=9.0), [])
        self.assertEqual(self.far(gflop_per_s=20.0, gb_per_s=10.0), ["gflop_per_s is 20, and 60 in the record ch98.decode"])
        self.assertEqual(len(self.far(gflop_per_s=100.0, gb_per_s=3.0)), 2)

    def test_another_machine_model_or_setting_says_nothing(self):
        for changes in ({"model": "embedded"}, {"threads": 2}, {"machine": {"processor": "another"}}, {"id": "ch98.more"}):
            self.write(self.record | changes)
            self.assertEqual(self.far(gflop_per_s=1.0), [], changes)
        self.assertEqual(far_from_record("ch97.decode", self.args, {"gflop_per_s": 1.0}, self.folder), [])

    def test_the_records_of_the_book_have_such_rates(self):
        """Each that a script names, by its id, on whichever processor it was made."""
        for id, keys in (
            ("ch14.decode", {"gflop_per_s", "gb_per_s"}),
            ("ch10.decode", {"ours_per_s", "library_per_s", "floor_per_s"}),
            ("ch10.time", {"naive_gflop_per_s", "cached_gflop_per_s"}),
        ):
            [record] = [
                r
                for r in experiment.read_json(experiment.ROOT / "research" / id[:4] / "results.json")["results"]
                if r["id"] == id and r["model"] in ("smollm2", "random:gpt2")
            ]
            args = SimpleNamespace(model=record["model"], threads=record["threads"])
            with mock.patch.object(experiment, "processor", return_value=record["machine"]["processor"]):
                self.assertEqual(far_from_record(id, args, record["values"]), [])
                self.assertEqual(len(far_from_record(id, args, dict.fromkeys(keys, 1e-9))), len(keys))


if __name__ == "__main__":
    unittest.main()
