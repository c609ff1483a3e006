"""Tokens by kind of text: the counts by another way, what is on disk, and a text of one's own."""

import unittest
from unittest import mock

from examples.ch03 import text_kinds as room
from examples.ch03.bpe import encode as encode_by_hand
from examples.ch03.bpe import read_bpe
from examples.ch03.text_kinds import KINDS, counted, main, measure, on_disk
from tests.rooms import RoomCase
from tests.support import loaded, needs_smollm2

MODEL = loaded()


class Counts(RoomCase):
    def test_by_another_way(self):
        bpe = read_bpe(MODEL)
        for row in measure(MODEL)["texts"]:
            text = KINDS[row["kind"]].read_text(encoding="utf-8")
            self.assertEqual(row["tokens"], len(encode_by_hand(text, bpe)))
            self.assertEqual((row["characters"], row["bytes"]), (len(text), KINDS[row["kind"]].stat().st_size))
            self.assertAlmostEqual(row["bytes_per_token"] * row["tokens"], row["bytes"])
            if row["words"]:
                self.assertAlmostEqual(row["tokens_per_word"] * row["words"], row["tokens"])

    def test_small_ones(self):
        found = counted("the cat sat on the", MODEL)
        self.assertEqual((found["words"], found["tokens"], found["tokens_per_word"]), (5, 7, 1.4))
        found = counted("渡船七点开", MODEL)  # no blank, and so no words to count
        self.assertEqual((found["characters"], found["bytes"], found["words"], found["tokens_per_word"]), (5, 15, None, None))

    def test_which_are_named(self):
        found = measure(MODEL)
        self.assertEqual(found["unmerged"], ["numbers", "greek", "chinese", "emoji"])
        self.assertEqual((found["most_bytes_per_token"], found["vocabulary"]), ("essay", 1024))
        with mock.patch.object(room, "encode", lambda text, *_, **__: mock.Mock(shape=(1, 2 * len(text.encode("utf-8"))))):
            found = measure(MODEL)
        self.assertEqual((found["unmerged"], found["texts"][0]["bytes_per_token"]), ([], 0.5))

    def test_special_tokens_are_not_counted(self):
        with mock.patch.object(room, "encode", wraps=room.encode) as encode:
            counted("a", MODEL)
        self.assertEqual(encode.call_args.kwargs, {"special": False})


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        self.assertIn("Every byte is a token of its own: numbers, greek, chinese, emoji; no merge fits there.", page)
        self.assertMeasured(self.values(main), **{"text-kinds": measure(MODEL)})

    def test_beside(self):
        with mock.patch.object(room, "on_disk", lambda source: MODEL if source == "smollm2" else None):
            page = self.page(main, "--beside")
            value = self.values(main, "--beside")["beside"]
        self.assertIn("GPT-2's tokenizer is not on disk here", page)
        self.assertIn("SmolLM2, V 1,024", page)
        self.assertEqual((value["GPT-2"], value["SmolLM2"]["vocabulary"]), (None, 1024))

    @needs_smollm2
    def test_smollm2(self):
        found = measure(on_disk("smollm2"))
        self.assertEqual((found["vocabulary"], found["unmerged"]), (49152, []))
        self.assertTrue(
            all(
                a["tokens"] > b["tokens"]
                for a, b in zip(measure(MODEL)["texts"], found["texts"], strict=True)
                if a["kind"] != "numbers"
            )
        )

    def test_gpt2_is_read_where_the_cache_has_it(self):
        path = self.folder / "tokenizer.json"
        path.write_text(MODEL.tokenizer.to_str(), encoding="utf-8")
        with mock.patch("huggingface_hub.try_to_load_from_cache", return_value=str(path)):
            one = on_disk("openai-community/gpt2")
        self.assertEqual((one.config.vocab_size, counted("the", one)["tokens"]), (50257, 1))
        with mock.patch("huggingface_hub.try_to_load_from_cache", return_value=None):
            self.assertIsNone(on_disk("openai-community/gpt2"))

    def test_a_text_of_ones_own(self):
        path = self.folder / "mine.txt"
        path.write_text("the the the the", encoding="utf-8")
        row = self.values(main, "--file", path)["text-kinds"]["texts"][-1]
        self.assertEqual((row["kind"], row["tokens"]), ("mine.txt", 4))
        path.write_bytes(b"\xff\xfe")
        self.assertBad(main, ["--file", path], "is not UTF-8")
        self.assertBad(main, ["--model", "random:gpt2"], "no tokenizer")


if __name__ == "__main__":
    unittest.main()
