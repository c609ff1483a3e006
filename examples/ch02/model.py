"""Chapter 2: a model is a bundle of config, weights and tokenizer, and loading it is checking it.

`load` returns a `Model`. Its files hold exactly the tensors of `tensor_shapes(config)`: one missing, left over or of another shape
is an error, never a guess.
"""

import contextlib
import math
import os
import re
import shutil
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from examples.ch01.library import SIZES, published
from examples.ch02 import checkpoint, hub
from examples.ch02.config import Config, GPT2Config, general
from examples.ch02.families import VARIANTS, further_shapes, program, read_config
from examples.ch02.layout import embedding_name, general_weights, is_buffer, tensor_shapes
from examples.ch02.tokenizer import TOKENIZER_FILES, load_tokenizer
from examples.lab.environment import EMBEDDED, sha256, smollm2_file
from examples.lab.script import BadInput, as_whole, dump_json, read_json, write_whole

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}  # that a pass computes in
TORCH_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True)
class Model:
    """A loaded model.

    config: what it computes. weights: {name: tensor}, a GPT-2's by Hugging Face's names without `transformer.`, those of other
    families in the general form of `layout`. tokenizer: a `tokenizers.Tokenizer`, or None. manifest: what was loaded, as plain
    values. fields: its `config.json` as it was read, for whoever must not rely on our reading of it. path: the folder or GGUF file
    it came from. module: the name of the module that runs it, where that is not its family's own.
    """

    config: GPT2Config | Config
    weights: dict[str, torch.Tensor]
    tokenizer: object = None
    manifest: dict = field(default_factory=dict)
    fields: dict | None = None
    path: Path | None = None
    module: str | None = None

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the weights are in, and so that of the computation."""
        return self.token_table.dtype

    @property
    def device(self) -> torch.device:
        """The device that the weights are on."""
        return self.token_table.device

    @property
    def token_table(self) -> torch.Tensor:
        """[V, d], a row for each token: the first tensor of every pass."""
        return next(iter(self.weights.values()))

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "Model":
        """The model with its weights in another dtype or on another device; None leaves that as it is.

        Raises BadInput for a weight that the other dtype cannot hold, and would make infinite.
        """
        moved = {name: converted(w, dtype, name, self.manifest.get("source")).to(device=device) for name, w in self.weights.items()}
        return replace(self, weights=moved)


def converted(tensor: torch.Tensor, dtype: torch.dtype | None, name: str, source=None) -> torch.Tensor:
    """`tensor` in `dtype`; raises BadInput, naming it and where it is from, for a number that becomes infinite by that."""
    if dtype is None or tensor.dtype == dtype:
        return tensor
    other = tensor.to(dtype)
    if not other.is_meta and other.isinf().any():
        lost = other.isinf() & tensor.isfinite()
        if lost.any():
            kind, most = str(dtype).removeprefix("torch."), torch.finfo(dtype).max
            what = f"{name} holds {tensor[lost][0].item():,.6g}, and {kind} ends at {most:,.6g}"
            raise BadInput(f"{source or 'the model'}: {what}; take a wider dtype, bfloat16 or float32 say")
    return other


def run(model: Model, ids: torch.Tensor, **options) -> torch.Tensor:
    """Logits [B, T, V] of `ids` [B, T] by the model's own program; options as its `forward` takes them."""
    return program(model).forward(ids, model.weights, model.config, **options)


def load_for(args) -> Model:
    """The model that a script's arguments name: --model, and where the script has them --dtype, --device, --seed, --threads.

    Sets torch's threads. Raises BadInput like `load`, for a device that is not there, and for a weight that is NaN or infinite.
    """
    torch.set_num_threads(args.threads)
    device = getattr(args, "device", "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch sees no such device here; leave it out")
    model = load(args.model, dtype=DTYPES[getattr(args, "dtype", "float32")], seed=args.seed)
    check_finite(model, args.model)
    return model.to(device=device)


def check_finite(model: Model, source: str) -> None:
    """Raise BadInput when a weight of the model, loaded from `source`, is NaN or infinite."""
    for name, w in model.weights.items():
        if not w.isfinite().all():
            dtype = str(w.dtype).removeprefix("torch.")
            raise BadInput(f"{source}: {name} holds NaN or infinity in {dtype}; take another dtype or model")


