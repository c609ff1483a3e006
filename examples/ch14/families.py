"""How fourteen families write down what they compute: from `config.json` to `Choices`, and from a file's tensors to weights.

`choices_from` reads a config and refuses by name what would change the computation and is not known here. `file_shapes` is the
table that loading checks the files against, under the files' own names; `to_weights` then renames, splits and transposes, so that
one forward pass serves all. Every trap that a family sets stands in its reader, beside the field that sets it.
"""

import math
from dataclasses import dataclass, fields, replace

from examples.ch01.command import BadInput
from examples.ch02 import llama
from examples.ch02.llama import ROPE_KINDS
from examples.ch14.choices import NORMS, Choices, Experts, Latent

YARN = (*ROPE_KINDS, "yarn")


class Reader:
    """The fields of one `config.json`, each checked as it is read; `where` names the file in errors."""

    def __init__(self, values, where):
        self.values, self.where = values, where

    def bad(self, name, wanted):
        return BadInput(f"{self.where}: {name} is {repr(self.values.get(name))[:40]}, not {wanted}; correct config.json")

    def get(self, *names, default=...):
        """The value under any of `names`, which may not differ; without a default one must stand there and not be null."""
        there = [n for n in names if self.values.get(n) is not None]
        if not there and default is ...:
            raise BadInput(f"{self.where} lacks {names[0]}; give the whole config.json")
        for other in there[1:]:
            if self.values[other] != self.values[there[0]]:
                raise BadInput(f"{self.where}: {there[0]} and {other} differ, and are two names of one thing; correct one")
        return self.values[there[0]] if there else default

    def whole(self, *names, default=..., most=10**9):
        value = self.get(*names, default=default)
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise self.bad(next((n for n in names if n in self.values), names[0]), f"a whole number from 1 to {most:,}")
        return value

    def number(self, *names, default=...):
        value = self.get(*names, default=default)
        # JSON has whole numbers that no float holds
        if value is not None and (type(value) not in (int, float) or not 0 < value < 1e300):
            raise self.bad(names[0], "a number above 0 and below 1e300")
        return None if value is None else float(value)

    def layers(self, name, default, most=10**9):
        """A number of layers, which may be none of them."""
        value = self.get(name, default=default)
        if type(value) is not int or not 0 <= value <= most:
            raise self.bad(name, f"a number of layers up to {most}")
        return value

    def flag(self, name, default, null=...):
        """True or false; null: what a null means, where that is not the default."""
        if null is not ... and name in self.values and self.values[name] is None:
            return null
        value = self.get(name, default=default)
        if type(value) is not bool:
            raise self.bad(name, "true or false")
        return value

    def one_of(self, name, known, default=...):
        """`known` at the field's value: {their word: ours}."""
        value = self.get(name, default=default)
        if not isinstance(value, str) or value not in known:
            raise BadInput(f"{self.where}: {name} is {repr(value)[:40]}; known here are {', '.join(known)}")
        return known[value]

    def only(self, **fields):
        """Refuse a field that would change the computation, unless it has one of the values with which it does not."""
        for name, harmless in fields.items():
            if name in self.values and self.values[name] not in (None, *harmless):
                raise BadInput(f"{self.where}: {name} {repr(self.values[name])[:40]} changes the computation and is not known here")

    def rope(self, kinds=ROPE_KINDS, theta=10000.0, values=None):
        try:
            return llama.rope_from(self.values if values is None else values, kinds, theta)
        except BadInput as error:
            raise BadInput(f"{self.where}: {str(error).removeprefix('config: ')}") from None


# ------------------------------------------------------------------------------------------------- one reader for each family

LAYERS, EXPERTS = 10**4, 10**5  # more than any model has, and few enough to be listed
GELUS = {name: name for name in ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "tanh")} | {"swish": "silu"}
ALL = ("qkv", "o", "mlp")


