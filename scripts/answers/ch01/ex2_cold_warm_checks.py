"""Checks of ch01.2: the stopwatch on a clock that is made up, medians of stages, and whether times differ."""

from scripts.grading.answers import Mutant

DRIVER = '''
def watched(module, steps):
    """What a stopwatch says after steps: ["begin", name], ["end", ""], or ["wait", seconds]; and what begins were refused."""
    now, refused = [7.0], []
    watch = module.Stopwatch(lambda: now[0])
    for what, how in steps:
        if what == "wait":
            now[0] += how
        elif what == "end":
            watch.end()
        else:
            try:
                watch.begin(how)
                refused.append(False)
            except NotImplementedError:
                raise
            except RuntimeError:
                refused.append(True)
    return [dict(watch.stages), watch.seconds(), watch.unexplained(), refused]
'''


def request(draw, decode):
    """Steps of a request with so many decode steps; waits lie between its stages."""
    steps = [["wait", draw.uniform(0.5, 1.0)]]
    for name in ("tokenise", "prefill", *["sample", "decode"] * decode, "sample", "detokenise"):
        steps += [["begin", name], ["wait", draw.uniform(0.1, 2.0)], ["end", ""], ["wait", draw.uniform(0.01, 0.3)]]
    return steps


def cases(draw):
    once = [["begin", "prefill"], ["wait", draw.uniform(0.2, 1.0)], ["end", ""], ["begin", "sample"], ["wait", 0.25], ["end", ""]]
    yield "a stage that runs once", "watched", {"steps": once}
    yield "a stage that runs once", "watched", {"steps": request(draw, 0)}
    for decode in (1, 3, 5):
        yield "stages that run again", "watched", {"steps": request(draw, decode)}
    for _ in range(3):
        nested = [["begin", "prefill"], ["wait", draw.uniform(0.2, 1.0)], ["begin", "sample"], ["wait", draw.uniform(0.2, 1.0)]]
        nested += [["end", ""], ["wait", 0.5], ["begin", "decode"], ["wait", draw.uniform(0.2, 1.0)], ["end", ""]]
        yield "a stage within a stage", "watched", {"steps": nested}
    for runs in (1, 2, 3, 4, 5):
        requests = [
            {"prefill": [draw.uniform(1, 3)], "decode": [draw.uniform(0.1, 2) for _ in range(draw.whole(2, 6))]}
            for _ in range(runs)
        ]
        yield "the medians", "medians", {"requests": requests}
        some = [{**r, "load": [draw.uniform(2, 4)]} if i % 2 else dict(r) for i, r in enumerate(requests)]
        yield "the medians where a stage is lacking", "medians", {"requests": [*some, {"load": [draw.uniform(2, 4)]}, {}]}
    for far in (0.1, 0.5, 0.9, 1.1, 2.0, 8.0) * 2:
        for narrow, wide in ((0.2, 1.0), (1.0, 0.2)):
            for sign in (1, -1):
                at = draw.uniform(20, 30)
                cold = [at - narrow / 2, at, at + narrow / 2, at + narrow / 5, at - narrow / 3]
                warm = [x + sign * far for x in (at, at + wide / 2, at - wide / 2)]
                yield "whether they differ", "differ", {"cold": [cold[i] for i in draw.order(5)], "warm": warm}


TOLERANCE = 1e-9

MUTANTS = [
    Mutant(
        "a stage that runs again writes over its earlier time",
        "self.stages.setdefault(stage, []).append(self.timer() - began)",
        "self.stages[stage] = [self.timer() - began]",
    ),
    Mutant(
        "the times of a stage are summed; each is to be kept",
        "self.stages.setdefault(stage, []).append(self.timer() - began)",
        "self.stages[stage] = [sum(self.stages.get(stage, [])) + self.timer() - began]",
    ),
    Mutant(
        "a stage may begin within another one, and its time counts twice or is lost", "if self.running is not None:", "if False:"
    ),
    Mutant(
        "a begin that is refused ends the stage that runs, or takes its place",
        "            raise RuntimeError",
        "            self.running = (stage, self.timer())\n            raise RuntimeError",
    ),
    Mutant(
        "the clock starts with the first stage, not when the stopwatch is made",
        "        self.running = (stage, self.timer())",
        "        self.running = (stage, self.timer())\n        self.started = self.started if self.stages else self.timer()",
    ),
    Mutant(
        "this is what the stages claim, not what they do not",
        "self.seconds() - sum(sum(times) for times in self.stages.values())",
        "sum(sum(times) for times in self.stages.values())",
    ),
    Mutant(
        "of a stage that ran again only its last time is taken off", "sum(sum(times) for times in", "sum(times[-1] for times in"
    ),
    Mutant(
        "what is unexplained has the wrong sign",
        "self.seconds() - sum(sum(times) for times in self.stages.values())",
        "sum(sum(times) for times in self.stages.values()) - self.seconds()",
    ),
    Mutant(
        "the seconds are the sum of the stages; the whole is to be measured by itself",
        "return self.timer() - self.started",
        "return sum(map(sum, self.stages.values()))",
    ),
    Mutant("the times are in milliseconds", ".append(self.timer() - began)", ".append(1000 * (self.timer() - began))"),
    Mutant(
        "the median is over single runs of a stage; add within one request first",
        "statistics.median([sum(stages.get(name, [])) for stages in requests])",
        "statistics.median([t for stages in requests for t in stages.get(name, [])] or [0])",
    ),
    Mutant("this is a mean over the requests, not the median", "statistics.median([sum(", "statistics.mean([sum("),
    Mutant(
        "the first request is discarded; all that are given count",
        "for stages in requests]) for",
        "for stages in requests[1:] or requests]) for",
    ),
    Mutant(
        "a request that lacks a stage is left out; it took 0 there",
        "for stages in requests]) for",
        "for stages in requests if name in stages]) for",
    ),
    Mutant(
        "of an even number of requests one of the two in the middle is taken, not their mean",
        "statistics.median([sum(",
        "statistics.median_high([sum(",
    ),
    Mutant(
        "the stages are those of the first request; others are passed over",
        "{name for stages in requests for name in stages}",
        "set(requests[0])",
    ),
    Mutant("the smaller of the two spreads is taken", "spread = max(", "spread = min("),
    Mutant("the spread is that of the cold times alone", "for times in (cold, warm))", "for times in (cold,))"),
    Mutant(
        "the spread is that of all times together, which grows with the difference itself",
        "for times in (cold, warm))",
        "for times in (cold + warm,))",
    ),
    Mutant(
        "only cold times above the warm ones count as a difference",
        "abs(statistics.median(cold) - statistics.median(warm))",
        "statistics.median(cold) - statistics.median(warm)",
    ),
    Mutant("any difference counts, however far times of one kind lie apart", "> spread", "> 0"),
]

RUBRIC = """
1 point: a table of cold and warm times by stage, five of each, with their spread; machine and threads stated.
1 point: says by the spread, not by eye, in which stages cold and warm differ.
1 point: a verdict on the hypothesis for this machine and no other, with what five runs cannot decide.
"""
