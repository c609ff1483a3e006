"""Chapter 11: self-speculation. A draft of the next tokens from the text so far, verified by one pass of several positions.

Shapes: T positions of a pass, V vocabulary. A decode step reads every weight to make one token. A pass of a few positions reads
them once too, so if the next tokens were guessed, one pass would say of each guess whether it is what greedy decoding chooses:
position i of the pass gives the token that follows guess i. The guesses up to the first wrong one stand, and in its place the pass
itself gives the right token. So every pass makes one token at least, and the text is that of plain greedy decoding, whatever was
guessed.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding" (2023), draft with a second model; Saxena,
"Prompt Lookup Decoding" (2023), with the text so far.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from examples.ch02.model import Model
from examples.ch05.generate import end_list, end_tokens, known_ids
from examples.ch05.sampling import choose, only
from examples.ch11.paths import CachedStep
from examples.lab.script import BadInput, as_whole

DRAFT, LONGEST = 3, 3  # tokens of a draft, and the most ids at the text's end that are looked up


def look_up(text: list[int], most: int = DRAFT, longest: int = LONGEST) -> list[int]:
    """`most` tokens that followed the last ids of `text` where these stood before; none where they never did.

    The last `longest` ids are looked for first, then fewer, down to one; of several places the latest counts. What followed may
    run into the end of the text: it then goes on with the draft itself, so that a cycle is drafted for as long as is asked.
    """
    for n in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                whole = list(text)
                for i in range(most):
                    whole.append(whole[start + n + i])
                return whole[len(text) :]
    return []


@dataclass(frozen=True)
class Speculated:
    """What `speculate` made: the new ids, and for each pass how many tokens were drafted and how many of them stood; ended: the end
    token that stopped the text, or None."""

    ids: list[int]
    drafted: list[int]
    accepted: list[int]
    ended: int | None

    @property
    def passes(self) -> int:
        """Passes through the model, the first of which reads the prompt."""
        return len(self.drafted)

    @property
    def tokens_per_pass(self) -> float:
        """New tokens over passes; 1 in plain decoding."""
        return len(self.ids) / self.passes


def speculate(
    ids: Tensor, model: Model, tokens: int, draft: int = DRAFT, longest: int = LONGEST, end="model", step=None
) -> Speculated:
    """Up to `tokens` new tokens behind the prompt `ids` [1, T], the same as `generate` makes at temperature 0, as `Speculated`.

    draft: tokens that are drafted for a pass at most, and 0 is plain decoding; longest: as in `look_up`. end: as in `generate`.
    step: what feeds ids [T] and gives logits [T, V], with `length` and `truncate`: a `CachedStep`, by default, or a faster one.
    What it holds has to be a beginning of the prompt, shorter than that by one token at least.
    The pass of several positions sums in another order than that of one, so two logits that are equal to within rounding may change
    places. Raises BadInput for settings that are no whole numbers, a prompt of no tokens or of several sequences, and where the
    last token's pass would need a position that the model does not have; and like `KVCache.truncate` once a window is full.
    """
    for name, n, least in (("tokens", tokens, 1), ("draft", draft, 0), ("longest", longest, 1)):
        if as_whole(n) is None or n < least:
            raise BadInput(f"{name} is {n!r}; give a whole number from {least}")
    if ids.ndim != 2 or ids.shape[0] != 1 or ids.shape[1] < 1:
        raise BadInput(f"ids have shape {list(ids.shape)}; give [1, T], one prompt of one token at least")
    text, prompt, room = ids[0].tolist(), ids.shape[1], model.config.n_positions
    if prompt + tokens - 1 > room:
        raise BadInput(
            f"{prompt} tokens of prompt and {tokens} new ones need {prompt + tokens - 1} positions, and n_positions is {room}; "
            f"ask for at most {max(0, room - prompt + 1)} tokens"
        )
    step = CachedStep(model, prompt + tokens - 1) if step is None else step
    if step.length >= prompt:
        raise BadInput(f"the step holds {step.length} positions, and the prompt has {prompt}; truncate it to fewer")
    ends, allowed = end_tokens(model) if end == "model" else end_list(end), known_ids(model)
    drafted, accepted, ended = [], [], None
    while len(text) - prompt < tokens and ended is None:
        most = min(draft, tokens - (len(text) - prompt) - 1)  # a pass makes one token more than it accepts
        guessed = look_up(text, most, longest) if most else []
        fed = torch.tensor(text[step.length :] + guessed, device=ids.device)  # [T], the last 1 + len(guessed) decide
        logits = step.step(fed)[-1 - len(guessed) :]  # [1 + len(guessed), V]
        chosen = choose(logits if allowed is None else only(logits, allowed), 0.0).tolist()
        stood = verified(guessed, chosen)
        new = chosen[: stood + 1]  # the guesses that stood, and the token that the pass has instead of the next
        stop = next((i for i, id in enumerate(new) if id in ends), None)
        if stop is not None:
            ended, new = new[stop], new[: stop + 1]
        step.truncate(len(text) + stood)  # what was fed behind a wrong guess is of another text
        text += new
        drafted.append(len(guessed))
        accepted.append(min(stood, len(new)))
    return Speculated(text[prompt:], drafted, accepted, ended)


def verified(guessed: list[int], chosen: list[int]) -> int:
    """How many of the first guesses are what was chosen in their places."""
    pairs = list(zip(guessed, chosen, strict=False))
    return next((i for i, (guess, choice) in enumerate(pairs) if guess != choice), len(pairs))


def replay(prompt: list[int], made: list[int], tokens: int | None = None, draft: int = DRAFT, longest: int = LONGEST) -> Speculated:
    """What `speculate` would do to make the tokens `made` behind `prompt`, without a model: they say what each pass chooses.

    tokens: how many were asked for, where an end token came before them.
    """
    tokens = len(made) if tokens is None else tokens
    text, drafted, accepted = list(prompt), [], []
    while (done := len(text) - len(prompt)) < len(made):
        most = min(draft, tokens - done - 1)
        guessed = look_up(text, most, longest) if most else []
        stood = verified(guessed, made[done:])
        text += made[done : done + stood + 1]
        drafted.append(len(guessed))
        accepted.append(stood)
    return Speculated(list(made), drafted, accepted, None)
