"""A bundle written down: every file with its size and digest, its config, its tokenizer, its tensors; and what has changed since.

A digest is sha256, of a file's bytes, of a tensor's bytes in the file, or of a value in JSON with its keys sorted and no blanks.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from examples.ch02 import checkpoint
from examples.ch02.anatomy import numbers, read
from examples.ch02.families import read_config
from examples.ch02.hub import sha256
from examples.ch02.model import EMBEDDED, load, locate, smollm2_file
from examples.ch02.tokenizer import load_tokenizer
from examples.lab.script import BadInput, dump_json, read_json, write_whole

FORMAT, VERSION, NAME = "inference-lab manifest", 1, "manifest.json"


def place(source: str) -> tuple[Path, str | None]:
    """(folder or GGUF file, commit or None) of a model that has files; raises BadInput for one that has none."""
    if source.startswith("random:"):
        raise BadInput(f"{source} is drawn from a seed and has no files; give a folder, a .gguf file or a hub id")
    if source == "smollm2":
        return smollm2_file(), None
    if Path(source).suffix == ".gguf":
        if not Path(source).is_file():
            raise BadInput(f"{source}: there is no such file; check the path")
        return Path(source), None
    return locate(source)


def beside(source: str) -> Path:
    """Where the manifest of a model lies by default: in its folder, or beside its GGUF file.

    What lies in this repository, in an installed package or in the hub's cache is not the reader's to write to: then it is in the
    current folder.
    """
    path = Path(source)
    if not path.exists() or path.resolve() == EMBEDDED.resolve():
        return Path(NAME)
    return path / NAME if path.is_dir() else path.with_name(f"{path.name}.{NAME}")


# ------------------------------------------------------------------------------------------------------------------- looking


def digest(value) -> str:
    """The sha256 of a plain value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def files_of(path: Path) -> list[Path]:
    """A GGUF file alone; of a folder every file within, but for hidden ones and the manifest."""
    if path.is_file():
        return [path]
    found = (p for p in path.rglob("*") if p.is_file() and not any(part.startswith(".") for part in p.relative_to(path).parts))
    return sorted(p for p in found if p != path / NAME)


def config_and_tokenizer(path: Path):
    """(config, as plain values; `tokenizers.Tokenizer` or None) of a folder or a GGUF file. Reads no weights."""
    if path.is_file():
        from examples.ch02 import gguf_file

        config, fields, _, _ = gguf_file.describe(path)
        tokenizer = gguf_file.tokenizer_of(fields, config.vocab_size, path)
    else:
        config = read_config(read_json(path / "config.json"), path / "config.json")
        tokenizer = load_tokenizer(path, config)
    return json.loads(json.dumps({"model_type": config.model_type, **asdict(config)})), tokenizer


def tensors_of(path: Path) -> list[dict]:
    """A row for each tensor as it lies in the weight files: file, name, shape, dtype, bytes, sha256."""
    files = [path] if path.is_file() else sorted({t.path for t in checkpoint.find_tensors(path).values()})
    return [
        {
            **{"file": file.name, "name": t.name, "shape": list(t.shape), "dtype": t.dtype, "bytes": t.end - t.begin},
            "sha256": hashlib.sha256(numbers(file, t)).hexdigest(),
        }
        for file in files
        for t in read(file).tensors
    ]


def look(path: Path, progress=lambda: None) -> tuple[dict, list[str]]:
    """({files, config, config_sha256, tokenizer_sha256, tensors}, [what cannot be read, a line each]); such a part is None."""
    base, problems = path if path.is_dir() else path.parent, []

    def attempt(part, otherwise=None):
        try:
            return part(path)
        except BadInput as error:
            if str(error) not in problems:
                problems.append(str(error))
            return otherwise

    files = []
    for p in files_of(path):
        files.append({"name": p.relative_to(base).as_posix(), "bytes": p.stat().st_size, "sha256": sha256(p)})
        progress()
    config, tokenizer = attempt(config_and_tokenizer, (None, None))
    found = {"files": files, "config": config, "config_sha256": config and digest(config)}
    found["tokenizer_sha256"] = tokenizer and digest(json.loads(tokenizer.to_str()))
    return found | {"tensors": attempt(tensors_of)}, problems


