"""What tells a model order when its position table is out: the causal mask, and nothing else."""

import unittest
from unittest import mock

import torch

from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import order_without_positions as room
from examples.ch04.order_without_positions import main, measure
from tests.rooms import RoomCase
from tests.support import loaded, model


class Order(unittest.TestCase):
    def test_on_the_embedded_model(self):
        """0.48, 0.73, 0.89, 0.99 and 1.07 were seen before this script was written."""
        found = measure(loaded())
        self.assertEqual([round(row["with_mask"], 2) for row in found["mixed"]], [0.48, 0.73, 0.89, 0.99, 1.07])
        self.assertTrue(found["same_without_mask_or_when_alike"])
        self.assertTrue(found["grows_with_the_distance"])

    def test_on_a_tiny_model(self):
        found = measure(model(), 3, 5, 6)
        self.assertGreater(found["smallest_with_mask"], 1e-4)
        self.assertTrue(found["same_without_mask_or_when_alike"])

    def test_a_position_table_that_stays_is_seen(self):
        with mock.patch.object(room, "without_positions", lambda model: model):
            self.assertFalse(measure(model(), 3, 5, 6)["same_without_mask_or_when_alike"])

    def test_a_mask_that_is_always_there_is_seen(self):
        def masked(ids, weights, config, at, mask, *rest):
            return right(ids, weights, config, at, gpt2.causal_mask(len(at), len(at)), *rest)

        right = gpt2.pass_over
        with mock.patch.object(gpt2, "pass_over", masked):
            self.assertFalse(measure(model(), 3, 5, 6)["same_without_mask_or_when_alike"])

    def test_the_table_is_out_and_the_model_is_left_as_it_was(self):
        tiny = model()
        before = tiny.weights["wpe.weight"].clone()
        self.assertEqual(room.without_positions(tiny).weights["wpe.weight"].abs().max(), 0)
        self.assertTrue(torch.equal(tiny.weights["wpe.weight"], before))


class Script(RoomCase):
    def test_page_and_json(self):
        self.assertIn("they are the same to rounding", self.page(main))
        self.assertMeasured(self.values(main), order=measure(loaded()))

    def test_bad_input(self):
        self.assertBad(main, ["--first", "5", "--rest", "5"], "both 5")
        self.assertBad(main, ["--first", "5000"], "id 5000 is outside the vocabulary")
        self.assertBad(main, ["--tokens", "2"], "2 is not 3 or more")
