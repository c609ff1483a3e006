"""Chapter 1's files of records: appended whole by many at once, read after a cut, from other versions, compared; and the record
that chapter 5's loop writes."""

import contextlib
import fcntl
import json
import math
import os
import subprocess
import sys
import threading
import unittest
from unittest import mock

from examples.ch01 import record as module
from examples.ch01 import request
from examples.ch01.library import load_library
from examples.ch01.record import append, compare, field, read, request_record, summary
from examples.ch05 import generate
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import ROOT, FolderCase, call, slow

WORKERS, EACH = 8, 200
WORKER = """
import random, sys
from examples.ch01.record import append
path, worker, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sizes = random.Random(worker)
print("ready", flush=True)
sys.stdin.read()  # until all are
for n in range(each):
    append(path, {"worker": worker, "n": n, "text": str(worker) * sizes.randrange(1, 20000)})
"""


def made(program="x", seconds=2.0, stages=None, threads=1, dtype="float32", source="a", **more):
    """A record of this version."""
    stages = {"load": [0.5], "prefill": [0.4], "decode": [0.2, 0.3], "sample": [0.1] * 3} if stages is None else stages
    return request_record(program, 5, 3, stages, seconds, {"source": source, "sha256": "0" * 64}, threads, dtype, **more)


OLDER = {
    "format": 0,
    "model": "embedded",
    "seconds": 1.5,
    "stages": {"load": 0.5, "prefill": 0.25, "decode": [0.25, 0.25]},
    "mood": 3,
}


