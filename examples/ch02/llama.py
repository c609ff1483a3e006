"""What a Llama computes, by its `config.json`, in the spellings of transformers 4 and 5; and its table of tensors."""

import math
from dataclasses import MISSING, dataclass, fields
from typing import ClassVar

from examples.ch01.command import BadInput

ROPE_KINDS = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Rope:
    """How positions turn queries and keys: theta, and for the other kinds how far the frequencies are slowed.

    low, high: llama3's. fast, slow, mscale, mscale_all: yarn's, which chapter 14's DeepSeek has. original_positions: of both.
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

    @property
    def gain(self):
        """What cos and sin are multiplied by: 1 but for yarn, where longer texts are given sharper scores."""
        if self.kind != "yarn":
            return 1.0
        if self.mscale and self.mscale_all:
            return self.sharpening(self.mscale) / self.sharpening(self.mscale_all)
        return self.sharpening(1.0)

    def sharpening(self, mscale):
        """0.1 m ln(factor) + 1. Peng et al., "YaRN" (2023), section 3.4."""
        return 0.1 * mscale * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


@dataclass(frozen=True)
class LlamaConfig:
    """What a Llama computes: V, d, f, L, h, g heads with keys and values, dh, positions, then the switches.

    `num_key_value_heads` None means as many as heads, `head_dim` None means d / h.
    """

    model_type: ClassVar[str] = "llama"

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int = 2048
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    rope: Rope = Rope()
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            may_be_none = field.type == int | None
            whole = type(value) is int and 1 <= value <= 10**9
            if (field.type is int or may_be_none) and not whole and not (may_be_none and value is None):
                shown = repr(value)[:40]
                raise BadInput(f"config: {field.name} is {shown}, not a whole number from 1 to 10^9; correct config.json")
            if field.type is bool and type(value) is not bool:
                raise BadInput(f"config: {field.name} is {value!r}, not true or false; correct config.json")
        if type(self.rms_norm_eps) not in (int, float) or not 0 < self.rms_norm_eps < math.inf:
            raise BadInput(f"config: rms_norm_eps is {self.rms_norm_eps!r}, not a number above 0; correct config.json")
        if self.n_head % self.kv_heads:
            raise BadInput(f"config: {self.n_head} heads are not divisible by {self.kv_heads} key-value heads; correct config.json")
        if self.head_dim is None and self.hidden_size % self.n_head:
            raise BadInput(
                f"config: hidden_size {self.hidden_size} is not divisible by {self.n_head} heads, and head_dim is not given"
            )
        if self.head_width % 2:
            raise BadInput(f"config: head_dim {self.head_width} is odd, and a rotation turns pairs; correct config.json")

    @property
    def n_embd(self):
        """d, under chapter 4's name; so for the four below."""
        return self.hidden_size

    @property
    def n_layer(self):
        """L."""
        return self.num_hidden_layers

    @property
    def n_head(self):
        """h, the heads with queries."""
        return self.num_attention_heads

    @property
    def n_positions(self):
        """The most positions that the model was made for."""
        return self.max_position_embeddings

    @property
    def kv_heads(self):
        """g, the heads with keys and values; each serves h / g query heads."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def head_width(self):
        """dh: `head_dim` where it is given, whatever d / h is."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    @property
    def inner_width(self):
        """f, the feed-forward width."""
        return self.intermediate_size


def config_from(values, where):
    """The LlamaConfig in `values`, the object of a `config.json`; `where` names it in errors.

    Refused by name: another activation than SiLU, a rope that is not in ROPE_KINDS, quantised weights.
    """
    if values.get("hidden_act", "silu") not in ("silu", "swish"):
        raise BadInput(f"{where}: hidden_act is {values['hidden_act']!r}; only 'silu' is known here")
    if values.get("quantization_config"):
        raise BadInput(f"{where}: quantization_config changes the computation and is not known here; use a model without it")
    absent = [f.name for f in fields(LlamaConfig) if f.default is MISSING and f.name not in values]
    if absent:
        raise BadInput(f"{where} lacks {', '.join(absent)}; give the whole config.json")
    same = {f.name: values[f.name] for f in fields(LlamaConfig) if f.name in values and f.name != "rope"}
    try:
        return LlamaConfig(**same, rope=rope_from(values))
    except BadInput as error:
        raise BadInput(f"{where}: {str(error).removeprefix('config: ')}") from None


