"""Running experiments: what a record holds, what a re-run changes, that a fault loses no more than itself, and that `--check`
writes nothing."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

from examples.ch02.model import EMBEDDED
from examples.lab.script import BadInput, read_json
from scripts import evidence, experiments, records
from tests.small_book import CLAIM, NEAR, ONE, SEEN, TIME, SmallBook
from tests.support import ROOT, call, slow

TINY = replace(
    ONE, id="ch98.tiny", model="embedded", loads=True, measure=lambda model: {"parameters": model.manifest["parameters"]}
)


def finds(experiment, **values):
    """`experiment`, finding `values`."""
    return replace(experiment, measure=lambda: values)


def breaks(experiment, error):
    """`experiment`, raising `error`."""
    return replace(experiment, measure=mock.Mock(side_effect=error))


class Records(SmallBook):
    def test_what_a_record_holds(self):
        self.use(ONE, NEAR, SEEN, TIME, TINY)
        self.update(TINY)
        found = self.records()
        self.assertEqual(list(found), ["ch98.near", "ch98.one", "ch98.seen", "ch98.time", "ch98.tiny"])
        for key, record in found.items():
            dated = key in ("ch98.seen", "ch98.time")
            self.assertEqual(tuple(record), records.FIELDS + (records.DATED_FIELDS if dated else ("versions",)))
            self.assertEqual(record["command"], f"make evidence ONLY={key}")
        self.assertEqual(found["ch98.seen"]["values"]["x"], 1.23)
        self.assertEqual(found["ch98.near"]["values"]["worst"], 0.5)
        self.assertEqual(len(found["ch98.tiny"]["model_sha256"]), 64)

    def test_strict_both_ways(self):
        self.path.unlink()
        self.update(ONE)
        good = self.path.read_text()
        for bad in (
            good.replace('"n": 1234', '"n": NaN'),
            good.replace('"n": 1234', '"n": 1, "n": 2'),
            good.replace('"exact"', '"certain"'),
            good.replace('"limits": "Nothing else."', '"limits": ""'),
            good.replace('"seed": 0,', ""),
            good.replace('"seed": 0,', '"seed": 0, "mood": "good",'),
            good.replace('"n": 1234', ""),
            good.replace('"exact"', '"tolerance"'),
            good.replace('"exact"', '"timing"'),
            good.replace('"versions"', '"version"'),
            good.replace('"results"', '"outcomes"'),
            good.replace('"results": [', '"results": [7, '),
            "[]",
            "",
        ):
            self.path.write_text(bad)
            with self.assertRaisesRegex(BadInput, "results.json"):
                self.records()
        value = {"chapter": "ch98", "results": read_json(self.write("good.json", good))["results"] * 2}
        self.path.write_text(records.dump_json(value))
        with self.assertRaisesRegex(BadInput, "holds ch98.one twice"):
            self.records()


class Rerunning(SmallBook):
    def test_only_what_may_change_changes(self):
        first = self.path.read_bytes()
        with mock.patch.object(evidence, "commit", return_value="another"):
            self.assertEqual(self.update(ONE, SEEN, NEAR), ["same"] * 3)
        self.assertEqual(self.path.read_bytes(), first)
        with mock.patch.object(evidence, "versions", return_value={"torch": "another"}):
            self.assertEqual(self.update(ONE, SEEN, NEAR), ["same"] * 3)
            self.assertEqual(self.path.read_bytes(), first)
            self.assertEqual(self.update(finds(ONE, n=7)), ["changed"])
            self.assertEqual(self.records()["ch98.one"]["versions"], {"torch": "another"})
        self.assertEqual(self.update(ONE), ["changed"])
        self.assertEqual(self.path.read_bytes(), first)
        other = finds(SEEN, x=1.6)
        self.assertEqual(self.update(ONE, other, NEAR), ["same", "changed", "same"])
        with mock.patch.object(evidence, "machine", return_value={"processor": "another"}):
            self.assertEqual(self.update(other), ["changed"])

    def test_one_experiment_leaves_the_others(self):
        before = self.records()
        self.update(finds(ONE, n=2))
        after = self.records()
        self.assertEqual(after["ch98.one"]["values"], {"n": 2})
        self.assertEqual({k: r for k, r in after.items() if k != "ch98.one"}, {k: r for k, r in before.items() if k != "ch98.one"})

    def test_another_model_stands_beside(self):
        self.use(ONE, NEAR, SEEN, TIME, TINY)
        self.update(TINY)
        before = self.records()
        self.update(TINY, model=str(EMBEDDED))
        after = self.records()
        self.assertEqual(after["ch98.tiny"], before["ch98.tiny"])
        beside = after[f"ch98.tiny@{EMBEDDED}"]
        self.assertEqual(beside["command"], f"make evidence ONLY=ch98.tiny MODEL={EMBEDDED}")

    def test_what_is_no_longer_there_goes(self):
        self.use(ONE)
        self.update(ONE)
        self.assertEqual(list(self.records()), ["ch98.one"])

    def test_an_experiment_that_breaks_off_loses_only_itself(self):
        """Those before it are on disk, and its own record and those after it are as they were."""
        for error in (KeyboardInterrupt, RuntimeError("no memory"), BadInput("no model")):
            n = len(str(error))
            before = self.records()
            with self.assertRaises(type(error) if isinstance(error, Exception) else error):
                self.update(finds(ONE, n=n), breaks(SEEN, error), finds(NEAR, bound=1.0, worst=0.1, held=True))
            after = self.records()
            self.assertEqual(after["ch98.one"]["values"], {"n": n})
            for key in ("ch98.seen", "ch98.near"):
                self.assertEqual(after[key], before[key])
        with self.assertRaises(ValueError):
            self.update(finds(ONE, n=99), finds(SEEN, x=float("nan")))
        self.assertEqual(self.records()["ch98.one"]["values"], {"n": 99})
        self.assertEqual(sorted(p.name for p in self.path.parent.iterdir()), ["claims.json", "figures", "results.json"])

    @slow
    def test_two_at_once(self):
        code = (
            "import sys; from scripts import evidence\n"
            "with evidence.only_one(sys.argv[1]):\n    print('in', flush=True); sys.stdin.read()"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.assertEqual(other.stdout.readline(), b"in\n")
        ran = []
        self.use(replace(ONE, measure=lambda: ran.append(1) or {"n": 1}))
        with mock.patch.object(evidence, "ROOT", self.folder):
            self.assertBad(evidence.main, [], "another make evidence")
        self.assertEqual(ran, [])
        other.kill()  # a process that dies leaves no lock behind
        other.communicate()
        with evidence.only_one(self.folder):
            pass


class Script(SmallBook):
    """The script, on the small book."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(evidence, "ROOT", self.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def files(self):
        """{path: contents} of all that the book has on disk."""
        return {p: p.read_bytes() for room in ("content", "research") for p in (self.folder / room).rglob("*") if p.is_file()}

    def changed(self, *argv):
        """What the script says of each experiment."""
        status, out, err = call(evidence.main, *argv)
        self.assertEqual((status, err), (0, ""))
        return {row.split()[0]: " ".join(row.split()[2:-1]) for row in out.splitlines() if row.startswith("ch98")}

    def test_all_that_shows_a_record_follows_it(self):
        self.use(finds(ONE, n=4321), NEAR, SEEN, TIME)
        self.assertEqual(self.changed(), {"ch98.one": "changed", "ch98.near": "same", "ch98.seen": "same", "ch98.time": "same"})
        self.assertIn("int-->4,321<!--/-->", self.chapter.read_text())
        self.use(ONE, NEAR, replace(finds(SEEN, x=2.0), claim="It was seen again."), TIME)
        self.changed("--only", "ch98.seen")
        self.assertEqual((self.folder / "research/ch98/figures/seen.svg").read_text(), "<svg>2.0</svg>")
        self.assertIn("It was seen again.", (self.folder / "research/evidence-register.md").read_text())

    def test_out_of_bound(self):
        self.use(ONE, finds(NEAR, bound=1.0, worst=1.1, held=False), SEEN, TIME)
        status, _, err = call(evidence.main)
        self.assertEqual(status, 2)
        self.assertIn("outside their bounds: ch98.near", err)

    def test_check_finds_all_as_it_is(self):
        before = self.files()
        self.use(ONE, finds(NEAR, bound=1.0, worst=0.0001, held=True, of=3), SEEN, breaks(TIME, AssertionError))
        with mock.patch.object(evidence, "versions", return_value={"torch": "another"}):
            found = self.changed("--check")
        self.assertEqual(found, {"ch98.one": "same", "ch98.near": "same", "ch98.seen": "same"})
        self.assertEqual(self.files(), before)
        self.assertFalse((self.folder / ".cache").exists())

    def test_check_of_what_differs(self):
        """Nothing is written, one line says what differs, and the status is 2."""
        near = dict(bound=1.0, worst=0.43, held=True, of=3)
        for wrong, word in (
            (finds(ONE, n=1235), "not as recorded: ch98.one;"),
            (replace(ONE, limits="None."), "not as recorded: ch98.one;"),
            (finds(NEAR, **near | dict(worst=1.7, held=False)), "outside their bounds: ch98.near;"),
            (finds(NEAR, **near | dict(of=4)), "not as recorded: ch98.near;"),
            (finds(NEAR, **near | dict(bound=2.0)), "not as recorded: ch98.near;"),
            (finds(SEEN, x=1.25), "not as recorded: ch98.seen;"),
            (replace(ONE, id="ch98.new"), "not as recorded: ch98.new;"),
        ):
            before = self.files()
            kept = [e for e in (ONE, NEAR, SEEN, TIME) if e.id != wrong.id]
            self.use(*kept, wrong)
            status, _, err = call(evidence.main, "--check")
            self.assertEqual((status, len(err.splitlines())), (2, 1), err)
            self.assertIn(word, err)
            self.assertEqual(self.files(), before)

    def test_check_of_an_observation_of_another_machine(self):
        self.use(ONE, NEAR, finds(SEEN, x=1.25), TIME)
        with mock.patch.object(evidence, "machine", return_value={"processor": "another"}):
            self.assertEqual(self.changed("--check")["ch98.seen"], "another machine")
            self.use(finds(ONE, n=7), NEAR, SEEN, TIME)
            self.assertEqual(call(evidence.main, "--check")[0], 2)  # an exact value is every machine's

    def test_the_long_ones(self):
        long = replace(ONE, id="ch98.long", seconds=experiments.LONG)
        short = replace(NEAR, id="ch98.short", seconds=experiments.LONG - 1)
        self.use(long, short, replace(SEEN, seconds=100), replace(TIME, seconds=100))
        self.update(long, short)
        self.assertEqual(self.changed("--check", "--long"), {"ch98.long": "same"})
        self.assertEqual(experiments.lasting(False, [long, short, SEEN, TIME]), [short])
        self.assertBad(evidence.main, ["--check", "--long", "--only", "ch98.short"], "none of these is left")
        self.assertBad(evidence.main, ["--check", "--only", "ch98.time"], "leaves timings out")

    def test_choosing(self):
        every = [ONE, SEEN, replace(TINY, id="ch97.tiny"), replace(ONE, id="ch97.fixed", movable=False)]
        choose = lambda *args: [e.id for e in evidence.choose(*args, among=every)]  # noqa: E731
        self.assertEqual(choose(), [e.id for e in every])
        self.assertEqual(choose("ch97"), ["ch97.tiny", "ch97.fixed"])
        self.assertEqual(choose(None, ["ch98.seen"]), ["ch98.seen"])
        self.assertEqual(choose("ch97", None, "somebody/model"), ["ch97.tiny"])
        for args, word in ((("ch50",), "ch50"), ((None, ["ch98.none"]), "ch98.none"), ((None, ["ch97.fixed"], "x"), "ch97.fixed")):
            with self.assertRaisesRegex(BadInput, word):
                evidence.choose(*args, among=every)

    def test_without_git(self):
        """The records are written all the same, and one line on stderr says what they lack."""
        with mock.patch.object(evidence, "commit", return_value="unknown"):
            status, _, err = call(evidence.main, "--only", "ch98.seen")
            self.assertEqual((status, err.count("\n")), (0, 1))
            self.assertIn("records will say commit unknown", err)
            self.assertEqual(call(evidence.main, "--only", "ch98.one")[2], "")  # an exact record has no commit
            self.assertEqual(call(evidence.main, "--check")[2], "")  # and this writes none

    def test_list_and_bad_input(self):
        status, out, err = call(evidence.main, "--list")
        self.assertEqual((status, err), (0, ""))
        for id in ("ch98.one", "ch98.near", "ch98.seen", "ch98.time"):
            self.assertIn(id, out)
        self.assertBad(evidence.main, ["--only", "ch04.nothing"], "ch04.nothing", "evidence-list")
        self.assertBad(evidence.main, ["--chapter", "4"], "'4'", "there are")

    def test_a_model_that_is_not_installed_is_told_at_once(self):
        ran = []
        real = replace(ONE, id="ch98.real", model="smollm2", loads=True)
        self.use(replace(ONE, measure=lambda: ran.append(1) or {"n": 1}), real)
        absent = BadInput("smollm2: the package is not installed here; run `make real-model`")
        with mock.patch.object(evidence, "smollm2_file", side_effect=absent):
            self.assertBad(evidence.main, [], "make real-model")
        self.assertEqual(ran, [])


