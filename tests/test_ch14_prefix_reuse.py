"""What positions mean for reusing a cached text: which families a move changes, whose keys can be turned on, a planted fault, the
script on every kind of rope."""

import json
import unittest
from functools import cache
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

from examples.ch02.model import general_form, load, run
from examples.ch03.tokens import random_ids
from examples.ch04.agreement import agreement
from examples.ch14 import peers, prefix_reuse, variants
from examples.ch14.prefix_reuse import forward_at, measure_moves, measure_prefix, measure_shift, prefix_keys, shift, shifts_for
from examples.lab.script import BadInput
from tests.support import FolderCase, call, llama_model

BOUND = 1e-5  # of the largest logit


def setUpModule():
    torch.set_num_threads(1)


@cache
def tiny(kind):
    """The tiny model of a family, in general form."""
    return general_form(peers.by_files(peers.library_tiny(kind)))


class Moved(unittest.TestCase):
    def test_at_its_own_place_it_is_the_pass(self):
        for kind in ("gpt2", "llama"):
            model, at = tiny(kind), torch.arange(8)
            ids = random_ids(model, 8, 2)
            self.assertLessEqual(agreement(forward_at(model, ids, at), run(model, ids))["relative_difference"], BOUND)

    def test_which_families_it_changes(self):
        for kind, moves in (("llama", False), ("bloom", False), ("deepseek_v3", False), ("gpt2", True), ("xglm", True)):
            model = tiny(kind)
            found = shift(model, random_ids(model, 8), 9)
            self.assertEqual(found["off_percent"] > 0.1, moves, (kind, found))
            self.assertEqual((found["by"], found["positions"]), (9, 8))

    def test_by_nothing(self):
        model = tiny("gpt2")
        self.assertEqual(shift(model, random_ids(model, 8), 0), {"by": 0, "off_percent": 0.0, "same_argmax": 8, "positions": 8})

    def test_positions_outside_the_table(self):
        model = tiny("gpt2")
        for at in (torch.arange(4) + 30, torch.arange(4) - 1):
            with self.assertRaisesRegex(BadInput, "not all within"):
                forward_at(model, random_ids(model, 4), at)

    def test_a_rotation_from_elsewhere(self):
        """A rope that does not turn in proportion to the position is seen."""
        model, right = tiny("llama"), variants.turned
        ids = random_ids(model, 8)
        self.assertTrue(measure_shift(model, ids, [9])["held"])
        with mock.patch.object(variants, "turned", lambda x, config, layer, at: right(x, config, layer, at**2)):
            found = measure_shift(model, ids, [9])
        self.assertFalse(found["held"])
        self.assertGreater(found["worst"], 1e-2)

    def test_how_far_there_is_room(self):
        config = tiny("llama").config  # of 64 positions
        self.assertEqual(shifts_for(config, 8), [1])
        self.assertEqual(shifts_for(config, 8, [56, 3]), [56, 3])
        for tokens, wanted in ((8, [57]), (64, None)):
            with self.assertRaisesRegex(BadInput, f"{tokens} tokens {(wanted or [1])[0]} positions later pass n_positions 64"):
                shifts_for(config, tokens, wanted)
        self.assertEqual(shifts_for(load().config, 20), [1, 100])

    def test_the_record_of_learned_positions(self):
        found = measure_moves(load())
        self.assertEqual((found["tokens"], [r["by"] for r in found["shifts"]]), (20, [1, 100]))
        self.assertTrue(all(r["off_percent"] > 1 for r in found["shifts"]))


class Reused(unittest.TestCase):
    def test_the_first_layer_alone_is_right(self):
        one = tiny("llama")
        ids, before = random_ids(one, 8), random_ids(one, 5, seed=3)
        rows = prefix_keys(one, before, ids)
        self.assertLess(rows[0]["keys"], 1e-5)
        self.assertEqual(rows[0]["values"], 0.0)
        for row in rows[1:]:
            self.assertGreater(min(row["keys"], row["values"]), 1e-2)  # upper layers have read what stands before
        right = variants.turned
        short = lambda x, config, layer, at: right(x, config, layer, at - 1 if len(at) == 1 else at)  # noqa: E731  on by one too few
        with mock.patch.object(variants, "turned", short):
            self.assertGreater(prefix_keys(one, before, ids)[0]["keys"], 1e-2)

    def test_the_values_beside_the_layers(self):
        model = tiny("llama")
        found = measure_prefix(model)
        rows = found["layers"]
        self.assertEqual((found["before"], found["tokens"], len(rows)), (7, 17, 3))
        self.assertEqual((found["first_keys"], found["first_values"]), (rows[0]["keys"], 0.0))
        self.assertEqual(found["second_values_percent"], 100 * rows[1]["values"])
        self.assertEqual(found["smallest_later_percent"], 100 * min(rows[2]["keys"], rows[2]["values"]))
        short = measure_prefix(llama_model(num_hidden_layers=1))
        self.assertEqual((short["second_values_percent"], short["smallest_later_percent"]), (None, None))

    def test_positions_that_are_no_rotations(self):
        for model in (load(), tiny("bloom")):
            with self.assertRaisesRegex(BadInput, "no rotations"):
                measure_prefix(model)


class Script(FolderCase):
    def saved(self, kind, change=lambda w: w):
        folder = self.folder / kind
        peers.library_tiny(kind).save_pretrained(folder)
        held = {k: change(w) for k, w in load_file(folder / "model.safetensors").items()}
        save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def test_every_kind_of_rope(self):
        for kind in ("gemma3_text", "deepseek_v3", "qwen3", "mistral"):
            status, out, err = call(prefix_reuse.main, "--model", self.saved(kind), "--shifts", "3", "--json")
            self.assertEqual((status, err), (0, ""), kind)
            found = json.loads(out)
            self.assertLess(found["shift"]["worst"], 1e-4, kind)
            self.assertLess(found["prefix"]["layers"][0]["keys"], 1e-5, kind)
            self.assertEqual(found["prefix"]["layers"][0]["values"], 0.0, kind)

    def test_text(self):
        status, out, err = call(prefix_reuse.main)
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^100 +3\.5e-01 +8 of 20$")
        self.assertIn("Its positions are no rotations", out)
        status, out, err = call(prefix_reuse.main, "--model", self.saved("llama"))
        self.assertEqual((status, err), (0, ""))
        self.assertIn("17 of them after 7 others", out)
        self.assertIn("From layer 2 on no layer", out)

    def test_weights_of_zero(self):
        status, _, err = call(prefix_reuse.main, "--model", self.saved("llama", torch.zeros_like))
        self.assertEqual((status, err), (0, ""))

    def test_bad_input(self):
        bad = self.saved("llama", lambda w: w * float("nan"))
        for argv, words in (
            (("--shifts", "9999"), "n_positions 256"),
            (("--shifts", "0"), "1 or more"),
            (("--model", "nowhere"), "no model nowhere"),
            (("--model", bad), "holds NaN"),
            (("--prompt", ""), "is empty"),
        ):
            self.assertBad(prefix_reuse.main, argv, words)


if __name__ == "__main__":
    unittest.main()
