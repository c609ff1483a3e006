"""For readers: the exercises of the book. Copy one to start from, and check what you wrote.

    python scripts/exercise.py list                # all exercises, how hard they are and how long they take
    python scripts/exercise.py start ch04.2        # copies the starter to my/ch04; nothing that is there is written over
    python scripts/exercise.py check ch04.2        # runs yours, and says of each check whether it passed

`make exercise EX=ch04.2` and `make exercise-check EX=ch04.2` do the same. A check that did not pass says which mistake it looks
like, and never the right value. Exit status: 0 where all checks passed, 1 where some did not, 2 for a call that cannot be
understood.
"""

import importlib
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.lab.script import BadInput, Parser, command, table, whole_number
from scripts.grading.exercises import ROOT, exercise, exercises, start

MINE = ROOT / "my"
KEYS = ROOT / "scripts" / "keys"  # of a release for students


def key_of(found, seed=0):
    """The key of an exercise: of a release the one that it carries, else one made from the answers."""
    from scripts.grading.keys import read_key

    path = KEYS / found.chapter / f"{found.name}.key"
    if path.is_file():
        return read_key(path)
    return importlib.import_module("scripts.grading.answers").key(found, seed)


def listing():
    """The table of all exercises."""
    rows = [[e.id, e.title, e.difficulty, e.minutes, ", ".join(f"{k} {v:g}" for k, v in e.points.items())] for e in exercises()]
    return table(["exercise", "title", "difficulty", "minutes", "points"], rows)


def check(found, folder, file=None, seed=0, seconds=None):
    """[(part, [Verdict], note)] of what was handed in of an exercise in `folder`, or of the one file that is given."""
    from scripts.grading.sandbox import Sandbox  # these import torch, which the other calls can do without
    from scripts.grading.verdict import judge, judge_numbers

    paths = {part: Path(folder) / found.chapter / found.file(part) for part in found.points}
    if file is not None:
        part = next((p for p in found.points if Path(file).suffix == Path(found.file(p)).suffix), None)
        if part is None:
            raise BadInput(f"{file} is nothing that {found.id} asks for; it asks for {', '.join(map(found.file, found.points))}")
        paths = {part: Path(file)}
    if not any(path.is_file() for path in paths.values()):
        path = next(iter(paths.values()))
        raise BadInput(f"there is no {path}; `make exercise EX={found.id}` copies the starter, or name your file with --file")
    key, done = key_of(found, seed), []
    for part, path in paths.items():
        if not path.is_file():
            done.append((part, [], f"there is no {path.name}"))
        elif part == "code":
            with Sandbox((folder,)) as sandbox:
                ended = sandbox.run(path.read_text(encoding="utf-8", errors="replace"), found, key, seconds)
            done.append((part, judge(key, ended.results), ""))
        elif part == "numbers":
            done.append((part, judge_numbers(key, path.read_text(encoding="utf-8", errors="replace")), ""))
        else:
            done.append((part, [], "nobody but a reader can check it"))
    return done


def report(found, done):
    """What `check` found, for a person."""
    lines = [f"{found.id}: {found.title}"]
    for part, verdicts, note in done:
        lines += ["", f"{part}: {note}" if note else f"{part}:"]
        lines += [f"  passed  {v.check}" if v.passed else f"  FAILED  {v.check}: {v.message}" for v in verdicts]
    every = [v for _, verdicts, _ in done for v in verdicts]
    passed = sum(v.passed for v in every)
    return "\n".join([*lines, "", f"{passed} of {len(every)} checks passed."])


def options():
    """The script's argument parser."""
    parser = Parser(prog="exercise.py", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("list", "start", "check"), help="what to do")
    parser.add_argument("exercise", nargs="?", help="the exercise, ch04.2 say")
    parser.add_argument("--folder", type=Path, default=MINE, help="where your files lie")
    parser.add_argument("--file", type=Path, help="a file of yours that lies elsewhere")
    parser.add_argument("--seed", type=whole_number(0), default=0, help="for other inputs; a students' release has one only")
    return parser


@command
def main(argv=None):
    """List, start or check; exits with 1 where a check did not pass."""
    args = options().parse_args(argv)
    if args.what is None:
        raise BadInput("what to do is missing; give list, start or check")
    if args.what == "list":
        return print(listing())
    if not args.exercise:
        raise BadInput(f"{args.what} wants an exercise, EX=ch04.2 say; `python scripts/exercise.py list` lists them")
    found = exercise(args.exercise)
    if args.what == "start":
        for path in start(found, args.folder):
            print(f"made {path}")
        print(f"The task is at the top of {found.file('code')}. When it is done: make exercise-check EX={found.id}")
        return None
    done = check(found, args.folder, args.file, args.seed)
    print(report(found, done))
    if any(not v.passed for _, verdicts, _ in done for v in verdicts):
        sys.stdout.flush()
        raise SystemExit(1)
    return None


if __name__ == "__main__":
    sys.exit(main())
