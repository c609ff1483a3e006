"""Checks of ch03.2: words, the longest piece first, and the way there and back."""

from scripts.grading.answers import Mutant

SOME = (
    "the ",
    "lark",
    "It's",
    " we'll",
    "don't",
    "42",
    " 7x",
    "é",
    " 模型",
    "🙂",
    "...",
    " --",
    "\n",
    "\n\n",
    "  ",
    " ",
    "\t",
    "I've",
    "²",
    "ß",
    "a_b",
)
SENTENCES = (
    "It's the nightingale, and not the lark: é 🙂",
    "We'll  see\n\n  what 12 o'clock is",
    "Tab\tand   three blanks   ",
    "'Twas I'd",
)


def letters():
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(others)) for byte in range(256)]


def vocabulary(draw, text, count):
    """{piece: id}: all letters, and pieces that a text holds, in some order."""
    spelt = "".join(letters()[byte] for byte in text.encode("utf-8"))
    pieces = set()
    for _ in range(count):
        at = draw.whole(0, len(spelt) - 2)
        pieces.add(spelt[at : at + draw.whole(2, 5)])
    pieces = [*letters(), *sorted(pieces - set(letters()))]
    return {pieces[i]: n for n, i in enumerate(draw.order(len(pieces)))}


def cases(draw):
    for sentence in SENTENCES:
        yield "words", "words", {"text": sentence}
    for _ in range(6):
        yield "words", "words", {"text": "".join(draw.choice(SOME) for _ in range(12))}
    for text in ("", " ", "a", "  a", " \n a", "a  \n", "a\u00a0b", "don't're", "'S", "a  -- b", "so   ..."):
        yield "words at the edges", "words", {"text": text}
    for _ in range(8):
        word = "".join("abc"[i] for i in draw.ids(3, 14).tolist())
        starts = [(draw.whole(0, 9), draw.whole(2, 5)) for _ in range(9)]
        pieces = ["a", "b", "c", *dict.fromkeys(word[a : a + n] for a, n in starts)]
        yield "the longest piece", "longest_first", {"word": word, "pieces": [pieces[i] for i in draw.order(len(pieces))]}
    for text in (*SENTENCES, ""):
        ids = vocabulary(draw, text or "none", 40)
        yield "the ids", "encode", {"text": text, "letters": letters(), "ids": ids}
    for text in SENTENCES:
        ids = vocabulary(draw, text, 30)
        found = [id for piece in "".join(letters()[b] for b in text.encode("utf-8")) for id in [ids[piece]]]
        yield "the text of ids", "decode", {"found": found, "letters": letters(), "ids": ids}
        yield "the text of ids", "decode", {"found": [ids[p] for p in [*ids][:3]], "letters": letters(), "ids": {**ids}}
        half = [ids[letters()[b]] for b in (0xC3, 0x41, 0xF0, 0x9F, 0x99)]
        yield "ids that are half a character", "decode", {"found": half * draw.whole(1, 3), "letters": letters(), "ids": ids}
        yield "ids that are half a character", "decode", {"found": half[:1], "letters": letters(), "ids": ids}


MUTANTS = [
    Mutant(
        "the blank stays at the end of a word; it belongs to the one behind it",
        "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|",
        "|\\p{L}+ ?|\\p{N}+ ?|[^\\s\\p{L}\\p{N}]+ ?|",
    ),
    Mutant("a blank is a word by itself", "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|", "|\\p{L}+|\\p{N}+|[^\\s\\p{L}\\p{N}]+|"),
    Mutant("English endings are not cut off", "'s|'t|'re|'ve|'m|'ll|'d|", ""),
    Mutant("endings in capitals are cut off as well", "regex.compile(r\"'s", "regex.compile(r\"(?i)'s"),
    Mutant("letters are those of ASCII alone", "| ?\\p{L}+|", "| ?[A-Za-z]+|"),
    Mutant("digits and letters are one kind", "| ?\\p{L}+| ?\\p{N}+|", "| ?[\\p{L}\\p{N}]+|"),
    Mutant("of several blanks before a word none is left for it", "|\\s+(?!\\S)|\\s+", "|\\s+"),
    Mutant("blanks that stand alone are lost", "|\\s+(?!\\S)|\\s+", ""),
    Mutant("several blanks before a sign stand with it in one word", "| ?[^\\s\\p{L}", "| *[^\\s\\p{L}"),
    Mutant("the shortest piece is taken", "end = max(", "end = min("),
    Mutant(
        "the longest piece is sought from the word's end",
        "    while at < len(word):\n"
        "        end = max(end for end in range(at + 1, len(word) + 1) if word[at:end] in known)\n"
        "        found.append(word[at:end])\n        at = end\n",
        "    at = len(word)\n    while at > 0:\n"
        "        start = min(start for start in range(at) if word[start:at] in known)\n"
        "        found.insert(0, word[start:at])\n        at = start\n",
    ),
    Mutant(
        "pieces of more than three letters are passed over",
        "range(at + 1, len(word) + 1)",
        "range(at + 1, min(len(word), at + 3) + 1)",
    ),
    Mutant(
        "the last letter of a word is never within a longer piece",
        "range(at + 1, len(word) + 1)",
        "range(at + 1, max(at + 2, len(word)))",
    ),
    Mutant("the pieces go over the borders of words", "for word in words(text):", "for word in [text]:"),
    Mutant(
        "a word is spelt by its characters, not by its bytes",
        'letters[byte] for byte in word.encode("utf-8")',
        "letters[ord(c) & 255] for c in word",
    ),
    Mutant(
        "the bytes are decoded one by one, and a character of several is lost",
        'bytes(bytes_of[letter] for id in found for letter in pieces[id]).decode("utf-8", errors="replace")',
        "''.join(bytes([bytes_of[letter] for letter in pieces[id]]).decode('utf-8', errors='replace') for id in found)",
    ),
    Mutant("half a character is passed over; it becomes U+FFFD", 'errors="replace"', 'errors="ignore"'),
    Mutant("half a character ends the program", ', errors="replace"', ""),
    Mutant(
        "what comes back is spelt in letters, not the text",
        'return bytes(bytes_of[letter] for id in found for letter in pieces[id]).decode("utf-8", errors="replace")',
        "return ''.join(pieces[id] for id in found)",
    ),
]

RANGES = {"play_otherwise": (68, 68), "essay_otherwise": (163, 163), "play_tokens": (1312, 1312), "essay_tokens": (2601, 2601)}
MISTAKES = {"essay_tokens": [(2609, 2609, "these are those of the merges")]}

RUBRIC = """
1 point: five words with both ways to cut them, and what the merges prefer there.
1 point: every text comes back from both, since the pieces' bytes are the text's, so the round trip shows no id right.
"""
