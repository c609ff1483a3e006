"""Run the experiments and rewrite `research/chNN/results.json`, the figures, the manuscripts' markers and the register.

    make evidence                                   # everything
    make evidence CHAPTER=ch04                      # one chapter
    make evidence ONLY=ch04.mask                    # one experiment; several with commas
    make evidence MODEL=openai-community/gpt2       # the experiments that can, on another model, beside the others
    make evidence-list                              # what there is

A record says what was claimed, by which kind of evidence, on which model and how, what was found, and what that does not show.
`exact` and `tolerance` records are the same on any machine with the pinned versions; `observation` and `timing` carry date,
commit and machine, and an observation that comes out as before keeps its old record. Nothing is written before all is run.
"""

import contextlib
import datetime
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from tqdm import tqdm

from examples.ch02.hub import sha256
from examples.ch02.model import load, smollm2_file
from examples.lab.script import BadInput, Parser, command, dump_json, read_json, table, write_whole
from scripts.registry import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("exact", "tolerance", "observation", "timing")
DATED = ("observation", "timing")
FIELDS = ("id", "claim", "kind", "command", "model", "model_sha256", "seed", "dtype", "threads", "values", "limits")
DATED_FIELDS = ("date", "commit", "machine")


def results_path(root, chapter):
    """Where a chapter's records are kept."""
    return Path(root) / "research" / chapter / "results.json"


# ---------------------------------------------------------------------------------------------------------------- records


def check_record(record, where):
    """Raise BadInput unless `record` is a whole result record; `where` names it in the error."""
    problem = None
    if not isinstance(record, dict):
        problem = "is not an object"
    elif record.get("kind") not in KINDS:
        problem = f"has kind {record.get('kind')!r}, not one of {', '.join(KINDS)}"
    else:
        wanted = FIELDS + (DATED_FIELDS if record["kind"] in DATED else ())
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
    own = next((e.model for e in EXPERIMENTS if e.id == record["id"]), None)
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


def plain(value):
    """`value` with numpy and torch scalars as plain numbers and tuples as lists; raises TypeError for what is not JSON."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if hasattr(value, "item"):  # a scalar of numpy or torch
        return plain(value.item())
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{value} is not a result; record null and say why in `limits`")
        return value
    raise TypeError(f"{type(value).__name__} cannot be recorded")


def machine():
    """The machine that a measurement was made on."""
    import transformers

    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        name = found[1] if found else name
    versions = {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}
    return {"processor": name, "cores": os.cpu_count(), **versions}


def commit():
    """The commit that the working tree stands on, with `+` when tracked code differs from it; "unknown" outside git."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return "unknown"
    changed = subprocess.run(
        ["git", "status", "--porcelain", "-uno", "--", "examples", "scripts", "requirements.txt"], cwd=ROOT, capture_output=True
    )
    return done.stdout.strip() + ("+" if changed.stdout else "")


# ------------------------------------------------------------------------------------------------------------------ running


class Models:
    """Loaded models by source; only the newest is kept, since one may take gigabytes."""

    def __init__(self):
        self.source, self.model = None, None

    def get(self, source):
        if source != self.source:
            self.model = None
            self.source, self.model = source, load(source)
        return self.model


def run(experiment, models, source=None):
    """The record of `experiment` on its own model, or on `source`."""
    source = source or experiment.model
    torch.set_num_threads(experiment.threads)
    model = models.get(source) if experiment.loads else None
    values = plain(experiment.measure(model))
    more = "" if source == experiment.model else f" MODEL={source}"
    record = {
        "id": experiment.id,
        "claim": experiment.claim,
        "kind": experiment.kind,
        "command": f"make evidence ONLY={experiment.id}{more}",
        "model": source,
        "model_sha256": digest(model),
        "seed": experiment.seed,
        "dtype": experiment.dtype,
        "threads": experiment.threads,
        "values": values,
        "limits": experiment.limits,
    }
    if experiment.kind in DATED:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        record |= {"date": today, "commit": commit(), "machine": machine()}
    check_record(record, experiment.id)
    return record


def digest(model):
    """The sha256 of the one file that holds the weights; None where there is none, or more than one."""
    if model is None:
        return None
    path = model.path and (model.path / "model.safetensors" if model.path.is_dir() else model.path)
    return sha256(path) if path and path.is_file() else None


