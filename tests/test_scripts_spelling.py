"""Spelling: what is told of a page, and what is left alone."""

import unittest

from scripts.spelling import british, check_spelling


class Spelling(unittest.TestCase):
    def test_what_is_found_and_where(self):
        pages = {
            "a.md": "# Teh head\n\nWe recieve **it,\noccured** and\nso on.\n",
            "b.md": "---\ntitle: x\n---\n\nIn color, it is normalized, and the optimizer learns.\n\n| a |\n|---|\n| behavior |\n",
            "c.md": "In colour, it is normalised; the program learns by practice. [A recieved page](a.md)\n",
        }
        found = [(p.path, p.line, p.what.split("'")[1]) for p in check_spelling(pages)]
        self.assertEqual(
            found,
            [
                ("a.md", 1, "Teh"),
                ("a.md", 3, "recieve"),
                ("a.md", 4, "occured"),
                ("b.md", 5, "color"),
                ("b.md", 5, "normalized"),
                ("b.md", 5, "optimizer"),
                ("b.md", 9, "behavior"),
                ("c.md", 1, "recieved"),
            ],
        )

    def test_what_is_left_alone(self):
        for text in (
            "`color` and $recieve$\n" if False else "`color`\n",
            "```python\ncolor = teh\n```\n",
            "[Layer Normalization](https://example.org/a), 2016\n",
            'They call it "the normalization of teh layer".\n',
            "<!--=x.y text text-->Teh recieve<!--/--> of a model\n",
            "---\ntitle: teh\n---\n",
        ):
            self.assertEqual(check_spelling({"a.md": text}), [], text)

    def test_american_words(self):
        found = british()
        self.assertEqual((found["color"], found["normalization"]), ("colour", "normalisation"))
        self.assertGreater(len(found), 400)


if __name__ == "__main__":
    unittest.main()
