"""This machine's two rates: arithmetic and memory."""

import time

import torch

from examples.lab.timing import in_turns


def machine_rates(runs=5, timer=time.perf_counter):
    """This machine in float32, with the threads that are set: FLOP/s of a square matmul, bytes/s of a matrix times a vector."""
    a = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    b = torch.randn(32768, 1024, generator=torch.Generator().manual_seed(1))  # 134 MB, more than a cache holds
    v = torch.randn(1024, generator=torch.Generator().manual_seed(2))
    seconds = in_turns({"matmul": lambda: a @ a, "matvec": lambda: b @ v}, runs, timer)
    return {"flop_per_s": 2 * 1024**3 / seconds["matmul"], "bytes_per_s": b.nbytes / seconds["matvec"]}
