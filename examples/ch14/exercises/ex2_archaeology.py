r"""Config archaeology.

Write what a config.json says a model computes, stores and reads. Then take five models of this chapter's families, three from
`examples/ch14/configs.json` and two others with their `config.json`; for each: parameters, FLOPs per token, cache bytes per token,
and memory for weights and cache at 8,192 positions and batch 32, by your functions and by `examples/ch14/costs.py` and
`examples/ch14/serving.py`. *Hand in:* the functions, three of these numbers, and the table. *A right answer shows* both agreeing to
the last parameter, or the field that you forgot; which model is cheapest to serve; and whether it is the smallest.
"""

EXERCISE = {
    "id": "ch14.2",
    "difficulty": 2,
    "minutes": 120,
    "points": {"code": 8, "numbers": 3, "paragraph": 3},
    "numbers": {
        "qwen2_7b_parameters": "parameters of qwen2-7b",
        "mixtral_8x7b_gflop": "10^9 FLOPs of one token of mixtral-8x7b that attends over 8,192 positions",
        "qwen3_4b_memory_gib": "GiB of qwen3-4b's weights and caches, two bytes a number, for 32 sequences of 8,192 positions",
    },
}

# A config is a dictionary of a config.json's fields. Its model_type is one of five:
#
# llama    attention_bias (false): biases on q, k, v and o. A field sliding_window plays no part.
# mistral  sliding_window (none): the window of all layers. No biases.
# mixtral  as mistral, and num_local_experts E, num_experts_per_tok k: each layer has a router [E, d] and E gated networks, of which
#          a token takes k.
# qwen2    biases on q, k and v, always. Where use_sliding_window (false) is true, layers max_window_layers, max_window_layers + 1,
#          ... have the window sliding_window, and those before see everything; else none has a window.
# qwen3    windows as qwen2; attention_bias (false) as llama; and a norm with dh gains for queries and one for keys in each layer.
#
# All have vocab_size V, hidden_size d, intermediate_size f, num_hidden_layers L, num_attention_heads h; and num_key_value_heads g
# (h), head_dim dh (d / h), tie_word_embeddings (false). In brackets: what holds where the field is missing or None. All are
# pre-norm with RMS norm, two norms a layer and a final one, and have gated networks without biases.


def choices(config: dict) -> dict:
    """What the config says.

    "attention": "MHA" where g = h, else "MQA" where g = 1, else "GQA". "group": query heads for each key head. "head_width".
    "tied": true or false. "biases": "", "qkv" or "qkvo". "windows": a list of L whole numbers, 0 for a layer that sees everything.
    "experts", "active_experts": both 1 where there is one network.
    """
    raise NotImplementedError


def parameter_count(config: dict, active: bool = False) -> dict[str, int]:
    """Parameters by component, and their sum, "total".

    "token_table"; "attention", biases too; "feed_forward", routers too; "norms", all of them; "output", 0 where it is tied. active:
    of the experts only those that one token takes, the router whole.
    """
    raise NotImplementedError


def flops_per_token(config: dict, context: int) -> int:
    """FLOPs of the products of matrices for one token that attends over `context` positions, itself included, a layer with a window
    W over W at most: two for each weight of a matrix that the token takes, the output matrix's too, and scores and mixture."""
    raise NotImplementedError


def kv_bytes_per_token(config: dict, bytes_per_number: int = 2) -> int:
    """Bytes that one more token adds to the cache of one sequence, while no window is full."""
    raise NotImplementedError


def memory_gib(config: dict, context: int, batch: int, bytes_per_number: int = 2) -> float:
    """GiB, 2^30 bytes, of the weights, once, and of the caches of `batch` sequences of `context` positions; a layer with a window W
    keeps W positions at most."""
    raise NotImplementedError
