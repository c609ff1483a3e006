"""Plant random faults in the chapters' code, one at a time, and see which of them the chapter's tests notice.

    python scripts/mutate.py --count 20 --seed 1              # some minutes: each runs one chapter's tests, up to the first failure
    python scripts/mutate.py --file examples/ch05/sampling.py

A fault is one operator, comparison, constant, `and`, `or` or `not` made another, in a copy of the repository. One that no test
notices is a line that no test holds, or a change that changes nothing: look, and write the test.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.lab.script import BadInput, Parser, command, progress_bar, table, whole_number
from scripts.experiments import ROOT

SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult}
SWAPS |= {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPS |= {ast.And: ast.Or, ast.Or: ast.And, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
SHOWN = {"report", "draw", "options", "main"}  # how things are worded and drawn is not what the tests are for


def places(tree):
    """Every (line, change) of a syntax tree; change() mutates the tree in place."""
    found = []
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) and (node.name in SHOWN or node.name.startswith("draw"))):
            found += [place for inner in ast.walk(node) for place in _of(inner)]
    return found


def _of(node):
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
        yield node.lineno, lambda: setattr(node, "op", SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield node.lineno, lambda: setattr(node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.lineno, lambda: _affirm(node)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node.lineno, lambda: setattr(node, "value", node.value + 1)


def _affirm(node):
    """`not x` becomes `+bool(x)`."""
    node.op, node.operand = ast.UAdd(), ast.Call(ast.Name("bool"), [node.operand], [])


def mutant(path, generator):
    """(line, text before, text of the whole file after) of one random fault in the file at `path`."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    line, change = generator.choice(places(tree))
    change()
    return line, source.splitlines()[line - 1].strip(), ast.unparse(ast.fix_missing_locations(tree))


def noticed(root, path, text):
    """Whether the tests of the file's chapter fail with `text` in its place, in the copy at `root`."""
    target, right = root / path, (root / path).read_text(encoding="utf-8")
    target.write_text(text, encoding="utf-8")
    try:
        tests = [sys.executable, "-m", "unittest", "discover", "-f", "-s", "tests", "-p", f"test_{path.parts[1]}_*.py"]
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "LAB_FAST": "1"}
        return subprocess.run(tests, cwd=root, env=settings, capture_output=True, timeout=900).returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(right, encoding="utf-8")


def options():
    """The script's argument parser."""
    parser = Parser(prog="mutate.py", description=__doc__).add("seed")
    parser.add_argument("--count", type=whole_number(1), default=10, metavar="N", help="how many faults")
    parser.add_argument("--file", default=None, metavar="FILE", help="only in this file; by default in any of examples/")
    return parser


@command
def main(argv=None):
    """Plant faults, and list those that no test noticed."""
    args = options().parse_args(argv)
    generator = random.Random(args.seed)
    files = [p.relative_to(ROOT) for p in sorted((ROOT / "examples").glob("ch*/*.py")) if places(ast.parse(p.read_text("utf-8")))]
    if args.file is not None:
        files = [p for p in files if p == Path(args.file)]
        if not files:
            raise BadInput(f"{args.file} is no file of a chapter with something to change; give one as examples/ch05/sampling.py")
    rows = []
    with tempfile.TemporaryDirectory() as folder, progress_bar("fault", args.count) as bar:
        root = Path(folder) / "copy"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", ".venv", ".cache", "__pycache__"))
        for _ in range(args.count):
            path = generator.choice(files)
            line, before, text = mutant(ROOT / path, generator)
            rows.append([f"{path}:{line}", before[:60], "yes" if noticed(root, path, text) else "NO"])
            bar.update()
    print(table(["fault at", "the line", "noticed"], rows))
    print(f"\n{sum(row[2] == 'yes' for row in rows)} of {len(rows)} noticed.")


if __name__ == "__main__":
    sys.exit(main())
