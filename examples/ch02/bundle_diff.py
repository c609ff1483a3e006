"""What differs between two models: fields of their configs, and their tensors, of which two at a time are in memory."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from examples.ch02 import checkpoint
from examples.ch02.families import read_config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import PUBLISHED, check, load_config, locate, random_tensor, smollm2_file
from examples.lab.script import BadInput, read_json

PIECE = 1 << 20  # numbers that are compared at once


@dataclass(frozen=True)
class Lazy:
    """A tensor that is not read yet: its shape, the dtype that it is stored in, and what reads it."""

    shape: tuple
    dtype: str
    read: Callable


def parts(source: str, seed: int = 0) -> tuple[dict, dict[str, Lazy]]:
    """(config as plain values, {name: Lazy}) of what `--model` may name; no weight is read. Raises BadInput like `load`."""
    if source.startswith("random:"):
        if source.removeprefix("random:") not in PUBLISHED:
            raise BadInput(f"no published shape {source!r}; random: takes one of {', '.join(PUBLISHED)}")
        config = load_config(source)
        lazy = {name: Lazy(s, "F32", partial(random_tensor, name, s, seed)) for name, s in tensor_shapes(config).items()}
    elif source == "smollm2" or Path(source).suffix == ".gguf":
        from examples.ch02 import gguf_file

        path = smollm2_file() if source == "smollm2" else Path(source)
        config, _, stored, _ = gguf_file.describe(path)
        lazy = {
            name: Lazy(tuple(int(n) for n in t.shape[::-1]), t.tensor_type.name, partial(gguf_file.weight, name, t, config, path))
            for name, t in stored.items()
        }
    else:
        folder, _ = locate(source)
        config = read_config(read_json(folder / "config.json"), folder / "config.json")
        wanted, _, _ = check(folder, config)
        lazy = {name: Lazy(s.shape, s.dtype, partial(_from_file, s)) for name, s in wanted.items()}
    return json.loads(json.dumps({"model_type": config.model_type, **asdict(config)})), lazy


def _from_file(stored):
    return checkpoint.read_tensors({"it": stored})["it"]


def compare(a: torch.Tensor, b: torch.Tensor) -> tuple[int, float]:
    """(how many numbers differ, the largest difference) of two tensors of one shape, in pieces; NaN where one holds a NaN."""
    differing, largest = 0, 0.0
    for one, other in zip(a.flatten().split(PIECE), b.flatten().split(PIECE), strict=True):
        off = (one.double() - other.double()).abs()
        differing += int((off != 0).sum())
        most = off.max().item() if off.numel() else 0.0
        largest = most if most != most or most > largest else largest
    return differing, largest


def diff(a: str, b: str, seed: int = 0, progress=lambda: None) -> dict:
    """What differs between the models `a` and `b`: {config: [{field, a, b}], tensors: [{name, ...}], same_tensors: how many}.

    A row of `tensors`: its shape and dtype in each, None where it has none; where the shapes are one, how many numbers differ and
    the largest difference. A tensor of the same dtype, shape and numbers has no row.
    """
    (config_a, tensors_a), (config_b, tensors_b) = parts(a, seed), parts(b, seed)
    fields = [*config_a, *(name for name in config_b if name not in config_a)]
    absent = "(no such field)"
    values = [{"field": f, "a": config_a.get(f, absent), "b": config_b.get(f, absent)} for f in fields]
    rows, same = [], 0
    for name in [*tensors_a, *(name for name in tensors_b if name not in tensors_a)]:
        one, other = tensors_a.get(name), tensors_b.get(name)
        row = {"name": name}
        for what, t in (("a", one), ("b", other)):
            row |= {f"shape_{what}": t and list(t.shape), f"dtype_{what}": t and t.dtype}
        row |= {"numbers_differing": None, "largest_difference": None}
        if one and other and tuple(one.shape) == tuple(other.shape):
            row["numbers_differing"], row["largest_difference"] = compare(one.read(), other.read())
        if row["numbers_differing"] == 0 and one.dtype == other.dtype:
            same += 1
        else:
            rows.append(row)
        progress()
    return {"config": [v for v in values if v["a"] != v["b"]], "tensors": rows, "same_tensors": same}
