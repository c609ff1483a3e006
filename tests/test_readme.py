"""The reader's first program, as README and chapter 4 print it: it runs as it stands, and prints what stands below it."""

import contextlib
import io
import re
import unittest

from tests.support import ROOT

PLACES = ("README.md", "content/books/inference/04-chapter.md")


def starter(path):
    """(program, output): the first Python block of a page, and the text block that follows it."""
    found = re.search(r"^```python\n(.*?)^```\n\n^```text\n(.*?)^```", (ROOT / path).read_text(encoding="utf-8"), re.M | re.S)
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


if __name__ == "__main__":
    unittest.main()
