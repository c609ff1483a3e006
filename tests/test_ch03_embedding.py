"""The embedding table: two ways to a row, its share of the parameters, and the two uses of a tied table; with faults planted."""

import unittest
from unittest import mock

import torch

from examples.ch02.model import load_config
from examples.ch03 import embedding as room
from examples.ch03.embedding import main, measure_lookup, measure_scores, measure_shares, measure_tied, one_hot
from examples.ch14.configs import published
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import llama_model, loaded

MODEL = loaded()


class Lookup(unittest.TestCase):
    def test_one_hot(self):
        self.assertEqual(one_hot(torch.tensor([2, 0]), 3).tolist(), [[0, 0, 1], [1, 0, 0]])

    def test_same_bits(self):
        found = measure_lookup(MODEL)
        self.assertTrue(found["same_bits_text"] and found["same_bits_vocabulary"])
        self.assertEqual((found["tokens"], found["numbers_read_by_row"]), (6, 6 * 256))
        self.assertEqual(found["flops_of_the_product"], 2 * 6 * 1024 * 256)

    def test_a_one_at_the_next_place_is_seen(self):
        with mock.patch.object(room, "one_hot", lambda ids, V: one_hot((ids + 1) % V, V)):
            found = measure_lookup(MODEL)
        self.assertFalse(found["same_bits_text"] or found["same_bits_vocabulary"])


class Shares(unittest.TestCase):
    def test_published(self):
        rows = {row["model"]: row for row in measure_shares()["models"]}
        self.assertEqual(
            {name: f"{row['share_percent']:.1f}" for name, row in rows.items()},
            {"embedded": "7.5", "gpt2": "31.0", "gpt2-medium": "14.5", "gpt2-large": "8.3", "gpt2-xl": "5.2"}
            | {"smollm2-135m": "21.0", "llama-3-8b": "6.5"},
        )
        self.assertEqual((rows["gpt2"]["table"], rows["gpt2"]["parameters"]), (38_597_376, 124_439_808))
        self.assertEqual(rows["embedded"]["parameters"], MODEL.manifest["parameters"])
        self.assertEqual(rows["llama-3-8b"]["parameters"], 8_030_261_248)
        self.assertEqual(rows["llama-3-8b"]["with_head_percent"], 2 * rows["llama-3-8b"]["share_percent"])
        self.assertEqual(rows["gpt2"]["with_head_percent"], rows["gpt2"]["share_percent"])

    def test_the_configs_are_those_of_chapter_14(self):
        from examples.ch02.families import read_config

        for name, fields in room.OTHERS.items():
            self.assertEqual(read_config(fields, name), read_config(published()[name]["config"], name))
        self.assertEqual(load_config("gpt2"), read_config(published()["gpt2"]["config"], "gpt2"))


class Tied(unittest.TestCase):
    def test_one_row(self):
        found = measure_tied(MODEL)
        self.assertEqual(found["in_the_file"], ["wte.weight"])
        other, own = found["not_in_the_text"], found["in_the_text"]
        self.assertEqual((other["piece"], other["changed_before_the_last"], other["changed_at_the_last"]), (" lord", 5, 1))
        self.assertEqual((own["piece"], own["changed_before_the_last"], own["changed_at_the_last"]), (" my", 5, 1024))
        self.assertTrue(other["own_logits_are_zero"] and own["own_logits_are_zero"])

    def test_a_head_of_its_own_is_seen(self):
        """A pass whose head keeps the old table: a row that is not in the text changes nothing at all."""
        from examples.ch04 import gpt2_from_scratch as gpt2

        def unembed(x, weights, config, *rest):
            return right(x, weights | {"wte.weight": MODEL.token_table}, config, *rest)

        right = gpt2.unembed
        with mock.patch.object(gpt2, "unembed", unembed):
            found = measure_tied(MODEL)
        other, own = found["not_in_the_text"], found["in_the_text"]
        self.assertEqual(
            (other["changed_before_the_last"], other["changed_at_the_last"], own["changed_before_the_last"]), (0, 0, 0)
        )
        self.assertFalse(other["own_logits_are_zero"])

    def test_refused(self):
        with self.assertRaisesRegex(BadInput, "head is not tied"):
            measure_tied(llama_model())
        with self.assertRaisesRegex(BadInput, "stands there twice"):
            measure_tied(MODEL, " my my")

    def test_the_model_is_left_as_it_was(self):
        before = MODEL.token_table.clone()
        measure_tied(MODEL)
        self.assertTrue(torch.equal(before, MODEL.token_table))


class Scores(unittest.TestCase):
    def test_within_the_bound(self):
        found = measure_scores(MODEL)
        self.assertTrue(found["held"])
        self.assertEqual((found["bound"], found["scores"]), (1e-5, 1024))

    def test_a_pair_of_rows_swapped_is_seen(self):
        stack = torch.stack
        with mock.patch.object(room.torch, "stack", lambda rows: stack(rows[1:] + rows[:1])):
            self.assertFalse(measure_scores(MODEL)["held"])


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        for text in ("the same numbers, bit for bit", "changes only its own logit at each position, which is exactly 0 then"):
            self.assertIn(text, page)
        self.assertMeasured(
            self.values(main),
            lookup=measure_lookup(MODEL),
            scores=measure_scores(MODEL),
            shares=measure_shares(),
            tied=measure_tied(MODEL),
        )

    def test_bad_input(self):
        self.assertBad(main, ["--text", ""], "empty")
        self.assertBad(main, ["--model", self.tiny()], "no tokenizer")


if __name__ == "__main__":
    unittest.main()
