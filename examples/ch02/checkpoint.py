"""The weight files of a model folder: what their headers promise, checked before a single number is read.

A safetensors file is eight bytes of length, a JSON header of that length, and the tensors' bytes end to end. The header is
read here by hand, so that a file that was cut off, replaced by a web page or never downloaded is told apart; the tensors are
then mapped into memory by the safetensors library. Pickled weights are programs, and are never opened.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from examples.lab.script import BadInput, parse_json, read_json

BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1},
}
PACKED = re.compile(r"F[468]_\w+|[IU]4|F4")  # numbers of eight bits or fewer, which mean something only with their scales
DEQUANTISE = (
    "give the model in bfloat16; of FP8, transformers makes it: "
    "from_pretrained(..., quantization_config=FineGrainedFP8Config(dequantize=True)), then save_pretrained"
)
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
AGAIN = "fetch it again"


@dataclass(frozen=True)
class Stored:
    """One tensor as it lies in a file: the file, its key there, dtype by safetensors' name, shape, bytes.

    Two names may be of one tensor, whose key then is the name that the file stores it by.
    """

    path: Path
    key: str
    dtype: str
    shape: tuple
    bytes: int


def read_header(path: str | Path) -> dict[str, Stored]:
    """{key: Stored} of the safetensors file at `path`; raises BadInput that names the file and the likely cause.

    Of tensors that share their numbers, `safetensors.torch.save_model` stores one and notes the others in the file's metadata, as
    {other's name: name that is stored}: those are listed too.
    """
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"{path} does not exist or is not a file; {AGAIN}")
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(512)
        if start.startswith(b"version https://git-lfs"):
            raise BadInput(f"{path} is a Git LFS pointer, the weights were not downloaded; run `git lfs pull` in that folder")
        if re.match(rb"\s*<(!doctype|html|\?xml)", start, re.IGNORECASE):
            raise BadInput(f"{path} is a web page, not weights, as a failed download leaves it; {AGAIN}")
        if size < 8:
            raise BadInput(f"{path} is cut off: {size} bytes, less than the 8 that a header starts with; {AGAIN}")
        length = int.from_bytes(start[:8], "little")
        if length > 100_000_000:
            raise BadInput(f"{path} is not a safetensors file: its header would be {length:,} bytes long; {AGAIN}")
        if length > size - 8:
            raise BadInput(f"{path} is cut off within its header: {length:,} bytes promised, {size - 8:,} there; {AGAIN}")
        file.seek(8)
        text = file.read(length)
    try:
        header = parse_json(text.decode("utf-8"))
        about = header.pop("__metadata__", {})
        if not isinstance(about, dict) or not all(isinstance(v, str) for v in about.values()):
            raise ValueError("__metadata__ is not a table of texts")
        stored = _check_layout(path, header, size - 8 - length)
        return stored | {name: stored[same] for name, same in about.items() if same in stored and name not in stored}
    except BadInput:
        raise
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadInput(f"{path} has a damaged header ({error}); {AGAIN}") from None


def _check_layout(path, header, size):
    """The header's tensors, which must lie end to end and fill the `size` bytes that follow it."""
    stored, spans = {}, []
    for key, entry in header.items():
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        if PACKED.fullmatch(dtype):
            raise BadInput(f"{path}: tensor {key} is {dtype}, quantised, which is not read here; {DEQUANTISE}")
        if dtype not in BYTES:
            raise BadInput(f"{path}: tensor {key} has dtype {dtype}, which this program does not read; convert it to F32")
        if not all(type(n) is int and 0 <= n < 2**48 for n in (*shape, begin, end)):
            raise ValueError(f"tensor {key} has a shape or offsets that are not whole numbers below 2^48")
        count = BYTES[dtype]
        for n in shape:
            count *= n
        if end - begin != count:
            raise ValueError(f"tensor {key} takes {end - begin:,} bytes where {dtype} {list(shape)} needs {count:,}")
        stored[key] = Stored(path, key, dtype, shape, count)
        spans.append((begin, end, key))
    at = 0
    for begin, end, key in sorted(spans):
        if begin != at:
            raise ValueError(f"tensor {key} starts at byte {begin:,}, not where the one before it ends, {at:,}")
        at = end
    if size < at:
        raise BadInput(f"{path} is cut off: {at:,} bytes of tensors promised, {size:,} there; {AGAIN}")
    if size > at:
        raise BadInput(f"{path} has {size - at:,} bytes after its last tensor, so it is not the file that was saved; {AGAIN}")
    return stored


def find_tensors(folder: str | Path) -> dict[str, Stored]:
    """{key: Stored} of a folder's weights: one `model.safetensors`, or exactly the shards that the index names."""
    folder = Path(folder)
    if os.path.lexists(folder / SINGLE):  # also a link that leads nowhere: that is an error of its own
        return read_header(folder / SINGLE)
    if os.path.lexists(folder / INDEX):
        return _find_sharded(folder)
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if pickles:
        refuse_pickle(folder / pickles[0])
    raise BadInput(f"{folder} holds neither {SINGLE} nor {INDEX}; give a folder as `save_pretrained` writes it")


def refuse_pickle(path: Path) -> None:
    """Raise the error for a pickled weight file."""
    raise BadInput(
        f"{path} is a pickle, which runs code when it is opened, and is never read here; "
        "convert it to safetensors (`save_pretrained` writes that) and give the new folder"
    )


def _find_sharded(folder):
    index = folder / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(v, str) for v in weight_map.values()):
        raise BadInput(f"{index} has no `weight_map` of tensor names to file names; {AGAIN}")
    stored, others = {}, []
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise BadInput(f"{index} names {name!r}, which is not a safetensors file in the same folder; {AGAIN}")
        if not (folder / name).is_file():
            raise BadInput(f"{folder / name} is missing, and {INDEX} names it; fetch that shard")
        held = read_header(folder / name)
        wanted = {key for key, file in weight_map.items() if file == name}
        absent = sorted(wanted - held.keys())
        if absent:
            raise BadInput(f"{folder / name} lacks {', '.join(absent[:5])}, which {INDEX} places there; fetch that shard again")
        others += [f"{key} in {name}" for key, tensor in held.items() if key not in wanted and tensor.key == key]
        stored |= {key: held[key] for key in wanted}
    if others:
        raise BadInput(f"{index} does not name {', '.join(others[:5])}; the index and the shards are of different models")
    return stored


