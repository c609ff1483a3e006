"""The comparison: what a submission returned beside the key, a verdict for each check, and the likeliest mistake in words."""

import json
import math
from dataclasses import dataclass

from scripts.grading.keys import place_of
from scripts.grading.values import describe, digest

OPEN = "this is not written yet"
LARGEST_JSON = 64 * 1024  # bytes of the numbers handed in


@dataclass(frozen=True)
class Verdict:
    """Of one check: whether it passed, and of one that did not what is told."""

    check: str
    passed: bool
    message: str = ""


def judge(key, results):
    """A `Verdict` for each check of a key's code. results: one for each of the key's calls, or fewer where the run broke off, and
    then the last says why: {"error", "message"}."""
    if not key.calls:
        return []
    last = results[-1] if results else {"error": "Stopped", "message": "it returned nothing"}
    missing = (
        {"error": "NotReached", "message": f"not reached: {last.get('message') or last['error']}"} if "error" in last else None
    )
    full = [*results, *[missing or {"error": "NotReached", "message": "not reached"}] * (len(key.calls) - len(results))]
    rows = {}
    for call, result in zip(key.calls, full[: len(key.calls)], strict=True):
        rows.setdefault(call["check"], []).append(result)
    given = {check: _digest_of(key, check, found) for check, found in rows.items()}
    passed = {c: d is not None and key.expected[c].same(d, key.tolerance[c]) for c, d in given.items()}
    return [
        Verdict(c, True) if passed[c] else Verdict(c, False, _why(key, c, rows[c], given[c], _alike(key, given, c))) for c in rows
    ]


def _digest_of(key, check, rows):
    """The `Digest` of what was returned, None where its kinds are nobody's: then its numbers, which may be many, are left alone."""
    kinds = [_kind(row) for row in rows]
    known = [key.expected[check], *(m["digests"][check] for m in key.mistakes)]
    return digest(rows, f"{key.salt}|{check}") if any(kinds == d.kinds for d in known) else None


def _kind(row):
    kind = describe(row["value"]) if "value" in row else f"raises {row['error']}"
    return kind + (", and changes what it was given" if row.get("changed") else "")


def _alike(key, given, check):
    """The message of the known mistake that gives the same on this check and agrees on most others; None where none does."""
    best, score = None, 0
    for mistake in key.mistakes:
        same = {c: d is not None and mistake["digests"][c].same(d, key.tolerance[c]) for c, d in given.items()}
        if same[check] and sum(same.values()) > score:
            best, score = mistake["message"], sum(same.values())
    return best


def _why(key, check, rows, given, alike):
    """What is told of a check that did not pass."""
    for row in rows:
        if row.get("error") == "NotImplementedError":
            return OPEN
        if row.get("error") in ("NotReached", "Stopped", "TooLarge", "Missing"):
            return row["message"]
    for row in rows:
        if "error" in row:
            told = row["error"] + (f": {row['message']}" if row.get("message") else "")
            told += f" (line {row['line']})" if row.get("line") else ""
            return f"{'it does not load: ' if row.get('at') == 'import' else 'it raises '}{told}" + (
                f"; likely: {alike}" if alike else ""
            )
    if alike:
        return alike
    for row, kind in zip(rows, key.expected[check].kinds, strict=True):
        if row.get("changed"):
            return f"it changes its argument {', '.join(row['changed'])} in place; work on a copy"
        if describe(row["value"]) != kind:
            return f"it returns {describe(row['value'])}, and should return {kind}"
    if any(_odd(row["value"]) for row in rows):
        return "some of the numbers are NaN or infinite"
    return "the values are others than they should be, and not those of a mistake known here"


def _odd(value):
    if isinstance(value, (list, dict)):
        return any(map(_odd, value.values() if isinstance(value, dict) else value))
    if hasattr(value, "isfinite"):
        return not bool(value.isfinite().all())
    return isinstance(value, float) and not math.isfinite(value)


def judge_numbers(key, text):
    """A `Verdict` for each number handed in, of the JSON `text`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return [Verdict(k, False, "the file is not JSON") for k in key.ranges]
    if not isinstance(given, dict):
        return [Verdict(k, False, "the file holds no JSON object of keys and numbers") for k in key.ranges]
    return [_number(key, k, given.get(k)) for k in key.ranges]


def _number(key, name, number):
    known = key.ranges[name]
    if number is None:
        return Verdict(name, False, "not filled in")
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return Verdict(name, False, "this is no number")
    place = place_of(number, known, f"{key.id}|{name}")
    if place in known["places"]:
        return Verdict(name, True)
    return Verdict(name, False, known["mistakes"].get(place, "outside the range of right answers"))
