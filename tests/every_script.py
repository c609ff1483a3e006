"""Every script of the chapters, called once with the cheapest arguments that show all that it prints, for the tests of all scripts.

A model that is not here, or is too large for a test, is replaced by a tiny one of its kind with a tokenizer; nothing else changes.
"""

import contextlib
import functools
import importlib
import io
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from examples.ch02.gguf_file import NAMES
from examples.ch02.model import EMBEDDED
from examples.lab.script import answer, parse_json
from tests import gguf_writer
from tests.support import ROOT, call, llama_model

# Arguments of the calls; by default one call without any. What --time or --all adds wants a call of its own.
ARGUMENTS = {
    "ch03/bpe_agreement": [["--strings", "50"]],
    "ch04/component_timing": [["--tokens", "16,128,256", "--runs", "2"]],
    "ch04/rounding": [["--model", "random:gpt2"]],
    "ch04/last_position": [["--tokens", "16", "--runs", "2"]],
    "ch05/cycles": [["--model", "random:gpt2", "--draws", "2"]],
    "ch05/generate": [["--tokens", "2"], ["--tokens", "2", "--show-candidates"], ["--tokens", "2", "--temperature", "0"]],
    "ch05/loop_agreement": [["--model", "random:gpt2", "--tokens", "8"]],
    "ch05/repetition": [["--model", "random:gpt2", "--prompts", "1", "--tokens", "30"]],
    "ch05/sampling": [[], ["--temperature", "0"]],
    "ch05/sampling_agreement": [["--rows", "100", "--draws", "1000"]],
    "ch10/cache_cost": [[], ["--time", "--model", "toy", "--prompt-tokens", "5", "--new", "1,12", "--runs", "1"]],
    "ch10/cache_invariants": [["--model", "random:gpt2"]],
    "ch10/cache_memory": [[], ["--batch", "2"]],
    "ch10/cache_parity": [["--model", "random:gpt2", "--tokens", "8"]],
    "ch10/cached_repetition": [["--model", "random:gpt2", "--tokens", "30"]],
    "ch10/decode_rate": [["--tokens", "4", "--runs", "2"]],
    "ch10/wrong_caches": [["--model", "random:gpt2"]],
    "ch11/machine": [["--threads", "1", "--sizes", "16,32", "--read", "1", "--runs", "2"]],
    "ch11/intensity": [["--config", "gpt2"], ["--config", "embedded", "--ridge", "5"]],
    "ch11/roofline": [["--prefill", "16,128", "--decode", "16", "--runs", "2"]],
    "ch11/operators": [["--width", "8,16", "--runs", "2"]],
    "ch11/prediction": [["--requests", "embedded:8:4,embedded:4:1", "--runs", "1"], ["--model", "embedded", "--tokens", "4"]],
    "ch11/attention_traffic": [["--tokens", "16,24,32,64,128", "--runs", "2"]],
    "ch11/short_inputs": [["--tokens", "1,16,64", "--runs", "2", "--width", "64", "--layers", "2"]],
    "ch11/batches": [["--batches", "1,2", "--context", "16", "--runs", "2"]],
    "ch11/capacity": [[], ["--all"], ["--config", "llama-3-70b", "--dtype", "q4", "--accelerator", "l40s", "--context", "8192"]],
    "ch11/fast_agreement": [["--model", "four-bit", "--uncompiled", "--positions", "8", "--tokens", "4"]],
    "ch11/fast_rate": [["--model", "four-bit", "--uncompiled", "--tokens", "3", "--runs", "1", "--use-threads", "1"]],
    "ch11/faster_paths": [["--tokens", "8", "--runs", "1"]],
    "ch11/speculation": [["--tokens", "6", "--runs", "1", "--time"]],
    "ch14/ablations": [["--tokens", "64", "--new", "4"]],
    "ch14/alibi_rounding": [["--tokens", "8"]],
    "ch14/costs": [[], ["--all"]],
    "ch14/decode_times": [["--context", "16", "--runs", "2"]],
    "ch14/decode_trace": [[], ["--batch", "8"], ["--config", "deepseek-v3"]],
    "ch14/family_agreement": [["--family", "gpt2"]],
    "ch14/norm_depth": [["--layers", "2,4", "--seeds", "2"]],
    "ch14/norm_training": [["--layers", "2", "--steps", "2"]],
    "ch14/option_times": [["--context", "16", "--batch", "1", "--runs", "2"]],
    "ch14/small_operations": [["--context", "16", "--runs", "2"]],
    "ch14/prefix_reuse": [[], ["--model", "smollm2"]],
    "ch14/ten_choices": [[], ["--config", "llama-3-8b"]],
}
SCRIPTS = tuple(
    f"{path.parent.name}/{path.stem}"
    for path in sorted(ROOT.glob("examples/ch[0-9][0-9]/*.py"))
    if "\ndef main(" in path.read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Answer:
    """What a script answers: its arguments, the page for a person, and the text of its JSON object, None where it has no --json."""

    arguments: tuple[str, ...]
    page: str
    json: str | None


@functools.cache
def stand_ins():
    """{model: a tiny one of its kind}; the folder lives as long as the process."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    stand_ins.holder = tempfile.TemporaryDirectory()
    llama = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    made = {
        "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_positions=1024, n_embd=16, n_layer=2, n_head=2)),
        "llama": LlamaForCausalLM(LlamaConfig(vocab_size=1024, max_position_embeddings=2100, tie_word_embeddings=True, **llama)),
    }
    folders = {}
    for name, model in made.items():
        folders[name] = Path(stand_ins.holder.name) / name
        model.save_pretrained(folders[name])
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (folders[name] / file).write_bytes((EMBEDDED / file).read_bytes())
    gpt2, llama = str(folders["gpt2"]), str(folders["llama"])
    return {"four-bit": str(four_bits(stand_ins.holder.name)), "smollm2": llama, "openai-community/gpt2": gpt2, "random:gpt2": gpt2}


def four_bits(folder):
    """The path of a tiny Llama's GGUF file with layers in Q4_1 and the head in Q8_0, without a tokenizer."""
    from gguf import GGMLQuantizationType as Kind

    sizes = dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=50)
    made = llama_model(**sizes, tie_word_embeddings=True)
    matrices = [f"blk.{i}.{theirs}.weight" for i in range(2) for theirs in NAMES if "norm" not in theirs]
    kinds = dict.fromkeys(matrices, Kind.Q4_1) | {"token_embd.weight": Kind.Q8_0}
    return gguf_writer.write(Path(folder) / "four-bit.gguf", made, {"vocab_size": 50}, types=kinds)


