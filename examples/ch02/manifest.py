"""Chapter 2: what a model is made of: listed, written down with its digests, verified, and compared with another.

python examples/ch02/manifest.py                                   # lists the embedded model
python examples/ch02/manifest.py --model openai-community/gpt2     # a real GPT-2, from the hub
python examples/ch02/manifest.py --model random:gpt2-xl --tensors  # a published shape with random weights
python examples/ch02/manifest.py write --out manifest.json         # writes the manifest down
python examples/ch02/manifest.py verify --manifest manifest.json   # says what has changed since
python examples/ch02/manifest.py diff embedded random:gpt2         # config fields and tensors of two models
"""

import argparse
import json
import math
import re
import shutil
import sys
import tempfile
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.bundle_diff import diff, parts
from examples.ch02.bundle_files import NAME, beside, files_of, manifest_of, place, read_manifest, verify, write_manifest
from examples.ch02.model import load, save
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, counted, dump_json, parse_json, progress_bar, table

MOST = 20  # rows of a table of tensors, where not all are asked for


# ---------------------------------------------------------------------------------------------------------------- experiments


def measure(model):
    """The manifest of a model's files, its tensors as their sum."""
    manifest = manifest_of(str(model.path))
    tensors = manifest.pop("tensors")
    return {name: manifest[name] for name in ("model_type", "parameters", "head", "config_sha256", "tokenizer_sha256")} | {
        "files": manifest["files"],
        "tensors": len(tensors),
        "tensor_bytes": sum(t["bytes"] for t in tensors),
    }


def _flip(path, at):
    """One bit of the byte at `at`, counted from the end where it is below 0, the other way."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise ValueError(f"{path.name} lacks {old!r}")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


FAULTS = {  # what is done to a copy of the embedded model's folder
    "nothing": lambda folder: None,
    "one bit of the last weight": lambda folder: _flip(folder / "model.safetensors", -1),
    "the last byte of the weights is cut off": lambda folder: _cut(folder / "model.safetensors"),
    "a blank more in config.json": lambda folder: _edit(folder / "config.json", "{", "{ "),
    "another epsilon in config.json": lambda folder: _edit(folder / "config.json", "1e-05", "1e-06"),
    "one merge less in tokenizer.json": lambda folder: _without_last_merge(folder / "tokenizer.json"),
    "tokenizer.json is gone": lambda folder: (folder / "tokenizer.json").unlink(),
    "a file more": lambda folder: (folder / "pytorch_model.bin").write_bytes(b"anything"),
}


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _without_last_merge(path):
    value = parse_json(path.read_text(encoding="utf-8"))
    value["model"]["merges"].pop()
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def measure_verify(model):
    """What `verify` names, in one text, after each of FAULTS, done to a copy of the model's folder with a manifest."""
    rows = []
    for fault, do in FAULTS.items():
        with tempfile.TemporaryDirectory() as holder:
            folder = Path(holder) / "model"
            shutil.copytree(model.path, folder)
            write_manifest(str(folder), folder / NAME)
            do(folder)
            named = [f"{c['of']} {c['name']}".strip() + f": {c['change']}" for c in verify(str(folder), folder / NAME)[1]]
        rows.append({"fault": fault, "named": "; ".join(named) or "nothing", "changes": len(named)})
    return {"faults": rows}


def measure_diff(model):
    """What `diff` says of a model and its copy in bfloat16, and of one with one number changed by 2^-10."""
    with tempfile.TemporaryDirectory() as holder:
        half, one = Path(holder) / "half", Path(holder) / "one"
        save(model.to(torch.bfloat16), half)
        name = next(name for name in model.weights if name.endswith("mlp.c_fc.weight"))
        changed = model.weights[name].clone()
        changed[0, 0] += 2**-10
        save(type(model)(model.config, model.weights | {name: changed}, model.tokenizer), one)
        found = {what: diff(str(model.path), str(folder)) for what, folder in (("half", half), ("one", one))}
    rows = found["half"]["tensors"]
    return {
        "half": {
            "config_fields": len(found["half"]["config"]),
            "tensors": len(rows),
            "dtypes": sorted({f"{r['dtype_a']} to {r['dtype_b']}" for r in rows}),
            "numbers_differing": sum(r["numbers_differing"] for r in rows),
            "largest_difference": max(r["largest_difference"] for r in rows),
        },
        "one": [{k: r[k] for k in ("name", "numbers_differing")} for r in found["one"]["tensors"]],
        "one_same_tensors": found["one"]["same_tensors"],
    }


