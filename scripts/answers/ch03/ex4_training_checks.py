"""Checks of ch03.4: counts of pairs, joining them, the training, and the vocabulary."""

from scripts.answers.ch03.ex2_longest_first_checks import letters
from scripts.grading.answers import Mutant


def word(draw, of, length):
    return "".join(of[i] for i in draw.ids(len(of), length).tolist())


def corpus(draw, of, count, longest=7, most=9):
    """{word: how often}, in letters of `of`."""
    return {word(draw, of, draw.whole(1, longest)): draw.whole(1, most) for _ in range(count)}


def cases(draw):
    for count in (1, 5, 12):
        cut = [[word(draw, "abc", draw.whole(1, 2)) for _ in range(draw.whole(2, 6))] for _ in range(count)]
        yield "counts of pairs", "pair_counts", {"cut": cut, "times": [draw.whole(2, 9) for _ in cut]}
    yield "counts of pairs", "pair_counts", {"cut": [["a"], [], ["b", "b", "b"]], "times": [3, 4, 5]}
    for _ in range(6):
        pieces = [word(draw, "ab", draw.whole(1, 2)) for _ in range(12)]
        yield "joining", "joined", {"pieces": pieces, "left": pieces[4], "right": pieces[5]}
    for pieces in ("aaaa", "aaa", "aaaaaaa", "baab", "b", ""):
        yield "joining a pair of one piece with itself", "joined", {"pieces": [*pieces], "left": "a", "right": "a"}
    yield "joining a pair of one piece with itself", "joined", {"pieces": ["aa", "a", "a", "a", "aa"], "left": "a", "right": "a"}
    yield "joining a pair of one piece with itself", "joined", {"pieces": ["a", "a", "aa", "aa"], "left": "a", "right": "aa"}
    for count, merges in ((8, 6), (20, 12), (40, 20)):
        yield "training", "train", {"words": corpus(draw, "aeioĠt", count), "merges": merges}
    for count in (3, 6):
        yield "training on words that stand once", "train", {"words": corpus(draw, "eĠéaČz", count, 9, 1), "merges": 14}
        yield "training on words that stand once", "train", {"words": corpus(draw, "zyx", count, 12, 1), "merges": 12}
    for words in ({"ab": 3}, {"a": 9, "b": 2}, {}, {"aaaaaaaa": 2}, {"abab": 1, "ba": 1}, {"cabcab": 1}):
        yield "more merges than there are pairs", "train", {"words": words, "merges": 30}
    for n in (0, 5, 20):
        order = draw.order(256)
        pairs = [[word(draw, "abcĠ", draw.whole(1, 2)), word(draw, "abcĠ", draw.whole(1, 2))] for _ in range(n)]
        yield "the vocabulary", "vocabulary", {"letters": [letters()[i] for i in order], "merges": pairs}
    pairs = [["a", "b"], ["ab", "c"], ["b", "c"], ["a", "bc"], ["c", "c"]]
    yield "a piece that two merges make", "vocabulary", {"letters": letters(), "merges": pairs}


MUTANTS = [
    Mutant("a word counts once, however often it stands in the text", "+ often", "+ 1"),
    Mutant(
        "a pair that stands in a word twice counts once",
        "for left, right in pairwise(pieces):",
        "for left, right in dict.fromkeys(pairwise(pieces)):",
    ),
    Mutant(
        "pairs that overlap are left out: every second place alone is looked at",
        "for left, right in pairwise(pieces):",
        "for left, right in zip(pieces[::2], pieces[1::2], strict=False):",
    ),
    Mutant(
        "left and right of a pair are exchanged in the counts",
        "for left, right in pairwise(pieces):",
        "for right, left in pairwise(pieces):",
        (('left, right = min(counts, key=order).split(" ")', 'right, left = min(counts, key=order).split(" ")'),),
    ),
    Mutant(
        "only the first place of a pair is joined",
        "if found and found[-1] == left",
        "if left + right not in found and found and found[-1] == left",
    ),
    Mutant(
        "a piece that has been joined is joined once more, with the one behind it",
        "    for piece in pieces:\n        if found and found[-1] == left and piece == right:\n"
        "            found[-1] = left + right\n",
        "    for before, piece in pairwise(['', *pieces]):\n        if before == left and piece == right:\n"
        "            found[len(found) - (found[-1] == left) :] = [left + right]\n",
    ),
    Mutant(
        "a pair is joined wherever its text stands, whatever the two pieces are",
        "found[-1] == left and piece == right",
        "found[-1] + piece == left + right",
    ),
    Mutant(
        "a pair is joined from the right",
        "    for piece in pieces:\n        if found and found[-1] == left and piece == right:\n"
        "            found[-1] = left + right\n"
        "        else:\n            found.append(piece)\n    return found\n",
        "    for piece in pieces[::-1]:\n        if found and piece == left and found[-1] == right:\n"
        "            found[-1] = left + right\n        else:\n            found.append(piece)\n    return found[::-1]\n",
    ),
    Mutant("the pieces that were given are changed", "    return found\n", "    pieces[:] = found\n    return found\n"),
    Mutant(
        "of equally frequent pairs the one that was met first is taken",
        "return -counts[pair], ids.get(left, ord(left[0])), ids.get(right, ord(right[0]))",
        "return -counts[pair]",
    ),
    Mutant(
        "of equally frequent pairs the first by letters is taken, not by ids: pieces that were made come too early",
        "ids.get(left, ord(left[0])), ids.get(right, ord(right[0]))",
        "left, right",
    ),
    Mutant(
        "of equally frequent pairs the one with the higher ids is taken",
        "-counts[pair], ids.get(left, ord(left[0])), ids.get(right, ord(right[0]))",
        "-counts[pair], -ids.get(left, ord(left[0])), -ids.get(right, ord(right[0]))",
    ),
    Mutant(
        "of equally frequent pairs the right piece is looked at before the left",
        "ids.get(left, ord(left[0])), ids.get(right, ord(right[0]))",
        "ids.get(right, ord(right[0])), ids.get(left, ord(left[0]))",
    ),
    Mutant("the rarest pair is joined", "-counts[pair], ids", "counts[pair], ids"),
    Mutant(
        "the pairs are counted once at the start and not again",
        "        counts = pair_counts(cut, list(words.values()))\n",
        "        fresh = pair_counts([[*word] for word in words], list(words.values()))\n"
        '        counts = {p: n for p, n in fresh.items() if p.split(" ") not in made}\n',
    ),
    Mutant("one merge too many is made", "len(made) < merges:", "len(made) < merges + 1:"),
    Mutant("it ends with an error where no pair is left", "        if not counts:\n            break\n", ""),
    Mutant(
        "pairs that stand there once are not joined any more",
        "        if not counts:\n",
        "        if max(counts.values(), default=0) < 2:\n",
    ),
    Mutant("the letters' ids are in the order in which they were given", "enumerate(sorted(letters))", "enumerate(letters)"),
    Mutant(
        "a piece that two merges make gets the later id",
        "        ids.setdefault(left + right, len(ids))\n    return",
        "        ids[left + right] = len(ids)\n    return",
    ),
    Mutant(
        "the pieces of merges have their rank as id, as if there were no letters",
        "        ids.setdefault(left + right, len(ids))\n    return",
        "        ids.setdefault(left + right, len(ids) - 256)\n    return",
    ),
]

RUBRIC = """
1 point: the table: three texts, and bytes per token at 50, 200 and 500 merges.
1 point: the other language stops rising first, or hardly rises; the text that was trained on rises longest.
1 point: the gain on the text itself is kept apart from that on the one of its kind: late merges are of words that it alone has.
"""
