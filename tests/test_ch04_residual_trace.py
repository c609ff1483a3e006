"""Chapter 4's residual stream: every column is of the traced tensors, what stands out is found, and nothing is added unseen."""

import math
import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.model import load, run
from examples.ch03.tokens import encode, random_ids
from examples.ch04 import residual_trace as room
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch04.residual_trace import OTHERS, draw, main, measure, measure_others, residual_statistics
from tests.rooms import RoomCase
from tests.support import IDS, LLAMA, llama_model, loaded, model, needs_smollm2, slow, weights, write_folder

MODEL, LLAMAS = model(), llama_model()


def massive(layer=0, dimension=3, value=1e5):
    """The tiny model with one huge number in what a layer's feed-forward network adds to every position."""
    name = f"h.{layer}.mlp.c_proj.bias"
    bias = MODEL.weights[name].clone()
    bias[dimension] = value
    return replace(MODEL, weights=MODEL.weights | {name: bias})


class Measure(unittest.TestCase):
    def test_every_column(self):
        for one in (MODEL, LLAMAS):
            kept = Trace()
            run(one, IDS, trace=kept)
            rows = residual_statistics(one, IDS)
            self.assertEqual([r["layer"] for r in rows], [0, 1, 2])
            streams = [kept["embedding", None], kept["residual", 0], kept["residual", 1]]
            for row, stream in zip(rows, streams, strict=True):
                x = stream[0].double().numpy()
                self.assertEqual(row["largest"], abs(x).max())
                self.assertEqual(abs(x[row["position"], row["dimension"]]), row["largest"])
                self.assertAlmostEqual(row["rms"], (x**2).mean() ** 0.5)
                self.assertAlmostEqual(row["rms_without_first"], (x[1:] ** 2).mean() ** 0.5)
                self.assertAlmostEqual(row["largest_over_median"], abs(x).max() / sorted(abs(x).flatten())[x.size // 2 - 1])
            for i, row in enumerate(rows[1:]):
                for name in ("attention", "mlp"):
                    self.assertAlmostEqual(row[f"{name}_norm"], float((kept[name, i].double() ** 2).sum() ** 0.5))
            self.assertNotIn("mlp_norm", rows[0])

    def test_the_embedding_and_all_that_was_added_are_the_stream(self):
        for one in (MODEL, LLAMAS):
            kept = Trace()
            run(one, IDS, trace=kept)
            total = kept["embedding", None]
            for layer in range(2):
                total = total + kept["attention", layer] + kept["mlp", layer]
                torch.testing.assert_close(total, kept["residual", layer], atol=1e-5, rtol=0)

    def test_what_stands_out(self):
        found = measure(massive(), IDS)
        rows = found["layers"]
        self.assertEqual((found["first_massive_layer"], found["top"]["dimension"]), (1, 3))
        self.assertEqual(found["top"], max(rows, key=lambda r: r["largest"]))
        self.assertEqual(found["before_top"], rows[found["top"]["layer"] - 1])
        self.assertEqual((found["last"], found["shown"], found["tokens"]), (rows[2], rows, 8))
        self.assertEqual(found["written_by_feed_forward_of_layer"], 1)
        self.assertEqual(found["its_norm"], rows[1]["mlp_norm"])
        self.assertEqual(found["dimensions_of_the_largest"], 1)
        self.assertEqual(found["rms_growth"], rows[2]["rms"] / rows[0]["rms"])
        self.assertEqual(found["largest_growth"], rows[2]["largest"] / rows[0]["largest"])
        self.assertEqual(found["largest_over_median_max"], max(r["largest_over_median"] for r in rows))
        self.assertEqual(measure(massive(layer=1), IDS)["written_by_feed_forward_of_layer"], 2)
        plain = measure(MODEL, IDS)
        self.assertIsNone(plain["first_massive_layer"])

    def test_nan_is_the_largest_of_all(self):
        broken = residual_statistics(MODEL, IDS)
        broken[1]["largest"] = math.nan
        with mock.patch.object(room, "residual_statistics", return_value=broken):
            self.assertEqual(measure(MODEL, IDS)["top"]["layer"], 1)

    def test_a_table_of_many_layers(self):
        """The first three, the last three, every fourth, and those up to the largest step."""
        deep = model(n_layer=20)
        name = "h.12.mlp.c_proj.bias"
        deep = replace(deep, weights=deep.weights | {name: deep.weights[name] + 1e5})
        found = measure(deep, IDS)
        self.assertEqual([r["layer"] for r in found["shown"]], [0, 1, 2, 4, 8, 11, 12, 13, 16, 18, 19, 20])
        self.assertEqual(len(found["layers"]), 21)
        zeros = replace(deep, weights={k: w * 0 for k, w in deep.weights.items()})
        found = measure(zeros, IDS)
        self.assertEqual([found[key] for key in ("rms_growth", "largest_growth", "largest_over_median_max")], [None] * 3)

    def test_of_two_tokens_the_second_is_without_the_first(self):
        kept = Trace("residual")
        run(MODEL, IDS[:, :2], trace=kept)
        second = kept["residual", 0][0, 1].double()
        found = residual_statistics(MODEL, IDS[:, :2])[1]["rms_without_first"]
        self.assertAlmostEqual(found, second.square().mean().sqrt().item())

    def test_one_token_has_no_others(self):
        found = measure(MODEL, IDS[:, :1])
        self.assertEqual([r["rms_without_first"] for r in found["layers"]], [None] * 3)
        self.assertEqual(found["top"]["position"], 0)

    def test_other_texts(self):
        found = measure_others(massive(dimension=5), seed=2)
        self.assertEqual([r["tokens"] for r in found["prompts"]], [16] * 5)
        for i, row in enumerate(found["prompts"]):
            rows = measure(massive(dimension=5), random_ids(MODEL, 16, seed=2 + i))
            self.assertEqual([row[k] for k in ("largest", "position")], [rows["last"][k] for k in ("largest", "position")])
            self.assertEqual([row[f"top_{k}"] for k in ("layer", "largest")], [rows["top"][k] for k in ("layer", "largest")])
        self.assertEqual((found["different_dimensions"], found["top_dimensions"], found["different_top_dimensions"]), (1, [5], 1))
        self.assertEqual(found["at_position_0"], sum(r["position"] == 0 for r in found["prompts"]))
        self.assertEqual(found["top_at_position_0"], sum(r["top_position"] == 0 for r in found["prompts"]))
        self.assertEqual(found["different_positions"], len({r["position"] for r in found["prompts"]}))
        whole = measure_others(loaded())["prompts"]
        self.assertEqual([(r["text"], r["tokens"]) for r in whole], [(t, encode(t, loaded()).shape[1]) for t in OTHERS])

    def test_other_texts_are_cut_to_what_a_model_takes(self):
        small = model(vocab_size=1024)
        rows = measure_others(replace(small, tokenizer=loaded().tokenizer))["prompts"]
        self.assertEqual([r["tokens"] for r in rows], [16, 16, 16, 16, 12])


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        folder = self.tiny()
        one = load(folder)
        measured = {"residual": measure(one, random_ids(one, 16, seed=3)), "residual-others": measure_others(one, seed=3)}
        self.assertMeasured(self.values(main, "--model", folder, "--seed", 3), **measured)

    def test_a_prompt_is_the_only_text(self):
        value = self.values(main, "--prompt", "Good night")
        self.assertMeasured(value, residual=measure(loaded(), encode("Good night", loaded())))
        self.assertIn("'a', 1 tokens", self.page(main, "--prompt", "a"))

    def test_pages(self):
        self.assertIn("17 tokens", self.page(main))
        llama = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        self.page(main, "--model", llama, "--dtype", "float64")
        self.page(main, "--model", write_folder(self.folder / "zeros", {k: w * 0 for k, w in weights().items()}))

    def test_figure(self):
        self.assertDraws(main, "--model", self.tiny())
        found = measure(MODEL, IDS)
        with mock.patch.object(room, "write_figure") as write:
            draw(found, None)
        lines = {line.get_label(): list(line.get_ydata()) for line in write.call_args.args[0].axes[0].lines}
        self.assertEqual(lines["largest absolute value"], [r["largest"] for r in found["layers"]])
        self.assertEqual(lines["RMS, all positions"], [r["rms"] for r in found["layers"]])
        self.assertEqual(lines["RMS without position 0"], [r["rms_without_first"] for r in found["layers"]])
        draw(measure(MODEL, IDS[:, :1]), self.folder / "one.png")

    def test_bad_input(self):
        bad = write_folder(self.folder / "bad", LLAMAS.weights | {"model.norm.weight": torch.full((8,), math.nan)}, LLAMA)
        self.assertBad(main, ["--model", bad], "model.norm.weight", "NaN")
        self.assertBad(main, ["--model", self.tiny(), "--prompt", "a"], "no tokenizer")
        self.assertBad(main, ["--prompt", ""], "empty")


@slow
@needs_smollm2
class SmolLM2(unittest.TestCase):
    def test_residual(self):
        """One number of the first position outgrows all others by far, and is taken back before the end."""
        one = loaded("smollm2")
        rows = measure(one, encode("The king is dead.", one))["layers"]
        self.assertEqual(len(rows), 31)
        outsized = [r for r in rows if r["largest"] > 1e4]
        self.assertGreater(len(outsized), 10)
        self.assertEqual({(r["position"], r["dimension"]) for r in outsized}, {(0, 507)})
        self.assertGreater(min(r["largest_over_median"] for r in outsized), 1000)
        self.assertLess(rows[-1]["largest"], outsized[-1]["largest"] / 2)


if __name__ == "__main__":
    unittest.main()
