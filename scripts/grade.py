"""For instructors: the students' release, and the gradebook of what they handed in.

    python scripts/grade.py release --chapters ch04,ch05 --out DIR              # a tree for students, which holds no answer
    python scripts/grade.py run --submissions DIR --chapters ch04 --out DIR     # gradebook.csv, feedback/, results.json
    python scripts/grade.py table                                               # all exercises: points, checks, known mistakes
    python scripts/grade.py text ch04                                           # for authors: the exercises into the manuscript

A submission is a folder or a zip in --submissions. Its code runs in a process of its own, with limits, which is given inputs and
returns outputs; the comparison is made here, so that no answer is within its reach. A run that was broken off goes on where it
stopped, and a second one grades what has changed.
"""

import functools
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from examples.lab.script import BadInput, Parser, command, counted, progress_bar, table, whole_number, write_whole
from scripts.grading import release
from scripts.grading.answers import answers, key
from scripts.grading.exercises import ROOT, SECTION, exercises, of_chapters, section
from scripts.grading.gradebook import TO_MARK, grade
from scripts.markers import manuscripts


def report(rows):
    """A table of the class: points by student, and how many parts wait for a reader."""
    lines = []
    for student in dict.fromkeys(row["student"] for row in rows):
        mine = [row for row in rows if row["student"] == student]
        given, of = sum(r["points"] or 0 for r in mine), sum(r["of"] for r in mine if r["points"] is not None)
        lines.append([student, f"{given:g}", f"{of:g}", sum(r["status"] == TO_MARK for r in mine)])
    return table(["student", "points", "of", "to be marked"], lines)


def coverage(found):
    """A table of the exercises: their parts, points, checks and known mistakes."""
    rows = []
    for e in found:
        known = key(e, 0)
        parts = ", ".join(f"{part} {points:g}" for part, points in e.points.items())
        rows.append([e.chapter, e.id, e.title, parts, len(known.checks), len(answers(e).mutants), len(known.ranges)])
    return table(["chapter", "exercise", "title", "points", "checks", "mutants", "numbers"], rows)


def fill(chapter):
    """Write the exercises of a chapter into its manuscript; the path."""
    path = manuscripts(ROOT).get(chapter)
    if path is None:
        raise BadInput(f"there is no manuscript of {chapter!r}")
    text = path.read_text(encoding="utf-8")
    if not SECTION.search(text):
        raise BadInput(f"{path} has no place for them; write <!--exercises {chapter}--> and <!--/--> under its heading")
    body = section(ROOT, path, chapter)
    write_whole(path, SECTION.sub(lambda match: f"<!--exercises {match['spec']}-->{body}<!--/-->", text))
    return path


def options():
    """The script's argument parser."""
    parser = Parser(prog="grade.py", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "release", "table", "text"), help="what to do")
    parser.add_argument("chapter", nargs="?", help="of text: the chapter")
    parser.add_argument("--submissions", type=Path, help="the folder with a folder or a zip for each student")
    parser.add_argument("--chapters", help="with commas between: ch04,ch05")
    parser.add_argument("--out", type=Path, help="a folder for what is written")
    parser.add_argument("--seed", type=whole_number(0), default=1, help="of the inputs; choose your own, and keep it to yourself")
    parser.add_argument("--workers", type=whole_number(1, 64), default=2, help="processes that run submissions")
    parser.add_argument("--seconds", type=whole_number(1), help="of computing for each exercise, in place of its own limit")
    return parser


@command
def main(argv=None):
    """Release, grade, or fill a manuscript."""
    args = options().parse_args(argv)
    if args.what is None:
        raise BadInput("what to do is missing; give run, release, table or text")
    if args.what == "table":
        return print(coverage(exercises()))
    if args.what == "text":
        return print(f"{fill(args.chapter)} has the exercises of {args.chapter}")
    for name in ("chapters", "out", *(["submissions"] if args.what == "run" else [])):
        if not getattr(args, name):
            raise BadInput(f"{args.what} wants --{name}; `grade.py --help` has examples")
    found = of_chapters(args.chapters.split(","))
    if args.what == "release":
        count = release.release(found, args.out)
        return print(f"{args.out} has {counted(len(found), 'exercise')} in {counted(count, 'file')}; give it to your students.")
    torch.set_num_threads(1)
    keys = {e.id: key(e, args.seed) for e in found}
    told = functools.partial(print, file=sys.stderr)
    with progress_bar("exercise") as bar:
        rows = grade(args.submissions, found, keys, args.out, args.workers, args.seconds, bar.update, told)
    print(report(rows))
    print(f"\nThe gradebook is {args.out / 'gradebook.csv'}; what is to be marked by hand has its rubric there and no points yet.")
    return None


if __name__ == "__main__":
    sys.exit(main())
