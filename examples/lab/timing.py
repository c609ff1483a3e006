"""The median of timed runs, and whether they can be trusted: a busy machine shows in how far they lie apart."""

import os
import statistics
import sys
import time

SPREAD = 0.2  # of the median: runs whose middle half differs by more say that the machine was busy
SHORTEST = 1e-3  # seconds; what takes less differs from run to run on a quiet machine too

_timed = []  # the runs of each thing that was timed since `warn_if_busy` last looked


def median_after(times, discarded=1):
    """Median of `times` but for the first `discarded`: the first call of anything costs what later ones do not.

    The others are kept for `warn_if_busy`, which says whether they can be trusted.
    """
    kept = list(times)[discarded:]
    _timed.append(kept)
    return statistics.median(kept)


def warn_if_busy(more=()):
    """Say on stderr, in one line, what makes the runs timed since the last call look like those of a busy machine, and `more` of
    that kind; say nothing where nothing does."""
    runs, _timed[:] = list(_timed), []
    load = os.getloadavg()[0] if runs and hasattr(os, "getloadavg") else None
    found = [*busy(runs, load, os.cpu_count()), *more]
    if found:
        print(f"note: the machine was busy, or is another one: {'; '.join(found)}. Run it again when it is quiet.", file=sys.stderr)


def busy(runs, load=None, cores=None):
    """What says that the machine was busy during `runs`, a list of seconds for each thing that was timed: a list of phrases.

    It is the spread of the runs, the third quartile less the first over the median, so that a single slow run says nothing; and,
    where the system tells it, that more processes wanted to run than there are cores.
    """
    spread = 0.0
    for times in runs:
        if len(times) > 1 and (median := statistics.median(times)) >= SHORTEST:
            first, _, third = statistics.quantiles(times, n=4, method="inclusive")
            spread = max(spread, (third - first) / median)
    found = [f"the middle half of the runs of one thing differ by {spread:.0%}"] if spread > SPREAD else []
    if load is not None and cores and load > cores:
        found.append(f"{load:.1f} processes wanted to run on {cores} core{'s' if cores > 1 else ''}")
    return found


def turns(steps, runs, timer=time.perf_counter, progress=lambda: None):
    """{name: seconds of each of `runs` calls} of functions {name: function}, called in turn after a discarded call of each."""
    times = {name: [] for name in steps}
    for _ in range(1 + runs):  # the first is discarded
        for name, step in steps.items():
            start = timer()
            step()
            times[name].append(timer() - start)
            progress()
    return {name: t[1:] for name, t in times.items()}


def in_turns(steps, runs, timer=time.perf_counter, progress=lambda: None):
    """{name: median seconds} of `turns`."""
    return {name: median_after(t, 0) for name, t in turns(steps, runs, timer, progress).items()}


def quartiles(values):
    """A quarter of `values` lies below the first, half below the second, three quarters below the third; one value is all three."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
