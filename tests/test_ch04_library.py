"""Chapter 4's library: the two sides of a comparison share no reading. A config that ours misreads is seen by the agreement, in
every family, from a folder, a GGUF file and the fields of a published shape; what transformers cannot read is handed to it, or
refused."""

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
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import tour
from examples.ch04.agreement import agreement, measure, measure_points
from examples.ch04.library import MODULES, library_config, library_model, library_trace
from examples.ch14 import peers
from examples.lab.script import BadInput
from tests import gguf_writer
from tests.support import (
    IDS,
    LLAMA,
    FolderCase,
    G,
    call,
    config,
    library_gpt2,
    llama_model,
    model,
    slow,
    weights,
    write_folder,
)

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
    "qwen3_moe": lambda c: dict(experts=replace(c.experts, renormalise=False)),
    "gemma": lambda c: dict(activation="silu"),
    "gemma2": lambda c: dict(score_cap=None),
    "gemma3_text": lambda c: dict(windows=c.windows[::-1]),
    "deepseek_v3": lambda c: dict(experts=replace(c.experts, scale=1.0)),
}


class Misread(FolderCase):
    def compared(self, folder):
        """The worst difference of a logit, over the largest, that the agreement finds on the model in `folder`."""
        return measure(load(folder), shapes=((1, 1), (1, 16)))["worst"]

    def saved(self, kind):
        folder = self.folder / kind
        peers.library_tiny(kind).save_pretrained(folder)
        return folder

    def test_an_epsilon(self):
        folder = write_folder(self.folder / "m", values=G | {"layer_norm_epsilon": 0.1})
        self.assertLessEqual(self.compared(folder), BOUND)
        with misread("gpt2", layer_norm_epsilon=1e-5):
            self.assertGreater(self.compared(folder), 1e-2)

    def test_a_theta(self):
        folder = self.saved("llama")
        rope = load(folder).config.rope
        self.assertLessEqual(self.compared(folder), BOUND)
        with misread("llama", rope=replace(rope, theta=77.0)):
            self.assertGreater(self.compared(folder), 1e-2)

    @slow
    def test_every_family(self):
        for kind in families.READERS:
            with self.subTest(kind):
                folder = self.saved(kind)
                right = load(folder)
                ids = random_ids(right, 20)
                library = library_model(right)(ids, use_cache=False).logits.detach()
                self.assertLessEqual(agreement(run(right, ids), library)["relative_difference"], BOUND)
                with misread(kind, **WORST[kind](right.config)):
                    wrong = load(folder)
                    self.assertNotEqual(wrong.config, right.config)
                    found = library_model(wrong)(ids, use_cache=False).logits.detach()
                self.assertTrue(torch.equal(found, library))  # the library has read the file by itself
                self.assertGreater(agreement(run(wrong, ids), found)["relative_difference"], 10 * BOUND)

    def test_the_agreement_sees_windows_routing_and_layer_types(self):
        for kind in ("mistral", "mixtral", "gemma3_text", "gemma2"):
            folder = self.saved(kind)
            with misread(kind, **WORST[kind](load(folder).config)):
                self.assertGreater(self.compared(folder), 1e-4, kind)

    def test_a_gguf_file(self):
        made = llama_model(hidden_size=32, head_dim=None)  # transformers reads no other width of a head from GGUF
        path = gguf_writer.write(self.folder / "m.gguf", made, {"vocab_size": 11})  # which it takes from here
        ids = random_ids(made, 20)
        right = load(path)
        library = library_model(right)(ids, use_cache=False).logits.detach()
        self.assertLessEqual(agreement(run(right, ids), library)["relative_difference"], BOUND)
        config_of = gguf_file.config_of
        with mock.patch.object(gguf_file, "config_of", lambda *args: replace(config_of(*args), norm_eps=0.1)):
            wrong = load(path)
        self.assertTrue(torch.equal(library_model(wrong)(ids, use_cache=False).logits, library))
        self.assertGreater(agreement(run(wrong, ids), library)["relative_difference"], 1e-2)

    def test_random_weights_of_a_published_shape(self):
        fields = {k: v for k, v in G.items() if k != "layer_norm_epsilon"}  # as it is published, with a default left out
        ids = torch.tensor([[3, 1, 4, 1, 5]])
        right = random_model(fields)
        self.assertLessEqual(agreement(run(right, ids), library_model(right)(ids).logits.detach())["relative_difference"], BOUND)
        with misread("gpt2", layer_norm_epsilon=0.1):
            wrong = random_model(fields)
        self.assertGreater(agreement(run(wrong, ids), library_model(wrong)(ids).logits.detach())["relative_difference"], 1e-2)


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
            self.assertLessEqual(agreement(run(model, ids), wanted)["relative_difference"], BOUND, kind)

    def test_a_wrappers_prefix_on_a_folder(self):
        """The library would go on with random weights, and the comparison be with those."""
        for i, prefix in enumerate(("_orig_mod.transformer.", "model.", "")):
            found = measure(load(write_folder(self.folder / str(i), prefix=prefix)), shapes=((1, 8),))
            self.assertTrue(found["held"], prefix)

    def test_fields_that_only_the_library_reads(self):
        folder = write_folder(self.folder / "whole", values=G | {"layer_norm_epsilon": 1})
        words = ("transformers cannot make this model by itself", "layer_norm_epsilon", "expected float, got int")
        self.assertBad(tour.main, ["--model", folder], *words)  # it is strict about what JSON is not
        for i, field in enumerate(({"attn_pdrop": 2.0}, {"bos_token_id": "x"}, {"id2label": 3})):
            folder = write_folder(self.folder / str(i), values=G | field)
            with self.subTest(field):
                self.assertEqual(call(tour.main, "--model", folder)[0], 0)

    def test_the_library_reads_the_folder_by_itself(self):
        one = load(write_folder(self.folder / "m"))
        library = library_model(one)
        mine, theirs = one.weights["h.0.attn.c_attn.weight"], library.transformer.h[0].attn.c_attn.weight
        self.assertTrue(torch.equal(mine, theirs))
        self.assertNotEqual(mine.data_ptr(), theirs.data_ptr())

    def test_dtype(self):
        self.assertEqual(library_model(model(), torch.bfloat16).dtype, torch.bfloat16)
        with self.assertRaisesRegex(BadInput, "takes no float64"):
            library_model(model(reorder_and_upcast_attn=True), torch.float64)

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
        path = gguf_writer.write(self.folder / "m.gguf", llama_model())
        with self.assertRaisesRegex(BadInput, "transformers cannot make this model by itself"):
            library_model(load(path))
        self.assertBad(tour.main, ["--model", path], "transformers cannot make this model by itself")

    def test_what_fails_only_when_the_library_runs(self):
        folder = write_folder(self.folder / "m")
        with mock.patch.object(transformers.GPT2LMHeadModel, "forward", side_effect=TypeError("cannot\nrun")):
            self.assertBad(tour.main, ["--model", folder], "transformers cannot make this model by itself")

    def test_fields_say_what_our_config_does_not_know(self):
        """The library's config is made of the fields, none of which we have read."""
        found = library_config(G | {"layer_norm_epsilon": 0.25, "n_head": 4})
        self.assertEqual((found.layer_norm_epsilon, found.n_head), (0.25, 4))
        self.assertFalse(isinstance(found, Config))
        nested = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        fields = LLAMA | {"rope_scaling": nested | {"original_max_position_embeddings": 32}}
        before = json.dumps(fields)
        library_config(fields)
        self.assertEqual(json.dumps(fields), before)  # kept on the model as it was read


