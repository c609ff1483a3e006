"""The house's rules: who may import whom, what lies at the top level, and that the README's commands are there."""

import ast
import re
import subprocess
import unittest

from tests.support import ROOT

TOP = {"README.md", "Makefile", "requirements.txt", "LICENSE", "content", "examples", "tests", "research", "scripts"}


def imports(source):
    """The dotted names that a module imports, at its top or within a function; `from a import b` gives a.b."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            found |= {f"{dots}{node.module or ''}.{name.name}" for name in node.names}
    return found


def broken_rules(path, source):
    """What the imports of `source`, at `path` within the repository, break: a list of lines."""
    room, *rest = path.split("/")
    broken = []
    for name in imports(source):
        if name.startswith("."):
            broken.append(f"{path} imports {name}, from where the file lies; name the package")
        target, *inner = name.split(".")
        if target in ("scripts", "tests") and room == "examples":
            broken.append(f"{path} imports {name}")
        if target == "tests" and room == "scripts":
            broken.append(f"{path} imports {name}")
        if room == target == "examples" and len(rest) > 1 and inner and inner[0] != "lab":
            if rest[0] == "lab":
                broken.append(f"{path} imports {name}, and the lab serves every chapter")
            elif inner[0] > rest[0]:
                broken.append(f"{path} imports {name}, of a later chapter")
    return broken


class House(unittest.TestCase):
    def python_files(self):
        return [p for room in ("examples", "scripts", "tests") for p in sorted((ROOT / room).rglob("*.py"))]

    def test_imports(self):
        self.assertGreater(len(self.python_files()), 10)
        for path in self.python_files():
            self.assertEqual(broken_rules(path.relative_to(ROOT).as_posix(), path.read_text()), [])

    def test_the_rule_catches_what_breaks_it(self):
        for path, source in (
            ("examples/ch02/a.py", "from examples.ch04 import gpt2_from_scratch"),
            ("examples/ch02/a.py", "def f():\n    import examples.ch03.tokens"),
            ("examples/lab/a.py", "from examples.ch02 import model"),
            ("examples/ch04/a.py", "from scripts import bench"),
            ("examples/ch04/a.py", "from tests.support import G"),
            ("scripts/a.py", "import tests.support"),
            ("examples/ch02/a.py", "from ..ch04 import gpt2_from_scratch"),
            ("examples/ch02/a.py", "from . import b"),
        ):
            self.assertEqual(len(broken_rules(path, source)), 1, source)
        for path, source in (
            ("examples/ch04/a.py", "from examples.ch02 import model"),
            ("examples/ch02/a.py", "from examples.lab.script import BadInput"),
            ("examples/lab/a.py", "from examples.lab import script"),
            ("scripts/a.py", "import examples.ch04.a"),
        ):
            self.assertEqual(broken_rules(path, source), [])

    def test_a_later_chapter_is_named_in_one_place_only(self):
        """Chapter 2's table of families says which module runs which; no other file knows a later chapter by name."""
        found = set()
        for path in sorted((ROOT / "examples").rglob("*.py")):
            here = path.parent.name
            texts = [
                n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            chapters = [chapter for text in texts for chapter in re.findall(r"^examples\.(ch\d\d)\.\w+$", text)]
            if any(here == "lab" or chapter > here for chapter in chapters):
                found.add(path.relative_to(ROOT).as_posix())
        self.assertEqual(found, {"examples/ch02/families.py"})

    def test_top_level(self):
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode:
            self.skipTest("not a git checkout: an unpacked archive may hold anything beside the project")
        top = {line.split("/")[0] for line in listed.stdout.splitlines()}
        self.assertEqual({name for name in top if not name.startswith(".")} - TOP, set())

    def test_every_requirement_is_pinned(self):
        for line in (ROOT / "requirements.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                self.assertRegex(line, r"^[\w.-]+==[\w.]+$")

    def test_the_readme_names_what_is_there(self):
        text = (ROOT / "README.md").read_text()
        makefile = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^make ([a-z-]+)", text, re.M))
        self.assertLessEqual({"run", "test", "lint", "bench"}, targets)
        for target in targets:
            self.assertRegex(makefile, rf"(?m)^{target}:")
        paths = set(re.findall(r"(?:examples|scripts|tests|content|research)/[\w./*-]+\w", text))
        self.assertIn("examples/ch04/gpt2_from_scratch.py", paths)
        for path in paths:
            self.assertTrue(list(ROOT.glob(path.replace("NN", "??"))), path)


if __name__ == "__main__":
    unittest.main()
