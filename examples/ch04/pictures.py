"""Chapter 4's pictures: the whole pass, attention under the mask, and the residual stream with its two branches.

    python examples/ch04/pictures.py --into .

Sizes and numbers in them are made up, and small; nothing here is measured.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.lab.figure import (
    BLUE,
    GREEN,
    ORANGE,
    PAGE,
    SMALL,
    VERMILION,
    arrow,
    box,
    new_picture,
    picture_options,
    show_pictures,
    write_figure,
)
from examples.lab.script import command

WORDS = ("the", "cat", "sat", "on", "the", "mat")
SCORES = (  # made up: the row reads, the column is read
    (0.4, 1.1, 0.2, 0.7, 0.3, 0.9),
    (1.2, 0.5, 0.8, 0.1, 0.6, 0.4),
    (0.1, 2.0, 0.6, 0.9, 0.2, 1.3),
    (0.3, 0.7, 1.6, 0.4, 0.8, 0.5),
    (0.6, 0.2, 0.4, 1.5, 0.3, 1.0),
    (0.2, 1.4, 0.5, 1.1, 1.9, 0.7),
)


def draw_pass(path):
    """The whole pass: positions enter once, the stream runs through L equal layers, and the token table ends it."""
    figure, (axes,) = new_picture((PAGE, 2.05))
    arrow(axes, (3.2, 0.8), (16.6, 0.8), colour=BLUE, width=4)
    box(axes, 0, 0, 3.2, 1.6, "token row +\nposition row", ORANGE, zorder=6)
    box(axes, 16.6, 0, 2.2, 1.6, "final\nnorm", ORANGE, 0.45, zorder=6)
    box(axes, 19.6, 0, 3.0, 1.6, "times the\ntableᵀ", ORANGE, zorder=6)
    arrow(axes, (18.8, 0.8), (19.6, 0.8))
    arrow(axes, (1.6, 2.6), (1.6, 1.6))
    axes.text(1.6, 2.7, "ids [B, T]", ha="center", va="bottom")
    arrow(axes, (21.1, 1.6), (21.1, 2.6))
    axes.text(21.1, 2.7, "logits [B, T, V]", ha="center", va="bottom")
    axes.text(3.9, -0.3, "stream [B, T, d]", ha="center", va="top")
    for x, name, colour in ((4.9, "causal\nattention", VERMILION), (10.7, "feed-\nforward", GREEN)):
        arrow(axes, (x, 0.8), (x, 3.0), (x + 0.4, 3.0))
        box(axes, x + 0.4, 2.4, 1.5, 1.2, "layer\nnorm", ORANGE, 0.45)
        arrow(axes, (x + 1.9, 3.0), (x + 2.2, 3.0))
        box(axes, x + 2.2, 2.4, 2.2, 1.2, name, colour, 0.6)
        arrow(axes, (x + 4.4, 3.0), (x + 4.7, 3.0), (x + 4.7, 1.15))
        axes.text(x + 4.7, 0.8, "+", ha="center", va="center", fontsize=13, zorder=7, bbox={"boxstyle": "circle", "fc": "white"})
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((4.4, 0), 11.6, 4.1, fill=False, linestyle="--", linewidth=0.9))
    axes.text(10.2, 4.2, "one layer; $L$ of them, one after the other", ha="center", va="bottom")
    axes.set_xlim(-0.3, 22.9)
    axes.set_ylim(-1.2, 5.2)
    write_figure(figure, path)


def draw_mask(path):
    """The mask is a triangle: scores before it, weights after it; each position sees itself and those before it."""
    figure, panels = new_picture((PAGE, 3.95), 2)
    n = len(WORDS)
    for axes, title in zip(panels, ("scores, with the mask", "weights, after the softmax"), strict=True):
        for i, scores in enumerate(SCORES):
            whole = sum(math.exp(score) for score in scores[: i + 1])
            for j, score in enumerate(scores):
                seen, hidden = (f"{score}", "$-\\infty$") if axes is panels[0] else (f"{math.exp(score) / whole:.2f}", "0")
                text = seen if j <= i else hidden
                box(axes, j, n - 1 - i, 1, 1, text, BLUE, 0.6 if j <= i else 1, color="black" if j <= i else "0.4")
            axes.text(-0.2, n - 0.5 - i, WORDS[i], ha="right", va="center")
            axes.text(i + 0.5, n + 0.2, WORDS[i], ha="center", va="bottom")
        axes.set_title(title, loc="center", pad=5, fontsize=10)
        axes.text(n / 2, -0.3, "position that is read (key)", ha="center", va="top")
        axes.text(-1.25, n / 2, "position that reads (query)", ha="center", va="center", rotation=90)
        axes.set_xlim(-1.6, n + 0.1)
        axes.set_ylim(-0.9, n + 0.7)
    figure.supxlabel("scores made up; a row's weights are the softmax of the scores that it sees, and sum to 1", fontsize=SMALL)
    write_figure(figure, path)


def draw_stream(path):
    """The residual stream goes straight through; attention and feed-forward each read it through a norm, and add to it."""
    figure, (axes,) = new_picture((PAGE, 2.4))
    arrow(axes, (0, 0), (14.6, 0), colour=BLUE, width=4)
    axes.text(0, -0.3, "stream\n[B, T, d]", ha="left", va="top")
    axes.text(14.6, -0.3, "to the\nnext layer", ha="right", va="top")
    for x, name, colour in ((1.6, "attention", VERMILION), (7.4, "feed-forward", GREEN)):
        arrow(axes, (x, 0), (x, 2), (x + 0.5, 2))
        box(axes, x + 0.5, 1.6, 1.2, 0.8, "norm", ORANGE)
        arrow(axes, (x + 1.7, 2), (x + 2.2, 2))
        box(axes, x + 2.2, 1.6, 2, 0.8, name, colour)
        arrow(axes, (x + 4.2, 2), (x + 4.6, 2), (x + 4.6, 0.3))
        axes.text(x + 4.6, 0, "+", ha="center", va="center", fontsize=13, zorder=5, bbox={"boxstyle": "circle", "fc": "white"})
        axes.text(x, -0.3, "read", ha="center", va="top")
        axes.text(x + 4.6, -0.4, "add", ha="center", va="top")
    axes.text(3.9, 2.6, "moves information between positions", ha="center", va="bottom")
    axes.text(9.7, 2.6, "works on each position alone", ha="center", va="bottom")
    axes.set_xlim(-0.2, 14.8)
    axes.set_ylim(-1.3, 3.2)
    write_figure(figure, path)


PICTURES = {"pass.svg": draw_pass, "mask.svg": draw_mask, "stream.svg": draw_stream}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
