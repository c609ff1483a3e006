"""Every experiment and every claim of the book: what `make evidence` runs and the register lists.

An experiment measures with functions of a chapter's scripts and returns plain values, with units in their names and floats
rounded to what they mean: `exact` ones to nothing that depends on a machine, worst values to one significant digit, sizes and
times to three.
"""

import torch

from examples.ch03.tokens import PROMPTS
from examples.ch04.library import library_model
from examples.ch05 import repetition as ch05
from examples.ch05 import sampling
from examples.ch05.generate import generate
from examples.ch10.kv_cache import Cached
from examples.lab.experiment import Experiment, sig, tolerance
from examples.lab.experiment import worst as find_worst
from scripts import registry_ch14

# -------------------------------------------------------------------------------------------------------------- chapter 5


def _example(_=None):
    logits = torch.tensor(sampling.LOGITS)
    found = sampling.worked_example(logits)
    rows = sampling.candidates(logits, count=len(logits))
    names = sampling.CANDIDATES

    def percent(x):
        return round(100 * x, 1)

    return {
        "candidates": [{"candidate": names[r["id"]], "logit": sig(r["logit"]), "percent": percent(r["probability"])} for r in rows],
        "mat_percent": percent(rows[0]["probability"]),
        "temperatures": [
            {
                "temperature": t["temperature"],
                **{name: percent(x) for name, x in zip(names, t["probabilities"], strict=True)},
                "probabilities": [round(x, 4) for x in t["probabilities"]],
            }
            for t in found["by_temperature"]
        ],
        "top_k": [{"k": r["k"], "cut_percent": percent(r["cut"])} for r in found["by_top_k"]],
        "top_p": [{"p": r["p"], "kept": r["kept"], "mass_percent": percent(r["mass"])} for r in found["by_top_p"]],
        "after_temperature_half_kept_at_p_0_9": int((sampling.probabilities(logits, 0.5, top_p=0.9) > 0).sum()),
        "after_temperature_2_kept_at_p_0_9": int((sampling.probabilities(logits, 2.0, top_p=0.9) > 0).sum()),
    }


def _filters(_=None):
    found = ch05.compare_filters()
    counts = {key: found[key] for key in ("rows", "ties_cut", "compared", "same_kept")}
    strays = found["library_in_float32"] > 1e-4
    counts |= {"settings": len(ch05.SETTINGS), "library_in_float32_strays_above_1e_4": strays}
    within = tolerance(1e-6, found["largest_difference"], **counts)
    return within | {"held": within["held"] and found["same_kept"] == found["compared"]}


def _draws(_=None):
    rows = ch05.draw_frequencies(torch.tensor(sampling.LOGITS), 100_000)
    kept = ch05.draw_frequencies(torch.tensor(sampling.LOGITS), 100_000, top_p=0.9)
    never = all(r["frequency"] == 0 for r in kept if r["probability"] == 0)
    worst = find_worst(abs(r["deviations"]) for r in rows + kept)
    found = tolerance(4, worst, draws=100_000, candidates=len(rows), cut_ones_never_drawn=never)
    return found | {"held": found["held"] and never}


def _all_same(rows, **values):
    """A tolerance of no differing token at all, from rows with `tokens` and `same`."""
    tokens, same = sum(r["tokens"] for r in rows), sum(r["same"] for r in rows)
    return tolerance(0, tokens - same, tokens=tokens, same=same, rows=rows, **values)


def _greedy(model):
    library = library_model(model)
    whole = ch05.compare_greedy(model, PROMPTS[:1], None, library=library)
    return _all_same(whole + ch05.compare_greedy(model, PROMPTS[1:], 60, library=library), positions=model.config.n_positions)


def _rows(model):
    rows = ch05.compare_sequences(model, PROMPTS, 40, 0.8)
    return _all_same(rows, prompts=len(rows), longest=max(r["prompt"] for r in rows), shortest=min(r["prompt"] for r in rows))


def _bigram(_=None):
    model, forward, words = ch05.bigram()
    rows = []
    for i, word in enumerate(words):
        whole = [i, *generate([[i]], model, 3 * len(words), forward=forward).sequence()]
        start, length = ch05.cycle(whole, 1)
        rows.append({"starts_with": word, "enters_after": start, "length": length})
    shown = [words[i] for i in generate([[words.index("cat")]], model, 8, forward=forward).sequence()]
    out = [words[i] for i in generate([[words.index("mat")]], model, 8, forward=forward).sequence()]
    return {
        "sentence": " ".join(ch05.SENTENCE),
        "words": len(words),
        "starts": rows,
        "starts_that_cycle": sum(r["length"] is not None for r in rows),
        "cycle_length": rows[0]["length"],
        "longest_way_in": max(r["enters_after"] for r in rows),
        "from_cat": " ".join(shown),
        "from_mat": " ".join(out),
    }


