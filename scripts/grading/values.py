"""What a function returned, as something that can be carried, compared and kept without being given away.

A value is None, a bool, a number, a text, a list, a dictionary with text keys, or a tensor. `describe` says its kind: the dtype and
shape of each tensor, of anything else only what it is. `Digest` holds a few random projections of the values of one check: the sum
of all numbers, each times a weight that a secret text and the number's place decide. Two values that agree within a tolerance have
projections that agree within it; the value cannot be read from them where it has more numbers than there are projections.
"""

import functools
import hashlib
import math
from dataclasses import asdict, dataclass

import torch

PROJECTIONS = 3
EXACT = 1e-11  # relative; sums of whole numbers in float64 are rounded as well
LEAST = 8  # numbers in a check's values, so that its projections tell none of them
KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a dictionary"}


def describe(value):
    """The kind of a value in words: "float32 [2, 3]" of a tensor, "a number" of 7, "(float32 [2], a number)" of a pair."""
    if value is None:
        return "nothing"
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, list) and any(_has_tensor(v) for v in value):
        return f"({', '.join(map(describe, value))})"
    return KINDS[type(value)]


def _has_tensor(value):
    if isinstance(value, (list, dict)):
        return any(map(_has_tensor, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def numbers(value, salt, place=""):
    """(numbers [n], weights [n, PROJECTIONS]) of a value, float64. `place` is where it stands in a larger one.

    What is no number counts as 1 at a place of its own name; infinities and NaN likewise.
    """
    found, weighted = [], []
    _leaves(value, salt, place, found, weighted)
    if not found:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, PROJECTIONS, dtype=torch.float64)
    return torch.cat(found), torch.cat(weighted)


def _leaves(value, salt, place, found, weighted):
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        parts = [flat.real, flat.imag] if flat.is_complex() else [flat]
        for i, part in enumerate(p.to(torch.float64) for p in parts):
            found.append(torch.where(part.isfinite(), part, 0.0))
            weighted.append(_weights(salt, f"{place}#{i}", len(part)))
            odd = part.nan_to_num(nan=3.0, posinf=2.0, neginf=1.0) * ~part.isfinite()
            if odd.any():
                found.append(odd)
                weighted.append(_weights(salt, f"{place}#odd{i}", len(part)))
    elif isinstance(value, list) and value and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value):
        _leaves(torch.tensor([_float(v) for v in value], dtype=torch.float64), salt, f"{place}:list", found, weighted)
    elif isinstance(value, (list, dict)):
        rows = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in rows:
            _leaves(inner, salt, f"{place}/{key}", found, weighted)
        _one(1.0, salt, f"{place}:{len(value)} in {type(value).__name__}", found, weighted)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value = _float(value)
        if math.isfinite(value):
            _one(value, salt, f"{place}#", found, weighted)
        else:
            _one(1.0, salt, f"{place}#{value}", found, weighted)
    else:
        _one(1.0, salt, f"{place}={value!r}", found, weighted)


def _float(value):
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _one(value, salt, place, found, weighted):
    found.append(torch.tensor([value], dtype=torch.float64))
    weighted.append(_weights(salt, place, 1))


@functools.lru_cache(maxsize=4096)
def _weights(salt, place, count):
    """[count, PROJECTIONS] standard normal numbers that the salt and the place decide."""
    seed = hashlib.sha256(f"{salt}|{place}".encode("utf-8", "surrogatepass")).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(seed[:7], "big"))
    return torch.randn(count, PROJECTIONS, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Digest:
    """What is kept of the values of one check, a case each. kinds: what each is, or the name of the error that it raised.

    projections: PROJECTIONS numbers; norm: the root of the sum of squares of all numbers; count: how many there are; whole: whether
    no number is of a kind that is rounded, and all have to be the same.
    """

    kinds: list
    projections: list
    norm: float
    count: int
    whole: bool

    def same(self, other, tolerance):
        """Whether both are of the same values, within `tolerance` of the size of those of `self`."""
        if self.kinds != other.kinds:
            return False
        tolerance = min(tolerance, EXACT) if self.whole else tolerance
        return all(abs(a - b) <= tolerance * self.norm + 1e-300 for a, b in zip(self.projections, other.projections, strict=True))

    def plain(self):
        return asdict(self)


def digest(results, salt):
    """The `Digest` of a check's results, in order: {"value": ...} or {"error": name, ...} each."""
    kinds, found, weighted = [], [], []
    for i, result in enumerate(results):
        if "value" in result:
            kinds.append(describe(result["value"]))
            values, weights = numbers(result["value"], salt, str(i))
            found.append(values)
            weighted.append(weights)
        else:
            kinds.append(f"raises {result['error']}")
        if result.get("changed"):
            kinds[-1] += ", and changes what it was given"
    values = torch.cat([torch.zeros(0, dtype=torch.float64), *found])
    weights = torch.cat([torch.zeros(0, PROJECTIONS, dtype=torch.float64), *weighted])
    whole = not any(_rounded(result["value"]) for result in results if "value" in result)
    return Digest(kinds, (values @ weights).tolist(), values.norm().item(), len(values), whole)


def _rounded(value):
    """Whether a value holds numbers of a kind that is rounded."""
    if isinstance(value, (list, dict)):
        return any(map(_rounded, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) or (isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()))
