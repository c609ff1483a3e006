"""The training of a byte-level BPE."""

from itertools import pairwise


def pair_counts(cut, times):
    counts = {}
    for pieces, often in zip(cut, times, strict=True):
        for left, right in pairwise(pieces):
            counts[f"{left} {right}"] = counts.get(f"{left} {right}", 0) + often
    return counts


def joined(pieces, left, right):
    found = []
    for piece in pieces:
        if found and found[-1] == left and piece == right:
            found[-1] = left + right
        else:
            found.append(piece)
    return found


def train(words, merges):
    cut, made = [[*word] for word in words], []
    ids = {}
    while len(made) < merges:
        counts = pair_counts(cut, list(words.values()))
        if not counts:
            break

        def order(pair, counts=counts):
            left, right = pair.split(" ")
            return -counts[pair], ids.get(left, ord(left[0])), ids.get(right, ord(right[0]))

        left, right = min(counts, key=order).split(" ")
        made.append([left, right])
        ids.setdefault(left + right, 1000 + len(ids))
        cut = [joined(pieces, left, right) for pieces in cut]
    return made


def vocabulary(letters, merges):
    ids = {letter: id for id, letter in enumerate(sorted(letters))}
    for left, right in merges:
        ids.setdefault(left + right, len(ids))
    return ids
