"""Chapter 4's tensor sizes: the table lists what a pass makes, in its shapes, and nothing that it leaves out grows faster."""

import math
import unittest

import torch

from examples.ch02.model import load_config
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.tensor_sizes import main, measure, tensor_table
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import LLAMA, config, weights, write_folder


class Table(unittest.TestCase):
    def test_shapes_are_those_of_the_trace(self):
        for of in (config(), config(n_inner=20)):
            for batch, tokens in ((1, 1), (2, 5), (1, 16)):
                kept = gpt2.Trace()
                gpt2.forward(torch.zeros(batch, tokens, dtype=torch.int64), weights(of), of, trace=kept)
                rows = {r["point"]: r for r in tensor_table(of, tokens, batch) if r["traced"]}
                self.assertEqual(list(rows), list(gpt2.POINTS))
                for (point, _), tensor in kept.items():
                    self.assertEqual((list(tensor.shape), tensor.nbytes), (rows[point]["shape"], rows[point]["bytes"]))
                    self.assertEqual(rows[point]["count"], sum(p == point for p, _ in kept))

    def test_nothing_else_grows_with_the_square(self):
        """What every single operation of the pass makes, at T and at 2T: four times as much only for [T, T] and [h, T, T]."""
        from torch.utils._python_dispatch import TorchDispatchMode

        class Spy(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                out = function(*args, **(kwargs or {}))
                if isinstance(out, torch.Tensor):
                    made.append(tuple(out.shape))
                return out

        passes = []
        for T in (7, 14):
            made = []
            with Spy():
                gpt2.forward(torch.zeros(3, T, dtype=torch.int64), weights(), config())
            passes.append(made)
        self.assertEqual(len(passes[0]), len(passes[1]))
        squares = {a for a, b in zip(*passes, strict=True) if math.prod(b) > 2 * math.prod(a)}
        self.assertEqual({math.prod(s) for s in squares}, {7 * 7, 3 * 2 * 7 * 7})
        rows = tensor_table(config(), 7, 3)
        self.assertEqual({math.prod(r["shape"]) for r in rows if r["growth"] == "T^2"}, {7 * 7, 3 * 2 * 7 * 7})
        between = {r["point"]: r["shape"] for r in rows if not r["traced"]}
        self.assertEqual(between, {"mask": [7, 7], "qkv": [3, 7, 24], "mixed": [3, 7, 8], "inner": [3, 7, 32]})
        self.assertLessEqual({tuple(shape) for shape in between.values()}, set(passes[0]))
        largest = max(math.prod(s) for s in passes[0])
        self.assertEqual(largest, max(math.prod(r["shape"]) for r in rows))

    def test_growth(self):
        one, two = ({r["point"]: r for r in tensor_table(config(), t)} for t in (8, 16))
        for point, row in one.items():
            self.assertEqual(two[point]["bytes"] // row["bytes"], {"T": 2, "T^2": 4}[row["growth"]])

    def test_bytes_of_another_dtype(self):
        half = tensor_table(config(), 8, bytes_per_number=2)
        for a, b in zip(half, tensor_table(config(), 8), strict=True):
            self.assertEqual(b["bytes"], a["bytes"] * (1 if a["point"] == "mask" else 2))  # the mask is of float32

    def test_gpt2(self):
        rows = {r["point"]: r for r in tensor_table(load_config("gpt2"), 1024)}
        self.assertEqual((rows["scores"]["bytes"], rows["scores"]["count"]), (12 * 1024**2 * 4, 12))
        self.assertEqual([p for p, r in rows.items() if r["growth"] == "T^2"], ["mask", "scores", "A"])
        self.assertEqual((rows["mask"]["bytes"], rows["mask"]["count"]), (1024**2 * 4, 1))
        for tokens in (0, 1025):
            with self.assertRaisesRegex(BadInput, f"{tokens} tokens"):
                tensor_table(load_config("gpt2"), tokens)


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        value = self.values(main, "--config", self.tiny(), "--tokens", 6)
        self.assertMeasured(value, shapes=measure(config(), 6))
        found = value["shapes"]
        self.assertEqual((found["tokens"], found["half"], found["scores_bytes"]), (6, 3, 2 * 6 * 6 * 4))
        self.assertEqual((found["scores_growth_from_half"], found["hidden_growth_from_half"]), (4, 2))
        rows = {r["tensor"]: r for r in found["tensors"]}
        self.assertEqual(
            rows["hidden"], {"tensor": "hidden", "how_many": 2, "shape": "1 x 6 x 32", "bytes": 768, "grows_with": "T"}
        )

    def test_without_arguments_it_is_gpt2s_full_context(self):
        page = self.page(main)
        for text in ("1,024 tokens", "50,331,648", "50.3 MB"):
            self.assertIn(text, page)
        self.page(main, "--config", "gpt2-xl", "--tokens", 1)

    def test_bad_input(self):
        llama = write_folder(self.folder / "llama", {}, LLAMA)
        self.assertBad(main, ["--tokens", "1025"], "1025 tokens", "1024")
        self.assertBad(main, ["--tokens", "0"], "0 is not 1")
        self.assertBad(main, ["--config", llama], "takes a gpt2", "a llama")
        self.assertBad(main, ["--model", "embedded"], "--model")


if __name__ == "__main__":
    unittest.main()
