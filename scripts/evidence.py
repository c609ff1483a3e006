"""Run the experiments and rewrite `research/chNN/results.json`, then all that shows them, as `make refresh` does.

    make evidence                                   # everything
    make evidence CHAPTER=ch04                      # one chapter
    make evidence ONLY=ch04.mask                    # one experiment; several with commas
    make evidence MODEL=openai-community/gpt2       # the experiments that can, on another model, beside the others
    make evidence-list                              # what there is
    make verify                                     # run, compare with the records, write nothing; timings are left out
    make verify LONG=1                              # only what takes too long for the tests

The experiments are those of the chapters' own files. A chapter's file of records is written whole after each of them, so that an
interrupt loses one. What comes out as before keeps its old record, with its date and commit, or its versions.
"""

import contextlib
import datetime
import subprocess
import sys
import time
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import filelock
import torch
from tqdm import tqdm

from examples.ch02.model import load
from examples.lab.environment import machine, sha256, smollm2_file, versions
from examples.lab.script import BadInput, Parser, command, table
from examples.lab.timing import warn_if_busy
from scripts.experiments import LONG, ROOT, claims, experiments, lasting
from scripts.records import DATED, check_record, key_of, read_results, results_path, write_results
from scripts.refresh import refresh, tell

UNKNOWN = "unknown"  # a record's commit, where git cannot say it


def commit():
    """The commit that the working tree stands on, with `+` when tracked code differs from it.

    UNKNOWN without git, and where this is no repository of its own: an unpacked archive, perhaps within another repository.
    """
    top, head = _git("rev-parse", "--show-toplevel"), _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "-uno", "--", "examples", "scripts", "requirements.txt")
    if top is None or head is None or changed is None or Path(top).resolve() != ROOT:
        return UNKNOWN
    return head + ("+" if changed else "")


def _git(*words):
    """What git says in this repository, or None where it is not there or fails."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:  # there is no git
        return None
    return None if done.returncode else done.stdout.strip()


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
    values = experiment.values(model)
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
    else:
        record |= {"versions": versions()}
    check_record(record, experiment.id)
    return record


def digest(model):
    """The sha256 of the one file that holds the weights; None where there is none, or more than one."""
    if model is None:
        return None
    path = model.path and (model.path / "model.safetensors" if model.path.is_dir() else model.path)
    return sha256(path) if path and path.is_file() else None


MADE = ("date", "commit", "versions")  # when and with what a record was made, which may differ though it found the same


def merge(old, new):
    """`new`, or `old` when it found the same: a record that comes out as before keeps its date, its commit and its versions."""
    found = [{f: v for f, v in record.items() if f not in MADE} for record in (old or {}, new)]
    return old if found[0] == found[1] else new


def verdict(old, new):
    """What `--check` says of a record: "same", "changed", "new", or "another machine" of an observation made on one.

    The worst value of a tolerance is its machine's own; what has to stay is that it is within the bound.
    """
    if old is None:
        return "new"

    def lasting(record):
        values = {k: v for k, v in record["values"].items() if record["kind"] != "tolerance" or k != "worst"}
        return {f: v for f, v in record.items() if f not in (*MADE, "machine")} | {"values": values}

    if lasting(old) == lasting(new):
        return "same"
    return "another machine" if old.get("machine") != new.get("machine") else "changed"


@contextlib.contextmanager
def only_one(root):
    """Raise BadInput when another process is within this block for the same repository."""
    folder = Path(root) / ".cache"
    folder.mkdir(exist_ok=True)
    lock = filelock.FileLock(folder / "evidence.lock", timeout=0)
    try:
        with lock:
            yield
    except filelock.Timeout:
        raise BadInput("another make evidence is running here; wait for it to end") from None


def choose(chapter=None, only=None, model=None, among=None):
    """The experiments that the options name, in their order; raises BadInput for a name that is not there."""
    among = experiments() if among is None else among
    chosen = list(among)
    if chapter:
        chosen = [e for e in chosen if e.chapter == chapter]
        if not chosen:
            raise BadInput(f"no experiments of chapter {chapter!r}; there are {', '.join(sorted({e.chapter for e in among}))}")
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


def update(chosen, model=None, root=ROOT, write=True):
    """Run `chosen`; after each write the records of its chapter: [(record, "new" | "changed" | "same", seconds)].

    write: False leaves the files as they are, and says of each record what `verdict` does.
    """
    old = {chapter: read_results(results_path(root, chapter)) for chapter in sorted({e.chapter for e in chosen})}
    known = {e.id for e in experiments()}
    models, rows = Models(), []
    bar = tqdm(chosen, unit="experiment", file=sys.stderr, disable=not sys.stderr.isatty())
    for experiment in bar:
        bar.set_postfix_str(experiment.id)
        start = time.perf_counter()
        record = run(experiment, models, model)
        warn_if_busy()
        records, key = old[experiment.chapter], key_of(record)
        before = records.get(key)
        kept = merge(before, record) if write else record
        change = verdict(before, record) if not write else "new" if before is None else "same" if kept == before else "changed"
        rows.append((kept, change, time.perf_counter() - start))
        if write:
            records[key] = kept
            current = {key: r for key, r in records.items() if r["id"] in known}
            write_results(results_path(root, experiment.chapter), experiment.chapter, current)
    return rows


def options():
    """The script's argument parser."""
    parser = Parser(prog="evidence.py", description=__doc__)
    parser.add_argument("--chapter", default=None, metavar="chNN", help="only this chapter")
    parser.add_argument("--only", default=None, metavar="ID,ID", help="only these experiments")
    parser.add_argument("--model", default=None, metavar="SOURCE", help="another model than each experiment's own")
    parser.add_argument("--list", action="store_true", help="list the experiments and run none")
    parser.add_argument("--check", action="store_true", help="compare with the records and write nothing; leaves timings out")
    about = f"only exact and tolerance ones of {LONG} seconds or more, which the tests leave out"
    parser.add_argument("--long", action="store_true", help=about)
    return parser