def smaller(module, arguments):
    """The arguments with tiny models for those that are not here, or are too large."""
    arguments = [stand_ins().get(word, word) for word in arguments]
    if module.__name__ == "examples.ch10.cache_cost" and "--time" in arguments:  # which runs GPT-2's shape for minutes
        arguments += ["--model", "toy", "--prompt-tokens", "5", "--new", "1,12"]
    by_itself = ("examples.ch11.faster_paths", "examples.ch11.speculation", "examples.ch14.llama_from_scratch")
    if module.__name__ in by_itself and "--model" not in arguments:  # which have SmolLM2 where it is there
        arguments += ["--model", stand_ins()["smollm2"]]
    four_bit = {"fast_agreement": ["--positions", "8", "--tokens", "4"], "fast_rate": ["--tokens", "3", "--runs", "1"]}
    few = four_bit.get(module.__name__.rpartition(".")[2])
    if few and "--model" not in arguments:  # the tiny file has 64 positions, and a compilation takes a minute
        arguments += ["--model", stand_ins()["four-bit"], "--uncompiled", *few]
    default = getattr(module.options().parse_args(arguments), "model", None)
    return arguments + (["--model", stand_ins()[default]] if default in stand_ins() else [])


def module(script):
    """The module of "ch04/tour", say."""
    return importlib.import_module(f"examples.{script.replace('/', '.')}")


@functools.cache
def help_of(script):
    """What --help prints."""
    return call(module(script).main, "--help")[1]


@functools.cache
def answers(script):
    """[Answer] of each call of a script in ARGUMENTS. The work is done once for both: `answer` prints both of what it is given."""
    return [_answer(module(script), smaller(module(script), arguments)) for arguments in ARGUMENTS.get(script, [[]])]


def _answer(script, arguments):
    json = []

    def both(args, values, report, draw=None, notes=()):
        answer(args, values, report, draw, notes)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            args.json = True
            answer(args, values, report)
        json.append(out.getvalue())

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(script, "answer", both, create=True):
        os.chdir(folder)  # where pictures are drawn
        try:
            status, page, err = call(script.main, *arguments)
            if not json and "--json" in help_of(f"{script.__name__.split('.')[1]}/{script.__name__.split('.')[2]}"):
                json.append(call(script.main, *arguments, "--json")[1])
        finally:
            os.chdir(here)
    assert status == 0, err
    return Answer(tuple(arguments), page, json[0] if json else None)


def keys(script):
    """{(key above, key)} of a script's JSON objects at any depth, but for those of `ran_with`; a list is not a depth."""
    found = set()

    def walk(value, above):
        if isinstance(value, dict):
            for key, below in value.items():
                found.add((above, key))
                walk(below, key)
        elif isinstance(value, list):
            for below in value:
                walk(below, above)

    for each in answers(script):
        if each.json is not None:
            value = parse_json(each.json)
            value.pop("ran_with", None)
            walk(value, "")
    return found
