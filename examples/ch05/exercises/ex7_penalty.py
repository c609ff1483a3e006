r"""A penalty.

Write the penalty for tokens that the text already has as several tools do, which divide their logits by a constant; a right one;
and the measure of repetition. Put the penalty before `choose` in `examples/ch05/sampling.py` sees the logits. *Hand in:* the
three functions, and a paragraph on what it does to repetition, as `repeated` in `examples/ch05/repetition.py` counts it, in
greedy and in sampled text, with a row of probabilities with negative logits before and after. *A right answer shows* that
dividing a negative logit makes its token *more* probable, and corrects that.
"""

from torch import Tensor

EXERCISE = {"id": "ch05.7", "difficulty": 1, "minutes": 60, "points": {"code": 5, "paragraph": 3}}


def divided(logits: Tensor, ids: list[int], constant: float) -> Tensor:
    """Logits [V] of which those of the tokens in the text `ids` are divided by a constant above 1, once each, however often the
    token is there. The logits that were given stay as they are, and so does the dtype."""
    raise NotImplementedError


def penalised(logits: Tensor, ids: list[int], constant: float) -> Tensor:
    """The same corrected: a logit above 0 is divided by the constant, one below 0 multiplied, so that each becomes smaller."""
    raise NotImplementedError


def repeated(ids: list[int], n: int) -> list[bool]:
    """For each token of a text whether the n tokens that end with it stood in the text before, at any earlier place, even where the
    two overlap; the first n - 1 are False."""
    raise NotImplementedError
