"""A safetensors header, and one row."""

import json
import struct

FORMS = {"F32": ("f", 4), "F16": ("e", 2)}


def tensors(file):
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length).decode("utf-8"))
    start = 8 + length
    found = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        found.append({"name": name, "dtype": entry["dtype"], "shape": entry["shape"], "begin": start + begin, "end": start + end})
    return sorted(found, key=lambda t: t["begin"])


def read_row(file, name, row):
    entry = {t["name"]: t for t in tensors(file)}[name]
    n, d = entry["shape"]
    if not 0 <= row < n:
        raise IndexError(f"row {row} of {n}")
    form, size = FORMS[entry["dtype"]]
    file.seek(entry["begin"] + row * d * size)
    return list(struct.unpack(f"<{d}{form}", file.read(d * size)))
