"""Chapter 14's figures; readable in grey."""

from examples.lab.figure import new_figure, write_figure

PLACES = {"pre": ("o-", "pre"), "post": ("s--", "post"), "both": ("^:", "both")}


def plot_depth(rows, path):
    """The gradient at the embedding and in the last layer by depth, for each place of the norms, from `depths`."""
    figure, axes = new_figure()
    for place, (style, label) in PLACES.items():
        mine = [r for r in rows if r["norm_place"] == place]
        grey = {"pre": "0.0", "post": "0.35", "both": "0.6"}[place]
        for key, width, what in (("gradient", 1.8, "at the embedding"), ("last_gradient", 0.8, "in the last layer")):
            axes.loglog(
                [r["layers"] for r in mine], [r[key] for r in mine], style, color=grey, linewidth=width, label=f"{label}, {what}"
            )
    layers = sorted({r["layers"] for r in rows})
    axes.set_xticks(layers, [str(n) for n in layers])
    axes.minorticks_off()
    axes.set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.set(xlabel="layers", ylabel="norm of the gradient", title="Gradients of random models, by where the norms stand")
    axes.legend(fontsize=7)
    write_figure(figure, path)
