"""What figures 9 to 17 must show: the numbers of chapters 5 and 10, by their own functions."""

import itertools
from functools import cache

import torch

from examples.ch02.model import load
from examples.ch03.tokens import encode
from examples.ch05.bigram import bigram
from examples.ch05.cycles import cycle
from examples.ch05.generate import generate, whole_text
from examples.ch05.sampling import LOGITS, probabilities
from examples.ch10.cache_cost import flops_of_loop, published_shapes, tokens_processed
from scripts.web_edition.figure_data import PASSAGE, PASSAGE_TOKENS
from tests.web_support import figure, fixed

SCORES = torch.tensor(LOGITS, dtype=torch.float64)  # [V]; in float64, as JavaScript computes
RAISED = 3.0  # what figure 9 adds to all scores


def share(x):
    """A probability in per cent as the figures write it: three digits behind the point where one would say 100.0 of less."""
    short = fixed(100 * x, 1)
    if short == "100.0" and x < 1 - 1e-9:
        return fixed(100 * x, 3)
    return "<0.1" if short == "0.0" and x > 0 else short


def shares(name, row):
    """{name0: text, ...} of a row of probabilities [V]; none for what has been cut."""
    return {f"{name}{i}": share(x) for i, x in enumerate(row.tolist()) if x > 0}


@figure("logits", literals=("0", "2", "4", "6"))  # the marks of the scale
def logits(candidate, raised):
    """Figure 9: differences of scores, and the ratio of probabilities that softmax makes of them."""
    scores = SCORES + (RAISED if raised else 0)
    found, at = probabilities(scores), candidate - 1
    return {
        **{f"logit{i}": fixed(x, 1) for i, x in enumerate(scores.tolist())},
        "logit": fixed(scores[at].item(), 1),
        "top": fixed(scores.max().item(), 1),
        "gap": fixed((scores.max() - scores[at]).item(), 1),
        "ratio": fixed((found[at] / found.max()).item(), 3),
        "shift": fixed(RAISED if raised else 0, 1),
    }


@figure("temperature")
def temperature(temperature):
    """Figure 10: the probabilities at a temperature, 0 among them."""
    found = probabilities(SCORES, temperature)
    return {"temperature": fixed(temperature, 1), **{f"share{i}": share(x) for i, x in enumerate(found.tolist())}}


@figure("top-k")
def top_k(k):
    """Figure 11: what top-k leaves, and the mass that it discards."""
    before, after = probabilities(SCORES), probabilities(SCORES, top_k=k)
    discarded = fixed(100 * before[after == 0].sum().item(), 2)
    return {"k": str(k), "discarded": discarded, **shares("before", before), **shares("after", after)}


@figure("top-p")
def top_p(p, temperature):
    """Figure 12: how many top-p keeps of three rows, and the mass of those."""
    row = probabilities(SCORES, temperature)
    kept = probabilities(SCORES, temperature, top_p=p) > 0
    found = {"p": fixed(p, 2), "temperature": fixed(temperature, 1), "kept": str(int(kept.sum()))}
    return found | {"mass": share(row[kept].sum().item()), **shares("share", row)}


@cache
def from_words(ids, steps):
    """The greedy text of chapter 5's table of words: a list of ids that starts with `ids`, with so many more."""
    model, forward, _ = bigram()
    return [*ids, *generate([list(ids)], model, steps, forward=forward).sequence()] if steps else list(ids)


@cache
def way_in(id):
    """(start, length) of the cycle that the greedy text from one word runs into."""
    return cycle(from_words((id,), 3 * len(bigram()[2])), 1)


