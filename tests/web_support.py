"""What the tests of the web edition's figures share: Python's side of each figure, its numbers written as the page writes them,
and the figures in an engine without a page."""

import functools
import importlib
import json
import math
import re
import unittest
from decimal import ROUND_HALF_UP, Decimal

from tests.support import ROOT

GROUPS = ("figures_01_08", "figures_09_17", "figures_18_28")
WEB = ROOT / "content" / "web"
ORACLES = {}  # {id: (function, literals)}


def figure(id, literals=()):
    """Register a function that gives what figure `id` must show in a state: {key: text}. The literals are the strings with digits
    that may stand in the figure's text and are no shown number: names, formulas, the marks of an axis."""

    def register(function):
        if id in ORACLES:
            raise ValueError(f"two functions say what figure {id} shows")
        ORACLES[id] = (function, tuple(literals))
        return function

    return register


def oracle(id):
    """(function, literals) of a figure, whichever group's file has it."""
    for name in GROUPS:
        if (ROOT / "tests" / f"{name}.py").exists():
            importlib.import_module(f"tests.{name}")
    return ORACLES[id]


def figures_of_page():
    """The ids of the companion page's figures, in its order."""
    return re.findall(r'<figure [^>]*data-figure="([\w-]+)"', (ROOT / "content/pages/forward-pass.md").read_text(encoding="utf-8"))


# ---------------------------------------------------------------------------------------------------- numbers as JavaScript writes


def fixed(x, digits):
    """x as book.fixed writes it, with commas: toFixed rounds the exact value of the double, and a tie away from zero."""
    return f"{Decimal(x).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


def integer(x):
    """x as book.int writes it: Math.round, which takes a tie upwards, with commas."""
    return f"{math.floor(x) if x == math.floor(x) else math.floor(Decimal(x) + Decimal('0.5')):,}"


def percent(x, digits=1):
    """A share of 1 as book.percent writes it."""
    return f"{fixed(100 * x, digits)} per cent"


# --------------------------------------------------------------------------------------------------- figures without a page


@functools.cache
def quickjs_book():
    """An engine that holds figures.js, its data and every figure's script."""
    try:
        import quickjs
    except ModuleNotFoundError:
        raise unittest.SkipTest("quickjs is not installed; make web installs it") from None
    from scripts.web_edition.figures import data_script

    engine = quickjs.Context()
    engine.eval((WEB / "figures.js").read_text(encoding="utf-8"))
    engine.eval(data_script())
    for path in sorted((WEB / "figures").glob("*.js")):
        engine.eval(path.read_text(encoding="utf-8"))
    engine.eval("""
      /** All states of a figure: the product of what its controls take. */
      book.states = (id) => book.figures[id].controls.reduce(
        (states, c) => states.flatMap((s) => book.values(c).map((value) => ({ ...s, [c.name]: value }))), [{}]);
    """)
    return engine


def ask(code):
    """What an expression gives in the engine, as Python."""
    return json.loads(quickjs_book().eval(f"JSON.stringify({code})"))


@functools.cache
def states(id):
    """All states of a figure."""
    return ask(f"book.states({json.dumps(id)})")


@functools.cache
def renders(id):
    """{numbers, shown, drawing, words} of a figure in each of its states."""
    return ask(f"book.states({json.dumps(id)}).map((state) => book.render({json.dumps(id)}, state))")


@functools.cache
def expected(id):
    """What Python says that a figure shows, for each of its states."""
    function, _ = oracle(id)
    return [function(**{name.replace("-", "_"): value for name, value in state.items()}) for state in states(id)]
