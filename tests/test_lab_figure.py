"""How a figure is drawn: to a target that was looked at first, the same each time, whatever the reader's settings are."""

import os
import unittest
from pathlib import Path
from unittest import mock

from examples.lab.figure import FORMATS, check_target, new_figure, write_figure
from examples.lab.script import BadInput
from tests.support import FolderCase


class Figure(FolderCase):
    def draw(self, name):
        figure, axes = new_figure((3, 2))
        axes.plot([1, 2], [3, 4])
        write_figure(figure, self.folder / name)
        return (self.folder / name).read_bytes()

    def test_every_format_and_the_same_each_time(self):
        for form, start in (("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")):
            one, two = self.draw(f"a.{form}"), self.draw(f"b.{form}")
            self.assertTrue(one.startswith(start))
            self.assertEqual(one, two)
        self.assertEqual(FORMATS, ("svg", "png", "pdf"))

    def test_no_figure_stays_open(self):
        from matplotlib import pyplot

        before = pyplot.get_fignums()
        self.draw("a.png")
        self.assertEqual(pyplot.get_fignums(), before)

    def test_targets(self):
        self.assertIsNone(check_target(None))
        for name in ("a.svg", "a.PNG", "a.pdf"):
            self.assertEqual(check_target(self.folder / name), self.folder / name)
        self.assertEqual(check_target(Path("a.svg")), Path("a.svg"))
        (self.folder / "d.svg").mkdir()
        for path, word in (
            (self.folder / "d.svg", "is a folder; name a file"),
            (self.folder / "x.gif", "does not end in .svg, .png, .pdf"),
            (self.folder / "x", "does not end in"),
            (self.folder / "none" / "x.svg", "is not a folder; make it first"),
        ):
            with self.assertRaisesRegex(BadInput, word):
                check_target(path)
        with mock.patch.object(os, "access", return_value=False), self.assertRaisesRegex(BadInput, "cannot be written"):
            check_target(self.folder / "a.svg")


if __name__ == "__main__":
    unittest.main()
