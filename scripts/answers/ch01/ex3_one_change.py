"""A record's sums, and two records compared."""

import statistics

TIMES = ("stages", "seconds", "unexplained")


def request_record(what, stages, seconds):
    claimed = [t for times in stages.values() for t in times]
    if sum(claimed) > seconds + 1e-6 or min(claimed, default=0) < 0:
        raise ValueError("a stage is counted twice, or is negative")
    return {**what, "stages": stages, "seconds": seconds, "unexplained": seconds - sum(claimed)}


def fields(record, path=""):
    found = {}
    for name, inner in record.items():
        if isinstance(inner, dict):
            found |= fields(inner, f"{path}{name}.")
        else:
            found[path + name] = inner
    return found


def changed(one, other):
    one, other = (fields({k: v for k, v in record.items() if k not in TIMES}) for record in (one, other))
    paths = sorted({*one, *other})
    return [[path, one.get(path), other.get(path)] for path in paths if one.get(path) != other.get(path)]


def times(record):
    stages = record.get("stages", {})
    return {
        "prefill": sum(stages.get("prefill", [])),
        "decode step": statistics.median(stages.get("decode") or [0]),
        "request": record["seconds"] - sum(stages.get("load", [])),
    }


def factors(one, other):
    one, other = times(one), times(other)
    return {name: other[name] / one[name] if one[name] and other[name] else None for name in one}
