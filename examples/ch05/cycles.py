"""The measurements of chapter 5, each a function that returns plain values: no printing, no files, no global state.

`model` is always a chapter 2 `Model`; what takes a `forward` takes it as `generate` does.
"""

import itertools
import math

import torch

from examples.ch02.config import GPT2Config
from examples.ch02.model import Model, run
from examples.ch03 import tokens as ch03
from examples.ch03.tokens import decode, encode, random_ids
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.sampling import draw, probabilities
from examples.lab.experiment import largest, worst

PROMPTS = (*ch03.PROMPTS, "HAMLET:\n", "JULIET:", "What is the", "O")
WINDOW = 64  # tokens that each step of the long runs sees
LONG = 400  # new tokens of the long runs
POLICIES = (
    {"policy": "greedy", "temperature": 0.0},
    {"policy": "temperature 0.3", "temperature": 0.3},
    {"policy": "temperature 0.7", "temperature": 0.7},
    {"policy": "temperature 1", "temperature": 1.0},
    {"policy": "temperature 1, top-p 0.9", "temperature": 1.0, "top_p": 0.9},
    {"policy": "temperature 1, top-k 40", "temperature": 1.0, "top_k": 40},
)


# -------------------------------------------------------------------------------------------------- sampling beside a library


def library_probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """What transformers' own processors leave of logits [N, V]: probabilities [N, V]."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    steps = [TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    steps += [TopKLogitsWarper(top_k)] if top_k is not None else []
    steps += [TopPLogitsWarper(top_p)] if top_p is not None else []
    for step in steps:
        logits = step(None, logits)
    return torch.softmax(logits, dim=-1)


def logits_rows(count, seed=0):
    """Rows of logits to try filters on, [count][V] of several V: flat, peaked, spread over magnitudes, some impossible tokens,
    some with equal values."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(count):
        V = (2, 5, 11, 50, 200, 1024)[i % 6]
        x = torch.randn(V, generator=generator)
        x = x * (0.01, 1.0, 3.0, 20.0, 300.0)[i % 5]
        if i % 7 == 1:
            x = x.round()  # many ties
        if i % 7 == 2:
            x[torch.rand(V, generator=generator) < 0.4] = -math.inf
            x[0] = 0.0
        if i % 7 == 3:
            x = x + 1e4
        rows.append(x)
    return rows


SETTINGS = [(t, k, p) for t in (1.0, 0.7, 1.7, 0.05) for k in (None, 1, 3, 40, 5000) for p in (None, 0.1, 0.5, 0.9, 0.999, 1.0)]


def cuts_a_tie(logits, ours):
    """Whether the last token that `ours` [V] keeps has an equal among those it cuts: there the library may keep others."""
    kept = ours > 0
    cut = ~kept & (logits > -math.inf)
    if not cut.any():
        return False
    return bool(logits[kept].min() <= logits[cut].max())


def compare_filters(count=1000, seed=0):
    """Our probabilities beside the library's on `count` rows, each with one of SETTINGS: kept sets, and the largest difference.

    The kept sets are compared with the library on the same float32 logits; the probabilities with the library in float64, since
    it divides by the temperature before it takes the largest off, and loses digits where logits are large.
    """
    same, ties, farthest, library = 0, 0, 0.0, 0.0
    for i, logits in enumerate(logits_rows(count, seed)):
        setting = SETTINGS[(i * 37) % len(SETTINGS)]
        ours = probabilities(logits, *setting)
        if cuts_a_tie(logits, ours):
            ties += 1
            continue
        rounded = library_probabilities(logits[None], *setting)[0]
        theirs = library_probabilities(logits[None].double(), *setting)[0]
        same += bool(((ours > 0) == (rounded > 0)).all())
        farthest = worst([farthest, largest(ours.double() - theirs)])
        library = worst([library, largest(rounded.double() - theirs)])
    found = {"rows": count, "ties_cut": ties, "compared": count - ties, "same_kept": same}
    return found | {"largest_difference": farthest, "library_in_float32": library}


