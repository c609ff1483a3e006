"""The tree for students: starters, what they import, the check with its keys, a README; no solution, no answer, no mutant."""

import shutil
from pathlib import Path

from examples.lab.script import BadInput, write_whole
from scripts.grading.answers import key
from scripts.grading.exercises import ROOT, WORDS
from scripts.grading.keys import write_key
from scripts.grading.release_files import imported

PROGRAM = "scripts/exercise.py"
TEST = "tests/test_starters.py"
ALSO = ("scripts/grading/zygote.py", "scripts/set_up.py", "requirements.txt", "LICENSE", "tests/__init__.py", PROGRAM, TEST)
STUDENT = "scripts/grading/student"  # what stands at the top of the tree
FORBIDDEN = ("scripts/answers/", "scripts/grading/answers.py", "content/", "research/")


def files(exercises):
    """The files of the repository that a release of these exercises holds, sorted."""
    starters = {e.path.relative_to(ROOT).as_posix() for e in exercises}
    found = starters | set(ALSO)
    for path in sorted(found):
        if path.endswith(".py"):
            found |= imported(path)
    for path in [p for p in found if p.endswith(".py")]:
        inits = [f"{parent.as_posix()}/__init__.py" for parent in Path(path).parents if parent.as_posix() != "."]
        found |= {init for init in inits if (ROOT / init).is_file()}
    wrong = [path for path in found if path.startswith(FORBIDDEN)]
    if wrong:
        raise BadInput(f"{min(wrong)} would be released, and holds answers; a starter or the check imports it")
    return sorted(found)


def release(exercises, out):
    """Write the tree into `out`, a folder that is empty or not there; how many files it has. Raises BadInput."""
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is not empty; name a folder that is, or none")
    if out.resolve() == ROOT or ROOT in out.resolve().parents:
        raise BadInput(f"{out} lies within this repository; name a place outside")
    found, keys = files(exercises), [(e, key(e, 0)) for e in exercises]
    for name in found:
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, path)
    for e, made in keys:
        write_key(made, out / "scripts" / "keys" / e.chapter / f"{e.name}.key")
    shutil.copyfile(ROOT / STUDENT / "Makefile", out / "Makefile")
    write_whole(out / ".gitignore", "/my/\n.venv/\n__pycache__/\n")
    text = (ROOT / STUDENT / "README.md").read_text(encoding="utf-8")
    write_whole(out / "README.md", text.replace("EXERCISES\n", _table(exercises)).replace("FIRST", exercises[0].id))
    return sum(path.is_file() for path in out.rglob("*"))


def _table(exercises):
    rows = ["| exercise | title | difficulty | minutes | points | you hand in |", "|---|---|---|---|---|---|"]
    for e in exercises:
        given = ", ".join(f"{WORDS[part]}: `{e.chapter}/{e.file(part)}`" for part in e.points)
        rows.append(f"| `{e.id}` | {e.title} | {e.difficulty} | {e.minutes} | {sum(e.points.values()):g} | {given} |")
    return "\n".join(rows) + "\n"
