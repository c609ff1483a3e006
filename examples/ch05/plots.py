"""Chapter 5's figures; readable in grey."""

from examples.lab.figure import new_figure, write_figure

HATCHES = ("", "//", "..", "\\\\", "xx", "--")


def plot_temperatures(rows, names, path):
    """Probabilities of a few candidates at each temperature, from rows {temperature, probabilities}."""
    figure, axes = new_figure()
    width = 0.8 / len(rows)
    for i, row in enumerate(rows):
        grey = str(0.15 + 0.7 * i / max(1, len(rows) - 1))
        places = [j + i * width for j in range(len(names))]
        label = f"T = {row['temperature']:g}"
        axes.bar(places, row["probabilities"], width, color=grey, hatch=HATCHES[i % 6], edgecolor="black", label=label)
    axes.set_xticks([j + 0.4 - width / 2 for j in range(len(names))], names)
    axes.set(ylabel="probability", title="Temperature flattens or sharpens, and never reorders")
    axes.legend()
    write_figure(figure, path)


def plot_repetition(rows, width, path):
    """Share of tokens that end four tokens seen before, by stretches of `width` new tokens, a line for each policy."""
    figure, axes = new_figure()
    for i, (row, marker) in enumerate(zip(rows, "^osDvx", strict=False)):
        places = [width * (j + 1) for j in range(len(row["shares"]))]
        axes.plot(places, [100 * x for x in row["shares"]], marker=marker, color=str(0.12 * i), label=row["policy"])
    axes.set(xlabel="new tokens", ylabel="repeated, per cent", title="How much of the text has been there before")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    write_figure(figure, path)
