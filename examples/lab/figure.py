"""How a figure is drawn by matplotlib, to a file that is written whole, and the one style that all figures have.

The colours are those of Okabe and Ito, which readers who see few colours can tell apart; each line has a marker and a dash of its
own as well, and its name at its end. At PAGE inches a figure is as wide as a page of 700 pixels, and no text is smaller than 9
points. The ground is white, so that a dark page shows it as well.

A figure depends on its values alone. It is drawn with matplotlib's own defaults and fonts, whatever a reader's `matplotlibrc` says,
and on no window's canvas, whatever `MPLBACKEND` names.
"""

import contextlib
import contextvars
import io
import itertools
import math
import os
import textwrap
from pathlib import Path

from examples.lab.script import BadInput, Parser, write_whole

FORMATS = ("svg", "png", "pdf")
PAGE = 7  # inches
SMALL = 9  # points, the smallest there is in a figure
BLACK, BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, BLACK, ORANGE, SKY)
MARKERS = "os^DvPX"
DASHES = ("-", "--", "-.", ":", (0, (7, 2)), (0, (4, 1, 1, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "//", "..", "\\\\", "xx", "--", "++")
RULES = {  # beside matplotlib's own defaults
    # the one family that matplotlib carries: other names would be looked for among the reader's fonts
    **{"font.family": "DejaVu Sans", "svg.hashsalt": "inference-lab", "font.size": SMALL, "legend.fontsize": SMALL},
    **{"axes.titlesize": 11, "axes.titlelocation": "left", "figure.titlesize": 11, "axes.spines.top": False},
    **{"axes.spines.right": False, "hatch.linewidth": 0.6},
}
_note = contextvars.ContextVar("note", default=None)
_rules = contextvars.ContextVar("rules", default=RULES)


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


def new_figure(size=(PAGE, 4)):
    """(figure, axes) of `size` in inches. Until `write_figure` has it, all is drawn in the one style."""
    figure, (axes,) = new_panels(1, 1, size)
    return figure, axes


def new_panels(rows, columns, size, **shared):
    """(figure, list of axes), small multiples in `rows` of `columns`, row by row; `shared` as for matplotlib's `subplots`."""
    settings = contextlib.ExitStack()
    settings.enter_context(own_defaults())
    from matplotlib.figure import Figure  # by itself, and not by pyplot, which would look for a window to show it in

    figure = Figure(figsize=size, layout="constrained")  # on white, so that a dark page shows it as well
    figure.own_defaults = settings
    if _note.get():
        figure.supxlabel(_note.get(), x=0.99, ha="right", fontsize=SMALL, color="0.3")
    panels = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    return figure, panels


@contextlib.contextmanager
def noted(text):
    """Every figure begun within it has `text` at its foot: the model that its values are of, say."""
    token = _note.set(text)
    try:
        yield
    finally:
        _note.reset(token)


@contextlib.contextmanager
def with_rules(rules):
    """Every figure begun within it is drawn by these settings of matplotlib as well: text as text in an SVG, say."""
    token = _rules.set(_rules.get() | rules)
    try:
        yield
    finally:
        _rules.reset(token)


def style(i):
    """What the `i`-th line is drawn with, as keywords of `plot`: a colour, a marker and a dash of its own."""
    i %= len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": DASHES[i], "linewidth": 1.6, "markersize": 5}


def bar_style(i):
    """What the `i`-th kind of bar is drawn with, as keywords of `bar`: a colour and a hatch of its own."""
    i %= len(COLOURS)
    return {"color": tint(COLOURS[i], 0.45), "hatch": HATCHES[i], "edgecolor": BLACK, "linewidth": 0.6}


def tint(colour, white):
    """`colour`, "#rrggbb", with so much white in it, 0 to 1; with less than 0, so much black."""
    goal = 255 if white > 0 else 0
    return "#" + "".join(f"{round(c + (goal - c) * abs(white)):02x}" for c in bytes.fromhex(colour[1:]))


def plain_ticks(*axis):
    """Write the ticks of a logarithmic axis, axes.xaxis say, as plain numbers: the exponent of a power is too small to read."""
    for one in axis:
        one.set_major_formatter(lambda x, _: f"{x:,.0f}" if abs(x) >= 1 else f"{x:g}")


def label_ends(axes, room=1.35):
    """Write each line's label at its end, right of the axes, in its colour; where ends are close, labels make way for each other.

    To be called last: limits and scales have to be final. room: from label to label, in heights of their text. Labels that start
    with an underscore, and lines without a finite point, get none.
    """
    figure, ends = axes.figure, []
    axes.set_xlim(axes.get_xlim())  # a label is not to stretch the axes
    axes.set_ylim(axes.get_ylim())
    for line in axes.lines:
        points = [(x, y) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if math.isfinite(y)]
        if points and not line.get_label().startswith("_"):
            ends.append((line, points[-1]))
    leader = {"arrowstyle": "-", "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4, "relpos": (0, 0.5)}
    labels = [
        axes.annotate(
            line.get_label(),
            end,
            xytext=(1.04, 0.5),
            textcoords="axes fraction",
            va="center",
            color=tint(line.get_color(), -0.3),
            arrowprops=leader | {"color": line.get_color()},
            annotation_clip=False,
        )
        for line, end in ends
    ]
    figure.draw_without_rendering()  # which makes room for the labels, and says how high the axes are
    height = axes.bbox.height * 72 / figure.dpi
    to_axes = (axes.transData - axes.transAxes).transform
    lines = [label.get_text().count("\n") + 1 for label in labels]
    places = spread([to_axes(end)[1] for _, end in ends], [n * SMALL * room / height for n in lines], 0)
    for label, place in zip(labels, places, strict=True):
        label.set_position((1.04, place))


def spread(places, sizes, lowest=-math.inf):
    """`places` moved as little as may be so that things of those `sizes`, centred on them, do not overlap or reach below
    `lowest`; their order stays."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups = []  # [members, where the first begins]: things that touch each other, moved as one
    for i in order:
        groups.append([[i], max(lowest, places[i] - sizes[i] / 2)])
        while len(groups) > 1 and groups[-2][1] + sum(sizes[k] for k in groups[-2][0]) > groups[-1][1]:
            (one, _), (two, _) = groups[-2:]
            members, before, wanted = one + two, 0.0, []
            for k in members:
                wanted.append(places[k] - sizes[k] / 2 - before)
                before += sizes[k]
            groups[-2:] = [[members, max(lowest, sum(wanted) / len(wanted))]]
    moved = list(places)
    for members, start in groups:
        for k in members:
            moved[k] = start + sizes[k] / 2
            start += sizes[k]
    return moved


# ------------------------------------------------------------------------------------------- pictures, which show no measured value


def new_picture(size, panels=1):
    """(figure, list of axes) for pictures side by side: as high as wide a unit, and no axis."""
    figure, found = new_panels(1, panels, size)
    for axes in found:
        axes.grid(visible=False)
        axes.set(xticks=[], yticks=[], aspect="equal")  # an axis that is off would take the title's room with it
        axes.spines[:].set_visible(False)
    return figure, found


def box(axes, x, y, width, height, text="", colour=BLACK, white=0.75, zorder=1, **text_style):
    """A box whose lower left corner is at (x, y), filled with a tint of `colour`, with `text` in its middle."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=tint(colour, white), edgecolor=BLACK, linewidth=0.7, zorder=zorder))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", zorder=zorder + 2, **text_style)
    axes.update_datalim([(x, y), (x + width, y + height)])
    axes.autoscale_view()


def circle(axes, x, y, radius):
    """A thin grey circle, not filled, round (x, y)."""
    from matplotlib.patches import Circle

    axes.add_patch(Circle((x, y), radius, facecolor="none", edgecolor="0.5", linewidth=0.8))


def arrow(axes, *points, colour=BLACK, width=1.2, head=True):
    """A line through `points`, straight from each to the next, with a head at the last."""
    for (x, y), (u, v) in itertools.pairwise(points):
        last = head and (u, v) == points[-1]
        look = {"arrowstyle": "-|>" if last else "-", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (u, v), (x, y), arrowprops=look)
    axes.update_datalim(points)
    axes.autoscale_view()


def list_pictures(pictures):
    """Text that names each of {"name.svg": draw}, with what it shows: the first line of its function's docstring."""
    said = {name: (draw.__doc__ or "").partition("\n")[0] for name, draw in pictures.items()}
    return "\n".join(textwrap.fill(f"{name:<14} {what}", 100, subsequent_indent=" " * 15) for name, what in said.items())


def write_pictures(pictures, folder, form="svg"):
    """Write each of {"name.svg": draw}, called as draw(path), into `folder` in that format; the paths."""
    paths = [Path(folder) / Path(name).with_suffix(f".{form}") for name in pictures]
    for path, draw in zip(paths, pictures.values(), strict=True):
        draw(check_target(path))
    return paths


def picture_options(description):
    """The argument parser of a script of pictures, from its docstring."""
    parser = Parser(prog="pictures.py", description=description)
    parser.add_argument("--into", type=Path, default=None, metavar="FOLDER", help="write them there; else they are only named")
    parser.add_argument("--format", choices=FORMATS, default="svg", help="of the files")
    return parser


def show_pictures(pictures, args):
    """What a script of pictures does: name each of {"name.svg": draw}, or write them where --into says."""
    if args.into is None:
        print(list_pictures(pictures))
    else:
        print("\n".join(str(path) for path in write_pictures(pictures, args.into, args.format)))


def write_figure(figure, path):
    """Write the figure to `path`, in the format that it ends in; the reader's settings hold again after it."""
    data, form = io.BytesIO(), Path(path).suffix.lower().lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with figure.own_defaults, own_defaults():
        figure.savefig(data, format=form, dpi=150, metadata=metadata)
    write_whole(path, data.getvalue())


@contextlib.contextmanager
def own_defaults():
    """matplotlib with its own defaults and RULES, its own fonts, and ids that are the same each time; the settings
    before come back after it.

    Raises BadInput for a `matplotlibrc` that stops matplotlib from being imported.
    """
    matplotlib = _import_matplotlib()
    from matplotlib.font_manager import fontManager

    carried = os.path.realpath(matplotlib.get_data_path())  # the list of fonts may know it by another name, through a link
    fontManager.ttflist.sort(
        key=lambda font: not os.path.realpath(font.fname).startswith(carried)
    )  # of two alike, the first is taken
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_rules.get())
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
