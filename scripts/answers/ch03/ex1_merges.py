"""Letters of bytes, and merges one by one."""

from itertools import pairwise


def byte_letters():
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(others)) for byte in range(256)]


def spelt(text):
    letters = byte_letters()
    return "".join(letters[byte] for byte in text.encode("utf-8"))


def merging(word, merges):
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    pieces, rows = [*word], []
    while True:
        found = [(ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks]
        if not found:
            return rows
        rank, at = min(found)
        pieces = [*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]]
        rows.append([rank, pieces])


def on_paper():
    two = [["a", "n"], ["Ġ", "b"], ["Ġb", "an"], ["an", "a"], ["n", "a"]]
    return two, [two[4], *two[:4]]
