r"""How many sequences fit?

Write the bytes of a cache, and how many sequences fit beside the weights. GPT-2 XL has 48 layers of width $1600$, all of whose
heads have keys, and a context of $1024$; `examples/ch04/cost_model.py` counts its parameters. Take a machine with 24 GiB, and two
bytes a number. Compute the bytes of the weights, the cache of a sequence at the full context, and how many sequences fit at once:
an upper bound, since activations need memory too. Compare with `examples/ch10/cache_memory.py` with `--config gpt2-xl`. *Hand
in:* the two functions, and the numbers. *A right answer shows* what is left for sequences after the weights, and what halving the
bytes of the cache alone changes.
"""

EXERCISE = {
    "id": "ch10.7",
    "difficulty": 1,
    "minutes": 30,
    "points": {"code": 4, "numbers": 4},
    "numbers": {
        "weights_gib": "GiB (2^30 bytes) of the weights",
        "left_gib": "GiB that the weights leave for sequences",
        "cache_mib": "MiB (2^20 bytes) of the cache of one sequence at the full context",
        "sequences": "how many sequences fit at once",
        "sequences_half": "how many fit with one byte a number in the cache, and two in the weights",
    },
}


def cache_bytes(L: int, g: int, dh: int, T: int, B: int, b: int) -> int:
    """Bytes of keys and values of B sequences of T tokens, in L layers, of g heads with keys of width dh, b bytes a number."""
    raise NotImplementedError


def sequences_that_fit(memory: int, parameters: int, weight: int, cache: int) -> int:
    """How many sequences fit into `memory` bytes beside the weights: `parameters` numbers of `weight` bytes each, held once; a
    whole sequence takes `cache` bytes. 0 where there is no room for one, or not even for the weights."""
    raise NotImplementedError
