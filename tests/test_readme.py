"""What README shows: the reader's first program prints what stands there, and no script is left out."""

import ast
import contextlib
import io
import re
import unittest

from scripts.listings import CODE
from tests.support import ROOT

PLACES = ("README.md", "content/books/inference/04-chapter.md")


def starter(path):
    """(program, output): the first Python block of a page that is no listing, and the text block that follows it."""
    text = CODE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    found = re.search(r"^```python\n(.*?)^```\n\n^```text\n(.*?)^```", text, re.M | re.S)
    return found[1], found[2]


class Starter(unittest.TestCase):
    def test_it_prints_what_the_page_says(self):
        for path in PLACES:
            program, output = starter(path)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(program, path, "exec"), {})
            self.assertEqual(printed.getvalue(), output, path)

    def test_both_pages_have_one_program_and_it_is_short(self):
        programs = [starter(path)[0] for path in PLACES]
        self.assertEqual(programs[0], programs[1])
        self.assertEqual(len([line for line in programs[0].splitlines() if line]), 7)

    def test_its_shapes_are_those_of_its_comments(self):
        program, _ = starter(PLACES[0])
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(program, PLACES[0], "exec"), names)
        self.assertEqual(tuple(names["ids"].shape), (1, 6))
        self.assertEqual(tuple(names["logits"].shape), (1, 6, names["model"].config.vocab_size))


class Readme(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "README.md").read_text(encoding="utf-8")

    def test_what_make_run_runs(self):
        """The transcript below it is of the same script; the tests of the manuscripts run it."""
        self.assertIn("`make run` is `examples/ch04/tour.py`:\n\n<!--run python examples/ch04/tour.py-->", self.text)
        self.assertRegex((ROOT / "Makefile").read_text(), r"(?m)^run:.*\n\t@\$\(RUN\) examples/ch04/tour.py$")

    def test_every_script_of_a_chapter_stands_there_as_it_describes_itself(self):
        rows = dict(re.findall(r"^\| `(examples/ch\d\d/\w+\.py)` \| (.*?) \|", self.text, re.M))
        scripts = {}
        for path in sorted(ROOT.glob("examples/ch*/*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
                scripts[path.relative_to(ROOT).as_posix()] = ast.get_docstring(tree).splitlines()[0]
        self.assertEqual(set(rows), set(scripts))
        for path, shown in rows.items():
            self.assertTrue(scripts[path].endswith(shown), f"{path}: {shown!r} is not the end of {scripts[path]!r}")


if __name__ == "__main__":
    unittest.main()
