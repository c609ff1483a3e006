"""The record of one request: what ran, on how many tokens, and where the time went; a line of strict JSON for each.

A record says which artefact ran (its source, the sha256 of its weights and of its config), with which versions, on which machine,
with how many threads and in which dtype. It counts the tokens of the prompt and of the output, and has the seconds of each stage.
What the whole request took and no stage claims is `unexplained`, so that the stages and it make up the whole:

    load         the model and its tokenizer, from their files
    tokenise     the prompt's text to ids
    prefill      the forward pass over the prompt
    decode       each further forward pass, one for each output token but the first
    sample       choosing a token from the scores of a pass
    detokenise   the new ids to text, and showing it

A request whose cost was predicted before it ran has that beside it: `predicted`, which chapter 11 makes and nothing here needs.
"""

import contextlib
import datetime
import fcntl
import hashlib
import json
import math
import os
import statistics
import time
from pathlib import Path

from examples.lab.environment import machine, sha256
from examples.lab.script import BadInput, parse_json

FORMAT = 1  # of the records written here; of any other, what is known by its name is read
STAGES = ("load", "tokenise", "prefill", "decode", "sample", "detokenise")
PASSES = ("prefill", "decode")
CLOCK = 1e-6  # seconds that sums of clock readings may be off by
WEIGHTS = (".safetensors", ".gguf")


class Stopwatch:
    """The seconds of a request from now on, stage by stage. A stage may run many times; no two run at once."""

    def __init__(self, timer=time.perf_counter):
        self.timer, self.stages, self.running = timer, {}, None
        self.started = timer()

    def begin(self, stage):
        if self.running is not None:
            raise RuntimeError(f"stage {stage} begins within {self.running[0]}, and its time would be counted twice")
        self.running = stage, self.timer()

    def end(self):
        now = self.timer()
        stage, began = self.running
        self.stages.setdefault(stage, []).append(now - began)
        self.running = None

    @contextlib.contextmanager
    def stage(self, name):
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def seconds(self):
        """What the request has taken so far."""
        return self.timer() - self.started


# -------------------------------------------------------------------------------------------------------------- what ran


