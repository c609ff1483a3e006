"""What an experiment is, and what a record keeps of the values that it measured.

A room's `measure(model, ...)` returns one dictionary: it is printed with `--json`, kept as a record, and drawn. For the record its
floats are cut to the digits that mean something, by the kind of evidence: an `exact` value stays as it is; of a `tolerance` the
worst one seen goes up to one digit, so that "at most" is true of it; what was observed or timed keeps three digits, or as many as
the experiment says.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from examples.lab.environment import processor
from examples.lab.script import BadInput, read_json

ROOT = Path(__file__).resolve().parents[2]
FAR = 1.5  # times the rate of a record, or one such part of it
KINDS = ("exact", "tolerance", "observation", "timing")


@dataclass(frozen=True)
class Experiment:
    """One measurement that the book keeps.

    id: chNN.name. claim: what it shows, in a sentence. limits: what it does not show.
    measure: called with the model, or with nothing where `loads` is False; returns plain values with units in their names.
    model: the source it runs on. movable: whether it means something on another model too. seconds: about how long on two cores.
    digits: of floats in a record that is not exact; {key: digits} for what stands under some keys, and three for all others.
    leaves_out: keys, at any depth, that no record keeps: a tolerance's single differences, say, which are one machine's rounding.
    figures: {file: draw}, each called as draw(values, path) with a record's values.
    headline: (path, format) of the one value that the claim is about, as a marker in a manuscript names it; None where no number
    says it.
    """

    id: str
    kind: str
    claim: str
    limits: str
    measure: Callable
    model: str = "embedded"
    loads: bool = True
    movable: bool = True
    seconds: int = 1
    seed: int = 0
    dtype: str = "float32"
    threads: int = 1
    digits: int | Mapping[str, int] = 3
    leaves_out: tuple[str, ...] = ()
    figures: Mapping[str, Callable] = field(default_factory=dict)
    headline: tuple[str, str] | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"{self.id} has kind {self.kind!r}, not one of {', '.join(KINDS)}")

    @property
    def chapter(self):
        return self.id.split(".")[0]

    def values(self, model=None):
        """What a record keeps of a measurement made now; raises ValueError and TypeError like `plain`."""
        return self.kept(self.measure(model) if self.loads else self.measure())

    def kept(self, values):
        """What a record keeps of `values`, which `measure` returned."""
        values = _without(plain(values), self.leaves_out)
        if self.kind == "exact":
            return values
        default, named = (self.digits, {}) if isinstance(self.digits, int) else (3, self.digits)
        values = _rounded(values, default, named)
        return values | {"worst": above(values["worst"])} if self.kind == "tolerance" else values


def plain(value):
    """`value` with numpy and torch scalars as plain numbers and tuples as lists; raises TypeError for what is not JSON, ValueError
    for NaN and infinity."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if hasattr(value, "item") and value.ndim == 0:  # a scalar of numpy or torch
        return plain(value.item())
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a result; record null and say why in `limits`")
        return value
    raise TypeError(f"{type(value).__name__} cannot be recorded")


def tolerance(bound, worst, held=True, **values):
    """A tolerance's values: it held where the worst is within the bound and whatever else the claim says is true."""
    return {"bound": bound, "worst": worst, "held": bool(worst <= bound and held), **values}


def largest(tensor):
    """Largest absolute value, as a float; NaN when there is one."""
    return tensor.abs().max().item()


def worst(values):
    """The largest of some floats, 0.0 of none; NaN when there is one, which Python's own max would hide."""
    values = list(values)
    return float("nan") if any(math.isnan(x) for x in values) else max(values, default=0.0)


def worst_row(rows, key):
    """The first of `rows` whose value at `key` is the largest; one where that is NaN before all others."""
    return next((r for r in rows if math.isnan(r[key])), None) or max(rows, key=lambda r: r[key])


def relative(difference, size):
    """`difference` as a part of `size`, or as it is where `size` is 0."""
    return difference / size if size != 0 else difference


def far_from_record(id, args, values, root=ROOT):
    """The rates at the top of `values`, whose keys end in `_per_s`, that are far from those of the record `id`: a list of phrases.

    None are where no such record was made on this processor, with the model and the threads of `args`.
    """
    try:
        rows = read_json(root / "research" / id.split(".")[0] / "results.json")["results"]
    except (BadInput, KeyError):
        return []
    wanted = {"id": id, "model": args.model, "threads": args.threads}.items()
    found = [r["values"] for r in rows if r.items() >= wanted and r["machine"]["processor"] == processor()]
    pairs = [(key, x, found[0][key]) for key, x in values.items() if key.endswith("_per_s") and key in found[0]] if found else []
    return [
        f"{key} is {x:.3g}, and {recorded:.3g} in the record {id}"
        for key, x, recorded in pairs
        if not recorded / FAR <= x <= recorded * FAR
    ]


def sig(x, digits=3):
    """`x` to so many significant digits; None stays None."""
    return None if x is None else float(f"{x:.{digits - 1}e}")


def above(x):
    """The smallest number of one significant digit that is not below `x`; 0 and NaN stay."""
    near = sig(x, 1)
    if x != x or near >= x:
        return near
    return sig(near + 10.0 ** math.floor(math.log10(abs(near))), 1)


def _rounded(value, digits, named):
    """`value` with its floats to so many digits, but for `worst`; below a key that is named, to that key's."""
    if isinstance(value, dict):
        return {k: v if k == "worst" else _rounded(v, named.get(k, digits), named) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v, digits, named) for v in value]
    return sig(value, digits) if isinstance(value, float) else value


def _without(value, keys):
    if isinstance(value, dict):
        return {k: _without(v, keys) for k, v in value.items() if k not in keys}
    return [_without(v, keys) for v in value] if isinstance(value, list) else value
