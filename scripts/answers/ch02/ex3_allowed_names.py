"""The names that a pickle fetches, read and not run."""

import pickletools

ALLOWED = (
    *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "collections OrderedDict"),
    *("torch FloatStorage", "torch HalfStorage", "torch BFloat16Storage", "torch LongStorage", "torch BoolStorage"),
)
HIDDEN = ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4")


def fetched(data):
    found = []
    for code, argument, _ in pickletools.genops(data):
        if code.name in ("GLOBAL", "INST"):
            found.append(argument)
        elif code.name in HIDDEN:
            found.append("?")
    return found


def allowed(data):
    try:
        return all(name in ALLOWED for name in fetched(data))
    except ValueError:
        return False
