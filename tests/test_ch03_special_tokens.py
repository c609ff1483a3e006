"""What a tokenizer puts before or behind every text by itself: as transformers does it, shown, left out where that is asked."""

import json
import unittest
from dataclasses import replace
from unittest import mock

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from examples.ch02 import tokenizer as tokenizer_file
from examples.ch02.families import read_config
from examples.ch02.model import EMBEDDED, load, load_tokenizer, run
from examples.ch03 import tokens
from examples.ch03.tokens import LONG, PROMPTS, before_text, decode, default_ids, encode, ids_for, prompt_batches, shown
from examples.ch14 import held_text
from examples.ch14.peers import TINY
from examples.ch14.prefix_reuse import measure_prefix
from examples.lab.script import BadInput
from tests.support import FolderCase, call, config, installed, loaded, slow, weights, write_folder

BOS, EOS = "<bos>", "<eos>"
TEXTS = ("the boat", "", "a", " two  spaces\n", "naïve 漢字", BOS, f"{BOS}the{EOS}", "<|endoftext|>")


def library(folder):
    """transformers' tokenizer of the folder."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    return AutoTokenizer.from_pretrained(folder)


def with_template(single):
    """The embedded model's tokenizer with <bos> and <eos>, and what it puts around a text."""
    made = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    made.add_special_tokens([BOS, EOS])
    if single:
        special = [(token, made.token_to_id(token)) for token in (BOS, EOS)]
        made.post_processor = TemplateProcessing(single=single, special_tokens=special)
    return made


class Case(FolderCase):
    def gemma(self, single=f"{BOS} $A", about=None):
        """The folder of a tiny Gemma whose tokenizer.json has the template."""
        fields = {"model_type": "gemma", **TINY["gemma"], "vocab_size": 1100}
        folder = write_folder(self.folder / "gemma", weights(read_config(fields, "config.json")), fields)
        with_template(single).save(str(folder / "tokenizer.json"))
        about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS} | (about or {})
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
        return folder

    def assertSame(self, model, theirs, texts=TEXTS):
        for text in texts:
            for special in (True, False):
                ids = theirs(text, add_special_tokens=special)["input_ids"]
                if ids:
                    self.assertEqual(encode(text, model, special)[0].tolist(), ids, (text, special))
                else:
                    with self.assertRaisesRegex(BadInput, "nothing to encode|is empty"):
                        encode(text, model, special)


class Added(Case):
    def test_as_the_library_adds_them(self):
        for single in (f"{BOS} $A", f"$A {EOS}", f"{BOS} $A {EOS}", None):
            with self.subTest(single):
                folder = self.gemma(single)
                self.assertSame(load(folder), library(folder))

    def test_the_issue(self):
        model = load(self.gemma())
        bos = model.tokenizer.token_to_id(BOS)
        ids = encode("the boat", model)[0].tolist()
        self.assertEqual(ids, [bos, *encode("the boat", model, special=False)[0].tolist()])
        self.assertEqual(decode(ids, model), f"{BOS}the boat")
        self.assertEqual(encode("", model).tolist(), [[bos]])  # a text may begin with nothing behind it
        self.assertTrue(run(model, encode("", model)).isfinite().all())

    def test_the_fault(self):
        folder = self.gemma()
        plain = mock.patch.object(tokens, "_encoded", lambda text, model, special: right(text, model, False))
        right = tokens._encoded
        with plain, self.assertRaises(AssertionError):
            self.assertSame(load(folder), library(folder))

    def test_a_tokenizer_json_says_it_alone(self):
        """The library takes no notice of add_bos_token beside a tokenizer.json, and neither do we."""
        for about in ({"add_bos_token": True}, {"add_bos_token": False}, {"add_eos_token": True}):
            for single in (None, f"{BOS} $A"):
                folder = self.gemma(single, about)
                self.assertSame(load(folder), library(folder), TEXTS[:1])

    def test_none_for_the_models_of_the_book(self):
        for source in ("embedded", *(["smollm2"] if installed() else [])):
            model = loaded(source)
            self.assertEqual(before_text(model), [])
            for text in (*PROMPTS, LONG, tokens.TEXT, "1 2 3\n"):
                self.assertEqual(encode(text, model).tolist(), encode(text, model, special=False).tolist(), source)
        model = loaded()
        self.assertSame(model, library(EMBEDDED), [t for t in TEXTS if BOS not in t])


