"""How a figure is drawn by matplotlib, to a file that is written whole. Readable in grey: lines differ in marker.

A figure depends on its values alone. It is drawn with matplotlib's own defaults and fonts, whatever a reader's `matplotlibrc` says,
and on no window's canvas, whatever `MPLBACKEND` names.
"""

import contextlib
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
    """(figure, axes) of `size` in inches. Until `write_figure` has it, all is drawn with matplotlib's own defaults."""
    settings = contextlib.ExitStack()
    settings.enter_context(own_defaults())
    from matplotlib.figure import Figure  # by itself, and not by pyplot, which would look for a window to show it in

    figure = Figure(figsize=size, layout="constrained")  # on white, so that a dark page shows it as well
    figure.own_defaults = settings
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def write_figure(figure, path):
    """Write the figure to `path`, in the format that it ends in; the reader's settings hold again after it."""
    data, form = io.BytesIO(), Path(path).suffix.lower().lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with figure.own_defaults, own_defaults():
        figure.savefig(data, format=form, dpi=150, metadata=metadata)
    write_whole(path, data.getvalue())


@contextlib.contextmanager
def own_defaults():
    """matplotlib with its own defaults, its own fonts, and ids that are the same each time; the settings before come back after it.

    Raises BadInput for a `matplotlibrc` that stops matplotlib from being imported.
    """
    matplotlib = _import_matplotlib()
    from matplotlib.font_manager import fontManager

    carried = matplotlib.get_data_path()
    fontManager.ttflist.sort(key=lambda font: not font.fname.startswith(carried))  # of two alike, the first is taken
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # the one family that matplotlib carries: other names would be looked for among the reader's fonts
        matplotlib.rcParams.update({"font.family": "DejaVu Sans", "svg.hashsalt": "inference-lab"})
        yield


def _import_matplotlib():
    backend = os.environ.pop("MPLBACKEND", None)  # a notebook leaves one here that no script has, and the import fails on it
    try:
        import matplotlib
    except ImportError:
        raise
    except Exception as error:  # of many kinds, by what is in the file
        raise BadInput(f"matplotlib cannot be imported ({error}); look at the file matplotlibrc that it reads") from None
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    return matplotlib
