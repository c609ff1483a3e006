"""The facts that the figures read as `book.data`, made by the chapters' own functions and records.

Each group of figures has a function of its own.
"""

from examples.ch02.model import PUBLISHED
from examples.lab.script import BadInput


def figure_data():
    """{name: plain JSON} of all figures; no name may stand in two groups."""
    found = {}
    for group in (data_01_08, data_09_17, data_18_28):
        for name, value in group().items():
            if name in found:
                raise BadInput(f"two groups of figures give book.data.{name}; give one another name")
            found[name] = value
    return found


def data_01_08():
    """Of figures 1 to 8: the fields of GPT-2's published config."""
    return {"gpt2": PUBLISHED["gpt2"]}


def data_09_17():
    """Of figures 9 to 17."""
    return {}


def data_18_28():
    """Of figures 18 to 28."""
    return {}
