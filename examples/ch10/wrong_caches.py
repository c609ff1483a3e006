"""Chapter 10's figures; readable in grey."""

from examples.lab.figure import new_figure, write_figure

MARKERS = "osD^v"


def plot_failures(rows, prompt, path):
    """How far each failure's logits are from the oracle's at each position: rows with `failure` and `by_position` (None: not
    computed), on a logarithmic scale, which has no place for an exact 0; `prompt` tokens come first."""
    figure, axes = new_figure()
    for i, (row, marker) in enumerate(zip(rows, MARKERS, strict=False)):
        seen = [(t, 100 * x) for t, x in enumerate(row["by_position"]) if x]
        style = dict(marker=marker, markersize=3.5, linewidth=0.9, color=str(0.0 + 0.15 * i), markevery=(i % 3, 3))
        axes.semilogy(*zip(*seen, strict=True), label=row["failure"], **style)
    axes.axvline(prompt - 0.5, color="0.5", linestyle=":")
    axes.set(xlabel="position", ylabel="off, per cent of the largest logit", title="Five failures that raise nothing")
    axes.legend(fontsize=7, loc="lower right")
    write_figure(figure, path)


def plot_cost(rows, path):
    """Ratios naive / cached by new tokens, from `loop_times`: measured time, beside FLOPs and positions, the latter both ways."""
    figure, axes = new_figure()
    for key, style, grey, label in (
        ("positions_ratio_without_prefill", "s:", "0.6", "positions, without the prefill"),
        ("positions_ratio", "o--", "0.35", "positions"),
        ("flop_ratio", "D-.", "0.5", "FLOPs"),
        ("ratio", "^-", "0.0", "time"),
    ):
        axes.plot([r["new"] for r in rows], [r[key] for r in rows], style, color=grey, label=label)
    axes.set(xlabel="new tokens", ylabel="naive / cached", title="What the cache saves")
    axes.legend()
    write_figure(figure, path)


def plot_memory(rows, path):
    """Cache bytes by tokens beside the weights: rows with `sequences`, `cache_gib` and `weight_gib`."""
    figure, axes = new_figure()
    sequences = [r["sequences"] for r in rows]
    axes.plot(sequences, [r["cache_gib"] for r in rows], "ko-", label="the sequences' caches")
    axes.plot(sequences, [r["weight_gib"] for r in rows], "--", color="0.5", label="the weights, once")
    axes.set(
        xlabel="sequences held at once, at the full context", ylabel="GiB", title="Memory of GPT-3's shape at two bytes a number"
    )
    axes.set_ylim(bottom=0)
    axes.legend()
    write_figure(figure, path)
