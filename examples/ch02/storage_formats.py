"""Chapter 2: the same weights in five storage formats: the bits of each, its bytes per weight, and how exact it is.

    python examples/ch02/storage_formats.py                     # the embedded model's weights
    python examples/ch02/storage_formats.py --model smollm2     # weights that have been through Q8_0 and Q4_1 before

float32, float16 and bfloat16 store each number by itself: a sign, an exponent, a mantissa. Q8_0 and Q4_1, two formats of GGUF
files, store blocks of 32 numbers that share a scale. What each does to a model's logits and loss: examples/ch14/stored_weights.py.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from examples.ch02.model import Model, load, seeded
from examples.lab.experiment import Experiment, tolerance, worst
from examples.lab.figure import BLUE, GREEN, ORANGE, PAGE, PURPLE, VERMILION, box, check_target, new_picture, write_figure
from examples.lab.script import BadInput, Parser, answer, command, table

BLOCK = 32  # numbers that share a scale

# ------------------------------------------------------------------------------- the formats: float32 [..., n] to bytes, and back


def to_float32(x):
    return x.astype("<f4").view(np.uint8)  # [..., 4 n]


def from_float32(stored):
    return stored.view("<f4")  # [..., n]


def to_float16(x):
    with np.errstate(over="ignore"):  # float16 ends at 65,504: what is larger becomes infinite
        return x.astype("<f2").view(np.uint8)  # [..., 2 n]


def from_float16(stored):
    return stored.view("<f2").astype(np.float32)


def to_bfloat16(x):
    """The upper half of a float32, rounded: a bfloat16 is a float32 that has lost 16 bits of its mantissa. Finite numbers only."""
    bits = x.view(np.uint32)  # [..., n]
    half = 0x7FFF + ((bits >> 16) & 1)  # rounds up what is above the middle, and at the middle to the even neighbour
    return ((bits + half) >> 16).astype("<u2").view(np.uint8)  # [..., 2 n]


def from_bfloat16(stored):
    return (stored.view("<u2").astype(np.uint32) << 16).view(np.float32)


def to_q8_0(x):
    """A block is a float16 scale, then 32 whole numbers from -127 to 127: x is about scale * whole."""
    blocks = x.reshape(-1, BLOCK)  # [blocks, 32]
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)  # [blocks, 1]
    steps = blocks * inverse(scale)
    size = np.floor(np.abs(steps))
    whole = np.sign(steps) * (size + (np.abs(steps) - size >= 0.5))  # to the nearest, a half away from zero
    stored = np.concatenate([to_float16(scale), whole.astype(np.int8).view(np.uint8)], 1)  # [blocks, 2 + 32]
    return stored.reshape(*x.shape[:-1], -1)


def from_q8_0(stored):
    blocks = stored.reshape(-1, 2 + BLOCK)
    scale, whole = from_float16(blocks[:, :2].copy()), blocks[:, 2:].view(np.int8)
    return (whole * scale).reshape(*stored.shape[:-1], -1)


def to_q4_1(x):
    """A block is a float16 scale, a float16 minimum, then 32 whole numbers from 0 to 15: x is about minimum + scale * whole."""
    blocks = x.reshape(-1, BLOCK)  # [blocks, 32]
    least = blocks.min(1, keepdims=True)  # [blocks, 1]
    scale = (blocks.max(1, keepdims=True) - least) / np.float32(15)
    whole = np.trunc((blocks - least) * inverse(scale) + np.float32(0.5)).clip(0, 15).astype(np.uint8)
    pairs = whole[:, :16] | whole[:, 16:] << 4  # [blocks, 16]: byte i has number i in its lower half, i + 16 in its upper
    return np.concatenate([to_float16(scale), to_float16(least), pairs], 1).reshape(*x.shape[:-1], -1)  # [blocks, 2 + 2 + 16]


def from_q4_1(stored):
    blocks = stored.reshape(-1, 2 + 2 + BLOCK // 2)
    scale, least = from_float16(blocks[:, :2].copy()), from_float16(blocks[:, 2:4].copy())
    whole = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)  # [blocks, 32]
    return (scale * whole.astype(np.float32) + least).reshape(*stored.shape[:-1], -1)


def inverse(scale):
    """1 / scale, and 0 where the scale is 0, as of a block of zeros."""
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


@dataclass(frozen=True)
class Format:
    """fields: [(name, bits, how many)], of one number or of one block of `numbers`. error: (x [n, numbers]) -> the largest error
    that rounding to it may make of each of them."""

    fields: tuple
    numbers: int
    store: Callable
    restore: Callable
    error: Callable

    @property
    def bits(self):
        return sum(bits * count for _, bits, count in self.fields)


def _floats(exponent, mantissa):
    return (("sign", 1, 1), ("exponent", exponent, 1), ("mantissa", mantissa, 1))


TINY = 2.0**-25  # half of float16's smallest step
NEAR = 1 + 1e-5  # for the float32 arithmetic on the way


def _q8_0_error(x):
    largest = np.abs(x).max(1, keepdims=True)  # half a step, and 127 times what the scale's own rounding is off
    return NEAR * (largest / 254 + largest * 2.0**-11 + 127 * TINY)


def _q4_1_error(x):
    width, least = x.max(1, keepdims=True) - x.min(1, keepdims=True), np.abs(x.min(1, keepdims=True))
    return NEAR * (width / 30 + (width + least) * 2.0**-11 + 16 * TINY)


FORMATS = {
    "float32": Format(_floats(8, 23), 1, to_float32, from_float32, lambda x: 0 * x),
    "float16": Format(_floats(5, 10), 1, to_float16, from_float16, lambda x: np.maximum(np.abs(x) * 2.0**-11, TINY)),
    "bfloat16": Format(_floats(8, 7), 1, to_bfloat16, from_bfloat16, lambda x: np.abs(x) * 2.0**-8 + 2.0**-134),
    "Q8_0": Format((("scale", 16, 1), ("whole number", 8, BLOCK)), BLOCK, to_q8_0, from_q8_0, _q8_0_error),
    "Q4_1": Format((("scale", 16, 1), ("minimum", 16, 1), ("whole number", 4, BLOCK)), BLOCK, to_q4_1, from_q4_1, _q4_1_error),
}
MIXED = "Q4_1, table Q8_0"  # as SmolLM2's file has it: the token table by Q8_0, the other matrices by Q4_1
CHOICES = (*FORMATS, MIXED)


# --------------------------------------------------------------------------------------------------------------- a whole model


def format_of(form, tensor, is_table):
    """The name of the format that a tensor is stored in where a model is stored as `form`.

    In blocks are matrices alone, along their last dimension, where that is a multiple of 32; all else stays float32, as in GGUF.
    """
    name = ("Q8_0" if is_table else "Q4_1") if form == MIXED else form
    fits = FORMATS[name].numbers == 1 or (tensor.ndim > 1 and tensor.shape[-1] % BLOCK == 0)
    return name if fits else "float32"


def store(model, form):
    """Yields (name, format, stored bytes, float32 numbers before, numbers that come back) of each weight of a model.

    Raises BadInput for a weight that becomes infinite.
    """
    for name, w in model.weights.items():
        kind = format_of(form, w, w is model.token_table)
        before = w.detach().to("cpu", torch.float32).contiguous().numpy()
        stored = FORMATS[kind].store(before)
        after = FORMATS[kind].restore(stored)
        if not np.isfinite(after).all():
            raise BadInput(f"{name} has numbers that {kind} cannot hold; leave that format out for this model")
        yield name, kind, stored, before, after


def as_stored(model: Model, form: str) -> tuple[Model, int]:
    """(the model with float32 weights that have been through the format, bytes that it takes there)."""
    weights, size = {}, 0
    for name, _, stored, _, after in store(model, form):
        weights[name] = torch.from_numpy(after.copy())
        size += stored.size
    return replace(model, weights=weights), size


def measure_formats():
    """The bits of each format, its bytes per weight, and the numbers that it can tell apart."""
    rows = []
    for name, f in FORMATS.items():
        fields = [{"field": field, "bits": bits, "count": count} for field, bits, count in f.fields]
        row = {"format": name, "numbers": f.numbers, "bytes": f.bits // 8, "bytes_per_weight": f.bits / 8 / f.numbers}
        row |= {"fields": fields, "largest": None, "smallest_normal": None}
        if f.numbers == 1:
            about = torch.finfo(getattr(torch, name))
            row |= {"largest": about.max, "smallest_normal": about.tiny}
        rows.append(row)
    return {"formats": rows}


def measure_exactness(model):
    """Of each format: bytes of the model's weights, how many come back bit for bit, and how far off the others are.

    largest_relative_error: of a number other than 0, by its own size. largest_error_in_block: by the largest number of its block.
    """
    rows = []
    for form in CHOICES:
        count = exact = size = in_blocks = 0
        relative, in_block = [], []
        for _, kind, stored, before, after in store(model, form):
            count, size = count + before.size, size + stored.size
            exact += int((before.view(np.uint32) == after.view(np.uint32)).sum())
            off, own = np.abs(after.astype(np.float64) - before), np.abs(before).astype(np.float64)
            relative.append(float((off[own > 0] / own[own > 0]).max(initial=0)))
            if FORMATS[kind].numbers > 1:
                in_blocks += before.size
                most = own.reshape(-1, BLOCK).max(1)
                in_block.append(float((off.reshape(-1, BLOCK).max(1)[most > 0] / most[most > 0]).max(initial=0)))
        rows.append(
            {
                "format": form,
                "bytes": size,
                "bytes_per_weight": size / count,
                "weights": count,
                "in_blocks": in_blocks,
                "bit_for_bit": exact,
                "bit_for_bit_percent": 100 * exact / count,
                "largest_relative_error": worst(relative),
                "largest_error_in_block": worst(in_block) if in_block else None,
            }
        )
    return {"formats": rows}


def measure_bounds(model):
    """The largest error of a weight as a part of what rounding to its format may make of it, a `tolerance` of 1."""
    parts = {}
    for form in FORMATS:
        for _, kind, _, before, after in store(model, form):
            rows = before.reshape(-1, FORMATS[kind].numbers).astype(np.float64)
            off, bound = np.abs(after.reshape(rows.shape) - rows), FORMATS[kind].error(rows)
            bound = np.broadcast_to(bound, off.shape)
            parts.setdefault(form, []).append(float((off[off > 0] / bound[off > 0]).max(initial=0)))
    return tolerance(1, worst(x for found in parts.values() for x in found), formats=len(parts))


def random_rows(seed=0, rows=2000):
    """float32 [rows, 64] of many sizes: zeros, one number, powers of two, and halves between two steps of Q8_0 too."""
    x = torch.randn(rows, 64, generator=seeded(seed)).numpy() * np.float32(10.0) ** np.linspace(-4, 3, rows, dtype="f4")[:, None]
    x[:50], x[50:100], x[100:150] = 0, 0.5, 2.0 ** np.arange(-50, 14, dtype="f4")[None]
    x[150:200] = np.arange(64, dtype="f4") / 2
    x[150:200, ::BLOCK] = 127  # so that the scale is 1
    return x


def measure_library(model):
    """Whether our bytes, and the numbers that come back from them, are those of the gguf package (of torch for bfloat16 and
    float16), bit for bit: of the model's matrices, and of `random_rows`."""
    import gguf

    kinds = gguf.GGMLQuantizationType
    theirs = {"float32": kinds.F32, "float16": kinds.F16, "bfloat16": kinds.BF16, "Q8_0": kinds.Q8_0, "Q4_1": kinds.Q4_1}
    matrices = [w.float().contiguous().numpy() for w in model.weights.values() if format_of("Q4_1", w, False) == "Q4_1"]
    rows = []
    for name, kind in theirs.items():
        same = {"bytes": True, "numbers": True}
        for x in [*matrices, random_rows()]:
            stored = FORMATS[name].store(x)
            library = gguf.quantize(x, kind)
            same["bytes"] &= np.array_equal(stored, library.view(np.uint8))
            same["numbers"] &= np.array_equal(FORMATS[name].restore(stored), gguf.dequantize(library, kind).astype(np.float32))
        rows.append({"format": name, **{f"same_{what}": held for what, held in same.items()}})
    return {"tensors": len(matrices) + 1, "formats": rows}


