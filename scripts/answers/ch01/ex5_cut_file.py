"""A file of records that survives a cut."""

import json
import os


def append(path, record):
    line = json.dumps(record, allow_nan=False).encode("ascii") + b"\n"
    with open(path, "a+b", buffering=0) as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)


def refuse(word):
    raise ValueError(f"{word} is no JSON")


def read(path):
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    records, others = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"), parse_constant=refuse)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            others.append(number)
    return records, others
