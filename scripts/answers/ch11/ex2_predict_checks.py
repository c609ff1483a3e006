"""Checks of ch11.2: the passes of a request, its prediction and the error."""

from scripts.grading.answers import Mutant


def cases(draw):
    for prompt, new in ((1, 1), (5, 1), (5, 2), (draw.whole(6, 20), draw.whole(4, 9))):
        yield "the passes", "passes", {"prompt": prompt, "new": new}
    for prompt in (1, 2, 3, draw.whole(4, 30), draw.whole(40, 200)):
        for new in (1, 2, draw.whole(3, 40)):
            about = {"parameters": draw.whole(10**3, 10**4), "prompt": prompt, "new": new, "number": draw.choice([2, 4])}
            rates = {"flop_per_s": draw.uniform(3e4, 6e4), "bytes_per_s": draw.uniform(5e3, 9e3)}
            yield "the prediction", "predict", {**about, **rates}
    for factor in (0.25, 0.5, 0.9, 1.1, 1.6, 2.0, 3.0, 1.0):
        measured = draw.uniform(1, 4)
        yield "the error", "error_percent", {"said": measured * factor, "measured": measured}


TOLERANCE = 1e-7

MUTANTS = [
    Mutant("the last token is fed as well: one pass too many", "range(new - 1)]", "range(new)]"),
    Mutant("the first decode step is said to find one position too few in the cache", "prompt + i]", "prompt + i - 1]"),
    Mutant("the first decode step is said to find one position too many in the cache", "prompt + i]", "prompt + i + 1]"),
    Mutant("every step feeds the whole text again; with a cache it feeds one token", "[[1, prompt + i]", "[[prompt + i + 1, 0]"),
    Mutant("a multiply-add counts as one FLOP here; it is two", "2 * parameters * fed", "parameters * fed"),
    Mutant("the prompt's positions are left out of the FLOPs", "2 * parameters * fed", "2 * parameters"),
    Mutant("weights are read once for every position, not once a pass", "number * parameters", "number * parameters * fed"),
    Mutant("parameters are counted, not their bytes", "number * parameters", "parameters"),
    Mutant(
        "the times of arithmetic and reading are added; at best they overlap",
        "max(work / flop_per_s, read / bytes_per_s)",
        "work / flop_per_s + read / bytes_per_s",
    ),
    Mutant("only arithmetic is timed", "max(work / flop_per_s, read / bytes_per_s)", "work / flop_per_s"),
    Mutant("only reading is timed", "max(work / flop_per_s, read / bytes_per_s)", "read / bytes_per_s"),
    Mutant("the prefill is counted among the decode steps too", "sum(seconds[1:])", "sum(seconds)"),
    Mutant("the error is in parts of the prediction, not of the measured time", "/ measured", "/ said"),
    Mutant("the error has a sign; it should never be negative", "abs(said - measured)", "(said - measured)"),
    Mutant("the error is a fraction, not per cent", "return 100 * abs", "return abs"),
]

RANGES = {"prefill_ms": (1, 60_000), "prefill_error_percent": (0, 1000), "decode_error_percent": (0, 1000)}

RUBRIC = """
1 point: both stages, predicted and measured, with the rates used and where they come from.
1 point: the limit that each stage names: arithmetic for the prefill, memory for the steps, on a processor.
1 point: a cause of the larger error that is not counted: scores, norms, activations, operators, the head at one position only.
"""
