"""Listings of code: what is found by name, what is left out, and what cannot be shown."""

import unittest

from scripts.listings import listing
from tests.support import FolderCase

CODE = '''"""A file."""

import functools

# ---------------------------------------------------------------- a part
# Of the part, not of f.


# Directly above.
@functools.cache
def f(x):
    """What f does.

    In two lines.
    """

    # A comment within.
    y = x + 1  # behind

    # before the loop
    for i in range(3):
        y += i
    if y:
        y = {"a": y}
    y += 2
    return y


WORDS = {
    "a": 1,
}
FEW, MORE = 1, 2
TYPED: int = 3
table = {}
table["a"] = 1


class Box:
    """A box."""

    size = 3

    def __init__(self):
        """Make it."""
        self.x = """
one
"""

    def bare(self):
        """Nothing else."""


def twice():
    return 1


def twice():
    return 2


def quoted(): """On the line."""; return 1
def dashes():
    return "<!--"
'''
TRACED = """def block(x, layer, trace=None):
    trace = no_trace if trace is None else trace
    x = x + 1  # [B, T, d]
    trace("a", layer, x)
    for point in ("b", "c"):
        trace(
            point, layer, x
        )
    if layer:
        trace("d", layer, x)
        x = x + 2
    return unembed(x, trace)
"""
FENCE = 'def ticks():\n    return "```"\n'


