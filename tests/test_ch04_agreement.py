"""Chapter 4's agreement: our pass is within the bound of the library's on every kind of input, and beyond it for every planted
fault."""

import math
import unittest
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import torch

from examples.ch02.model import load, run
from examples.ch03.tokens import PROMPTS, encode
from examples.ch04 import agreement as room
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.agreement import BOUND, agreement, edge_shapes, main, measure, measure_points
from examples.ch04.library import library_model
from tests.faults import FAULTS
from tests.rooms import RoomCase
from tests.support import IDS, LLAMA, call, config, library_of, llama_config, llama_model, loaded, model, weights, write_folder

MODEL = model()
LIBRARY = library_model(MODEL)
LLAMAS = llama_model()


class Measure(unittest.TestCase):
    def test_what_differs_is_counted(self):
        ours = torch.zeros(2, 3, 4)
        theirs = ours.clone()
        ours[..., 1], theirs[..., 1] = 1.0, 1.0
        theirs[0, 2, 3], theirs[1, 1, 0] = 5.0, -7.0  # one argmax moves, one value only grows
        found = agreement(ours, theirs)
        self.assertEqual((found["same_argmax"], found["positions"], found["batch"], found["tokens"]), (5, 6, 2, 3))
        self.assertEqual((found["largest_difference"], found["largest_logit"], found["relative_difference"]), (7.0, 7.0, 1.0))

    def test_nan_never_passes_for_agreement(self):
        nan = torch.full((1, 3, 4), math.nan)
        found = agreement(nan, nan)
        self.assertTrue(math.isnan(found["largest_difference"]))
        self.assertEqual((found["same_argmax"], found["positions"]), (0, 3))
        broken = replace(MODEL, weights=MODEL.weights | {"h.1.mlp.c_fc.bias": torch.full((32,), math.nan)})
        found = measure(broken, library=LIBRARY)
        self.assertTrue(math.isnan(found["worst"]))
        self.assertEqual((found["held"], found["same_argmax"]), (False, 0))
        points = measure_points(broken, IDS, LIBRARY)
        rows = {r["point"]: r for r in points["by_point"]}
        self.assertTrue(math.isnan(points["worst"]))
        self.assertFalse(points["held"])
        self.assertTrue(math.isnan(rows["hidden"]["largest_difference"]))  # though layer 0 has a number
        self.assertEqual(rows["hidden"]["in_layer"], 1)

    def test_it_holds_on_a_gpt2_and_a_llama(self):
        for one, library, full in ((MODEL, LIBRARY, 16), (LLAMAS, library_model(LLAMAS), 64)):
            found = measure(one, library=library)
            self.assertTrue(found["held"], found)
            self.assertEqual([r["tokens"] for r in found["prompts"]], [min(t, full) for t in (5, 9, 13, 18)])
            shapes = [(r["batch"], r["tokens"]) for r in found["edges"]]
            self.assertEqual(shapes, [(1, 1), (1, 2), (1, full - 1), (1, full), (4, full)])
            rows = found["prompts"] + found["edges"]
            self.assertEqual(found["worst"], max(r["relative_difference"] for r in rows))
            self.assertEqual(found["positions"], sum(r["batch"] * r["tokens"] for r in rows))
            self.assertEqual(found["same_argmax"], found["positions"])
            self.assertGreater(found["worst"], 0)

    def test_the_claim_has_two_halves(self):
        """Logits within the bound whose most probable token is another do not hold it."""
        near, other = torch.tensor([[[1.0, 1.0 - 1e-6]]]), torch.tensor([[[1.0 - 1e-6, 1.0]]])
        with mock.patch.object(room, "run", return_value=near):
            found = measure(MODEL, (), lambda ids, **more: SimpleNamespace(logits=other), [(1, 1)])
        self.assertLess(found["worst"], BOUND)
        self.assertEqual((found["same_argmax"], found["positions"], found["held"]), (0, 1, False))

    def test_planted_faults_break_it(self):
        for fault, (name, wrong) in FAULTS.items():
            with self.subTest(fault), mock.patch.object(gpt2, name, wrong):
                self.assertFalse(measure(MODEL, library=LIBRARY)["held"])
                points = measure_points(MODEL, IDS, LIBRARY)
                self.assertFalse(points["held"])
                off = {r["point"] for r in points["by_point"] if r["largest_difference"] > BOUND * r["largest_value"]}
                self.assertNotIn("embedding", off)
                self.assertIn("logits", off)

    def test_edges_of_the_context(self):
        self.assertEqual(edge_shapes(llama_config(max_position_embeddings=8192)), [(1, 1), (1, 2), (1, 2047), (1, 2048), (4, 64)])
        self.assertEqual(edge_shapes(config(n_positions=1)), [(1, 1), (4, 1)])
        self.assertEqual(edge_shapes(config(n_positions=2)), [(1, 1), (1, 2), (4, 2)])


