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


class _Leaves:
    """What a value holds: numbers [n] each with its weights [n, PROJECTIONS], and everything else, which has to be the same, as a
    hash."""

    def __init__(self, salt):
        self.salt, self.numbers, self.weights, self.count, self.rounded = salt, [], [], 0, False
        self.exact = hashlib.sha256(salt.encode())

    def add(self, value, place):
        """Take in a value that stands at `place` of a larger one."""
        if isinstance(value, torch.Tensor):
            self.note(place, describe(value))
            self.rounded |= value.is_floating_point() or value.is_complex()
            flat = value.detach().reshape(-1)
            for i, part in enumerate([flat.real, flat.imag] if flat.is_complex() else [flat]):
                self.take(part.to(torch.float64), f"{place}#{i}")
        elif isinstance(value, list) and value and all(_is_number(v) for v in value):
            self.note(place, f"list of {len(value)}")
            self.rounded |= any(isinstance(v, float) for v in value)
            self.take(torch.tensor([_float(v) for v in value], dtype=torch.float64), f"{place}:list")
        elif isinstance(value, (list, dict)):
            self.note(place, f"{len(value)} in {type(value).__name__}")
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                self.add(inner, f"{place}/{key}")
        elif _is_number(value):
            self.rounded |= isinstance(value, float)
            self.take(torch.tensor([_float(value)], dtype=torch.float64), f"{place}#")
        else:
            self.count += 1
            self.note(place, repr(value))

    def note(self, place, text):
        """Something that has to be the same."""
        self.exact.update(f"{place}={text};".encode("utf-8", "surrogatepass"))

    def take(self, numbers, place):
        """Numbers [n] in float64; where they are infinite or NaN has to be the same."""
        self.count += len(numbers)
        odd = numbers.nan_to_num(nan=3.0, posinf=2.0, neginf=1.0) * ~numbers.isfinite()
        if odd.any():
            self.note(place, odd.to(torch.uint8).tolist())
            numbers = torch.where(odd == 0, numbers, 0.0)
        self.numbers.append(numbers)
        self.weights.append(_weights(self.salt, place, len(numbers)))


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _float(value):
    try:
        return float(value)
    except OverflowError:
        return math.inf


@functools.lru_cache(maxsize=4096)
def _weights(salt, place, count):
    """[count, PROJECTIONS] standard normal numbers that the salt and the place decide."""
    seed = hashlib.sha256(f"{salt}|{place}".encode("utf-8", "surrogatepass")).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(seed[:7], "big"))
    return torch.randn(count, PROJECTIONS, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class Digest:
    """What is kept of the values of one check, a case each. kinds: what each is, or the name of the error that it raised.

    exact: a hash of lengths, keys, texts and of where numbers are infinite. projections: PROJECTIONS numbers; norm: the root of the
    sum of squares of all numbers; count: how many there are; whole: whether no number is of a kind that is rounded, and all have to
    be the same.
    """

    kinds: list
    exact: str
    projections: list
    norm: float
    count: int
    whole: bool

    def same(self, other, tolerance):
        """Whether both are of the same values, within `tolerance` of the size of those of `self`."""
        if (self.kinds, self.exact) != (other.kinds, other.exact):
            return False
        tolerance = min(tolerance, EXACT) if self.whole else tolerance
        return all(abs(a - b) <= tolerance * self.norm + 1e-300 for a, b in zip(self.projections, other.projections, strict=True))

    def plain(self):
        return asdict(self)


def digest(results, salt):
    """The `Digest` of a check's results, in order: {"value": ...} or {"error": name, ...} each."""
    kinds, found = [], _Leaves(salt)
    for i, result in enumerate(results):
        if "value" in result:
            kinds.append(describe(result["value"]))
            found.add(result["value"], str(i))
        else:
            kinds.append(f"raises {result['error']}")
        if result.get("changed"):
            kinds[-1] += ", and changes what it was given"
    values = torch.cat([torch.zeros(0, dtype=torch.float64), *found.numbers])
    weights = torch.cat([torch.zeros(0, PROJECTIONS, dtype=torch.float64), *found.weights])
    projections, norm = (values @ weights).tolist(), values.norm().item()
    return Digest(kinds, found.exact.hexdigest(), projections, norm, found.count, not found.rounded)