def merge(old, new):
    """`new`, or `old` when it found the same: an observation that comes out as before keeps its date and commit."""
    if old is None or new["kind"] not in DATED:
        return new
    same = {f: v for f, v in new.items() if f not in ("date", "commit")} == {
        f: v for f, v in old.items() if f not in ("date", "commit")
    }
    return old if same else new


@contextlib.contextmanager
def only_one(root):
    """Raise BadInput when another process is within this block for the same repository."""
    import fcntl

    path = Path(root) / ".cache" / "evidence.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput("another make evidence is running here; wait for it to end") from None
        yield


def choose(chapter=None, only=None, model=None, experiments=EXPERIMENTS):
    """The experiments that the options name, in the registry's order; raises BadInput for a name that is not there."""
    chosen = list(experiments)
    if chapter:
        chosen = [e for e in chosen if e.chapter == chapter]
        if not chosen:
            raise BadInput(
                f"no experiments of chapter {chapter!r}; there are {', '.join(sorted({e.chapter for e in experiments}))}"
            )
    if only:
        unknown = sorted(set(only) - {e.id for e in chosen})
        if unknown:
            raise BadInput(f"no experiment {unknown[0]!r}; make evidence-list lists them")
        chosen = [e for e in chosen if e.id in only]
    if model:
        fixed = [e.id for e in chosen if not e.movable]
        chosen = [e for e in chosen if e.movable]
        if not chosen:
            raise BadInput(f"{', '.join(fixed)} can only run on its own model; leave MODEL out")
    return chosen


def update(chosen, model=None, root=ROOT):
    """Run `chosen`, then write the results of their chapters: [(record, "new" | "changed" | "same", seconds)]."""
    chapters = sorted({e.chapter for e in chosen})
    old = {chapter: read_results(results_path(root, chapter)) for chapter in chapters}
    new = {chapter: dict(records) for chapter, records in old.items()}
    models, rows = Models(), []
    bar = tqdm(chosen, unit="experiment", file=sys.stderr, disable=not sys.stderr.isatty())
    for experiment in bar:
        bar.set_postfix_str(experiment.id)
        start = time.perf_counter()
        record = run(experiment, models, model)
        key, before = key_of(record), old[experiment.chapter].get(key_of(record))
        new[experiment.chapter][key] = kept = merge(before, record)
        rows.append((kept, "new" if before is None else "same" if kept == before else "changed", time.perf_counter() - start))
    known = {e.id for e in EXPERIMENTS}
    for chapter in chapters:
        current = {key: record for key, record in new[chapter].items() if record["id"] in known}
        write_results(results_path(root, chapter), chapter, current)
    return rows


def options():
    """The script's argument parser."""
    parser = Parser(prog="evidence.py", description=__doc__.splitlines()[0])
    parser.add_argument("--chapter", default=None, metavar="chNN", help="only this chapter")
    parser.add_argument("--only", default=None, metavar="ID,ID", help="only these experiments")
    parser.add_argument("--model", default=None, metavar="SOURCE", help="another model than each experiment's own")
    parser.add_argument("--list", action="store_true", help="list the experiments and run none")
    return parser


@command
def main(argv=None):
    """Run experiments, write records, figures, markers and register, print what changed."""
    args = options().parse_args(argv)
    if args.list:
        rows = [[e.id, e.kind, e.model, "yes" if e.movable else "no", f"{e.seconds} s", e.claim] for e in EXPERIMENTS]
        print(table(["id", "kind", "model", "other models", "about", "claim"], rows))
        return
    from scripts import figures, manuscript

    chosen = choose(args.chapter, args.only and args.only.split(","), args.model)
    if any((args.model or e.model) == "smollm2" for e in chosen):
        smollm2_file()  # raises where its package is not installed: now, not after minutes of other experiments
    with only_one(ROOT):
        rows = update(chosen, args.model)
        figures.draw(ROOT)
        manuscript.refresh(ROOT)
    print(table(["id", "kind", "", "seconds"], [[key_of(r), r["kind"], change, f"{s:.1f}"] for r, change, s in rows]))
    broken = [key_of(r) for r, _, _ in rows if r["kind"] == "tolerance" and not r["values"]["held"]]
    if broken:
        raise BadInput(f"outside their bounds: {', '.join(broken)}; the claim does not hold, so mend the code or the claim")


if __name__ == "__main__":
    sys.exit(main())