def require(config: GPT2Config | Config, kind: str, what: str) -> None:
    """Raise BadInput unless the config is of the family `kind`; `what` says what cannot be done with another."""
    if config.model_type != kind:
        raise BadInput(f"{what} takes a {kind}, and this model is a {config.model_type}; give another model")


# ------------------------------------------------------------------------------------------------------------------- configs


PUBLISHED = {size: published(size) for size in SIZES}  # {name: the fields of a config.json}


def published_shapes() -> dict[str, dict]:
    """{name: fields of a config.json} of every shape that random weights are made of: PUBLISHED, and those of chapter 14."""
    return PUBLISHED | {name: fields for name, fields in further_shapes().items() if name not in PUBLISHED}


def load_config(source: str | Path = "embedded") -> GPT2Config | Config:
    """The config named by `source`: embedded, a published shape, a folder, or a `config.json`. Reads no weights."""
    name = str(source).removeprefix("random:")
    if name in PUBLISHED:
        return read_config(PUBLISHED[name], name)
    path = EMBEDDED if source == "embedded" else Path(source)
    if not path.exists():
        shapes = published_shapes()
        if name in shapes:
            return read_config(shapes[name], name)
        raise BadInput(f"no config {source}: give a file, a folder, embedded or one of {', '.join(shapes)} (no hub id)")
    path = path / "config.json" if path.is_dir() else path
    return read_config(read_json(path), path)


# ------------------------------------------------------------------------------------------------------------------- loading


def load(
    source: str | Path | None = None, dtype: torch.dtype | None = torch.float32, seed: int = 0, digests: bool = False
) -> Model:
    """The `Model` that `source` names: None or "embedded", a folder, a `.gguf` file, "random:<published shape>", a hub id, or
    "smollm2".

    dtype: what the weights are computed in; None keeps that of the files. Weights that are in it already stay mapped to their
    file, uncopied. seed: of random weights. digests: whether the manifest holds the files' sha256. Raises BadInput.
    """
    source = "embedded" if source is None else str(source)
    if source.startswith("random:"):
        name, shapes = source.removeprefix("random:"), published_shapes()
        if name not in shapes:
            raise BadInput(f"no published shape {name!r}; random: takes one of {', '.join(shapes)}")
        return random_model(shapes[name], seed, dtype or torch.float32, source)
    if source == "smollm2" or Path(source).suffix == ".gguf":
        return _gguf(source, dtype or torch.float32, digests)
    folder, commit = locate(source)
    values = read_json(folder / "config.json")
    config = read_config(values, folder / "config.json")
    if values.get("quantization_config"):
        raise BadInput(f"{folder / 'config.json'}: quantization_config says that weights are packed{_packed_as(values)}")
    wanted, buffers, head_copy = check(folder, config)
    tensors = checkpoint.read_tensors(wanted)
    if head_copy:
        copy, table_name = checkpoint.read_tensors(head_copy)["lm_head.weight"], embedding_name(config)
        if not torch.equal(copy, tensors[table_name]):
            raise BadInput(
                f"{folder}: lm_head.weight differs from {table_name}, yet tie_word_embeddings is true; correct one of the two"
            )
    tokenizer = load_tokenizer(folder, config)
    names = sorted({t.path for t in wanted.values()})
    others = [folder / n for n in ("config.json", checkpoint.INDEX, *TOKENIZER_FILES) if (folder / n).is_file()]
    rows = [_row(name, t.shape, t.dtype, t.bytes) for name, t in wanted.items()]
    manifest = _manifest(source, config, rows, commit=commit, files=[_file(p, digests) for p in [*others, *names]])
    manifest["buffers"] = [_row(name, t.shape, t.dtype, t.bytes) for name, t in buffers.items()]
    stored_as_head = config.tie_word_embeddings and wanted[embedding_name(config)].key.endswith("lm_head.weight")
    manifest["head"] += ", with a copy in the file" if head_copy else ", and stored as lm_head.weight" if stored_as_head else ""
    return Model(config, _weights(tensors, config), tokenizer, manifest, values, folder).to(dtype)


