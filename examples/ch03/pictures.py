"""Chapter 3's pictures: from a text to rows of the table, five made-up merges of a word, and the table at both ends of a pass.

    python examples/ch03/pictures.py --into .

Sizes and numbers in them are made up, and small; nothing here is measured.
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

MERGES = (("h", "e"), ("Ġ", "t"), ("e", "r"), ("r", "e"), ("Ġt", "he"))  # the first has rank 0
STEPS = ((None, "Ġ t h e r e"), (0, "Ġ t he r e"), (1, "Ġt he r e"), (3, "Ġt he re"), (4, "Ġthe re"))  # a test makes them by bpe.py
PIECES = ("!", ",", " night", "ood", " my", " lord")
TABLE = ((1, 0, -1), (0, 2, 1), (2, -1, 0), (-1, 1, 2), (0, 1, -2), (1, 3, 1))  # [V, d]
STAGES = (  # what a stage is called, and "Good night!" after it
    ("text", "Good night!"),
    ("special tokens\ncut out", "none in it"),
    ("words", "Good | Ġnight | !"),
    ("bytes,\na letter each", "G o o d | Ġ n i g h t | !"),
    ("merges: pieces", "G ood | Ġnight | !"),
    ("ids [T]", "4 numbers"),
    ("rows of the\ntable [T, d]", "4 vectors"),
)
TEXT, LAST = (3, 2, 1, 2), (1, 2, 0)  # ids [T], and the vector [d] at the last position


def draw_stages(path):
    """A text on its way to vectors, stage by stage: the tokenizer makes ids of it, and the model looks up their rows."""
    figure, (axes,) = new_picture((PAGE, 4.2))
    for i, (name, example) in enumerate(STAGES):
        y = -1.6 * i
        box(axes, 0, y, 4.0, 1.15, name, ORANGE if i == len(STAGES) - 1 else BLUE)
        axes.text(4.6, y + 0.575, example, ha="left", va="center")
        if i:
            arrow(axes, (2.0, y + 1.6), (2.0, y + 1.15))
    bottom = -1.6 * (len(STAGES) - 1)
    for top, end, owner in ((1.15, bottom + 1.6, "the tokenizer"), (bottom + 1.15, bottom, "the model")):
        arrow(axes, (12.4, top), (12.4, end), width=0.8, head=False)
        axes.text(12.7, (top + end) / 2, owner, ha="left", va="center")
    axes.set_xlim(-0.2, 16.4)
    axes.set_ylim(bottom - 0.2, 1.4)
    write_figure(figure, path)


def draw_merges(path):
    """The merges of one word: at each step the pair of lowest rank is joined, and one merge never finds its pair."""
    figure, (axes,) = new_picture((PAGE, 3.0))
    axes.text(0, 0.75, "merges, by rank", ha="left", va="bottom")
    made = {rank for rank, _ in STEPS}
    for rank, (left, right) in enumerate(MERGES):
        axes.text(0.5, -1.4 * rank, f"{rank}", ha="right", va="center")
        box(axes, 0.9, -1.4 * rank - 0.45, 1.1, 0.9, left, BLUE)
        box(axes, 2.0, -1.4 * rank - 0.45, 1.1, 0.9, right, BLUE)
        if rank not in made:
            axes.text(3.3, -1.4 * rank, "never\nmade", ha="left", va="center")
    axes.text(6.6, 0.75, "the word, step by step", ha="left", va="bottom")
    for y, (rank, pieces) in enumerate(STEPS):
        joined = None if rank is None else "".join(MERGES[rank])
        x = 6.6
        for piece in pieces.split():
            new = piece == joined
            box(axes, x, -1.4 * y - 0.45, len(piece), 0.9, piece, VERMILION if new else BLUE, 0.5 if new else 0.75)
            x += len(piece)
        said = "six bytes, a letter each" if rank is None else f"rank {rank}: {MERGES[rank][0]} and {MERGES[rank][1]}"
        axes.text(x + 0.5, -1.4 * y, said, ha="left", va="center")
    axes.set_xlim(-0.2, 19.2)
    axes.set_ylim(-6.4, 1.7)
    write_figure(figure, path)


def draw_table(path):
    """One table at both ends: an id selects a row of it, and the last vector is multiplied by every row to give the logits."""
    figure, (axes,) = new_picture((PAGE, 3.4))
    top, place = len(PIECES) - 1, lambda id: len(PIECES) - 1 - id
    for id, (piece, row) in enumerate(zip(PIECES, TABLE, strict=True)):
        chosen = id in TEXT
        axes.text(7.8, place(id) + 0.5, f"{piece!r}  {id}", ha="right", va="center")
        for j, value in enumerate(row):
            box(axes, 8 + j, place(id), 1, 1, f"{value}", ORANGE if chosen else BLUE, 0.5 if chosen else 0.85)
        score = sum(a * b for a, b in zip(row, LAST, strict=True))
        arrow(axes, (11.1, place(id) + 0.5), (16.4, place(id) + 0.5), width=0.7)
        box(axes, 16.5, place(id), 1.2, 1, f"{score}", GREEN, 0.6)
    for position, id in enumerate(TEXT):
        y = top - 0.5 - 1.4 * position
        box(axes, 0, y, 1.2, 1, f"{id}", ORANGE, 0.5)
        arrow(axes, (1.2, y + 0.5), (5.6, place(id) + 0.5), width=0.9)
    for j, value in enumerate(LAST):
        box(axes, 12.4 + j, top + 1.3, 1, 1, f"{value}", VERMILION, 0.5)
    axes.text(0, top + 1.3, "ids [T]", va="bottom")
    axes.text(9.5, top + 1.3, "table\n[V, d]", ha="center", va="bottom")
    axes.text(13.9, top + 2.5, "last vector [d]", ha="center", va="bottom")
    axes.text(17.1, top + 1.3, "logits\n[V]", ha="center", va="bottom")
    axes.text(3.6, -0.5, "in: an id selects a row", ha="center", va="top")
    axes.text(14.0, -0.5, "out: every row is multiplied\nby the last vector", ha="center", va="top")
    axes.set_xlim(-0.2, 18.2)
    axes.set_ylim(-2.1, top + 3.6)
    write_figure(figure, path)


PICTURES = {"stages.svg": draw_stages, "merges.svg": draw_merges, "table.svg": draw_table}


def options():
    """The script's argument parser."""
    return picture_options(__doc__)


@command
def main(argv=None):
    """Name the pictures, or write them."""
    show_pictures(PICTURES, options().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
