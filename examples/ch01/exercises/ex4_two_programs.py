r"""Two programs, one record.

Write the loop of a greedy request, with a cache and without. Serve one prompt, `--prompt "JULIET:" --tokens 60`, with `request.py`
and with `examples/ch05/generate.py` at `--temperature 0`, both with `--record`. *Hand in:* the code, the two texts, and the seconds
of each decode step of both. *A right answer shows* that the texts are equal, that one program feeds one token in each step and the
other the whole text, and whether the second one's steps grow.
"""

from collections.abc import Callable

from torch import Tensor

EXERCISE = {"id": "ch01.4", "difficulty": 2, "minutes": 50, "points": {"code": 5, "paragraph": 3}}


def serve(
    forward: Callable, prompt: list[int], tokens: int, end: int | None = None, cached: bool = True
) -> tuple[list[int], list[tuple[str, int]]]:
    """Answer a prompt of one or more ids greedily: (the new ids, [(stage, how many ids were fed)] of each forward pass).

    forward(ids [1, t] int64, cache) gives (logits [1, t, V], cache for the next pass). The first pass is the stage "prefill": the
    whole prompt, with None as cache. Each later one is "decode". cached: it feeds the newest id alone, with the cache of the pass
    before. Not cached: it feeds the prompt and all new ids, with None. The id chosen is that with the largest logit at the last
    position, the lowest of several. It ends after `tokens` new ids, 1 or more, or with the id `end`, which is kept. The last id is
    never fed, and `prompt` stays as it is.
    """
    raise NotImplementedError


def step_growth(times: list[float]) -> float:
    """How much longer the last quarter of the decode steps takes than the first: the mean of the one over the mean of the other. A
    quarter is len(times) // 4 steps, and at least one."""
    raise NotImplementedError
