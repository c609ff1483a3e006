"""Chapter 3: byte-level BPE by running it: a text is cut into words, a word into bytes, and merges join these, one after another.

    python examples/ch03/bpe.py
    python examples/ch03/bpe.py --word " unhappiness" --text "I'm 42."
    python examples/ch03/bpe.py --model smollm2

All that the program takes from the model's bundle is data: the pieces with their ids, the list of merges, and the special tokens.
The rest is written here; bpe_agreement.py compares it with the `tokenizers` library. A blank stands in a piece as Ġ, a newline as
Ċ: pieces are written in 256 letters that can be seen, one for each byte.
"""

import functools
import itertools
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import regex

from examples.ch02.model import Model, load
from examples.ch03.tokens import check_text
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table

TEXT, WORD = "It's the nightingale, and not the lark: é 🙂", " remembrance"
# GPT-2's words, as openai/gpt-2 publishes them: an English ending, letters, digits, other signs, each with a blank before it if
# there is one; then blanks that stand alone. \p{L} is any letter and \p{N} any digit of Unicode, which Python's own `re` lacks.
WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
DIGITS = regex.compile(r"\p{N}|[^\p{N}]+")  # SmolLM2 takes each digit by itself, before anything else is cut


def byte_letters() -> list[str]:
    """The 256 letters that bytes are written in, byte 0 first.

    A byte that Latin-1 shows as a sign keeps that sign. The 68 others, blanks and control characters, get those from U+0100 on.
    """
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = itertools.count(256)
    return [chr(byte) if byte in seen else chr(next(others)) for byte in range(256)]


LETTERS = byte_letters()
BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


def spelt(text: str) -> str:
    """The UTF-8 bytes of a text, each as its letter."""
    return "".join(LETTERS[byte] for byte in text.encode("utf-8"))


def words(text: str, digits: bool = False) -> list[str]:
    """The words of a text, which joined are the text again. digits: each digit is a word by itself."""
    parts = DIGITS.findall(text) if digits else [text]
    return [word for part in parts for word in WORDS.findall(part)]


@dataclass(frozen=True)
class BPE:
    """A bundle's tokenizer as data. ids: {piece: id}. ranks: {pair of pieces: place in the list of merges}. whole: {token: id} of
    what is never cut, as `<|endoftext|>` is. digits: as `words` takes it."""

    ids: dict[str, int]
    ranks: dict[tuple[str, str], int]
    whole: dict[str, int]
    digits: bool = False

    @functools.cached_property
    def bytes_of(self) -> dict[int, bytes]:
        """{id: the bytes that it stands for}."""
        whole = {id: token.encode("utf-8") for token, id in self.whole.items()}
        cut = {id: bytes(BYTES[letter] for letter in piece) for piece, id in self.ids.items() if id not in whole}
        return cut | whole


def merging(word: str, bpe: BPE):
    """Join the letters of a word: after each merge yield (its rank, the pieces that there are now).

    Of all pairs of neighbours the one of lowest rank is joined, the first of them where it stands there twice, until no pair has a
    rank. A letter without an id is passed over at the start, as the library does it.
    """
    pieces = letters(word, bpe)
    while True:
        found = [(bpe.ranks.get(pair, math.inf), at) for at, pair in enumerate(itertools.pairwise(pieces))]
        rank, at = min(found, default=(math.inf, 0))
        if rank == math.inf:
            return
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
        yield rank, [*pieces]


def letters(word: str, bpe: BPE) -> list[str]:
    """What a word is before any merge."""
    return [letter for letter in spelt(word) if letter in bpe.ids]


def pieces_of(word: str, bpe: BPE) -> list[str]:
    """The pieces of a word when all merges are made."""
    pieces = letters(word, bpe)
    for _, after in merging(word, bpe):
        pieces = after
    return pieces


def encode(text: str, bpe: BPE) -> list[int]:
    """The ids of a text."""
    ids, rest = [], [text]
    if bpe.whole:  # they are cut out first, of two that begin alike the longer one
        longest_first = sorted(bpe.whole, key=len, reverse=True)
        rest = regex.split("(" + "|".join(map(regex.escape, longest_first)) + ")", text)
    for part in rest:
        if part in bpe.whole:
            ids.append(bpe.whole[part])
            continue
        for word in words(part, bpe.digits):
            ids += [bpe.ids[piece] for piece in pieces_of(word, bpe)]
    return ids


