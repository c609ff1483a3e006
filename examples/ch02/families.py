"""How fifteen families write down what they compute: each family's `config.json` is read here, by one function, once.

`read_config` gives a GPT2Config or the general Config. Every field of the file is either read by its family's reader, or on the
list of those that cannot matter, or refused by name: nothing that changes a result is passed over in silence. Every trap that a
family sets stands in its reader, beside the field that sets it; `reader.py` checks each field as it is read, and `ropes.py` knows
the two spellings of a rope.
"""

import importlib
import math
from types import ModuleType

from examples.ch02.config import ACTIVATION_NAMES, BIASED, Config, Experts, GPT2Config, Latent, general
from examples.ch02.reader import Reader
from examples.lab.script import BadInput

VARIANTS = "examples.ch14.variants"  # the configurable forward pass, which runs the general form of any family
PROGRAMS = {  # by model_type, the module that holds its forward pass
    "gpt2": "examples.ch04.gpt2_from_scratch",
    "llama": "examples.ch14.llama_from_scratch",
    **dict.fromkeys(("openai-gpt", "gpt_bigcode", "bloom", "xglm", "mistral", "mixtral", "qwen2"), VARIANTS),
    **dict.fromkeys(("qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "deepseek_v3"), VARIANTS),
}
SHAPES = "examples.ch14.configs"  # published configurations of all these families, and a tiny Llama
FAST = "examples.ch11.fast_decode"  # the compiled decode step, for files of four bits
FORMULAS = {"gpt2": "examples.ch04.cost_model"} | dict.fromkeys(list(PROGRAMS)[1:], "examples.ch14.costs")


def program(model) -> ModuleType:
    """The module that runs a `Model`, or the models of a config: `forward`, `pass_over`, `unembed`, `new_cache`.

    It is imported here, by name, since it belongs to a later chapter.
    """
    named = getattr(model, "module", None) or PROGRAMS[getattr(model, "config", model).model_type]
    return importlib.import_module(named)


def formulas(config: GPT2Config | Config) -> ModuleType:
    """The module of a config's cost formulas: `parameter_count`, `flops_per_token`, `flops_per_pass`; imported like `program`."""
    return importlib.import_module(FORMULAS[config.model_type])


def further_shapes() -> dict[str, dict]:
    """{name: fields of a config.json} of the shapes that chapter 14 keeps; imported like `program`."""
    return importlib.import_module(SHAPES).shapes()


def fast_path(model, capacity: int | None = None):
    """The fastest `forward` for chapter 5's loop that agrees with the oracle, with room for `capacity` positions; chapter 11's
    `fast_forward`, imported like `program`. Where it is the plain cached pass, stderr says so."""
    return importlib.import_module(FAST).fast_forward(model, capacity)


def read_config(values: dict, where) -> GPT2Config | Config:
    """The config in `values`, the object of a `config.json`; `where` names it in errors.

    Raises BadInput, naming the field: for a `model_type` that is not in READERS, for a field that is missing, of another type or
    in conflict with another, and for one that may change the computation and is not known.
    """
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise BadInput(f"{where}: model_type is {kind!r}; known here are {', '.join(map(repr, READERS))}")
    r = Reader(values, where)
    r.only(is_causal=(True,))
    config = READERS[kind](r)
    r.finish()
    _check_sizes(general(config), where)
    return config


def _check_sizes(config, where):
    """Raise BadInput for sizes that do not fit each other."""
    if config.n_head % config.kv_heads:
        heads = f"{config.n_head} heads are not divisible by {config.kv_heads} key-value heads"
        raise BadInput(f"{where}: {heads}; correct config.json")
    old = config.norm == "layer" and not config.gated  # the families of GPT-2's kind have no head_dim
    if old and config.n_embd % config.n_head:
        raise BadInput(f"{where}: width {config.n_embd} is not divisible by {config.n_head} heads; correct config.json")
    if config.rope and (config.latent.turned if config.latent else config.head_width) % 2:
        raise BadInput(f"{where}: a head of {config.head_width} numbers is odd, and a rotation turns pairs; correct config.json")
    e = config.experts
    if e and e.active > e.count:
        raise BadInput(f"{where}: {e.active} experts per token of {e.count}; correct config.json")
    if e and e.groups > 1:  # of equal size, of the two at least that rank a group, and enough of them
        each = e.count // e.groups
        if e.count % e.groups or each < 2 or not -(-e.active // each) <= e.best_groups <= e.groups:
            what = f"{e.active} experts per token from {e.best_groups} of {e.groups} groups"
            raise BadInput(f"{where}: {what} cannot be chosen of {e.count} experts; correct config.json")


# ------------------------------------------------------------------------------------------------- one reader for each family

LAYERS, EXPERTS = 10**4, 10**5  # more than any model has, and few enough to be listed


def _old(r, inner=None, width=("n_embd", "hidden_size")):
    """Sizes in GPT-2's words; width: the names of d, which differ."""
    d, h = r.whole(*width), r.whole("n_head", "num_attention_heads")
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
        biases=BIASED,
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
    return GPT2Config(
        vocab_size=r.whole("vocab_size"),
        n_positions=r.whole("n_positions", "max_position_embeddings"),
        n_embd=r.whole("n_embd", "hidden_size"),
        n_layer=r.whole("n_layer", "num_hidden_layers", most=LAYERS),
        n_head=r.whole("n_head", "num_attention_heads"),
        n_inner=r.whole("n_inner", default=None),
        activation_function=r.one_of("activation_function", ACTIVATION_NAMES, "gelu_new"),
        layer_norm_epsilon=r.number("layer_norm_epsilon", default=1e-5),
        scale_attn_weights=r.flag("scale_attn_weights", True),
        scale_attn_by_inverse_layer_idx=r.flag("scale_attn_by_inverse_layer_idx", False),
        reorder_and_upcast_attn=r.flag("reorder_and_upcast_attn", False),
        tie_word_embeddings=r.flag("tie_word_embeddings", True),
    )


def _openai_gpt(r):
    positions = r.whole("n_positions", "max_position_embeddings")
    act = r.one_of("afn", {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}, "gelu")  # its "gelu" is tanh's
    sizes = _old(r, inner=4 * r.whole("n_embd"))
    more = dict(positions="learned", norm_place="post", final_norm=False)
    return Config("openai-gpt", **sizes, n_positions=positions, activation=act, **more)


def _gpt_bigcode(r):
    sizes = _old(r) | ({"kv_heads": 1} if r.flag("multi_query", True) else {})
    kind = "multi_query" if sizes["kv_heads"] == 1 else "multi_head"
    r.only(num_key_value_heads=(sizes["kv_heads"],), attention_type=(kind,))  # as the library writes them; multi_query counts
    scale = None if r.flag("scale_attn_weights", True) else 1.0
    act = r.one_of("activation_function", ACTIVATION_NAMES, "gelu_pytorch_tanh")
    more = dict(positions="learned", activation=act, score_scale=scale)
    return Config("gpt_bigcode", **sizes, n_positions=r.whole("n_positions", "max_position_embeddings"), **more)


def _bloom(r):
    width = ("hidden_size", "n_embed")
    sizes = _old(r, 4 * r.whole(*width), width)
    more = dict(positions="alibi", activation="gelu_new", embedding_norm=True)  # its GELU is written into the code, and is tanh's
    return Config("bloom", **sizes, n_positions=r.whole("seq_length", default=2048), **more)


def _xglm(r):
    d, h = r.whole("d_model", "hidden_size"), r.whole("attention_heads", "num_attention_heads")
    if d < 4:
        raise r.bad("d_model", "4 or more, as its sinusoids need")
    if r.values.get("pad_token_id") not in (None, 0, 1):
        raise r.bad("pad_token_id", "0 or 1, since the library zeroes the sinusoid of that number, and later positions use it")
    return Config(
        "xglm",
        **dict(vocab_size=r.whole("vocab_size"), n_embd=d, n_layer=r.whole("num_layers", "num_hidden_layers", most=LAYERS)),
        **dict(n_head=h, kv_heads=h, head_width=d // h, inner_width=r.whole("ffn_dim")),
        n_positions=r.whole("max_position_embeddings", default=2048),
        **dict(norm="layer", norm_eps=1e-5, gated=False, biases=BIASED),  # its epsilon is torch's own and stands in no config
        **dict(positions="sinusoidal", first_position=2),  # places 0 and 1 of its table are never used
        activation=r.one_of("activation_function", ACTIVATION_NAMES, "gelu"),
        embedding_scale=math.sqrt(d) if r.flag("scale_embedding", True) else 1.0,
        tie_word_embeddings=r.flag("tie_word_embeddings", True),
    )


def _llama(r):
    r.one_of("hidden_act", {"silu": "silu", "swish": "silu"}, "silu")
    biases = (*(("qkv", "o") if r.flag("attention_bias", False) else ()), *(("mlp",) if r.flag("mlp_bias", False) else ()))
    return Config("llama", **_new(r), rope=r.rope(), biases=biases)


def _mistral(r):
    sizes = _new(r, positions=131072, kv_heads=8)
    window, types = r.whole("sliding_window", default=_default(r, 4096)), r.get("layer_types", default=None)
    windows = _by_type(r, types, sizes, window) if types else _same(window, sizes)
    return Config("mistral", **sizes, rope=r.rope(), activation=r.one_of("hidden_act", ACTIVATION_NAMES, "silu"), windows=windows)


def _mixtral(r):
    sizes = _new(r, positions=131072, eps=1e-5, kv_heads=8)
    experts = Experts(
        r.whole("num_local_experts", "num_experts", default=8, most=EXPERTS),
        r.whole("num_experts_per_tok", default=2),
        sizes["inner_width"],
    )
    more = dict(
        activation=r.one_of("hidden_act", ACTIVATION_NAMES, "silu"), windows=_same(r.whole("sliding_window", default=None), sizes)
    )
    return Config("mixtral", **sizes, rope=r.rope(theta=1e6), experts=experts, **more)


def _qwen(r, model_type, **more):
    sizes = _new(r, positions=32768, head_dim=128 if model_type == "qwen3" else None, kv_heads=32)
    windows, types, slides = (), r.get("layer_types", default=None), r.flag("use_sliding_window", False)
    if isinstance(types, list) and "sliding_attention" in types and not slides:
        raise BadInput(f"{r.where}: layer_types has sliding_attention, and use_sliding_window is not true; correct one of the two")
    r.passed_over("sliding_window", "max_window_layers")  # without use_sliding_window they say nothing
    if types is not None and not slides:
        _by_type(r, types, sizes, None)  # all full, and one for each layer
    if slides:
        first = r.layers("max_window_layers", 28)
        types = types or ["sliding_attention" if i >= first else "full_attention" for i in range(sizes["n_layer"])]
        window = r.whole("sliding_window", default=_default(r, 4096))
        windows = () if window is None and not r.values.get("layer_types") else _by_type(r, types, sizes, window)
    return Config(
        model_type, **sizes, rope=r.rope(), activation=r.one_of("hidden_act", ACTIVATION_NAMES, "silu"), windows=windows, **more
    )


def _qwen2(r):
    return _qwen(r, "qwen2", biases=("qkv",))


def _qwen3(r):
    biases = ("qkv", "o") if r.flag("attention_bias", False) else ()
    return _qwen(r, "qwen3", biases=biases, qk_norm=True)


def _qwen3_moe(r):
    sizes = _new(r, positions=32768, kv_heads=4)  # head_dim is d / h where it is not given, and not 128 as in a qwen3
    r.not_null("num_key_value_heads", "decoder_sparse_step", "num_experts", "num_experts_per_tok", "moe_intermediate_size")
    step, networks = r.whole("decoder_sparse_step", default=1), r.which_layers("mlp_only_layers", sizes["n_layer"])
    experts = Experts(
        r.whole("num_experts", "num_local_experts", default=128, most=EXPERTS),  # the library reads the one and writes the other
        r.whole("num_experts_per_tok", default=8),
        r.whole("moe_intermediate_size", default=768),
        renormalise=r.flag("norm_topk_prob", False),  # the library's default, though Qwen3-30B-A3B says true
        dense=tuple(i for i in range(sizes["n_layer"]) if i in networks or (i + 1) % step),
    )
    slides = r.flag("use_sliding_window", False)
    r.passed_over("max_window_layers", *(() if slides else ("sliding_window",)))  # where it slides all layers do
    windows = _same(r.whole("sliding_window", default=_default(r, 4096)), sizes) if slides else ()
    biases = ("qkv", "o") if r.flag("attention_bias", False) else ()
    more = dict(activation=r.one_of("hidden_act", ACTIVATION_NAMES, "silu"), windows=windows, biases=biases, qk_norm=True)
    return Config("qwen3_moe", **sizes, rope=r.rope(), experts=experts, **more)


def _gemma_like(r, sizes, activation="gelu_new"):
    """What the Gemmas share: gains stored as 1 + w, the embedding scaled, a gated GELU."""
    biases = ("qkv", "o") if r.flag("attention_bias", False) else ()
    scale = math.sqrt(sizes["n_embd"])
    return dict(activation=activation, unit_gain=True, embedding_scale=scale, biases=biases)


def _gemma_act(r):
    """The activation of Gemma 2 and 3, whose "gelu" is the exact one, and whose `hidden_act` the library does not look at."""
    known = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_new"}
    r.one_of("hidden_act", known, "gelu_pytorch_tanh")
    return r.one_of("hidden_activation", known, "gelu_pytorch_tanh")


def _gemma(r):
    sizes = _new(r, positions=8192, tied=True, head_dim=256, kv_heads=16)
    for named in ("hidden_act", "hidden_activation"):  # which of them counts differs by version, and its "gelu" is tanh's
        r.one_of(named, {"gelu": 0, "gelu_pytorch_tanh": 0}, "gelu_pytorch_tanh")
    return Config("gemma", **sizes, **_gemma_like(r, sizes), rope=r.rope())


def _gemma2(r):
    sizes = _new(r, positions=8192, tied=True, head_dim=256, kv_heads=4)
    types = r.get("layer_types", default=None)
    types = types or ["full_attention" if i % 2 else "sliding_attention" for i in range(sizes["n_layer"])]
    window = r.whole("sliding_window", default=_default(r, 4096))
    r.only(sliding_window_size=(window,))  # an older name, which the library does not read
    return Config(
        "gemma2",
        **sizes,
        **_gemma_like(r, sizes, _gemma_act(r)),
        **dict(
            norm_place="both",
            rope=r.rope(),
            windows=_by_type(r, types, sizes, window),
        ),
        score_scale=r.number("query_pre_attn_scalar", default=256) ** -0.5,
        score_cap=_cap(r, "attn_logit_softcapping", 50.0),
        logit_cap=_cap(r, "final_logit_softcapping", 30.0),
    )


def _gemma3(r):
    sizes = _new(r, positions=131072, tied=True, head_dim=256, kv_heads=4)
    types, every = r.get("layer_types", default=None), r.whole("sliding_window_pattern", default=6)
    types = types or ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(sizes["n_layer"])]
    full, local = _gemma3_ropes(r)
    return Config(
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
    r.passed_over("rope_local_base_freq")  # where rope_parameters has a table for each
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
    r.only(topk_method=("noaux_tc",), scoring_func=("sigmoid",), moe_layer_freq=(1,))
    q_rank = r.whole("q_lora_rank", default=None if "q_lora_rank" in r.values else 1536)
    latent = Latent(
        q_rank, r.whole("kv_lora_rank"), r.whole("qk_nope_head_dim"), r.whole("qk_rope_head_dim"), r.whole("v_head_dim")
    )
    r.only(qk_head_dim=(latent.plain + latent.turned,), head_dim=(latent.turned,))
    r.not_null("n_group", "topk_group", "routed_scaling_factor", "first_k_dense_replace")
    sizes = _new(r, positions=4096, head_dim=latent.turned, kv_heads=128)
    sizes["head_width"] = latent.turned  # head_dim says no more than the latent does
    if sizes["kv_heads"] != sizes["n_head"]:
        raise r.bad("num_key_value_heads", f"{sizes['n_head']}, as many as heads: latent keys are made for each")
    experts = Experts(
        r.whole("n_routed_experts", "num_local_experts", most=EXPERTS),
        r.whole("num_experts_per_tok"),
        r.whole("moe_intermediate_size"),
        routing="sigmoid",
        shared=r.whole("n_shared_experts", default=1),
        dense=tuple(range(min(r.layers("first_k_dense_replace", 3), sizes["n_layer"]))),
        groups=r.whole("n_group", default=8),
        best_groups=r.whole("topk_group", default=4),
        renormalise=r.flag("norm_topk_prob", True, null=False),
        scale=r.number("routed_scaling_factor", default=2.5),
    )
    rope = r.rope(("yarn",))
    scale = (latent.plain + latent.turned) ** -0.5
    if rope.kind == "yarn" and rope.mscale_all:
        scale *= rope.sharpening(rope.mscale_all) ** 2
    more = dict(
        activation=r.one_of("hidden_act", ACTIVATION_NAMES, "silu"),
        score_scale=scale,
        interleaved=r.flag("rope_interleave", True, null=False),
    )
    return Config("deepseek_v3", **sizes, latent=latent, experts=experts, rope=rope, **more)


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
    **{"gpt2": _gpt2, "openai-gpt": _openai_gpt, "gpt_bigcode": _gpt_bigcode, "bloom": _bloom, "xglm": _xglm, "llama": _llama},
    **{"mistral": _mistral, "mixtral": _mixtral, "qwen2": _qwen2, "qwen3": _qwen3, "qwen3_moe": _qwen3_moe},
    **{"gemma": _gemma, "gemma2": _gemma2, "gemma3_text": _gemma3, "deepseek_v3": _deepseek_v3},
}
