"""Checks of ch01.3: a record's sums, what changed from one to another, and the factors."""

from scripts.grading.answers import Mutant

DRIVER = '''
def recorded(module, requests):
    """The record of each request, or that it was refused; and whether `what` is as before."""
    found = []
    for what, stages, seconds in requests:
        before = repr(what)
        try:
            record = module.request_record(what, stages, seconds)
        except ValueError:
            record = "refused"
        found.append([record, repr(what) == before])
    return found
'''


def stages(draw, decode, load=False):
    found = {"load": [draw.uniform(0.5, 2.0)]} if load else {}
    found |= {"tokenise": [draw.uniform(0.01, 0.1)], "prefill": [draw.uniform(1.0, 2.0)]}
    if decode:
        found |= {"decode": [draw.uniform(0.1, 0.9) for _ in range(decode)]}
    return found | {"sample": [draw.uniform(0.01, 0.05) for _ in range(decode + 1)]}


def what(draw):
    return {
        "program": draw.choice(("library", "our pass")),
        "dtype": draw.choice(("float32", "bfloat16")),
        "threads": draw.whole(1, 16),
        "artefact": {"source": f"model-{draw.whole(0, 99)}", "sha256": f"{draw.whole(0, 10**9):x}", "seed": draw.whole(0, 9)},
        "settings": {"temperature": draw.uniform(), "stop": {"seconds": draw.whole(1, 99), "ids": draw.whole(1, 9)}},
    }


def request(draw, **load):
    found = stages(draw, draw.whole(2, 7), **load)
    return {**what(draw), "stages": found, "seconds": sum(map(sum, found.values())) + draw.uniform(0.01, 0.2), "unexplained": 0.1}


def cases(draw):
    whole = []
    for decode in (0, 1, 4):
        found = stages(draw, decode, load=decode == 4)
        whole.append([what(draw), found, sum(map(sum, found.values())) + draw.uniform(0.1, 0.9)])
    yield "the sums of a record", "recorded", {"requests": [*whole, [{"threads": 1}, {}, draw.uniform(1, 2)]]}
    refused = []
    for decode, less in ((1, 0.3), (3, 0.5), (4, 2e-6), (5, 2e-7), (2, 0.0)):  # of the whole that it lacks
        found = stages(draw, decode)
        refused.append([what(draw), found, sum(map(sum, found.values())) - less])
    found = stages(draw, 2)
    found["sample"][0] = -0.01
    refused.append([what(draw), found, 20.0])
    yield "sums that do not hold", "recorded", {"requests": refused}
    for _ in range(4):
        one = request(draw)
        other = {**request(draw), **{k: v for k, v in one.items() if k not in ("stages", "seconds", "unexplained")}}
        yield "two records of one setting", "changed", {"one": one, "other": {**other, "dtype": draw.choice(("int8", "float16"))}}
        yield "fields within fields", "changed", {"one": request(draw), "other": request(draw)}
    for lacking in ("program", "artefact", "settings"):
        one, other = request(draw), request(draw)
        yield "a field that one lacks", "changed", {"one": {k: v for k, v in one.items() if k != lacking}, "other": other}
        yield "a field that one lacks", "changed", {"one": other, "other": {**one, "zoom": 3, "a.b": 1, lacking: None}}
    for _ in range(4):
        yield "the factors", "factors", {"one": request(draw), "other": request(draw)}
    for _ in range(2):
        one, other = request(draw, load=True), request(draw)
        other["stages"]["prefill"].append(draw.uniform(1, 2))
        yield "the factors with loading in one of them", "factors", {"one": one, "other": other}
        yield "the factors with loading in one of them", "factors", {"one": other, "other": one}
    for name in ("prefill", "decode"):
        one, other = request(draw), request(draw)
        one["stages"].pop(name)
        yield "the factors where one lacks a stage", "factors", {"one": one, "other": other}
        yield "the factors where one lacks a stage", "factors", {"one": other, "other": one}
        zero = {**other, "stages": {**other["stages"], name: [0.0]}}
        yield "the factors where one lacks a stage", "factors", {"one": zero, "other": other}


TOLERANCE = 1e-9

MUTANTS = [
    Mutant("what is unexplained is what the stages claim", '"unexplained": seconds - sum(claimed)', '"unexplained": sum(claimed)'),
    Mutant(
        "of a stage that ran several times only the first time counts",
        "for times in stages.values() for t in times]",
        "for times in stages.values() for t in times[:1]]",
    ),
    Mutant("a record whose stages claim more than the whole is written all the same", "sum(claimed) > seconds + 1e-6 or", ""),
    Mutant(
        "a sum of clock readings that is a millionth too large is refused; rounding alone does that", " + 1e-6 or", " - 1e-12 or"
    ),
    Mutant("stages that claim too much by some milliseconds are let through", " + 1e-6 or", " + 1e-2 or"),
    Mutant("a negative time is let through", " or min(claimed, default=0) < 0", ""),
    Mutant("the fields of what ran are missing from the record", "{**what, ", "{"),
    Mutant("what was given is changed", "    return {**what, ", "    what.update(stages=stages)\n    return {**what, "),
    Mutant("a dictionary within a record is compared whole; its fields are asked for", "if isinstance(inner, dict):", "if False:"),
    Mutant("a field within a field has no path, only its own name", 'f"{path}{name}."', '""'),
    Mutant(
        "the times, which differ every time, count as changes",
        "for k, v in record.items() if k not in TIMES}",
        "for k, v in record.items()}",
    ),
    Mutant(
        "a setting that happens to be called like a time is passed over within another field",
        "    for name, inner in record.items():\n",
        "    for name, inner in record.items():\n        if name in TIMES:\n            continue\n",
    ),
    Mutant("a field that the first record lacks is passed over", "sorted({*one, *other})", "sorted(one)"),
    Mutant("a field that the second record lacks is passed over", "sorted({*one, *other})", "sorted(other)"),
    Mutant("the changes are in the order of the record, not of their paths", "sorted({*one, *other})", "list({**other, **one})"),
    Mutant(
        "from and to are the wrong way round", "[[path, one.get(path), other.get(path)]", "[[path, other.get(path), one.get(path)]"
    ),
    Mutant("fields that are the same are listed, too", " if one.get(path) != other.get(path)]", "]"),
    Mutant(
        "the factor is upside down: the time of the first over that of the second",
        "other[name] / one[name]",
        "one[name] / other[name]",
    ),
    Mutant(
        "the factor of the decode step is that of all steps together",
        'statistics.median(stages.get("decode") or [0])',
        'sum(stages.get("decode", []))',
    ),
    Mutant("the factor of the decode step is that of means; one slow step moves it", "statistics.median", "statistics.mean"),
    Mutant("loading is within the request that is compared", '- sum(stages.get("load", []))', ""),
    Mutant(
        "a stage that is missing has a factor of 0 or an error, not None",
        "if one[name] and other[name] else None",
        "if one[name] else None",
    ),
]

RUBRIC = """
1 point: the list of changes with exactly one field, and an expectation with its reason, dated before the run.
1 point: factors of prefill and decode step beside the expectation, whether they bear it out or not.
1 point: no cause is claimed for a factor that was measured once; says how often it would have to be measured.
"""
