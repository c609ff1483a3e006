"""The published configurations that chapter 14 keeps as data, in `configs.json`, and any other, in the general form."""

from pathlib import Path

from examples.ch02.config import Config, general
from examples.ch02.families import read_config
from examples.ch02.model import load_config
from examples.lab.script import BadInput, read_json

PATH = Path(__file__).resolve().parent / "configs.json"
ALIASES = {"smollm2": "smollm2-135m"}  # the name that --model takes
SOURCE = "a published model of configs.json, embedded, a folder, or a config.json"  # what `config_named` takes, for a --help


def published():
    """{name: {published, released, config}} of the models whose configurations this chapter keeps; config as in its file."""
    return read_json(PATH)["models"]


def config_named(source: str) -> Config:
    """The Config of a published model by its name here, of "embedded", or of a folder or a `config.json`; raises BadInput."""
    models = published()
    name = ALIASES.get(source, source)
    if name in models:
        return general(read_config(models[name]["config"], name))
    if source != "embedded" and not Path(source).exists():
        raise BadInput(f"no config {source}: give a config.json, its folder, embedded, or one of {', '.join(models)}")
    return general(load_config(source))
