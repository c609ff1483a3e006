r"""Trace the bytes.

Write the trace of one decode step of a Llama, operation by operation, and the time it takes at two rates. Then trace a step of
SmolLM2 in float32 at a batch and context of your choice, beside `examples/ch14/decode_trace.py` (`--config smollm2 --bytes 4`), and
time it on your machine with `examples/ch14/decode_times.py`, both with `--batch`. *Hand in:* the functions, four numbers, and a
paragraph with the trace, your machine's two rates and how you measured them, the predicted and the measured time. *A right answer
shows* a ratio between the two with an account of it that another measurement supports.
"""

EXERCISE = {
    "id": "ch14.3",
    "difficulty": 2,
    "minutes": 100,
    "points": {"code": 7, "numbers": 3, "paragraph": 3},
    "numbers": {
        "mflop": "10^6 FLOPs of a step of SmolLM2 for one sequence with 2,000 positions cached",
        "weight_mb": "10^6 bytes of weights that it reads in float32, token rows and norms too",
        "cache_mb": "10^6 bytes of cache that it reads in float32",
        "measured_over_predicted": "your machine's time of the step that you chose, over the time predicted for it",
    },
}

# The operations of a step; a line is for all layers together.
OPERATIONS = (
    *("embedding", "norms", "q projection", "k projection", "v projection", "append to the cache", "attention over the cache"),
    *("o projection", "feed-forward matrices", "head"),
)


def operation(name: str, config: dict, context: int, batch: int, bytes_per_number: int) -> list[int]:
    """[FLOPs, bytes of weights read, bytes of cache read, bytes of cache written] of one of OPERATIONS.

    The step gives each of `batch` sequences, with `context` positions cached, one new token.

    FLOPs are those of products of matrices, two for each multiply-add; the new token attends to itself too. Weights are read once,
    whatever the batch; of the token table one row for each sequence. "norms" are the gains of two norms a layer and of the final
    one. The cache has the keys and values of g heads; "attention over the cache" reads what was cached before the step. "head" is
    the output matrix, which is read whole, tied or not. config: fields of a Llama's config.json: vocab_size V, hidden_size d,
    intermediate_size f, num_hidden_layers L, num_attention_heads h, num_key_value_heads g, head_dim dh (d / h where it is missing).
    """
    raise NotImplementedError


def step(config: dict, context: int, batch: int, bytes_per_number: int) -> list[int]:
    """The four sums over all OPERATIONS."""
    raise NotImplementedError


def seconds(operations: list[list[int]], flop_per_s: float, bytes_per_s: float) -> dict[str, float]:
    """Times of operations with [FLOPs, bytes] each, at a machine's two rates.

    "compute": all FLOPs at their rate; "memory": all bytes at theirs; "whole": the larger of these two, if everything overlaps; and
    "one_by_one": the sum of the larger of the two of each operation, if each waits for the one before.
    """
    raise NotImplementedError


def tokens_per_s(batch: int, step_s: float) -> float:
    """Tokens per second over all sequences, when a step takes `step_s` seconds."""
    raise NotImplementedError
