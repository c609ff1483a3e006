"""Checks of ch04.4: the stopwatch on a clock that is made up, and the exponent."""

from scripts.grading.answers import Mutant

DRIVER = '''
def timed(module, durations, between, runs):
    """What median_ms says of calls that take `durations` seconds, and how many it makes; each reading takes `between` as well."""
    now, calls = [5.0], [0]

    def run():
        now[0] += durations[calls[0] % len(durations)]
        calls[0] += 1

    def timer():
        now[0] += between
        return now[0]

    return [module.median_ms(run, timer, runs), calls[0]]
'''


def cases(draw):
    for runs in (1, 2, 3, 4, 5, 8):
        durations = [draw.uniform(2.0, 4.0), *(draw.uniform(0.05, 0.5) for _ in range(runs))]
        yield "the stopwatch", "timed", {"durations": durations, "between": draw.uniform(0.001, 0.01), "runs": runs}
    for count in (2, 2, 2, 3, 3, 4, 5, 6):
        first = draw.whole(8, 64)
        tokens = [first * (i + 2) ** 2 // 4 for i in range(count)]
        times = [t ** draw.uniform(0.5, 2.2) * 1e-3 for t in tokens]
        yield "the exponent", "exponent", {"tokens": tokens, "times": times}


TOLERANCE = 1e-7

MUTANTS = [
    Mutant(
        "the first call is not discarded, and one call fewer is made", "range(runs + 1)", "range(runs)", (("times[1:]", "times"),)
    ),
    Mutant("the first call is made and then counted like the others", "times[1:]", "times"),
    Mutant("the first call is discarded, and one of the `runs` is missing", "range(runs + 1)", "range(max(2, runs))"),
    Mutant("this is the mean, which one slow call moves; the median is asked for", "statistics.median", "statistics.mean"),
    Mutant("this is the fastest call, not the median", "statistics.median", "min"),
    Mutant(
        "of an even number of times one of the two in the middle is taken, not their mean",
        "statistics.median(",
        "statistics.median_low(",
    ),
    Mutant("the result is in seconds, not in milliseconds", "1000 * statistics", "statistics"),
    Mutant(
        "the clock is read once for all calls, so that what lies between them counts as well",
        "range(runs + 1):\n        start = timer()\n        run()\n        times.append(timer() - start)\n",
        "range(1):\n        run()\n    start = timer()\n"
        "    for _ in range(runs):\n        run()\n    times = [0, (timer() - start) / runs]\n",
    ),
    Mutant(
        "the clock is read more often than needed, and its own time is counted",
        "        run()\n",
        "        run()\n        timer()\n",
    ),
    Mutant(
        "this is how many times longer it takes, not the exponent",
        "math.log(times[-1] / times[0]) / math.log(tokens[-1] / tokens[0])",
        "times[-1] / times[0]",
    ),
    Mutant(
        "the exponent is upside down",
        "math.log(times[-1] / times[0]) / math.log(tokens[-1] / tokens[0])",
        "math.log(tokens[-1] / tokens[0]) / math.log(times[-1] / times[0])",
    ),
    Mutant("this holds only where the tokens double", "math.log(tokens[-1] / tokens[0])", "math.log(2)"),
    Mutant(
        "the first two of a list are compared, not the first and the last",
        "math.log(times[-1] / times[0]) / math.log(tokens[-1] / tokens[0])",
        "math.log(times[1] / times[0]) / math.log(tokens[1] / tokens[0])",
    ),
]

RANGES = {"attention_512_ms": (5, 50_000), "attention_1024_ms": (10, 200_000), "attention_growth": (1.2, 8)}
MISTAKES = {"attention_growth": [(0.12, 0.8, "this is the first over the second")]}

RUBRIC = """
1 point: the table of three runs, with threads and machine, and medians of them.
1 point: attention grows less than four times, since its projections grow with T alone; that with scores is nearer four.
2 points: a measurement that tells the two apart: bytes per second, more threads, a smaller dtype, fused scores.
"""
