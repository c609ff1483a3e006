"""Chapter 2's picture: the parts of a bundle, what is checked against what, and the one object that loading returns.

    python examples/ch02/pictures.py --into .

Nothing in it is measured.
"""

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


def draw_bundle(path):
    """Config and weights are checked against each other; with the tokenizer they become one object, or an error."""
    figure, (axes,) = new_picture((PAGE, 3.0))
    box(axes, 0, 5, 3.9, 1.6, "config.json\nsizes, switches", BLUE)
    box(axes, 0, 2.5, 3.9, 1.6, "model.safetensors\nnumbers", BLUE)
    box(axes, 0, 0, 3.9, 1.6, "tokenizer.json\ntext to ids", BLUE)
    box(axes, 5.0, 5, 3.9, 1.6, "tensors that\nmust be there", ORANGE)
    box(axes, 5.0, 2.5, 3.9, 1.6, "same names,\nsame shapes?", ORANGE, 0.45)
    box(axes, 11.2, 1.1, 3.6, 2.3, "Model: config,\nweights, tokenizer,\nmanifest", GREEN, 0.6)
    box(axes, 11.2, 4.6, 3.6, 1.6, "an error that\nnames the tensor", VERMILION, 0.6)
    arrow(axes, (3.9, 5.8), (5.0, 5.8))
    arrow(axes, (6.95, 5.0), (6.95, 4.1))
    arrow(axes, (3.9, 3.3), (5.0, 3.3))
    arrow(axes, (8.9, 3.6), (10.0, 3.6), (10.0, 5.4), (11.2, 5.4))
    arrow(axes, (8.9, 3.0), (11.2, 3.0))
    arrow(axes, (3.9, 0.8), (10.6, 0.8), (10.6, 1.6), (11.2, 1.6))
    axes.text(9.8, 5.0, "no", ha="right", va="center")
    axes.text(9.8, 2.9, "yes", ha="right", va="top")
    axes.set_xlim(-0.2, 15.0)
    axes.set_ylim(-0.3, 6.9)
    write_figure(figure, path)


PICTURES = {"bundle.svg": draw_bundle}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the picture, or write it."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
