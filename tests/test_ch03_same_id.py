"""One id at two positions, one word as two ids, and what position rows add."""

import unittest
from dataclasses import replace

import torch

from examples.ch03.same_id import main, measure_blank, measure_positions
from examples.ch03.tokens import encode
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import llama_model, loaded, needs_smollm2

MODEL = loaded()


class Positions(unittest.TestCase):
    def test_night(self):
        found = measure_positions(MODEL)
        self.assertEqual((found["piece"], found["id"], found["positions"]), (" night", 839, [2, 5]))
        self.assertEqual(found["largest_difference_of_rows"], 0)
        places = MODEL.weights["wpe.weight"]
        self.assertAlmostEqual(found["largest_difference_with_positions"], (places[2] - places[5]).abs().max().item(), places=6)
        self.assertAlmostEqual(found["distance_with_positions"], (places[2] - places[5]).norm().item(), places=3)
        self.assertAlmostEqual(found["norm_of_the_row"], MODEL.weights["wte.weight"][839].norm().item(), places=3)

    def test_without_position_rows_the_two_are_one(self):
        blind = replace(MODEL, weights=MODEL.weights | {"wpe.weight": torch.zeros_like(MODEL.weights["wpe.weight"])})
        self.assertEqual(measure_positions(blind)["largest_difference_with_positions"], 0)

    def test_refused(self):
        with self.assertRaisesRegex(BadInput, "no id stands twice"):
            measure_positions(MODEL, "the cat")
        with self.assertRaisesRegex(BadInput, "takes a gpt2"):
            measure_positions(llama_model())


class Blank(unittest.TestCase):
    def test_the_cat(self):
        found = measure_blank(MODEL)
        self.assertEqual((found["words"], found["tokens"], found["tokens_with_blanks_apart"]), (5, 7, 11))
        self.assertEqual((found["ids_at_the_start"], found["ids_behind_a_blank"]), ([687], [267]))
        self.assertEqual([row["id"] for row in found["pieces"]], encode("the cat sat on the", MODEL)[0].tolist())
        self.assertEqual("".join(row["piece"] for row in found["pieces"]), found["sentence"])

    def test_a_word_of_several_tokens_has_no_row_to_compare(self):
        found = measure_blank(MODEL, "good melancholy")
        self.assertGreater(len(found["ids_behind_a_blank"]), 1)
        self.assertNotIn("cosine_of_the_rows", found)

    @needs_smollm2
    def test_smollm2(self):
        found = measure_blank(loaded("smollm2"))
        self.assertEqual((found["tokens"], found["ids_at_the_start"], found["ids_behind_a_blank"]), (5, [1195], [260]))


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        for text in ("' night', id 839, at positions 2 and 5", "the same row at both", "5 words, 7 tokens", "'the' is 687"):
            self.assertIn(text, page)
        measured = {"same-row": measure_positions(MODEL), "leading-blank": measure_blank(MODEL)}
        self.assertMeasured(self.values(main), **measured)
        self.assertIn("'melancholy' is ", self.page(main, "--sentence", "good melancholy"))

    @needs_smollm2
    def test_a_family_without_position_rows(self):
        self.assertIn("This family adds no position rows", self.page(main, "--model", "smollm2"))

    def test_bad_input(self):
        self.assertBad(main, ["--sentence", "  "], "has no word")
        self.assertBad(main, ["--text", "the cat"], "no id stands twice")


if __name__ == "__main__":
    unittest.main()
