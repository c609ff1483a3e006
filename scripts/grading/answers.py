"""The answers of an exercise, `scripts/answers/chNN/`, and the key that is made of them. No release for students has this file.

Two files each: exN_name.py, the solution, as a reader would hand it in; exN_name_checks.py, a module with

- `cases(draw)`: yields (name of the check, function, arguments by name); several cases may make one check. `draw` gives inputs
  from the seed (`Draw`), so that each seed has other ones;
- `MUTANTS`: a list of `Mutant(message, old, new, ...)`, usual mistakes, each a replacement in the solution's text;
- `RANGES`: {key: (low, high)} of the numbers handed in, and `MISTAKES`: {key: [(low, high, message)]} of known wrong ones;
- `RUBRIC`: what a paragraph is marked by, a line each;
- `DRIVER`: the source of functions f(module, **args) that use a submission where a case is more than one call (a class, a loop);
- `TOLERANCE`: relative, by default 1e-4; a number, or {check: number}. `SECONDS`: of computing, by default 10.

Each may be left out where it has nothing to say.
"""

import functools
import importlib
from dataclasses import dataclass

import torch

from examples.lab.script import BadInput
from scripts.grading.exercises import ROOT
from scripts.grading.keys import Key, range_key
from scripts.grading.runner import carried, results
from scripts.grading.values import LEAST, digest

TOLERANCE, SECONDS = 1e-4, 10


@dataclass(frozen=True)
class Mutant:
    """A usual mistake: what to tell whoever makes it, and how to make it: `new` for `old` in the solution, and further pairs."""

    message: str
    old: str
    new: str
    more: tuple = ()

    def of(self, source):
        """The mutant's source; raises ValueError where the solution has an `old` not exactly once."""
        for old, new in ((self.old, self.new), *self.more):
            if source.count(old) != 1:
                raise ValueError(f"{old!r} stands {source.count(old)} times in the solution; it has to stand there once")
            source = source.replace(old, new)
        return source


class Draw:
    """Inputs from a seed: the same for the same seed and exercise."""

    def __init__(self, seed, id):
        self.generator = torch.Generator().manual_seed(sum(ord(c) * 131**i for i, c in enumerate(f"{id}|{seed}")) % 2**62)

    def normal(self, *shape, scale=1.0, dtype=torch.float32):
        """A tensor of standard normal numbers times `scale`."""
        return (torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale).to(dtype)

    def uniform(self, low=0.0, high=1.0):
        """One number between `low` and `high`."""
        return low + (high - low) * torch.rand((), generator=self.generator, dtype=torch.float64).item()

    def whole(self, low, high):
        """One whole number, `low` to `high`, both possible."""
        return torch.randint(low, high + 1, (), generator=self.generator).item()

    def ids(self, below, *shape):
        """A tensor of int64, 0 to `below` - 1."""
        return torch.randint(below, shape, generator=self.generator)

    def choice(self, options):
        """One of `options`."""
        return options[self.whole(0, len(options) - 1)]

    def order(self, count):
        """The numbers 0 to `count` - 1 in some order."""
        return torch.randperm(count, generator=self.generator).tolist()


@dataclass(frozen=True)
class Answers:
    """What the two files of an exercise hold."""

    solution: str
    module: object

    def get(self, name, default):
        return getattr(self.module, name, default)

    @property
    def mutants(self):
        return self.get("MUTANTS", [])


@functools.cache
def answers(exercise):
    """The `Answers` of an exercise; raises BadInput where there are none."""
    folder = ROOT / "scripts" / "answers" / exercise.chapter
    solution, checks = folder / f"{exercise.name}.py", folder / f"{exercise.name}_checks.py"
    if not checks.is_file() or ("code" in exercise.points and not solution.is_file()):
        raise BadInput(f"{exercise.id} has no answers in {folder}; this tree is for students, or they are still to be written")
    module = importlib.import_module(f"scripts.answers.{exercise.chapter}.{checks.stem}")
    return Answers(solution.read_text(encoding="utf-8") if "code" in exercise.points else "", module)


def calls(found, id, seed):
    """[{"check", "function", "args"}] of the cases of `found`, the `Answers` of the exercise `id`."""
    cases = found.get("cases", lambda draw: ())
    return [{"check": check, "function": f, "args": args} for check, f, args in cases(Draw(seed, id))]


def digests(exercise, source, driver, cases, salt):
    """({check: Digest}, results) of a source, run in this process: for our own code, never for a submission."""
    rows = results({"name": exercise.name, "source": source, "driver": driver, "calls": cases})
    found = [row | {"value": carried(row["value"])} if "value" in row else row for row in rows]
    return {check: digest(rows, salt(check)) for check, rows in grouped(cases, found).items()}, found


def grouped(cases, found):
    """{check: its results} in the order of the checks."""
    rows = {}
    for case, result in zip(cases, found, strict=True):
        rows.setdefault(case["check"], []).append(result)
    return rows


@functools.lru_cache(maxsize=256)
def key(exercise, seed):
    """The `Key` of an exercise for a seed; raises ValueError where the answers do not hold."""
    found = answers(exercise)
    cases, driver = calls(found, exercise.id, seed), found.get("DRIVER", "")
    salted = lambda check: f"{exercise.id}|{seed}|{check}"  # noqa: E731
    expected, rows = digests(exercise, found.solution, driver, cases, salted) if cases else ({}, [])
    for case, row in zip(cases, rows, strict=True):
        if "value" not in row or row["changed"]:
            raise ValueError(f"{exercise.id}: the solution fails in {case['check']!r}: {row}")
    for check, known in expected.items():
        if known.count < LEAST:
            raise ValueError(
                f"{exercise.id}: {check!r} has {known.count} numbers, which a release would give away; {LEAST} at least"
            )
    mistakes = [
        {"message": m.message, "digests": digests(exercise, m.of(found.solution), driver, cases, salted)[0]} for m in found.mutants
    ]
    bound = found.get("TOLERANCE", TOLERANCE)
    ranges, known = found.get("RANGES", {}), found.get("MISTAKES", {})
    if set(ranges) != set(exercise.numbers):
        raise ValueError(f"{exercise.id}: RANGES has {sorted(ranges)}, the starter's numbers are {sorted(exercise.numbers)}")
    return Key(
        id=exercise.id,
        seed=seed,
        driver=driver,
        seconds=found.get("SECONDS", SECONDS),
        calls=cases,
        expected=expected,
        mistakes=mistakes,
        tolerance={check: bound.get(check, TOLERANCE) if isinstance(bound, dict) else bound for check in expected},
        ranges={k: range_key(*ends, known.get(k, ()), f"{exercise.id}|{k}") for k, ends in ranges.items()},
        rubric=found.get("RUBRIC", "").strip(),
    )
