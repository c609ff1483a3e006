"""A file that stores one of several tensors that share their numbers, as `safetensors.torch.save_model` keeps a tied model's head
alone."""

import json
import unittest
from unittest import mock

import torch
from safetensors import safe_open
from safetensors.torch import save_file, save_model

from examples.ch02 import checkpoint
from examples.ch02.checkpoint import read_header
from examples.ch02.model import load, run
from examples.ch04.library import library_model
from examples.lab.script import BadInput
from tests.support import IDS, FolderCase, G, llama_fields, llama_model, model, write_folder


def library_of_its_own(fields):
    """transformers' model of the fields, with weights of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    if fields["model_type"] == "gpt2":
        return GPT2LMHeadModel(GPT2Config(**fields, initializer_range=0.3)).eval()
    return LlamaForCausalLM(LlamaConfig(**fields, initializer_range=0.3)).eval()


class OneIsStored(FolderCase):
    def write(self, library):
        library.config.save_pretrained(self.folder)
        save_model(library, str(self.folder / "model.safetensors"), metadata={"format": "pt"})

    def stored(self):
        with safe_open(self.folder / "model.safetensors", "pt") as file:
            return set(file.keys()), file.metadata()

    def test_the_head_of_a_tied_model(self):
        from transformers import AutoModelForCausalLM

        for fields, table in ((G, "transformer.wte.weight"), (llama_fields(tie_word_embeddings=True), "model.embed_tokens.weight")):
            with self.subTest(fields["model_type"]):
                right = library_of_its_own(fields)
                self.write(right)
                keys, about = self.stored()
                self.assertEqual((about[table], table in keys), ("lm_head.weight", False))
                ours = load(self.folder)
                theirs = AutoModelForCausalLM.from_pretrained(self.folder, attn_implementation="eager").eval()
                for other in (right, theirs, library_model(ours)):
                    torch.testing.assert_close(run(ours, IDS), other(IDS).logits.detach(), atol=2e-6, rtol=0)
                self.assertTrue(torch.equal(ours.token_table, right.lm_head.weight))
                self.assertEqual(ours.manifest["head"], "tied, and stored as lm_head.weight")
                self.assertEqual(ours.manifest["parameters"], sum(p.numel() for p in right.parameters()))

    def test_without_a_word_in_the_metadata(self):
        """The config says that the two are one, and the file has that one."""
        made = model()
        tensors = {f"transformer.{n}": w for n, w in made.weights.items() if n != "wte.weight"}
        write_folder(self.folder, tensors | {"lm_head.weight": made.weights["wte.weight"]})
        torch.testing.assert_close(run(load(self.folder), IDS), run(made, IDS), atol=0, rtol=0)

    def test_other_tensors_that_share(self):
        """An untied config whose tables are one in memory, and two norms that are: each is what it was when it was saved."""
        right = library_of_its_own(llama_fields())
        right.lm_head.weight = right.model.embed_tokens.weight
        right.model.layers[1].input_layernorm = right.model.layers[0].input_layernorm
        self.write(right)
        self.assertEqual(self.stored()[1]["model.embed_tokens.weight"], "lm_head.weight")
        ours = load(self.folder)
        torch.testing.assert_close(run(ours, IDS), right(IDS).logits.detach(), atol=2e-6, rtol=0)
        torch.testing.assert_close(run(ours, IDS), library_model(ours)(IDS).logits, atol=2e-6, rtol=0)
        self.assertEqual(ours.manifest["head"], "untied")

    def test_the_fault(self):
        self.write(library_of_its_own(llama_fields()))
        right = library_of_its_own(llama_fields(tie_word_embeddings=True))
        right.model.layers[1].input_layernorm = right.model.layers[0].input_layernorm
        self.write(right)
        read = checkpoint.read_header
        own = lambda path: {key: stored for key, stored in read(path).items() if stored.key == key}  # noqa: E731  metadata passed over
        with mock.patch.object(checkpoint, "read_header", own), self.assertRaisesRegex(BadInput, "lacks model.layers.1.input"):
            load(self.folder)
        self.assertTrue(load(self.folder))

    def test_what_is_still_refused(self):
        made = llama_model(tie_word_embeddings=False)
        tensors = {n: w for n, w in made.weights.items() if n != "model.embed_tokens.weight"}
        path = self.folder / "model.safetensors"
        for about in (
            None,
            {"format": "pt"},
            {"model.embed_tokens.weight": "gone.weight"},
            {"model.norm.weight": "lm_head.weight"},
        ):
            write_folder(self.folder, values=made.fields)
            save_file(tensors, path, metadata=about)
            with self.assertRaisesRegex(BadInput, "lacks model.embed_tokens.weight"):
                load(self.folder)
        save_file(tensors, path, metadata={"model.embed_tokens.weight": "model.norm.weight"})
        with self.assertRaisesRegex(BadInput, "embed_tokens.weight is \\[8\\], not \\[11, 8\\]"):
            load(self.folder)
        save_file(tensors, path, metadata={"extra.weight": "model.norm.weight"})
        with self.assertRaisesRegex(BadInput, "lacks model.embed_tokens"):
            load(self.folder)

    def test_a_head_that_differs_is_an_error_still(self):
        made = model()
        write_folder(self.folder, made.weights | {"lm_head.weight": made.weights["wte.weight"] + 1})
        with self.assertRaisesRegex(BadInput, "lm_head.weight differs from wte.weight"):
            load(self.folder)

    def test_in_shards(self):
        """The index may name a tensor that its shard has under another name, and need not name one that is there twice."""
        made = llama_model(tie_word_embeddings=True)
        tensors = {n: w for n, w in made.weights.items() if n != "model.embed_tokens.weight"}
        tensors["lm_head.weight"] = made.weights["model.embed_tokens.weight"]
        name, other = "model-00001-of-00001.safetensors", {"model.embed_tokens.weight": "lm_head.weight"}
        for extra in ({}, {"model.embed_tokens.weight": name}):
            write_folder(self.folder, values=made.fields)
            (self.folder / "model.safetensors").unlink()
            save_file(tensors, self.folder / name, metadata=other)
            index = {"weight_map": dict.fromkeys(tensors, name) | extra}
            (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
            torch.testing.assert_close(run(load(self.folder), IDS), run(made, IDS), atol=0, rtol=0)
        self.assertEqual(read_header(self.folder / name)["model.embed_tokens.weight"].key, "lm_head.weight")


if __name__ == "__main__":
    unittest.main()
