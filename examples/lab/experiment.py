"""What an experiment and a claim are, and how their numbers are rounded; each chapter's stand in the registry."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Experiment:
    """One measurement. measure(model) returns its values; model is None where `loads` is False.

    model: the source it runs on. movable: whether it means something on another model too. seconds: about how long on two
    cores. limits: what it does not show.
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

    @property
    def chapter(self):
        return self.id.split(".")[0]


@dataclass(frozen=True)
class Claim:
    """A claim that no single result settles: a hypothesis, or something that the book says it does not show."""

    id: str
    status: str
    claim: str
    evidence: tuple
    limits: str

    @property
    def chapter(self):
        return self.id.split(".")[0]


def sig(x, digits=3):
    """`x` to so many significant digits; None stays None."""
    return None if x is None else float(f"{x:.{digits - 1}e}")


def above(x):
    """The smallest number of one significant digit that is not below `x`; 0 and NaN stay."""
    near = sig(x, 1)
    if x != x or near >= x:
        return near
    return sig(near + 10.0 ** math.floor(math.log10(abs(near))), 1)


def rounded(rows, digits=3):
    """The rows with every float to `digits` significant digits."""
    return [{k: sig(v, digits) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def tolerance(bound, worst, shown=None, **values):
    """A tolerance's values; the worst is shown as the next number of one digit above it, so that "at most" is true of it."""
    return {"bound": bound, "worst": above(worst) if shown is None else shown, "held": bool(worst <= bound), **values}