def decode(ids: list[int], bpe: BPE) -> str:
    """The text of ids: the bytes of all pieces, joined and then read as UTF-8; what is none becomes U+FFFD."""
    return b"".join(bpe.bytes_of[id] for id in ids).decode("utf-8", errors="replace")


def read_bpe(model: Model) -> BPE:
    """The data of the model's tokenizer; raises BadInput for one that is no byte-level BPE with GPT-2's words."""
    if model.tokenizer is None:
        raise BadInput("this model has no tokenizer (random weights have none); take another --model")
    about = json.loads(model.tokenizer.to_str())  # what its tokenizer.json says, or the keys of a GGUF file
    kind, cut = about["model"], about["pre_tokenizer"] or {}
    cuts = cut.get("pretokenizers", [cut])
    digits = cuts[0] == {"type": "Digits", "individual_digits": True}
    level = cuts[1:] if digits else cuts
    plain = kind.get("type", "BPE") == "BPE" and not any(kind.get(key) for key in ("byte_fallback", "ignore_merges", "dropout"))
    gpt2 = len(level) == 1 and level[0].get("type") == "ByteLevel" and level[0].get("use_regex", True)
    if not plain or not gpt2 or level[0].get("add_prefix_space") or about["normalizer"]:
        raise BadInput("this tokenizer is not a byte-level BPE with GPT-2's words (SentencePiece is another kind); take embedded")
    added = about["added_tokens"]
    if any(token["lstrip"] or token["rstrip"] or token["single_word"] or token["normalized"] for token in added):
        raise BadInput("this tokenizer has tokens that take blanks beside them away, which bpe.py does not; take embedded")
    pairs = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in kind["merges"]]
    whole = {token["content"]: token["id"] for token in added}
    return BPE(kind["vocab"], {pair: rank for rank, pair in enumerate(pairs)}, whole, digits)


def measure(model, word=WORD, text=TEXT):
    """The words of a text, and each merge of one word: how it starts, then rows of {rank, joined, pieces}; its ids at the end."""
    bpe = read_bpe(model)
    rows, before = [], letters(word, bpe)
    for rank, after in merging(word, bpe):
        at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
        rows.append({"rank": rank, "joined": after[at], "pieces": after})
        before = after
    return {
        "text": text,
        "words": [{"word": w, "bytes": len(w.encode("utf-8")), "pieces": pieces_of(w, bpe)} for w in words(text, bpe.digits)],
        "ids": encode(text, bpe),
        "same_as_the_library": encode(text, bpe) == model.tokenizer.encode(text, add_special_tokens=False).ids,
        "word": word,
        "start": letters(word, bpe),
        "merges": rows,
        "word_ids": [bpe.ids[piece] for piece in before],
        "word_pieces": len(before),
    }


def report(values):
    """Text of {"merges": ...}."""
    v = values["merges"]
    cut = [[repr(row["word"]), row["bytes"], " ".join(row["pieces"])] for row in v["words"]]
    rows = [["", "", " ".join(v["start"])]] + [[r["rank"], r["joined"], " ".join(r["pieces"])] for r in v["merges"]]
    same = "the same ids as" if v["same_as_the_library"] else "OTHER ids than"
    return "\n".join(
        [
            f"{v['text']!r}: {len(v['words'])} words, {len(v['ids'])} ids\n",
            table(["word", "bytes", "pieces"], cut),
            f"\nThe word {v['word']!r}, merge by merge:\n",
            table(["", "rank", "joins to", "pieces"], [[i, *row] for i, row in enumerate(rows)]),
            f"\nids: {', '.join(map(str, v['word_ids']))}\n",
            f"The pair of lowest rank is joined first, each time anew; the text has {same} the library's.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch03.merges",
        "exact",
        "A word is joined from its bytes, merge by merge, the pair of lowest rank first.",
        "One word and one text.",
        measure,
        headline=("word_pieces", "int"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="bpe.py", description=__doc__, keys=__file__).add("model", "json")
    parser.add_argument("--text", default=TEXT, help="a text to cut into words")
    parser.add_argument("--word", default=WORD, help="a word to merge; put it into quotes, with its blank before it")
    return parser


@command
def main(argv=None):
    """Print the words of a text and the merges of a word."""
    args = options().parse_args(argv)
    model = load(args.model, dtype=None)
    for given in (args.text, args.word):
        check_text(given)
    answer(args, {"merges": measure(model, args.word, args.text)}, report)


if __name__ == "__main__":
    sys.exit(main())
