r"""Depth and bias in the count.

Write the shapes of one layer of a GPT-2, and the number of its parameters in closed form, with attention's biases and without.
Then, for five values of `n_layer`, count the tensors of the tiny model (`tensor_shapes` in `examples/ch04/tiny_transformer.py`)
beside `parameter_count` in the same file, and take the biases of attention out of GPT-2's count, `parameter_count` in
`examples/ch04/cost_model.py`. *Hand in:* the two functions, and a paragraph with the two tables. *A right answer shows* what falls
away in each layer, and that both the tensor table and the count must change.
"""

EXERCISE = {"id": "ch04.1", "difficulty": 1, "minutes": 40, "points": {"code": 4, "paragraph": 2}}


def layer_shapes(config: dict, attention_bias: bool = True) -> list[list[int]]:
    """The shape of each parameter of one layer, matrices as [in, out], in the order of the pass.

    First norm: gain, shift. Attention: the matrix to queries, keys and values together, its bias, the output matrix, its bias.
    Second norm: gain, shift. Feed-forward network: first matrix, bias, second matrix, bias. Without `attention_bias` attention's
    two biases are left out. config: "vocab_size" V, "n_positions", "n_embd" d, "n_layer" L, and "n_inner" f, where None means 4 d.
    """
    raise NotImplementedError


def parameter_count(config: dict, attention_bias: bool = True) -> dict[str, int]:
    """The parameters of the whole model by component: "token_embedding", "position_embedding", "attention", "feed_forward", "norms"
    (the final one too), and their sum, "total". The output projection is the token embedding again, and is not counted twice."""
    raise NotImplementedError
