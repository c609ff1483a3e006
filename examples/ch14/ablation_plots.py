"""The figure of chapter 14's ablations; readable in grey."""

from examples.lab.figure import new_figure, write_figure

STYLES = ("o-", "s-", "D--", "^-", "v--", "<-.", ">-", "x:", "P-")  # one for each ablation; the untouched model's is black


def plot_by_position(rows, path):
    """Loss by position, from the rows of `ablations.run_all`, the untouched model's first: above as it is, below less the untouched
    model's, where small differences have room. Each stretch is drawn at its middle; one without a loss is left out."""
    figure, above = new_figure((8, 6.5))
    grid = figure.add_gridspec(2, 1)
    above.set_subplotspec(grid[0])
    below = figure.add_subplot(grid[1], sharex=above)
    below.grid(alpha=0.3)
    own = [b["loss"] for b in rows[0]["by_position"]]
    for i, row in enumerate(rows):
        grey = "0" if i == 0 else str(round(0.1 + 0.1 * (i % 5), 2))
        style = dict(color=grey, markersize=4.5, linewidth=1.8 if i == 0 else 0.9, label=row["name"])
        places = [(b["first"] + b["last"]) / 2 for b in row["by_position"]]
        losses = [b["loss"] for b in row["by_position"]]
        none = float("nan")  # of which matplotlib draws nothing
        above.plot(places, [none if x is None else x for x in losses], STYLES[i % len(STYLES)], **style)
        more = [none if None in (x, y) else x - y for x, y in zip(losses, own, strict=True)]
        if i > 0:  # the untouched model is the line at 0
            below.plot(places, more, STYLES[i % len(STYLES)], **style)
    above.set_ylim(bottom=0)
    above.set(ylabel="loss, nats a token", title="One thing changed: loss by position")
    below.set_yscale("symlog", linthresh=0.1)
    below.axhline(0, color="0", linewidth=1.8)
    below.set(xlabel="position", ylabel="loss above the untouched model's")
    below.margins(y=0.08)
    above.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    write_figure(figure, path)
