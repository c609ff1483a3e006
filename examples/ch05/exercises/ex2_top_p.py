r"""An off-by-one that tests miss.

Write top-p. Then change `keep_top_p` in `examples/ch05/sampling.py` so that it drops the token that crosses. Keep the line by which
the best one stays. *Hand in:* the function; how many of the thousand rows of `examples/ch05/sampling_agreement.py` (seed 0) notice;
and a paragraph on the settings for which they do. *A right answer shows* that rows of which one token is kept do not, and says what
an empty kept set would do to softmax.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch05.2",
    "difficulty": 2,
    "minutes": 50,
    "points": {"code": 6, "numbers": 1, "paragraph": 2},
    "numbers": {"rows_that_notice": "rows compared, of the thousand, in which other tokens are kept than the library keeps"},
}


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Logits [..., V], of which those stay where the mass before a token is below p, and all others are minus infinity.

    The mass before a token is the sum of the probabilities that stand before it when the row is sorted, largest first, equal ones
    by id. The best token stays, however small p is; p = 1 keeps all, those of tiny probability too. What is given stays as it is,
    and its dtype as well. A logit may be minus infinity already, and is so afterwards.
    """
    raise NotImplementedError
