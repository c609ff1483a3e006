"""The figures of the manuscripts, drawn from the records alone, so that unchanged results give unchanged files."""

from pathlib import Path

from examples.ch04 import plots
from examples.ch05 import plots as ch05
from examples.ch05.sampling import CANDIDATES
from examples.ch10 import wrong_caches as ch10
from examples.ch14 import plots as ch14
from examples.ch14.ablation_plots import plot_by_position
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
    },
    "ch05": {
        "temperature.svg": ("ch05.example", lambda v, path: ch05.plot_temperatures(v["temperatures"], CANDIDATES, path)),
        "repetition.svg": ("ch05.policies", lambda v, path: ch05.plot_repetition(v["policies"], v["width"], path)),
    },
    "ch10": {
        "failures.svg": ("ch10.failures", lambda v, path: ch10.plot_failures(v["failures"], v["prompt"], path)),
        "cost.svg": ("ch10.time", lambda v, path: ch10.plot_cost(v["times"], path)),
        "memory.svg": ("ch10.memory", lambda v, path: ch10.plot_memory(v["sequences"], path)),
    },
    "ch14": {
        "residual.svg": ("ch14.residual", lambda v, path: plots.plot_residual(v["layers"], path)),
        "depth.svg": ("ch14.depth", lambda v, path: ch14.plot_depth(v["rows"], path)),
        "serving.svg": ("ch14.costs", lambda v, path: ch14.plot_serving(v["models"], v["sequences"], path)),
        "balance.svg": ("ch14.trace", lambda v, path: ch14.plot_balance(v["balance"], path)),
        "ablations.svg": ("ch14.ablations-llama", lambda v, path: plot_by_position(v["rows"], path)),
    },
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