def measure_file(model):
    """What formats a GGUF file stores its tensors in, and whether its blocks, undone by hand, are the gguf package's numbers."""
    import gguf

    rows = {}
    for t in gguf.GGUFReader(model.path).tensors:
        kind = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(t.tensor_type.name, t.tensor_type.name)
        row = rows.setdefault(kind, {"format": kind, "tensors": 0, "weights": 0, "bytes": 0, "same_numbers": True})
        row["tensors"] += 1
        row["weights"] += int(t.n_elements)
        row["bytes"] += int(t.n_bytes)
        by_hand = FORMATS[kind].restore(np.ascontiguousarray(t.data).view(np.uint8))
        row["same_numbers"] &= np.array_equal(by_hand, gguf.dequantize(t.data, t.tensor_type))
    found = [row | {"bytes_per_weight": row["bytes"] / row["weights"]} for row in rows.values()]
    weights, size = sum(r["weights"] for r in found), sum(r["bytes"] for r in found)
    return {"formats": found, "weights": weights, "bytes": size, "bytes_per_weight": size / weights}


# ---------------------------------------------------------------------------------------------------------------- what is shown

COLOURS = {"sign": VERMILION, "exponent": ORANGE, "mantissa": BLUE, "scale": GREEN, "minimum": PURPLE, "whole number": BLUE}