def _old(r, inner=None):
    """Sizes in GPT-2's words."""
    d, h = r.whole("n_embd", "n_embed", "hidden_size"), r.whole("n_head", "num_attention_heads")
    return dict(
        vocab_size=r.whole("vocab_size"),
        n_embd=d,
        n_layer=r.whole("n_layer", "num_hidden_layers", most=LAYERS),
        n_head=h,
        kv_heads=h,
        head_width=d // h,
        inner_width=inner or r.whole("n_inner", default=4 * d),
        norm="layer",
        gated=False,
        biases=ALL,
        tie_word_embeddings=r.flag("tie_word_embeddings", True),
        norm_eps=r.number("layer_norm_epsilon", default=1e-5),
    )


def _new(r, positions=2048, tied=False, eps=1e-6, head_dim=None, kv_heads=None):
    """Sizes in Llama's words; the defaults are those that the library takes for a field that is not there."""
    d, h = r.whole("hidden_size"), r.whole("num_attention_heads")
    dh = r.whole("head_dim", default=head_dim)
    if dh is None and d % h:
        raise BadInput(f"{r.where}: hidden_size {d} is not divisible by {h} heads, and head_dim is not given")
    return dict(
        vocab_size=r.whole("vocab_size"),
        n_embd=d,
        n_layer=r.whole("num_hidden_layers", most=LAYERS),
        n_head=h,
        kv_heads=r.whole("num_key_value_heads", default=None if "num_key_value_heads" in r.values else kv_heads) or h,
        head_width=dh or d // h,
        inner_width=r.whole("intermediate_size"),
        n_positions=r.whole("max_position_embeddings", default=positions),
        tie_word_embeddings=r.flag("tie_word_embeddings", tied),
        norm_eps=r.number("rms_norm_eps", default=eps),
    )


def _gpt2(r):
    r.only(add_cross_attention=(False,), scale_attn_by_inverse_layer_idx=(False,), is_causal=(True,), pruned_heads=({},))
    scale = None if r.flag("scale_attn_weights", True) else 1.0
    act = r.one_of("activation_function", GELUS, "gelu_new")
    return Choices("gpt2", **_old(r), n_positions=r.whole("n_positions"), positions="learned", activation=act, score_scale=scale)


def _openai_gpt(r):
    positions = r.whole("n_positions", "max_position_embeddings")
    act = r.one_of("afn", {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}, "gelu")  # its "gelu" is tanh's
    sizes = _old(r, inner=4 * r.whole("n_embd"))
    more = dict(positions="learned", norm_place="post", final_norm=False)
    return Choices("openai-gpt", **sizes, n_positions=positions, activation=act, **more)


def _gpt_bigcode(r):
    r.only(add_cross_attention=(False,))
    sizes = _old(r) | ({"kv_heads": 1} if r.flag("multi_query", True) else {})
    scale = None if r.flag("scale_attn_weights", True) else 1.0
    act = r.one_of("activation_function", GELUS, "gelu_pytorch_tanh")
    more = dict(positions="learned", activation=act, score_scale=scale)
    return Choices("gpt_bigcode", **sizes, n_positions=r.whole("n_positions", "max_position_embeddings"), **more)


def _bloom(r):
    r.only(apply_residual_connection_post_layernorm=(False,), slow_but_exact=(False,))
    sizes = _old(r, inner=4 * r.whole("n_embd", "n_embed", "hidden_size"))
    more = dict(positions="alibi", activation="gelu_new", embedding_norm=True)  # its GELU is written into the code, and is tanh's
    return Choices("bloom", **sizes, n_positions=r.whole("seq_length", default=2048), **more)


