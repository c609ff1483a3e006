r"""Complete the model.

Write Llama's pass from the page above and without the listings: norm, rotation in both its forms, attention with grouped queries,
gated network, and with them the whole. Then compare your logits with the library's, as shown above, on four prompts and 2,048
random ids of SmolLM2; without room for it, on random ids of `random:tiny-llama`. *Hand in:* the pass, the largest difference, and
the number of positions of the random ids at which a pass with interleaved rotations agrees. *A right answer shows* logits within
$10^{-3}$ at every position, the last one named, and why interleaved rotations agree where they do.
"""

from torch import Tensor

EXERCISE = {
    "id": "ch14.1",
    "difficulty": 3,
    "minutes": 180,
    "points": {"code": 10, "numbers": 3, "paragraph": 2},
    "numbers": {
        "largest_difference": "largest magnitude of a difference between your logits and the library's, over all prompts and ids, "
        "in float32",
        "positions_interleaved": "of the 2,048 positions, those whose logits all agree within 0.001 when queries and keys are "
        "turned by rotate_interleaved",
    },
}


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """x [..., d] over the root of (the mean of its squares, plus epsilon), for each position over its d numbers, times gain [d]."""
    raise NotImplementedError


def rotation(positions: Tensor, dh: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [T, dh / 2] float32, of the angles at positions [T] int64: plane i of 0 to dh / 2 - 1 turns by
    position times theta^(-2 i / dh) radians."""
    raise NotImplementedError


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, T, dh] turned by angles with cos and sin [T, dh / 2]: numbers i and i + dh / 2 are the first and the second
    coordinate of plane i, and stay where they are. The result has the dtype of x."""
    raise NotImplementedError


def rotate_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same with plane i made of numbers 2 i and 2 i + 1."""
    raise NotImplementedError


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention [B, h, T, dh] of q [B, h, T, dh] over k and v [B, g, T, dh]: query head i reads head i // (h / g) of keys
    and values; scores are divided by the root of dh, and a position sees itself and all before it."""
    raise NotImplementedError


def feed_forward(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """The gated network [..., d] of x [..., d], with matrices [out, in]: gate and up [f, d], down [d, f]. SiLU is on the gate."""
    raise NotImplementedError


def forward(ids: Tensor, weights: dict, config: dict) -> Tensor:
    """Logits [B, T, V] of ids [B, T] at positions 0 to T - 1. All arguments stay as they are.

    config: fields of a config.json: vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
    rms_norm_eps, rope_theta; and some that may be missing or None: num_key_value_heads (then h), head_dim (then d / h),
    tie_word_embeddings (then false). Others play no part.
    weights: model.embed_tokens.weight [V, d]; of each layer N, all of them model.layers.N.(...).weight: input_layernorm [d],
    self_attn.q_proj [h dh, d], self_attn.k_proj and self_attn.v_proj [g dh, d], self_attn.o_proj [d, h dh],
    post_attention_layernorm [d], mlp.gate_proj and mlp.up_proj [f, d], mlp.down_proj [d, f]; model.norm.weight [d]; and
    lm_head.weight [V, d] where it is not tied. There are no biases.
    """
    raise NotImplementedError
