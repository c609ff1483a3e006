"""Chapter 11's pictures: prefill and decode as shapes of matrices.

    python examples/ch11/pictures.py --into .

Sizes in them are made up, and small; nothing here is measured.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.lab.figure import (
    BLUE,
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

ROWS, DEEP, WIDE = 6, 4, 7  # T, d and f of the picture


def draw_shapes(path):
    """A prefill multiplies T rows by a matrix, a decode step one row by the same: either reads the matrix once."""
    figure, (axes,) = new_picture((PAGE, 3.7))
    work = ((ROWS, "prefill:\nT rows", "T", "2 T d f FLOPs for\nd f weights read:\n2 T for each"),)
    work += ((1, "decode step:\none row", "1", "2 d f FLOPs for\nd f weights read:\n2 for each"),)
    lines = (0, -7.6)  # the height of the middle of either
    for y, (rows, name, T, said) in zip(lines, work, strict=True):
        axes.text(-0.6, y, name, ha="right", va="center")
        x = 0
        for width, height, colour, label in (
            (DEEP, rows, ORANGE, f"[{T}, d]"),
            (WIDE, DEEP, BLUE, "weights [d, f]"),
            (WIDE, rows, VERMILION, f"[{T}, f]"),
        ):
            for i in range(height):
                for j in range(width):
                    box(axes, x + j, y + i - height / 2, 1, 1, "", colour, 0.65)
            axes.text(x + width / 2, y + height / 2 + 0.2, label, ha="center", va="bottom")
            x += width + 1.6
            sign = {DEEP + 1.6: "\N{MULTIPLICATION SIGN}", DEEP + WIDE + 3.2: "="}.get(x)
            if sign:
                axes.text(x - 0.8, y, sign, ha="center", va="center", fontsize=13)
        axes.text(x - 0.8, y, said, ha="left", va="center")
    middle = DEEP + 1.6 + WIDE / 2
    arrow(axes, (middle, lines[0] - DEEP / 2 - 0.2), (middle, lines[1] + DEEP / 2 + 1.3), head=False, width=0.8)
    axes.text(middle + 0.4, sum(lines) / 2, "the same matrix: either pass reads it once", ha="left", va="center")
    axes.set_xlim(-5.2, x + 6)
    axes.set_ylim(lines[1] - DEEP / 2 - 0.2, ROWS / 2 + 1.3)
    write_figure(figure, path)


PICTURES = {"shapes.svg": draw_shapes}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
