"""A model as the library (transformers) runs it, read from the files that `--model` names, and a request served by it.

No chapter before this one has opened the model, so the forward pass is one block here: ids go in, and scores for the next token
come out. Everything around the block is written out.
"""

import contextlib
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from examples.ch01.record import PASSES, Stopwatch, artefact
from examples.lab.environment import EMBEDDED, import_transformers, smollm2_file
from examples.lab.script import BadInput, read_json

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
    commit = None
    if not path.exists() and re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", source):
        path = _fetched(source)
        commit = path.name
    if path.is_file() and path.suffix == ".gguf":
        place, options, files = path.parent, {"gguf_file": path.name}, [path]
    elif (path / "config.json").is_file():
        place, options, files = path, {}, _files(path, source)
    else:
        what = source or "without a name"
        raise BadInput(f"no model {what}: give a folder with config.json, a .gguf file or a hub id owner/name")
    model, tokenizer = _read(source, place, options, dtype)
    end = model.generation_config.eos_token_id
    ends = frozenset([] if end is None else end if isinstance(end, list) else [end])
    return Library(model, tokenizer, ends, {"source": source, "files": files, "commit": commit})


def _fetched(source):
    """The folder of a hub id `owner/name[@revision]` in the hub's cache: config, tokenizer and safetensors files of one commit."""
    import_transformers()  # which says in one line what it cannot read in the environment, and imports the hub
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    if not os.isatty(2):
        disable_progress_bars()
    repo, _, revision = source.partition("@")
    try:
        wanted = [*FILES, SINGLE, INDEX, "model-*-of-*.safetensors"]
        return Path(snapshot_download(repo, revision=revision or None, allow_patterns=wanted))
    except Exception as error:  # of many kinds: no network, no such model, no right to read it
        reason = " ".join(str(error).split())[:200] or repr(error)
        raise BadInput(f"{source} could not be fetched from the hub ({reason}); check the name, or give a folder") from None


def _files(folder, source):
    """The files of a model folder that are read: config, tokenizer, and the weights' one file or the shards of their index."""
    weights = [folder / SINGLE]
    if not weights[0].is_file():
        if not (folder / INDEX).is_file():
            raise BadInput(f"{source} holds no {SINGLE}; weights are only read from safetensors files")
        shards = read_json(folder / INDEX).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise BadInput(f"{folder / INDEX} has no weight_map; fetch it again")
        weights = [folder / INDEX, *(folder / name for name in sorted(set(shards.values())))]
    lost = next((path for path in weights if not path.is_file()), None)
    if lost:
        raise BadInput(f"{source} holds no {lost.name}, which its index names; fetch it again")
    return [*(folder / name for name in FILES if (folder / name).is_file()), *weights]


def _read(source, place, options, dtype):
    """(model, tokenizer) of a folder or file, the latter None where there is none; raises BadInput for whatever the library finds
    wrong with it."""
    transformers = _quiet()
    settings = {"dtype": dtype, "output_loading_info": True, **({} if options else {"use_safetensors": True}), **options}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar for GGUF asks nobody
            model, about = transformers.AutoModelForCausalLM.from_pretrained(place, **settings)
            has = options or any((place / name).is_file() for name in ("tokenizer.json", "vocab.json"))
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options) if has else None
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
    """Import the library with the classes of a model, which it puts off until they are first named, so that no clock counts it."""
    transformers = import_transformers()
    _ = transformers.AutoModelForCausalLM, transformers.AutoTokenizer, transformers.GPT2LMHeadModel


def _quiet():
    transformers = import_transformers()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


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