def draw(values, path):
    """The bits of one number in float32, float16 and bfloat16, and of one block of 32 numbers in Q8_0 and Q4_1."""
    figure, (axes,) = new_picture((PAGE, 3.9))
    y, height = 0.0, 1.4
    for row in values["formats"]:
        if row["numbers"] > 1 and y > -7:
            y -= 1.2
        x, bit = 0.0, 0.6 if row["numbers"] == 1 else 0.15  # how wide a bit is
        axes.text(-0.4, y + height / 2, row["format"], ha="right", va="center", fontsize=10)
        for field in row["fields"]:
            colour, many = COLOURS[field["field"]], field["count"] > 1
            for text in ("q0", "q1", "...", f"q{field['count'] - 1}") if many else (f"{field['field']}\n{field['bits']} bits",):
                width = max(field["bits"] * bit, 1.1) if many else field["bits"] * bit
                box(axes, x, y, width, height, "±" if field["field"] == "sign" else text, colour, 0.6)
                x += width
            last = f"{field['count']} times {field['bits']} bits: " if many else ""
        said = f"{last}{row['bytes']} bytes" + (f", {row['bytes_per_weight']:g} per weight" if row["numbers"] > 1 else "")
        axes.text(x + 0.3, y + height / 2, said, ha="left", va="center")
        y -= 2.1
    axes.text(-2.7, 1.7, "one number (±: its sign)", ha="left", va="bottom", fontsize=10)
    axes.text(-2.7, -5.5, "one block of 32 numbers, q0 to q31", ha="left", va="bottom", fontsize=10)
    axes.set_xlim(-2.8, 22)
    axes.set_ylim(y + 1.6, 2.6)
    write_figure(figure, path)


