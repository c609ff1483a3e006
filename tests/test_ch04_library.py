"""The two sides of a comparison share no reading: a config that ours misreads is seen by `compare`, in every family, from a folder,
a GGUF file and the fields of a published shape; and what transformers cannot read by itself is handed to it, or refused."""

import json
import unittest
from dataclasses import replace
from unittest import mock

import torch
import transformers
from safetensors.torch import load_file, save_file

from examples.ch02 import families, gguf_file
from examples.ch02.config import Config
from examples.ch02.model import Model, load, random_model, run
from examples.ch03.tokens import random_ids
from examples.ch04 import agreement as ex
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.library import library_config, library_model
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import peers
from examples.lab.script import BadInput
from tests.support import FolderCase, G, call, slow, weights, write_folder
from tests.test_ch02_gguf import write as write_gguf
from tests.test_ch14_llama import MODEL as LLAMA
from tests.test_ch14_llama import L
from tests.test_ch14_llama import model as llama_model

BOUND = 1e-5  # of the largest logit


def setUpModule():
    torch.set_num_threads(1)


def misread(kind, **wrong):
    """Our reader of a family, made to take other values for fields of the config that it gives."""
    right = families.READERS[kind]
    return mock.patch.dict(families.READERS, {kind: lambda r: replace(right(r), **wrong)})


WORST = {  # the field of a family's config that is the worst to misread, and a wrong value
    "gpt2": lambda c: dict(activation_function="relu"),
    "openai-gpt": lambda c: dict(activation="relu"),
    "gpt_bigcode": lambda c: dict(score_scale=1.0),
    "bloom": lambda c: dict(norm_eps=0.1),
    "xglm": lambda c: dict(embedding_scale=1.0),
    "llama": lambda c: dict(rope=replace(c.rope, theta=77.0)),
    "mistral": lambda c: dict(windows=(7,) * c.n_layer),
    "mixtral": lambda c: dict(experts=replace(c.experts, active=1)),
    "qwen2": lambda c: dict(rope=replace(c.rope, theta=77.0)),
    "qwen3": lambda c: dict(norm_eps=0.1),
    "gemma": lambda c: dict(activation="silu"),
    "gemma2": lambda c: dict(score_cap=None),
    "gemma3_text": lambda c: dict(windows=c.windows[::-1]),
    "deepseek_v3": lambda c: dict(experts=replace(c.experts, scale=1.0)),
}


