"""Chapter 2: parameters and buffers: what old GPT-2 files carry beside the weights, what it weighs, and why it is none of them.

    python examples/ch02/buffers.py
    python examples/ch02/buffers.py --model random:gpt2 --sizes-only    # the published shapes alone

Old files of GPT-2 hold a causal mask for each layer, a table of n_positions x n_positions ones and zeros. A parameter is what
training has set and nothing else can give back. A mask is a formula (position i sees j up to i), so a program can write it.
"""

import sys
import tempfile
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02 import checkpoint
from examples.ch02.config import GPT2Config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import PUBLISHED, Model, load, load_config, require, save
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, table

STORED = {"uint8": torch.uint8, "float32": torch.float32}  # as old files have their masks, by which program wrote them
FILE = {  # openai-community/gpt2's model.safetensors: its size on the hub, and what its first eight bytes say
    "file_bytes": 548_105_171,
    "header_bytes": 14_283,
}


def masks(config: GPT2Config, dtype: torch.dtype = torch.uint8) -> dict[str, torch.Tensor]:
    """{name: [1, 1, n_positions, n_positions]}, the causal masks as old files hold them: a lower triangle of ones a layer."""
    n = config.n_positions
    return {f"h.{i}.attn.bias": torch.ones(n, n).tril().to(dtype)[None, None] for i in range(config.n_layer)}


def sizes(config: GPT2Config) -> dict:
    """What a model's parameters weigh in float32, and its masks in one byte or four a number."""
    parameters = sum(torch.Size(shape).numel() for shape in tensor_shapes(config).values())
    numbers = config.n_layer * config.n_positions**2
    return {
        "masks": config.n_layer,
        "numbers_in_a_mask": config.n_positions**2,
        "parameters": parameters,
        "parameter_bytes": 4 * parameters,
        "mask_bytes_uint8": numbers,
        "mask_bytes_float32": 4 * numbers,
        "float32_masks_percent": 100 * numbers / (parameters + numbers),
    }


def measure_sizes():
    """`sizes` of each published shape; and whether they account for the whole of the published file of GPT-2 small."""
    rows = [{"shape": name, **sizes(load_config(f"random:{name}"))} for name in PUBLISHED]
    small = rows[0]
    tensors = FILE["file_bytes"] - 8 - FILE["header_bytes"]
    return {
        "shapes": rows,
        "published_file": FILE | {"tensor_bytes": tensors, "beside_parameters": tensors - small["parameter_bytes"]},
        "masks_are_all_else": tensors == small["parameter_bytes"] + small["mask_bytes_float32"],
    }


def write_with(model: Model, buffers: dict, folder: Path) -> Path:
    """The model's folder, written at `folder`, with `buffers` in its file of weights as well; the path of that file."""
    from safetensors.torch import load_file, save_file

    save(model, folder)
    path = folder / checkpoint.SINGLE
    tensors = load_file(path) | {f"transformer.{name}": w for name, w in buffers.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    return path


def measure_loading(model):
    """The model's file with masks in it, in one byte per number, in four, and wrong ones: its size, and what is loaded from it."""
    of, rows = model.config, []
    made = {f"masks, {name}": masks(of, dtype) for name, dtype in STORED.items()}
    made["masks upside down, uint8"] = {name: 1 - w for name, w in masks(of).items()}
    with tempfile.TemporaryDirectory() as holder:
        plain = write_with(model, {}, Path(holder) / "plain")
        start = plain.stat().st_size - _header(plain)
        for i, (what, buffers) in enumerate(made.items()):
            path = write_with(model, buffers, Path(holder) / str(i))
            found = load(path.parent)
            rows.append(
                {
                    "file": what,
                    "more_bytes_of_tensors": path.stat().st_size - _header(path) - start,
                    "buffers": len(found.manifest["buffers"]),
                    "parameters": found.manifest["parameters"],
                    "same_weights": found.weights.keys() == model.weights.keys()
                    and all(torch.equal(w, model.weights[name]) for name, w in found.weights.items()),
                }
            )
    return {"parameters": model.manifest["parameters"], "mask_numbers": of.n_layer * of.n_positions**2, "files": rows}


def _header(path):
    """How many bytes the header of a safetensors file takes, with its length."""
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def report(values):
    """Text of {"buffers": ..., "buffers-loaded": ...}; the latter may be missing."""
    v = values["buffers"]
    rows = [
        [r["shape"], f"{r['masks']} of {r['numbers_in_a_mask']:,}", f"{r['parameter_bytes']:,}"]
        + [f"{r[f'mask_bytes_{d}']:,}" for d in STORED]
        + [f"{r['float32_masks_percent']:.1f}%"]
        for r in v["shapes"]
    ]
    lines = [table(["shape", "masks", "parameters, bytes", "as uint8", "as float32", "of the file"], rows), ""]
    file = v["published_file"]
    lines += [
        f"The published file of GPT-2 small has {file['file_bytes']:,} bytes, {file['tensor_bytes']:,} of them of tensors:",
        f"{file['beside_parameters']:,} more than the parameters take, "
        + ("which" if v["masks_are_all_else"] else "of which NOT")
        + " is what twelve float32 masks take, to the byte.",
        "",
    ]
    if "buffers-loaded" in values:
        found = values["buffers-loaded"]
        rows = [
            [
                r["file"],
                f"{r['more_bytes_of_tensors']:,}",
                r["buffers"],
                f"{r['parameters']:,}",
                "yes" if r["same_weights"] else "NO",
            ]
            for r in found["files"]
        ]
        heads = ["this model's file with", "bytes more", "buffers", "parameters", "same weights"]
        lines += [table(heads, rows), ""]
    end = [
        "A mask is known before any training: loading passes over it, right or wrong, as over any buffer.",
        "Nothing is lost without masks, and the number of parameters is the same with them.",
    ]
    return "\n".join([*lines, *end])


EXPERIMENTS = (
    Experiment(
        "ch02.buffers",
        "exact",
        "Twelve causal masks of 1,024 x 1,024 float32 numbers are all that GPT-2's published file holds beside parameters.",
        "The file's size and the length of its header are the hub's; the file itself is not here. Arithmetic for the other shapes.",
        measure_sizes,
        model="published shapes of GPT-2",
        loads=False,
        movable=False,
        headline=("published_file.beside_parameters", "bytes"),
    ),
    Experiment(
        "ch02.buffers-loaded",
        "exact",
        "A file with masks in it, even wrong ones, loads to the same weights and the same number of parameters as one without.",
        "What this loader does. A program that takes its masks from the file computes something else with wrong ones.",
        measure_loading,
        headline=("files[file=masks,_float32].more_bytes_of_tensors", "bytes"),
        seconds=2,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="buffers.py", description=__doc__, keys=__file__).add("model", "seed", "json")
    parser.add_argument("--sizes-only", action="store_true", help="write no file: only what masks weigh in the published shapes")
    return parser


@command
def main(argv=None):
    """Print what buffers weigh, and that loading does without them."""
    args = options().parse_args(argv)
    values = {"buffers": measure_sizes()}
    if not args.sizes_only:
        model = load(args.model, dtype=None, seed=args.seed)
        require(model.config, "gpt2", "files with causal masks")
        values["buffers-loaded"] = measure_loading(model)
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