def report(values):
    """Text of {"formats": ..., "exactness": ...}."""
    bits = {row["format"]: row for row in values["formats"]["formats"]}
    rows = []
    for row in values["exactness"]["formats"]:
        about = bits.get(row["format"])
        per = f"{about['bytes_per_weight']:g}" if about else "-"
        within = "-" if row["largest_error_in_block"] is None else f"{row['largest_error_in_block']:.2%}"
        cells = [per, f"{row['bytes']:,}", f"{row['bit_for_bit_percent']:.2f}%", f"{row['largest_relative_error']:.2g}", within]
        rows.append([row["format"], *cells])
    heads = ["stored as", "bytes/weight", "this model", "bit for bit", "relative error", "error in block"]
    fields = [
        [
            name,
            row["numbers"],
            " + ".join((f"{f['count']} x " if f["count"] > 1 else "") + f"{f['bits']} {f['field']}" for f in row["fields"]),
        ]
        for name, row in bits.items()
    ]
    end = [
        "Relative error: the largest, by the weight's own size; error in block: by the block's largest.",
        "Blocks give up small weights beside large ones: a weight far below its block's scale comes back as",
        "another number altogether, yet none is further off than a small part of its block's largest.",
    ]
    some = values["exactness"]["formats"][-1]
    kept = some["weights"] - some["in_blocks"]
    note = f"In the block formats {kept:,} of {some['weights']:,} weights stay float32: vectors, and rows not of blocks."
    return "\n".join([table(["format", "numbers", "bits"], fields), "", table(heads, rows), "", note, *end])