def artefact(source, files=(), config=None, commit=None, seed=None):
    """What a request ran, as plain values; reads the files whole for their digests, so call it when no clock runs.

    files: the paths that the model was read from. config: the fields of a config where it is in no file. seed: of random weights.
    sha256 is that of the weights' one file; of several, of the lines "digest  name" of them all.
    """
    rows = [{"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)} for path in map(Path, files)]
    weights = [row for row in rows if row["name"].endswith(WEIGHTS)]
    lines = "".join(f"{row['sha256']}  {row['name']}\n" for row in weights)
    config_sha256 = next((row["sha256"] for row in rows if row["name"] == "config.json"), None)  # of a GGUF it is in the one file
    if config is not None and config_sha256 is None:
        config_sha256 = _digest(json.dumps(config, sort_keys=True))
    return {
        "source": str(source),
        "commit": commit,
        "seed": seed,
        "sha256": weights[0]["sha256"] if len(weights) == 1 else _digest(lines) if weights else None,
        "config_sha256": config_sha256,
        "files": rows,
    }


def _digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def request_record(
    program, prompt_tokens, output_tokens, stages, seconds, artefact, threads, dtype, device="cpu", settings=None, predicted=None
):
    """The record of a request of `seconds` whose `stages`, {name: [seconds, ...]}, a stopwatch has.

    program: what ran the passes. settings: what the choice of tokens depended on, {name: value}. predicted: what was said of the
    passes before they ran, {flops, bytes, seconds, prefill_s, decode_s, limit, rates, ...}, of all passes of a stage together; a
    record without it lacks the field.
    Raises ValueError where the stages claim more than the whole: one of them has been counted twice.
    """
    versions = machine()
    record = {
        "format": FORMAT,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "program": program,
        "artefact": artefact,
        "machine": {name: versions.pop(name) for name in ("processor", "cores")},
        "versions": versions,
        "threads": threads,
        "dtype": str(dtype).removeprefix("torch."),
        "device": str(device),
        "settings": settings or {},
        "tokens": {"prompt": prompt_tokens, "output": output_tokens},
        **({} if predicted is None else {"predicted": predicted}),
        "stages": stages,
        "unexplained": seconds - math.fsum(math.fsum(times) for times in stages.values()),
        "seconds": seconds,
    }
    problem = sums(record)
    if problem:
        raise ValueError(problem)
    return record


def sums(record):
    """What is wrong with the sums of a record, or None: its stages and `unexplained` make its seconds, and none is below zero."""
    whole, rest, claimed = seconds(record, "seconds"), seconds(record, "unexplained"), [0.0]
    for name in _stages(record):
        claimed += stage(record, name) or []
    if whole is None or rest is None:
        return None  # an older record may have neither
    total = math.fsum(claimed)
    if total > whole + CLOCK or rest < -CLOCK:
        return f"the stages claim {total:.6f} s of {whole:.6f} s, so one of them is counted twice"
    if abs(total + rest - whole) > CLOCK:
        return f"the stages and what is unexplained make {total + rest:.6f} s, and the whole is {whole:.6f} s"
    if min(claimed) < 0:
        return f"a stage has {min(claimed):.6f} s, less than none"
    return None


# -------------------------------------------------------------------------------------------------- files of records


def check_file(path):
    """The path as given; raises BadInput, before any work, where no record can be appended."""
    if path is not None:
        if not path.parent.is_dir():
            raise BadInput(f"{path.parent} is not a folder; make it first")
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is not a file; choose another place for the records")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadInput(f"{path} cannot be written; choose another place for the records")
    return path


def append(path, record):
    """Add `record` to the file as one line, whole or not at all, whoever else appends to it.

    One write in append mode, under a lock that the system takes back from a process that dies. Behind a line that is cut, which
    some crash may have left, it starts a line of its own. Raises ValueError for NaN and infinity, which are no JSON.
    """
    line = json.dumps(record, allow_nan=False).encode("ascii") + b"\n"
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(file, line) < len(line):  # the disk is full
            os.ftruncate(file, size)
            raise BadInput(f"{path}: there is no room for a record of {len(line):,} bytes; make some")
    finally:
        os.close(file)


def read(path):
    """([(number of the line, record), ...], [what is wrong with the rest, a line each]) of a file of records.

    A record of another format stays as it stands: its unknown fields are kept, and a field that it lacks reads as None.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; write it with --record {path}") from None
    found, problems = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line.decode("utf-8"))
        except ValueError:
            cut = number == len(lines)  # no line's end behind it
            what = f"is cut after {len(line):,} bytes" if cut else "is no strict JSON"
            problems.append(f"line {number} {what}, and is left out")
            continue
        if not isinstance(record, dict):
            problems.append(f"line {number} holds no record, and is left out")
            continue
        found.append((number, record))
        wrong = sums(record)
        if wrong:
            problems.append(f"line {number}: {wrong}")
    return found, problems


# -------------------------------------------------------------------------------------------------- what a record says


def field(record, path):
    """The value at a path such as "artefact.sha256"; None where the record does not have it."""
    value = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _number(value):
    """`value` as a float where it is a finite number, else None."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def seconds(record, path):
    """The number at `path`, or None."""
    return _number(field(record, path))


def _stages(record):
    stages = field(record, "stages")
    return stages if isinstance(stages, dict) else {}


def stage(record, name):
    """The seconds of each time that a stage ran, a list; None where the record does not say."""
    times = _stages(record).get(name)
    times = [_number(t) for t in (times if isinstance(times, list) else [times])]
    return None if not times or None in times else times


def summary(record):
    """What a row about a record shows, in plain values; None for what the record does not say.

    request_ms: the whole but for loading, which a program that serves many requests does once. Shares are of that. predicted: as
    `predictions` has it.
    """
    load, whole, rest = stage(record, "load"), seconds(record, "seconds"), seconds(record, "unexplained")
    if load is None and record.get("format") == FORMAT and "load" not in _stages(record):
        load = [0.0]  # an earlier request of the process had loaded the model
    passes = [t for name in PASSES for t in stage(record, name) or []]
    prefill, decode = stage(record, "prefill"), stage(record, "decode")
    request = None if whole is None else whole - math.fsum(load or [])

    def percent(part):
        return 100 * part / request if part is not None and request else None

    return {
        **{name: field(record, name) for name in ("format", "at", "program", "threads", "dtype")},
        "model": field(record, "artefact.source"),
        "sha256": field(record, "artefact.sha256"),
        "prompt_tokens": field(record, "tokens.prompt"),
        "output_tokens": field(record, "tokens.output"),
        "load_ms": None if load is None else 1e3 * math.fsum(load),
        "prefill_ms": None if prefill is None else 1e3 * math.fsum(prefill),
        "decode_step_ms": None if decode is None else 1e3 * statistics.median(decode),
        "request_ms": None if request is None else 1e3 * request,
        "passes_percent": percent(math.fsum(passes)) if passes else None,
        "unexplained_percent": percent(rest),
        "predicted": predictions(record),
    }


def predictions(record):
    """What was predicted of the passes of each stage, what they took, and the second over the first; None where nothing was.

    Milliseconds; within it None for what the record does not say, of a stage that did not run say.
    """
    found = {"limit": field(record, "predicted.limit")}
    for name in PASSES:
        said, times = seconds(record, f"predicted.{name}_s"), stage(record, name)
        took = None if times is None else math.fsum(times)
        found |= {f"{name}_said_ms": None if said is None else 1e3 * said, f"{name}_took_ms": None if took is None else 1e3 * took}
        found[f"{name}_ratio"] = took / said if took is not None and said else None
    return None if field(record, "predicted") is None else found


COMPARED = {  # what may differ between two runs: {its name for a person: where it stands}
    **{"program": "program", "model": "artefact.source", "commit": "artefact.commit", "weights' seed": "artefact.seed"},
    **{"weights": "artefact.sha256", "config": "artefact.config_sha256", "python": "versions.python", "torch": "versions.torch"},
    **{"transformers": "versions.transformers", "processor": "machine.processor", "cores": "machine.cores"},
    **{"device": "device", "threads": "threads", "dtype": "dtype"},
    **{"prompt tokens": "tokens.prompt", "output tokens": "tokens.output"},
}
RATIOS = {"load": "load_ms", "prefill": "prefill_ms", "decode step": "decode_step_ms", "request": "request_ms"}


def compare(one, other):
    """What changed from one record to another: {"changed": [{what, from, to}], "ratios": {stage: other time over one}}.

    A ratio is None where one of the two does not say, or says zero.
    """
    pairs = {what: (field(one, path), field(other, path)) for what, path in COMPARED.items()}
    settings = [found if isinstance(found := field(record, "settings"), dict) else {} for record in (one, other)]
    pairs |= {name: tuple(found.get(name) for found in settings) for name in settings[0] | settings[1]}
    changed = [{"what": what, "from": a, "to": b} for what, (a, b) in pairs.items() if a != b]
    a, b = summary(one), summary(other)
    ratios = {what: b[key] / a[key] if a[key] and b[key] else None for what, key in RATIOS.items()}
    return {"changed": changed, "ratios": ratios}
