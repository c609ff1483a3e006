r"""Another order.

Write the whole choice, its three filters in an order that is asked for, and the draw. Then apply top-p before the temperature, in
`probabilities` in `examples/ch05/sampling.py`. *Hand in:* the two functions, and a paragraph with a row and settings where the kept
sets differ, and the text of both from the same seed. *A right answer shows* that neither order is wrong and that a setting means
nothing until its order is stated.
"""

from torch import Tensor

EXERCISE = {"id": "ch05.3", "difficulty": 2, "minutes": 60, "points": {"code": 6, "paragraph": 2}}


def filtered(logits: Tensor, order: list[str], temperature: float, top_k: int, top_p: float) -> Tensor:
    """Probabilities [V] that a token is drawn with, of logits [V], in their dtype; the temperature is above 0.

    order: the names "temperature", "top_k" and "top_p", each at most once, in the order in which they are applied; one that is not
    there is not applied. Each works on what the earlier ones left, as probabilities that sum to 1 again. top_k keeps the k largest
    (k may be above V), of equal ones the lower ids; top_p those where the mass before them is below p, and the best in any case.
    What is cut has a probability of exactly 0. The logits stay as they are.
    """
    raise NotImplementedError


def drawn(probabilities: Tensor, u: float) -> int:
    """The first id of probabilities [V] whose cumulative sum, in float64 and by id, is strictly above u in [0, 1) times the whole
    sum. An id of probability 0 is never drawn."""
    raise NotImplementedError
