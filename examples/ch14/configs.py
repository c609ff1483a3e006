"""The published configurations that chapter 14 keeps as data, in `configs.json`, and any other, in the general form."""

from pathlib import Path

from examples.ch02.config import Config, general
from examples.ch02.families import read_config
from examples.ch02.model import load_config
from examples.lab.script import BadInput, read_json

PATH = Path(__file__).resolve().parent / "configs.json"
ALIASES = {"smollm2": "smollm2-135m"}  # the name that --model takes
TINY = {  # of no published model: a Llama with groups of four query heads that runs in no time
    **{"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4},
    **{"num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 2048},
    **{"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False},
}
SOURCE = "a published model of configs.json, embedded, a folder, or a config.json"  # what `config_named` takes, for a --help


def published():
    """{name: {published, released, config}} of the models whose configurations this chapter keeps; config as in its file."""
    return read_json(PATH)["models"]


def shapes():
    """{name: fields of a config.json} of the published models, and "tiny-llama", for models of random weights."""
    return {"tiny-llama": TINY} | {name: model["config"] for name, model in published().items()}


def config_named(source: str) -> Config:
    """The Config of a published model by its name here, of "embedded", or of a folder or a `config.json`; raises BadInput."""
    models = published()
    name = ALIASES.get(source, source)
    if name in models:
        return general(read_config(models[name]["config"], name))
    if source != "embedded" and not Path(source).exists():
        raise BadInput(f"no config {source}: give a config.json, its folder, embedded, or one of {', '.join(models)}")
    return general(load_config(source))
