"""Chapter 2: what a pickled weight file can do, shown on one that is built here, read as a list of steps, and never opened.

    python examples/ch02/pickled_weights.py

A pickle is a program for a small machine that Python runs to rebuild an object: one step puts any function of any module on the
stack (GLOBAL), another calls it (REDUCE). This script builds a file of weights with one call more in it, which would write a file.
It lists the steps with pickletools, which runs none, and shows that loading refuses such a file.
"""

import io
import pickle
import pickletools
import sys
import tempfile
import zipfile
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import EMBEDDED, load
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table

MARKER = "the-pickle-ran"  # the file that would be written where the pickle is opened
CALLS = ("REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD")  # the steps that run something
NAMES = ("GLOBAL", "STACK_GLOBAL", "INST")  # the steps that fetch something by its name


class Payload:
    """Is pickled as a call of `exec`: whoever unpickles it runs the text."""

    def __reduce__(self):
        return exec, (f"open({MARKER!r}, 'w').close()",)


def dangerous() -> bytes:
    """A pickle that looks like weights, and would run code. Making it runs nothing."""
    return pickle.dumps({"wte.weight": [0.25, -0.5], "wpe.weight": Payload()}, protocol=2)


def honest() -> bytes:
    """The pickle within a file that torch writes of weights: data.pkl of the archive."""
    file = io.BytesIO()
    torch.save({"wte.weight": torch.tensor([0.25, -0.5])}, file)
    with zipfile.ZipFile(file) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def steps(data: bytes) -> list[tuple[int, str, str]]:
    """[(place, step, what stands with it)] of a pickle, none of which is run."""
    return [(at, code.name, "" if arg is None else repr(arg)) for code, arg, at in pickletools.genops(data)]


def calls(data: bytes) -> list[str]:
    """The functions and classes that a pickle fetches by their names, in its order."""
    return [arg.strip("'") for _, step, arg in steps(data) if step in NAMES]


def refused(folder: Path) -> dict:
    """What loading says of folders and files that hold the dangerous pickle: {case: line}; all are written below `folder`."""
    cases, data = {}, dangerous()
    for case, names in (
        ("a folder with pytorch_model.bin alone", ["pytorch_model.bin"]),
        ("a folder with it and a cut model.safetensors", ["pytorch_model.bin", "model.safetensors"]),
    ):
        place = folder / f"model-{len(cases)}"
        place.mkdir()
        (place / "config.json").write_bytes((EMBEDDED / "config.json").read_bytes())
        for name in names:
            (place / name).write_bytes(data if name.endswith(".bin") else (EMBEDDED / name).read_bytes()[:-1])
        cases[case] = place
    (folder / "weights.pt").write_bytes(data)
    cases["the file itself, weights.pt"] = folder / "weights.pt"
    said = {}
    for case, place in cases.items():
        try:
            load(place)
            said[case] = "it was loaded"
        except BadInput as error:
            said[case] = str(error).replace(f"{folder}/", "").replace(f"{folder}\\", "")
    return said


def measure():
    """The steps of the dangerous pickle; what it and torch's own fetch by name; what loading says; and whether anything ran."""
    data, before = dangerous(), Path(MARKER).exists()
    with tempfile.TemporaryDirectory() as holder:
        said = refused(Path(holder))
    ran = Path(MARKER).exists() and not before
    return {
        "bytes": len(data),
        "steps": [{"at": at, "step": step, "with": arg} for at, step, arg in steps(data)],
        "calls": sum(step in CALLS for _, step, _ in steps(data)),
        "fetches": calls(data),
        "torch_fetches": calls(honest()),
        "numbers_fetch": calls(pickle.dumps({"wte.weight": [0.25, -0.5]}, protocol=2)),
        "refused": [{"case": case, "said": line} for case, line in said.items()],
        "anything_ran": ran,
    }


def report(values):
    """Text of {"pickle": ...}."""
    v = values["pickle"]
    lines = [f"A pickle of {v['bytes']} bytes that looks like two weights. Its steps, listed and not run:", ""]
    lines += [table(["byte", "step", "with"], [[s["at"], s["step"], s["with"]] for s in v["steps"]]), ""]
    rows = [["this one", name] for name in v["fetches"]] + [["torch's own, of a tensor", name] for name in v["torch_fetches"]]
    rows += [["one of numbers alone", name] for name in v["numbers_fetch"] or ["nothing"]]
    lines += [table(["a pickle", "fetches by name"], rows), ""]
    for r in v["refused"]:
        lines += [f"Given {r['case']}, loading says:", *_wrapped(r["said"])]
    end = [
        "",
        f"Something ran: {'YES' if v['anything_ran'] else 'no'}. GLOBAL would have fetched exec, and REDUCE would have called it.",
        "torch's own files fetch and call functions too, so that calls alone do not give a bad file away.",
        "A safetensors file has no steps at all: its header is JSON, and all else are numbers.",
    ]
    return "\n".join([*lines, *end])


def _wrapped(text):
    import textwrap

    return textwrap.wrap(text, 96, initial_indent="  ", subsequent_indent="  ", break_long_words=False)


EXPERIMENTS = (
    Experiment(
        "ch02.pickle",
        "exact",
        "A pickle of weights can hold a call of any function; our loader refuses such a file by its name, and runs nothing of it.",
        "One call, of exec. The refusal goes by the file's name and place; no pickle is looked into.",
        measure,
        model="a pickle that is built here",
        loads=False,
        movable=False,
        headline=("calls", "int"),
    ),
)


def options():
    """The script's argument parser."""
    return Parser(prog="pickled_weights.py", description=__doc__, keys=__file__).add("json")


@command
def main(argv=None):
    """Print what a pickle would do."""
    args = options().parse_args(argv)
    answer(args, {"pickle": measure()}, report)


if __name__ == "__main__":
    sys.exit(main())
