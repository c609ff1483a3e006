"""Markers: what a path finds, what a format shows, and which pages have them."""

import unittest

from scripts.markers import load_records, look_up, manuscripts, pages, refreshed, render, render_table
from tests.small_book import SmallBook

RECORD = {
    "id": "x.y",
    "values": {
        "n": 1234,
        "share": 45.52,
        "zero": 0.0,
        "rows": [{"t": 16, "ms": 1.5, "name": "a|b"}, {"t": 128, "ms": None, "name": "c"}],
    },
    "machine": {"processor": "some"},
}


class Markers(unittest.TestCase):
    def test_paths(self):
        look = lambda path: look_up(RECORD, path)  # noqa: E731
        self.assertEqual((look("n"), look("rows[t=16].ms"), look(".machine.processor")), (1234, 1.5, "some"))
        self.assertEqual(look("rows[name=c][t=128].name"), "c")
        for path in ("rows[name=c][t=16].name", "m", "n.more", "rows[t=17].ms", "rows[t=16].s", ".values.x", "n[t=1]"):
            with self.assertRaises(LookupError):
                look(path)

    def test_formats(self):
        for value, form, shown in (
            (1234567, "int", "1,234,567"),
            (1234.0, "int", "1,234"),
            (1234, "bytes", "1,234 bytes"),
            (50331648, "mb1", "50.3 MB"),
            (45.52, "%1", "45.5%"),
            (45.52, "pct1", "45.5 per cent"),
            (30, "pct0", "30 per cent"),
            (0.00012345, "s1", "1.2e-4"),
            (7e-07, "s0", "7e-7"),
            (12.345, "ms1", "12.3 ms"),
            (3.0512, "f2", "3.05"),
            (1234.5, "f0", "1,234"),
            (12.345, "g3", "12.3"),
            (1234.5, "g3", "1,230"),
            (0.012345, "g2", "0.012"),
            (9.996, "g3", "10.0"),
            (0.0, "g3", "0"),
            (None, "f1", "n/a"),
            ("a\nb|c", "text", "a b\\|c"),
            (True, "text", "True"),
        ):
            self.assertEqual(render(value, form), shown, (value, form))
        for value, form in ((1.5, "int"), ("x", "f1"), (True, "int"), (1, "furlongs"), ([1], "text"), (1, "f1x")):
            with self.assertRaises(ValueError):
                render(value, form)

    def test_tables(self):
        text = render_table(RECORD["values"]["rows"], ["name:text", "t:int:T", "ms:f1:time,_ms"])
        rows = [[c.strip() for c in row.replace("\\|", "/").strip("|").split("|")] for row in text.strip().splitlines()]
        self.assertEqual([rows[0], rows[2], rows[3]], [["name", "T", "time, ms"], ["a/b", "16", "1.5"], ["c", "128", "n/a"]])
        self.assertTrue(text.startswith("\n\n|") and text.endswith("|\n\n"))
        for rows in ([], 3, [1], {"a": 1}):
            with self.assertRaises(ValueError):
                render_table(rows, ["a:int"])

    def test_refreshing(self):
        text = "a <!--=x.y n int-->7<!--/--> b <!--=x.z n int-->8<!--/--> c\n\n<!--=x.y rows table t:int-->old<!--/-->\n"
        new = refreshed(text, {"x.y": RECORD})
        self.assertIn("a <!--=x.y n int-->1,234<!--/--> b <!--=x.z n int-->8<!--/--> c", new)
        self.assertIn("|   t |", new)
        self.assertEqual(refreshed(new, {"x.y": RECORD}), new)

    def test_a_marker_that_is_not_closed_swallows_nothing(self):
        text = "a <!--=x.y n int-->7 and more text <!--const-->7<!--/--> b\n"
        self.assertEqual(refreshed(text, {"x.y": RECORD}), text)


class Named(SmallBook):
    def test_what_can_be_named(self):
        self.write("research/ch98/published.json", '{"chapter": "ch98", "entries": [{"id": "old", "value": 7}]}')
        found = load_records(self.folder)
        self.assertEqual(set(found), {"ch98.one", "ch98.near", "ch98.seen", "ch98.time", "published.old"})
        self.assertEqual(look_up(found["published.old"], "value"), 7)
        self.assertEqual(manuscripts(self.folder), {"ch98": self.chapter})

    def test_pages(self):
        appendix = self.write("content/books/inference/98-appendix.md", "More.\n")
        beside = self.write("content/pages/a.md", "Beside.\n")
        self.assertEqual(manuscripts(self.folder), {"ch98": self.chapter})
        self.assertEqual(pages(self.folder), [appendix, self.chapter, beside, self.folder / "README.md"])


if __name__ == "__main__":
    unittest.main()
