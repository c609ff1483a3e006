"""Checks of ch01.5: a file of records, whole, cut, and with other things in it."""

import json

from scripts.grading.answers import Mutant

DRIVER = '''
import json
import os
import tempfile


def done(module, steps):
    """What `read` says after each step, and the file's text at the end: ["append", record], ["nan", ""], ["cut", bytes less] or
    ["add", text in Latin-1]."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records.jsonl")
        for what, how in steps:
            if what == "append":
                module.append(path, how)
            elif what == "nan":
                try:
                    module.append(path, {"tokens": 1, "seconds": float("nan")})
                    found.append("written")
                except ValueError:
                    found.append("refused")
            elif what == "cut":
                os.truncate(path, os.path.getsize(path) - how)
            else:
                with open(path, "ab") as file:
                    file.write(how.encode("latin-1"))
            records, others = module.read(path)
            found.append([[json.dumps(r, sort_keys=True) for r in records], list(others)])
        with open(path, "rb") as file:
            lines = file.read().split(b"\\n")
    kinds = ["" if not line.strip() else "ascii" if line.isascii() else "other" for line in lines]
    return [found, kinds]
'''


def record(draw):
    return {
        "at": draw.whole(0, 10**6),
        "model": draw.choice(("embedded", "Ärger", "模型", "two\nlines")),
        "stages": {"prefill": [draw.uniform()], "decode": [draw.uniform() for _ in range(draw.whole(1, 4))]},
    }


def cases(draw):
    three = [["append", record(draw)] for _ in range(3)]
    yield "records one after another", "done", {"steps": three}
    for _ in range(2):
        steps = [*three, ["cut", draw.whole(2, 30)], ["append", record(draw)], ["append", record(draw)]]
        yield "a line that was cut", "done", {"steps": steps}
    last = [["append", {**record(draw), "model": "embedded"}] for _ in range(3)]
    size = len(json.dumps(last[2][1])) + 1
    for less in (1, size - 1, size, size + draw.whole(3, 20)):
        yield "cuts at the edges of a line", "done", {"steps": [*last, ["cut", less], ["append", record(draw)]]}
    for text in ("\n\n", "   \n", "\n\n17\n", "[1, 2]\n", "17\n", '"text"\n', "null\n", '{"a": 1}', '{"a": 1} {"b": 2}\n'):
        yield "lines that hold no record", "done", {"steps": [["append", record(draw)], ["add", text], ["append", record(draw)]]}
    for text in ('{"seconds": NaN}\n', '{"seconds": -Infinity}\n', "{'a': 1}\n"):
        yield (
            "lines that are no strict JSON",
            "done",
            {"steps": [["append", record(draw)], ["add", text], ["append", record(draw)]]},
        )
    for text in ("\xff\xfe{}\n", '{"a": "\xe9"}\n'):
        yield "a line that is not UTF-8", "done", {"steps": [["append", record(draw)], ["add", text], ["append", record(draw)]]}
    yield "a record with NaN", "done", {"steps": [["append", record(draw)], ["nan", ""], ["append", record(draw)]]}
    yield "a record with NaN", "done", {"steps": [["append", record(draw)], ["cut", 5], ["nan", ""], ["append", record(draw)]]}


TOLERANCE = 1e-9

MUTANTS = [
    Mutant(
        "behind a line that was cut the record goes on in the same line, and is lost with it",
        'if file.read(1) != b"\\n":',
        "if False:",
    ),
    Mutant("every record starts with a newline, so that there are empty lines", 'if file.read(1) != b"\\n":', "if True:"),
    Mutant("the file is written anew, and what was in it is lost", '"a+b"', '"w+b"'),
    Mutant("the newline at the end of a record is missing", '.encode("ascii") + b"\\n"', '.encode("ascii")'),
    Mutant("NaN is written, which is no JSON", "allow_nan=False", "allow_nan=True"),
    Mutant(
        "a record is written piece by piece, and one with NaN leaves half a line behind",
        "record, allow_nan=False",
        "record",
        (
            (
                "file.write(line)",
                "file.write(line[: 9 if b'NaN' in line else None])\n        if b'NaN' in line:\n            refuse('NaN')",
            ),
        ),
    ),
    Mutant(
        "the JSON is not ASCII",
        'json.dumps(record, allow_nan=False).encode("ascii")',
        'json.dumps(record, allow_nan=False, ensure_ascii=False).encode("utf-8")',
    ),
    Mutant(
        "a record is written over several lines",
        "json.dumps(record, allow_nan=False)",
        "json.dumps(record, allow_nan=False, indent=1)",
    ),
    Mutant("reading takes NaN for JSON", ", parse_constant=refuse)", ")"),
    Mutant("what is no object counts as a record", "if isinstance(record, dict):", "if record is not None:"),
    Mutant("lines are counted from 0", "start=1", "start=0"),
    Mutant(
        "empty lines are not counted, and the numbers behind them are too low",
        'lines = file.read().split(b"\\n")',
        'lines = [x for x in file.read().split(b"\\n") if x.strip()]',
    ),
    Mutant(
        "empty lines are listed as lines that hold no record",
        "        if not line.strip():\n            continue\n",
        "        if not line and number == len(lines):\n            continue\n",
    ),
    Mutant(
        "reading stops at the first line that is broken; what stands behind it is whole",
        "            record = None\n",
        "            return records, [*others, number]\n",
    ),
    Mutant("the last line is left out, as if it were always cut", "enumerate(lines, start=1)", "enumerate(lines[:-2], start=1)"),
    Mutant(
        "a line that is not UTF-8 ends the program",
        "        except ValueError:",
        "        except json.JSONDecodeError:",
        (
            (
                'refuse(word):\n    raise ValueError(f"{word} is no JSON")',
                "refuse(word):\n    raise json.JSONDecodeError(word, word, 0)",
            ),
        ),
    ),
    Mutant(
        "what is not UTF-8 is passed over within a line, and the rest is taken for a record",
        'line.decode("utf-8")',
        'line.decode("utf-8", "ignore")',
    ),
]

RUBRIC = """
1 point: what read returns after each step: the second and the third are lost with the cut, the first and the fourth are read.
1 point: the fourth starts a line of its own, since it would else stand in the line that was cut, and be lost with it.
"""
