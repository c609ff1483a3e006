r"""One thing changed.

Write a record's sums, and a comparison of two records. Record one request with `--model random:gpt2` and a second with
`--dtype bfloat16` or `--threads 2`, then look at both with `request.py show`. *Hand in:* the code, what changed, the factors for
prefill and decode step, and your expectation, written down before the run. *A right answer shows* that exactly one field differs,
and explains no factor that was measured only once.
"""

EXERCISE = {"id": "ch01.3", "difficulty": 2, "minutes": 50, "points": {"code": 6, "paragraph": 3}}


def request_record(what: dict, stages: dict[str, list[float]], seconds: float) -> dict:
    """The record of a request that took `seconds`: all fields of `what`, which stays as it is, and three more.

    "stages" and "seconds" as given, and "unexplained", the seconds that no stage claims. Raises ValueError where the stages claim
    more than 1e-6 s beyond the whole, or where a time of a stage is negative.
    """
    raise NotImplementedError


def changed(one: dict, other: dict) -> list[list]:
    """[path, value in `one`, value in `other`] of each field that differs, in the order of the paths as texts.

    A dictionary within a record has fields of its own, whose path has a dot: "artefact.sha256". A field that one of the two lacks
    is None there; where one holds a dictionary and the other none, each of its fields is compared with None. "stages", "seconds"
    and "unexplained", which differ every time, are passed over; only at the top, not within another field.
    """
    raise NotImplementedError


def factors(one: dict, other: dict) -> dict:
    """{"prefill", "decode step", "request"}: the time in `other` over that in `one`; below 1 the other was faster.

    Prefill: all times of that stage. Decode step: the median of the stage "decode". Request: the seconds less the stage "load", if
    there is one. A factor is None where one of the records has no such stage, or no time but zero.
    """
    raise NotImplementedError
