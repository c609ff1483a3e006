"""The house's rules: who may import whom, what lies at the top level, and that the README's commands are there."""

import ast
import functools
import re
import shutil
import subprocess
import unittest

from tests.support import ROOT

TOP = {"README.md", "Makefile", "requirements.txt", "LICENSE", "content", "examples", "tests", "research", "scripts"}


# What computes: it may measure itself, and imports nothing that measures it. Every other file that measures is a room's.
COMPUTATION = {
    *("examples/ch04/gpt2_from_scratch.py", "examples/ch14/llama_from_scratch.py", "examples/ch14/variants.py"),  # the passes
    *("examples/ch10/kv_cache.py", "examples/ch05/sampling.py", "examples/ch05/generate.py"),
    *("examples/ch04/cost_model.py", "examples/ch14/costs.py"),  # the formulas
    *("examples/ch02/anatomy.py", "examples/ch02/storage_formats.py"),  # the readers of weight files, and their formats
}
LOOKS_AT_ALL = {"examples/ch04/tour.py"}  # no record is of it, and it shows what other rooms measure
LONGEST = 450  # lines


@functools.cache
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


def graph(files):
    """{path: the paths among `files` that it imports}, of {path: source}."""

    def path_of(name):
        parts = name.split(".")  # of a.b.c the file a/b/c.py, or a/b.py that has c
        return next((p for n in (len(parts), len(parts) - 1) if (p := "/".join(parts[:n]) + ".py") in files), None)

    return {path: {found for name in imports(source) if (found := path_of(name))} for path, source in files.items()}


def cycles(files):
    """A line for each file of `files` that imports itself by way of others."""
    edges = graph(files)
    broken = []
    for start in sorted(edges):
        way = {start: None}  # {path: the one that imports it}
        queue = [start]
        for path in queue:
            for found in sorted(edges[path]):
                if found == start:
                    back = [path]
                    while way[back[-1]]:
                        back.append(way[back[-1]])
                    broken.append(" imports ".join([*reversed(back), start]))
                    queue.clear()
                    break
                if found not in way:
                    way[found] = path
                    queue.append(found)
    return broken


@functools.cache
def measures(source):
    """Whether a file holds experiments, or a function that measures."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("measure"):
            return True
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if any(isinstance(target, ast.Name) and target.id == "EXPERIMENTS" for target in targets):
            return True
    return False


def imports_what_measures(files):
    """A line for each file of computation in examples/ that imports a room's measurement."""
    files = {path: source for path, source in files.items() if path.startswith("examples/")}
    rooms = {path for path, source in files.items() if measures(source)} - COMPUTATION
    edges = graph(files)
    found = [(path, room) for path in files for room in edges[path] & rooms if path not in rooms | LOOKS_AT_ALL]
    return [f"{path} computes, and imports {room}, which measures" for path, room in sorted(found)]


def too_long(files):
    return [f"{p} has {n} lines, more than {LONGEST}" for p, source in files.items() if (n := len(source.splitlines())) > LONGEST]


def borrowed_from_tests(files):
    """A line for each test that imports another."""
    found = [(path, name) for path, source in files.items() for name in imports(source)]
    return [f"{path} imports {name}" for path, name in sorted(found) if re.match(r"tests\.test_|test_", name)]


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


