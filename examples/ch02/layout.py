"""The names and shapes of tensors: in each family's files, and in the general form that one forward pass can read.

The general form has Llama's names, extended by those of the family that brought a tensor (Gemma 2's norms, DeepSeek's latents and
experts); all its matrices are [out, in]. A family's files may name a tensor otherwise, hold q, k and v as one, or lie across.
"""

from dataclasses import dataclass

from examples.ch02.config import NORMS, Config, GPT2Config, general


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """{name: shape} of every tensor that chapter 14's forward passes read, matrices [out, in], in the order of the pass."""
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


def is_buffer(name: str) -> bool:
    """Whether a tensor is none of the parameters: the bias that steers DeepSeek's routing is not trained by the gradient."""
    return name.endswith(".e_score_correction_bias")


@dataclass(frozen=True)
class Layout:
    """How a family's files differ from the general form: {our part of a name: theirs}, q, k and v as one, how matrices lie."""

    parts: dict
    qkv: str | None = None  # the part that holds all three
    by_head: bool = False  # q, k and v of head 0, then of head 1, ...; else all of q, then k, then v
    transposed: bool = False  # matrices are [in, out]


_GPT2_PARTS = {
    **{"self_attn.o_proj": "attn.c_proj", "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj", "model.layers": "h"},
    **{"model.embed_tokens": "wte", "model.embed_positions": "wpe", "model.norm": "ln_f"},
    **{"input_layernorm": "ln_1", "post_attention_layernorm": "ln_2"},
}
LAYOUTS = {
    "gpt2": Layout(_GPT2_PARTS, "attn.c_attn", transposed=True),
    "gpt_bigcode": Layout(_GPT2_PARTS, "attn.c_attn"),
    "openai-gpt": Layout(
        _GPT2_PARTS
        | {"model.embed_tokens": "tokens_embed", "model.embed_positions": "positions_embed"}
        | {"post_attention_layernorm": "ln_1", "post_feedforward_layernorm": "ln_2"},
        "attn.c_attn",
        transposed=True,
    ),
    "bloom": Layout(
        {"model.embed_tokens": "word_embeddings", "model.embed_norm": "word_embeddings_layernorm", "model.layers": "h"}
        | {"self_attn.o_proj": "self_attention.dense", "mlp.up_proj": "mlp.dense_h_to_4h", "mlp.down_proj": "mlp.dense_4h_to_h"}
        | {"model.norm": "ln_f"},
        "self_attention.query_key_value",
        by_head=True,
    ),
    "xglm": Layout(
        {"self_attn.o_proj": "self_attn.out_proj", "mlp.up_proj": "fc1", "mlp.down_proj": "fc2", "model.norm": "model.layer_norm"}
        | {"input_layernorm": "self_attn_layer_norm", "post_attention_layernorm": "final_layer_norm"}
    ),
    "mixtral": Layout({"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3", "mlp": "block_sparse_moe"}),
}
_NONE = Layout({})


def _renamed(name, parts):
    """`name` with each part that `parts` knows, a run of whole words between dots, in the family's own words."""
    padded = f".{name}."
    for ours, theirs in parts.items():
        padded = padded.replace(f".{ours}.", f".{theirs}.")
    return padded.strip(".")


def _layout(config):
    """(the family's `Layout`, {our name: shape}, [(file name, [our names])] in the order of the pass); a row of q, k and v where a
    file has them as one."""
    how, shapes = LAYOUTS.get(config.model_type, _NONE), weight_shapes(config)
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
    return how.transposed and len(shape) == 2 and ".layers." in name


def tensor_shapes(config: GPT2Config | Config) -> dict[str, tuple[int, ...]]:
    """{name: shape} of every tensor that a family's files hold, by their own names and in the order of the pass.

    This is the one table that loading is checked against. GPT-2's matrices are [in, out] (its Conv1D), so y = x @ W + b; those of
    the families since are [out, in] (nn.Linear). A tied head is not in it.
    """
    how, shapes, rows = _layout(general(config))
    found = {}
    for file_name, names in rows:
        shape = (sum(shapes[n][0] for n in names), *shapes[names[0]][1:])
        found[file_name] = shape[::-1] if _across(how, names[0], shape) else shape
    return found


def embedding_name(config: GPT2Config | Config) -> str:
    """The token table's name in the files, and in the weights of chapter 4's program."""
    return next(iter(tensor_shapes(config)))


def general_weights(tensors: dict, config: Config) -> dict:
    """The weights that chapter 14's programs read, from `tensors` by the names of `tensor_shapes`; mostly views of these."""
    how, shapes, rows = _layout(config)
    weights = {}
    for file_name, names in rows:
        tensor = tensors[file_name]
        tensor = tensor.T if _across(how, names[0], tensor.shape) else tensor
        if len(names) == 1:
            parts = [tensor]
        elif how.by_head or (config.model_type == "gpt_bigcode" and config.kv_heads > 1):  # there so unless all share one head
            parts = [part.flatten(0, 1) for part in tensor.unflatten(0, (config.n_head, 3, -1)).unbind(1)]
        else:
            parts = tensor.split([shapes[n][0] for n in names])
        weights |= dict(zip(names, parts, strict=True))
    return {name: weights[name] for name in shapes}
