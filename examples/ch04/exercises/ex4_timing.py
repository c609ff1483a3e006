r"""Timing at full length.

Write a stopwatch that can be trusted, and the exponent with which a time grows. Then time $T = 512$ and $T = 1024$ on random
weights with `examples/ch04/component_timing.py` (`--model random:gpt2 --tokens 512,1024`), three times on a quiet machine. *Hand
in:* the two functions, the numbers, and a paragraph with the table, threads and machine stated. *A right answer shows* whether
attention's time grows four times, as $T^2$ does, or less, and names one measurement that a memory-bound explanation predicts and a
compute-bound one does not.
"""

from collections.abc import Callable

EXERCISE = {
    "id": "ch04.4",
    "difficulty": 2,
    "minutes": 50,
    "points": {"code": 4, "numbers": 1, "paragraph": 4},
    "numbers": {
        "attention_512_ms": "milliseconds of attention at T = 512, the median of your runs",
        "attention_1024_ms": "the same at T = 1024",
        "attention_growth": "the second over the first",
    },
}


def median_ms(run: Callable[[], None], timer: Callable[[], float], runs: int) -> float:
    """The median time of run() in milliseconds, over `runs` calls after one more that is discarded.

    timer() gives the seconds on a clock; it is read right before and right after each call, and at no other time. The median of an
    even number of times is the mean of the two in the middle.
    """
    raise NotImplementedError


def exponent(tokens: list[int], times: list[float]) -> float:
    """p, where times grow as tokens to the power p between the first and the last of two lists: 1 when twice the tokens take twice
    the time, 2 when they take four times."""
    raise NotImplementedError
