"""Chapter 5's loop beside transformers' and rows beside themselves alone: that they agree, and that a difference shows."""

import json
import unittest
from unittest import mock

import torch

from examples.ch02.model import load
from examples.ch03.tokens import PROMPTS
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.library import library_model
from examples.ch05 import generate as loop
from examples.ch05 import loop_agreement as room
from examples.ch05.generate import whole_text
from tests.faults import shifted_mask
from tests.support import FolderCase, call, write_folder

MODEL = load()
LIBRARY = library_model(MODEL)
RIGHT_CHOOSE = loop.choose


def setUpModule():
    torch.set_num_threads(1)


class Greedy(unittest.TestCase):
    def test_the_library_writes_the_same(self):
        found = room.measure_greedy(MODEL, PROMPTS[:2], 8, to_the_end=0, library=LIBRARY)
        self.assertEqual((found["held"], found["tokens"], found["same"], found["worst"]), (True, 16, 16, 0))
        self.assertEqual([r["text"] for r in found["rows"]], list(PROMPTS[:2]))

    def test_the_first_go_to_the_end(self):
        with mock.patch.object(room, "compare_greedy", return_value=[]) as compare:
            room.measure_greedy(MODEL, PROMPTS, 8, to_the_end=1, library=LIBRARY)
        self.assertEqual([c.args[1:3] for c in compare.call_args_list], [(PROMPTS[:1], None), (PROMPTS[1:], 8)])
        n = MODEL.config.n_positions
        nearly_full = "a" * 300  # as many tokens as leave room for a few
        while len(MODEL.tokenizer.encode(nearly_full).ids) > n - 2:
            nearly_full = nearly_full[:-1]
        row = room.compare_greedy(MODEL, [nearly_full], None, library=LIBRARY)[0]
        self.assertEqual((row["tokens"], row["same"]), (n - row["prompt"] + 1,) * 2)

    def test_a_mask_off_by_one_breaks_it(self):
        with mock.patch.object(gpt2, "attention", shifted_mask(2)):
            found = room.measure_greedy(MODEL, PROMPTS[:1], 8, to_the_end=0, library=LIBRARY)
        self.assertFalse(found["held"])
        self.assertLess(found["same"], 8)

    def test_counted_up_to_the_first_difference(self):
        """Another token at one step alone, and the greedy one after it."""
        right = whole_text(MODEL)

        def wrong_once(model):
            steps = iter(range(100))

            def forward(ids):
                logits = right(ids)
                return logits.neg() if next(steps) == 3 else logits

            return forward

        row = room.compare_greedy(MODEL, PROMPTS[:1], 6, forward=wrong_once, library=LIBRARY)[0]
        self.assertEqual((row["tokens"], row["same"]), (6, 3))


class Rows(unittest.TestCase):
    def test_each_is_what_it_is_alone(self):
        found = room.measure_rows(MODEL, tokens=8)
        self.assertEqual((found["held"], found["tokens"], found["same"]), (True, 32, 32))
        self.assertEqual((found["prompts"], found["shortest"], found["longest"]), (4, 5, 15))

    def test_rows_that_share_a_generator_break_it(self):
        shared = torch.Generator()
        with mock.patch.object(loop, "choose", lambda logits, t, k, p, generator: RIGHT_CHOOSE(logits, t, k, p, shared)):
            self.assertFalse(room.measure_rows(MODEL, PROMPTS[:2], tokens=8)["held"])

    def test_another_forward_is_made_for_each_batch(self):
        made = []

        def forward(model, batch):
            made.append(batch)
            return whole_text(model)

        room.compare_sequences(MODEL, PROMPTS[:3], 2, 0.8, forward=forward)
        self.assertEqual(made, [3, 1, 1, 1])


class AllSame(unittest.TestCase):
    def test_one_differing_token_is_too_many(self):
        rows = [{"tokens": 5, "same": 5}, {"tokens": 4, "same": 4}]
        found = room.all_same(rows, positions=7)
        self.assertEqual(found, {"bound": 0, "worst": 0, "held": True, "tokens": 9, "same": 9, "rows": rows, "positions": 7})
        found = room.all_same([*rows, {"tokens": 3, "same": 2}])
        self.assertEqual((found["held"], found["worst"]), (False, 1))


class Script(FolderCase):
    def test_both_comparisons(self):
        order = ("--tokens", "3", "--seed", "2")
        value = json.loads(call(room.main, *order, "--json")[1])
        self.assertEqual((value["greedy"]["tokens"], value["greedy"]["same"], value["rows"]["tokens"]), (12, 12, 12))
        status, out, err = call(room.main, *order)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("12 of 12 greedy tokens", out)
        self.assertLess(max(map(len, out.splitlines())), 101)

    def test_bad_input(self):
        for argv, word in (
            (["--tokens", "999"], "n_positions"),
            (["--temperature", "-1", "--tokens", "1"], "temperature"),
            (["--to-the-end", "5"], "--to-the-end"),
            (["--model", write_folder(self.folder / "m")], "no tokenizer"),
        ):
            self.assertBad(room.main, argv, word)


if __name__ == "__main__":
    unittest.main()
