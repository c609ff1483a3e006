"""Grading: hostile submissions cost their own exercise and nothing else, archives are read without trust, and the gradebook of a
class is the expected one in any order, after a second run, and after a run that was killed in the middle."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import torch

from examples.lab.script import BadInput
from scripts import grade as script
from scripts.grading import gradebook, jail, sandbox
from scripts.grading.answers import answers, key
from scripts.grading.exercises import exercise, of_chapters
from scripts.grading.gradebook import grade
from scripts.grading.runner import carried, packed, results
from scripts.grading.sandbox import Sandbox, frames
from scripts.grading.submissions import handed_in, shown, submissions
from scripts.grading.verdict import judge
from tests.hostile import HOSTILE, source, tree, zipped
from tests.support import ROOT, FolderCase, call, slow

OF = exercise("ch04.7")
SEED = 11
STATUS = {  # how the hostile kinds end; all others fail every check
    **dict.fromkeys(("infinite loop", "sleep", "print", "loops when it is imported"), "time limit"),
    **dict.fromkeys(("os._exit", "kill", "raises an exit within repr", "a false frame", "a lying frame"), "ended early"),
    "an endless frame": "too large",
}
LAST = {"kill the parent": ("failed", "ended early"), "disk": ("failed", "ended early")}
LAST["memory bomb"] = LAST["tensor bomb"] = ("failed", "ended early", "time limit")


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.canary = cls.folder / "canary"
        cls.canary.mkdir()
        (cls.canary / "file").write_text("here")
        cls.sandbox = cls.enterClassContext(Sandbox((cls.folder,)))
        cls.sandbox.wait()
        cls.key = key(OF, SEED)

    def ended(self, text, seconds=1):
        return self.sandbox.run(text, OF, self.key, seconds)

    def passed(self, ended):
        return [v.passed for v in judge(self.key, ended.results)]

    def test_a_right_one_passes_before_and_after_all_others(self):
        words = {"time": "time limit", "early": "ended early", "large": "too large", "": "failed"}
        self.assertEqual(set(self.passed(self.ended(source("right", OF)))), {True})
        before = tree(self.folder)
        for name in HOSTILE:
            if name == "delete" and "files" not in self.sandbox.level:
                continue
            with self.subTest(name):
                start = time.monotonic()
                ended = self.ended(source(name, OF, self.canary))
                self.assertEqual(set(self.passed(ended)), {False}, ended)
                self.assertIn(words[ended.status], LAST.get(name, (STATUS.get(name, "failed"),)), ended)
                self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(tree(self.folder), before)
        self.assertEqual(set(self.passed(self.ended(source("right", OF)))), {True})
        self.assertEqual(set(self.passed(self.ended(source("outliving", OF)))), {True})
        self.assertEqual(os.listdir(f"{self.sandbox.folder}/work"), [])

    def test_it_sees_nothing_of_ours(self):
        """What a submission finds: no environment, no file of the repository or of the class, no process, no network, no root."""
        if "files" not in self.sandbox.level:
            self.skipTest("the system lets no namespace be made here")
        (self.folder / "secret").write_text("another student's")
        look = "    found = [os.getcwd(), os.listdir('.'), sorted(os.environ), os.path.exists(PLACE), os.path.exists(ROOT)]\n"
        look += (
            "    found += [len(os.listdir('/proc')) if os.path.exists('/proc') else 0, os.getpid() < 10, os.listdir('/sandbox')]\n"
        )
        look += "    found += [[n for n in range(3, 64) if is_open(n)]]\n    raise ValueError(repr(found))\n"
        text = f"import os\nPLACE, ROOT = {str(self.folder)!r}, {str(ROOT / 'scripts')!r}\n"
        text += "def is_open(n):\n    try:\n        os.fstat(n)\n    except OSError:\n        return False\n    return True\n"
        told = self.ended(text + "def rms_norm(x, gain, epsilon):\n" + look).results[0]["message"]
        environment = ["HOME", "LANG", "OMP_NUM_THREADS", "PATH", "TMPDIR", "USER"]
        self.assertEqual(told, repr(["/sandbox", [], environment, False, False, 0, True, [], [4]]))

    def test_its_powers_are_gone(self):
        for attempt in ("os.setuid(0)", "os.chroot('/')", "os.mkdir('/usr/x')", "os.kill(1, 9)", "open('/usr/x', 'w')"):
            text = f"import os\ndef rms_norm(x, gain, epsilon):\n    try:\n        {attempt}\n"
            text += "    except OSError:\n        raise IndexError\n"
            if attempt == "os.setuid(0)" and os.getuid():
                continue  # within a user namespace it is 0 already
            if "files" in self.sandbox.level:
                self.assertEqual(self.ended(text).results[0].get("error"), "IndexError", attempt)

    def test_with_fewer_namespaces_the_limits_hold(self):
        """As on a system that lets none be made: the hostile kinds that need no isolation end as before."""
        with mock.patch.object(sandbox, "bubblewrap", return_value=[]), Sandbox(("/usr/lib",)) as weaker:
            weaker.wait()  # what must not be seen lies among Python's own files, so these cannot be shown
            self.assertNotIn("files", weaker.level)
            self.assertIn("/usr is Python's", weaker.why)
            self.assertIn("NOT ISOLATED (files", gradebook.isolation(weaker))
            for name in ("right", "infinite loop", "fork bomb", "memory bomb", "os._exit", "outliving", "kill the parent"):
                ended = weaker.run(source(name, OF), OF, self.key, 1)
                self.assertEqual(set(self.passed(ended)), {name in ("right", "outliving")}, name)
            self.assertEqual(os.listdir(f"{weaker.folder}/work"), [])


class Frames(unittest.TestCase):
    """What a forged answer may hold; nothing of it may cost more than its own exercise."""

    def test_what_is_no_result_is_none(self):
        known = key(OF, 0)
        good = packed({"value": torch.zeros(1), "changed": []})
        self.assertEqual(len(frames(good * 3, known)), 3)
        self.assertEqual(len(frames(good * 999, known)), len(known.calls))
        for bad in (
            b"",
            good[:-1],
            b"\xff" * 64,
            packed({"value": 1}),
            packed([1]),
            packed({}),
            packed("x"),
            good[:16] + b"[" * 5000,
        ):
            found = frames(good + bad, known)
            self.assertTrue(all("value" in f or f["error"] for f in found))
            self.assertFalse([v for v in judge(known, found) if v.passed])
        text = b"[" * 100_000
        self.assertEqual(frames(len(text).to_bytes(8, "big") + bytes(8) + text, known), [])

    def test_what_it_tells_is_cleaned(self):
        known = key(OF, 0)
        for told in (
            {"error": "E\x1b[31m\n", "message": ["a"], "line": "x"},
            {"error": {"a": 1}, "message": "m" * 999, "line": True},
        ):
            found = frames(packed(told), known)[0]
            self.assertTrue(found["error"].isprintable())
            self.assertLessEqual(len(found["message"]), 300)
            self.assertIsNone(found["line"] if not isinstance(found["line"], bool) else None)
        changed = frames(packed({"value": 1, "changed": ["gain", "../x", 5]}), known)[0]["changed"]
        self.assertEqual(changed, ["gain"])


class Archives(FolderCase):
    def given(self, **files):
        """What is found of chapter 4's last exercise in a folder of these zips, {student: bytes}."""
        for name, content in files.items():
            (self.folder / f"{name}.zip").write_bytes(content)
        return {s.student: handed_in(s, [("ch04", "ex7_rms_norm.py")])["ch04", "ex7_rms_norm.py"] for s in submissions(self.folder)}

    def test_hostile_zips(self):
        name, bomb = "ch04/ex7_rms_norm.py", zipped({"ch04/ex7_rms_norm.py": bytes(100 << 20)})
        lying = bytearray(zipped({name: bytes(8 << 20)}))
        with zipfile.ZipFile(io.BytesIO(bytes(lying))) as archive:
            at = archive.start_dir
        lying[at + 24 : at + 28] = (100).to_bytes(4, "little")  # the size that the directory says
        encrypted = bytearray(zipped({name: b"x = 1"}))
        encrypted[at_of(encrypted) + 8] |= 1
        found = self.given(
            right=zipped({name: b"x = 1"}),
            above=zipped({"../../ch04/ex7_rms_norm.py": b"x = 1"}),
            absolute=zipped({"/ch04/ex7_rms_norm.py": b"x = 1"}),
            windows=zipped({"..\\ch04\\ex7_rms_norm.py": b"x = 1", "other": b""}),
            link=zipped({}, {name: "/etc/passwd"}),
            bomb=bomb,
            lying=bytes(lying),
            encrypted=bytes(encrypted),
            garbage=b"PK\x03\x04 no zip",
            many=zipped({f"f{i}": b"" for i in range(6000)}),
            mac=zipped({name: b"x = 1", "__MACOSX/ch04/ex7_rms_norm.py": b"\0"}),
            twice=zipped({"ex7_rms_norm.py": b"old", "mine/ch04/ex7_rms_norm.py": b"x = 1"}),
            other=zipped({"ch05/ex7_rms_norm.py": b"of another chapter"}),
        )
        right = {name for name, file in found.items() if file.content == b"x = 1"}
        self.assertEqual(right, {"right", "mac", "twice"})
        for student, words in (
            *(("above", "leads out"), ("absolute", "leads out"), ("link", "link"), ("bomb", "more than 1,048,576 bytes")),
            *(("encrypted", "encrypted"), ("garbage", "cannot be read"), ("many", "more than 5,000 files"), ("lying", "")),
        ):
            self.assertIsNone(found[student].content, student)
            self.assertIn(words, found[student].problem)
        self.assertIn("2 files", found["twice"].note)
        self.assertEqual((found["other"].content, found["other"].problem), (None, ""))
        self.assertEqual(sorted(p.suffix for p in self.folder.iterdir()), [".zip"] * len(found))  # nothing was unpacked

    def test_hostile_folders(self):
        wanted = ("ch04", "ex7_rms_norm.py")
        for name in ("link", "linked folder", "pipe", "large", "deep", "a folder"):
            (self.folder / name).mkdir()
        outside = self.folder.parent / f"{self.folder.name}-outside"
        outside.mkdir()
        self.addCleanup(lambda: [p.unlink() for p in outside.iterdir()] + [outside.rmdir()])
        (outside / wanted[1]).write_text("x = 1")
        (self.folder / "link" / wanted[1]).symlink_to(outside / wanted[1])
        (self.folder / "linked folder" / "ch04").symlink_to(outside)
        (self.folder / "linked student").symlink_to(outside)
        os.mkfifo(self.folder / "pipe" / wanted[1])
        (self.folder / "large" / wanted[1]).write_bytes(bytes(2 << 20))
        (self.folder / "a folder" / wanted[1]).mkdir()
        deep = self.folder / "deep" / "/".join("d" * 40)
        deep.mkdir(parents=True)
        (deep / wanted[1]).write_text("x = 1")
        found = {s.student: handed_in(s, [wanted])[wanted] for s in submissions(self.folder)}
        self.assertEqual(set(found), {"link", "linked folder", "pipe", "large", "deep", "a folder"})
        self.assertEqual([f.content for f in found.values()], [None] * 6)
        self.assertIn("link", found["link"].problem)
        self.assertIn("no file", found["pipe"].problem)
        self.assertIn("more than", found["large"].problem)

    def test_names(self):
        names = [
            "José María",
            "Владимир",
            "王 小明",
            "=1+1",
            "a\nb",
            "-rf",
            "x" * 200,
            "a'b\"c,d;e",
            "ünï",
            os.fsdecode(b"bad\xff"),
        ]
        for name in names:
            (self.folder / name).mkdir()
        found = [s.student for s in submissions(self.folder)]
        self.assertEqual(len(set(found)), len(names))
        self.assertTrue(all(student.isprintable() and student[0] not in "=-+@" for student in found), found)
        self.assertEqual((shown("=1"), shown("a\nb")), ("'=1", "a?b"))
        files = [gradebook.file_name(student) for student in found]
        self.assertEqual(len(set(files)), len(names))
        for file in files:
            (self.folder / file).write_text("")

    def test_no_submissions(self):
        for folder in (self.folder / "none", self.folder):
            with self.assertRaises(BadInput):
                submissions(folder)