def draw_frequencies(logits, draws, seed=0, **settings):
    """How often each id is drawn, beside its probability: [{id, probability, frequency, deviations}], the last in standard
    deviations of the count."""
    p = probabilities(logits, **settings).double()
    generator = torch.Generator().manual_seed(seed)
    counts = torch.bincount(draw(p.float().expand(draws, -1), generator), minlength=len(p))
    rows = []
    for i, (pi, n) in enumerate(zip(p.tolist(), counts.tolist(), strict=True)):
        spread = math.sqrt(pi * (1 - pi) / draws)
        deviations = (n / draws - pi) / spread if spread else 0.0  # where p is 0 or 1 the frequency has to be p itself
        rows.append({"id": i, "probability": pi, "frequency": n / draws, "deviations": deviations})
    return rows


# ------------------------------------------------------------------------------------------------------ the loop by a library


def library_greedy(library, ids, tokens, end=None):
    """transformers' own `generate`, greedy with its cache: new ids of one prompt [1, T], as a list."""
    settings = dict(max_new_tokens=tokens, do_sample=False, use_cache=True, pad_token_id=0, eos_token_id=end)
    made = library.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return made[0, ids.shape[1] :].tolist()


def compare_greedy(model, texts, tokens, forward=None, library=None):
    """Our greedy tokens beside transformers' from each text: [{text, prompt, tokens, same}], `same` up to the first difference.

    tokens: None goes to the model's last position. forward: makes the function for `generate` anew for each text.
    """
    library = library_model(model) if library is None else library
    rows = []
    for text in texts:
        ids = encode(text, model)
        n = tokens or model.config.n_positions - ids.shape[1] + 1
        ours = generate(ids, model, n, end=None, forward=forward and forward(model)).sequence()
        theirs = library_greedy(library, ids, n)
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), n)
        rows.append({"text": text, "prompt": ids.shape[1], "tokens": n, "same": same})
    return rows


def compare_sequences(model, texts, tokens, temperature, forward=None, seed=0):
    """A batch of unequal prompts beside each alone, row r from seed + r: [{text, prompt, tokens, same}]."""
    prompts = [encode(text, model)[0] for text in texts]
    settings = dict(temperature=temperature, end=None)
    together = generate(prompts, model, tokens, **settings, seed=seed, forward=forward and forward(model, len(prompts)))
    rows = []
    for r, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
        alone = generate([prompt], model, tokens, **settings, seed=seed + r, forward=forward and forward(model, 1))
        same = sum(a == b for a, b in zip(together.sequence(r), alone.sequence(), strict=True))
        rows.append({"text": text, "prompt": len(prompt), "tokens": tokens, "same": same})
    return rows


# ----------------------------------------------------------------------------------------------------------------- repetition

SENTENCE = "the cat sat on the mat and the cat saw the rug on the mat".split()


def bigram():
    """(model, forward, words): a model that knows only which word followed which in SENTENCE, as logits of log counts.

    The words, in order of appearance, are its vocabulary; the forward is a look-up, so that `generate` can run it.
    """
    words = list(dict.fromkeys(SENTENCE))
    counts = torch.zeros(len(words), len(words))
    for a, b in itertools.pairwise(SENTENCE):
        counts[words.index(a), words.index(b)] += 1
    config = GPT2Config(vocab_size=len(words), n_positions=1000, n_embd=1, n_layer=1, n_head=1)
    return Model(config, {}), lambda ids: counts.log()[ids], words


def cycle(ids, window):
    """(start, length) of the cycle that `ids` run into, or None: from `start` on every token is the one `length` before it.

    Found where the last `window` tokens are those of an earlier step. A step that sees only those must then choose as it did,
    so what has repeated once goes on for ever: this is no pattern that may end.
    """
    seen = {}
    for t in range(window, len(ids) + 1):
        state = tuple(ids[t - window : t])
        if state in seen:
            length = t - seen[state]
            start = next(s for s in range(seen[state] + 1) if all(ids[i] == ids[i + length] for i in range(s, t - length)))
            return start, length
        seen[state] = t
    return None


def greedy_cycles(model, texts=PROMPTS, tokens=LONG, window=WINDOW, progress=lambda: None):
    """Where the greedy text after each prompt enters its cycle: [{text, prompt, enters_after, length, shows}], and {ids, start}
    of each whole text.

    enters_after: new tokens before the first that repeats for ever. shows: one round of the cycle.
    """
    rows, whole_texts = [], []
    for text in texts:
        ids = text_or_ids(model, text)
        whole = ids + generate([ids], model, tokens, end=None, window=window).sequence()
        found = cycle(whole, window)
        start, length = found or (None, None)
        shows = decode(whole[start : start + length], model) if found and model.tokenizer else None
        entered = None if found is None else max(0, start - len(ids))
        rows.append({"text": text, "prompt": len(ids), "enters_after": entered, "length": length, "shows": shows})
        whole_texts.append({"ids": whole, "start": start})
        progress()
    return rows, whole_texts


