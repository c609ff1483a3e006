"""The figures that hang on the experiments: each is drawn from its record alone, so that the same record gives the same file."""

import tempfile
from pathlib import Path

from scripts.experiments import experiments
from scripts.records import read_results, results_path


def figures(root):
    """(experiment, path, values of its record) of every figure whose record is there."""
    for e in experiments():
        if e.figures:
            record = read_results(results_path(root, e.chapter)).get(e.id)
            for name in e.figures if record else ():
                yield e, Path(root) / "research" / e.chapter / "figures" / name, record["values"]


def draw(root):
    """Draw every figure whose record is there."""
    for experiment, path, values in figures(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        experiment.figures[path.name](values, path)


def stale_figures(root):
    """(path, id) of every figure that is not what its record draws."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for experiment, path, values in figures(root):
            again = Path(folder) / path.name
            experiment.figures[path.name](values, again)
            if not path.exists() or path.read_bytes() != again.read_bytes():
                found.append((path, experiment.id))
    return found