class ItsTrace(FolderCase):
    def test_the_same_points_in_the_same_order(self):
        kept = gpt2.Trace()
        gpt2.forward(IDS, weights(), config(), trace=kept)
        theirs = library_trace(library_gpt2(config(), weights()), IDS)
        self.assertEqual(list(theirs), [key for key in kept if key[0] != "scores"])
        for key, tensor in theirs.items():
            torch.testing.assert_close(kept[key], tensor, atol=1e-5, rtol=0, msg=lambda m, k=key: f"{k}: {m}")

    def test_families_without_modules_of_ours(self):
        """The stream, A and the logits, which every family shows."""
        for kind in ("bloom", "gemma2"):
            self.assertNotIn(kind, MODULES)
            peers.library_tiny(kind).save_pretrained(self.folder / kind)
            found = measure_points(load(self.folder / kind), IDS)
            self.assertEqual({r["point"] for r in found["by_point"]}, {"embedding", "A", "residual", "final_norm", "logits"})
            self.assertTrue(found["held"], kind)

    def test_the_library_is_left_as_it_was(self):
        library = library_model(model())
        library_trace(library, IDS)
        after = [len(m._forward_hooks) for m in library.modules()]
        library_trace(library, IDS)
        self.assertEqual([len(m._forward_hooks) for m in library.modules()], after)
        self.assertEqual(library.config._attn_implementation, "eager")

    def test_hooks_go_where_a_pass_fails(self):
        library = library_model(model())
        library_trace(library, IDS)  # the library keeps hooks of its own from the first pass on
        before = [len(m._forward_hooks) for m in library.modules()]
        with self.assertRaises(IndexError):
            library_trace(library, torch.tensor([[99]]))
        self.assertEqual([len(m._forward_hooks) for m in library.modules()], before)


if __name__ == "__main__":
    unittest.main()