class Files(FolderCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "requests.jsonl"

    def fill(self, *records):
        for one in records:
            append(self.path, one)

    def test_a_line_a_record_in_strict_json(self):
        records = [made("one"), made("two \N{SNOWMAN}\n"), made("three")]
        self.fill(*records)
        data = self.path.read_bytes()
        self.assertEqual((data.count(b"\n"), data[-1:]), (3, b"\n"))
        self.assertTrue(data.isascii())
        self.assertEqual([json.loads(line) for line in data.splitlines()], records)
        self.assertEqual(read(self.path), (list(enumerate(records, start=1)), []))

    def test_no_nan(self):
        self.fill(made())
        before = self.path.read_bytes()
        for bad in (math.nan, math.inf):
            with self.assertRaises(ValueError):
                append(self.path, {"seconds": bad})
        self.assertEqual(self.path.read_bytes(), before)
        self.path.write_bytes(before + b'{"seconds": NaN}\n' + b'{"seconds": 1e999}\n')
        found, problems = read(self.path)
        self.assertEqual(([line for line, _ in found], problems), ([1, 3], ["line 2 is no strict JSON, and is left out"]))
        self.assertIsNone(summary(found[1][1])["request_ms"])  # too large for a number, and so unknown

    def test_cut_at_every_byte(self):
        records = [made("one"), made("two"), made("three")]
        self.fill(*records)
        data = self.path.read_bytes()
        ends = [i for i, byte in enumerate(data) if byte == ord("\n")]  # a record is whole without the line's end
        for size in range(len(data) + 1):
            self.path.write_bytes(data[:size])
            found, problems = read(self.path)
            whole = sum(end <= size for end in ends)
            self.assertEqual([one for _, one in found], records[:whole], size)
            rest = size - (ends[whole - 1] + 1 if whole else 0)
            said = [f"line {whole + 1} is cut after {rest:,} bytes, and is left out"] if rest > 0 else []
            self.assertEqual(problems, said, size)

    def test_a_record_behind_a_cut_line_is_a_line_of_its_own(self):
        self.fill(made("one"), made("two"))
        data = self.path.read_bytes()
        for size in (len(data) - 20, len(data) - 1):
            self.path.write_bytes(data[:size])
            append(self.path, made("three"))
            found, problems = read(self.path)
            cut = size < len(data) - 1
            self.assertEqual([one["program"] for _, one in found], ["one", "three"] if cut else ["one", "two", "three"])
            self.assertEqual(problems, ["line 2 is no strict JSON, and is left out"] if cut else [])

    def test_a_full_disk_leaves_no_part(self):
        self.fill(made("one"))
        before, write = self.path.read_bytes(), os.write
        part = mock.patch.object(module.os, "write", side_effect=lambda file, line: write(file, line[:100]))
        with part, self.assertRaisesRegex(BadInput, "no room"):
            append(self.path, made("two"))
        self.assertEqual(self.path.read_bytes(), before)

    def test_it_waits_for_whoever_appends(self):
        self.fill(made("one"))
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            other = threading.Thread(target=append, args=(self.path, made("two")))
            other.start()
            other.join(0.3)
            self.assertEqual((other.is_alive(), len(read(self.path)[0])), (True, 1))
        other.join(30)
        self.assertEqual([one["program"] for _, one in read(self.path)[0]], ["one", "two"])

    def test_it_writes_at_the_end_that_the_file_has_then(self):
        """A program that knows nothing of the lock adds a line while the file is open."""
        self.fill(made("one"))
        data, pread = self.path.read_bytes(), os.pread

        def meanwhile(*about):
            with self.path.open("ab") as file:
                file.write(data)
            return pread(*about)

        with mock.patch.object(module.os, "pread", side_effect=meanwhile):
            append(self.path, made("two"))
        self.assertEqual([one["program"] for _, one in read(self.path)[0]], ["one", "one", "two"])

    def test_what_is_no_record(self):
        self.path.write_bytes(b'[1]\n\n{"a": 1}\n\xff\xfe\n{"a": 1, "a": 2}\n')
        found, problems = read(self.path)
        self.assertEqual(found, [(3, {"a": 1})])
        self.assertEqual([p.split()[1] for p in problems], ["1", "4", "5"])

    @slow
    def test_processes_that_append_at_once_lose_nothing(self):
        order = [sys.executable, "-c", WORKER, str(self.path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(subprocess.Popen([*order, str(w), str(EACH)], **pipes)) for w in range(WORKERS)]
            self.assertEqual([one.stdout.readline() for one in workers], [b"ready\n"] * WORKERS)
            for one in workers:
                one.stdin.close()
            self.assertEqual([one.wait(timeout=120) for one in workers], [0] * WORKERS)
        found, problems = read(self.path)
        self.assertEqual((len(found), problems), (WORKERS * EACH, []))
        for w in range(WORKERS):
            own = [one for _, one in found if one["worker"] == w]
            self.assertEqual([one["n"] for one in own], list(range(EACH)))  # in the order in which they were appended
            self.assertTrue(all(set(one["text"]) == {str(w)} for one in own))


class OtherVersions(RoomCase):
    def write(self, *records):
        path = self.folder / "r.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        return path

    def test_an_older_one_reads_and_keeps_what_is_not_known(self):
        [(_, one)], problems = read(self.write(OLDER))
        self.assertEqual((one, problems), (OLDER, []))
        found = summary(one)
        times = [found[key] for key in ("load_ms", "prefill_ms", "decode_step_ms", "request_ms")]
        self.assertEqual((times, found["passes_percent"]), ([500, 250, 250, 1000], 75.0))
        for name in ("at", "model", "sha256", "threads", "dtype", "prompt_tokens", "unexplained_percent"):
            self.assertIsNone(found[name], name)

    def test_it_is_shown_beside_newer_ones(self):
        path = self.write(OLDER, made(), {**made(), "format": 2, "later": {"x": 1}}, {})
        page = self.page(request.main, "show", path)
        self.assertIn("4 records read", page)
        self.assertIn("unknown", page)
        self.assertIn("threads unknown -> 1", page)
        self.assertIn("line 1 to 2:", page)

    def test_fields_of_another_kind(self):
        names = ("stages", "seconds", "artefact", "tokens", "settings", "at")
        odd = [dict.fromkeys(names, x) for x in ("a", 1, [], None, True, {})]
        odd += [{"stages": {"load": x, "decode": [x]}, "settings": {"a": x}} for x in ("a", [], {}, None, True, -1)]
        page = self.page(request.main, "show", self.write(*odd))
        self.assertIn("12 records read", page)
        self.values(request.main, "show", self.write(*odd))


class Compared(RoomCase):
    def test_what_changed(self):
        one = made()
        other = made(threads=2, dtype="bfloat16", seconds=1.0, stages={"load": [0.25], "prefill": [0.1], "decode": [0.125, 0.125]})
        found = compare(one, other)
        changed = {r["what"]: (r["from"], r["to"]) for r in found["changed"]}
        self.assertEqual(changed, {"threads": (1, 2), "dtype": ("float32", "bfloat16")})
        self.assertEqual(found["ratios"], {"load": 0.5, "prefill": 0.25, "decode step": 0.5, "request": 0.5})
        self.assertEqual(compare(one, one)["changed"], [])
        self.assertEqual(set(compare(one, one)["ratios"].values()), {1.0})

    def test_every_field_that_says_what_ran_is_compared(self):
        """Whatever differs between two records but times and the day is seen."""
        one = made(settings={"temperature": 0.0})
        one["artefact"] |= {"commit": None, "seed": None, "config_sha256": "1", "files": []}
        paths = [path for path in module.COMPARED.values() if field(one, path) is not None or path.startswith("artefact")]
        self.assertEqual(len(paths), len(module.COMPARED))
        for path in [*paths, "settings.temperature"]:
            other = json.loads(json.dumps(one))
            *parents, name = path.split(".")
            place = other
            for parent in parents:
                place = place[parent]
            place[name] = "another"
            self.assertEqual([r["to"] for r in compare(one, other)["changed"]], ["another"], path)

    def test_page(self):
        path = self.folder / "r.jsonl"
        for one in (made(source="/a/long/path/to/a/model/folder"), made(threads=2, seconds=1.9), made(threads=2, seconds=1.9)):
            append(path, one)
        data = path.read_bytes()
        page = self.page(request.main, "show", path)
        self.assertIn("model ...ath/to/a/model/folder -> a", page)
        self.assertIn("threads 1 -> 2", page)
        self.assertIn("request x0.93", page)
        self.assertIn("line 2 to 3: nothing but the times", page)
        self.assertTrue(page.splitlines()[-2].startswith("3 records read."))
        path.write_bytes(data[:-9])
        page = self.page(request.main, "show", path)
        self.assertIn("line 3 is cut after", page)
        self.assertIn("2 records read, and what is wrong with the file stands above.\n", page)
        value = self.values(request.main, "show", path)["show"]
        self.assertEqual([len(value[key]) for key in ("records", "changes", "problems")], [2, 1, 1])
        path.write_bytes(b"")
        self.assertIn("There is no record", self.page(request.main, "show", path))

    def test_a_record_whose_stages_were_counted_twice_is_told(self):
        path, one = self.folder / "r.jsonl", made()
        append(path, one | {"stages": one["stages"] | {"decode": [0.2, 0.3] * 3}})
        self.assertIn("line 1: the stages claim", self.page(request.main, "show", path))


class Generated(RoomCase):
    """Chapter 5's generate.py --record."""

    def record(self, *argv):
        path = self.folder / "r.jsonl"
        status, out, err = call(generate.main, *argv, "--record", path)
        self.assertEqual(status, 0, err)
        found, problems = read(path)
        self.assertEqual(problems, [])
        return found[-1][1], out

    def test_the_same_record_as_the_library_s(self):
        prompt = ("--prompt", request.PROMPT, "--tokens", "8")
        ours, out = self.record(*prompt, "--temperature", "0")
        self.assertEqual(call(request.main, *prompt, "--record", self.folder / "r.jsonl")[0], 0)
        theirs = read(self.folder / "r.jsonl")[0][-1][1]
        self.assertEqual(set(ours), set(theirs))
        self.assertEqual(set(ours["stages"]), set(theirs["stages"]))
        same = ("tokens", "threads", "dtype", "machine", "versions", "device")
        self.assertEqual([ours[k] for k in same], [theirs[k] for k in same])
        for name in ("source", "commit", "seed", "sha256", "config_sha256"):
            self.assertEqual(ours["artefact"][name], theirs["artefact"][name], name)
        changed = {r["what"] for r in compare(theirs, ours)["changed"]}
        self.assertEqual(changed, {"program", "seed", "top_k"})
        times = {name: len(seconds) for name, seconds in ours["stages"].items() if name != "detokenise"}
        self.assertEqual(times, {"load": 1, "tokenise": 1, "prefill": 1, "decode": 7, "sample": 8})
        self.assertEqual(out, call(generate.main, *prompt, "--temperature", "0")[1])  # the text is not touched by it
        self.page(request.main, "show", self.folder / "r.jsonl")

    def test_other_ways_to_call_it(self):
        tiny = self.tiny()
        ours, _ = self.record("--model", tiny, "--tokens", "4", "--json")
        self.assertEqual((ours["tokens"], "tokenise" in ours["stages"]), ({"prompt": 1, "output": 4}, False))
        ours, _ = self.record("--tokens", "3", "--show-candidates", "--window", "4", "--seed", "5")
        self.assertEqual((ours["settings"]["window"], ours["settings"]["seed"]), (4, 5))

    def test_random_weights_have_the_digest_that_the_library_s_have(self):
        args = mock.Mock(model="random:distilgpt2", dtype="float32", device="cpu", seed=3, threads=1)
        ours = generate.ran(generate.load_for(args))
        self.assertEqual(ours, load_library("random:distilgpt2", seed=3).artefact())

    def test_bad_input(self):
        self.assertBad(generate.main, ["--model", "nonsense", "--record", self.folder / "none" / "r"], "not a folder")
        self.assertBad(generate.main, ["--record", self.folder], "not a file")

    def test_an_interrupt_leaves_no_record(self):
        path = self.folder / "r.jsonl"
        with mock.patch.object(generate, "generate", side_effect=KeyboardInterrupt):
            self.assertEqual(call(generate.main, "--record", path)[0], 130)
        self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()