class Pair(Case):
    """vocab.json and merges.txt, of which tokenizer_config.json says what is added."""

    def pair(self, about, **vocabulary):
        values = json.loads((EMBEDDED / "tokenizer.json").read_text())["model"]
        vocab = {"<|endoftext|>": 1023} | values["vocab"] | vocabulary
        (self.folder / "vocab.json").write_text(json.dumps(vocab))
        merges = [" ".join(m) if isinstance(m, list) else m for m in values["merges"]]
        (self.folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
        (self.folder / "config.json").write_text('{"model_type": "gpt2"}')
        path = self.folder / "tokenizer_config.json"
        path.unlink(missing_ok=True)
        if about is not None:
            path.write_text(json.dumps(about))
        return load_tokenizer(self.folder, config(vocab_size=1100))

    def test_as_the_library_reads_it(self):
        end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
        added = {"__type": "AddedToken", "lstrip": False, "rstrip": False, "normalized": True, "single_word": False}
        for about in (
            *(None, {}, end, end | {"add_bos_token": True}, end | {"add_eos_token": True}, {"add_bos_token": True}),
            *({"add_bos_token": True, "add_eos_token": True}, {"bos_token": None, "add_bos_token": True}),
            *({"add_bos_token": True, "bos_token": {"content": "a", "special": True} | added}, {"add_prefix_space": True}),
            end | {"add_bos_token": False, "add_eos_token": None},
        ):
            with self.subTest(about):
                ours, theirs = self.pair(about), library(self.folder)
                for text in ("the boat", "a<|endoftext|>b", " a", "naïve 12"):
                    for special in (True, False):
                        ids = theirs(text, add_special_tokens=special)["input_ids"]
                        self.assertEqual(ours.encode(text, add_special_tokens=special).ids, ids, text)

    def test_the_fault(self):
        with mock.patch.object(tokenizer_file, "put_around", lambda made, *around: made):
            ours = self.pair({"add_bos_token": True})
        self.assertNotEqual(ours.encode("a").ids, library(self.folder)("a")["input_ids"])

    def test_refused(self):
        for about, words in (
            ({"add_bos_token": "yes"}, "add_bos_token is 'yes', not true or false"),
            ({"bos_token": 3}, "bos_token is 3, not a text"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                self.pair(about)
        self.pair({})
        (self.folder / "tokenizer_config.json").write_text("{")
        with self.assertRaisesRegex(BadInput, "tokenizer_config.json is not strict JSON"):
            load_tokenizer(self.folder, config(vocab_size=1100))

    def test_a_family_whose_pair_is_none_of_gpt2s(self):
        """OpenAI's first GPT and Qwen have such files of another tokenizer: read as GPT-2's, they would give other ids."""
        self.pair({})
        for kind in ("openai-gpt", "qwen2"):
            other = replace(load(self.gemma()).config, model_type=kind)
            with self.assertRaisesRegex(BadInput, f"this is a {kind}; give its tokenizer.json"):
                load_tokenizer(self.folder, other)
        (self.folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2TokenizerFast"}')
        self.assertTrue(load_tokenizer(self.folder, other))


class Cut(Case):
    """Texts that are cut, and those that are joined."""

    def test_the_start_is_kept(self):
        model = load(self.gemma(f"{BOS} $A {EOS}"))
        bos, eos = (model.tokenizer.token_to_id(t) for t in (BOS, EOS))
        for length in (1, 5):
            ids = default_ids(model, length)[0].tolist()
            self.assertEqual((len(ids), ids[0]), (length, bos))
            self.assertNotIn(eos, ids)
        self.assertEqual(default_ids(model, 5, special=False).tolist(), encode(LONG, model, False)[:, :5].tolist())
        self.assertTrue(all(ids[0, 0] == bos for ids in prompt_batches(model)))
        args = mock.Mock(prompt="the boat", seed=0)
        self.assertEqual(ids_for(args, model, 3)[0, 0].item(), bos)
        self.assertEqual(ids_for(args, model, 3, special=False).tolist(), encode("the boat", model, False).tolist())
        self.assertIn(BOS, shown(default_ids(model, 3), model))

    def test_windows_of_a_long_text(self):
        """Each begins as the model has been trained to see a text begin, and no token is predicted twice or passed over."""
        plain, model = load(self.gemma(None)), load(self.gemma())
        bos = before_text(model)
        self.assertEqual(bos, [model.tokenizer.token_to_id(BOS)])
        with mock.patch.object(held_text, "held_text", return_value=LONG * 20):
            windows, without = held_text.held_windows(model), held_text.held_windows(plain)
        T = windows.shape[1] - 1
        ids = encode(LONG * 20, plain)[0]
        self.assertTrue((windows[:, 0] == bos[0]).all())
        self.assertGreater(len(windows), 1)
        self.assertTrue(torch.equal(windows[:, 1:].flatten(), ids[: len(windows) * T]))
        self.assertTrue(torch.equal(without[:, :-1].flatten(), ids[: len(without) * T]))

    def test_nothing_begins_a_text_behind_another(self):
        model = load(self.gemma())
        found = measure_prefix(model)
        with mock.patch("examples.ch14.prefix_reuse.prefix_keys") as keys:
            keys.return_value = [dict(keys=0.0, values=0.0)] * 3
            measure_prefix(model)
        _, before, ids = keys.call_args.args
        bos = before_text(model)[0]
        self.assertEqual((before[0, 0].item(), (ids == bos).any().item()), (bos, False))
        self.assertLess(found["first_keys"], 1e-4)


class Script(Case):
    def test_the_added_token_is_shown(self):
        folder = self.gemma()
        status, out, err = call(tokens.main, "--model", folder, "--text", "the boat")
        self.assertEqual(status, 0, err)
        self.assertIn("5 tokens, 1 of them added by the tokenizer (--no-special-tokens leaves them out)", out)
        self.assertIn("'<bos>' (added)", out)
        self.assertIn("decoded again: the same text", out)
        value = json.loads(call(tokens.main, "--model", folder, "--text", "the boat", "--json")[1])
        self.assertEqual((value["added"], value["decoded"]), ([True] + [False] * 4, "the boat"))
        self.assertEqual(len(value["rows"]), 5)
        status, out, _ = call(tokens.main, "--model", folder, "--text", "the boat", "--no-special-tokens")
        self.assertEqual(status, 0)
        self.assertNotIn("added", out)
        self.assertIn("4 tokens\n", out)

    def test_one_that_is_written_is_not_added(self):
        folder = self.gemma()
        value = json.loads(call(tokens.main, "--model", folder, "--text", f"a{BOS}", "--json")[1])
        self.assertEqual((value["added"], value["decoded"]), ([True, False, False], f"a{BOS}"))

    @slow
    def test_the_books_models_are_as_they_were(self):
        for source in ("embedded", *(["smollm2"] if installed() else [])):
            first = call(tokens.main, "--model", source)
            self.assertEqual(first, call(tokens.main, "--model", source, "--no-special-tokens"))
            self.assertNotIn("added", first[1])


if __name__ == "__main__":
    unittest.main()
