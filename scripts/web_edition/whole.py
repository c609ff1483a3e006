"""A folder that is written whole or not at all, and that replaces an older one only where this made it."""

import contextlib
import tempfile
from pathlib import Path

from examples.lab.script import BadInput

MARK = ".made-by-make-web"


@contextlib.contextmanager
def whole_folder(goal):
    """A new folder beside `goal`, which takes its place at the end; on an error nothing is left of it, and `goal` is as it was."""
    goal = Path(goal).resolve()
    check_ours(goal)
    goal.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=goal.parent, prefix=f".{goal.name}-", suffix=".partial") as work:
        new, old = Path(work) / "new", Path(work) / "old"
        new.mkdir()
        yield new
        (new / MARK).touch()
        if goal.exists():
            goal.rename(old)
        new.rename(goal)


def check_ours(goal):
    """Raise BadInput, before any work, for a place that something else has taken."""
    if goal.is_symlink() or (goal.exists() and not (goal.is_dir() and ((goal / MARK).exists() or not any(goal.iterdir())))):
        raise BadInput(f"{goal} is there, and make web did not make it; remove it, or choose another place with --into")
    for parent in goal.parents:
        if parent.exists():
            if not parent.is_dir():
                raise BadInput(f"{parent} is no folder; choose another place with --into")
            break