def at_of(content):
    """Where the directory of a zip starts."""
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        return archive.start_dir


KINDS = ["right", "outliving", *HOSTILE]
SLOW = ("sleep", "infinite loop", "print")  # of which the class has one each
STUDENTS = 30
SECOND = [exercise("ch04.2"), exercise("ch04.7")]  # of the run in another order


class Class(FolderCase):
    """Thirty students of chapter 4: each hands in all seven exercises, right, mistaken or hostile."""

    def setUp(self):
        super().setUp()
        self.exercises = of_chapters(["ch04"])
        self.canary = self.folder / "canary"
        self.canary.mkdir()
        (self.canary / "file").write_text("here")

    def kind(self, student, of):
        """What that student hands in of an exercise."""
        number = int(of.id.split(".")[1])
        if of.id == OF.id:
            return KINDS[student % len(KINDS)]
        return "right" if (student + number) % 3 else (student + number) % len(answers(of).mutants)

    def hand_in(self, folder, names):
        for i, name in enumerate(names):
            files = {}
            for of in self.exercises:
                text = source(self.kind(i, of), of, self.canary) + f"\n# by {i}\n"
                files[f"{of.chapter}/{of.file('code')}"] = text.encode("utf-8", "surrogateescape")
                if "paragraph" in of.points and i % 2:
                    files[f"{of.chapter}/{of.file('paragraph')}"] = f"# {of.id}\n\nI see.\n".encode()
                if "numbers" in of.points and i % 4:
                    files[f"{of.chapter}/{of.file('numbers')}"] = json.dumps(dict.fromkeys(of.numbers, i % 3)).encode()
            if i % 5 == 4:
                (folder / f"{name}.zip").write_bytes(zipped(files))
                continue
            for path, content in files.items():
                (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / name / path).write_bytes(content)

    def expected(self, student, of):
        """(points, status) of the code: of our own kinds by running them here, of hostile ones none; status None where any will
        do."""
        kind, known = self.kind(student, of), key(of, SEED)
        if kind in HOSTILE:
            return 0, STATUS.get(kind) if kind not in LAST else None
        if kind == "outliving":
            kind = "right"
        rows = results({"name": of.name, "source": source(kind, of), "driver": known.driver, "calls": known.calls})
        verdicts = judge(known, [r | {"value": carried(r["value"])} if "value" in r else r for r in rows])
        passed = sum(v.passed for v in verdicts)
        status = "passed" if passed == len(verdicts) else "partly" if passed else "failed"
        return round(of.points["code"] * passed / len(verdicts), 2), status

    def book(self, out):
        with (out / "gradebook.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @slow
    def test_thirty_students_in_two_orders_killed_and_started_again(self):
        names = [f"{i:02d} Ωmega {('Été, Zoë', '王明')[i % 2]}" for i in range(STUDENTS)]
        turned = [f"{STUDENTS - 1 - i:02d}{name[2:]}" for i, name in enumerate(names)]
        books = []
        for place, students in (("one", names), ("two", turned)):
            folder, out = self.folder / place, self.folder / f"{place} out"
            folder.mkdir()
            self.hand_in(folder, students)
            before = tree(folder) | tree(self.canary)
            if place == "one":
                command = [sys.executable, "scripts/grade.py", "run", "--submissions", folder, "--chapters", "ch04", "--out", out]
                command += ["--seed", str(SEED), "--seconds", "1"]
                self.kill_in_the_middle(command, out)
                ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(ended.returncode, 0, ended.stderr)
            else:
                grade(folder, SECOND, {e.id: key(e, SEED) for e in SECOND}, out, seconds=1)
            self.assertEqual(tree(folder) | tree(self.canary), before)
            books.append({(students.index(r["student"]), r["exercise"], r["part"]): r for r in self.book(out)})
            self.assertEqual([r["student"] for r in self.book(out)], sorted(r["student"] for r in self.book(out)))
        first, second = books
        self.assertEqual(len(first), STUDENTS * sum(len(e.points) for e in self.exercises))
        self.assertEqual(len(second), STUDENTS * sum(len(e.points) for e in SECOND))
        for place in second:
            row = first[place]
            other = {**second[place], "student": row["student"], "seconds": row["seconds"]}
            if self.kind(place[0], exercise(place[1])) in LAST and row["part"] == "code":
                other["status"] = row["status"]
            self.assertEqual(row, other)
        for i in range(STUDENTS):
            for of in self.exercises:
                row, (points, status) = first[i, of.id, "code"], self.expected(i, of)
                self.assertEqual(float(row["points"]), points, row)
                self.assertIn(status or row["status"], (row["status"], "failed" if status is None else status), row)
                if "paragraph" in of.points:
                    row = first[i, of.id, "paragraph"]
                    self.assertEqual((row["points"], row["status"]), ("", "to be marked") if i % 2 else ("0", "not handed in"))
                    self.assertEqual(bool(row["rubric"]), bool(i % 2))
        self.again(self.folder / "one", self.folder / "one out")

    def kill_in_the_middle(self, command, out):
        (self.folder / "tmp").mkdir()  # where what a killed run leaves lies
        environment = os.environ | {"TMPDIR": str(self.folder / "tmp")}
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        end = time.monotonic() + 60
        while len(list(out.glob("done/*.json"))) < 40 and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
        process.wait()
        self.assertFalse((out / "gradebook.csv").exists())
        self.kept = {p: p.stat().st_mtime_ns for p in out.glob("done/*.json")}
        self.assertGreaterEqual(len(self.kept), 40)

    def again(self, folder, out):
        """What was done before the kill was kept; a second run writes the same, and grades nothing but what has changed."""
        self.assertEqual({p: p.stat().st_mtime_ns for p in self.kept}, self.kept)
        results_before = (out / "results.json").read_bytes()
        keys = {e.id: key(e, SEED) for e in self.exercises}
        with mock.patch.object(gradebook, "Sandbox", side_effect=AssertionError("nothing is to be graded")):
            grade(folder, self.exercises, keys, out, seconds=1)
        self.assertEqual((out / "results.json").read_bytes(), results_before)
        json.loads(results_before, parse_constant=self.fail)
        self.assertEqual(len(list((out / "feedback").iterdir())), STUDENTS)
        changed = next(folder.glob("00*/ch04/ex1_counting.py"))
        changed.write_text(source("right", exercise("ch04.1")) + "# changed\n")
        done = []
        grade(folder, self.exercises, keys, out, seconds=1, progress=lambda: done.append(1))
        self.assertEqual(len(done), 1)


class Book(FolderCase):
    """What is written of one student, and bad calls."""

    def run_one(self, **files):
        for name, text in files.items():
            path = self.folder / "class" / "Ann <b>" / "ch04" / name.replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        keys = {e.id: key(e, SEED) for e in (OF, exercise("ch04.3"))}
        rows = grade(self.folder / "class", [OF, exercise("ch04.3")], keys, self.folder / "out", seconds=2)
        return rows, (self.folder / "out" / "feedback" / gradebook.file_name("Ann <b>")).read_text()

    def test_a_page_tells_the_mistake_and_no_value(self):
        mutant = answers(OF).mutants[0]
        numbers = json.dumps({"largest_change": 0.006, "argmaxes_moved": 45})
        rows, page = self.run_one(
            ex7_rms_norm__py=mutant.of(answers(OF).solution), ex7_rms_norm__md="# ch04.7\n\nIt *breaks*.\n", ex3_gelu__json=numbers
        )
        by_part = {(r["exercise"], r["part"]): r for r in rows}
        self.assertEqual(by_part["ch04.3", "numbers"]["points"], 1)
        self.assertEqual(by_part["ch04.3", "code"]["status"], "not handed in")
        self.assertEqual(by_part["ch04.7", "paragraph"]["status"], "to be marked")
        self.assertIn(mutant.message, page)
        self.assertIn("these are all positions", page)
        self.assertIn("1 of 11 points; 3 more are marked by hand", page)
        self.assertIn(r"Ann \<b\>", page)

    def test_hostile_numbers(self):
        for text in (
            "[" * 100_000,
            "{",
            "[1]",
            '{"largest_change": 1e999, "argmaxes_moved": NaN}',
            '{"largest_change": "0.006"}',
            "9" * 60_000,
        ):
            rows, _ = self.run_one(ex3_gelu__json=text)
            self.assertEqual([r["points"] for r in rows if r["part"] == "numbers"], [0])
        rows, _ = self.run_one(ex3_gelu__json='{"largest_change": null, "argmaxes_moved": null}')
        self.assertEqual([r["status"] for r in rows if r["part"] == "numbers"], ["not handed in"])

    def test_bad_calls(self):
        (self.folder / "class" / "a").mkdir(parents=True)
        good = {"--submissions": self.folder / "class", "--chapters": "ch04", "--out": self.folder / "out"}
        for change, words in (
            ({"--chapters": "ch99"}, "ch99"),
            ({"--submissions": self.folder / "none"}, "no folder"),
            ({"--out": self.folder / "class" / "out"}, "lies within"),
            ({"--out": None}, "wants --out"),
            ({"--seed": "x"}, "whole number"),
        ):
            argv = [str(word) for pair in (good | change).items() if pair[1] is not None for word in pair]
            status, _, err = call(script.main, "run", *argv)
            self.assertEqual(status, 2)
            self.assertIn(words, err)

    def test_the_exercises_into_a_manuscript(self):
        before = (ROOT / "content/books/inference/04-chapter.md").read_bytes()
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(script.main(["text", "ch04"]), 0)
        self.assertEqual((ROOT / "content/books/inference/04-chapter.md").read_bytes(), before)


class Jail(unittest.TestCase):
    def test_what_lies_among_pythons_files_is_not_shown(self):
        folders = jail.python_folders([ROOT / "scripts"])
        self.assertTrue(any(os.path.realpath(sys.prefix).startswith(os.path.realpath(f)) for f in folders))
        self.assertFalse(any(str(ROOT / "scripts").startswith(f + "/") for f in folders))
        with self.assertRaisesRegex(OSError, "no submission may see"):
            jail.python_folders([Path(sys.prefix) / "lib" / "answers"])


if __name__ == "__main__":
    unittest.main()
