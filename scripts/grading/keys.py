"""A key: all that a check of one exercise needs, and no answer. Inputs, digests of the right values and of known mistakes.

A key is made from the answers, scripts/grading/answers.py, for a seed; a release for students carries it as two files, so that the
same check runs where no answer is.
"""

import hashlib
import math
import struct
import zlib
from dataclasses import dataclass, field

from examples.lab.script import BadInput
from scripts.grading.runner import HEAD, packed, unpacked
from scripts.grading.values import Digest

FINE = 16  # steps that a range is divided into
ROUNDS = 2_000  # of the hash of a number's place, so that trying all takes a while


@dataclass(frozen=True)
class Key:
    """The key of one exercise.

    calls: [{"check", "function", "args"}] in the order in which they run. expected: {check: Digest}. mistakes: [{"message",
    "digests": {check: Digest}}]. tolerance: relative, {check: ...}. ranges: {key: {"step", "places", "mistakes": {place:
    message}}}.
    """

    id: str
    seed: int
    driver: str
    seconds: float
    calls: list
    expected: dict
    mistakes: list
    tolerance: dict
    ranges: dict = field(default_factory=dict)
    rubric: str = ""

    @property
    def checks(self):
        """The names of the checks of its code, in order."""
        return list(self.expected)

    @property
    def salt(self):
        return f"{self.id}|{self.seed}"

    def plain(self):
        """All of it as a value that `packed` takes; the rubric stays with the instructor."""
        digests = [{**m, "digests": {c: d.plain() for c, d in m["digests"].items()}} for m in self.mistakes]
        return {
            **{k: getattr(self, k) for k in ("id", "seed", "driver", "seconds", "calls", "tolerance", "ranges")},
            "expected": {check: d.plain() for check, d in self.expected.items()},
            "mistakes": digests,
        }

    def fingerprint(self):
        """Changes when anything that decides a mark does."""
        return hashlib.sha256(packed({**self.plain(), "rubric": self.rubric})).hexdigest()


def write_key(key, path):
    """Write a key to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zlib.compress(packed(key.plain()), 9))


def read_key(path):
    """The key in a file that `write_key` wrote; raises BadInput where it is none."""
    try:
        content = zlib.decompress(path.read_bytes())
        size, held = HEAD.unpack_from(content)
        fields = unpacked(content[HEAD.size : HEAD.size + size], content[HEAD.size + size :][:held])
        fields["expected"] = {check: Digest(**d) for check, d in fields["expected"].items()}
        for mistake in fields["mistakes"]:
            mistake["digests"] = {check: Digest(**d) for check, d in mistake["digests"].items()}
        return Key(**fields)
    except (OSError, ValueError, KeyError, TypeError, zlib.error, struct.error) as error:
        raise BadInput(f"{path} is no key of an exercise ({type(error).__name__}); unpack the release again") from None


# ------------------------------------------------------------------------------------------------------ numbers handed in


def range_key(low, high, mistakes, salt):
    """The key of one number: a grid of steps, and hashes of its cells that lie in the range, and of those of known mistakes.

    A number handed in is right within `low` to `high`, to a 32nd of the range at each end; where both are equal, to a
    whole number or to nine digits. The grid is one of logarithms where the range goes over more than a factor of 4.
    """
    grid = {"log": bool(0 < 4 * low < high)}
    low, high = _on(grid, low), _on(grid, high)
    width = high - low
    grid["step"] = width / FINE if width else 1.0 if low == int(low) else 1e-9 * abs(low)
    places = [_hash(i, grid, salt) for i in _cells(low, high, grid["step"])]
    wrong = {}
    for least, most, message in mistakes:
        for i in _cells(_on(grid, least), _on(grid, most), grid["step"]):
            wrong[_hash(i, grid, salt)] = message
    return {**grid, "places": places, "mistakes": {p: m for p, m in wrong.items() if p not in places}}


def _on(grid, number):
    return math.log(number) if grid["log"] else number


def _cells(low, high, step):
    first, last = (math.floor(x / step + 0.5) for x in (low, high))
    if last - first > 20 * FINE:
        raise ValueError(f"{low} to {high} is too wide a range beside the right one; name a narrower one")
    return range(first, last + 1)


def _hash(cell, grid, salt):
    return hashlib.pbkdf2_hmac("sha256", f"{cell}|{grid['step']}".encode(), salt.encode(), ROUNDS).hex()[:24]


def place_of(number, grid, salt):
    """The hash of the cell of a grid in which a number lies; None for one that lies in none."""
    try:
        return _hash(math.floor(_on(grid, number) / grid["step"] + 0.5), grid, salt)
    except (OverflowError, ValueError):
        return None
