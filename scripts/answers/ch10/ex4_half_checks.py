"""Checks of ch10.4: the cache as a class, fed in chunks, cut back, compared with another text."""

import torch

from scripts.grading.answers import Mutant

DRIVER = '''
import torch


def made(module, sizes, store):
    return module.Cache(*sizes, getattr(torch, store))


def take(cache, chunk):
    """Every layer extends a chunk, then it counts; what the layers gave. chunk: ids [B, T], keys and values [L, B, h, T, dh]."""
    out = [list(cache.extend(layer, k, v)) for layer, (k, v) in enumerate(zip(chunk["k"], chunk["v"]))]
    cache.advance(chunk["ids"])
    return out


def feed(module, sizes, store, chunks):
    """What each layer sees at each chunk, and the length after it."""
    cache = made(module, sizes, store)
    return [[take(cache, chunk), cache.length] for chunk in chunks]


def lengths(module, sizes, store, chunks):
    """The length within a pass and after it."""
    cache, found = made(module, sizes, store), []
    for chunk in chunks:
        cache.extend(0, chunk["k"][0], chunk["v"][0])
        found.append(cache.length)
        cache.advance(chunk["ids"])
        found.append(cache.length)
    return found


def half_way(module, sizes, store, first, lost, chunk):
    """A pass that is broken off after one layer leaves no trace; then another follows."""
    cache = made(module, sizes, store)
    take(cache, first)
    cache.extend(0, lost["k"][0], lost["v"][0])
    return take(cache, chunk)


def back(module, sizes, store, chunks, length, chunk):
    """Cut back to a length, then fed another chunk."""
    cache = made(module, sizes, store)
    for c in chunks:
        take(cache, c)
    cache.truncate(length)
    return [cache.length, take(cache, chunk)]


def shared(module, sizes, store, chunks, length, texts):
    """What is shared with each of some texts, cut back to a length."""
    cache = made(module, sizes, store)
    for c in chunks:
        take(cache, c)
    cache.truncate(length)
    return [cache.shared_prefix(text) for text in texts]


def size(module, sizes, store):
    return made(module, sizes, store).nbytes


def refused(module, sizes, store, chunks, chunk, lengths):
    """Whether a chunk that does not fit is refused with ValueError and leaves the length, and which lengths are refused."""
    cache, found = made(module, sizes, store), []
    for c in chunks:
        take(cache, c)
    try:
        cache.extend(0, chunk["k"][0], chunk["v"][0])
        found.append("taken")
    except ValueError:
        found.append("refused")
    found.append(cache.length)
    for length in lengths:
        try:
            cache.truncate(length)
            found.append([length, cache.length])
        except ValueError:
            found.append([length, "refused"])
    return found
'''


def chunk(draw, sizes, T, dtype=torch.float32):
    L, B, h, _, dh = sizes
    k, v = (draw.normal(L, B, h, T, dh, dtype=dtype) for _ in "kv")
    return {"ids": draw.ids(90, B, T), "k": k, "v": v}