def _packed_as(values):
    """The end of the line that refuses quantised weights: the method, where the config names one, and what to do."""
    about = values["quantization_config"]
    method = about.get("quant_method") if isinstance(about, dict) else None
    return f"{f' ({method})' if isinstance(method, str) else ''}, and only plain ones are read; {checkpoint.DEQUANTISE}"


def _weights(tensors, config):
    """What the family's program reads, from the tensors of its files: a GPT-2's are read as they are."""
    return tensors if isinstance(config, GPT2Config) else general_weights(tensors, config)


def general_form(model: Model) -> Model:
    """The model as chapter 14's configurable forward runs it, whatever its family's own program is."""
    config, ours = general(model.config), isinstance(model.config, GPT2Config)
    weights = general_weights(model.weights, config) if ours else model.weights
    return replace(model, config=config, weights=weights, module=VARIANTS)


def locate(source: str) -> tuple[Path, str | None]:
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


# What old files carry beside the parameters, which is computed anew: a GPT-2's causal masks, the frequencies of a Llama's rope.
BUFFERS = re.compile(r"(?:h|model\.layers)\.(0|[1-9][0-9]{0,8})\.(?:attn\.(?:bias|masked_bias)|self_attn\.rotary_emb\.inv_freq)")


def check(folder: Path, config: GPT2Config | Config) -> tuple[dict, dict, dict]:
    """(wanted, buffers, head_copy): where each tensor of `tensor_shapes(config)` lies in the folder's files, and what else does.

    `head_copy` is the `lm_head.weight` that a file may hold beside the table although the head is tied; else it is empty. A tied
    model's file may hold the head alone, which then is the table. Reads headers only.
    Raises BadInput that names the tensors missing, left over, misshapen, or of a dtype other than F32, BF16 and F16.
    """
    parameters, table_name = tensor_shapes(config), embedding_name(config)
    named, prefix = checkpoint.by_bare_name(checkpoint.find_tensors(folder)), "model." if table_name.startswith("model.") else ""
    named = {name if name.startswith("lm_head.") else prefix + name: stored for name, stored in named.items()}
    if config.tie_word_embeddings and "lm_head.weight" in named:
        named.setdefault(table_name, named["lm_head.weight"])
    shapes = {"lm_head.weight": parameters[table_name], **parameters} if "lm_head.weight" in named else parameters
    buffers = {}
    for name in list(named):
        match = BUFFERS.fullmatch(name)
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
    head_copy = {name: named[name] for name in shapes if name not in parameters and named[name] != named[table_name]}
    return {name: named[name] for name in parameters}, buffers, head_copy


def _gguf(source, dtype, digests):
    """The `Model` of a GGUF file; `source` is its path, or "smollm2" for the one that the package of that name carries."""
    from examples.ch02 import gguf_file

    path = smollm2_file() if source == "smollm2" else Path(source)
    if not path.is_file():
        raise BadInput(f"{source}: there is no such file; check the path")
    config, weights, tokenizer, facts = gguf_file.read(path)
    manifest = _manifest(source, config, facts["tensors"], files=[_file(path, digests)])
    manifest |= {"buffers": facts["buffers"], "eos_token_id": facts["eos_token_id"]}
    return Model(config, weights, tokenizer, manifest, path=path).to(dtype)


def random_model(fields: dict, seed: int = 0, dtype: torch.dtype = torch.float32, source: str = "random") -> Model:
    """A `Model` of the shape that `fields`, those of a `config.json`, say, with weights from `seed`; `source` names it.

    Raises BadInput like `read_config` and `seeded`, and before any is drawn for weights that do not fit into this machine's memory.
    """
    config = read_config(fields, source)
    needed, free = sum(map(math.prod, tensor_shapes(config).values())) * torch.finfo(dtype).bits // 8, free_memory()
    if free is not None and needed > free:
        take = f"weights in {str(dtype).removeprefix('torch.')} take {needed / 2**30:,.1f} GiB"
        todo = "take a smaller shape, or a narrower dtype where the script has --dtype"
        raise BadInput(f"{source}: its {take}, and this machine has {free / 2**30:,.1f} GiB free; {todo}")
    tensors = {
        name: converted(random_tensor(name, shape, seed), dtype, name, source) for name, shape in tensor_shapes(config).items()
    }
    rows = [_row(name, w.shape, _dtype_name(w.dtype), w.nbytes) for name, w in tensors.items()]
    manifest = _manifest(source, config, rows) | {"seed": seed}
    return Model(config, _weights(tensors, config), manifest=manifest, fields=fields)


