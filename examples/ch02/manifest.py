"""Chapter 2: what a model is made of, listed: its config, its files with their digests, its tensors and buffers.

python examples/ch02/manifest.py                                   # of the embedded model
python examples/ch02/manifest.py --model openai-community/gpt2     # of a real GPT-2, from the hub
python examples/ch02/manifest.py --model random:gpt2-xl --tensors  # of a published shape with random weights
"""

import json
import math
import re
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.model import load
from examples.lab.script import Parser, command, counted, dump_json, table


def options():
    """The script's argument parser."""
    parser = Parser(prog="manifest.py", description=__doc__, keys=__file__).add("model", "seed", "json")
    parser.add_argument("--tensors", action="store_true", help="list every tensor, not only the sums by kind")
    return parser


@command
def main(argv=None):
    """Print the manifest of a model."""
    args = options().parse_args(argv)
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