def sources(*rooms, kind="py"):
    """{path: source} of the Python files in these folders, or of those of another kind."""
    paths = [path for room in rooms for path in sorted((ROOT / room).rglob(f"*.{kind}"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


class Imports(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.files, cls.tests = sources("examples", "scripts"), sources("tests")

    def planted(self, path, line):
        """The files with one more line at the end of one of them."""
        return self.files | {path: self.files[path] + f"\n{line}\n"}

    def assertFinds(self, rule, planted, *words):
        """`rule` finds more in the files with a fault planted than in those that are there, and names it."""
        new = set(rule(planted)) - set(rule(self.files))
        self.assertTrue(new)
        self.assertTrue(any(all(word in line for word in words) for line in new), new)

    def test_who_imports_whom(self):
        self.assertGreater(len(self.files), 30)
        self.assertEqual([line for path, source in (self.files | self.tests).items() for line in broken_rules(path, source)], [])

    def test_the_rule_catches_what_breaks_it(self):
        for path, source in (
            ("examples/ch02/a.py", "from examples.ch04 import gpt2_from_scratch"),
            ("examples/ch02/a.py", "def f():\n    import examples.ch03.tokens"),
            ("examples/ch02/a.py", "from examples import ch04"),
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

    def test_no_cycle(self):
        self.assertEqual(cycles(self.files), [])

    def test_a_planted_cycle(self):
        for line in ("import examples.ch04.agreement", "def f():\n    from examples.ch04 import agreement"):
            self.assertFinds(
                cycles, self.planted("examples/ch02/model.py", line), "examples/ch04/agreement.py imports examples/ch02/model.py"
            )
        self.assertFinds(cycles, self.planted("scripts/records.py", "from scripts import evidence"), "scripts/records.py")
        self.assertFinds(
            cycles, self.planted("scripts/figures.py", "from scripts.figures import draw"), "figures.py imports scripts/figures.py"
        )

    def test_computation_imports_nothing_that_measures_it(self):
        self.assertLessEqual(COMPUTATION | LOOKS_AT_ALL, set(self.files))
        self.assertEqual(imports_what_measures(self.files), [])

    def test_a_planted_measurement(self):
        for path, line in (
            ("examples/ch04/gpt2_from_scratch.py", "from examples.ch04.agreement import agreement"),
            ("examples/ch10/kv_cache.py", "def f():\n    from examples.ch04 import causal_mask"),
            ("examples/ch04/cost_model.py", "import examples.ch04.component_timing"),
            ("examples/ch04/library.py", "from examples.ch04.agreement import agreement"),
        ):
            self.assertFinds(imports_what_measures, self.planted(path, line), path)
        for source in (
            "EXPERIMENTS = ()",
            "EXPERIMENTS: tuple = ()",
            "def measure(model):\n    pass",
            "def measure_it():\n    pass",
        ):
            self.assertTrue(measures(source))
        self.assertFalse(measures("def f():\n    def measure():\n        pass\nX = EXPERIMENTS"))

    def test_no_file_is_too_long(self):
        self.assertEqual(too_long(self.files | sources("content", kind="js")), [])
        self.assertIn("content/web/figures.js", sources("content", kind="js"))
        self.assertEqual(len(too_long({"a.py": "x\n" * 451, "b.py": "x\n" * 450})), 1)

    def test_no_test_imports_another(self):
        self.assertEqual(borrowed_from_tests(self.tests), [])
        for line in (
            "from tests.test_house import TOP",
            "from tests import test_house",
            "def f():\n    import tests.test_house",
            "import test_house",
        ):
            self.assertEqual(len(borrowed_from_tests({"tests/test_a.py": line})), 1, line)
        self.assertEqual(borrowed_from_tests({"tests/test_a.py": "from tests.support import call\nfrom tests import faults"}), [])

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


class Text(unittest.TestCase):
    def test_is_read_and_written_as_utf_8(self):
        """Whatever the machine's own encoding is: each read_text, write_text and open of text names the encoding."""
        found = set()
        for path in [*ROOT.glob("examples/**/*.py"), *ROOT.glob("scripts/*.py")]:
            name = path.relative_to(ROOT).as_posix()
            found |= {(name, n.lineno) for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if says_no_encoding(n)}
        self.assertEqual(found, set())

    def test_what_breaks_is_seen(self):
        for code in ("p.read_text()", "p.write_text(x)", "p.open()", "open(p)", "open(p, 'a')", "p.open(mode='w')"):
            self.assertTrue(says_no_encoding(ast.parse(code).body[0].value), code)
        for code in (
            "p.read_text('utf-8')",
            "p.write_text(x, encoding='utf-8')",
            "p.open('rb')",
            "open(os.devnull, 'w')",
            "os.open(p)",
        ):
            self.assertFalse(says_no_encoding(ast.parse(code).body[0].value), code)


def says_no_encoding(node):
    """Whether a node of a program reads or writes text in an encoding that it does not name."""
    if not isinstance(node, ast.Call):
        return False
    words = {word.arg: word.value for word in node.keywords}
    called = ast.unparse(node.func)
    name, owner = called.rpartition(".")[2], called.rpartition(".")[0]
    if "encoding" in words or name not in ("read_text", "write_text", "open") or owner in ("os", "image", "Image"):
        return False
    if name != "open":
        return len(node.args) < (1 if name == "read_text" else 2)
    mode = words.get("mode", node.args[0 if owner else 1] if len(node.args) > (0 if owner else 1) else None)
    if node.args and ast.unparse(node.args[0]) == "os.devnull":
        return False
    return mode is None or "b" not in ast.unparse(mode)


class House(unittest.TestCase):
    def test_top_level(self):
        git = shutil.which("git")
        listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True) if git else None
        if listed is None or listed.returncode:
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
