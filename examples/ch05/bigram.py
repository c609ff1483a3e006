"""Chapter 5: a greedy model that sees only the last word ends in a cycle, from every word.

    python examples/ch05/bigram.py

The model is a table: for each word of a sentence, how often each word followed it. Its forward is a look-up, so that the same loop
runs it as runs a transformer. There are finitely many words and each has one best successor, so that after at most as many steps as
there are words one comes back, and everything behind it comes back too. cycles.py looks for the same in a transformer's text.
"""

import itertools
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import GPT2Config
from examples.ch02.model import Model
from examples.ch05.cycles import cycle
from examples.ch05.generate import generate
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, table

SENTENCE = "the cat sat on the mat and the cat saw the rug on the mat".split()


def bigram():
    """(model, forward, words): a model that knows only which word followed which in SENTENCE, as logits of log counts.

    The words, in order of appearance, are its vocabulary; the forward is a look-up, so that `generate` can run it.
    """
    words = list(dict.fromkeys(SENTENCE))
    counts = torch.zeros(len(words), len(words))
    for a, b in itertools.pairwise(SENTENCE):
        counts[words.index(a), words.index(b)] += 1
    # only the vocabulary and the number of positions matter; the other sizes are not used, and there are no weights
    config = GPT2Config(vocab_size=len(words), n_positions=1000, n_embd=1, n_layer=1, n_head=1)
    return Model(config, {}), lambda ids: counts.log()[ids], words


def measure():
    """Where the greedy text from each word of the table enters its cycle, and how long that is."""
    model, forward, words = bigram()
    rows = []
    for i, word in enumerate(words):
        whole = [i, *generate([[i]], model, 3 * len(words), forward=forward).sequence()]
        start, length = cycle(whole, 1)
        counts = forward([i])[0].exp().tolist()  # [V]
        follow = ", ".join(f"{w} {round(n)}" for w, n in zip(words, counts, strict=True) if n)
        rows.append({"starts_with": word, "followed_by": follow, "enters_after": start, "length": length})

    def goes_on(word):
        return " ".join(words[i] for i in generate([[words.index(word)]], model, 8, forward=forward).sequence())

    return {
        "sentence": " ".join(SENTENCE),
        "words": len(words),
        "starts": rows,
        "starts_that_cycle": sum(r["length"] is not None for r in rows),
        "cycle_length": rows[0]["length"],
        "longest_way_in": max(r["enters_after"] for r in rows),
        "from_cat": goes_on("cat"),
        "from_mat": goes_on("mat"),
    }


def report(values):
    """Text of {"bigram": ...}."""
    found = values["bigram"]
    rows = [[r["starts_with"], r["followed_by"], r["enters_after"], r["length"]] for r in found["starts"]]
    return "\n".join(
        [
            "A model that knows which word followed which in",
            f'"{found["sentence"]}":',
            "",
            table(["word", "followed by", "words before the cycle", "its length"], rows),
            "",
            f'From "cat" the best guesses run "{found["from_cat"]}".',
            f"{found['starts_that_cycle']} of {found['words']} starts enter a cycle of {found['cycle_length']} words, "
            f"after {found['longest_way_in']} at most.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch05.bigram",
        "exact",
        "A greedy model that sees only the last word enters a cycle from every start, and the cycle need not be of one word.",
        "A table of word pairs, not a transformer.",
        measure,
        headline=("starts_that_cycle", "int"),
        model="a bigram table",
        loads=False,
        movable=False,
    ),
)


def options():
    """The script's argument parser."""
    return Parser(prog="bigram.py", description=__doc__, keys=__file__).add("json")


@command
def main(argv=None):
    """Print where each word leads."""
    answer(options().parse_args(argv), {"bigram": measure()}, report)


if __name__ == "__main__":
    sys.exit(main())
