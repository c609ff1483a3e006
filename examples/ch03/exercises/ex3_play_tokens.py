r"""Why does the play take more tokens?

Take headings, names of speakers, stage directions and line ends out of `examples/ch03/held_play.txt`, one kind after the other, and
count with `examples/ch03/text_kinds.py`. *Hand in:* the code, and bytes per token after each step. *A right answer shows* how much
of the distance to the essay each step closes and what is left, and claims nothing about other plays.
"""

EXERCISE = {
    "id": "ch03.3",
    "difficulty": 1,
    "minutes": 50,
    "points": {"code": 5, "numbers": 2, "paragraph": 2},
    "numbers": {
        "without_headings": "bytes per token of the play without headings, by the embedded model's tokenizer",
        "without_speakers": "then without names of speakers as well",
        "without_directions": "then without stage directions as well",
        "without_line_ends": "then without line ends as well",
    },
}


def without_headings(text: str) -> str:
    """The text without each line, its line end included, that begins with "ACT " or "SCENE "."""
    raise NotImplementedError


def without_speakers(text: str) -> str:
    """The text without the lines that name a speaker, their line ends included: those that end in a colon, at the text's start or
    behind an empty line. The speech that follows stays."""
    raise NotImplementedError


def without_directions(text: str) -> str:
    """The text without each stage direction: from [ to the next ], both included, over several lines too. What stands around it,
    line ends too, stays."""
    raise NotImplementedError


def without_line_ends(text: str) -> str:
    """The text as one line: no line ends at its start and its end, and one blank for each run of line ends within."""
    raise NotImplementedError


def closed_percent(start: float, steps: list[float], goal: float) -> list[float]:
    """How much of the distance from `start` to `goal` each step closes, in per cent; a step is the value that is reached behind it.
    A step away from the goal closes less than nothing."""
    raise NotImplementedError