class Points(unittest.TestCase):
    def test_every_point_but_those_that_the_library_hides(self):
        for one, hidden in ((MODEL, {"scores"}), (LLAMAS, {"scores", "q"})):
            found = measure_points(one, IDS, library_model(one))
            self.assertTrue(found["held"], found)
            self.assertEqual([r["point"] for r in found["by_point"]], [p for p in gpt2.POINTS if p not in hidden])
            self.assertEqual(found["points"], len(gpt2.POINTS) - len(hidden))
            self.assertEqual(found["tensors"], 3 + 2 * (len(gpt2.LAYER_POINTS) - len(hidden)))
            self.assertEqual(found["tensors"], sum(r["tensors"] for r in found["by_point"]))

    def test_a_fault_is_found_where_it_stands(self):
        wrong = replace(MODEL, weights=MODEL.weights | {"h.1.mlp.c_fc.bias": MODEL.weights["h.1.mlp.c_fc.bias"] + 0.01})
        rows = measure_points(wrong, IDS, LIBRARY)["by_point"]
        off = [(r["point"], r["in_layer"]) for r in rows if r["largest_difference"] > BOUND * r["largest_value"]]
        self.assertEqual(off, [("hidden", 1), ("mlp", 1), ("residual", 1), ("final_norm", None), ("logits", None)])

    def test_a_rotation_turned_back_is_seen_in_the_keys(self):
        from examples.ch14 import llama_from_scratch as llama

        right = llama.rotate
        with mock.patch.object(llama, "rotate", lambda x, angles: right(x, (angles[0], -angles[1]))):
            rows = {r["point"]: r for r in measure_points(LLAMAS, IDS, library_model(LLAMAS))["by_point"]}
        self.assertGreater(rows["k"]["largest_difference"], 0.1)
        self.assertEqual(rows["norm_1"]["in_layer"], 1)  # the first layer's is right

    def test_the_values_are_the_largest_of_all_layers(self):
        kept = gpt2.Trace()
        run(MODEL, IDS, trace=kept)
        for row in measure_points(MODEL, IDS, LIBRARY)["by_point"]:
            size = max(x.abs().max().item() for (point, _), x in kept.items() if point == row["point"])
            self.assertAlmostEqual(row["largest_value"], size, delta=1e-5 * size)


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        folder = self.tiny()
        one = load(folder)
        value = self.values(main, "--model", folder)
        self.assertMeasured(value, agreement=measure(one), layers=measure_points(one))
        self.assertEqual(value["ran_with"]["model"], str(folder))

    def test_a_page_says_whether_it_holds(self):
        self.assertIn("within 1e-05", self.page(main, "--model", self.tiny(), "--seed", 3))
        with mock.patch.object(gpt2, *FAULTS["heads in reverse order"]):
            self.assertIn("MORE than 1e-05", self.page(main, "--model", self.tiny()))

    def test_a_llama(self):
        folder = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        self.assertTrue(self.values(main, "--model", folder)["agreement"]["held"])

    def test_a_prompt(self):
        points = measure_points(loaded(), encode("Good night", loaded()), library_of())
        value = self.values(main, "--prompt", "Good night")
        self.assertMeasured(value, agreement=measure(loaded(), ("Good night",), library_of()), layers=points)
        self.assertEqual([(r["prompt"], r["tokens"]) for r in value["agreement"]["prompts"]], [("Good night", 3)])
        self.page(main, "--prompt", "a word " * 40)

    def test_dtype_and_seed(self):
        folder = self.tiny()
        single, half = (self.values(main, "--model", folder, "--dtype", dtype) for dtype in ("float32", "bfloat16"))
        self.assertTrue(single["agreement"]["held"])
        self.assertGreater(half["agreement"]["worst"], 1e-3)
        self.assertEqual(half["ran_with"]["dtype"], "bfloat16")
        one, again, other = (self.values(main, "--model", folder, "--seed", seed)["agreement"] for seed in (0, 0, 1))
        self.assertEqual(one, again)
        for rows in ("prompts", "edges"):
            self.assertNotEqual(one[rows], other[rows])

    def test_a_model_of_zeros_and_one_of_one_position(self):
        zeros = write_folder(self.folder / "zeros", {k: w * 0 for k, w in weights().items()})
        value = self.values(main, "--model", zeros)
        self.assertEqual((value["agreement"]["worst"], value["layers"]["worst"]), (0, 0))
        self.page(main, "--model", zeros)
        short = self.values(main, "--model", self.tiny(n_positions=1))["agreement"]
        self.assertEqual({r["tokens"] for r in short["prompts"]}, {1})

    def test_the_books_texts_are_cut_to_what_a_model_takes(self):
        small = replace(loaded(), config=replace(loaded().config, n_positions=4))
        small = replace(small, weights=small.weights | {"wpe.weight": small.weights["wpe.weight"][:4]}, fields=None)
        with mock.patch.object(room, "run", side_effect=lambda model, ids: torch.zeros(*ids.shape, 2)):
            found = measure(small, library=lambda ids, **more: SimpleNamespace(logits=torch.zeros(*ids.shape, 2)))
        self.assertEqual([(r["prompt"], r["tokens"]) for r in found["prompts"]], [(text, 4) for text in PROMPTS])

    def test_bad_input(self):
        tiny = self.tiny()
        bad = write_folder(self.folder / "bad", weights() | {"ln_f.bias": torch.full((8,), math.nan)})
        upcast = self.tiny(reorder_and_upcast_attn=True)
        for argv, words in (
            (["--model", tiny, "--prompt", "a"], ["no tokenizer"]),
            (["--prompt", ""], ["empty"]),
            (["--prompt", "word " * 300], ["n_positions 256"]),
            (["--model", bad], ["ln_f.bias", "NaN"]),
            (["--model", upcast, "--dtype", "float64"], ["takes no float64"]),
            (["--model", self.folder / "none"], ["no model"]),
            (["--model", "random:gpt9"], ["gpt9", "gpt2-xl"]),
            (["--dtype", "int8"], ["int8"]),
            (["--threads", "0"], ["0 is not 1"]),
            (["compare"], ["unknown: compare", "--help"]),
        ):
            with self.subTest(str(argv)):
                self.assertBad(main, argv, *words)

    def test_help(self):
        status, out, _ = call(main, "--help")
        self.assertEqual(status, 0)
        self.assertIn("examples:\n  python examples/ch04/agreement.py\n", out)


if __name__ == "__main__":
    unittest.main()
