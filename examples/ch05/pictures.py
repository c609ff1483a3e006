"""Chapter 5's picture: one step of the loop, and the arrow that leads back.

    python examples/ch05/pictures.py --into .

Nothing in it is measured.
"""

import itertools
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.lab.figure import (
    BLUE,
    GREEN,
    ORANGE,
    PAGE,
    VERMILION,
    arrow,
    box,
    new_picture,
    picture_options,
    show_pictures,
    write_figure,
)
from examples.lab.script import command


def draw_loop(path):
    """One step of the loop: the whole text goes in, one id is chosen and appended, and the longer text goes in again."""
    figure, (axes,) = new_picture((PAGE, 2.0))
    steps = (
        ("prompt ids\n[1, T]", BLUE, 0.75),
        ("forward\n[1, t]", GREEN, 0.7),
        ("last logits\n[1, V]", GREEN, 0.7),
        ("temperature,\ntop-k, top-p", ORANGE, 0.6),
        ("choose\none id", ORANGE, 0.6),
        ("append", VERMILION, 0.6),
    )
    x, ends = 0, []
    for name, colour, white in steps:
        width = 3.1 if "top-k" in name else 2.5 if "\n" in name else 2.0
        box(axes, x, 0, width, 1.6, name, colour, white)
        ends.append((x, x + width))
        x += width + 0.75
    for (_, left), (right, _) in itertools.pairwise(ends):
        arrow(axes, (left, 0.8), (right, 0.8))
    back, forward, chosen = (sum(ends[i]) / 2 for i in (5, 1, 4))
    arrow(axes, (back, 1.6), (back, 2.7), (forward, 2.7), (forward, 1.6), colour=VERMILION)
    axes.text((back + forward) / 2, 2.8, "once more, with one id more: $t$ becomes $t + 1$", ha="center", va="bottom")
    arrow(axes, (chosen, 0), (chosen, -1.0))
    axes.text(chosen, -1.1, "text, as it comes", ha="center", va="top")
    axes.set_xlim(-0.2, x - 0.5)
    axes.set_ylim(-2.0, 3.7)
    write_figure(figure, path)


PICTURES = {"loop.svg": draw_loop}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the picture, or write it."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
