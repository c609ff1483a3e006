"""How a figure is drawn: to a target that was looked at first, the same each time, whatever the reader's settings are."""

import itertools
import os
import unittest
from pathlib import Path
from unittest import mock

from examples.lab.figure import (
    COLOURS,
    FORMATS,
    SMALL,
    check_target,
    label_ends,
    list_pictures,
    new_figure,
    new_panels,
    noted,
    plain_ticks,
    spread,
    style,
    tint,
    write_figure,
    write_pictures,
)
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


class Style(FolderCase):
    def test_each_line_has_a_colour_a_marker_and_a_dash_of_its_own(self):
        for what in ("color", "marker", "linestyle"):
            self.assertEqual(len({style(i)[what] for i in range(len(COLOURS))}), len(COLOURS), what)
        self.assertEqual(style(len(COLOURS)), style(0))

    def test_tint(self):
        self.assertEqual((tint("#204080", 0), tint("#204080", 1), tint("#204080", -1)), ("#204080", "#ffffff", "#000000"))
        self.assertEqual(tint("#204080", -0.5), "#102040")

    def test_spread(self):
        for places, sizes, lowest, wanted in (
            ([0.2, 0.8], [0.1, 0.1], -9, [0.2, 0.8]),  # there is room
            ([0.5, 0.5], [0.25, 0.25], -9, [0.375, 0.625]),
            ([0.5, 0.25, 0.5], [0.25] * 3, -9, [0.5 - 1 / 12, 0.25 - 1 / 12, 0.75 - 1 / 12]),  # the third is moved onto nobody
            ([0.0, 0.0], [0.5, 0.5], 0, [0.25, 0.75]),
            ([], [], 0, []),
        ):
            for found, place in zip(spread(places, sizes, lowest), wanted, strict=True):
                self.assertAlmostEqual(found, place)

    def labels(self, *lines):
        figure, axes = new_figure((7, 3))
        from matplotlib.text import Text

        for i, (label, values) in enumerate(lines):
            axes.plot(range(len(values)), values, label=label, **style(i))
        label_ends(axes)
        figure.draw_without_rendering()
        found = {t.get_text(): Text.get_window_extent(t) for t in axes.texts}  # without the line that leads to it
        write_figure(figure, self.folder / "a.svg")
        return found, figure

    def test_labels_at_the_ends_do_not_overlap_and_stand_within_the_figure(self):
        found, figure = self.labels(
            *((f"line {i}", [0, 1 + i / 1000]) for i in range(5)), ("_none", [1, 2]), ("empty", [float("nan")] * 2)
        )
        self.assertEqual(list(found), [f"line {i}" for i in range(5)])
        boxes = sorted(found.values(), key=lambda b: b.y0)
        for one, two in itertools.pairwise(boxes):
            self.assertLessEqual(one.y1, two.y0)
        self.assertLessEqual(max(b.x1 for b in boxes), figure.bbox.x1)

    def test_every_text_is_large_enough(self):
        for size in self.sizes():
            self.assertGreaterEqual(size, SMALL)

    def sizes(self):
        with noted("the model"):
            figure, panels = new_panels(1, 2, (7, 3), sharey=True)
        self.assertEqual(figure.get_supxlabel(), "the model")
        panels[0].plot([1, 2], label="a")
        panels[0].set(title="t", xlabel="x", ylabel="y")
        panels[0].legend()
        from matplotlib.text import Text

        sizes = [text.get_fontsize() for text in figure.findobj(Text)]
        write_figure(figure, self.folder / "a.svg")
        return sizes

    def test_ticks_of_powers_are_plain_numbers(self):
        figure, axes = new_figure((7, 3))
        axes.semilogy([0, 1], [0.01, 10000])
        plain_ticks(axes.yaxis)
        figure.draw_without_rendering()
        found = [label.get_text() for label in axes.get_yticklabels()]
        self.assertLessEqual({"0.01", "1", "100", "10,000"}, set(found))
        write_figure(figure, self.folder / "a.svg")

    def test_pictures(self):
        def draw_one(path):
            """What it shows.

            More."""
            path.write_text("one")

        pictures = {"one.svg": draw_one, "two.svg": lambda path: path.write_text("two")}
        self.assertEqual(list_pictures(pictures), "one.svg        What it shows.\ntwo.svg")
        self.assertEqual(write_pictures(pictures, self.folder, "png"), [self.folder / "one.png", self.folder / "two.png"])
        self.assertEqual((self.folder / "two.png").read_text(), "two")
        with self.assertRaisesRegex(BadInput, "not a folder"):
            write_pictures(pictures, self.folder / "none")


if __name__ == "__main__":
    unittest.main()
