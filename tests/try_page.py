"""The page "Try it" as its tests read it: numbers from what the page shows, never from its scripts' variables.

A part of the page computes while it is in view and is marked busy until it is done, so each is brought into view and waited for.
"""

import re
import time
import unittest

import torch

from examples.ch02.model import load
from examples.ch03.tokens import encode
from scripts.web_edition.model_files import rounded
from tests.browser import at_width, open_page, problems, the_browser

TEXT = "Good morrow, my"
LONG = "Good night, good night! parting is such sweet sorrow,\nThat I shall say good night till it be morrow.\n"
SETTINGS = {"temperature": "0.8", "top-k": "50", "top-p": "", "seed": "0", "count": "40"}  # as the page opens


def as_shown(text):
    """A token's text as the page shows it: blanks and control characters made visible."""
    text = text.replace(" ", "␣").replace("\n", "⏎")
    return re.sub(r"[\x00-\x1f\x7f]", lambda match: f"0x{ord(match[0]):02X}", text)


class TryPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = the_browser()
        cls.model = rounded(load("embedded"))
        open_page(cls.driver, "try-it.html")
        cls.wait("the model to load", "return document.querySelector('#try-state').textContent === 'The model is loaded.'")

    def setUp(self):
        at_width(self.driver, 1440)
        for name, value in SETTINGS.items():
            self.field(name, value)
        for mask in ("mask", "influence-mask"):
            self.choose(mask, "on")
        self.choose("changed", "all")
        self.type(TEXT)

    # ----------------------------------------------------------------------------------------------- reading the page

    @classmethod
    def js(cls, script, *given):
        return cls.driver.execute_script(script, *given)

    @classmethod
    def wait(cls, what, script, *given, seconds=60):
        end = time.monotonic() + seconds
        while not cls.js(script, *given):
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {what}")
            time.sleep(0.02)

    def tearDown(self):
        self.assertEqual(problems(self.driver), [])

    def field(self, name, value):
        """Write a value into a field."""
        script = "const f = document.querySelector(arguments[0]); f.value = arguments[1]; f.dispatchEvent(new Event('input'))"
        self.js(script, f"#try-{name}", value)

    def choose(self, name, value):
        """Choose in a list."""
        script = "const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
        self.js(script, f"#try-{name}", str(value))

    def click(self, name):
        self.js("document.querySelector(arguments[0]).click()", f"#try-{name}")

    def type(self, text):
        """Put a text into the page, and wait until the page has taken it up."""
        self.field("text", text)
        self.wait("the text to be taken up", "return tryPage.waiting === null")

    def part(self, name):
        """Bring a part into view, and wait until it has computed."""
        self.js("document.getElementById(arguments[0]).scrollIntoView({behavior: 'instant'})", f"try-{name}")
        idle = "return !document.getElementById(arguments[0]).hasAttribute('aria-busy')"
        self.wait(f"{name} to be computed", idle, f"try-{name}")

    def texts(self, selector):
        """The text of each element that a selector finds, as it is written."""
        return self.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)

    def words(self, name):
        """What a part says of its state."""
        return self.texts(f"#try-{name} .words")[0]

    def written(self):
        """What the page has added to the text."""
        return self.texts("#try-generation .added")[0]

    def invalid(self, name):
        """Whether a field is marked as wrong."""
        return self.js("return document.querySelector(arguments[0]).ariaInvalid", f"#try-{name}") == "true"

    def cells(self, selector, of="cell.textContent"):
        """[rows, columns]: of each row that a selector finds what an expression says of each of its <td>."""
        script = (
            f"return [...document.querySelectorAll(arguments[0])].map((r) => [...r.querySelectorAll('td')].map((cell) => {of}))"
        )
        return self.js(script, selector)

    def grid(self, name):
        """[rows, columns] of the numbers behind a table's cells, and the same of what it says of them."""
        rows = self.cells(f"#try-{name} .try-grid tbody tr", "[cell.dataset.value, cell.ariaLabel]")
        return torch.tensor([[float(value) for value, _ in row] for row in rows]), [[label for _, label in row] for row in rows]

    def ids(self, text=TEXT):
        return encode(text, self.model)

    def assertShown(self, shown, value, digits, within=2e-6):
        """`shown` is `value` rounded to so many digits. A value as near to a half as the model is exact may go either way."""
        allowed = {f"{value + off:.{digits}f}" for off in (-within, 0, within)}
        self.assertIn(shown, allowed)
