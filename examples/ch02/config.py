"""What a model computes, as numbers and switches: a GPT-2's dozen fields, and the general form that any of the families has.

`families` reads either from a `config.json`. Both have the same names for sizes: `n_embd` is d, `n_layer` L, `n_head` h,
`kv_heads` g, `head_width` dh, `inner_width` f, `vocab_size` V; `n_positions` is how many positions the model was made for.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

ACTIVATION_NAMES = {  # as files spell them: the name of a function in chapter 4
    **{"gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "gelu": "gelu"},
    **{"relu": "relu", "silu": "silu", "swish": "silu", "tanh": "tanh"},
}
BIASED = ("qkv", "o", "mlp")  # the matrices of a layer that may have a bias


@dataclass(frozen=True)
class GPT2Config:
    """What a GPT-2 computes, by the field names of its `config.json`. `n_inner` is the feed-forward width; None means 4d."""

    model_type: ClassVar[str] = "gpt2"

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    tie_word_embeddings: bool = True

    @property
    def head_width(self) -> int:
        """dh, the width of one head."""
        return self.n_embd // self.n_head

    @property
    def kv_heads(self) -> int:
        """g, the heads that have keys and values: all of them."""
        return self.n_head

    @property
    def inner_width(self) -> int:
        """f, the feed-forward width."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner


@dataclass(frozen=True)
class Rope:
    """How positions turn queries and keys: theta, and for the other kinds how far the frequencies are slowed.

    low, high: llama3's. fast, slow, mscale, mscale_all: yarn's, which chapter 14's DeepSeek has. original_positions: of both.
    factors: of the kind that a GGUF file has, what the frequency of each pair is divided by; `factor` is the largest of them.
    """

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    original_positions: int = 8192
    fast: float = 32.0
    slow: float = 1.0
    mscale: float = 0.0
    mscale_all: float = 0.0
    factors: tuple[float, ...] = ()

    @property
    def gain(self) -> float:
        """What cos and sin are multiplied by: 1 but for yarn, where longer texts are given sharper scores."""
        if self.kind != "yarn":
            return 1.0
        if self.mscale and self.mscale_all:
            return self.sharpening(self.mscale) / self.sharpening(self.mscale_all)
        return self.sharpening(1.0)

    def sharpening(self, mscale: float) -> float:
        """0.1 m ln(factor) + 1. Peng et al., "YaRN" (2023), section 3.4."""
        return 0.1 * mscale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: ranks of the compressed queries (None: not compressed) and keys, and the three head widths.

    absorbed: which of two forms of the same function is computed; no config says so.
    """

    q_rank: int | None
    kv_rank: int
    plain: int  # of queries and keys without position
    turned: int  # of queries and keys with it; one such key serves all heads
    value: int
    absorbed: bool = False


@dataclass(frozen=True)
class Experts:
    """A mixture: of `count` networks of width `width` each token takes `active`, and `shared` more always.

    routing: "softmax" (Mixtral: the softmax over all, the best renormalised) or "sigmoid" (DeepSeek: scores by themselves, a bias
    that chooses and does not weigh, only the best `best_groups` of `groups`). dense: the layers, counted from 0, that have no
    mixture and one network of the model's inner width.
    """

    count: int
    active: int
    width: int
    routing: str = "softmax"
    shared: int = 0
    dense: tuple = ()
    groups: int = 1
    best_groups: int = 1
    renormalise: bool = True
    scale: float = 1.0


@dataclass(frozen=True)
class Config:
    """Which computation any of the families is: sizes, the ten choices of chapter 14, and what some have beside them."""

    model_type: str
    vocab_size: int
    n_embd: int
    n_layer: int
    n_head: int
    kv_heads: int
    head_width: int
    inner_width: int
    n_positions: int
    # the ten choices of chapter 14; two of them are of two fields, attention (with kv_heads) and activation (with gated)
    norm: str = "rms"  # or "layer"
    norm_place: str = "pre"  # or "post", "both"
    positions: str = "rope"  # or "learned", "sinusoidal", "alibi", "none"
    latent: Latent | None = None  # None: h heads of queries on g of keys and values
    activation: str = "silu"  # the name of a function of chapter 4
    gated: bool = True
    experts: Experts | None = None
    tie_word_embeddings: bool = False
    biases: tuple = ()  # of BIASED
    windows: tuple = ()  # of each layer its window, or None; empty: none has one
    qk_norm: bool = False
    # details
    norm_eps: float = 1e-6
    unit_gain: bool = False  # gains are stored less 1, as what they differ from it
    final_norm: bool = True
    embedding_norm: bool = False
    embedding_scale: float = 1.0
    score_scale: float | None = None  # None: 1 / sqrt(width of a query)
    score_scale_by_layer: bool = False  # divided by the layer's number too, counted from 1
    wide_scores: bool = False  # scores in float32 even where weights are narrower
    score_cap: float | None = None
    logit_cap: float | None = None
    rope: Rope | None = None  # where positions turn
    window_rope: Rope | None = None  # of layers with a window, where it is another
    interleaved: bool = False  # pairs (2i, 2i + 1) turn, not (i, i + dh / 2)
    first_position: int = 0  # the place of position 0 in a table of sinusoids
    residual: bool = True  # False only in chapter 14's ablations

    @property
    def query_width(self) -> int:
        """Numbers in one head's query and key."""
        return self.latent.plain + self.latent.turned if self.latent else self.head_width

    @property
    def value_width(self) -> int:
        """Numbers in one head's value."""
        return self.latent.value if self.latent else self.head_width

    def window(self, layer: int) -> int | None:
        """The window of a layer, or None."""
        return self.windows[layer] if self.windows else None

    def has_experts(self, layer: int) -> bool:
        """Whether the layer's feed-forward network is a mixture."""
        return self.experts is not None and layer not in self.experts.dense


# Where norms stand: before attention, after it, before the feed-forward network, after it. The names are those of the files, in
# which Llama's post_attention_layernorm comes before the feed-forward network, and Gemma 2's after attention.
NORMS = {
    "pre": ("input_layernorm", None, "post_attention_layernorm", None),
    "post": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "both": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
}


def general(config: GPT2Config | Config) -> Config:
    """The general form of a config that was read: itself, or what a GPT-2's fields mean in it."""
    if isinstance(config, Config):
        return config
    sizes = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "kv_heads", "head_width", "inner_width")
    return Config(
        "gpt2",
        **{name: getattr(config, name) for name in (*sizes, "tie_word_embeddings")},
        **dict(norm="layer", positions="learned", gated=False, biases=BIASED),
        activation=config.activation_function,
        norm_eps=config.layer_norm_epsilon,
        score_scale=None if config.scale_attn_weights else 1.0,
        score_scale_by_layer=config.scale_attn_by_inverse_layer_idx,
        wide_scores=config.reorder_and_upcast_attn,
    )
