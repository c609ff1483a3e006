"""Chapter 14's pictures: a layer of Llama, heads that share keys, a pair's rotation, a sliding window, and where norms stand.

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


def draw_layer(path):
    """A layer of Llama with its shapes: only queries and keys are rotated, keys and values have fewer heads, the rest adds."""
    figure, (axes,) = new_picture((PAGE, 3.1))
    arrow(axes, (0, 0), (23.4, 0), colour=BLUE, width=4)
    axes.text(0, -0.75, "stream\n[B, T, d]", ha="left", va="top")
    axes.text(23.4, -0.75, "to the next layer; after $L$: RMS norm,\noutput matrix, logits [B, T, V]", ha="right", va="top")
    arrow(axes, (0.9, 0), (0.9, 3.7), (1.3, 3.7))
    box(axes, 1.3, 3.0, 1.5, 1.4, "RMS\nnorm", ORANGE, 0.45)
    for y, name in ((5.6, "q [B, h, T, dh]"), (3.3, "k [B, g, T, dh]"), (1.0, "v [B, g, T, dh]")):
        box(axes, 3.6, y, 3.5, 0.9, name, BLUE)
        arrow(axes, (2.8, 3.7), (3.6, y + 0.45))
    box(axes, 7.8, 3.3, 1.9, 3.2, "rotate\nby po-\nsition", ORANGE, 0.45)
    arrow(axes, (7.1, 6.05), (7.8, 6.05))
    arrow(axes, (7.1, 3.75), (7.8, 3.75))
    box(axes, 10.3, 4.05, 3.3, 1.8, "scores, mask,\nsoftmax\n[B, h, T, S]", GREEN, 0.7)
    arrow(axes, (9.7, 4.95), (10.3, 4.95))
    box(axes, 10.3, 1.0, 3.2, 1.5, "mixture of v\n[B, T, h dh]", GREEN, 0.7)
    arrow(axes, (11.9, 4.05), (11.9, 2.5))
    arrow(axes, (7.1, 1.45), (10.3, 1.45))
    box(axes, 14.1, 1.0, 1.7, 1.5, "output\nmatrix", GREEN, 0.7)
    arrow(axes, (13.5, 1.75), (14.1, 1.75))
    arrow(axes, (14.95, 1.0), (14.95, 0.35))
    arrow(axes, (16.4, 0), (16.4, 3.7), (16.8, 3.7))
    box(axes, 16.8, 3.0, 1.5, 1.4, "RMS\nnorm", ORANGE, 0.45)
    box(axes, 18.9, 2.8, 3.6, 1.8, "silu(gate)\ntimes up\n[B, T, f]", GREEN, 0.7)
    arrow(axes, (18.3, 3.7), (18.9, 3.7))
    box(axes, 18.9, 1.0, 3.6, 0.9, "down [B, T, d]", GREEN, 0.7)
    arrow(axes, (20.7, 2.8), (20.7, 1.9))
    arrow(axes, (20.7, 1.0), (20.7, 0.35))
    for x in (14.95, 20.7):
        axes.text(x, 0, "+", ha="center", va="center", fontsize=13, zorder=5, bbox={"boxstyle": "circle", "fc": "white"})
    axes.text(7.3, 7.0, "attention", ha="center", va="bottom")
    axes.text(19.6, 7.0, "feed-forward network", ha="center", va="bottom")
    axes.set_xlim(-0.2, 23.6)
    axes.set_ylim(-2.4, 7.9)
    write_figure(figure, path)


PICTURES = {
    "layer.svg": draw_layer,
    "heads.svg": draw_heads,
    "rotation.svg": draw_rotation,
    "window.svg": draw_window,
    "norms.svg": draw_norms,
}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