def manifest_of(source: str, progress=lambda: None) -> dict:
    """The manifest of a model that loads, as plain values; raises BadInput like `load`."""
    path, commit = place(source)
    model = load(source, dtype=None)
    found, problems = look(path, progress)
    if problems:
        raise BadInput(problems[0])
    facts = {name: model.manifest[name] for name in ("model_type", "parameters", "head")}
    name = path.name if Path(source).exists() else source
    return {"format": FORMAT, "version": VERSION, "source": name, "commit": commit, **facts, **found}


# ------------------------------------------------------------------------------------------------------- the file, and comparing


def write_manifest(source: str, out: Path, progress=lambda: None) -> dict:
    """Write the manifest of a model to `out`, whole, and return it; raises BadInput where something else stands there."""
    if out.exists():
        try:
            read_manifest(out)
        except (BadInput, OSError):
            raise BadInput(f"{out} is there and is no manifest; give another --out") from None
    manifest = manifest_of(source, progress)
    write_whole(out, dump_json(manifest))
    return manifest


def read_manifest(path: Path) -> dict:
    """The manifest in the file at `path`; raises BadInput for what is none, or of another version."""
    value = read_json(path)
    if value.get("format") != FORMAT:
        raise BadInput(f"{path} is no manifest; `manifest.py write` writes one")
    if value.get("version") != VERSION:
        raise BadInput(f"{path} is a manifest of version {value.get('version')!r}, and {VERSION} is read here; write it anew")
    fields = {"files": ("name", "bytes", "sha256"), "tensors": ("file", "name", "shape", "dtype", "bytes", "sha256")}
    whole = all(
        isinstance(value.get(part), list) and all(isinstance(row, dict) and set(keys) <= set(row) for row in value[part])
        for part, keys in fields.items()
    )
    digests = all(name in value for name in ("config_sha256", "tokenizer_sha256", "source"))
    if not (whole and digests and isinstance(value.get("config"), dict)):
        raise BadInput(f"{path} is a manifest with parts missing; write it anew")
    return value


def changes(old: dict, new: dict, problems: list[str]) -> list[dict]:
    """What differs from the manifest `old` in what `look` found now: [{of, name, change, was, now}]."""
    found = []

    def add(of, name, change, was=None, now=None):
        found.append({"of": of, "name": name, "change": change, "was": was, "now": now})

    def table_of(part, key, of, fields):
        before, after = ({key(row): row for row in rows[part]} for rows in (old, new))
        for name in [*before, *(n for n in after if n not in before)]:
            if name not in after or name not in before:
                add(of, name, "added" if name in after else "missing")
            else:
                was, now = before[name], after[name]
                field = next((f for f in fields if was[f] != now[f]), None)
                if field:
                    add(of, name, fields[field], was[field], now[field])

    table_of("files", lambda row: row["name"], "file", {"bytes": "size", "sha256": "content"})
    if new["config"] is not None and new["config_sha256"] != old["config_sha256"]:
        for field in [*old["config"], *(f for f in new["config"] if f not in old["config"])]:
            was, now = old["config"].get(field), new["config"].get(field)
            if was != now:
                add("config", field, "value", was, now)
    if new["config"] is not None and new["tokenizer_sha256"] != old["tokenizer_sha256"]:
        change = "missing" if new["tokenizer_sha256"] is None else "added" if old["tokenizer_sha256"] is None else "content"
        add("tokenizer", "", change, old["tokenizer_sha256"], new["tokenizer_sha256"])
    if new["tensors"] is not None:
        fields = {"dtype": "dtype", "shape": "shape", "file": "file", "sha256": "numbers"}
        table_of("tensors", lambda row: row["name"], "tensor", fields)
    for line in problems:
        add("bundle", "", "cannot be read", now=line)
    return found


def verify(source: str, path: Path, progress=lambda: None) -> tuple[dict, list[dict]]:
    """(the manifest in the file at `path`, what differs from it in the model's files now)."""
    manifest = read_manifest(path)
    found, problems = look(place(source)[0], progress)
    return manifest, changes(manifest, found, problems)
