"""Chapter 11's pictures: prefill and decode as shapes of matrices, and a block of four-bit numbers as a file stores it.

    python examples/ch11/pictures.py --into .

Sizes in the first are made up, and small; nothing here is measured.
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


def draw_block(path):
    """A Q4_1 block of 20 bytes, the word that four of its bytes make, and a tile: the same word of many rows side by side."""
    figure, (axes,) = new_picture((PAGE, 4.3))
    small = dict(fontsize=10)
    axes.text(0, 9.6, "a block in the file: 32 numbers of one row in 20 bytes; each number is d n + m", va="bottom")
    box(axes, 0, 8, 2, 1.2, "d", VERMILION, 0.55)
    box(axes, 2, 8, 2, 1.2, "m", ORANGE, 0.55)
    for i in range(16):
        box(axes, 4 + i, 8, 1, 1.2, str(i), BLUE, 0.5 if i < 4 else 0.85, **small)
    axes.text(1, 7.8, "scale", ha="center", va="top", **small)
    axes.text(3, 7.8, "minimum", ha="center", va="top", **small)
    axes.text(12, 7.8, "16 bytes", ha="center", va="top", **small)
    arrow(axes, (6, 8), (6, 6.4))
    axes.text(6.4, 6.75, "four bytes are a word of 32 bits", va="center", ha="left", **small)
    for place in range(8):  # from the highest bits, on the left, to the lowest
        byte, high = divmod(7 - place, 2)
        box(axes, 2.5 * place, 4.9, 2.5, 1.2, f"n$_{{{byte + 16 * high}}}$", BLUE, 0.5 if high else 0.75)
    axes.text(0, 4.7, "bits 28 to 31: byte 3, high half", va="top", **small)
    axes.text(20, 4.7, "bits 0 to 3: byte 0, low half", va="top", ha="right", **small)
    axes.text(0, 3.2, "a tile: word 0 of a block of 16 rows, then word 1, 2 and 3; one load brings one line", va="bottom")
    for word in range(4):
        for row in range(16):
            label = f"{row}" if word == 0 else ""
            box(axes, 4 + row, 2 - 0.8 * word, 1, 0.8, label, BLUE, 0.5 if word == 0 else 0.85, **small)
        axes.text(3.7, 2.4 - 0.8 * word, f"word {word}", ha="right", va="center", **small)
    for row in range(16):
        box(axes, 4 + row, -1.6, 0.5, 0.8, "", VERMILION, 0.55)
        box(axes, 4.5 + row, -1.6, 0.5, 0.8, "", ORANGE, 0.55)
    axes.text(3.7, -1.2, "d and m", ha="right", va="center", **small)
    axes.text(12, -1.8, "rows 0 to 15, one in each lane of a register", ha="center", va="top", **small)
    axes.set_xlim(-0.2, 20.4)
    axes.set_ylim(-2.9, 10.6)
    write_figure(figure, path)


PICTURES = {"shapes.svg": draw_shapes, "block.svg": draw_block}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
