"""Chapter 14's pictures: heads that share keys, a pair's rotation, a sliding window, and where norms stand.

    python examples/ch14/pictures.py --into .

Sizes and numbers in them are made up, and small; nothing here is measured.
"""

import math
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
    SMALL,
    VERMILION,
    arrow,
    box,
    circle,
    new_picture,
    picture_options,
    show_pictures,
    tint,
    write_figure,
)
from examples.lab.script import command

HEADS, POSITIONS, WINDOW = 8, 8, 3


def draw_heads(path):
    """Query heads that share keys and values: each its own (MHA), groups of them (GQA), or all of them the same (MQA)."""
    figure, panels = new_picture((PAGE, 2.0), 3)
    for axes, groups, title in zip(panels, (HEADS, 2, 1), ("MHA", "GQA", "MQA"), strict=True):
        size = HEADS / groups
        for h in range(HEADS):
            group = int(h // size)
            middle = (group + 0.5) * size
            arrow(axes, (h + 0.5, 3.4), (middle, 1.5), width=0.8, head=False)
            box(axes, h + 0.08, 3.4, 0.84, 1, "q", BLUE)
        for group in range(groups):
            middle = (group + 0.5) * size
            box(axes, middle - 0.42, 0.5, 0.84, 1, "k", VERMILION, 0.6)
            box(axes, middle - 0.42, -0.5, 0.84, 1, "v", VERMILION, 0.8)
        pairs = f"{groups} key/value head{'s' if groups > 1 else ''} cached"
        axes.set_title(f"{title}: {pairs}", loc="center", fontsize=SMALL)
        axes.set_xlim(-0.2, HEADS + 0.2)
        axes.set_ylim(-0.8, 4.7)
    write_figure(figure, path)


def draw_rotation(path):
    """A pair of a query's numbers, turned by its position: by a large angle in an early pair, by a small one in a later pair."""
    figure, panels = new_picture((PAGE, 3.7), 2)
    titles = ("an early pair: 40° per position", "a later pair: 8° per position")
    for axes, degrees, title in zip(panels, (40, 8), titles, strict=True):
        circle(axes, 0, 0, 1)
        arrow(axes, (-1.15, 0), (1.15, 0), colour="#888888", width=0.6, head=False)
        arrow(axes, (0, -1.15), (0, 1.15), colour="#888888", width=0.6, head=False)
        for m in range(6):
            x, y = math.cos(math.radians(degrees * m)), math.sin(math.radians(degrees * m))
            arrow(axes, (0, 0), (x, y), colour=tint(BLUE, 0.6 - 0.12 * m), width=1.8)
            white = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # or the axis would strike the 0 through
            axes.text(1.13 * x, 1.13 * y, str(m), ha="center", va="center", bbox=white)
        axes.set_title(title, loc="center", fontsize=10)
        axes.set_xlim(-1.3, 1.3)
        axes.set_ylim(-1.3, 1.3)
    figure.supxlabel(
        "the same pair at positions 0 to 5; between two positions the angle depends on their distance alone", fontsize=SMALL
    )
    write_figure(figure, path)


def draw_window(path):
    """Which positions each one reads: all before it, the last three only, and what two layers of such a window reach."""
    figure, panels = new_picture((PAGE, 3.0), 3)
    n = POSITIONS
    titles = ("causal: all before", f"a window of {WINDOW}", f"window of {WINDOW}, two layers")
    for k, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        for i in range(n):
            for j in range(n):
                back = i - j
                direct = back >= 0 and (k == 0 or back < WINDOW)
                through = k == 2 and 0 <= back <= 2 * (WINDOW - 1)
                look = (BLUE, 0.4) if direct else (ORANGE, 0.4) if through else (BLACK, 1)
                box(axes, j, n - 1 - i, 1, 1, "2" if through and not direct else "", *look)
            axes.text(i + 0.5, n + 0.1, str(i), ha="center", va="bottom")
            axes.text(-0.2, n - 0.5 - i, str(i), ha="right", va="center")
        axes.set_title(title, loc="center", fontsize=10, pad=10)
        axes.set_xlim(-0.9, n + 0.2)
        axes.set_ylim(-0.1, n + 0.8)
    said = "rows read, columns are read; 2: not read itself, but by way of a position that is, one layer below"
    figure.supxlabel(said, fontsize=SMALL)
    write_figure(figure, path)


def draw_norms(path):
    """Where a layer's norms stand: before a sublayer (pre), on the stream after the sum (post), or on both sides of it (both)."""
    figure, panels = new_picture((PAGE, 4.2), 3)
    for axes, title in zip(panels, ("pre", "post", "both"), strict=True):
        top = 9.2
        arrow(axes, (0, 0), (0, top), colour=BLUE, width=3)
        arrow(axes, (0, 0.9), (3, 0.9), (3, 1.6))
        parts = {"pre": ["norm", "sublayer"], "post": ["sublayer"], "both": ["norm", "sublayer", "norm"]}[title]
        for y, part in enumerate(parts):
            box(axes, 1.7, 1.6 * y + 1.6, 2.6, 1, part, *((ORANGE, 0.45) if part == "norm" else (GREEN, 0.7)))
            if y > 0:
                arrow(axes, (3, 1.6 * y + 1), (3, 1.6 * y + 1.6))
        arrow(axes, (3, 1.6 * len(parts) + 1), (3, 6.6), (0.45, 6.6))
        axes.text(0, 6.6, "+", ha="center", va="center", fontsize=13, zorder=5, bbox={"boxstyle": "circle", "fc": "white"})
        if title == "post":
            box(axes, -1.3, 7.3, 2.6, 1, "norm", ORANGE, 0.45, zorder=6)
        axes.set_title(title, loc="center", fontsize=10)
        axes.set_xlim(-1.6, 4.6)
        axes.set_ylim(-0.2, 9.4)
    said = "blue: the residual stream, upwards; only in post does it pass through a norm in every layer"
    figure.supxlabel(said, fontsize=SMALL)
    write_figure(figure, path)


PICTURES = {"heads.svg": draw_heads, "rotation.svg": draw_rotation, "window.svg": draw_window, "norms.svg": draw_norms}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
