"""The figures that hang on the experiments, each drawn from its record alone, and the pictures, which show no measured value.

A chapter's pictures stand in the `PICTURES` of its `examples/chNN/pictures.py`: {"name.svg": draw}, each called as draw(path). The
same record, or the same code, gives the same file.
"""

import importlib
import tempfile
from functools import partial
from pathlib import Path

from examples.lab.figure import noted
from scripts.experiments import ROOT, experiments
from scripts.markers import manuscripts
from scripts.records import read_results, results_path

MODELS = {
    "embedded": "the embedded model",
    "smollm2": "SmolLM2",
    "random:gpt2": "random weights of GPT-2's shape",
    "gpt2 (its config; no weights)": "GPT-2's published shape",
    "the configurations kept in configs.json": "published configurations",
}


def figures(root):
    """(id of an experiment or path of the pictures' code, path, draw(path)) of every figure: of the records that are there, and of
    the chapters whose manuscripts are."""
    for e in experiments():
        if e.figures:
            record = read_results(results_path(root, e.chapter)).get(e.id)
            for name in e.figures if record else ():
                yield e.id, _place(root, e.chapter, name), partial(_of_record, e.figures[name], record)
    for chapter in manuscripts(root):
        if (ROOT / "examples" / chapter / "pictures.py").exists():
            pictures = importlib.import_module(f"examples.{chapter}.pictures").PICTURES
            for name, draw_picture in pictures.items():
                yield f"examples/{chapter}/pictures.py", _place(root, chapter, name), draw_picture


def _place(root, chapter, name):
    return Path(root) / "research" / chapter / "figures" / name


def _of_record(draw_values, record, path):
    with noted(note(record)):
        draw_values(record["values"], path)


def note(record):
    """What stands at a figure's foot: which model its values are of, of a timing also the machine and its threads, which record."""
    said = [MODELS.get(record["model"], record["model"])]
    if record["kind"] == "timing":
        threads = record["threads"]
        said += [f"{threads} thread{'s' if threads > 1 else ''}", record["machine"]["processor"]]
    return f"{', '.join(said)}; record {record['id']}"


def draw(root):
    """Draw every figure."""
    for _, path, draw_it in figures(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_it(path)


def stale_figures(root):
    """(path, what draws it) of every figure that is not what its record, or its code, draws."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for source, path, draw_it in figures(root):
            again = Path(folder) / path.name
            draw_it(again)
            if not path.exists() or path.read_bytes() != again.read_bytes():
                found.append((path, source))
    return found
