"""The web edition's colours: what is read has 4.5:1 against its ground, what is only seen 3:1, light and dark."""

import re
import unittest
from itertools import product
from pathlib import Path

STYLE = Path(__file__).resolve().parents[1] / "content" / "web" / "style.css"
COLOUR = re.compile(r"--([\w-]+): *#([0-9a-f]{6});")
READ = ("ink", "quiet", "link", "visited", "string")
SEEN = ("edge", "lit-edge", "link", "c1", "c2", "c3", "c4", "c5", "c6")
PALE = 0.22  # the share of a colour in a pale fill, as figures.css mixes it


def palettes(css):
    """({"light": {name: (red, green, blue)}, "dark": ...}, names that only the light one has) of the two blocks of :root."""
    light, dark = (dict(COLOUR.findall(block)) for block in re.findall(r":root \{(.*?)\}", css, re.S))
    found = {"light": light, "dark": light | dark}
    rgb = {theme: {name: tuple(bytes.fromhex(value)) for name, value in colours.items()} for theme, colours in found.items()}
    return rgb, set(light) - set(dark)


def luminance(colour):
    """WCAG's relative luminance."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """WCAG's ratio of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


class Colours(unittest.TestCase):
    """style.css, read as text."""

    def setUp(self):
        self.palettes, self.light_only = palettes(STYLE.read_text(encoding="utf-8"))

    def test_both_themes_name_every_colour(self):
        self.assertEqual(self.light_only, set())

    def test_ratio(self):
        self.assertAlmostEqual(contrast((0, 0, 0), (255, 255, 255)), 21)
        self.assertAlmostEqual(contrast((119, 119, 119), (255, 255, 255)), 4.48, places=2)

    def test_what_is_read(self):
        for theme, colours in self.palettes.items():
            for text, ground in product(READ, ("ground", "raised")):
                with self.subTest(theme=theme, text=text, ground=ground):
                    self.assertGreaterEqual(contrast(colours[text], colours[ground]), 4.5)

    def test_what_is_read_on_a_marked_ground(self):
        for theme, colours in self.palettes.items():
            for text, ground in product(("ink", "quiet", "link"), ("lit", "done")):
                with self.subTest(theme=theme, text=text, ground=ground):
                    self.assertGreaterEqual(contrast(colours[text], colours[ground]), 4.5)

    def test_what_is_read_on_a_pale_fill(self):
        for theme, colours in self.palettes.items():
            for hue in ("edge", "c1", "c2", "c3", "c4", "c5", "c6"):
                pale = [PALE * c + (1 - PALE) * g for c, g in zip(colours[hue], colours["ground"], strict=True)]
                with self.subTest(theme=theme, hue=hue):
                    self.assertGreaterEqual(contrast(colours["ink"], pale), 4.5)

    def test_what_is_seen(self):
        for theme, colours in self.palettes.items():
            for line, ground in product(SEEN, ("ground", "raised")):
                with self.subTest(theme=theme, line=line, ground=ground):
                    self.assertGreaterEqual(contrast(colours[line], colours[ground]), 3)


if __name__ == "__main__":
    unittest.main()
