"""Chapter 4's figures."""

from examples.lab.figure import new_figure, write_figure


def plot_residual(rows, path):
    """The stream's growth by layer, from `residual_statistics`: largest value, RMS, RMS without position 0."""
    figure, axes = new_figure()
    layers = [r["layer"] for r in rows]
    axes.semilogy(layers, [r["largest"] for r in rows], "k^-", label="largest absolute value")
    axes.semilogy(layers, [r["rms"] for r in rows], "o-", color="0.35", label="RMS, all positions")
    if rows[0]["rms_without_first"] is not None:
        axes.semilogy(layers, [r["rms_without_first"] for r in rows], "s--", color="0.6", label="RMS without position 0")
    axes.set(xlabel="after layer (0: the embedding)", ylabel="value in the residual stream", title="Growth of the residual stream")
    axes.set_xticks(layers if len(layers) <= 25 else layers[:: len(layers) // 12])
    axes.legend()
    write_figure(figure, path)


def plot_time(results, path):
    """Share of time beside share of FLOPs for each length, from a list of `component_times`."""
    figure, axes = new_figure()
    names = [c["component"] for c in results[0]["components"]]
    greys = [str(0.15 + 0.75 * i / (len(names) - 1)) for i in range(len(names))]
    labels = [f"{r['tokens']:,}\n{what}" for r in results for what in ("time", "FLOPs")]
    places = [i + 0.9 * j for i in range(0, 3 * len(results), 3) for j in (0, 1)]
    bottom = [0.0] * len(places)
    hatches = ["", "//", "..", "\\\\", ""]
    for name, grey, hatch in zip(names, greys, hatches, strict=True):
        heights = []
        for r in results:
            c = next(c for c in r["components"] if c["component"] == name)
            heights += [100 * c["time_share"], 100 * c["flop_share"]]
        axes.bar(places, heights, 0.8, bottom, color=grey, hatch=hatch, edgecolor="black", label=name.replace("_", " "))
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    axes.set_xticks(places, labels, fontsize=8)
    axes.set(xlabel="tokens in the pass", ylabel="share of one pass, per cent", title="Where the time goes, beside the FLOPs")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=5, fontsize=7)
    write_figure(figure, path)


def plot_influence(matrix, path):
    """Who hears whom: `matrix` [T][T], the largest change of a logit at position i (row) when token j (column) changes."""
    from matplotlib.colors import LogNorm

    figure, axes = new_figure((5.2, 4))
    axes.grid(visible=False)
    T, seen = len(matrix), [x for row in matrix for x in row if x > 0]
    shown = [[x if x > 0 else float("nan") for x in row] for row in matrix]
    image = axes.imshow(shown, cmap="Greys", norm=LogNorm(min(seen) / 3, max(seen)))
    for i, row in enumerate(matrix):
        for j, x in enumerate(row):
            dark = x > (min(seen) * max(seen)) ** 0.5 * 1.7
            axes.text(j, i, f"{x:.1f}" if x else "0", ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    axes.set_xticks(range(T))
    axes.set_yticks(range(T))
    axes.set(xlabel="position of the token that changes", ylabel="position of the logits", title="Influence, with the mask")
    figure.colorbar(image, label="largest change of a logit")
    write_figure(figure, path)


def plot_throughput(lengths, path):
    """Speed against length, from rows with `tokens` and `gflop_per_s`."""
    figure, axes = new_figure()
    tokens = [r["tokens"] for r in lengths]
    axes.semilogx(tokens, [r["gflop_per_s"] for r in lengths], "ko-", base=2)
    axes.set_xticks(tokens, [f"{t:,}" for t in tokens])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="tokens in the pass", ylabel="matmul GFLOP/s of a whole pass", title="Throughput against length")
    write_figure(figure, path)