def cases(draw):
    def like(sizes, store, *lengths, dtype=torch.float32):
        return {"sizes": list(sizes), "store": store, "chunks": [chunk(draw, sizes, T, dtype) for T in lengths]}

    for sizes, lengths in (((2, 1, 2, 9, 4), (3, 1, 1, 2)), ((1, 3, 1, 6, 2), (1, 4)), ((3, 2, 2, 5, 3), (5,))):
        yield "keys and values so far", "feed", like(sizes, "float32", *lengths)
    for store in ("bfloat16", "float16"):
        yield "kept in half the bytes", "feed", like((2, 2, 1, 7, 4), store, 3, 1, 2)
    yield "keys and values in float64", "feed", like((1, 1, 2, 5, 3), "float64", 2, 1, dtype=torch.float64)
    yield "keys and values in float64", "feed", like((1, 1, 2, 5, 3), "float32", 2, 1, dtype=torch.float64)
    for lengths in ((1, 2, 1, 3), (4, 1, 1)):
        yield "the length moves once a pass", "lengths", like((2, 1, 1, 8, 2), "float32", *lengths)
    for T in (1, 2):
        sizes = (2, 1, 2, 8, 3)
        three = {"first": chunk(draw, sizes, 3), "lost": chunk(draw, sizes, 2), "chunk": chunk(draw, sizes, T)}
        yield "a pass that is broken off", "half_way", {"sizes": list(sizes), "store": "float32", **three}
    for length in (0, 2, 5):
        sizes = (2, 2, 1, 9, 3)
        yield "cut back", "back", {**like(sizes, "float32", 3, 1, 1), "length": length, "chunk": chunk(draw, sizes, 2)}
    for B in (1, 3):
        for length in (6, 3):
            held = like((1, B, 1, 8, 2), "float32", 4, 2)
            text = torch.cat([c["ids"] for c in held["chunks"]], dim=1)
            texts = [text, text[:, :2], torch.cat([text, text], dim=1)]
            for at in (0, 2, 4):
                other = text.clone()
                other[draw.whole(0, B - 1), at] += 100
                texts.append(other)
            yield "the shared prefix", "shared", {**held, "length": length, "texts": texts}
    for store in ("float32", "bfloat16", "float64", "float32", "float16", "bfloat16", "float32", "float64"):
        sizes = [draw.whole(1, 4), draw.whole(1, 3), draw.whole(1, 4), draw.whole(2, 20), draw.whole(2, 8)]
        yield "the bytes", "size", {"sizes": sizes, "store": store}
    for over in (1, 2, 0):
        sizes = (1, 1, 1, 6, 2)
        more = {"chunk": chunk(draw, sizes, 2 + over), "lengths": [-1, 5, 4, 3, 4, 0, 1]}
        yield "what is refused", "refused", {**like(sizes, "float32", 3, 1), **more}


