r"""The tail by hand.

Write softmax with a temperature, top-k, and the mass that stands before each token. Then give the five candidates scores of your
own, so that $p = 0.9$ keeps four at $\tau = 1$, and two at $\tau = 0.5$. `examples/ch05/five_candidates.py` with
`--logits 4,2.9,1.4,0.5,0` shows the form. *Hand in:* the three functions, and a paragraph with the scores and both tables. *A right
answer shows* the mass before each token, and uses the rule for the one that crosses.
"""

from torch import Tensor

EXERCISE = {"id": "ch05.1", "difficulty": 1, "minutes": 50, "points": {"code": 6, "paragraph": 2}}


def softmax_at(logits: Tensor, temperature: float) -> Tensor:
    """Probabilities [..., V], of the dtype of logits [..., V], at a temperature of 0 or more; logits stay as they are.

    At 0 the largest logit has probability 1 and all others 0; of equal ones the first. However small the temperature is, as 1e-46,
    and however large the logits are, nothing is NaN.
    """
    raise NotImplementedError


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Logits [..., V] of which the k largest stay as they are and all others are minus infinity; of equal ones the lower ids stay,
    k of them in all. A k above V keeps all. What is given stays as it is."""
    raise NotImplementedError


def mass_before(probabilities: Tensor) -> Tensor:
    """[V]: for each id of probabilities [V] the sum of those that stand before it when they are sorted, largest first, and equal
    ones by id. The result is in the order of the ids."""
    raise NotImplementedError
