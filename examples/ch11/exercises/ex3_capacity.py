r"""The sequences that fit.

Write the bytes of a cache, the sequences that fit beside the weights, the fewest whose caches outweigh the weights, and the
tokens per second of a batch that only waits for memory. Then compute both numbers for Llama-3-8B ($8030261248$ parameters, 32
layers, 8 heads with keys of width 128) at $8192$ positions in bfloat16 on an L40S, with its memory of $48 \cdot 10^9$ bytes,
and compare with `examples/ch11/capacity.py`. *Hand in:* the four functions, the numbers, and a paragraph. *A right answer
shows* what a cache of half the bytes changes in each of them.
"""

EXERCISE = {
    "id": "ch11.3",
    "difficulty": 1,
    "minutes": 40,
    "points": {"code": 5, "numbers": 2, "paragraph": 2},
    "numbers": {
        "fit": "sequences of Llama-3-8B that fit on the L40S",
        "outweigh": "the fewest sequences whose caches are larger than the weights",
    },
}


def cache_bytes(layers: int, kv_heads: int, head_width: int, tokens: int, number: int) -> int:
    """Bytes of the keys and values of one sequence of `tokens` tokens, `number` bytes each."""
    raise NotImplementedError


def fits(weights: int, cache: int, memory: int) -> int:
    """The most sequences whose caches of `cache` bytes each fit into `memory` bytes beside the weights; 0 where none does."""
    raise NotImplementedError


def outweigh(weights: int, cache: int) -> int:
    """The fewest sequences whose caches together are larger than the weights, by a byte at least."""
    raise NotImplementedError


def tokens_per_s(weights: int, cache: int, batch: int, bytes_per_s: float) -> float:
    """Tokens per second of all `batch` sequences together, if a decode step does nothing but read the weights once and each
    cache."""
    raise NotImplementedError