def _cycles(model):
    rows, texts = ch05.greedy_cycles(model)
    found = [r for r in rows if r["length"]]
    rounds = [
        ch05.probability_by_round(model, text["ids"], text["start"], r["length"], rounds=4)
        for r, text in zip(rows, texts, strict=True)
        if r["length"]
    ]
    full = [x for x in rounds if len(x) == 4]
    return {
        "window": ch05.WINDOW,
        "tokens": ch05.LONG,
        "prompts": rows,
        "prompts_count": len(rows),
        "in_a_cycle": len(found),
        "first_entry": min((r["enters_after"] for r in found), default=None),
        "last_entry": max((r["enters_after"] for r in found), default=None),
        "shortest": min((r["length"] for r in found), default=None),
        "longest": max((r["length"] for r in found), default=None),
        "rounds": [{"round": i + 1, "mean_probability": sig(sum(x[i] for x in full) / len(full))} for i in range(4 if full else 0)],
        "surer_in_round_4": sum(x[3] > x[0] for x in full),
        "with_4_rounds": len(full),
    }


def _one_step(model):
    rows = []
    for row, text in zip(*ch05.greedy_cycles(model, ch05.PROMPTS[4:]), strict=True):
        if row["length"]:
            found = ch05.one_sampled_step(model, text["ids"], text["start"], row["length"])
            rows += [{"text": row["text"], "old_length": row["length"], **r} for r in found]
    moved = [r for r in rows if not r["same_token"]]
    return {
        "steps": rows,
        "draws": len(rows),
        "another_token": len(moved),
        "in_a_cycle_again": sum(r["same_cycle"] is not None for r in moved),
        "back_in_the_old_cycle": sum(r["same_cycle"] is True for r in moved),
        "in_another_cycle": sum(r["same_cycle"] is False for r in moved),
        "in_none_within_300": sum(r["same_cycle"] is None for r in moved),
        "longest_way_to_a_cycle": max((r["after"] for r in moved if r["after"] is not None), default=None),
    }


def _policies(model):
    seeds = (0, 100, 200)
    runs = [ch05.repetition_by_policy(model, seed=seed, forward=Cached) for seed in seeds]
    rows = []
    for same in zip(*runs, strict=True):
        shares = [sum(x) / len(x) for x in zip(*(r["shares"] for r in same), strict=True)]  # [stretches]
        rows.append(
            {
                "policy": same[0]["policy"],
                "percent": round(100 * sum(r["share"] for r in same) / len(same), 1),
                "least_percent": round(100 * min(r["share"] for r in same), 1),
                "most_percent": round(100 * max(r["share"] for r in same), 1),
                "last_percent": round(100 * shares[-1], 1),
                "shares": [round(x, 3) for x in shares],
            }
        )
    return {
        "width": 30,
        "prompts": len(ch05.PROMPTS),
        "seeds": len(seeds),
        "tokens": 30 * len(rows[0]["shares"]),
        "policies": rows,
        "greedy_last_percent": rows[0]["last_percent"],
        "temperature_1_last_percent": rows[3]["last_percent"],
    }


EXPERIMENTS = (
    Experiment(
        "ch05.example",
        "exact",
        "Temperature reshapes probabilities and keeps their order; top-k cuts to a count, top-p to a mass.",
        "Five candidates with made-up scores, each filter alone unless it is said.",
        _example,
        model="five candidates",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch05.filters",
        "tolerance",
        "Our probabilities are those of transformers' processors within 1e-6, and the kept sets are the same.",
        "Rows whose last kept token has an equal among the cut ones are left out: there the two have different rules.",
        _filters,
        model="1,000 rows of random logits",
        loads=False,
        movable=False,
        seconds=2,
    ),
    Experiment(
        "ch05.draws",
        "tolerance",
        "The ids that are drawn have the frequencies that their probabilities say, within four standard deviations.",
        "One seed, five candidates; nothing about the generator's quality beyond this.",
        _draws,
        model="five candidates",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch05.greedy",
        "tolerance",
        "Greedy decoding by the oracle gives transformers' tokens, one by one, up to the model's last position.",
        "One prompt to the last position and three for 60 tokens; a near tie could part two right programs.",
        _greedy,
        seconds=15,
    ),
    Experiment(
        "ch05.rows",
        "tolerance",
        "In a batch of unequal prompts, sampled, each row has the tokens that it has alone.",
        "Four prompts, 40 tokens each; rounding differs between batches, so a near tie could part them.",
        _rows,
        seconds=4,
    ),
    Experiment(
        "ch05.bigram",
        "exact",
        "A greedy model that sees only the last word enters a cycle from every start, and the cycle need not be of one word.",
        "A table of word pairs, not a transformer.",
        _bigram,
        model="a bigram table",
        loads=False,
        movable=False,
    ),
    Experiment(
        "ch05.cycles",
        "observation",
        "With a window, greedy decoding of the embedded model enters a cycle from every prompt tried, of many tokens.",
        "Eight prompts, one small model, a window of 64; how soon and how long depends on all three.",
        _cycles,
        seconds=35,
    ),
    Experiment(
        "ch05.one-step",
        "observation",
        "One sampled token does not end the repetition: greedy decoding is soon in a cycle again, mostly in the old one.",
        "Four prompts and four draws each, one in each quarter of the third round; 300 tokens looked at.",
        _one_step,
        seconds=60,
    ),
    Experiment(
        "ch05.policies",
        "observation",
        "The higher the temperature, the less of the text repeats itself; greedy text repeats most.",
        "Eight prompts and three seeds, no window, run with chapter 10's cache; repeating less is not being better.",
        _policies,
        seconds=12,
    ),
    *registry_ch14.EXPERIMENTS,
)