@command
def main(argv=None):
    """Run experiments, write records and all that shows them, print what changed."""
    args = options().parse_args(argv)
    if args.list:
        rows = [[e.id, e.kind, e.model, "yes" if e.movable else "no", f"{e.seconds} s", e.claim] for e in experiments()]
        print(table(["id", "kind", "model", "other models", "about", "claim"], rows))
        return
    chosen = choose(args.chapter, args.only and args.only.split(","), args.model)
    if args.long:
        chosen = lasting(True, chosen)
    if args.check:
        chosen = [e for e in chosen if e.kind != "timing"]
    if not chosen:
        raise BadInput(f"none of these is left: --check leaves timings out, and --long what takes less than {LONG} s or may change")
    if any((args.model or e.model) == "smollm2" for e in chosen):
        smollm2_file()  # raises where its package is not installed: now, not after minutes of other experiments
    if not args.check and any(e.kind in DATED for e in chosen) and commit() == UNKNOWN:
        print(f"git does not know this folder, or is not installed: new dated records will say commit {UNKNOWN}", file=sys.stderr)
    if args.check:
        rows, problems = update(chosen, args.model, ROOT, write=False), []
    else:
        claims(ROOT)  # raises for one that is damaged: now, not after minutes of experiments
        with only_one(ROOT):
            rows = update(chosen, args.model, ROOT)
            problems = refresh(ROOT)
    print(table(["id", "kind", "", "seconds"], [[key_of(r), r["kind"], change, f"{s:.1f}"] for r, change, s in rows]))
    broken = [key_of(r) for r, _, _ in rows if r["kind"] == "tolerance" and not r["values"]["held"]]
    if broken:
        raise BadInput(f"outside their bounds: {', '.join(broken)}; the claim does not hold, so mend the code or the claim")
    changed = [key_of(r) for r, change, _ in rows if args.check and change in ("new", "changed")]
    if changed:
        raise BadInput(f"not as recorded: {', '.join(changed)}; run make evidence, and look at what changed")
    tell(problems)


if __name__ == "__main__":
    sys.exit(main())