def _xglm(r):
    r.only(add_cross_attention=(False,))
    d, h = r.whole("d_model", "hidden_size"), r.whole("attention_heads", "num_attention_heads")
    if d < 4:
        raise r.bad("d_model", "4 or more, as its sinusoids need")
    if r.values.get("pad_token_id") not in (None, 0, 1):
        raise r.bad("pad_token_id", "0 or 1, since the library zeroes the sinusoid of that number, and later positions use it")
    return Choices(
        "xglm",
        **dict(vocab_size=r.whole("vocab_size"), n_embd=d, n_layer=r.whole("num_layers", "num_hidden_layers", most=LAYERS)),
        **dict(n_head=h, kv_heads=h, head_width=d // h, inner_width=r.whole("ffn_dim")),
        n_positions=r.whole("max_position_embeddings", default=2048),
        **dict(norm="layer", norm_eps=1e-5, gated=False, biases=ALL),  # its epsilon is torch's own and stands in no config
        **dict(positions="sinusoidal", first_position=2),  # places 0 and 1 of its table are never used
        activation=r.one_of("activation_function", GELUS, "gelu"),
        embedding_scale=math.sqrt(d) if r.flag("scale_embedding", True) else 1.0,
        tie_word_embeddings=r.flag("tie_word_embeddings", True),
    )


def _llama(r):
    r.one_of("hidden_act", {"silu": "silu", "swish": "silu"}, "silu")
    biases = (*(("qkv", "o") if r.flag("attention_bias", False) else ()), *(("mlp",) if r.flag("mlp_bias", False) else ()))
    return Choices("llama", **_new(r), rope=r.rope(), biases=biases)


def _mistral(r):
    sizes = _new(r, positions=131072, kv_heads=8)
    window, types = r.whole("sliding_window", default=_default(r, 4096)), r.get("layer_types", default=None)
    windows = _by_type(r, types, sizes, window) if types else _same(window, sizes)
    return Choices("mistral", **sizes, rope=r.rope(), activation=r.one_of("hidden_act", GELUS, "silu"), windows=windows)


def _mixtral(r):
    sizes = _new(r, positions=131072, eps=1e-5, kv_heads=8)
    experts = Experts(
        r.whole("num_local_experts", "num_experts", default=8, most=EXPERTS),
        r.whole("num_experts_per_tok", default=2),
        sizes["inner_width"],
    )
    more = dict(activation=r.one_of("hidden_act", GELUS, "silu"), windows=_same(r.whole("sliding_window", default=None), sizes))
    return Choices("mixtral", **sizes, rope=r.rope(theta=1e6), experts=experts, **more)


def _qwen(r, model_type, **more):
    sizes = _new(r, positions=32768, head_dim=128 if model_type == "qwen3" else None, kv_heads=32)
    windows, types = (), r.get("layer_types", default=None)
    if isinstance(types, list) and "sliding_attention" in types and not r.flag("use_sliding_window", False):
        raise BadInput(f"{r.where}: layer_types has sliding_attention, and use_sliding_window is not true; correct one of the two")
    if r.flag("use_sliding_window", False):  # else sliding_window stands there and says nothing
        first = r.layers("max_window_layers", 28)
        types = types or ["sliding_attention" if i >= first else "full_attention" for i in range(sizes["n_layer"])]
        window = r.whole("sliding_window", default=_default(r, 4096))
        windows = () if window is None and not r.values.get("layer_types") else _by_type(r, types, sizes, window)
    return Choices(model_type, **sizes, rope=r.rope(), activation=r.one_of("hidden_act", GELUS, "silu"), windows=windows, **more)


def _qwen2(r):
    return _qwen(r, "qwen2", biases=("qkv",))


def _qwen3(r):
    biases = ("qkv", "o") if r.flag("attention_bias", False) else ()
    return _qwen(r, "qwen3", biases=biases, qk_norm=True)


def _gemma_like(r, sizes, activation="gelu_pytorch_tanh"):
    """What the Gemmas share: gains stored as 1 + w, the embedding scaled, a gated GELU."""
    r.only(use_bidirectional_attention=(False,))
    biases = ("qkv", "o") if r.flag("attention_bias", False) else ()
    scale = math.sqrt(sizes["n_embd"])
    return dict(activation=activation, unit_gain=True, embedding_scale=scale, biases=biases)


def _gemma_act(r):
    """The activation of Gemma 2 and 3, whose "gelu" is the exact one."""
    return r.one_of("hidden_activation", {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_pytorch_tanh"}, "gelu_pytorch_tanh")


def _gemma(r):
    sizes = _new(r, positions=8192, tied=True, head_dim=256, kv_heads=16)
    for named in ("hidden_act", "hidden_activation"):  # which of them counts differs by version, and its "gelu" is tanh's
        r.one_of(named, {"gelu": 0, "gelu_pytorch_tanh": 0}, "gelu_pytorch_tanh")
    return Choices("gemma", **sizes, **_gemma_like(r, sizes), rope=r.rope())


def _gemma2(r):
    sizes = _new(r, positions=8192, tied=True, head_dim=256, kv_heads=4)
    types = r.get("layer_types", default=None)
    types = types or ["full_attention" if i % 2 else "sliding_attention" for i in range(sizes["n_layer"])]
    return Choices(
        "gemma2",
        **sizes,
        **_gemma_like(r, sizes, _gemma_act(r)),
        **dict(
            norm_place="both",
            rope=r.rope(),
            windows=_by_type(r, types, sizes, r.whole("sliding_window", default=_default(r, 4096))),
        ),
        score_scale=r.number("query_pre_attn_scalar", default=256) ** -0.5,
        score_cap=_cap(r, "attn_logit_softcapping", 50.0),
        logit_cap=_cap(r, "final_logit_softcapping", 30.0),
    )


def _gemma3(r):
    r.only(attn_logit_softcapping=())  # the library has the field and never uses it
    sizes = _new(r, positions=131072, tied=True, head_dim=256, kv_heads=4)
    types, every = r.get("layer_types", default=None), r.whole("sliding_window_pattern", default=6)
    types = types or ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(sizes["n_layer"])]
    full, local = _gemma3_ropes(r)
    return Choices(
        "gemma3_text",
        **sizes,
        **_gemma_like(r, sizes, _gemma_act(r)),
        **dict(
            norm_place="both", qk_norm=True, windows=_by_type(r, types, sizes, r.whole("sliding_window", default=_default(r, 4096)))
        ),
        **dict(rope=full, window_rope=local, score_scale=r.number("query_pre_attn_scalar", default=256) ** -0.5),
        logit_cap=_cap(r, "final_logit_softcapping", None),
    )


def _gemma3_ropes(r):
    """The ropes of full layers and of those with a window, whose theta is rope_local_base_freq and which no scaling touches."""
    ropes, scaling = r.values.get("rope_parameters"), r.values.get("rope_scaling")
    same = {k: v for k, v in r.values.items() if k in ("max_position_embeddings", "original_max_position_embeddings")}
    top, local = {"rope_theta": r.values.get("rope_theta")}, {"rope_theta": r.values.get("rope_local_base_freq")}
    if isinstance(scaling, dict) and "type" in scaling:
        raise BadInput(f"{r.where}: the library does not see Gemma 3's rope_scaling under 'type'; call it rope_type")
    if ropes is None:  # transformers 4
        return r.rope(theta=1e6), r.rope(values=local)
    kinds = ("full_attention", "sliding_attention")
    if scaling is not None or not isinstance(ropes, dict) or not set(ropes) <= set(kinds):
        raise BadInput(f"{r.where}: Gemma 3's rope_parameters has a table for full_attention and one for sliding_attention")
    tables = [ropes.get(kind) or {} for kind in kinds]
    if not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"{r.where}: rope_parameters is no table of tables; correct config.json")
    values = [
        {"rope_parameters": {"rope_theta": old["rope_theta"]} | table if old["rope_theta"] is not None else table} | same
        for table, old in zip(tables, (top, local), strict=True)
    ]
    return r.rope(theta=1e6, values=values[0]), r.rope(values=values[1])


def _deepseek_v3(r):
    r.only(attention_bias=(False,), topk_method=("noaux_tc",), scoring_func=("sigmoid",), moe_layer_freq=(1,))
    q_rank = r.whole("q_lora_rank", default=None if "q_lora_rank" in r.values else 1536)
    latent = Latent(
        q_rank, r.whole("kv_lora_rank"), r.whole("qk_nope_head_dim"), r.whole("qk_rope_head_dim"), r.whole("v_head_dim")
    )
    sizes = _new(r, positions=4096, head_dim=latent.turned) | {"head_width": latent.turned}
    if sizes["kv_heads"] != sizes["n_head"]:
        raise r.bad("num_key_value_heads", f"{sizes['n_head']}, as many as heads: latent keys are made for each")
    experts = Experts(
        r.whole("n_routed_experts", "num_local_experts", most=EXPERTS),
        r.whole("num_experts_per_tok"),
        r.whole("moe_intermediate_size"),
        routing="sigmoid",
        shared=0 if r.values.get("n_shared_experts") == 0 else r.whole("n_shared_experts", default=1),
        first_dense=min(r.layers("first_k_dense_replace", 3), sizes["n_layer"]),
        groups=r.whole("n_group", default=8),
        best_groups=r.whole("topk_group", default=4),
        renormalise=r.flag("norm_topk_prob", True, null=False),
        scale=r.number("routed_scaling_factor", default=2.5),
    )
    rope = r.rope(YARN)
    scale = (latent.plain + latent.turned) ** -0.5
    if rope.kind == "yarn" and rope.mscale_all:
        scale *= rope.sharpening(rope.mscale_all) ** 2
    more = dict(
        activation=r.one_of("hidden_act", GELUS, "silu"), score_scale=scale, interleaved=r.flag("rope_interleave", True, null=False)
    )
    return Choices("deepseek_v3", **sizes, latent=latent, experts=experts, rope=rope, **more)


def _same(window, sizes):
    return () if window is None else (window,) * sizes["n_layer"]


def _by_type(r, types, sizes, window):
    known = {"sliding_attention": window, "full_attention": None}
    if window is None and isinstance(types, list) and "sliding_attention" in types:
        raise BadInput(f"{r.where}: layers are of sliding_attention, and sliding_window is null; correct config.json")
    if not isinstance(types, list) or len(types) != sizes["n_layer"] or not all(isinstance(t, str) and t in known for t in types):
        raise BadInput(f"{r.where}: layer_types is not a list of sliding_attention or full_attention, one for each layer")
    return tuple(known[t] for t in types)


def _default(r, window):
    """`window` where the config has no sliding_window; None where it says null."""
    return None if "sliding_window" in r.values else window


def _cap(r, name, default):
    return r.number(name, default=None if name in r.values else default)


READERS = {
    "gpt2": _gpt2,
    "openai-gpt": _openai_gpt,
    "gpt_bigcode": _gpt_bigcode,
    "bloom": _bloom,
    "xglm": _xglm,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "deepseek_v3": _deepseek_v3,
}


def choices_from(values, where):
    """The Choices that `values`, the object of a `config.json`, mean; `where` names it in errors."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise BadInput(f"{where}: model_type is {kind!r}; known here are {', '.join(READERS)}")
    r = Reader(values, where)
    config = READERS[kind](r)
    if config.n_head % config.kv_heads:
        raise BadInput(
            f"{where}: {config.n_head} heads are not divisible by {config.kv_heads} key-value heads; correct config.json"
        )
    if config.n_embd % config.n_head and (
        config.norm == "layer" and not config.gated
    ):  # the families of GPT-2's kind have no head_dim
        raise BadInput(f"{where}: width {config.n_embd} is not divisible by {config.n_head} heads; correct config.json")
    if config.rope and (config.latent.turned if config.latent else config.head_width) % 2:
        raise BadInput(f"{where}: a head of {config.head_width} numbers is odd, and a rotation turns pairs; correct config.json")
    if config.experts and config.experts.active > config.experts.count:
        raise BadInput(f"{where}: {config.experts.active} experts a token of {config.experts.count}; correct config.json")
    if config.experts and config.experts.groups > 1:
        _check_groups(config.experts, where)
    return config


def _check_groups(e, where):
    """Refuse groups of experts that a token cannot be routed by: of unequal size, of fewer than the two that rank them, too few."""
    each = e.count // e.groups
    if e.count % e.groups or each < 2 or not -(-e.active // each) <= e.best_groups <= e.groups:
        what = f"{e.active} experts a token from {e.best_groups} of {e.groups} groups"
        raise BadInput(f"{where}: {what} cannot be chosen of {e.count} experts; correct config.json")


def config_from(values, where):
    """`choices_from` for weights that are to be loaded: quantised ones are refused, since they would be read as something else."""
    Reader(values, where).only(quantization_config=({},))
    return choices_from(values, where)


def choices_of(config):
    """The Choices of a config that chapter 2 has read: GPT2Config, LlamaConfig, or Choices already."""
    if isinstance(config, Choices):
        return config
    values = {f.name: getattr(config, f.name) for f in fields(config)} | {"model_type": config.model_type}
    rope = values.pop("rope", None)
    found = choices_from(values, "config")
    return found if rope is None else replace(found, rope=rope)


def of(model):
    """(choices, weights) of an `Artefact` of any family, for `variants.forward`."""
    config = choices_of(model.config)
    return config, to_weights(model.weights, config) if model.config.model_type == "gpt2" else model.weights


# ----------------------------------------------------------------------------------------------------- tensors and their names


def weight_shapes(config):
    """{name: shape} of every tensor that `variants.forward` reads, matrices [out, in], in the order of the pass."""
    d, shapes = config.n_embd, {"model.embed_tokens.weight": (config.vocab_size, config.n_embd)}

    def matrix(name, out, into, bias=False):
        shapes[f"{name}.weight"] = (out, into)
        if bias:
            shapes[f"{name}.bias"] = (out,)

    def norm(name, n=d):
        shapes[f"{name}.weight"] = (n,)
        if config.norm == "layer":
            shapes[f"{name}.bias"] = (n,)

    def network(name, width):
        for part in ("gate", "up") if config.gated else ("up",):
            matrix(f"{name}.{part}_proj", width, d, "mlp" in config.biases)
        matrix(f"{name}.down_proj", d, width, "mlp" in config.biases)

    if config.positions == "learned":
        shapes["model.embed_positions.weight"] = (config.n_positions, d)
    if config.embedding_norm:
        norm("model.embed_norm")
    for layer in range(config.n_layer):
        start = f"model.layers.{layer}"
        before_1, after_1, before_2, after_2 = (part and f"{start}.{part}" for part in NORMS[config.norm_place])
        if before_1:
            norm(before_1)
        if config.latent:
            _latent_shapes(config, f"{start}.self_attn", matrix, shapes)
        else:
            for part, heads in (("q", config.n_head), ("k", config.kv_heads), ("v", config.kv_heads)):
                matrix(f"{start}.self_attn.{part}_proj", heads * config.head_width, d, "qkv" in config.biases)
            if config.qk_norm:
                norm(f"{start}.self_attn.q_norm", config.head_width)
                norm(f"{start}.self_attn.k_norm", config.head_width)
        matrix(f"{start}.self_attn.o_proj", d, config.n_head * config.value_width, "o" in config.biases)
        for name in (after_1, before_2):
            if name:
                norm(name)
        if config.has_experts(layer):
            e = config.experts
            shapes[f"{start}.mlp.gate.weight"] = (e.count, d)
            if e.routing == "sigmoid":
                shapes[f"{start}.mlp.gate.e_score_correction_bias"] = (e.count,)
            for i in range(e.count):
                network(f"{start}.mlp.experts.{i}", e.width)
            if e.shared:
                network(f"{start}.mlp.shared_experts", e.shared * e.width)
        else:
            network(f"{start}.mlp", config.inner_width)
        if after_2:
            norm(after_2)
    if config.final_norm:
        norm("model.norm")
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)
    return shapes


def _latent_shapes(config, name, matrix, shapes):
    m, d, h = config.latent, config.n_embd, config.n_head
    if m.q_rank is None:
        matrix(f"{name}.q_proj", h * config.query_width, d)
    else:
        matrix(f"{name}.q_a_proj", m.q_rank, d)
        shapes[f"{name}.q_a_layernorm.weight"] = (m.q_rank,)
        matrix(f"{name}.q_b_proj", h * config.query_width, m.q_rank)
    matrix(f"{name}.kv_a_proj_with_mqa", m.kv_rank + m.turned, d)
    shapes[f"{name}.kv_a_layernorm.weight"] = (m.kv_rank,)
    matrix(f"{name}.kv_b_proj", h * (m.plain + m.value), m.kv_rank)


def is_buffer(name):
    """Whether a tensor is none of the parameters: the bias that steers DeepSeek's routing is not trained by the gradient."""
    return name.endswith(".e_score_correction_bias")


@dataclass(frozen=True)
class Fused:
    """How a family's files name things otherwise: {our part: theirs}, q, k and v as one tensor, and which way matrices lie."""

    parts: dict
    qkv: str | None = None  # the part that holds all three
    by_head: bool = False  # q, k and v of head 0, then of head 1, ...; else all of q, then k, then v
    across: bool = False  # matrices are [in, out]


_GPT2_PARTS = {
    **{"self_attn.o_proj": "attn.c_proj", "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj", "model.layers": "h"},
    **{"model.embed_tokens": "wte", "model.embed_positions": "wpe", "model.norm": "ln_f"},
    **{"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"},
}
FUSED = {
    "gpt2": Fused(_GPT2_PARTS, "attn.c_attn", across=True),
    "gpt_bigcode": Fused(_GPT2_PARTS, "attn.c_attn"),
    "openai-gpt": Fused(
        _GPT2_PARTS
        | {"model.embed_tokens": "tokens_embed", "model.embed_positions": "positions_embed"}
        | {"post_attention_layernorm": "ln_1", "post_feedforward_layernorm": "ln_2"},
        "attn.c_attn",
        across=True,
    ),
    "bloom": Fused(
        {"model.embed_tokens": "word_embeddings", "model.embed_norm": "word_embeddings_layernorm", "model.layers": "h"}
        | {"self_attn.o_proj": "self_attention.dense", "mlp.up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h"}
        | {"model.norm": "ln_f"},
        "self_attention.query_key_value",
        by_head=True,
    ),
    "xglm": Fused(
        {"self_attn.o_proj": "self_attn.out_proj", "mlp.up_proj": "fc1", "mlp.down_proj": "fc2", "model.norm": "model.layer_norm"}
        | {"input_layernorm": "self_attn_layer_norm", "post_attention_layernorm": "final_layer_norm"}
    ),
    "mixtral": Fused({"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", "mlp": "block_sparse_moe"}),
}
_NONE = Fused({})


def _renamed(name, parts):
    """`name` with each part that `parts` knows, a run of whole words between dots, in the family's own words."""
    padded = f".{name}."
    for ours, theirs in parts.items():
        padded = padded.replace(f".{ours}.", f".{theirs}.")
    return padded.strip(".")


def _layout(config):
    """[(file name, [our names], {our name: shape})] in the order of the pass; more than one of ours where a file has them fused."""
    how, shapes = FUSED.get(config.model_type, _NONE), weight_shapes(config)
    rows = []
    for name in shapes:
        start, dot, part = name.partition(".self_attn.")
        if how.qkv and dot and part[0] in "qkv":
            if part[0] == "q":
                kind = part.rpartition(".")[2]
                rows.append(
                    (_renamed(f"{start}.{how.qkv}.{kind}", how.parts), [f"{start}.self_attn.{x}_proj.{kind}" for x in "qkv"])
                )
        else:
            rows.append((_renamed(name, how.parts), [name]))
    return how, shapes, rows


def _across(how, name, shape):
    """Whether the file has this matrix the other way round."""
    return how.across and len(shape) == 2 and ".layers." in name


def file_shapes(config):
    """{name: shape} of every tensor that the family's files hold, under their names there; a tied head is not there."""
    how, shapes, rows = _layout(config)
    found = {}
    for file_name, names in rows:
        shape = (sum(shapes[n][0] for n in names), *shapes[names[0]][1:])
        found[file_name] = shape[::-1] if _across(how, names[0], shape) else shape
    return found


def to_weights(tensors, config):
    """The weights that `variants.forward` reads, from `tensors` by the names of `file_shapes`; views, nothing is copied."""
    how, shapes, rows = _layout(config)
    weights = {}
    for file_name, names in rows:
        tensor = tensors[file_name]
        tensor = tensor.T if _across(how, names[0], tensor.shape) else tensor
        if len(names) == 1:
            parts = [tensor]
        elif how.by_head or (config.model_type == "gpt_bigcode" and config.kv_heads > 1):
            parts = [part.flatten(0, 1) for part in tensor.unflatten(0, (config.n_head, 3, -1)).unbind(1)]
        else:
            parts = tensor.split([shapes[n][0] for n in names])
        weights |= dict(zip(names, parts, strict=True))
    return {name: weights[name] for name in shapes}
