"""Chapter 4's tour: next tokens, agreement and mask are those of the rooms, on any model, and a broken program is told."""

import unittest
from unittest import mock

import torch

from examples.ch02.model import load, run
from examples.ch03.tokens import encode, random_ids
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import tour
from examples.ch04.agreement import agreement
from examples.ch04.causal_mask import change_last
from examples.ch04.gpt2_from_scratch import PROMPT, next_tokens
from examples.ch04.library import library_model
from examples.ch04.tour import main, measure
from tests.faults import FAULTS
from tests.rooms import RoomCase
from tests.support import LLAMA, library_of, llama_model, loaded, model, weights, write_folder

MODEL, LLAMAS = model(), llama_model()


class Measure(unittest.TestCase):
    def test_it_is_the_rooms_own(self):
        for one in (MODEL, LLAMAS):
            ids, library = random_ids(one, 7), library_model(one)
            found = measure(one, ids, library)
            self.assertEqual(found["ids"], ids[0].tolist())
            self.assertEqual(found["next_tokens"], next_tokens(one, ids))
            self.assertEqual(found["agreement"], agreement(run(one, ids), library(ids).logits))
            change = change_last(one, ids)[0]
            self.assertEqual((found["mask_change_earlier"], found["mask_change_last"]), (max(change[:-1]), change[-1]))
            self.assertEqual(found["mask_change_earlier"], 0.0)
            self.assertLessEqual(found["agreement"]["relative_difference"], 1e-5)
        self.assertEqual(measure(MODEL, ids[:, :1], library_model(MODEL))["mask_change_earlier"], 0.0)

    def test_planted_faults(self):
        ids, library = random_ids(MODEL, 7), library_model(MODEL)
        for fault, (name, wrong) in FAULTS.items():
            with self.subTest(fault), mock.patch.object(gpt2, name, wrong):
                self.assertGreater(measure(MODEL, ids, library)["agreement"]["relative_difference"], 1e-5)
        with mock.patch.object(gpt2, *FAULTS["no mask at all"]):
            self.assertGreater(measure(MODEL, ids, library)["mask_change_earlier"], 1e-3)

    def test_every_position_before_the_last_counts(self):
        with mock.patch.object(tour, "change_last", return_value=([3.0, 1.0, 2.0], [])):
            found = measure(MODEL, random_ids(MODEL, 3), library_model(MODEL))
        self.assertEqual((found["mask_change_earlier"], found["mask_change_last"]), (3.0, 2.0))


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        value = self.values(main)
        ids = encode(PROMPT, loaded())
        self.assertMeasured(value, tour=measure(loaded(), ids, library_of()))
        folder = self.tiny()
        one = load(folder)
        value = self.values(main, "--model", folder, "--seed", 3)
        self.assertMeasured(value, tour=measure(one, random_ids(one, 10, seed=3), library_model(one)))

    def test_pages(self):
        page = self.page(main)
        for text in ("The model: embedded, a gpt2 of 3,487,232 parameters:\n4 layers, width 256, 8 heads.", repr(PROMPT), "Next:"):
            self.assertIn(text, page)
        self.assertEqual(len([line for line in page.splitlines() if line.endswith("%")]), 5)
        folder = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        page = self.page(main, "--model", folder)
        self.assertIn("a llama of 1,560 parameters:\n2 layers, width 8, 4 heads with 2 of keys and values.", page)
        every = write_folder(self.folder / "all", llama_model(num_key_value_heads=4).weights, LLAMA | {"num_key_value_heads": 4})
        self.assertIn("width 8, 4 heads.\n", self.page(main, "--model", every))  # as many of keys are not told apart
        self.page(main, "--prompt", "a")
        self.page(main, "--model", write_folder(self.folder / "zeros", {k: w * 0 for k, w in weights().items()}))

    def test_a_program_that_does_not_agree(self):
        with mock.patch.object(gpt2, *FAULTS["biases forgotten"]):
            self.assertIn("NOT transformers'", self.page(main, "--model", self.tiny()))

    def test_dtype(self):
        folder = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        found = self.values(main, "--model", folder, "--dtype", "float64")["tour"]["agreement"]
        self.assertLessEqual(found["relative_difference"], 1e-6)
        found = self.values(main, "--model", self.tiny(), "--dtype", "float64")["tour"]["agreement"]
        self.assertLessEqual(found["relative_difference"], 1e-13)  # the library is in float64 too
        half = self.values(main, "--model", folder, "--dtype", "bfloat16")["tour"]["agreement"]
        self.assertGreater(half["relative_difference"], 1e-4)

    def test_bad_input(self):
        bad = write_folder(self.folder / "bad", weights() | {"ln_f.bias": torch.full((8,), torch.nan)})
        self.assertBad(main, ["--model", bad], "ln_f.bias", "NaN")
        self.assertBad(main, ["--model", self.tiny(), "--prompt", "a"], "no tokenizer")
        self.assertBad(main, ["shapes"], "unknown: shapes")
        self.assertBad(main, ["--prompt", "word " * 300], "n_positions 256")


if __name__ == "__main__":
    unittest.main()
