"""Chapter 10's pictures: the cache growing by a column per step, and a ring buffer at its wrap.

    python examples/ch10/pictures.py --into .

Sizes and numbers in them are made up, and small; nothing here is measured.
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

PROMPT, STEPS, CAPACITY = 3, 3, 6
INDEXED = 13  # points: the index of a letter is smaller, and has to be read too


def draw_growth(path):
    """The cache grows by a column per step: the prompt fills its columns in one pass, each later token adds one and reads all."""
    figure, (axes,) = new_picture((PAGE, 2.7))
    places = [0, 5, 10.5, 17]
    for step in range(STEPS + 1):
        columns, x, new = PROMPT + step, places[step], range(PROMPT) if step == 0 else [PROMPT + step - 1]
        for y, name in ((1.2, "k"), (0, "v")):
            for j in range(columns):
                box(axes, x + j, y, 1, 1, f"{name}$_{j}$", *((VERMILION, 0.55) if j in new else (BLUE, 0.75)), fontsize=INDEXED)
        axes.text(x + columns / 2, -0.3, f"{columns} columns", ha="center", va="top")
        title = "prompt:\none pass" if step == 0 else f"step {step}:\nfed one token"
        axes.text(x + columns / 2, 5.1, title, ha="center", va="bottom")
        if step:
            q = x + columns - 0.5
            box(axes, q - 0.5, 3.7, 1, 1, f"q$_{columns - 1}$", ORANGE, 0.5, fontsize=INDEXED)
            for j in range(columns):
                arrow(axes, (q, 3.7), (x + j + 0.5, 2.25), width=0.7)
    axes.text(-0.3, 1.7, "keys", ha="right", va="center")
    axes.text(-0.3, 0.5, "values", ha="right", va="center")
    box(axes, 0, -2.4, 0.7, 0.7, "", VERMILION, 0.55)
    axes.text(0.9, -2.05, "written in this pass", va="center")
    box(axes, 7, -2.4, 0.7, 0.7, "", BLUE, 0.75)
    axes.text(7.9, -2.05, "kept from before, not computed again", va="center")
    axes.set_xlim(-2.6, 23.2)
    axes.set_ylim(-2.6, 6.9)
    write_figure(figure, path)


def draw_ring(path):
    """A ring buffer at its wrap: the next position takes the oldest one's slot, so slots no longer stand in the text's order."""
    figure, (axes,) = new_picture((PAGE, 3.5))
    for row, fed in enumerate((CAPACITY, CAPACITY + 1, CAPACITY + 2)):
        y = -1.7 * row
        axes.text(-0.4, y + 0.5, f"{fed} positions fed", ha="right", va="center")
        for slot in range(CAPACITY):
            position = max(p for p in range(fed) if p % CAPACITY == slot)
            new = row and position == fed - 1
            look = (VERMILION, 0.45) if new else (ORANGE, 0.6) if position >= CAPACITY else (BLUE, 0.75)
            box(axes, 1.6 * slot, y, 1.6, 1, str(position), *look)
        held = [max(p for p in range(fed) if p % CAPACITY == slot) for slot in range(CAPACITY)]
        lost = range(min(held))
        said = ("none is lost", "position {} is lost", "positions {} and {} are lost")[len(lost)].format(*lost)
        axes.text(1.6 * CAPACITY + 0.4, y + 0.5, said, ha="left", va="center")
    for slot in range(CAPACITY):
        axes.text(1.6 * slot + 0.8, 1.2, f"slot {slot}", ha="center", va="bottom")
    keys = ((0, "before the wrap", (BLUE, 0.75)), (4.1, "after the wrap", (ORANGE, 0.6)), (7.8, "just written", (VERMILION, 0.45)))
    for x, name, look in keys:
        box(axes, x, -4.9, 0.6, 0.6, "", *look)
        axes.text(x + 0.8, -4.6, name, va="center")
    said = "The number in a slot is the position whose key and value it holds.\nA mask has to ask for that, not for the slot."
    axes.text(0, -5.4, said, va="top")
    axes.set_xlim(-3.0, 14.4)
    axes.set_ylim(-6.7, 1.9)
    write_figure(figure, path)


PICTURES = {"growth.svg": draw_growth, "ring.svg": draw_ring}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
