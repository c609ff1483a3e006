"""The figures as the scripts see them: the records' and the chapters' pictures, each drawn the same every time, in one style."""

import re
import unittest

from examples.lab.figure import SMALL
from scripts.figures import figures, note
from tests.support import ROOT, FolderCase, call

PICTURES = {source: [] for source, _, _ in figures(ROOT) if source.endswith("pictures.py")}
for source, path, draw in figures(ROOT):
    if source in PICTURES:
        PICTURES[source].append((path, draw))


def module(source):
    import importlib

    return importlib.import_module(source.removesuffix(".py").replace("/", "."))


class Pictures(FolderCase):
    def test_each_chapter_with_a_module_has_some_and_they_come_out_the_same(self):
        self.assertEqual(set(PICTURES), {p.relative_to(ROOT).as_posix() for p in ROOT.glob("examples/ch*/pictures.py")})
        for source, found in PICTURES.items():
            status, out, err = call(module(source).main, "--into", self.folder)
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(len(out.splitlines()), len(found))
            for path, _ in found:
                self.assertEqual((self.folder / path.name).read_bytes(), path.read_bytes(), path)

    def test_each_says_what_it_shows_and_stands_in_its_chapter(self):
        for source, found in PICTURES.items():
            out = call(module(source).main)[1]
            self.assertLessEqual(max(map(len, out.splitlines())), 100)
            text = (ROOT / f"content/books/inference/{source[11:13]}-chapter.md").read_text(encoding="utf-8")
            for path, _ in found:
                self.assertRegex(out, rf"(?ms)^{path.name} +\S.*\.$")
                self.assertIn(f"figures/{path.name})", text)

    def test_bad_input(self):
        for source in PICTURES:
            status, _, err = call(module(source).main, "--into", self.folder / "none")
            self.assertEqual(status, 2)
            self.assertIn("not a folder", err)


class Style(unittest.TestCase):
    def test_no_name_is_drawn_twice(self):
        paths = [path for _, path, _ in figures(ROOT)]
        self.assertEqual(len(set(paths)), len(paths))

    def test_a_figure_is_as_wide_as_the_page_and_on_white(self):
        for _, path, _ in figures(ROOT):
            text = path.read_text(encoding="utf-8")
            self.assertEqual(re.search(r'<svg [^>]*width="([\d.]+)pt"', text)[1], "504", path)
            self.assertIn("fill: #ffffff", text[: text.index("axes_1")], path)
        self.assertGreaterEqual(SMALL, 9)

    def test_what_stands_at_a_foot(self):
        record = {"id": "ch04.x", "model": "embedded", "kind": "exact", "threads": 1}
        self.assertEqual(note(record), "the embedded model; record ch04.x")
        timed = record | {"kind": "timing", "threads": 2, "machine": {"processor": "a processor"}, "model": "other"}
        self.assertEqual(note(timed), "other, 2 threads, a processor; record ch04.x")


if __name__ == "__main__":
    unittest.main()