class Listings(FolderCase):
    def setUp(self):
        super().setUp()
        (self.folder / "examples").mkdir()
        (self.folder / "examples" / "a.py").write_text(CODE)
        (self.folder / "ticks.py").write_text(FENCE)
        (self.folder / "traced.py").write_text(TRACED)
        (self.folder / "broken.py").write_text("def f(:\n")
        self.page = self.folder / "content" / "books" / "a.md"

    def shown(self, spec):
        """The code of the block, of a listing that is one block and a caption."""
        body = listing(self.folder, self.page, f"examples/a.py {spec}")
        self.assertRegex(body, r"\A\n\n```python\n")
        code, caption = body.removeprefix("\n\n```python\n").split("\n```\n")
        self.assertRegex(caption, r"\A\*.*\*\n\n\Z")
        return code

    def lines(self, first, last):
        """Lines of CODE from the one that starts with `first` to the next that starts with `last`."""
        lines = CODE.split("\n")
        start = next(i for i, line in enumerate(lines) if line.startswith(first))
        end = next(i for i, line in enumerate(lines[start:], start) if line.startswith(last))
        return "\n".join(lines[start : end + 1])

    def test_by_name(self):
        self.assertEqual(self.shown("f"), self.lines("# Directly above.", "    return y"))
        self.assertEqual(self.shown("WORDS"), 'WORDS = {\n    "a": 1,\n}')
        self.assertEqual(self.shown("MORE"), "FEW, MORE = 1, 2")
        self.assertEqual(self.shown("TYPED"), "TYPED: int = 3")
        self.assertEqual(self.shown("table"), "table = {}")
        self.assertEqual(self.shown("Box.size"), "size = 3")
        self.assertEqual(self.shown("Box"), self.lines("class Box", '        """Nothing else.'))
        self.assertEqual(self.shown("Box.bare"), 'def bare(self):\n    """Nothing else."""')

    def test_several(self):
        box = self.shown("Box.bare")
        self.assertEqual(self.shown("WORDS,TYPED"), self.shown("WORDS") + "\n\n" + self.shown("TYPED"))
        self.assertEqual(self.shown("f,WORDS"), self.shown("f") + "\n\n\n" + self.shown("WORDS"))
        self.assertEqual(self.shown("WORDS,f"), self.shown("WORDS") + "\n\n\n" + self.shown("f"))
        self.assertEqual(self.shown("Box.bare,Box.size"), box + "\n\nsize = 3")

    def test_bare(self):
        code = self.shown("f bare")
        self.assertTrue(code.startswith("# Directly above.\n@functools.cache\ndef f(x):\n    # A comment within.\n"), code)
        self.assertEqual(
            self.shown("Box bare"),
            'class Box:\n    size = 3\n\n    def __init__(self):\n        self.x = """\none\n"""\n\n'
            '    def bare(self):\n        """Nothing else."""',
        )
        self.assertEqual(self.shown("quoted bare"), 'def quoted(): """On the line."""; return 1')

    def test_quiet(self):
        """Without the statements that only trace; what computes beside one stays, and so does a trace that is handed on."""

        def quiet(options="quiet"):
            return listing(self.folder, self.page, f"traced.py block {options}").split("```")[1]

        body = "    x = x + 1  # [B, T, d]\n    if layer:\n        x = x + 2\n    return unembed(x, trace)\n"
        self.assertEqual(quiet(), "python\ndef block(x, layer, trace=None):\n" + body)
        self.assertEqual(quiet("quiet bare"), quiet())
        self.assertEqual(quiet('from="x =" to="for" quiet'), "python\nx = x + 1  # [B, T, d]\n")
        self.assertIn('trace("a", layer, x)', quiet("bare"))
        (self.folder / "traced.py").write_text(TRACED.replace('trace("a", layer, x)', 'trace("a", layer, x + 1)'))
        self.assertEqual(quiet(), "python\ndef block(x, layer, trace=None):\n" + body)  # what is not shown may change
        for old, new in (("x = x + 1", "x = x + 3"), ('trace("d", layer, x)', 'x = trace("d", layer, x)')):
            (self.folder / "traced.py").write_text(TRACED.replace(old, new))
            self.assertIn(new, quiet())  # what is shown may not

    def test_parts(self):
        whole = self.shown("f")
        for spec, first, last in (
            ('f from="for i" to="if y"', "# before the loop", '    y = {"a": y}'),
            ('f from="y ="', "# A comment within.", "return y"),
            ('f to="y =" bare', "# A comment within.", "y = x + 1  # behind"),
            ('f from="y" to="y"', "# A comment within.", "y += 2"),
            ('f from="y +="', "y += 2", "return y"),
        ):
            code = self.shown(spec)
            self.assertTrue(code.startswith(first) and code.endswith(last), (spec, code))
            self.assertIn("\n".join(f"    {line}" if line else "" for line in code.split("\n")), whole)
        self.assertTrue(self.shown('f to="y ="').startswith('"""What f does.'))
        self.assertEqual(self.shown('Box from="size" to="size"'), "size = 3")

    def test_captions(self):
        for spec, caption in (
            ("f", "*`f` in [`examples/a.py`](../../examples/a.py)*"),
            ("f,WORDS,Box.size", "*`f`, `WORDS` and `Box.size` in [`examples/a.py`](../../examples/a.py)*"),
            ('f from="y"', "*From `f` in [`examples/a.py`](../../examples/a.py)*"),
        ):
            self.assertTrue(listing(self.folder, self.page, f"examples/a.py {spec}").endswith(f"\n```\n{caption}\n\n"), spec)
        self.assertIn("(examples/a.py)", listing(self.folder, self.folder / "README.md", "examples/a.py f"))

    def test_what_cannot_be_shown(self):
        for spec, word in (
            ("examples/a.py g", "no 'g'"),
            ("examples/a.py Box.g", "no 'Box.g'"),
            ("examples/a.py twice", "2 times"),
            ("examples/b.py f", "no examples/b.py"),
            ("examples f", "no examples"),
            ("broken.py f", "not Python"),
            ("examples/a.py", "a file and a name"),
            ("", "a file and a name"),
            ("examples/a.py f naked", "'naked'"),
            ('examples/a.py f from=""', "'from='"),
            ('examples/a.py f from="z"', "starts with 'z'"),
            ('examples/a.py f to="z"', "starts with 'z'"),
            ('examples/a.py f from="return" to="for"', "stands before"),
            ('examples/a.py f,Box from="y"', "one function"),
            ('examples/a.py WORDS from="y"', "a function"),
            ('examples/a.py f from="y', "quotation"),
            ("examples/a.py dashes", "cannot be shown"),
            ("ticks.py ticks", "cannot be shown"),
        ):
            with self.assertRaises((LookupError, ValueError)) as caught:
                listing(self.folder, self.page, spec)
            self.assertIn(word, str(caught.exception), spec)


if __name__ == "__main__":
    unittest.main()