class Claims(SmallBook):
    def test_claims_of_a_root(self):
        [claim] = experiments.claims(self.folder)
        self.assertEqual(
            (claim.id, claim.chapter, claim.status, claim.evidence), ("ch98.guess", "ch98", "hypothesis", ("ch98.seen",))
        )

    def test_what_is_no_claim_is_told_in_one_line(self):
        without = {k: v for k, v in CLAIM.items() if k != "status"}
        unfounded = {k: v for k, v in CLAIM.items() if k != "evidence"}
        for rows in ([without], [unfounded], [CLAIM | {"mood": "good"}], [7], {"a": 1}, None):
            self.claims.write_text(records.dump_json({"chapter": "ch98", "claims": rows}))
            with mock.patch.object(evidence, "ROOT", self.folder):
                self.assertBad(evidence.main, [], "claims.json")  # before any experiment is run


class Here(unittest.TestCase):
    """What needs no book."""

    def test_the_machine_and_the_commit(self):
        self.assertEqual(set(evidence.versions()), {"python", "torch", "transformers"})
        found = evidence.machine()
        self.assertEqual(set(found), {"processor", "cores", "python", "torch", "transformers"})
        self.assertEqual(found["torch"], torch.__version__)
        self.assertRegex(evidence.commit(), r"^([0-9a-f]{40}\+?|unknown)$")

    def test_the_commit_without_git(self):
        """No git to call; no repository; another project's, in which this is an unpacked archive."""
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertEqual(evidence.commit(), "unknown")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(evidence, "ROOT", Path(folder).resolve()):
            self.assertEqual(evidence.commit(), "unknown")

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_the_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            (root / "examples").mkdir()
            settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

            def git(*words):
                return subprocess.run(
                    ["git", *settings, *words], cwd=root, capture_output=True, text=True, check=True
                ).stdout.strip()

            git("init", "-q")
            with mock.patch.object(evidence, "ROOT", root):
                self.assertEqual(evidence.commit(), "unknown")  # nothing is committed yet
                (root / "examples" / "a.py").write_text("1")
                git("add", ".")
                git("commit", "-qm", "a")
                head = git("rev-parse", "HEAD")
                self.assertEqual(evidence.commit(), head)
                (root / "examples" / "a.py").write_text("2")
                self.assertEqual(evidence.commit(), head + "+")
            with mock.patch.object(evidence, "ROOT", root / "examples"):
                self.assertEqual(evidence.commit(), "unknown")

    def test_no_two_have_one_id(self):
        module = mock.Mock(EXPERIMENTS=(ONE,))
        self.addCleanup(experiments.experiments.cache_clear)
        experiments.experiments.cache_clear()
        with (
            mock.patch.object(experiments.importlib, "import_module", return_value=module),
            self.assertRaisesRegex(ValueError, "two experiments have the id ch98.one"),
        ):
            experiments.experiments()

    def test_by_id(self):
        self.assertEqual(experiments.experiment("ch04.mask").chapter, "ch04")
        with self.assertRaisesRegex(BadInput, "ch04.none"):
            experiments.experiment("ch04.none")


if __name__ == "__main__":
    unittest.main()