EXPERIMENTS = (
    Experiment(
        "ch02.formats",
        "exact",
        "A weight takes 4 bytes as float32, 2 as float16 or bfloat16, 34/32 in a block of Q8_0 and 20/32 in one of Q4_1.",
        "The formats by themselves; what a file takes depends on which tensors are stored in blocks.",
        measure_formats,
        loads=False,
        movable=False,
        model="the formats by themselves",
        headline=("formats[format=Q4_1].bytes_per_weight", "f3"),
        figures={"formats.svg": draw},
    ),
    Experiment(
        "ch02.exactness",
        "exact",
        "Of trained float32 weights few come back bit for bit from any smaller format.",
        "One small model's weights, in blocks along the rows as the file has them; what it means for the logits is chapter 14's.",
        measure_exactness,
        headline=("formats[format=bfloat16].bit_for_bit_percent", "%2"),
        seconds=3,
    ),
    Experiment(
        "ch02.format-bounds",
        "tolerance",
        "No weight is further off than its format's rounding allows: half a step, and what the scale's own rounding adds.",
        "The weights of one model; weights below float16's range, or above it, are not among them.",
        measure_bounds,
        seconds=3,
    ),
    Experiment(
        "ch02.formats-library",
        "exact",
        "Our formats, written by hand, make the same bytes as the gguf package and give the same numbers back.",
        "The package's own Python code, not llama.cpp's; finite numbers within float16's range.",
        measure_library,
        headline=("tensors", "int"),
        seconds=4,
    ),
    Experiment(
        "ch02.gguf-formats",
        "exact",
        "SmolLM2's file has its token table in Q8_0 and its other matrices in Q4_1; undone by hand they are the package's.",
        "One file. Other files mix other formats.",
        measure_file,
        model="smollm2",
        movable=False,
        headline=("bytes_per_weight", "f3"),
        seconds=8,
    ),
)


def options():
    """The script's argument parser."""
    return Parser(prog="storage_formats.py", description=__doc__, keys=__file__).add("model", "seed", "plot", "json")


@command
def main(argv=None):
    """Print the formats, and what each does to a model's weights."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load(args.model, seed=args.seed)
    values = {"formats": measure_formats(), "exactness": measure_exactness(model)}
    answer(args, values, report, lambda values, path: draw(values["formats"], path))


if __name__ == "__main__":
    sys.exit(main())
