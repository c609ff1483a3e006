"""What a file of the repository imports of the repository: all that has to travel with it."""

import ast
import functools

from scripts.grading.exercises import ROOT


@functools.cache
def imported(path, root=ROOT):
    """The files, relative to `root`, that the file `path` imports from examples or scripts, those that these import, and all their
    packages' `__init__.py`; itself not. An import within a function counts as well."""
    found, queue = set(), [path]
    while queue:
        tree = ast.parse((root / queue.pop()).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
            for name in names:
                if name.split(".")[0] not in ("examples", "scripts"):
                    continue
                for file in _files(name, root):
                    if file not in found and file != path:
                        found.add(file)
                        queue.append(file)
    return frozenset(found)


def _files(name, root):
    """The files that importing the dotted `name` reads: the packages above it, and its own."""
    parts = name.split(".")
    inits = ["/".join(parts[:n]) + "/__init__.py" for n in range(1, len(parts) + 1)]
    return [f for f in (*inits, "/".join(parts) + ".py") if (root / f).is_file()]


@functools.cache
def library_of(exercise):
    """{path: text} of what a starter imports of this repository."""
    root = exercise.path.parents[3]
    path = exercise.path.relative_to(root).as_posix()
    return {name: (root / name).read_text(encoding="utf-8") for name in sorted(imported(path, root))}
