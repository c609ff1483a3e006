r"""Your own cycle.

Write the greedy loop with a window and end tokens, and what finds a cycle in its text. Then run greedy decoding with windows of
16, 32 and 64 from ten prompts, with `greedy_cycles` in `examples/ch05/cycles.py` or its options `--prompt` and `--window`. *Hand
in:* the two functions, and a paragraph on where each text enters its cycle and how long it is. *A right answer shows* how both
depend on the window, and gives the argument that a cycle must come.
"""

from collections.abc import Callable

EXERCISE = {"id": "ch05.5", "difficulty": 2, "minutes": 60, "points": {"code": 6, "paragraph": 2}}


def greedy(forward: Callable, ids: list[int], tokens: int, window: int, ends: list[int]) -> list[int]:
    """The new ids that greedy decoding puts behind the prompt `ids`: `tokens` of them, or fewer where one is in `ends`, which is
    the last one then. An end token in the prompt ends nothing. The prompt stays as it is.

    forward: takes ids [1, t], int64, and gives logits [1, t, V]. It is called once for each new id, with the last `window` ids of
    the text so far, or with all where there are fewer. Of equal logits the lower id is taken.
    """
    raise NotImplementedError


def cycle(ids: list[int], window: int) -> list[int] | None:
    """[start, length] of the cycle that a text has entered, None where no run of `window` ids comes back.

    The first run of `window` ids that stood in the text before proves the cycle. Its length is how far the two are apart; it starts
    at the first place from which on every id is the same as the one `length` later, as far as the end of that second run.
    """
    raise NotImplementedError
