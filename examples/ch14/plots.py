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


def plot_serving(rows, sequences, path):
    """Weights and caches of each model, rows with `model`, `weight_gb` and `cache_gb`, the cheapest to hold first; logarithmic."""
    figure, axes = new_figure((7, 5.2))
    names = [r["model"] for r in rows]
    axes.scatter([r["cache_gb"] for r in rows], names, s=60, marker="s", color="0.6", label=f"caches of {sequences} sequences")
    axes.scatter([r["weight_gb"] for r in rows], names, s=25, marker="o", color="0.0", label="weights")
    axes.set_xscale("log")
    axes.set(xlabel="GB, at two bytes a number", title="What a model holds in memory, at 8,192 positions or as many as it has")
    axes.title.set_fontsize(10)
    axes.tick_params(axis="y", labelsize=7)
    axes.legend(loc="lower right")
    write_figure(figure, path)


def plot_balance(rows, path):
    """Bytes of a decode step by batch: rows with `batch`, `weight_gb`, `cache_2000_gb` and `cache_32768_gb`."""
    figure, axes = new_figure()
    batches = [r["batch"] for r in rows]
    for key, style, grey, label in (
        ("weight_gb", "o-", "0.0", "weights"),
        ("cache_2000_gb", "s--", "0.35", "caches, 2,000 positions"),
        ("cache_32768_gb", "^:", "0.55", "caches, 32,768 positions"),
    ):
        axes.loglog(batches, [r[key] for r in rows], style, color=grey, label=label)
    axes.set_xticks(batches, [str(b) for b in batches])
    axes.minorticks_off()
    axes.set(xlabel="sequences at once", ylabel="GB read in one decode step", title="Llama-3-8B at two bytes a number")
    axes.legend()
    write_figure(figure, path)
