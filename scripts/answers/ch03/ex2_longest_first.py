"""Words, and the longest piece first."""

import regex

WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def words(text):
    return WORDS.findall(text)


def longest_first(word, pieces):
    known, found, at = set(pieces), [], 0
    while at < len(word):
        end = max(end for end in range(at + 1, len(word) + 1) if word[at:end] in known)
        found.append(word[at:end])
        at = end
    return found


def encode(text, letters, ids):
    found = []
    for word in words(text):
        spelt = "".join(letters[byte] for byte in word.encode("utf-8"))
        found += [ids[piece] for piece in longest_first(spelt, list(ids))]
    return found


def decode(found, letters, ids):
    pieces, bytes_of = {id: piece for piece, id in ids.items()}, {letter: byte for byte, letter in enumerate(letters)}
    return bytes(bytes_of[letter] for id in found for letter in pieces[id]).decode("utf-8", errors="replace")
