r"""A list of allowed names.

Write a function that says whether a pickle fetches only what `torch.save` needs for tensors; `examples/ch02/pickled_weights.py`
helps. Try it on three pickles, and load none. *Hand in:* the code, its answers, and a pickle that fetches a harmless name and is
refused. *A right answer shows* that the list names what is allowed, not what is forbidden, and what STACK_GLOBAL, which takes the
name from the stack, hides from it.
"""

EXERCISE = {"id": "ch02.3", "difficulty": 3, "minutes": 60, "points": {"code": 6, "paragraph": 3}}

ALLOWED = (
    *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "collections OrderedDict"),
    *("torch FloatStorage", "torch HalfStorage", "torch BFloat16Storage", "torch LongStorage", "torch BoolStorage"),
)


def fetched(data: bytes) -> list[str]:
    """What a pickle fetches by name, in the order of its steps, each as often as it is fetched; nothing of it is run.

    GLOBAL and INST have the name with them: "module name", with one blank. Of STACK_GLOBAL, which takes module and name from the
    stack, and of EXT1, EXT2 and EXT4, which fetch by a number, the entry is "?". Texts within the pickle that look like a name are
    none. Raises ValueError for what is no pickle, or is cut off.
    """
    raise NotImplementedError


def allowed(data: bytes) -> bool:
    """Whether all that a pickle fetches is in ALLOWED, module and name; False for what is no pickle, or is cut off."""
    raise NotImplementedError
