"""Grading a class: every student's every exercise once, in parallel, what is done kept, and three things written of it."""

import contextlib
import csv
import hashlib
import io
import json
import os
import queue
import re
import threading
from pathlib import Path

import torch

from examples.lab.script import BadInput, dump_json, write_whole
from scripts.grading.exercises import WORDS
from scripts.grading.sandbox import Sandbox
from scripts.grading.submissions import handed_in, submissions
from scripts.grading.verdict import OPEN, judge, judge_numbers

VERSION = 1  # of what a result means: one more, and everything is graded anew
COLUMNS = ("student", "exercise", "part", "points", "of", "status", "seconds", "rubric")
TO_MARK = "to be marked"
MISSING = "not handed in"


def grade(folder, exercises, keys, out, workers=2, seconds=None, progress=lambda: None, told=lambda text: None):
    """Grade the submissions in `folder`; the rows, a dictionary for each student, exercise and part, in that order.

    keys: {id: Key}. out: a folder for what is written; results that it has of the same files and keys are taken from there.
    seconds: of computing for each exercise, by default what its key says. told: called with what is to be told on the way.
    """
    folder, out = Path(folder), Path(out)
    if out.resolve() == folder.resolve() or folder.resolve() in out.resolve().parents:
        raise BadInput(f"{out} lies within {folder}; give a place of its own for what is written")
    done = out / "done"
    done.mkdir(parents=True, exist_ok=True)
    rows, jobs = [], {}
    for submission in submissions(folder):
        files = handed_in(submission, [(e.chapter, e.file(part)) for e in exercises for part in e.points])
        for e in exercises:
            for part, of in e.points.items():
                found = files[e.chapter, e.file(part)]
                row = {"student": submission.student, "exercise": e.id, "part": part, "of": of, "note": found.note}
                rows.append((row, e, found))
                if part == "code" and found.content is not None:
                    jobs.setdefault(_name(e, keys[e.id], found, seconds), (e, found))
    missing = {name: job for name, job in jobs.items() if _kept(done, name) is None}
    if missing:
        _run(missing, keys, done, max(1, min(workers, len(missing))), seconds, (folder, out), progress, told)
    for row, e, found in rows:
        kept = _kept(done, _name(e, keys[e.id], found, seconds)) if row["part"] == "code" and found.content is not None else None
        row |= _marked(row, e, keys[e.id], found, kept)
    rows = [row for row, _, _ in rows]
    write(rows, out, exercises)
    return rows


