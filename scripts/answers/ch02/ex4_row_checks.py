"""Checks of ch02.4: the header of a safetensors file, and one row of it, on files that are made here."""

import json
import struct

from scripts.grading.answers import Mutant

DRIVER = '''
import io


class Counted(io.BytesIO):
    """A file in memory that counts the bytes that are read."""

    count = 0

    def read(self, *args):
        found = super().read(*args)
        self.count += len(found)
        return found


def headers(module, files, at):
    """tensors of each file, given in hexadecimal digits and standing at `at`; and how many bytes it reads."""
    found = []
    for text in files:
        file = Counted(bytes.fromhex(text))
        file.seek(at)
        found.append([module.tensors(file), file.count])
    return found


def rows(module, file, wanted):
    """read_row of [name, row] each, with the bytes that it reads; the name of the error where it raises one."""
    found = []
    for name, row in wanted:
        counted = Counted(bytes.fromhex(file))
        try:
            found.append([module.read_row(counted, name, row), counted.count])
        except (KeyError, IndexError) as error:
            found.append(type(error).__name__)
    return found
'''
FORMS = {"F32": ("f", 4), "F16": ("e", 2), "I64": ("q", 8)}


def file(draw, shapes, metadata=True, pad=0):
    """A file with tensors {name: (dtype, shape)}, which lie in another order than the header names them."""
    parts, entries, at = [], {}, 0
    names = list(shapes)
    for i in draw.order(len(names)):
        dtype, shape = shapes[names[i]]
        count = 1
        for n in shape:
            count *= n
        form, size = FORMS[dtype]
        values = [draw.whole(-99, 99) / (1 if form == "q" else 16) for _ in range(count)]
        parts.append(struct.pack(f"<{count}{form}", *(map(int, values) if form == "q" else values)))
        entries[names[i]] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + count * size]}
        at += count * size
    header = {"__metadata__": {"format": "pt", "by": "é"}} if metadata else {}
    header |= {name: entries[name] for name in names}
    text = json.dumps(header, ensure_ascii=False).encode() + b" " * pad
    return (struct.pack("<Q", len(text)) + text + b"".join(parts)).hex()


def cases(draw):
    some = {
        "wte.weight": ("F32", (5, 3)),
        "bias": ("F32", (7,)),
        "half": ("F16", (4, 6)),
        "ids": ("I64", (2, 2)),
        "one": ("F16", ()),
    }
    yield "the header", "headers", {"files": [file(draw, some, pad=n) for n in (0, 3, 280)], "at": 0}
    yield (
        "a file without metadata",
        "headers",
        {"files": [file(draw, {"a": ("F32", (2, 9)), "b": ("F32", (1, 1))}, False)], "at": 0},
    )
    yield "a file that stands elsewhere", "headers", {"files": [file(draw, some)], "at": draw.whole(1, 60)}
    mixed = {"wte.weight": ("F32", (9, 4)), "wide": ("F32", (2, 11)), "h": ("F16", (3, 5)), "one": ("F32", (1, 1))}
    for pad in (0, 7):
        made = file(draw, mixed, pad=pad)
        yield (
            "rows of float32",
            "rows",
            {"file": made, "wanted": [["wte.weight", n] for n in (0, 1, 5, 8)] + [["wide", 1], ["one", 0]]},
        )
        yield "rows of float16", "rows", {"file": made, "wanted": [["h", n] for n in (0, 1, 2)]}
        lacking = [
            ["wte.weight", 9],
            ["wte.weight", -1],
            ["none", 0],
            ["wide", 2],
            ["h", 5],
            ["__metadata__", 0],
            ["wide", 1],
            ["h", 1],
        ]
        yield "what is not there", "rows", {"file": made, "wanted": lacking}


TOLERANCE = 1e-9

MUTANTS = [
    Mutant("the length is read with its highest byte first", '"<Q"', '">Q"'),
    Mutant(
        "only four of the length's bytes are read",
        'struct.unpack("<Q", file.read(8))',
        'struct.unpack("<I", file.read(4))',
        (("start = 8 + length", "start = 4 + length"),),
    ),
    Mutant("the offsets are counted from the file's first byte; they begin behind the header", "start = 8 + length", "start = 0"),
    Mutant("the eight bytes of the length are forgotten", "start = 8 + length", "start = length"),
    Mutant("the metadata is taken for a tensor", 'if name == "__metadata__":', 'if name == "metadata":'),
    Mutant("the tensors are in the order of the header, not as they lie", 'sorted(found, key=lambda t: t["begin"])', "found"),
    Mutant("the file is read from where it stands, not from its start", "    file.seek(0)\n", ""),
    Mutant("all of the file is read", "file.read(length)", "file.read()[:length]"),
    Mutant("the row begins as if every number had four bytes", "row * d * size", "row * d * 4"),
    Mutant("the row begins as if a row had as many numbers as the matrix has rows", "row * d * size", "row * n * size"),
    Mutant("the row begins at its number, not at its byte", "row * d * size", "row * d"),
    Mutant(
        "this is a column, not a row",
        'file.seek(entry["begin"] + row * d * size)\n    return list(struct.unpack(f"<{d}{form}", file.read(d * size)))',
        'found = []\n    for i in range(n):\n        file.seek(entry["begin"] + (i * d + min(row, d - 1)) * size)\n'
        '        found += struct.unpack(f"<{form}", file.read(size))\n    return found',
    ),
    Mutant("the rows are counted from 1", "row * d * size", "(row - 1) * d * size"),
    Mutant(
        "the row is that of the first tensor in the file, whatever its name",
        '{t["name"]: t for t in tensors(file)}[name]',
        '[{t["name"]: t for t in tensors(file)}[name],'
        ' min((t for t in tensors(file) if len(t["shape"]) == 2), key=lambda t: t["begin"])][1]',
    ),
    Mutant(
        "the whole tensor is read for one row",
        '    file.seek(entry["begin"] + row * d * size)\n    return list(struct.unpack(f"<{d}{form}", file.read(d * size)))',
        '    file.seek(entry["begin"])\n    whole = list(struct.unpack(f"<{n * d}{form}", file.read(n * d * size)))\n'
        "    return whole[row * d : row * d + d]",
    ),
    Mutant(
        "a negative row counts from the end; it is not there",
        "if not 0 <= row < n:",
        "row %= n if row < 0 else row + 1\n    if row >= n:",
    ),
    Mutant("a row behind the last one is read from the next tensor", "if not 0 <= row < n:", "if row < 0:"),
    Mutant("the bytes are read with the highest first", 'f"<{d}{form}"', 'f">{d}{form}"'),
]

RANGES = {"row_begins_at": (13_293_552, 13_293_552), "bytes_read": (6128, 6128), "largest": (0.2202, 0.2204)}
MISTAKES = {
    "row_begins_at": [
        (13_288_448, 13_288_448, "this is counted from where the numbers begin, not from the file's start"),
        (13_293_544, 13_293_544, "the eight bytes of the length are forgotten"),
        (13_292_528, 13_292_528, "this is row 378; rows are counted from 0"),
        (12_905_456, 12_905_456, "this is where the table begins"),
    ],
    "bytes_read": [
        (1024, 1024, "this is the row alone; length and header are read as well"),
        (6120, 6120, "the eight bytes of the length are missing"),
        (5104, 5104, "the row itself is missing"),
        (13_954_032, 13_954_032, "this is the whole file"),
    ],
}