MUTANTS = [
    Mutant(
        "each chunk is written at the beginning, over what is there",
        "self.keys[layer, :, :, self.length : end] = k",
        "self.keys[layer, :, :, : k.shape[2]] = k",
        (("self.values[layer, :, :, self.length : end] = v", "self.values[layer, :, :, : v.shape[2]] = v"),),
    ),
    Mutant(
        "only the new keys and values come back, not the old ones",
        "self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(k.dtype)",
        "self.keys[layer, :, :, self.length : end].to(k.dtype), self.values[layer, :, :, self.length : end].to(k.dtype)",
    ),
    Mutant(
        "the whole capacity comes back, with what was never written",
        "self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(k.dtype)",
        "self.keys[layer].to(k.dtype), self.values[layer].to(k.dtype)",
    ),
    Mutant(
        "the new position is missing from what comes back",
        "return self.keys[layer, :, :, :end]",
        "end = max(1, end - 1)\n        return self.keys[layer, :, :, :end]",
    ),
    Mutant(
        "keys and values are exchanged",
        "return self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(k.dtype)",
        "return self.values[layer, :, :, :end].to(k.dtype), self.keys[layer, :, :, :end].to(k.dtype)",
    ),
    Mutant("the keys are kept as values too", "self.length : end] = v", "self.length : end] = k"),
    Mutant(
        "all layers write into the first",
        "        end = self.length + k.shape[2]\n",
        "        end, layer = self.length + k.shape[2], 0\n",
    ),
    Mutant(
        "only the first sequence of a batch is kept",
        "self.keys[layer, :, :, self.length : end] = k",
        "self.keys[layer, :1, :, self.length : end] = k[:1]",
        (("self.values[layer, :, :, self.length : end] = v", "self.values[layer, :1, :, self.length : end] = v[:1]"),),
    ),
    Mutant(
        "the length moves with each layer, so that the next one writes one place further",
        "        return self.keys[layer, :, :, :end]",
        "        self.length = end\n        return self.keys[layer, :, :, :end]",
        (
            (
                "        end = self.length + ids.shape[1]\n        self.ids[:, self.length : end] = ids\n"
                "        self.length = end\n",
                "        self.ids[:, self.length - ids.shape[1] : self.length] = ids\n",
            ),
        ),
    ),
    Mutant(
        "what comes back is in the dtype of the cache, not of k",
        "self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(k.dtype)",
        "self.keys[layer, :, :, :end].clone(), self.values[layer, :, :, :end].clone()",
    ),
    Mutant(
        "the dtype is not used: all is kept in float32",
        "torch.zeros(shape, dtype=store), torch.zeros(shape, dtype=store)",
        "torch.zeros(shape), torch.zeros(shape)",
    ),
    Mutant(
        "what comes back is in float32, whatever k is",
        "self.keys[layer, :, :, :end].to(k.dtype), self.values[layer, :, :, :end].to(k.dtype)",
        "self.keys[layer, :, :, :end].float(), self.values[layer, :, :, :end].float()",
    ),
    Mutant(
        "the keys alone are kept in half the bytes",
        "dtype=store), torch.zeros(shape, dtype=store)",
        "dtype=store), torch.zeros(shape)",
    ),
    Mutant(
        "the new positions come back as they were given, not as they are kept: only old ones are rounded",
        "        self.keys[layer, :, :, self.length : end] = k\n",
        "        self.keys[layer, :, :, self.length : end] = k\n        if self.keys.dtype.itemsize == 2:\n"
        "            self.values[layer, :, :, self.length : end] = v\n            n = self.length\n"
        "            old = self.keys[layer, :, :, :n].to(k.dtype), self.values[layer, :, :, :n].to(k.dtype)\n"
        "            return torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)\n",
    ),
    Mutant("the bytes are those of the keys alone", "self.keys.nbytes + self.values.nbytes", "self.keys.nbytes"),
    Mutant(
        "the ids are counted among the bytes",
        "self.keys.nbytes + self.values.nbytes",
        "self.keys.nbytes + self.values.nbytes + self.ids.nbytes",
    ),
    Mutant("these are numbers, not bytes", "self.keys.nbytes + self.values.nbytes", "self.keys.numel() + self.values.numel()"),
    Mutant(
        "the bytes are counted as in float32",
        "self.keys.nbytes + self.values.nbytes",
        "4 * (self.keys.numel() + self.values.numel())",
    ),
    Mutant(
        "a full cache wraps round and raises nothing",
        '            raise ValueError("the cache is full")\n',
        "            self.length = 0\n            end = k.shape[2]\n",
    ),
    Mutant("a cache with just enough room is taken for full", "if end > self.capacity:", "if end >= self.capacity:"),
    Mutant(
        "cutting back forgets one position too many", "        self.length = length\n", "        self.length = max(0, length - 1)\n"
    ),
    Mutant("cutting back does nothing", "        self.length = length\n", "        pass\n"),
    Mutant(
        "cutting back forgets the first positions, not the last",
        "        self.length = length\n",
        "        n = self.length - length\n        self.keys, self.values, self.ids = self.keys.roll(-n, 3), "
        "self.values.roll(-n, 3), self.ids.roll(-n, 1)\n        self.length = length\n",
    ),
    Mutant("cutting back to more than is held is not refused", "if not 0 <= length <= self.length:", "if length < 0:"),
    Mutant("cutting back to a negative length is not refused", "if not 0 <= length <= self.length:", "if length > self.length:"),
    Mutant("the ids are not noted at their places", "self.ids[:, self.length : end] = ids", "self.ids[:, : ids.shape[1]] = ids"),
    Mutant(
        "what is shared is counted over the whole text, behind the first difference too",
        "same.int().cumprod(0).sum()",
        "same.sum()",
    ),
    Mutant("what was forgotten counts as shared", "n = min(self.length, ids.shape[1])", "n = min(self.capacity, ids.shape[1])"),
    Mutant("only the first sequence of a batch is compared", ".all(0)", "[0]"),
]

RANGES = {"cache_bytes": (1_048_576, 1_048_576), "largest_difference_percent": (0.02, 0.45)}
MISTAKES = {
    "cache_bytes": [
        (2_097_152, 2_097_152, "this is the cache in float32"),
        (524_288, 524_288, "this is of the keys or of the values alone, or of numbers and not of bytes"),
        (4096, 4096, "this is one token, not the full context"),
    ],
    "largest_difference_percent": [
        (0.46, 3, "this is as much as computing everything in bfloat16; the weights are to stay in float32"),
        (0.0001, 0.0045, "this is a share, not per cent; or the cache is still in float32"),
    ],
}

RUBRIC = """
1 point: bytes and difference, and whether a greedy token changes and which, for stated prompts.
1 point: the difference beside that of computing everything in bfloat16, several times as large; here only what is kept is rounded.
"""
