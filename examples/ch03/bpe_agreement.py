"""Chapter 3: our byte-level BPE beside the library's: random strings of all of Unicode, two texts, and the way back.

    python examples/ch03/bpe_agreement.py
    python examples/ch03/bpe_agreement.py --strings 200 --seed 7
    python examples/ch03/bpe_agreement.py --model smollm2       # whose ids lack some bytes, so that some texts do not come back

The strings are drawn from ranges in which a program that works on characters goes wrong: marks that combine with the letter before
them, scripts that run from right to left, emoji, control characters. A text comes back when decoding its ids gives the same text.
"""

import functools
import random
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import regex

from examples.ch02.model import load
from examples.ch03.bpe import LETTERS, decode, encode, read_bpe, words
from examples.ch03.held_text import ESSAY, PLAY
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, table, whole_number

STRINGS = 2000
RANGES = {  # first and last characters of what random strings are drawn from
    **{"ASCII": (0x20, 0x7E), "control": (0x00, 0x1F), "more control": (0x7F, 0x9F), "Latin": (0xA0, 0x24F)},
    **{"combining": (0x300, 0x36F), "Greek and Cyrillic": (0x370, 0x52F), "right to left": (0x5D0, 0x6FF)},
    **{"Devanagari": (0x900, 0x97F), "spaces and joiners": (0x2000, 0x200F), "Chinese": (0x4E00, 0x9FFF)},
    **{"emoji": (0x1F300, 0x1FAFF), "anything": (0, 0x10FFFF)},
}
NEVER = {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that no valid UTF-8 has
OFTEN = "  etaoinshrdlucmwfgyp'"  # of which many merges are made: letters at random hardly ever are a pair that has a rank


@functools.cache
def in_use() -> str:
    """Every character that has a meaning in Unicode, as far as `regex` knows it: of 1,112,064 that UTF-8 can write the others are
    not assigned yet, or private."""
    return "".join(regex.findall(r"[^\p{Cn}\p{Co}\p{Cs}]", "".join(map(chr, range(0x110000)))))


@functools.cache
def cut_otherwise(digits: bool = False) -> frozenset[str]:
    """The characters at which `words` and the library part, each tried behind a letter, a digit, a sign and a blank.

    They are those that Unicode has since its version 16: `regex` knows them, and the library takes none of them for a letter.
    """
    from tokenizers import pre_tokenizers

    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level]) if digits else level
    found = set()
    for c in in_use():
        text = f"a{c}1{c}!{c} {c}a"
        if words(text, digits) != [text[start:end] for _, (start, end) in theirs.pre_tokenize_str(text)]:
            found.add(c)
    return frozenset(found)


def random_strings(count: int, seed: int = 0, without=frozenset()) -> list[str]:
    """Strings of 1 to 40 characters, of frequent letters, of one of RANGES, or of several; none `without`."""
    draw, strings = random.Random(seed), []
    for i in range(count):
        some = draw.sample(list(RANGES.values()), (0, 1, 3)[i % 3])
        kinds = some if i % 3 == 1 else [OFTEN, *some]
        drawn = []
        for _ in range(draw.randint(1, 40)):
            kind = draw.choice(kinds)
            drawn.append(draw.choice(kind) if kind is OFTEN else chr(draw.randint(*kind)))
        strings.append("".join(c for c in drawn if c not in without and not "\ud800" <= c <= "\udfff") or "a")
    return strings


def measure(model, strings=STRINGS, seed=0):
    """How many random strings, and whether the play and the essay, have the library's ids by our program, and come back."""
    bpe = read_bpe(model)
    apart = cut_otherwise(bpe.digits)
    lacking = [byte for byte, letter in enumerate(LETTERS) if letter not in bpe.ids]
    found = {
        "merges": len(bpe.ranks),
        "bytes_without_an_id": lacking,
        "bytes_lacking": len(lacking),
        "bytes_lacking_that_utf8_has": sum(byte not in NEVER for byte in lacking),
        "characters": len(in_use()),
        "characters_cut_alike": len(in_use()) - len(apart),
        "characters_cut_otherwise": len(apart),
    }
    held = {"play": [PLAY.read_text(encoding="utf-8")], "essay": [ESSAY.read_text(encoding="utf-8")]}
    for name, texts in {"strings": random_strings(strings, seed, apart), **held}.items():
        ours = [encode(text, bpe) for text in texts]
        theirs = [model.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        found[name] = {
            "texts": len(texts),
            "characters": sum(map(len, texts)),
            "bytes": sum(len(text.encode("utf-8")) for text in texts),
            "ids": sum(map(len, ours)),
            "same_ids": sum(a == b for a, b in zip(ours, theirs, strict=True)),
            "come_back": sum(decode(ids, bpe) == text for ids, text in zip(ours, texts, strict=True)),
        }
    return found


def report(values):
    """Text of {"bpe": ...}."""
    v = values["bpe"]
    texts = ("strings", "play", "essay")
    rows = [[name, *(f"{v[name][key]:,}" for key in ("texts", "characters", "ids", "same_ids", "come_back"))] for name in texts]
    lacking = v["bytes_without_an_id"]
    same = sum(v[name]["same_ids"] for name in texts)
    back = sum(v[name]["come_back"] for name in texts)
    some = f", and {len(lacking)} have none: a text that needs one of them does not come back" if lacking else ""
    return "\n".join(
        [
            table(["", "texts", "characters", "ids", "the library's ids", "come back"], rows),
            "",
            f"Characters cut into words as the library does: {v['characters_cut_alike']:,} of {v['characters']:,}; the others are",
            "letters and digits younger than its version of Unicode, and are left out of the strings.",
            f"{256 - len(lacking)} bytes have an id{some}.",
            f"Of {2 + v['strings']['texts']:,} texts {same:,} have the library's ids, and {back:,} come back from them.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch03.bpe",
        "exact",
        "Byte-level BPE written by hand gives the library's ids on random strings and on the held-out texts, and they come back.",
        "Characters that Unicode has since version 16 are left out: the two programs know different versions of it.",
        measure,
        headline=("strings.same_ids", "int"),
        seconds=6,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="bpe_agreement.py", description=__doc__, keys=__file__)
    parser.add_argument("--strings", type=whole_number(1), default=STRINGS, metavar="N", help="random strings to compare")
    return parser.add("model", "seed", "json")


@command
def main(argv=None):
    """Print how many texts agree."""
    args = options().parse_args(argv)
    answer(args, {"bpe": measure(load(args.model, dtype=None), args.strings, args.seed)}, report)


if __name__ == "__main__":
    sys.exit(main())