@figure("greedy")
def greedy(steps, start, drawn):
    """Figure 13: the share of each best successor; where the table of words is in a cycle; with a drawn word, how many words
    after it the text is in one again."""
    _, forward, words = bigram()
    whole = from_words((words.index(start),), steps)
    best = probabilities(forward(list(range(len(words))))).max(dim=-1).values  # [V]
    found = {"steps": str(steps)} | {f"best{i}": fixed(100 * p, 0) for i, p in enumerate(best.tolist())}
    before = {"mat": "the", "rug": "the", "saw": "cat", "": None}[drawn]
    places = [t for t, i in enumerate(whole[:-1]) if words[i] == before]  # the last word is followed by none yet
    if len(places) < 2:
        entered = cycle(whole, 1)
        return found | ({} if entered is None else {"enters": str(entered[0]), "length": str(entered[1])})
    at = places[1] + 1
    id = words.index(drawn)
    chance = probabilities(forward([whole[at - 1]])[0])[id].item()
    found |= {"at": str(at), "chance": fixed(100 * chance, 0)}
    away, again = way_in(id)
    return found | ({} if steps - at < away else {"away": str(away), "again": str(again)})


@cache
def passage_lengths():
    """How many tokens the model read at each step of figure 14's passage."""
    model, read = load("embedded"), []

    def counting(ids):
        read.append(ids.shape[1])
        return model_pass(ids)

    model_pass = whole_text(model)
    generate(encode(PASSAGE, model), model, PASSAGE_TOKENS, end=None, forward=counting)
    return read


@figure("autoregression")
def autoregression(step):
    """Figure 14: how much each step reads, by the loop itself."""
    read = passage_lengths()
    prompt = {"prompt": read[0], "settled": read[step - 1] - read[0], "read": read[step - 1]}
    return {"step": str(step), "last": str(len(read)), **{key: str(n) for key, n in prompt.items()}}


@figure("naive-or-cached")
def naive_or_cached(way, step):
    """Figure 15: positions of each step, as differences of chapter 10's totals."""
    prompt = passage_lengths()[0]
    totals = [0, *(tokens_processed(prompt, new)[way] for new in range(1, step + 1))]
    rows = [after - before for before, after in itertools.pairwise(totals)]
    found = {"step": step, "read": prompt + step - 1, "total": totals[-1], "now": rows[-1]}
    return {key: str(n) for key, n in (found | {f"row{j}": n for j, n in enumerate(rows)}).items()}


@figure("totals")
def totals(tokens, prefill):
    """Figure 16: both loops on the toy, with the prompt's pass in the cached total and without it."""
    config, prompt, _ = published_shapes()["toy"]
    counted = tokens_processed(prompt, tokens)
    cached, ratio = ("cached", "ratio") if prefill else ("without_prefill", "ratio_without_prefill")
    found = {"tokens": str(tokens), "prompt": str(prompt), "naive": f"{counted['naive']:,}", "cached": f"{counted[cached]:,}"}
    found["ratio"] = fixed(counted[ratio], 1)
    if prefill:
        naive, cached = flops_of_loop(config, prompt, tokens)
        found |= {
            "naive_mflop": fixed(naive / 1e6, 3),
            "cached_mflop": fixed(cached / 1e6, 3),
            "flop_ratio": fixed(naive / cached, 1),
        }
    return found


@figure("totals-gpt2", literals=("GPT-2",))
def totals_gpt2(tokens, counted):
    """Figure 17: both loops on GPT-2's shape, in positions, in positions without the prefill, or in FLOPs; marks of the axis."""
    config, prompt, _ = published_shapes()["gpt2"]
    most = flops_of_loop(config, prompt, 100)[0] / 1e9 if counted == "flops" else tokens_processed(prompt, 100)["naive"]
    step = max(n * 10**power for n in (1, 2, 5) for power in range(9) if 2 * n * 10**power <= most)  # two marks at least
    found = {"tokens": str(tokens), "prompt": str(prompt)}
    found |= {f"mark{i}": f"{mark:,}" for i, mark in enumerate(range(0, int(most) + 1, step))}
    if counted == "flops":
        naive, cached = flops_of_loop(config, prompt, tokens)
        return found | {"naive": fixed(naive / 1e9, 3), "cached": fixed(cached / 1e9, 3), "ratio": fixed(naive / cached, 1)}
    row = tokens_processed(prompt, tokens)
    cached, ratio = ("cached", "ratio") if counted == "positions" else ("without_prefill", "ratio_without_prefill")
    return found | {"naive": f"{row['naive']:,}", "cached": f"{row[cached]:,}", "ratio": fixed(row[ratio], 1)}
