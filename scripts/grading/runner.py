"""Runs a submission's functions on given inputs. It holds no answer and imports nothing of this repository.

A request is a submission's source, a driver's source or "", and calls; each call is {"function": name, "args": {...}}. For each
there is a result: {"value": ...}, or {"error": name of the exception, "message": ..., "line": of the submission}, and "changed":
the arguments that the call has changed. A name that the driver defines is called as name(module, **args), with the submission as
module. Tensors are carried by safetensors, all else by JSON: `packed` and `unpacked`.
"""

import json
import struct
import sys
import traceback
import types

import numpy as np
import torch
from safetensors.torch import load, save

HEAD = struct.Struct(">QQ")  # bytes of JSON, bytes of tensors
MESSAGE = 300  # characters of an error's text
MISSING = "Missing"
LONGEST = 50_000  # entries of a list; tensors may have more
DEEPEST = 20  # lists within lists


def packed(value):
    """The bytes of a value: a head with two lengths, JSON, tensors. Raises TypeError for what can be no result."""
    tensors = {}
    text = json.dumps(_without_tensors(value, tensors)).encode()
    held = save(tensors) if tensors else b""
    return HEAD.pack(len(text), len(held)) + text + held


def unpacked(text, held):
    """The value of its JSON and its tensors; raises ValueError or another Exception where they are none."""
    tensors = load(held) if held else {}

    def back(value, depth=0):
        if depth > DEEPEST:
            raise ValueError("lists within lists, too many")
        if isinstance(value, list):
            return [back(v, depth + 1) for v in value]
        if isinstance(value, dict):
            if set(value) == {"tensor"}:
                return tensors[value["tensor"]]
            return {k: back(v, depth + 1) for k, v in value["dict"].items()}
        return value

    return back(json.loads(text))


def carried(value):
    """A value as it is on the other side: tuples and arrays are lists and tensors there."""
    content = packed(value)
    size, held = HEAD.unpack_from(content)
    return unpacked(content[HEAD.size : HEAD.size + size], content[HEAD.size + size :][:held])


def _without_tensors(value, tensors, depth=0):
    if depth > DEEPEST:
        raise TypeError("lists within lists, too many")
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().to("cpu").contiguous().clone()
        return {"tensor": name}
    if isinstance(value, (list, tuple, dict)) and len(value) > LONGEST:
        raise TypeError(f"more than {LONGEST:,} entries")
    if isinstance(value, (list, tuple)):
        return [_without_tensors(v, tensors, depth + 1) for v in value]
    if isinstance(value, dict):
        if not all(isinstance(k, str) for k in value):
            raise TypeError("a dictionary with keys that are no text")
        return {"dict": {k: _without_tensors(v, tensors, depth + 1) for k, v in value.items()}}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a value of type {type(value).__name__}")


def module_of(source, name):
    """The module that `source` makes; raises whatever the source raises."""
    module = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    sys.modules[name] = module  # dataclasses and the like look their module up
    exec(compile(source, module.__file__, "exec", dont_inherit=True), module.__dict__)
    return module


def results(request):
    """Yield the result of each call of a request, in order. What a submission raises becomes a result, an exit too."""
    name = request["name"]
    try:
        module = module_of(request["source"], name)
    except BaseException as error:
        for _ in request["calls"]:
            yield {**failure(error, f"{name}.py"), "at": "import"}
        return
    driver = module_of(request["driver"], "driver").__dict__ if request["driver"] else {}
    for call in request["calls"]:
        yield result(module, driver, call)


def result(module, driver, call):
    """The result of one call; it gets copies of the arguments."""
    args = {k: _copy(v) for k, v in call["args"].items()}
    try:
        if call["function"] in driver:
            value = driver[call["function"]](module, **args)
        else:
            function = getattr(module, call["function"], None)
            if not callable(function):
                return {"error": MISSING, "message": f"there is no function {call['function']} in the file", "line": None}
            value = function(**args)
        if isinstance(value, (types.GeneratorType, map, filter, zip, range)):
            value = list(value)
        packed(value)  # whether it can be carried
    except BaseException as error:
        return failure(error, module.__file__)
    return {"value": value, "changed": [k for k, v in args.items() if not _same(v, call["args"][k])]}


def failure(error, file):
    """What is told of an exception: its name, its text, and the line of `file` in which it was raised, where there is one."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines = [error.lineno]
    try:
        message = str(error)[:MESSAGE]
    except Exception:
        message = ""
    return {"error": type(error).__name__, "message": message, "line": lines[-1] if lines else None}


def _copy(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list):
        return [_copy(v) for v in value]
    return {k: _copy(v) for k, v in value.items()} if isinstance(value, dict) else value


def _same(a, b):
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    return type(a) is type(b) and a == b
