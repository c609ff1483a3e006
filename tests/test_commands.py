"""Every command that README and the manuscripts name runs: each is taken from the text and called in this process.

A model that is not here, or is too large for a test, is replaced by a tiny one of its kind with a tokenizer; nothing else changes.
"""

import functools
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from examples.ch02.model import EMBEDDED
from scripts.transcripts import RUN
from tests.support import ROOT, call, slow

PAGES = ("README.md", *(p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "content").rglob("*.md"))))
SCRIPTS = ("examples", "scripts")
LONG = {
    "scripts/evidence.py",
    "scripts/bench.py",
    "scripts/train_embedded_model.py",
    "scripts/mutate.py",
    "scripts/compare_published.py",
}


def commands():
    """[(page, line of a `sh` block)], each line once."""
    found = {}
    for page in PAGES:
        text = RUN.sub("", (ROOT / page).read_text(encoding="utf-8"))  # tests/test_manuscripts.py runs what has a transcript
        for block in re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.M | re.S):
            for line in block.splitlines():
                found.setdefault(line.partition(" #")[0].strip().removeprefix("$ "), page)
    return [(page, line) for line, page in found.items() if line]


def _without_transcripts(page):
    return re.sub(r"^<!--run .*?^<!--/-->", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)


def script(line):
    """(file, arguments) of a line that runs one of our scripts, or None."""
    words = [word for word in shlex.split(line) if not re.fullmatch(r"\w+=.*", word)]
    if words[:1] not in (["python"], ["python3"]) or len(words) < 2:
        return None
    path, rest = (words[2].replace(".", "/") + ".py", words[3:]) if words[1] == "-m" else (words[1], words[2:])
    return (path, rest) if path.split("/")[0] in SCRIPTS else None


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
    return {"smollm2": llama, "openai-community/gpt2": gpt2, "random:gpt2": gpt2}


def smaller(module, arguments):
    """The arguments with tiny models for those that are not here, or are too large."""
    arguments = [stand_ins().get(word, word) for word in arguments]
    if module.__name__ == "examples.ch10.cache_cost" and "--time" in arguments:  # which runs GPT-2's shape for minutes
        arguments += ["--model", "toy", "--prompt-tokens", "5", "--new", "1,12"]
    if (
        module.__name__ == "examples.ch14.llama_from_scratch" and "--model" not in arguments
    ):  # which has SmolLM2 where it is installed
        arguments += ["--model", stand_ins()["smollm2"]]
    default = getattr(module.options().parse_args(arguments), "model", None)
    return arguments + (["--model", stand_ins()[default]] if default in stand_ins() else [])


class Commands(unittest.TestCase):
    def test_there_are_many(self):
        self.assertGreater(sum(script(line) is not None for _, line in commands()), 10)

    @slow
    def test_each_script_runs_as_the_text_says(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}):
            here = os.getcwd()
            os.chdir(folder)  # where a plot is written
            try:
                for page, line in commands():
                    found = script(line)
                    if found and found[0] not in LONG:
                        module = importlib.import_module(found[0].removesuffix(".py").replace("/", "."))
                        with self.subTest(line, page=page):
                            status, out, err = call(module.main, *smaller(module, found[1]))
                            self.assertEqual(status, 0, err)
                            self.assertTrue(out.strip())
            finally:
                os.chdir(here)

    def test_each_long_one_takes_its_arguments(self):
        for page, line in commands():
            found = script(line)
            if found and found[0] in LONG:
                with self.subTest(line, page=page):
                    module = importlib.import_module(found[0].removesuffix(".py").replace("/", "."))
                    module.options().parse_args(found[1])

    @unittest.skipUnless(shutil.which("make"), "make is not installed")
    def test_each_target_of_make_is_there(self):
        lines = [(page, line) for page, line in commands() if line.split()[0] == "make"]
        self.assertGreater(len(lines), 5)
        for page, line in lines:
            with self.subTest(line, page=page):
                done = subprocess.run(["make", "-n", *shlex.split(line)[1:]], cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_breaks_is_seen(self):
        self.assertEqual(script("python examples/ch04/tour.py --threads 2"), ("examples/ch04/tour.py", ["--threads", "2"]))
        self.assertEqual(script("OMP_NUM_THREADS=1 python -m examples.ch04.tour"), ("examples/ch04/tour.py", []))
        self.assertIsNone(script("make run"))
        module = importlib.import_module("examples.ch04.tour")
        self.assertEqual(call(module.main, "shapes")[0], 2)


if __name__ == "__main__":
    unittest.main()
