"""The figures of the manuscripts, drawn from the records alone, so that unchanged results give unchanged files."""

from pathlib import Path

from examples.ch04 import plots
from scripts.evidence import read_results, results_path


def _time_shares(values):
    """The rows of `ch04.time` as `plot_time` wants them: shares of one, by length."""
    return [
        {
            "tokens": length["tokens"],
            "components": [
                {"component": c["component"], "time_share": c["time_percent"] / 100, "flop_share": c["flop_percent"] / 100}
                for c in values["components"]
                if c["tokens"] == length["tokens"]
            ],
        }
        for length in values["lengths"]
    ]


# chapter: {file: (record, how to draw its values to a path)}
FIGURES = {
    "ch04": {
        "residual.svg": ("ch04.residual", lambda v, path: plots.plot_residual(v["layers"], path)),
        "influence.svg": ("ch04.mask-off", lambda v, path: plots.plot_influence(v["influence"], path)),
        "time.svg": ("ch04.time", lambda v, path: plots.plot_time(_time_shares(v), path)),
        "throughput.svg": ("ch04.time", lambda v, path: plots.plot_throughput(v["lengths"], path)),
    }
}


def draw(root):
    """Draw every figure whose record is there; returns the paths."""
    paths = []
    for chapter, figures in FIGURES.items():
        records = read_results(results_path(root, chapter))
        folder = Path(root) / "research" / chapter / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        for name, (record, plot) in figures.items():
            if record in records:
                plot(records[record]["values"], folder / name)
                paths.append(folder / name)
    return paths
