"""The files of records, `research/chNN/results.json`: read, checked and written whole.

A record says what was claimed, by which kind of evidence, on which model and how, what was found, and what that does not show.
`exact` and `tolerance` records are the same on any machine with the pinned versions, and name those that they were made with;
`observation` and `timing` carry date, commit and machine.
"""

from pathlib import Path

from examples.lab.experiment import KINDS
from examples.lab.script import BadInput, dump_json, read_json, write_whole
from scripts.experiments import experiments

DATED = ("observation", "timing")
FIELDS = ("id", "claim", "kind", "command", "model", "model_sha256", "seed", "dtype", "threads", "values", "limits")
DATED_FIELDS = ("date", "commit", "machine")  # a machine has its versions
LASTING_FIELDS = ("versions",)


def fields(kind):
    """The fields of a record of that kind, in their order."""
    return FIELDS + (DATED_FIELDS if kind in DATED else LASTING_FIELDS)


def results_path(root, chapter):
    """Where a chapter's records are kept."""
    return Path(root) / "research" / chapter / "results.json"


def check_record(record, where):
    """Raise BadInput unless `record` is a whole result record; `where` names it in the error."""
    problem = None
    if not isinstance(record, dict):
        problem = "is not an object"
    elif record.get("kind") not in KINDS:
        problem = f"has kind {record.get('kind')!r}, not one of {', '.join(KINDS)}"
    else:
        wanted = fields(record["kind"])
        absent, extra = [f for f in wanted if f not in record], [f for f in record if f not in wanted]
        if absent or extra:
            problem = f"lacks {', '.join(absent)}" if absent else f"has the unknown field {', '.join(extra)}"
        elif not isinstance(record["values"], dict) or not record["values"]:
            problem = "has no values"
        elif not all(isinstance(record[f], str) and record[f] for f in ("id", "claim", "command", "model", "limits")):
            problem = "has an id, claim, command, model or limits that is not text"
        elif record["kind"] == "tolerance" and not {"bound", "worst", "held"} <= record["values"].keys():
            problem = "is a tolerance without bound, worst and held"
    if problem:
        raise BadInput(f"{where}: record {record.get('id') if isinstance(record, dict) else record!r} {problem}; run make evidence")


def key_of(record):
    """What a record is found by: `id`, or `id@model` for another model than the experiment's own."""
    own = next((e.model for e in experiments() if e.id == record["id"]), None)
    return record["id"] if record["model"] == own else f"{record['id']}@{record['model']}"


def read_results(path):
    """{key: record} of a results file, {} when there is none; raises BadInput for one that is damaged."""
    path = Path(path)
    if not path.exists():
        return {}
    value = read_json(path)
    if set(value) != {"chapter", "results"} or not isinstance(value["results"], list):
        raise BadInput(f"{path} is not a results file of a chapter; take it back from version control")
    found = {}
    for record in value["results"]:
        check_record(record, path)
        if key_of(record) in found:
            raise BadInput(f"{path} holds {key_of(record)} twice; take it back from version control")
        found[key_of(record)] = record
    return found


def write_results(path, chapter, records):
    """Write {key: record} in the order of the keys, whole or not at all."""
    for record in records.values():
        check_record(record, path)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, dump_json({"chapter": chapter, "results": [records[key] for key in sorted(records)]}))


def read_all(root):
    """{key: record} of all chapters under `root`."""
    folders = sorted((Path(root) / "research").glob("ch[0-9][0-9]"))
    return {key: record for folder in folders for key, record in read_results(results_path(root, folder.name)).items()}
