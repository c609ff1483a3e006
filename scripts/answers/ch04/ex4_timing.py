"""A stopwatch, and the exponent of growth."""

import math
import statistics


def median_ms(run, timer, runs):
    times = []
    for _ in range(runs + 1):
        start = timer()
        run()
        times.append(timer() - start)
    return 1000 * statistics.median(times[1:])


def exponent(tokens, times):
    return math.log(times[-1] / times[0]) / math.log(tokens[-1] / tokens[0])