def free_memory() -> int | None:
    """Bytes of memory that are free here; where the system does not say, all that there are, or None."""
    with contextlib.suppress(OSError, TypeError):
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii", errors="replace"))
        return int(found[1]) * 1024
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def seeded(seed: int, offset: int = 0) -> torch.Generator:
    """A generator that starts at `seed`, or as far behind it as `offset` says.

    Raises BadInput for a seed that is no whole number from 0 to 2^63 - 1.
    """
    start = as_whole(seed)
    if start is None or not 0 <= start < 2**63:
        raise BadInput(f"the seed is {seed!r}; give a whole number, 0 to 2^63 - 1")
    return torch.Generator().manual_seed((start + offset) % 2**63)


def random_tensor(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """float32 numbers that depend on name, shape and seed alone: normal with deviation 0.02 (GPT-2's own), norm gains 1 + 0.1 N.

    Biases are drawn too, not zero, so that a program that forgets one gives other logits.
    """
    noise = torch.randn(shape, generator=seeded(seed, zlib.crc32(name.encode())))
    is_gain = len(shape) == 1 and name.endswith("weight")
    return noise.mul_(0.1).add_(1.0) if is_gain else noise.mul_(0.02)


_WRITTEN = {"config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "training_log.json", checkpoint.SINGLE}


def check_place(folder: str | Path) -> Path:
    """The folder as a place for `save`, links followed; raises BadInput where something stands that is not a model of ours."""
    folder = Path(os.path.realpath(folder))
    if folder.exists():
        entries = {p.name for p in folder.iterdir()} if folder.is_dir() else {""}
        kind = entries and read_json(folder / "config.json").get("model_type") if "config.json" in entries else None
        if entries and (kind != "gpt2" or entries - _WRITTEN):
            raise BadInput(f"{folder} is there and is not a model folder that was written here; give another place")
    return folder


def save(model: Model, folder: str | Path, extra: dict[str, str] | None = None) -> None:
    """Write `model` as a folder that `load` and transformers' `from_pretrained` read.

    extra: further files, {name: text}. The new folder is made whole beside the old one and then takes its place; a process
    that is killed between the two steps leaves the old one as .NAME.old. Raises BadInput like `check_place`.
    """
    from safetensors.torch import save_file

    require(model.config, "gpt2", "writing a model folder")
    folder = check_place(folder)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    values = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **asdict(model.config)}
    for name in ("embd_pdrop", "resid_pdrop", "attn_pdrop"):  # dropout is training's affair
        values[name] = 0.0
    if model.tokenizer is not None:
        end = model.tokenizer.token_to_id("<|endoftext|>")
        values |= {"bos_token_id": end, "eos_token_id": end}
        write_whole(partial / "tokenizer.json", model.tokenizer.to_str(pretty=False))
    else:
        values |= {"bos_token_id": None, "eos_token_id": None}
    write_whole(partial / "config.json", dump_json(values))
    tensors = {n if n.startswith("lm_head") else f"transformer.{n}": w.contiguous() for n, w in model.weights.items()}
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


def _manifest(source, config, tensors, commit=None, files=()):
    """What was loaded, as plain values; `tensors` are rows of `_row`."""
    return {
        **{"source": source, "commit": commit, "model_type": config.model_type, "config": asdict(config)},
        **{"files": list(files), "tensors": tensors, "buffers": []},
        "parameters": sum(math.prod(row["shape"]) for row in tensors if not is_buffer(row["name"])),
        "head": "tied" if config.tie_word_embeddings else "untied",
    }


def _dtype_name(dtype):
    return next((name for name, d in TORCH_DTYPES.items() if d == dtype), str(dtype).removeprefix("torch."))


def _row(name, shape, dtype, size):
    return {"name": name, "shape": list(shape), "dtype": dtype, "bytes": size}


def _file(path, digests):
    return {"name": path.name, "bytes": path.stat().st_size, **({"sha256": sha256(path)} if digests else {})}
