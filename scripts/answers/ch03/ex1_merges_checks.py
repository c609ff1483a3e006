"""Checks of ch03.1: letters of bytes, merges one by one, and the two lists that the reader found."""

from scripts.grading.answers import Mutant

DRIVER = '''
def left(word, merges):
    """The pieces of a word in the end."""
    pieces = [*word]
    while True:
        found = [(merges.index([a, b]), at) for at, (a, b) in enumerate(zip(pieces, pieces[1:])) if [a, b] in merges]
        if not found:
            return pieces
        at = min(found)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


def lists(module):
    """What is asked of the two lists, and whether it holds."""
    first, second = [[list(pair) for pair in merges] for merges in module.on_paper()]
    ends = [left("Ġbanana", merges) for merges in (first, second)]
    facts = {"five merges": len(first) == 5, "five in the second": len(second) == 5, "all differ": len(set(map(tuple, first))) == 5}
    facts |= {"the same five": sorted(first) == sorted(second), "two pieces": len(ends[0]) == 2, "four pieces": len(ends[1]) == 4}
    facts |= {"pairs": all(len(pair) == 2 for pair in first + second), "texts": all(isinstance(p, str) for p in sum(first, []))}
    facts |= {"the word comes back": ["".join(pieces) for pieces in ends] == ["Ġbanana"] * 2}
    return facts


def spellings(module, texts):
    return [module.spelt(text) for text in texts]
'''


def word(draw, letters, length):
    return "".join(letters[i] for i in draw.ids(len(letters), length).tolist())


def merges(draw, letters, count):
    """A list in which later merges use what earlier ones make, and some do not."""
    made, pairs = [*letters], []
    while len(pairs) < count:
        pair = [draw.choice(made), draw.choice(made)]
        if pair not in pairs:
            pairs.append(pair)
            made.append("".join(pair))
    return pairs


def cases(draw):
    yield "the letters", "byte_letters", {}
    texts = ["", " the lark", "é\n", "模型 🙂", "\x00\x7f\xa0\xad\xff", "~!¡¬®", "tab\there"]
    yield (
        "a text in letters",
        "spellings",
        {"texts": [*texts, *("".join(chr(i) for i in draw.ids(700, 9).tolist()) for _ in range(3))]},
    )
    for _ in range(8):
        yield "merges", "merging", {"word": word(draw, "abcd", 12), "merges": merges(draw, "abcd", 14)}
        twice = word(draw, "xyz", 4)
        pairs = [[twice[0], twice[1]], *merges(draw, "xyz", 6)]
        yield "a pair that stands in a word twice", "merging", {"word": twice + twice[:3] + "z" + twice[:2] * 2, "merges": pairs}
    for text in ("a", "", "ab", "ppp", "pppp", "ppppp"):
        yield "words without merges, and of one letter", "merging", {"word": text, "merges": [["p", "p"], ["c", "d"]]}
    for _ in range(4):
        pairs = merges(draw, "ab", 8)
        yield "a list in the wrong order", "merging", {"word": word(draw, "ab", 14), "merges": pairs[::-1]}
    yield "the two lists", "lists", {}


MUTANTS = [
    Mutant(
        "a byte without a sign has the letter 256 further up; they follow one another",
        "chr(next(others)) for",
        "chr(256 + byte) for",
    ),
    Mutant("the soft hyphen, byte 173, is taken for a sign", "*range(174, 256)", "*range(173, 256)"),
    Mutant("the blank is taken for a sign", "{*range(33, 127)", "{*range(32, 127)"),
    Mutant(
        "the letters are those of characters, not of UTF-8 bytes",
        'letters[byte] for byte in text.encode("utf-8")',
        "letters[ord(c)] if ord(c) < 256 else c for c in text",
    ),
    Mutant("the pair of highest rank is joined first", "min(found)", "max(found, key=lambda x: (x[0], -x[1]))"),
    Mutant("the leftmost pair that is in the list is joined, whatever its rank", "min(found)", "found[0]"),
    Mutant("of a pair that stands there twice the last is joined first", "min(found)", "min(found, key=lambda x: (x[0], -x[1]))"),
    Mutant(
        "all places of a pair are joined in one step",
        "        pieces = [*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]]\n",
        "        pair, joined = (pieces[at], pieces[at + 1]), []\n        for piece in pieces:\n"
        "            if joined and (joined[-1], piece) == pair:\n                joined[-1] += piece\n"
        "            else:\n                joined.append(piece)\n        pieces = joined\n",
    ),
    Mutant(
        "the list is gone through once from its start, and a pair that a later merge makes is missed",
        "        if not found:\n            return rows\n        rank, at = min(found)\n",
        "        found = [f for f in found if not rows or f[0] >= rows[-1][0]]\n        if not found:\n"
        "            return rows\n        rank, at = min(found)\n",
    ),
    Mutant(
        "one merge is made, and then it ends",
        "        rows.append([rank, pieces])\n",
        "        rows.append([rank, pieces])\n        return rows\n",
    ),
    Mutant("the ranks start at 1", "enumerate(merges)", "enumerate(merges, 1)"),
    Mutant("what is listed is the end alone, not every step", "            return rows\n", "            return rows[-1:]\n"),
    Mutant(
        "every step lists the same pieces, those of the end: one list is changed again and again",
        "        pieces = [*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]]\n",
        "        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]\n",
    ),
    Mutant("left and right of a pair are exchanged", "tuple(pair): rank", "tuple(pair[::-1]): rank"),
    Mutant(
        "a pair is looked for by the text that it makes, whatever its two pieces are",
        "ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}",
        "texts = {''.join(pair): rank for rank, pair in reversed([*enumerate(merges)])}\n"
        "    pairs = [(word[i:j], word[j:k]) for i in range(len(word)) for j in range(i, len(word)) for k in "
        "range(j, len(word) + 1)]\n    ranks = {(a, b): texts[a + b] for a, b in pairs if a + b in texts}",
    ),
    Mutant(
        "the merges that were given are used up",
        "        rows.append([rank, pieces])\n",
        "        rows.append([rank, pieces])\n        merges[rank] = ['', '']\n",
    ),
    Mutant("your first list does not leave two pieces", '["an", "a"], ["n", "a"]]', '["na", "n"], ["n", "a"]]'),
    Mutant("your second list does not leave four pieces", "[two[4], *two[:4]]", "[*two[1:], two[0]][::-1]"),
    Mutant("your second list is not of the same five merges", "[two[4], *two[:4]]", "[two[4], ['n', 'an'], *two[1:4]]"),
    Mutant("your lists are longer or shorter than five", '["an", "a"], ["n", "a"]]', '["an", "a"], ["n", "a"], ["q", "q"]]'),
]

RUBRIC = """
1 point: both lists with every step, and the merge that took away a letter that another needed.
1 point: a pair that stands there twice is joined at one place after the other; an overlap can use up the second place.
"""
