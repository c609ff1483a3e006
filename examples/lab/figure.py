"""How a figure is drawn by matplotlib, to a file that is written whole. Readable in grey: lines differ in marker."""

import io
import os
from pathlib import Path

from examples.lab.script import BadInput, write_whole

FORMATS = ("svg", "png", "pdf")


def check_target(path):
    """The path as given; raises BadInput, before any work, for a format or a folder that cannot be written."""
    if path is not None:
        if path.suffix.lower().lstrip(".") not in FORMATS:
            raise BadInput(f"{path} does not end in .{', .'.join(FORMATS)}; name the plot so")
        if not path.parent.is_dir() or path.is_dir():
            what, todo = (path, "name a file") if path.is_dir() else (path.parent, "make it first")
            raise BadInput(f"{what} is {'a folder' if path.is_dir() else 'not a folder'}; {todo}")
        if not os.access(path.parent, os.W_OK):
            raise BadInput(f"{path.parent} cannot be written; choose another place for the plot")
    return path


def new_figure(size=(7, 4)):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "inference-lab"  # the same drawing gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=size, layout="constrained")  # on white, so that a dark page shows it as well
    axes.grid(alpha=0.3)
    return figure, axes


def write_figure(figure, path):
    from matplotlib import pyplot

    data, form = io.BytesIO(), Path(path).suffix.lower().lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    figure.savefig(data, format=form, dpi=150, metadata=metadata)
    pyplot.close(figure)
    write_whole(path, data.getvalue())