def text_or_ids(model, text):
    """ids of a text as a list; without a tokenizer, of as many random ids as it has words."""
    if model.tokenizer is None:
        return random_ids(model, len(text.split()), seed=len(text))[0].tolist()
    return encode(text, model)[0].tolist()


def probability_by_round(model, whole, start, length, window=WINDOW, rounds=8):
    """Mean probability of the chosen token in each of the first rounds of a cycle: does repeating make it surer?"""
    means = []
    for round in range(rounds):
        chosen = []
        for t in range(start + round * length, min(start + (round + 1) * length, len(whole))):
            ids = torch.tensor([whole[max(0, t - window) : t]])
            if ids.shape[1]:
                p = torch.softmax(run(model, ids)[0, -1].double(), dim=-1)
                chosen.append(p[whole[t]].item())
        if len(chosen) < length:
            break
        means.append(sum(chosen) / len(chosen))
    return means


def one_sampled_step(model, whole, start, length, seeds=4, tokens=300, window=WINDOW):
    """Within a cycle, in its third round, one token drawn at temperature 1 and then greedy again, once for each seed.

    The draws are spread over the round: seed s draws the token that is s / seeds of the round in.

    [{seed, same_token, after, length, same_cycle}]: whether the draw took the greedy token all the same; how many tokens after it
    the text is in a cycle again, how long that is, and whether it is the old one (all None where `tokens` more show none).
    """
    old = {tuple(whole[start + i : start + i + length]) for i in range(length)}  # the cycle, from each of its tokens
    rows = []
    for seed in range(seeds):
        at = start + 2 * length + seed * length // seeds
        drawn = generate([whole[:at]], model, 1, temperature=1.0, seed=seed, end=None, window=window).sequence()
        row = {"seed": seed, "same_token": drawn[0] == whole[at], "after": None, "length": None, "same_cycle": None}
        first = max(0, at + 1 - window)  # the first token that the next step sees
        text = whole[first:at] + drawn
        text += generate([text], model, tokens, end=None, window=window).sequence()
        found = cycle(text, window)
        if found:
            begin, period = found
            row |= {
                "after": max(0, first + begin - at - 1),
                "length": period,
                "same_cycle": tuple(text[begin : begin + period]) in old,
            }
        rows.append(row)
    return rows


def repeated(ids, n=4):
    """For each token: whether the n tokens that end with it stood in the text before."""
    seen, found = set(), [False] * min(n - 1, len(ids))
    for t in range(n, len(ids) + 1):
        gram = tuple(ids[t - n : t])
        found.append(gram in seen)
        seen.add(gram)
    return found


def repetition_by_policy(model, texts=PROMPTS, width=30, seed=0, policies=POLICIES, forward=None):
    """How much of a text repeats itself under each policy, up to the model's last position: [{policy, share, last, shares}].

    share: of new tokens that end four tokens seen before, over all prompts; shares: the same by stretches of `width` tokens;
    last: of the last stretch. All prompts run as one batch; `forward(model, batch)` makes another forward than the oracle.
    """
    prompts = [text_or_ids(model, text) for text in texts]
    tokens = (model.config.n_positions - max(map(len, prompts)) + 1) // width * width
    rows = []
    for policy in policies:
        settings = {k: v for k, v in policy.items() if k != "policy"}
        by = forward and forward(model, len(prompts))
        made = generate(prompts, model, tokens, **settings, seed=seed, end=None, forward=by)
        flags = [repeated(p + made.sequence(r))[-tokens:] for r, p in enumerate(prompts)]  # [prompts][tokens]
        shares = [sum(sum(row[i : i + width]) for row in flags) / (width * len(flags)) for i in range(0, tokens, width)]
        rows.append({"policy": policy["policy"], "share": sum(shares) / len(shares), "last": shares[-1], "shares": shares})
    return rows
