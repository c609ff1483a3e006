"""A model as the library (transformers) runs it, read from the files that `--model` names, and a request served by it.

No chapter before this one has opened the model, so the forward pass is one block here: ids go in, and scores for the next token
come out. Everything around the block is written out.
"""

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from examples.ch01.record import PASSES, Stopwatch, artefact
from examples.lab.environment import EMBEDDED, import_transformers, smollm2_file
from examples.lab.script import BadInput

SIZES = {  # of the published GPT-2s: (layers, width, heads)
    **{"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-large": (36, 1280, 20), "gpt2-xl": (48, 1600, 25)},
    "distilgpt2": (6, 768, 12),
}
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


def published(size: str) -> dict:
    """What the `config.json` of a published GPT-2 says of its computation."""
    layers, width, heads = SIZES[size]
    shape = {"vocab_size": 50257, "n_positions": 1024, "n_layer": layers, "n_embd": width, "n_head": heads}
    return {"model_type": "gpt2", **shape, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


@dataclass(frozen=True)
class Library:
    """transformers' model and tokenizer of a source, the latter None for random weights; ends: the ids that end a text; about:
    what `artefact` is to be told of it."""

    model: torch.nn.Module
    tokenizer: object
    ends: frozenset
    about: dict

    @property
    def positions(self) -> int:
        """How many tokens a text may have."""
        return self.model.config.max_position_embeddings

    def artefact(self) -> dict:
        """What ran, with its digests; reads the files whole."""
        return artefact(**self.about)


def load_library(source: str = "embedded", dtype: torch.dtype = torch.float32, seed: int = 0) -> Library:
    """The model that `source` names, in evaluation mode: embedded, a folder, a .gguf file, smollm2, random:gpt2 or another of
    SIZES with weights from `seed`, or a hub id. Only safetensors and GGUF files are read. Raises BadInput.
    """
    if source.startswith("random:"):
        return _random(source, dtype, seed)
    path = EMBEDDED if source == "embedded" else smollm2_file() if source == "smollm2" else Path(source)
    revision = None
    if path.suffix == ".gguf":
        if not path.is_file():
            raise BadInput(f"{source}: there is no such file; check the path")
        place, options = path.parent, {"gguf_file": path.name}
    elif path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"{source} has no config.json; a model is a folder that holds it")
        place, options = path, {}
    elif source.count("/") == 1 and not path.exists() and not source.startswith((".", "/", "~")):
        place, _, revision = source.partition("@")
        options = {"revision": revision or None}
    else:
        raise BadInput(f"no model {source or 'without a name'}: there is no such folder or .gguf file; a hub id is owner/name")
    model, tokenizer = _read(source, place, options, dtype)
    if path.exists():
        files, commit = [path] if path.is_file() else _files(path), None
    else:  # a hub id: its cache has a folder for each commit
        folder = _cached_folder(place, revision)
        files, commit = _files(folder), folder.name
    return Library(model, tokenizer, _ends(model), {"source": source, "files": files, "commit": commit})


def _read(source, place, options, dtype):
    """(model, tokenizer) of a folder, file or hub id; raises BadInput for whatever the library finds wrong with it."""
    transformers = _quiet()
    settings = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True, **options}
    if "gguf_file" in options:
        del settings["use_safetensors"]
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar for GGUF asks nobody
            model, about = transformers.AutoModelForCausalLM.from_pretrained(place, **settings)
            tokenizer = None
            if "gguf_file" in options or "revision" in options or any((place / name).is_file() for name in FILES[2:]):
                tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
    except (KeyboardInterrupt, SystemExit, BadInput):
        raise
    except Exception as error:  # of as many kinds as there are ways to be wrong
        reason = " ".join(str(error).split())[:200] or repr(error)
        raise BadInput(f"{source}: transformers cannot load this model ({reason}); give another") from None
    lost = sorted(about["missing_keys"]) + sorted(str(key) for key in about["mismatched_keys"])
    if lost:  # it would go on with random weights in their place
        raise BadInput(f"{source}: transformers does not find {lost[0]} in the files; the model is not whole")
    return model.eval(), tokenizer


