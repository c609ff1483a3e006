"""What a special token does when it is typed, and what the one before a document is worth; with faults planted."""

import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.model import run
from examples.ch03 import special_tokens as room
from examples.ch03.held_text import PLAY
from examples.ch03.special_tokens import main, measure_special, measure_start, nats, start_id
from examples.ch03.tokens import encode
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import loaded, model

MODEL = loaded()


class Special(unittest.TestCase):
    def test_typed(self):
        found = measure_special(MODEL)
        self.assertEqual((found["start_id"], found["special_tokens"], found["added_before_a_text"]), (1023, 1, 0))
        self.assertEqual((found["times_special"], found["times_special_as_signs"]), (1, 0))
        self.assertEqual(found["ids"], encode(found["typed"], MODEL)[0].tolist())
        before, behind = found["typed"].split(room.START)
        self.assertEqual(found["ids"], [*encode(before, MODEL)[0].tolist(), 1023, *encode(behind, MODEL)[0].tolist()])
        self.assertTrue(found["same_text_again"])
        self.assertEqual(found["document_ids"], [1023, *found["prompt_ids"]])

    def test_signs_that_are_read_as_the_token_are_seen(self):
        with mock.patch.object(room, "replace", lambda bpe, **_: bpe):
            self.assertEqual(measure_special(MODEL)["times_special_as_signs"], 1)

    def test_refused(self):
        with self.assertRaisesRegex(BadInput, "has no special token"):
            start_id(model())


class Start(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = measure_start(MODEL)

    def test_the_same_tokens_are_asked_for(self):
        """The two losses of a stretch by cross_entropy, over the same answers."""
        ids = encode(PLAY.read_text(encoding="utf-8"), MODEL)[0][:255]
        having, without = run(MODEL, torch.cat([torch.tensor([1023]), ids])[None, :-1])[0], run(MODEL, ids[None, :-1])[0]
        for row in self.found["document_start"]["rows"]:
            n = row["tokens"]
            for key, logits in (("with_start", having[1 : 1 + n]), ("without", without[:n])):
                wanted = torch.nn.functional.cross_entropy(logits.double(), ids[1 : 1 + n]).item()
                self.assertAlmostEqual(row[key], wanted, places=5)
        wanted = having[0].softmax(-1)[ids[0]].item()
        self.assertAlmostEqual(self.found["document_start"]["p_first_token"], wanted, places=5)

    def test_what_it_says(self):
        first, middle = self.found["document_start"]["rows"], self.found["middle"]["rows"]
        self.assertTrue(all(row["with_start"] < row["without"] for row in first))
        gains = [row["without"] - row["with_start"] for row in first]
        self.assertEqual(gains, sorted(gains, reverse=True))
        self.assertLess(gains[-1], 0.05)
        self.assertGreater(middle[-1]["with_start"], middle[-1]["without"])
        self.assertGreater(self.found["prompt"]["p_without"], self.found["prompt"]["p_with_start"])

    def test_another_token_in_its_place_is_worse(self):
        with mock.patch.object(room, "start_id", return_value=5):
            found = measure_start(MODEL)["document_start"]["rows"]
        self.assertGreater(found[0]["with_start"], self.found["document_start"]["rows"][0]["with_start"] + 1)

    def test_nats(self):
        flat = replace(MODEL, weights={name: torch.zeros_like(w) for name, w in MODEL.weights.items()})
        self.assertAlmostEqual(nats(torch.tensor([1, 2, 3]), flat).mean().item(), torch.tensor(1024.0).log().item(), places=5)


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        for text in ("typed in it is 1 of them", "[1023, 38, 379, 262, 879, 11, 310]", "50.4 per cent, and 36.1 with"):
            self.assertIn(text, page)
        self.assertMeasured(self.values(main), special=measure_special(MODEL), start=measure_start(MODEL))

    def test_bad_input(self):
        self.assertBad(main, ["--model", "random:gpt2"], "no special token")


if __name__ == "__main__":
    unittest.main()
