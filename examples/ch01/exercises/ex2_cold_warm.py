r"""Cold and warm.

Write a stopwatch for stages, and a test of whether times differ. Run `examples/ch01/request.py` five times by itself, and once with
`--runs 5`, all with `--record` to one file. *Hand in:* the code, and the cold and the warm times of each stage with their spread.
*A right answer shows* in which stages cold and warm differ by more than that spread, and whether the hypothesis holds on your
machine.
"""

from collections.abc import Callable

EXERCISE = {"id": "ch01.2", "difficulty": 2, "minutes": 60, "points": {"code": 6, "paragraph": 3}}


class Stopwatch:
    """Seconds of a request by stage, from the moment when it is made. A stage may run many times; no two run at once.

    stages: {name: [seconds of each time that it ran]}, in the order in which they first ran.
    """

    def __init__(self, timer: Callable[[], float]):
        """timer() says the seconds on a clock."""
        raise NotImplementedError

    def begin(self, stage: str) -> None:
        """Start a stage. Raises RuntimeError where one runs, whose time would be counted twice; that one goes on."""
        raise NotImplementedError

    def end(self) -> None:
        """End the stage that runs."""
        raise NotImplementedError

    def seconds(self) -> float:
        """What the request has taken so far, with what lies between the stages."""
        raise NotImplementedError

    def unexplained(self) -> float:
        """The part of `seconds()` that no stage which has ended claims."""
        raise NotImplementedError


def medians(requests: list[dict[str, list[float]]]) -> dict[str, float]:
    """{stage: seconds} from the `stages` of several requests: what the stage took in each, all its times together, and of these the
    median (of an even number of requests the mean of the two in the middle). A stage that a request lacks took 0 there."""
    raise NotImplementedError


def differ(cold: list[float], warm: list[float]) -> bool:
    """Whether the two medians lie further apart than times of one kind do: more than the largest less the smallest of `cold`, and
    more than the largest less the smallest of `warm`."""
    raise NotImplementedError
