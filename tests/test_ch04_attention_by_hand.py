"""Attention on paper: the steps by hand are the chapter's attention, and a head's weights are a pass's own."""

import math
import unittest
from unittest import mock

import torch

from examples.ch04 import attention_by_hand as room
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.attention_by_hand import by_hand, by_program, main, measure, measure_head
from tests.rooms import RoomCase
from tests.support import IDS, model


class ByHand(unittest.TestCase):
    def test_what_the_text_says_of_it(self):
        """The last row, on paper: scores 0, 2, 1, so weights of e^0, e^2 and e^1 over their sum."""
        found = by_hand()
        self.assertEqual(found["scores"], [[1, 0, 0], [1, 2, 1], [0, 2, 1]])
        whole = 1 + math.e**2 + math.e
        for weight, power in zip(found["weights"][2], (1, math.e**2, math.e), strict=True):
            self.assertAlmostEqual(weight, power / whole)
        self.assertEqual(found["weights"][0], [1, 0, 0])
        for column, entry in enumerate(found["result"][2]):
            values = (value[column] for value in room.VALUES)
            self.assertAlmostEqual(entry, sum(w * v for w, v in zip(found["weights"][2], values, strict=True)))

    def test_the_program_gives_the_same(self):
        self.assertTrue(measure()["held"])
        self.assertEqual((len(by_program()), len(by_program()[0])), (3, 4))

    def test_a_program_that_is_wrong_does_not(self):
        for name, value in (("attention_scale", lambda *_: 1.0), ("causal_mask", lambda T, S: torch.zeros(T, S))):
            with mock.patch.object(gpt2, name, value), mock.patch.object(room, name, value, create=True):
                self.assertFalse(measure()["held"], name)


class Head(unittest.TestCase):
    def test_it_is_the_head_of_a_pass(self):
        tiny = model()
        kept = gpt2.Trace("A")
        gpt2.forward(IDS, tiny.weights, tiny.config, trace=kept)
        found = measure_head(tiny, IDS, 1, 1)
        self.assertEqual(found["weights"], kept["A", 1][0, 1].tolist())
        self.assertEqual((found["largest_above_diagonal"], found["tokens"]), (0.0, IDS[0].tolist()))
        self.assertTrue(all(abs(sum(row) - 1) < 1e-6 for row in found["weights"]))
        self.assertNotEqual(found["weights"], measure_head(tiny, IDS, 1, 0)["weights"])

    def test_without_a_mask_it_says_so(self):
        with mock.patch.object(gpt2, "causal_mask", lambda T, S, device=None: torch.zeros(T, S)):
            found = measure_head(model(), IDS)
        self.assertGreater(found["largest_above_diagonal"], 0)
        self.assertIn("NOT causal", room.report({"example": measure(), "head": found}))


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        self.assertIn("The chapter's program gives the same result.", page)
        self.assertIn("' my'     0.06     0.18", page)
        long = self.page(main, "--model", self.tiny(), "--layer", "1")
        self.assertIn("random ids", long)
        value = self.values(main, "--layer", "1", "--head", "2")
        self.assertEqual((value["head"]["layer"], value["head"]["head"], len(value["head"]["weights"])), (1, 2, 6))
        self.assertMeasured({k: value[k] for k in ("example",)}, example=measure())

    def test_a_long_text_is_cut(self):
        self.assertIn("the first 7 of 15", self.page(main, "--prompt", "Good night, good night! parting is such sweet sorrow."))

    def test_bad_input(self):
        self.assertBad(main, ["--layer", "4"], "--layer 4 is not within 0 to 3")
        self.assertBad(main, ["--head", "8"], "--head 8 is not within 0 to 7")


if __name__ == "__main__":
    unittest.main()
