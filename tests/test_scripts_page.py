"""How a page of Markdown is read: its headings, links, code and prose, each with the line that it stands in."""

import unittest

from scripts.check import check_numbers
from scripts.page import Page

PAGE = """---
title: 3.5
---

# A `name`

## A [link](a.md) and `code`
one [two](b%20c.md#d "title")
![three 3.5
four](e.svg) `f` <https://g.h/1.5>

| a | b |
|---|---|
| `i` | [j](k.md) |

~~~sh
make x
~~~

- l

      indented
- [m][n]

<p>html 7.5</p>

[n]: o.md
## A `name`
"""


class Pages(unittest.TestCase):
    def test_what_a_page_holds(self):
        page = Page(PAGE)
        self.assertEqual(page.headings, [(1, "A name", 5), (2, "A link and code", 7), (2, "A name", 28)])
        self.assertEqual(
            page.links,
            [("a.md", 7), ("b c.md#d", 8), ("e.svg", 9), ("https://g.h/1.5", 10), ("k.md", 14), ("o.md", 23)],
        )
        self.assertEqual(page.code, [("name", 5), ("code", 7), ("f", 10), ("i", 14), ("name", 28)])
        self.assertEqual(
            [(kind, text.strip(), line) for kind, text, line in page.blocks], [("sh", "make x", 16), ("", "indented", 22)]
        )
        self.assertEqual([line for _, line in page.html], [25])
        self.assertEqual(page.images, [("three 3.5\nfour", 9)])
        self.assertEqual(page.anchors, ["a-name", "a-link-and-code", "a-name-1"])
        self.assertEqual(
            [page.heading(line) for line in (4, 5, 27, 99)],
            [None, ("A name", "a-name"), ("A link and code", "a-link-and-code"), ("A name", "a-name-1")],
        )

    def test_prose_and_its_lines(self):
        prose = {line: text for text, line in Page(PAGE).prose}
        self.assertEqual(prose[8].split(), ["one", "two", "three", "3.5", "four", "¤"])
        self.assertEqual([(p.line, p.what.split("'")[1]) for p in check_numbers("f", PAGE)], [(9, "3.5"), (25, "7.5")])


if __name__ == "__main__":
    unittest.main()
