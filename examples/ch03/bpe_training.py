"""Chapter 3: how the merges of a byte-level BPE are learned: count all pairs of neighbours, join the most frequent, count again.

    python examples/ch03/bpe_training.py
    python examples/ch03/bpe_training.py --file notes.txt --merges 50

A tie is the common case in a short text, and the rule that settles it decides which pieces there are. The library's rule, which is
followed here: of pairs that stand there equally often, the one whose left piece has the lower id, and then whose right piece has.
Letters have the first 256 ids in the order of their code points, and each new piece the next.
"""

import itertools
import sys
from collections import Counter
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.model import load
from examples.ch03.bpe import LETTERS, read_bpe, spelt, words
from examples.ch03.held_text import ESSAY, PLAY
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number

MERGES, SHOWN = 300, 12


def train(text: str, merges: int) -> list[dict]:
    """The first `merges` merges of a text, as rows of {left, right, times, as_often}: fewer where no pair is left.

    times: how often the pair stood there when it was joined. as_often: how many other pairs stood there as often.
    """
    times = Counter(words(text))  # a word that stands there twice counts twice, and is cut once
    cut = {word: [*spelt(word)] for word in times}  # the pieces of each word so far
    ids = {letter: i for i, letter in enumerate(sorted(LETTERS))}
    rows = []
    while len(rows) < merges:
        pairs = Counter()
        for word, pieces in cut.items():
            for pair in itertools.pairwise(pieces):
                pairs[pair] += times[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        ties = sum(n == pairs[best] for n in pairs.values()) - 1
        rows.append({"left": best[0], "right": best[1], "times": pairs[best], "as_often": ties})
        ids.setdefault(best[0] + best[1], len(ids))
        cut = {word: joined(pieces, best) for word, pieces in cut.items()}
    return rows


def joined(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """The pieces with that pair made one wherever it stands, from the left."""
    found = []
    for piece in pieces:
        if found and (found[-1], piece) == pair:
            found[-1] += piece
        else:
            found.append(piece)
    return found


def library_merges(text: str, merges: int) -> list[tuple[str, str]]:
    """The same by the library's trainer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=LETTERS, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return _pairs(tokenizer)


def _pairs(tokenizer):
    """[(left, right)] of a `tokenizers.Tokenizer`, the first merge first."""
    import json

    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def measure(model, merges=MERGES):
    """The merges that a play and an essay teach, beside the library's trainer and beside those of the model's bundle."""
    known, found = read_bpe(model).ranks, {"merges": merges}
    for name, path in (("play", PLAY), ("essay", ESSAY)):
        found[name] = taught(path.read_text(encoding="utf-8"), merges) | {"text": path.name}
        found[name]["in_the_bundle"] = sum((row["left"], row["right"]) in known for row in found[name]["rows"])
        found[name]["rows"] = found[name]["rows"][:SHOWN]
    return found


def taught(text, merges):
    """What a text teaches: rows of merges, how many of them the library has at the same place, and how many were ties."""
    rows = train(text, merges)
    theirs = library_merges(text, merges)
    pairs = [(row["left"], row["right"]) for row in rows]
    return {
        "bytes": len(text.encode("utf-8")),
        "learned": len(rows),
        "same_as_the_library": sum(a == b for a, b in zip(pairs, theirs, strict=False)) if len(pairs) == len(theirs) else 0,
        "ties": sum(row["as_often"] > 0 for row in rows),
        "first_tie": next((i for i, row in enumerate(rows) if row["as_often"]), None),
        "last_times": rows[-1]["times"] if rows else None,
        "rows": rows,
    }


def report(values):
    """Text of {"training": ...}, or of {"taught": ...}."""
    found = values.get("training") or {"text": values["taught"]}
    parts = []
    for name, v in found.items():
        if not isinstance(v, dict):
            continue
        rows = [
            [i, f"{r['left']} {r['right']}", r["left"] + r["right"], r["times"], r["as_often"]]
            for i, r in enumerate(v["rows"][:SHOWN])
        ]
        if not parts or "training" not in values:
            parts += [f"The {name}, {v['bytes']:,} bytes: the first of its merges\n"]
            parts += [table(["rank", "pair", "piece", "times", "others as often"], rows), ""]
        known = f", {v['in_the_bundle']} in the model's own merges" if "in_the_bundle" in v else ""
        parts += [
            f"{name}: {v['learned']} merges, {v['same_as_the_library']} as the library's trainer has them, {v['ties']} ties{known}."
        ]
    return "\n".join(
        [*parts, "", "Each merge makes one piece of the pair that stands there most often; a tie goes to the lower ids."]
    )


EXPERIMENTS = (
    Experiment(
        "ch03.training",
        "exact",
        "Counting pairs and joining the most frequent one gives the library's merges in the library's order.",
        "Two short texts; the library counts anew only what a merge has changed, which this program does not.",
        measure,
        headline=("play.same_as_the_library", "int"),
        seconds=2,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="bpe_training.py", description=__doc__, keys=__file__)
    parser.add_argument(
        "--file", type=Path, default=None, metavar="FILE", help="a text to learn from; by default a play and an essay"
    )
    parser.add_argument("--merges", type=whole_number(1, 5000), default=MERGES, metavar="N", help="how many merges to learn")
    return parser.add("model", "json")


@command
def main(argv=None):
    """Print the merges that a text teaches."""
    args = options().parse_args(argv)
    if args.file is None:
        answer(args, {"training": measure(load(args.model, dtype=None), args.merges)}, report)
        return
    try:
        text = args.file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{args.file} is not UTF-8; give a text") from None
    if not train(text, 1):
        raise BadInput(f"{args.file} has no pair of neighbours to join; give a longer text")
    args.file = str(args.file)
    answer(args, {"taught": taught(text, args.merges)}, report)


if __name__ == "__main__":
    sys.exit(main())