# A training wrapper's own name before the model's; taken off however many there are.
WRAPPERS = ("module.", "_module.", "_orig_mod.", "model.")


def bare_name(key: str, base: str = "transformer.") -> str:
    """`key` without a known wrapper's prefix and without `base`, which GPT2LMHeadModel writes and GPT2Model does not."""
    while True:
        prefix = next((p for p in (*WRAPPERS, base) if key.startswith(p)), None)
        if prefix is None:
            return key
        key = key[len(prefix) :]


def by_bare_name(stored: dict[str, Stored]) -> dict[str, Stored]:
    """{bare name: Stored}; raises BadInput when two keys of the files come to the same name."""
    named = {}
    for key, tensor in stored.items():
        other = named.setdefault(bare_name(key), tensor)
        if other is not tensor:
            raise BadInput(
                f"{tensor.path.parent}: {other.key} and {key} are both {bare_name(key)}; remove one of the two from the files"
            )
    return named


def read_tensors(wanted: dict[str, Stored]) -> dict:
    """{name: tensor} for {name: Stored}: mapped from the files, in the files' dtype, nothing copied."""
    from safetensors import SafetensorError, safe_open

    tensors = {}
    for path in sorted({t.path for t in wanted.values()}):
        try:
            with safe_open(path, framework="pt") as file:
                tensors |= {name: file.get_tensor(t.key) for name, t in wanted.items() if t.path == path}
        except SafetensorError as error:  # the library is stricter somewhere than our reading of the header
            raise BadInput(f"{path} is damaged ({error}); {AGAIN}") from None
    return {name: tensors[name] for name in wanted}
