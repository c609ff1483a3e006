"""Chapter 5: greedy text runs into a cycle, and one draw does not get it out for good.

    python examples/ch05/cycles.py                                   # one prompt, whose cycle comes early
    python examples/ch05/cycles.py --prompt "HAMLET:" --tokens 400 --window 32
    python examples/ch05/cycles.py --all                             # the book's eight prompts, in two minutes

A greedy step depends only on what it sees. A model that sees a window of the last W tokens must therefore go on as it did before
as soon as it sees the same again: a cycle is found, and proved, where a window comes back. bigram.py shows it where W is one word.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, run
from examples.ch03 import tokens as ch03
from examples.ch03.tokens import decode, encode, random_ids
from examples.ch05.generate import generate
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, progress_bar, table, whole_number

PROMPTS = (*ch03.PROMPTS, "HAMLET:\n", "JULIET:", "What is the", "O")
EARLY = ("JULIET:",)  # of them: the one whose cycle the embedded model enters first
WINDOW = 64  # tokens that each step of the long runs sees
LONG = 400  # new tokens of the long runs
AFTER_DRAW = 300  # tokens looked at behind a draw


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


def one_sampled_step(model, whole, start, length, seeds=4, tokens=AFTER_DRAW, window=WINDOW, progress=lambda: None):
    """Within a cycle, in its third round, one token drawn at temperature 1 and then greedy again, once for each seed.

    The draws are spread over the round: seed s draws the token that is s / seeds of the round in. Raises ValueError where `whole`
    ends before its third round does.

    [{seed, same_token, after, length, same_cycle}]: whether the draw took the greedy token all the same; how many tokens after it
    the text is in a cycle again, how long that is, and whether it is the old one (all None where `tokens` more show none).
    """
    if len(whole) < start + 3 * length:
        raise ValueError(f"a text of {len(whole)} tokens ends before the third round of a cycle of {length} from {start} does")
    old = {tuple(whole[start + i : start + i + length]) for i in range(length)}  # the cycle, from each of its tokens
    rows = []
    for seed in range(seeds):
        at = start + 2 * length + seed * length // seeds
        drawn = generate([whole[:at]], model, 1, temperature=1.0, seed=seed, end=None, window=window).sequence()
        first = max(0, at + 1 - window)  # the first token that the next step sees
        text, left, found = whole[first:at] + drawn, tokens, None
        while found is None and left:  # fifty at a time: what comes behind a proved cycle is known
            n = min(50, left)
            text += generate([text], model, n, end=None, window=window).sequence()
            found, left = cycle(text, window), left - n
        row = {"seed": seed, "same_token": drawn[0] == whole[at], "after": None, "length": None, "same_cycle": None}
        if found:
            begin, period = found
            after, again = max(0, first + begin - at - 1), tuple(text[begin : begin + period])
            row |= {"after": after, "length": period, "same_cycle": again in old}
        rows.append(row)
        progress()
    return rows


# -------------------------------------------------------------------------------------------------------- the measurements


def measure(model, runs=None, tokens=LONG, window=WINDOW):
    """Which greedy texts are in a cycle, from where and how long; and whether the chosen tokens grow surer from round to round.

    runs: what `greedy_cycles` returned for so many tokens and this window, by default for PROMPTS.
    """
    rows, texts = greedy_cycles(model, PROMPTS, tokens, window) if runs is None else runs
    found = [r for r in rows if r["length"]]
    rounds = [
        probability_by_round(model, text["ids"], text["start"], row["length"], window, rounds=4)
        for row, text in zip(rows, texts, strict=True)
        if row["length"]
    ]
    full = [x for x in rounds if len(x) == 4]
    return {
        "window": window,
        "tokens": tokens,
        "prompts": rows,
        "prompts_count": len(rows),
        "in_a_cycle": len(found),
        "first_entry": min((r["enters_after"] for r in found), default=None),
        "last_entry": max((r["enters_after"] for r in found), default=None),
        "shortest": min((r["length"] for r in found), default=None),
        "longest": max((r["length"] for r in found), default=None),
        "rounds": [{"round": i + 1, "mean_probability": sum(x[i] for x in full) / len(full)} for i in range(4 if full else 0)],
        "surer_in_round_4": sum(x[3] > x[0] for x in full),
        "with_4_rounds": len(full),
    }


def measure_one_step(model, runs=None, window=WINDOW, seeds=4, progress=lambda: None):
    """One drawn token within each cycle whose third round is there, and what the greedy text behind it comes to.

    runs: what `greedy_cycles` returned for this window, by default for the last four of PROMPTS.
    """
    rows = []
    for row, text in zip(*(greedy_cycles(model, PROMPTS[4:], window=window) if runs is None else runs), strict=True):
        ids, start, length = text["ids"], text["start"], row["length"]
        if length and len(ids) >= start + 3 * length:
            found = one_sampled_step(model, ids, start, length, seeds, window=window, progress=progress)
            rows += [{"text": row["text"], "old_length": length, **r} for r in found]
    moved = [r for r in rows if not r["same_token"]]
    return {
        "steps": rows,
        "draws": len(rows),
        "another_token": len(moved),
        "in_a_cycle_again": sum(r["same_cycle"] is not None for r in moved),
        "back_in_the_old_cycle": sum(r["same_cycle"] is True for r in moved),
        "in_another_cycle": sum(r["same_cycle"] is False for r in moved),
        f"in_none_within_{AFTER_DRAW}": sum(r["same_cycle"] is None for r in moved),
        "longest_way_to_a_cycle": max((r["after"] for r in moved if r["after"] is not None), default=None),
    }


def report(values):
    """Text of {"cycles": ..., "one-step": ...}."""
    c, d = values["cycles"], values["one-step"]

    def cells(row, *keys):
        return ["-" if row[key] is None else row[key] for key in keys]

    prompts = [
        [repr(r["text"])[:40], *cells(r, "enters_after", "length"), repr(r["shows"])[:40] if r["shows"] else "-"]
        for r in c["prompts"]
    ]
    rounds = [[r["round"], f"{r['mean_probability']:.3f}"] for r in c["rounds"]]
    steps = [
        [
            repr(r["text"])[:40],
            "the greedy one" if r["same_token"] else "another",
            *cells(r, "after", "length"),
            {True: "the old one", False: "another", None: "none"}[r["same_cycle"]],
        ]
        for r in d["steps"]
    ]
    parts = [
        f"Greedy text, with a window of {c['window']} tokens, for {c['tokens']:,} new ones:",
        "",
        table(["prompt", "new tokens before the cycle", "its length", "one round"], prompts),
    ]
    if rounds:
        parts += ["", table(["round", "mean probability of its tokens"], rounds)]
    if steps:
        heads = ["one token drawn in the cycle of", "it was", "in a cycle after", "its length", "which"]
        parts += ["", table(heads, steps)]
    end = (
        f"Texts in a cycle: {c['in_a_cycle']} of {c['prompts_count']}.\nDraws of another token: {d['another_token']}, of which "
        f"{d['in_a_cycle_again']} led into a cycle again, {d['back_in_the_old_cycle']} into the old one."
    )
    return "\n".join([*parts, "", end])


EXPERIMENTS = (
    Experiment(
        "ch05.cycles",
        "observation",
        "With a window, greedy decoding of the embedded model enters a cycle from every prompt tried, of many tokens.",
        "Eight prompts, one small model, a window of 64; how soon and how long depends on all three.",
        measure,
        headline=("in_a_cycle", "int"),
        seconds=35,
    ),
    Experiment(
        "ch05.one-step",
        "observation",
        "One sampled token does not end the repetition: greedy decoding is soon in a cycle again, mostly in the old one.",
        "Four prompts and four draws each, one in each quarter of the third round; 300 tokens looked at.",
        measure_one_step,
        headline=("in_a_cycle_again", "int"),
        seconds=35,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cycles.py", description=__doc__, keys=__file__)
    about = "by default JULIET:, whose cycle comes early; for random weights as many random ids as it has words"
    parser.add_argument("--prompt", default=None, metavar="TEXT", help=about)
    parser.add_argument("--all", action="store_true", help="the book's eight prompts, in two minutes")
    parser.add_argument(
        "--tokens", type=whole_number(1), default=None, metavar="N", help="new ones: by default 150, with --all 400"
    )
    parser.add_argument("--window", type=whole_number(1), default=WINDOW, metavar="W", help="tokens that each step sees")
    parser.add_argument("--draws", type=whole_number(1), default=4, metavar="N", help="in each cycle, each from its own seed")
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print where greedy text runs into a cycle, and what one draw changes."""
    args = options().parse_args(argv)
    model = load_for(args)
    texts = PROMPTS if args.all else EARLY if args.prompt is None else (args.prompt,)
    tokens = args.tokens or (LONG if args.all else 150)
    with progress_bar("run", len(texts) * (1 + args.draws)) as bar:
        runs = greedy_cycles(model, texts, tokens, args.window, bar.update)
        values = {
            "cycles": measure(model, runs, tokens, args.window),
            "one-step": measure_one_step(model, runs, args.window, args.draws, bar.update),
        }
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