EXPERIMENTS = (
    Experiment(
        "ch02.manifest",
        "exact",
        "The embedded bundle is these files, with these digests; its config and its tokenizer have digests of their own.",
        "That the files are these, not that they are good. The tokenizer's digest is of what its library makes of the file.",
        measure,
        headline=("parameters", "int"),
        seconds=2,
    ),
    Experiment(
        "ch02.verify",
        "exact",
        "Of eight things done to a copy of the bundle, verify names each that changes a byte, down to the field or the tensor.",
        "Accidents, one at a time. Who can change the bundle can write a new manifest as well: it is not signed.",
        measure_verify,
        headline=("faults[fault=one_bit_of_the_last_weight].changes", "int"),
        movable=False,
        seconds=8,
    ),
    Experiment(
        "ch02.diff",
        "exact",
        "One weight that differs among millions is found and named; a copy in bfloat16 differs in every tensor's dtype.",
        "Two tensors of one name; one that was renamed counts as missing here and added there.",
        measure_diff,
        headline=("half.largest_difference", "s1"),
        movable=False,
        seconds=3,
    ),
)


# -------------------------------------------------------------------------------------------------------------------- commands


class _Parser(Parser):
    """Names an option that is in none of the actions, whose value would else be taken for an action."""

    def parse_args(self, args=None, namespace=None):
        known = set(self._option_string_actions)
        for one in self._subparsers._group_actions[0].choices.values():
            known |= set(one._option_string_actions)
        for word in sys.argv[1:] if args is None else args:
            if word.startswith("--") and word.partition("=")[0] not in known:
                self.error(f"unknown: {word}")
        return super().parse_args(args, namespace)


def options():
    """The script's argument parser."""
    parser = _Parser(prog="manifest.py", description=__doc__, keys=__file__).add("model", "seed", "json")
    parser.add_argument("--tensors", action="store_true", help="list every tensor, not only the sums by kind, or the first few")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="write, verify or diff; without one the model is listed")

    def action(name, about):
        one = actions.add_parser(name, prog=f"manifest.py {name}", description=about, help=about)
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object instead of tables")
        return one

    def of_files(one, option, about):
        more = "embedded, a folder, a .gguf file, smollm2 or a hub id; embedded by default"
        one.add_argument("--model", default=argparse.SUPPRESS, metavar="SOURCE", help=more)
        where = f"{about}; by default {NAME} in the model's folder, or the current one where that is not yours to write to"
        one.add_argument(option, type=Path, default=None, metavar="FILE", help=where)

    of_files(action("write", "write down every file and tensor of a model with its digest"), "--out", "the file to write")
    of_files(action("verify", "name what has changed since a manifest was written"), "--manifest", "the file to compare with")
    compare = action("diff", "compare two models: config fields, and tensor by tensor")
    compare.add_argument("models", nargs=2, metavar="SOURCE", help="as --model takes it")
    compare.add_argument(
        "--tensors", action="store_true", default=argparse.SUPPRESS, help=f"list all tensors that differ, not {MOST}"
    )
    return parser


@command
def main(argv=None):
    """Print the manifest of a model, write it, verify it, or compare two models."""
    args = options().parse_args(argv)
    {"write": _write, "verify": _verify, "diff": _diff, None: _list}[args.action](args)


def _write(args):
    out = args.out or beside(args.model)
    with progress_bar("file", len(files_of(place(args.model)[0]))) as bar:
        manifest = write_manifest(args.model, out, bar.update)
    args.out = str(out)
    answer(args, {"write": manifest}, lambda values: written(values["write"], out))


def written(manifest, out):
    """Text about a manifest that was written to `out`."""
    rows = [[f["name"], f"{f['bytes']:,}", f["sha256"][:16]] for f in manifest["files"]]
    digests = [[name, (manifest[f"{name}_sha256"] or "none")[:16]] for name in ("config", "tokenizer")]
    size = sum(f["bytes"] for f in manifest["files"])
    end = f"{out} holds {len(rows)} files of {size:,} bytes, and {len(manifest['tensors'])} tensors, each with its sha256."
    heads = ["file", "bytes", "sha256 begins"]
    return "\n".join([table(heads, rows), "", table(["digest of the", "sha256 begins"], digests), "", end])


def _verify(args):
    path = args.manifest or beside(args.model)
    read_manifest(path)  # raises before anything long
    with progress_bar("file", len(files_of(place(args.model)[0]))) as bar:
        manifest, found = verify(args.model, path, bar.update)
    args.manifest = str(path)
    answer(args, {"verify": {"same": not found, "changes": found}}, lambda values: verified(manifest, found, path))
    if found:
        todo = "fetch the bundle again, or write a new manifest if that is meant"
        raise BadInput(f"{len(found)} {'thing is' if len(found) == 1 else 'things are'} not as {path} says; {todo}")


