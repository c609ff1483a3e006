"""Chapter 1's picture: a request as a timeline, from the files of a model to the text.

    python examples/ch01/pictures.py --into .

Widths in it are made up; nothing here is measured.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.lab.figure import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PAGE,
    arrow,
    box,
    new_picture,
    picture_options,
    show_pictures,
    write_figure,
)
from examples.lab.script import command

LOOKS = {  # of each stage: (width, colour, white)
    **{"load": (13, BLACK, 0.85), "tokenise": (5, GREEN, 0.6), "prefill": (15, BLUE, 0.6), "decode": (9.5, BLUE, 0.6)},
    **{"sample": (4, ORANGE, 0.6), "detokenise": (5, GREEN, 0.6)},
}
HEIGHT, GAP = 13, 1
UPRIGHT = {"fontsize": 10, "rotation": 90}


def draw_timeline(path):
    """A request as a timeline: load, tokenise, prefill, then sample and decode in turn, and detokenise; gaps are unexplained."""
    figure, (axes,) = new_picture((PAGE, 2.45))
    x, begins = 0.0, {}

    def stage(name, below):
        nonlocal x
        width, colour, white = LOOKS[name]
        box(axes, x, 0, width, HEIGHT, name, colour, white, **(UPRIGHT if width < 6 else {"fontsize": 10}))
        axes.text(x + width / 2, -1.2, below, ha="center", va="top")
        begins.setdefault(name, x)
        x += width + GAP

    stage("load", "files\nto model")
    x += 2
    stage("tokenise", "text\nto ids")
    stage("prefill", "the whole\nprompt at once")
    stage("sample", "token\n1")
    first = x - GAP
    for token in ("2", "3"):
        stage("decode", f"feeds\ntoken {int(token) - 1}")
        stage("sample", f"token\n{token}")
    axes.text(x + 1.5, HEIGHT / 2, "...", ha="center", va="center", fontsize=12)
    x += 4
    stage("decode", "feeds\ntoken n-1")
    stage("sample", "token\nn")
    stage("detokenise", "ids\nto text")
    last = x - GAP
    _span(axes, 0, LOOKS["load"][0], 16, "once for a process")
    _span(axes, begins["tokenise"], last, 21.5, "the request: its stages, and the gaps between them, which no stage claims")
    _span(axes, begins["tokenise"], first, 16, "time to the first token")
    _span(axes, first, last - LOOKS["detokenise"][0] - GAP, 16, "one decode step and one choice for each later token")
    axes.set_xlim(-1, last + 1)
    axes.set_ylim(-7, 25)
    write_figure(figure, path)


def _span(axes, start, stop, y, text):
    """A line from start to stop with an end at each, and text above its middle."""
    arrow(axes, (start, y - 0.7), (start, y), (stop, y), (stop, y - 0.7), width=0.8, head=False)
    axes.text((start + stop) / 2, y + 0.6, text, ha="center", va="bottom")


PICTURES = {"timeline.svg": draw_timeline}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