def _name(exercise, key, found, seconds):
    """What a result is kept under: it changes with whatever decides it."""
    parts = (VERSION, exercise.id, key.fingerprint(), found.digest, seconds, torch.__version__)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _kept(done, name):
    try:
        return json.loads((done / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _run(jobs, keys, done, workers, seconds, hidden, progress, told):
    """Run all jobs, each in a jailed process, `workers` at a time, and keep each result as it comes."""
    waiting, errors = queue.SimpleQueue(), []
    for job in jobs.items():
        waiting.put(job)

    def work(sandbox):
        while not errors:
            try:
                name, (exercise, found) = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                source = found.content.decode("utf-8", errors="replace")
                ended = sandbox.run(source, exercise, keys[exercise.id], seconds)
                verdicts = [vars(v) for v in judge(keys[exercise.id], ended.results)]
                kept = {"status": ended.status, "seconds": round(ended.seconds, 2), "checks": verdicts}
                write_whole(done / f"{name}.json", dump_json(kept))
            except BaseException as error:  # told by the thread that waits
                errors.append(error)
                return
            progress()

    with contextlib.ExitStack() as stack:
        sandboxes = [stack.enter_context(Sandbox(hidden)) for _ in range(workers)]
        sandboxes[0].wait()
        told(isolation(sandboxes[0]))
        threads = [threading.Thread(target=work, args=(s,), daemon=True) for s in sandboxes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


def isolation(sandbox):
    """A sentence on what keeps submissions from the rest of the machine."""
    parts = {"files": "no file of this machine but Python's", "network": "no network", "processes": "no other process"}
    seen = [words for part, words in parts.items() if part in sandbox.level]
    if len(seen) == len(parts):
        return f"submissions see {', '.join(seen[:-1])} and {seen[-1]}" + (" (bwrap and namespaces)" if sandbox.wrapped else "")
    lacks = ", ".join(part for part in parts if part not in sandbox.level)
    return f"NOT ISOLATED ({lacks}): the system does not let it ({sandbox.why}); grade on a machine that holds nothing to lose"


# ------------------------------------------------------------------------------------------------------------------- marks


def _marked(row, exercise, key, found, kept):
    """Points, status, seconds, checks and rubric of one row."""
    part, of = row["part"], row["of"]
    blank = {"points": 0, "seconds": None, "checks": [], "rubric": ""}
    if found.content is None:
        return {**blank, "status": f"refused: {found.problem}" if found.problem else MISSING}
    if part == "paragraph":
        text = found.content.decode("utf-8", errors="replace")
        if not re.sub(r"(?m)^#.*$", "", text).strip():
            return {**blank, "status": MISSING}
        return {**blank, "points": None, "status": TO_MARK, "rubric": key.rubric}
    if part == "numbers":
        checks = [vars(v) for v in judge_numbers(key, found.content.decode("utf-8", errors="replace"))]
        if all(c["message"] == "not filled in" for c in checks):
            return {**blank, "status": MISSING}
        return {**blank, **_points(checks, of), "checks": checks}
    checks = kept["checks"]
    if all(c["message"] == OPEN for c in checks):
        return {**blank, "status": "not written", "checks": checks, "seconds": kept["seconds"]}
    marked = _points(checks, of)
    if kept["status"]:
        marked["status"] = {"time": "time limit", "large": "too large", "early": "ended early"}[kept["status"]]
    return {**blank, **marked, "checks": checks, "seconds": kept["seconds"]}


def _points(checks, of):
    passed = sum(c["passed"] for c in checks)
    status = "passed" if passed == len(checks) else "partly" if passed else "failed"
    return {"points": round(of * passed / len(checks), 2), "status": status}


# ------------------------------------------------------------------------------------------------------- what is written


def write(rows, out, exercises):
    """Write gradebook.csv, results.json and a page for each student into `out`, each whole."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow({**row, "points": "" if row["points"] is None else f"{row['points']:g}", "seconds": _seconds(row)})
    write_whole(out / "gradebook.csv", text.getvalue())
    write_whole(out / "results.json", dump_json({"rows": rows}))
    titles = {e.id: e.title for e in exercises}
    pages = out / "feedback"
    pages.mkdir(exist_ok=True)
    for student in dict.fromkeys(row["student"] for row in rows):
        page = feedback(student, [row for row in rows if row["student"] == student], titles)
        write_whole(pages / file_name(student), page)


def _seconds(row):
    return "" if row["seconds"] is None else f"{row['seconds']:.2f}"


def file_name(student):
    """The name of a student's page: the student's, as far as a file may have it."""
    name = re.sub(r"[/\\:*?\"<>|]", "_", student)
    if name != student or len(os.fsencode(name)) > 180 or name.startswith("."):
        name = f"{name.strip('.')[:40]}-{hashlib.sha256(student.encode()).hexdigest()[:8]}"
    return f"{name}.md"


def feedback(student, rows, titles):
    """A student's page in Markdown."""
    given = sum(row["points"] or 0 for row in rows)
    marked = sum(row["of"] for row in rows if row["points"] is not None)
    open_points = sum(row["of"] for row in rows if row["points"] is None)
    to_come = f"; {open_points:g} more are marked by hand" if open_points else ""
    lines = [f"# Feedback for {_plain(student)}", "", f"{given:g} of {marked:g} points{to_come}."]
    for id in dict.fromkeys(row["exercise"] for row in rows):
        lines += ["", f"## {id}: {titles[id]}"]
        for row in (row for row in rows if row["exercise"] == id):
            points = f"of {row['of']:g} points" if row["points"] is None else f"{row['points']:g} of {row['of']:g} points"
            lines += ["", f"{WORDS[row['part']][0].upper()}{WORDS[row['part']][1:]}: {row['status']}, {points}."]
            lines += ["", f"Note: {_plain(row['note'])}."] if row["note"] else []
            lines += [""] if row["checks"] else []
            lines += [
                f"- {c['check']}: passed" if c["passed"] else f"- {c['check']}: {_plain(c['message'])}" for c in row["checks"]
            ]
    return "\n".join(lines) + "\n"


def _plain(text):
    """A text of a student's, as Markdown shows it and never obeys it."""
    return re.sub(r"([\\`*_{}\[\]<>#|!&])", r"\\\1", text)