def verified(manifest, found, path):
    """Text of what has changed since the manifest at `path` was written."""
    if not found:
        files, tensors = len(manifest["files"]), len(manifest["tensors"])
        return f"All is as {path} says: {files} files, {tensors} tensors, config and tokenizer have the digests that it holds."
    rows = [[c["of"], _short(c["name"], 40), c["change"], _value(c["was"]), _value(c["now"])] for c in found if c["of"] != "bundle"]
    lines = [c["now"] for c in found if c["of"] == "bundle"]
    shown = [table(["of", "name", "change", "was", "is now"], rows[:MOST])] if rows else []
    shown += [f"{len(rows) - MOST} more; --json lists them all."] if len(rows) > MOST else []
    return "\n\n".join([*shown, *lines, f"These differ from {path}, which was written of {manifest['source']}."])


def _short(text, most):
    return text if len(text) <= most else "..." + text[3 - most :]


def _value(value):
    """A value in a cell: a number with its commas, of a digest its beginning."""
    text = "" if value is None else f"{value:,}" if type(value) is int else value if isinstance(value, str) else json.dumps(value)
    return text[:10] + "..." if len(text) > 13 else text


def _diff(args):
    a, b = args.models
    with progress_bar("tensor", len(parts(a, args.seed)[1])) as bar:
        values = diff(a, b, args.seed, bar.update)
    answer(args, {"diff": values}, lambda values: differences(values["diff"], a, b, None if args.tensors else MOST))


def differences(values, a, b, most=MOST):
    """Text of what differs between the models `a` and `b`; at most so many tensors, those that differ most before all others."""
    lines = [f"A is {a}, B is {b}.", ""]
    if values["config"]:
        rows = [[r["field"], _cell(r["a"]), _cell(r["b"])] for r in values["config"]]
        lines += [table(["config field", "A", "B"], rows), ""]

    def size(row):  # what is no number first, then what has none to compare, then by size
        x = row["largest_difference"]
        return math.inf if x is None or x != x else x

    rows = sorted(values["tensors"], key=size, reverse=True)
    shown = rows[:most]
    if shown:
        cells = [[_short(r["name"], 42), _pair(r, "shape"), _pair(r, "dtype"), _many(r), _largest(r)] for r in shown]
        lines += [table(["tensor", "shape", "dtype", "differ", "largest"], cells), ""]
    if len(rows) > len(shown):
        lines += [f"{len(rows) - len(shown)} more tensors differ, none of them by more; --tensors lists them all.", ""]
    fields = len(values["config"])
    end = f"{fields} config fields and {len(rows)} tensors differ; {values['same_tensors']} tensors are the same."
    return "\n".join([*lines, end])


def _cell(value):
    return _short(json.dumps(value) if not isinstance(value, str) else value, 32)


def _pair(row, what):
    one, other = (row[f"{what}_{x}"] for x in "ab")
    one, other = (list(x) if isinstance(x, (list, tuple)) else x for x in (one, other))
    return f"{one}" if one == other else f"{'none' if one is None else one} / {'none' if other is None else other}"


def _many(row):
    count = row["numbers_differing"]
    return "-" if count is None else f"{count:,}"


def _largest(row):
    x = row["largest_difference"]
    return "-" if x is None else f"{x:.2e}"


def _list(args):
    manifest = load(args.model, dtype=None, seed=args.seed, digests=True).manifest
    if args.json:
        print(dump_json(manifest), end="")
        return
    print(f"{manifest['source']}: a {manifest['model_type']} with {manifest['parameters']:,} parameters, head {manifest['head']}")
    if manifest["commit"]:
        print(f"commit {manifest['commit']}; pin it with --model {args.model.partition('@')[0]}@{manifest['commit']}")
    print()
    print(table(["config", "value"], [[k, json.dumps(v)] for k, v in manifest["config"].items()]))
    print()
    if manifest["files"]:
        print(table(["file", "bytes", "sha256"], [[f["name"], f"{f['bytes']:,}", f["sha256"]] for f in manifest["files"]]))
        print()
    rows = manifest["tensors"] + manifest["buffers"]
    if not args.tensors:
        rows = _by_kind(rows)
    print(table(["tensor", "shape", "dtype", "bytes"], [[r["name"], r["shape"], r["dtype"], f"{r['bytes']:,}"] for r in rows]))
    print()
    for what, held in (("parameters", manifest["tensors"]), ("buffers", manifest["buffers"])):
        count, size = sum(math.prod(r["shape"]) for r in held), sum(r["bytes"] for r in held)
        print(f"{what}: {counted(count, 'number')} in {counted(len(held), 'tensor')}, {counted(size, 'byte')}.")


def _by_kind(rows):
    """Rows of one kind, say `h.*.mlp.c_fc.weight`, as one row with the sum of their bytes."""
    kinds = {}
    for row in rows:
        kinds.setdefault((re.sub(r"^h\.\d+\.", "h.*.", row["name"]), tuple(row["shape"]), row["dtype"]), []).append(row["bytes"])
    return [
        {
            "name": name,
            "shape": (f"{len(sizes)} x " if len(sizes) > 1 else "") + str(list(shape)),
            "dtype": dtype,
            "bytes": sum(sizes),
        }
        for (name, shape, dtype), sizes in kinds.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
