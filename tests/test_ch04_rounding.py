"""Chapter 4's rounding: each distance is the one from float64, the worst over all batches; a program that rounds more is told."""

import math
import unittest
from unittest import mock

import torch

from examples.ch02.model import DTYPES, load, run
from examples.ch03.tokens import prompt_batches, random_ids
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import rounding as room
from examples.ch04.agreement import edge_batches
from examples.ch04.library import library_model
from examples.ch04.rounding import distance_from_float64, error_by_layer, error_by_length, main, measure_dtypes, measure_float32
from tests.rooms import RoomCase
from tests.support import IDS, LLAMA, llama_model, model, weights, write_folder

MODEL = model()
BATCHES = [IDS, IDS[:, :3]]


class Measure(unittest.TestCase):
    def test_distances_are_those_of_each_program_by_itself(self):
        rows = {r["dtype"]: r for r in distance_from_float64(MODEL, BATCHES, ("float64", "float32", "bfloat16"))}
        exact = MODEL.to(dtype=torch.float64)
        for name, row in rows.items():
            same, theirs = MODEL.to(dtype=DTYPES[name]), library_model(MODEL, DTYPES[name])
            ours_worst, library_worst, kept = [], [], 0
            for ids in BATCHES:
                reference, found = run(exact, ids), run(same, ids)
                ours_worst.append((found.double() - reference).abs().max().item())
                library_worst.append((theirs(ids).logits.double() - reference).abs().max().item())
                kept += int((found.argmax(-1) == reference.argmax(-1)).sum())
            self.assertEqual((row["ours"], row["ours_same_argmax"], row["positions"]), (max(ours_worst), kept, 11))
            self.assertAlmostEqual(row["library"], max(library_worst), places=6)
            self.assertAlmostEqual(row["largest_logit"], max(run(exact, ids).abs().max().item() for ids in BATCHES))
        self.assertEqual(rows["float64"]["ours"], 0.0)
        self.assertLess(rows["float64"]["library"], 1e-14)
        turned = distance_from_float64(MODEL, BATCHES[::-1], tuple(rows))  # the worst of all batches, not the last one's
        self.assertEqual({r["dtype"]: r for r in turned}, rows)
        self.assertLess(rows["float32"]["ours"], 1e-2 * rows["bfloat16"]["ours"])

    def test_the_record_has_parts_of_the_largest_logit(self):
        rows, found = distance_from_float64(MODEL, BATCHES, ("float32", "bfloat16")), measure_dtypes(MODEL, BATCHES)
        for row, part in zip(rows, found["dtypes"], strict=False):
            self.assertAlmostEqual(part["ours"] * row["largest_logit"], row["ours"])
            self.assertAlmostEqual(part["transformers"] * row["largest_logit"], row["library"])
            self.assertEqual(found["largest_logit"], row["largest_logit"])

    def test_half_precision_runs_only_what_it_has_time_for(self):
        size = sum(w.numel() for w in MODEL.weights.values())
        with mock.patch.object(room, "HALF_WORK", 3 * size):
            rows = distance_from_float64(MODEL, BATCHES, ("float32", "float16"))
        self.assertEqual([r["positions"] for r in rows], [11, 3])

    def test_a_worse_program_is_told(self):
        """Norms in half precision: our float32 is then further from float64 than twice the library's."""
        self.assertTrue(measure_float32(MODEL, BATCHES)["held"])
        right = gpt2.layer_norm

        def coarse(x, *rest):
            return right(x, *rest) if x.dtype == torch.float64 else right(x.bfloat16(), *rest).to(x.dtype)

        with mock.patch.object(gpt2, "layer_norm", coarse):
            found = measure_float32(MODEL, BATCHES)
        self.assertFalse(found["held"])
        self.assertGreater(found["worst"], 100)
        self.assertTrue(found["float64_programs_agree_within_1e_12"])

    def test_a_wrong_program_is_told_in_float64_too(self):
        with mock.patch.object(gpt2, "attention_scale", return_value=1.0):
            self.assertFalse(measure_float32(MODEL, BATCHES)["float64_programs_agree_within_1e_12"])

    def test_where_the_library_takes_no_float64(self):
        upcast = model(reorder_and_upcast_attn=True)
        self.assertIsNone(distance_from_float64(upcast, BATCHES, ("float64",))[0]["library"])
        found = measure_float32(upcast, BATCHES)
        self.assertIsNone(found["float64_programs_agree_within_1e_12"])
        self.assertTrue(found["held"])

    def test_a_llama_in_the_library_is_of_float32_even_in_float64(self):
        rows = distance_from_float64(llama_model(), [IDS], ("float64", "float32"))
        self.assertEqual(rows[0]["ours"], 0.0)
        self.assertTrue(1e-9 < rows[0]["library"] < 1e-5, rows)
        self.assertTrue(0 < rows[1]["ours"] < 1e-5, rows)

    def test_by_layer_and_by_length(self):
        exact = MODEL.to(dtype=torch.float64)
        single, double = gpt2.Trace("embedding", "residual"), gpt2.Trace("embedding", "residual")
        run(MODEL, IDS, trace=single)
        run(exact, IDS, trace=double)
        rows = error_by_layer(MODEL, IDS)
        self.assertEqual([r["layer"] for r in rows], [0, 1, 2])
        for row, key in zip(rows, (("embedding", None), ("residual", 0), ("residual", 1)), strict=True):
            error = (single[key].double() - double[key]).abs().max() / double[key].abs().max()
            self.assertAlmostEqual(row["relative_error"], error.item(), places=15)
        self.assertGreater(rows[-1]["relative_error"], 0)
        for row in error_by_length(MODEL, [1, 16], seed=5):
            ids = random_ids(MODEL, row["tokens"], seed=5)
            reference = run(exact, ids)
            error = (run(MODEL, ids).double() - reference).abs().max() / reference.abs().max()
            self.assertAlmostEqual(row["relative_error"], error.item(), places=15)
            self.assertGreater(row["relative_error"], 0)

    def test_growth(self):
        one = model(n_positions=300)
        found = room.measure_growth(one, seed=5)
        self.assertEqual(found["layers"], error_by_layer(one, random_ids(one, 64, seed=5)))
        self.assertEqual(found["lengths"], error_by_length(one, [1, 16, 64, 256], seed=5))
        self.assertEqual([r["tokens"] for r in room.measure_growth(MODEL)["lengths"]], [1, 16])


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        folder = self.tiny()
        one = load(folder)
        batches = prompt_batches(one, seed=3) + edge_batches(one, 3)
        half = measure_dtypes(one, batches, tuple(DTYPES))
        value = self.values(main, "--model", folder, "--seed", 3)
        self.assertMeasured(value, half=half, **{"error-growth": room.measure_growth(one, seed=3)})
        self.assertEqual([r["dtype"] for r in half["dtypes"]], list(DTYPES))
        self.assertNotEqual(value["error-growth"], self.values(main, "--model", folder)["error-growth"])

    def test_pages(self):
        self.assertIn("times transformers'", self.page(main, "--model", self.tiny()))
        llama = write_folder(self.folder / "llama", llama_model().weights, LLAMA)
        self.assertIn("computes norms, softmax and angles in float32 whatever", self.page(main, "--model", llama))
        self.assertIn("refused", self.page(main, "--model", self.tiny(reorder_and_upcast_attn=True)))
        self.page(main, "--model", write_folder(self.folder / "zeros", {k: w * 0 for k, w in weights().items()}))

    def test_a_pass_that_overflows_is_null_with_a_reason(self):
        loud = {k: w * 40 for k, w in weights().items()}
        value = self.values(main, "--model", write_folder(self.folder / "loud", loud))
        half = next(r for r in value["half"]["dtypes"] if r["dtype"] == "float16")
        self.assertIsNone(half["ours"])
        self.assertTrue(any("half.dtypes" in reason and "nan" in reason for reason in value["not_finite"]))

    def test_bad_input(self):
        bad = write_folder(self.folder / "bad", weights() | {"ln_f.bias": torch.full((8,), math.nan)})
        self.assertBad(main, ["--model", bad], "ln_f.bias", "NaN")
        self.assertBad(main, ["--dtype", "float64"], "--dtype")  # all of them are compared


if __name__ == "__main__":
    unittest.main()