def rope_from(values, kinds=ROPE_KINDS, theta=10000.0):
    """The Rope that a config means: `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling` (transformers 4).

    Both may stand there when they agree. Nothing that is there is passed over. kinds: those that the family knows; theta: its
    own where the config names none.
    """
    blocks = [values[name] for name in ("rope_parameters", "rope_scaling") if values.get(name) not in (None, {})]
    if not all(isinstance(block, dict) for block in blocks):
        raise BadInput("config: rope_parameters or rope_scaling is no table; correct config.json")
    top = values.get("rope_theta")
    known = {"rope_theta": theta if top is None else top}
    original = values.get("original_max_position_embeddings")
    if any(original is not None and block.get("original_max_position_embeddings", original) != original for block in blocks):
        raise BadInput("config: original_max_position_embeddings stands there twice and differs; correct one of them")
    known["original_max_position_embeddings"] = values.get("max_position_embeddings") if original is None else original
    found = [_rope(known | {k: v for k, v in block.items() if k != "rope_theta" or v is not None}, kinds) for block in blocks]
    found = found or [_rope(known, kinds)]
    if any(rope != found[0] for rope in found) or (top is not None and top != found[0].theta):
        raise BadInput("config: its spellings of the rope differ (rope_parameters, rope_theta, rope_scaling); correct one of them")
    return found[0]


_LLAMA3 = {"factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor"}
_YARN = {"factor": "factor", "fast": "beta_fast", "slow": "beta_slow", "mscale": "mscale", "mscale_all": "mscale_all_dim"}
_OPTIONAL = {"fast": 32.0, "slow": 1.0, "mscale": 0.0, "mscale_all": 0.0}  # of yarn
_ORIGINAL = {"original_positions": "original_max_position_embeddings"}
_ROPE_FIELDS = {"default": {}, "linear": {"factor": "factor"}, "llama3": _LLAMA3 | _ORIGINAL, "yarn": _YARN | _ORIGINAL}


def _rope(block, kinds):
    """One Rope of a table in either spelling, `rope_type` or the older `type`."""
    kind = block.get("rope_type", block.get("type")) or "default"
    if kind not in kinds:
        raise BadInput(f"config: the rope type {kind!r} is not known here; known are {', '.join(kinds)}")
    names = {"theta": "rope_theta"} | _ROPE_FIELDS[kind]
    unknown = sorted(set(block) - {"rope_type", "type", "original_max_position_embeddings"} - set(names.values()))
    if unknown:
        raise BadInput(f"config: the rope has {unknown[0]!r}, which type {kind!r} does not take; correct config.json")
    numbers = {ours: block.get(theirs, _OPTIONAL.get(ours)) for ours, theirs in names.items()}
    for name, value in numbers.items():
        may_be_0 = name in ("mscale", "mscale_all") and value == 0
        if type(value) not in (int, float) or not (may_be_0 or 0 < value < 1e300):  # JSON has integers that no float holds
            raise BadInput(f"config: the rope's {names[name]} is {repr(value)[:40]}, not a number above 0; correct config.json")
    if kind == "llama3" and numbers["low"] >= numbers["high"]:
        raise BadInput("config: the rope's low_freq_factor is not below its high_freq_factor; correct config.json")
    if kind == "yarn" and numbers["theta"] <= 1:
        raise BadInput(f"config: the rope's rope_theta is {numbers['theta']}, and yarn needs more than 1; correct config.json")
    return Rope(kind=kind, **{name: type(getattr(Rope(), name))(value) for name, value in numbers.items()})


def tensor_shapes(config):
    """{name: shape} of every parameter, in the order of the pass; matrices are [out, in] (nn.Linear), so y = x @ W.T + b."""
    d, f, dh = config.hidden_size, config.intermediate_size, config.head_width
    q, kv = config.n_head * dh, config.kv_heads * dh
    shapes = {"model.embed_tokens.weight": (config.vocab_size, d)}
    for i in range(config.n_layer):
        name = f"model.layers.{i}"
        shapes[f"{name}.input_layernorm.weight"] = (d,)
        for part, out, into in (("q", q, d), ("k", kv, d), ("v", kv, d), ("o", d, q)):
            shapes[f"{name}.self_attn.{part}_proj.weight"] = (out, into)
            if config.attention_bias:
                shapes[f"{name}.self_attn.{part}_proj.bias"] = (out,)
        shapes[f"{name}.post_attention_layernorm.weight"] = (d,)
        for part, out, into in (("gate", f, d), ("up", f, d), ("down", d, f)):
            shapes[f"{name}.mlp.{part}_proj.weight"] = (out, into)
            if config.mlp_bias:
                shapes[f"{name}.mlp.{part}_proj.bias"] = (out,)
    shapes["model.norm.weight"] = (d,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)
    return shapes