def _random(source, dtype, seed):
    size = source.removeprefix("random:")
    if size not in SIZES:
        raise BadInput(f"no published shape {size!r}; random: takes one of {', '.join(SIZES)}")
    transformers, fields = _quiet(), published(size)
    config = transformers.AutoConfig.for_model(**fields, bos_token_id=None, eos_token_id=None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    return Library(model.eval(), None, frozenset(), {"source": source, "config": fields, "seed": seed})


def import_classes():
    """Import the library with the classes of a model, which it puts off until they are first named: loading is not to pay for it."""
    transformers = import_transformers()
    _ = transformers.AutoModelForCausalLM, transformers.AutoTokenizer, transformers.GPT2LMHeadModel


def _quiet():
    transformers = import_transformers()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _cached_folder(repo, revision):
    found = import_transformers().utils.cached_file(repo, "config.json", revision=revision or None, local_files_only=True)
    return Path(found).parent


def _files(folder):
    """The files of a model folder that are read: config, tokenizer, and the weights' one file or the shards of their index."""
    weights = [folder / SINGLE]
    if not weights[0].is_file():
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        weights = [folder / INDEX, *(folder / name for name in sorted(set(index["weight_map"].values())))]
    return [*(folder / name for name in FILES if (folder / name).is_file()), *weights]


def _ends(model):
    """The ids that end a text by the model's files."""
    end = model.generation_config.eos_token_id
    return frozenset([] if end is None else end if isinstance(end, list) else [end])


# ------------------------------------------------------------------------------------------------------------- a request


@dataclass(frozen=True)
class Served:
    """A request that is done: its ids, the new text (None without a tokenizer), and the seconds by stage and in all."""

    prompt: list
    new: list
    text: str | None
    stages: dict
    seconds: float

    @property
    def steps(self) -> list:
        """[(seconds of the pass, seconds of choosing from it), ...], one for each new token: the first pass is the prefill."""
        passes = [t for name in PASSES for t in self.stages.get(name, [])]
        return list(zip(passes, self.stages["sample"], strict=True))


@torch.inference_mode()
def serve(library: Library, prompt: str | Tensor, tokens: int, watch=None, stop=True, on_logits=None) -> Served:
    """Up to `tokens` new tokens behind `prompt`, a text or ids [1, T]: the most probable one each time.

    watch: a stopwatch that runs already, whose stages so far belong to the request; by default one that starts now. stop: whether
    a token that ends a text is the last. on_logits: called with the logits [V] that each token was chosen from, on nobody's time.
    Raises BadInput for a prompt that the model cannot take.
    """
    watch = watch or Stopwatch()
    if isinstance(prompt, str):
        with watch.stage("tokenise"):
            ids = encode(library, prompt)  # [1, T]
    else:
        ids = prompt
    check_room(library, ids.shape[1], tokens)
    new, step, cache = [], ids, None
    for n in range(tokens):
        with watch.stage("decode" if n else "prefill"):
            out = library.model(step, cache=cache, use_cache=True)  # logits [1, T, V] of the prompt, then [1, 1, V]
        with watch.stage("sample"):
            id = out.logits[0, -1].argmax().item()  # of [V]
            step, cache = torch.tensor([[id]]), out.cache
        new.append(id)
        if on_logits is not None:
            on_logits(out.logits[0, -1])
        if stop and id in library.ends:
            break
    text = None
    if library.tokenizer is not None:
        with watch.stage("detokenise"):
            text = library.tokenizer.decode(new)
    return Served(ids[0].tolist(), new, text, watch.stages, watch.seconds())


def encode(library: Library, text: str) -> Tensor:
    """ids [1, T] of a text; raises BadInput for one of no tokens, and without a tokenizer."""
    if library.tokenizer is None:
        raise BadInput("this model has no tokenizer, so it takes no text (random weights have none); leave --prompt out")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput("the prompt is not valid UTF-8; give it in that encoding") from None
    ids = library.tokenizer(text).input_ids
    if not ids:
        raise BadInput("the prompt is empty, and a model needs at least one token; give some text")
    return torch.tensor([ids])


def check_room(library: Library, prompt: int, tokens: int) -> None:
    """Raise BadInput unless a prompt of so many tokens has room for so many new ones; the last one is never fed back."""
    room = library.positions - prompt + 1
    if tokens > room:
        what = f"{prompt} tokens of prompt and {tokens} new ones need {prompt + tokens - 1} positions"
        todo = f"ask for at most {room} tokens" if room > 0 else "give a shorter prompt"
        raise BadInput(f"{what}, and the model has {library.positions}; {todo}")


def random_ids(library: Library, tokens: int, seed: int = 0) -> Tensor:
    """Uniform ids [1, tokens] of the model's vocabulary, from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(library.model.config.vocab_size, (1, tokens), generator=generator)
