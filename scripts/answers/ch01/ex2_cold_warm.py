"""The stopwatch, and whether two kinds of times differ."""

import statistics


class Stopwatch:
    def __init__(self, timer):
        self.timer, self.stages, self.running = timer, {}, None
        self.started = timer()

    def begin(self, stage):
        if self.running is not None:
            raise RuntimeError(f"{self.running[0]} runs")
        self.running = (stage, self.timer())

    def end(self):
        stage, began = self.running
        self.stages.setdefault(stage, []).append(self.timer() - began)
        self.running = None

    def seconds(self):
        return self.timer() - self.started

    def unexplained(self):
        return self.seconds() - sum(sum(times) for times in self.stages.values())


def medians(requests):
    names = {name for stages in requests for name in stages}
    return {name: statistics.median([sum(stages.get(name, [])) for stages in requests]) for name in sorted(names)}


def differ(cold, warm):
    spread = max(max(times) - min(times) for times in (cold, warm))
    return abs(statistics.median(cold) - statistics.median(warm)) > spread
