"""Chapter 3: any text has ids and comes back from them; the embedding's share of the parameters."""

import contextlib
import io
import json
import re
import unittest
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import torch

from examples.ch02 import model as ch02
from examples.ch03.tokens import (
    LONG,
    PROMPTS,
    decode,
    default_ids,
    embedding_share,
    encode,
    ids_for,
    main,
    prompt_batches,
    random_ids,
    repeated,
    shown,
)
from examples.lab.script import BadInput, finite
from tests.support import ROOT, FolderCase, call, loaded, model, weights, write_folder

TINY = model()  # which has no tokenizer

TEXTS = (
    "Good night, good night! parting is such sweet sorrow",
    "HAMLET:\nTo be, or not to be\n\n",
    "  two  spaces\tand a tab \r\n",
    "naïve café — ½ «quoted» 漢字 🤖",
    "\x00\x7f",
    "<|endoftext|>",
    "a",
    " ",
)


class Tokens(FolderCase):
    model = loaded()

    def test_round_trip(self):
        for text in TEXTS:
            ids = encode(text, self.model)
            self.assertEqual((ids.shape[0], ids.dtype, decode(ids[0], self.model)), (1, torch.int64, text))
            self.assertLess(ids.max().item(), self.model.config.vocab_size)
        self.assertEqual(encode("a", self.model.to(device="meta")).device.type, "meta")

    def test_any_bytes_have_ids(self):
        every = "".join(map(chr, range(256))) + "\U0001f600"
        self.assertEqual(decode(encode(every, self.model)[0], self.model), every)

    def test_part_of_a_character_is_a_replacement_character(self):
        ids = encode("é", self.model)[0]
        self.assertEqual(len(ids), 2)
        self.assertEqual(decode(ids[:1], self.model), "\ufffd")

    def test_nothing_is_added(self):
        first = encode("a", self.model)[0, 0].item()
        self.assertEqual(self.model.tokenizer.id_to_token(first), "a")

    def test_what_a_tokenizer_adds_is_there_unless_it_is_not_wanted(self):
        from tokenizers import Tokenizer
        from tokenizers.processors import TemplateProcessing

        eager = Tokenizer.from_str(self.model.tokenizer.to_str())
        end = eager.token_to_id("<|endoftext|>")
        eager.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", end)])
        plain, one = encode("a", self.model).tolist(), replace(self.model, tokenizer=eager)
        self.assertEqual(encode("a", one).tolist(), [[end, *plain[0]]])
        self.assertEqual(encode("a", one, special=False).tolist(), plain)
        self.assertEqual(encode("a", self.model, special=False).tolist(), plain)  # which adds nothing

    def test_the_library_gives_the_same_ids(self):
        from transformers import AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(ch02.EMBEDDED)
        for text in TEXTS:
            self.assertEqual(theirs(text)["input_ids"], encode(text, self.model)[0].tolist())

    def test_bad_text(self):
        for text, word in (("", "empty"), ("\ud800", "UTF-8")):
            with self.assertRaisesRegex(BadInput, word):
                encode(text, self.model)
            self.assertBad(main, ["--text", text], word)
        with self.assertRaisesRegex(BadInput, "no tokenizer"):
            encode("a", replace(self.model, tokenizer=None))
        with self.assertRaisesRegex(BadInput, "no tokenizer"):
            decode([0], replace(self.model, tokenizer=None))
        self.assertBad(main, ["--model", write_folder(self.folder / "a")], "no tokenizer")
        bad = write_folder(self.folder / "bad", weights() | {"wte.weight": torch.full((11, 8), torch.nan)})
        self.assertBad(main, ["--model", bad, "--json"], "wte.weight", "NaN")

    def test_ids_for_an_experiment(self):
        """The start of a text, or random ids without a tokenizer; a prompt that somebody gave stays whole."""
        whole = encode("Good morrow, my lord", self.model)
        self.assertTrue(torch.equal(default_ids(self.model, 3, text="Good morrow, my lord"), whole[:, :3]))
        self.assertTrue(torch.equal(default_ids(self.model, 999, text="Good morrow, my lord"), whole))
        self.assertTrue(torch.equal(default_ids(self.model, 4), encode(LONG, self.model)[:, :4]))
        self.assertTrue(torch.equal(default_ids(TINY, 5, seed=3), random_ids(TINY, 5, seed=3)))
        self.assertEqual(default_ids(TINY, 99).shape, (1, 16))
        given, none = SimpleNamespace(prompt="Good morrow, my lord", seed=3), SimpleNamespace(prompt=None, seed=3)
        self.assertTrue(torch.equal(ids_for(given, self.model, 2), whole))
        self.assertTrue(torch.equal(ids_for(none, self.model, 2, "my lord"), encode("my lord", self.model)[:, :2]))
        self.assertTrue(torch.equal(ids_for(none, TINY, 7), random_ids(TINY, 7, seed=3)))
        for text, word in (("", "empty"), ("a", "no tokenizer")):
            with self.assertRaisesRegex(BadInput, word):
                ids_for(SimpleNamespace(prompt=text, seed=0), self.model if word == "empty" else TINY, 5)

    def test_random_ids(self):
        a, b, c = (random_ids(TINY, 12, 2, seed) for seed in (0, 0, 1))
        self.assertTrue(torch.equal(a, b))
        self.assertFalse(torch.equal(a, c))
        self.assertEqual((a.shape, a.dtype), ((2, 12), torch.int64))
        self.assertEqual(set(random_ids(TINY, 500).flatten().tolist()), set(range(11)))

    def test_the_books_prompts(self):
        self.assertEqual([x.tolist() for x in prompt_batches(self.model)], [encode(t, self.model).tolist() for t in PROMPTS])
        found = prompt_batches(TINY, seed=2)
        for i, (ids, length) in enumerate(zip(found, (5, 9, 13, 16), strict=True)):  # of 18 as many as the model takes
            self.assertTrue(torch.equal(ids, random_ids(TINY, length, seed=2 + i)))
        short = replace(self.model, config=replace(self.model.config, n_positions=6))
        cut = [encode(text, short)[:, :6].tolist() for text in PROMPTS]
        self.assertEqual([ids.tolist() for ids in prompt_batches(short)], cut)
        self.assertEqual(prompt_batches(short, ("a b c d e f g h",))[0].shape[1], encode("a b c d e f g h", short).shape[1])
        with self.assertRaisesRegex(BadInput, "no tokenizer"):
            prompt_batches(TINY, ("a",))

    def test_shown(self):
        self.assertEqual(shown(encode("Good night", self.model), self.model), "'Good night'")
        self.assertEqual(shown(torch.tensor([[3, 1, 4]]), TINY), "random ids [3, 1, 4]")
        for ids, one in ((encode("word " * 50, self.model), self.model), (random_ids(TINY, 99), TINY)):
            self.assertEqual(len(shown(ids, one)), 64)
            self.assertTrue(shown(ids, one, 20).endswith(" ..."))
            self.assertEqual(len(shown(ids, one, 20)), 20)

    def test_embedding_share(self):
        table, total = embedding_share(ch02.load_config("gpt2"))
        self.assertEqual((table, total, f"{table / total:.1%}"), (38_597_376, 124_439_808, "31.0%"))

    def test_one_id_at_several_positions_has_one_row(self):
        """The page says it of the id that stands most often, and of no other text."""
        out = call(main)[1]
        self.assertIn("' night' stands at positions 2 and 5 with one id, 839, and so with one row:", out)
        rows = [line.split("839")[1] for line in out.splitlines() if line.startswith("' night'") and "839  " in line]
        self.assertEqual((len(rows), len(set(rows))), (2, 1))
        self.assertIn("No id stands here twice", call(main, "--text", "the boat")[1])
        self.assertIn("'a' stands at positions 0, 2, 3, 4 and others with one id, 7,", repeated([7, 1, 7, 7, 7, 7], list("abaaaa")))

    def test_script(self):
        status, out, _ = call(main, "--text", TEXTS[3], "--json")
        value = json.loads(out)
        self.assertEqual((status, value["decoded"], len(value["ids"])), (0, TEXTS[3], len(value["rows"])))
        row = self.model.weights["wte.weight"][value["ids"][0]]
        self.assertEqual(value["rows"][0]["first"], finite({"first": row[:4].tolist()})["first"])
        self.assertAlmostEqual(value["rows"][0]["norm"], row.norm().item(), places=5)
        self.assertEqual("".join(value["pieces"][:2]), TEXTS[3][: len("".join(value["pieces"][:2]))])
        self.assertAlmostEqual(value["embedding_share"], 262_144 / 3_487_232)
        self.assertEqual((value["gpt2"]["embedding_parameters"], value["gpt2"]["parameters"]), (38_597_376, 124_439_808))
        self.assertIn("38,597,376 of 124,439,808, 31.0%", call(main)[1])
        self.assertIn("1 characters, 2 bytes, 2 tokens", call(main, "--text", "é")[1])
        with mock.patch("examples.ch03.tokens.decode", return_value="other"):
            self.assertIn("other text: 'other'", call(main)[1])
        status, out, _ = call(main, "--text", TEXTS[0])
        self.assertEqual(status, 0)
        for text in ("' night'", "the same text", f"{self.model.manifest['parameters']:,} parameters"):
            self.assertIn(text, out)


class StartHere(unittest.TestCase):
    def test_the_chapter_s_first_program_prints_what_stands_below_it(self):
        page = (ROOT / "content/books/inference/03-chapter.md").read_text(encoding="utf-8")
        found = re.search(r"^\*\*Start here\.\*\*.*?^```python\n(.*?)^```\n\n^```text\n(.*?)^```$", page, re.M | re.S)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(found[1], {})
        self.assertEqual(out.getvalue(), found[2])


if __name__ == "__main__":
    unittest.main()
