r"""Where the time goes now.

Write what a decode step's components compute, and their shares. Then time them with Chapter 4's `Stopwatch`
(`examples/ch04/component_timing.py`) as the trace of `forward_cached`, on `random:gpt2`, at $S = 16$, $128$ and $512$. *Hand in:*
the two functions, the shares of FLOPs, and a paragraph with the table of times. *A right answer shows* which component grows with
the cache, and how the shares differ from those of a whole pass.
"""

EXERCISE = {
    "id": "ch10.6",
    "difficulty": 2,
    "minutes": 60,
    "points": {"code": 4, "numbers": 2, "paragraph": 2},
    "numbers": {
        "scores_16_percent": "scores and mixture at S = 16 in GPT-2 small: share of the FLOPs of a decode step, in per cent",
        "scores_128_percent": "the same at S = 128",
        "scores_512_percent": "the same at S = 512",
    },
}


def step_flops(S: int, new: int, d: int, f: int, L: int, V: int) -> dict[str, int]:
    """FLOPs of a pass over `new` tokens that end with position S - 1, the earlier ones in the cache, by component.

    Only products of matrices count, a multiplication and an addition each. "projections": attention's four d x d matrices;
    "scores": scores and mixture, of each new token with all S positions, whether the mask hides one or not; "feed_forward": its
    two d x f matrices; all three in all L layers; "head": the output matrix d x V, at the last position only.
    """
    raise NotImplementedError


def shares(parts: dict[str, float]) -> dict[str, float]:
    """Each component's part of the whole in per cent, largest first and equal ones by name; 0.0 for all where the whole is 0."""
    raise NotImplementedError
