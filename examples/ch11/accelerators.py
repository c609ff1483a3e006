"""Machines by their data sheets, as `accelerators.json` has them: the two rates that a roofline needs, and the memory.

Of each: name; flop_per_s, of matmuls in bfloat16 or float16, dense, that is without the doubling for matrices half of zeros;
float32_flop_per_s, outside the units that round to fewer digits; bytes_per_s and memory_bytes, in the sheet's own GB of 10^9;
title and published, where the sheet stands; sheet, what it says; derived, how the rates follow from that. A CPU's sheet names no
FLOP/s: `cpu` has what they are computed from. All are peaks, which no program reaches.
"""

import functools
from pathlib import Path

from examples.lab.script import BadInput, read_json

PATH = Path(__file__).resolve().parent / "accelerators.json"


@functools.cache
def accelerators() -> dict[str, dict]:
    """{short name: what is known of that machine}."""
    return read_json(PATH)


def accelerator(name: str) -> dict:
    """The machine of that short name, in either case; raises BadInput for one that is not there."""
    found = accelerators().get(name.lower())
    if found is None:
        raise BadInput(f"no accelerator {name}; give one of {', '.join(accelerators())}")
    return found


def cpu_rates(cores, flop_per_cycle, clock_hz, channels, bytes_per_transfer, transfers_per_s) -> dict:
    """{flop_per_s, bytes_per_s} of a CPU: cores x FLOPs a cycle x clock, and channels x bytes a transfer x transfers a second."""
    return {"flop_per_s": cores * flop_per_cycle * clock_hz, "bytes_per_s": channels * bytes_per_transfer * transfers_per_s}
