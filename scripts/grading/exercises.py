"""The exercises of the book: one starter file each, `examples/chNN/exercises/exN_name.py`, from which all else is made.

A starter is a module. Its docstring is the task: the first line the title, then the text as the manuscript shows it, with *Hand
in:* and *A right answer shows*. A dictionary EXERCISE of plain constants says the rest:

    EXERCISE = {
        "id": "ch04.2",
        "difficulty": 2,  # 1 to 3
        "minutes": 60,
        "points": {"code": 6, "paragraph": 3},  # what is handed in, and what each part is worth
        "numbers": {"ms": "median milliseconds at T = 512"},  # where "numbers" are handed in: each key and what it means
    }

Behind it stand the signatures of what is to be written, with shapes, each of which raises NotImplementedError. A part "code" is
handed in as exN_name.py, "numbers" as exN_name.json, "paragraph" as exN_name.md. A starter is read here as text and never run.
"""

import ast
import json
import os
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from examples.lab.script import BadInput

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = {"code": ".py", "numbers": ".json", "paragraph": ".md"}  # the parts, in the order in which they are shown
WORDS = {"code": "code", "numbers": "a JSON of numbers", "paragraph": "a paragraph"}
NAME = re.compile(r"ex(\d+)_[a-z0-9_]+")
SECTION = re.compile(r"<!--exercises (?P<spec>[^\n]*?)-->(?P<body>(?:(?!<!--).)*?)<!--/-->", re.S)
WIDTH = 132
TIED = "\0"  # stands for a blank at which no line may end


@dataclass(frozen=True)
class Exercise:
    """One exercise. points: {part: points}; numbers: {key: meaning} of the part "numbers"; source: of its starter."""

    id: str
    name: str
    title: str
    text: str
    difficulty: int
    minutes: int
    points: dict = field(hash=False)
    numbers: dict = field(hash=False)
    source: str
    path: Path

    @property
    def chapter(self):
        return self.id.split(".")[0]

    def file(self, part):
        """The name of what is handed in as `part`, within the folder of the chapter."""
        return self.name + ENDINGS[part]


def exercises(root=ROOT):
    """All of them under `root`, by chapter and number; raises BadInput for a starter that is none."""
    paths = Path(root).glob("examples/ch[0-9][0-9]/exercises/ex*.py")
    found = [_read(path) for path in paths]
    found.sort(key=lambda e: (e.chapter, int(e.id.split(".")[1])))
    ids = [e.id for e in found]
    for twice in (id for id in ids if ids.count(id) > 1):
        raise BadInput(f"two starters are {twice}; give one of them another number")
    return found


def exercise(id, root=ROOT):
    """The exercise of that id, "ch04.2" say; raises BadInput where there is none."""
    found = exercises(root)
    for e in found:
        if e.id == id:
            return e
    there = ", ".join(e.id for e in found if e.chapter == id.split(".")[0]) or ", ".join(sorted({e.chapter for e in found}))
    raise BadInput(f"there is no exercise {id!r}; there are: {there}")


def of_chapters(chapters, root=ROOT):
    """The exercises of these chapters; raises BadInput for a chapter that has none."""
    found = exercises(root)
    for chapter in chapters:
        if chapter not in {e.chapter for e in found}:
            raise BadInput(f"{chapter!r} has no exercises; there are: {', '.join(sorted({e.chapter for e in found}))}")
    return [e for e in found if e.chapter in chapters]


def _read(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "EXERCISE"]
    try:
        head = ast.literal_eval(nodes[0].value)
        title, _, text = ast.get_docstring(tree).partition("\n")
        id = f"{path.parent.parent.name}.{NAME.fullmatch(path.stem)[1]}"
        found = Exercise(
            id=id,
            name=path.stem,
            title=title.rstrip("."),
            text=" ".join(text.split()),
            difficulty=head["difficulty"],
            minutes=head["minutes"],
            points={part: head["points"][part] for part in ENDINGS if part in head["points"]},
            numbers=head.get("numbers", {}),
            source=source,
            path=path,
        )
        right = head["id"] == id and len(found.points) == len(head["points"]) and 1 <= found.difficulty <= 3
        if not right or bool(found.numbers) != ("numbers" in found.points):
            raise ValueError("id, points, difficulty or numbers do not fit")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise BadInput(
            f"{path.name} of {path.parent.parent.name} is no starter ({what}); scripts/grading/exercises.py says how"
        ) from None
    return found


# -------------------------------------------------------------------------------------------------------- in the manuscripts


def section(root, page, chapter):
    """What should stand between `<!--exercises chNN-->` and `<!--/-->` in the file `page`: the chapter's exercises as a list.

    A path such as `examples/ch04/causal_mask.py` becomes a link. Raises LookupError where there are none.
    """
    found = [e for e in exercises(root) if e.chapter == chapter]
    if not found:
        raise LookupError(f"there are no exercises of {chapter}")
    return "\n\n" + "\n".join(_item(root, page, e) for e in found) + "\n\n"


def _item(root, page, exercise):
    number = exercise.id.split(".")[1]
    kinds = ", ".join(WORDS[part] for part in exercise.points)
    head = f"`{exercise.id}`: difficulty {exercise.difficulty} of 3, {exercise.minutes} minutes; {kinds}"
    text = " ".join(f"**{exercise.title}{'' if exercise.title.endswith('?') else '.'}** ({head}.) {exercise.text}".split())

    def link(match):
        target = Path(os.path.relpath(Path(root) / match[1], Path(page).parent)).as_posix()
        return f"[`{Path(match[1]).name}`]({target})"

    text = re.sub(r"`((?:examples|scripts|research|content)/[\w./-]+\.\w+)`", link, text)
    whole = re.sub(r"\$[^$]+\$|`[^`]+`", lambda match: match[0].replace(" ", TIED), text)  # a formula stays on its line
    lines = textwrap.wrap(whole, WIDTH - len(number) - 2, break_long_words=False, break_on_hyphens=False)
    indent = " " * (len(number) + 2)
    return textwrap.indent("\n".join(lines), indent).replace(TIED, " ").replace(indent, f"{number}. ", 1)


# ------------------------------------------------------------------------------------------------------- what a reader starts


def start(exercise, folder):
    """Copy the starter into `folder`/chNN, with a JSON and a page to fill in where those are handed in; the paths made.

    Raises BadInput where one of them is there, and then writes none.
    """
    place = Path(folder) / exercise.chapter
    texts = {place / exercise.file("code"): exercise.source}
    if "numbers" in exercise.points:
        texts[place / exercise.file("numbers")] = json.dumps(dict.fromkeys(exercise.numbers), indent=2) + "\n"
    if "paragraph" in exercise.points:
        texts[place / exercise.file("paragraph")] = f"# {exercise.id}: {exercise.title}\n\n"
    for path in texts:
        if path.exists() or path.is_symlink():
            raise BadInput(f"{path} is there already, and stays as it is; move it away to start anew")
    place.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return list(texts)