class Misread(FolderCase):
    def compared(self, *argv, main=gpt2.main):
        """The worst difference of a logit, over the largest, that `compare` prints."""
        status, out, err = call(main, "compare", *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        value = json.loads(out)
        return ex.worst(r["relative_difference"] for r in value["prompts"] + value["edges"])

    def saved(self, kind):
        folder = self.folder / kind
        peers.library_tiny(kind).save_pretrained(folder)
        return folder

    def test_an_epsilon(self):
        folder = write_folder(self.folder / "m", values=G | {"layer_norm_epsilon": 0.1})
        self.assertLessEqual(self.compared("--model", folder), BOUND)
        with misread("gpt2", layer_norm_epsilon=1e-5):
            self.assertGreater(self.compared("--model", folder), 1e-2)

    def test_a_theta(self):
        folder = self.saved("llama")
        rope = load(folder).config.rope
        for main in (gpt2.main, llama.main):
            self.assertLessEqual(self.compared("--model", folder, main=main), BOUND)
            with misread("llama", rope=replace(rope, theta=77.0)):
                self.assertGreater(self.compared("--model", folder, main=main), 1e-2)

    @slow
    def test_every_family(self):
        for kind in families.READERS:
            with self.subTest(kind):
                folder = self.saved(kind)
                right = load(folder)
                ids = random_ids(right, 20)
                library = library_model(right)(ids, use_cache=False).logits.detach()
                self.assertLessEqual(ex.agreement(run(right, ids), library)["relative_difference"], BOUND)
                with misread(kind, **WORST[kind](right.config)):
                    wrong = load(folder)
                    self.assertNotEqual(wrong.config, right.config)
                    found = library_model(wrong)(ids, use_cache=False).logits.detach()
                self.assertTrue(torch.equal(found, library))  # the library has read the file by itself
                self.assertGreater(ex.agreement(run(wrong, ids), found)["relative_difference"], 10 * BOUND)

    @slow
    def test_compare_sees_windows_routing_and_layer_types(self):
        for kind in ("mistral", "mixtral", "gemma3_text", "gemma2"):
            folder = self.saved(kind)
            with misread(kind, **WORST[kind](load(folder).config)):
                self.assertGreater(self.compared("--model", folder), 1e-4, kind)

    def test_a_gguf_file(self):
        made = llama_model(hidden_size=32, head_dim=None)  # transformers reads no other width of a head from GGUF
        path = write_gguf(self.folder / "m.gguf", made, {"vocab_size": 11})  # which it takes from here
        ids = random_ids(made, 20)
        right = load(path)
        library = library_model(right)(ids, use_cache=False).logits.detach()
        self.assertLessEqual(ex.agreement(run(right, ids), library)["relative_difference"], BOUND)
        config_of = gguf_file.config_of
        with mock.patch.object(gguf_file, "config_of", lambda *args: replace(config_of(*args), norm_eps=0.1)):
            wrong = load(path)
        self.assertTrue(torch.equal(library_model(wrong)(ids, use_cache=False).logits, library))
        self.assertGreater(ex.agreement(run(wrong, ids), library)["relative_difference"], 1e-2)

    def test_random_weights_of_a_published_shape(self):
        fields = {k: v for k, v in G.items() if k != "layer_norm_epsilon"}  # as it is published, with a default left out
        ids = torch.tensor([[3, 1, 4, 1, 5]])
        right = random_model(fields)
        self.assertLessEqual(ex.agreement(run(right, ids), library_model(right)(ids).logits.detach())["relative_difference"], BOUND)
        with misread("gpt2", layer_norm_epsilon=0.1):
            wrong = random_model(fields)
        self.assertGreater(ex.agreement(run(wrong, ids), library_model(wrong)(ids).logits.detach())["relative_difference"], 1e-2)


class Files(FolderCase):
    def test_prefixes_that_the_library_does_not_know(self):
        """A training wrapper's prefix: transformers finds no weight there, and gets them under names that it knows."""
        for kind in ("gpt2", "llama", "mistral", "bloom", "gpt_bigcode", "mixtral", "deepseek_v3"):
            folder = self.folder / kind
            library = peers.library_tiny(kind)
            library.save_pretrained(folder)
            held = {f"_orig_mod.{name}": w for name, w in load_file(folder / "model.safetensors").items()}
            save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
            model = load(folder)
            ids = random_ids(model, 9)
            wanted = library(ids, use_cache=False).logits.detach()
            self.assertTrue(torch.equal(library_model(model)(ids, use_cache=False).logits, wanted), kind)
            self.assertLessEqual(ex.agreement(run(model, ids), wanted)["relative_difference"], BOUND, kind)

    def test_what_cannot_matter_is_left_out(self):
        noise = {"attn_pdrop": "none", "bos_token_id": "<s>", "eos_token_id": [1, "x"], "id2label": 7, "torch_dtype": "float99"}
        folder = write_folder(self.folder / "m", values=G | noise)
        library = library_model(load(folder))
        self.assertFalse(library.training)
        self.assertIsNone(library.generation_config.eos_token_id)
        self.assertEqual(library.config._attn_implementation, "eager")

    def test_a_model_of_neither_files_nor_fields(self):
        model = load(write_folder(self.folder / "m"))
        with self.assertRaisesRegex(BadInput, "neither files nor the fields of a config.json"):
            library_model(Model(model.config, weights()))

    def test_what_the_library_cannot_make(self):
        path = write_gguf(self.folder / "m.gguf", LLAMA)
        with self.assertRaisesRegex(BadInput, "transformers cannot make this model by itself"):
            library_model(load(path))
        self.assertBad(gpt2.main, ["tour", "--model", path], "transformers cannot make this model by itself")

    def test_what_fails_only_when_the_library_runs(self):
        folder = write_folder(self.folder / "m")
        with mock.patch.object(transformers.GPT2LMHeadModel, "forward", side_effect=TypeError("cannot\nrun")):
            self.assertBad(gpt2.main, ["compare", "--model", folder], "transformers cannot make this model by itself")

    def test_fields_say_what_our_config_does_not_know(self):
        """The library's config is made of the fields, none of which we have read."""
        found = library_config(G | {"layer_norm_epsilon": 0.25, "n_head": 4})
        self.assertEqual((found.layer_norm_epsilon, found.n_head), (0.25, 4))
        self.assertFalse(isinstance(found, Config))
        nested = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        fields = L | {"rope_scaling": nested | {"original_max_position_embeddings": 32}}
        before = json.dumps(fields)
        library_config(fields)
        self.assertEqual(json.dumps(fields), before)  # kept on the model as it was read


if __name__ == "__main__":
    unittest.main()
