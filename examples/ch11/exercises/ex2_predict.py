r"""Predict a request.

Write the passes of a request, and the time that two rates predict for them. Predict a request to `random:gpt2` with 256
tokens of prompt and 24 new ones; then run it, `examples/ch11/prediction.py` with `--requests random:gpt2:256:24`. *Hand in:*
the three functions, your numbers, and a paragraph. *A right answer shows* both stages apart, each with the limit that it
names, and explains the larger of the two errors.
"""

EXERCISE = {
    "id": "ch11.2",
    "difficulty": 2,
    "minutes": 50,
    "points": {"code": 5, "numbers": 1, "paragraph": 3},
    "numbers": {
        "prefill_ms": "milliseconds of the prefill that you predicted",
        "prefill_error_percent": "its error, in per cent of the measured time",
        "decode_error_percent": "that of all decode steps together",
    },
}


def passes(prompt: int, new: int) -> list[list[int]]:
    """[positions fed, positions cached before] of each pass, in order: the prompt at once, then one new token at a time. A
    request for `new` tokens stops when it has them, so the last one is never fed."""
    raise NotImplementedError


def predict(parameters: int, prompt: int, new: int, flop_per_s: float, bytes_per_s: float, number: int) -> dict[str, float]:
    """{"flops", "bytes", "prefill_s", "decode_s"}: of all passes together, and the least seconds of the prefill and of all
    other passes.

    A pass of T positions does 2 T FLOPs a parameter and reads each parameter once, `number` bytes; its seconds are those of
    the slower of the two. One new token has no decode step, and takes 0.0 seconds for it.
    """
    raise NotImplementedError


def error_percent(said: float, measured: float) -> float:
    """How far a prediction is from the measured time, in per cent of the measured time; never negative."""
    raise NotImplementedError
