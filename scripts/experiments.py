"""Every experiment and every claim of the book: found in the chapters, held nowhere else.

An experiment stands in the `EXPERIMENTS` of the file that measures it; a claim that no result settles, a hypothesis or something
that the book says it does not show, in `research/chNN/claims.json`.
"""

import functools
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, read_json

ROOT = Path(__file__).resolve().parents[1]
LONG = 20  # seconds; an experiment of as many is measured again by `make verify`, not by the tests


@dataclass(frozen=True)
class Claim:
    """A claim that no single result settles. status: hypothesis, or not shown here. evidence: ids of records that it rests on."""

    id: str
    status: str
    claim: str
    evidence: tuple[str, ...]
    limits: str

    @property
    def chapter(self):
        return self.id.split(".")[0]


@functools.cache
def experiments() -> tuple[Experiment, ...]:
    """All of them, by chapter and file; raises ValueError where two have one id."""
    found = []
    for path in sorted((ROOT / "examples").glob("ch[0-9][0-9]/[a-z]*.py")):
        module = importlib.import_module(f"examples.{path.parent.name}.{path.stem}")
        found += getattr(module, "EXPERIMENTS", ())
    ids = [e.id for e in found]
    twice = {id for id in ids if ids.count(id) > 1}
    if twice:
        raise ValueError(f"two experiments have the id {min(twice)}")
    return tuple(found)


def experiment(id: str) -> Experiment:
    """The experiment of that id; raises BadInput where there is none."""
    found = next((e for e in experiments() if e.id == id), None)
    if found is None:
        raise BadInput(f"no experiment {id!r}; make evidence-list lists them")
    return found


def lasting(long: bool, among: Iterable[Experiment] | None = None) -> list[Experiment]:
    """The experiments whose records have to come out the same on any machine, those of LONG seconds and more or all others."""
    among = experiments() if among is None else among
    return [e for e in among if e.kind in ("exact", "tolerance") and (e.seconds >= LONG) is long]


def claims(root: Path = ROOT) -> tuple[Claim, ...]:
    """All claims under `root`, by chapter; raises BadInput for a file that does not hold claims."""
    found = []
    for path in sorted(Path(root).glob("research/ch[0-9][0-9]/claims.json")):
        rows = read_json(path).get("claims")
        if not isinstance(rows, list):
            raise BadInput(f"{path} has no list of claims; it holds a chapter and its claims")
        for row in rows:
            try:
                found.append(Claim(**{**row, "evidence": tuple(row["evidence"])}))
            except (TypeError, KeyError):
                raise BadInput(f"{path}: {row} is no claim; it has id, status, claim, evidence and limits") from None
    return tuple(found)
