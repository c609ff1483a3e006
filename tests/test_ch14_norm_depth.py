"""Chapter 14's comparison of where the norms stand: norms counted, gradients as autograd and finite differences have them, the
script and its figure."""

import math
import unittest
from unittest import mock

import torch

from examples.ch02.model import run
from examples.ch03.tokens import random_ids
from examples.ch14 import norm_depth, variants
from examples.ch14.norm_depth import depth_config, depth_row, measure, norms_on_the_path, small_model
from examples.lab.script import finite, parse_json
from tests.support import FolderCase, call


def setUpModule():
    torch.set_num_threads(1)


class Models(unittest.TestCase):
    def test_norms_on_the_path(self):
        self.assertEqual([norms_on_the_path(depth_config(place, 6)) for place in norm_depth.PLACES], [1, 12, 1])

    def test_norms_of_a_pass(self):
        right = variants.norm
        for place in norm_depth.PLACES:
            model, called = small_model(depth_config(place, 3)), []

            def counted(x, weights, name, config, called=called):
                called += [] if name is None else [name]
                return right(x, weights, name, config)

            with mock.patch.object(variants, "norm", counted):
                run(model, random_ids(model, 5))
            self.assertEqual(len(called), {"pre": 2 * 3 + 1, "post": 2 * 3, "both": 4 * 3 + 1}[place])

    def test_matrices_keep_the_size_of_a_vector(self):
        model = small_model(depth_config("pre", 2, width=256))
        x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
        for name, w in model.weights.items():
            if w.ndim == 2 and w.shape[1] == 256 and "embed" not in name:
                self.assertAlmostEqual((x @ w.T).square().mean().sqrt().item(), 1.0, delta=0.05)

    def test_the_seed_reaches_the_weights(self):
        a, b, c = (small_model(depth_config("pre", 1), seed).token_table for seed in (0, 0, 1))
        self.assertTrue(torch.equal(a, b))
        self.assertFalse(torch.equal(a, c))


class Rows(unittest.TestCase):
    def test_a_row(self):
        for place in norm_depth.PLACES:
            row = depth_row(place, 4, seeds=(0,))
            self.assertTrue(all(math.isfinite(row[k]) and row[k] > 0 for k in ("growth", "gradient", "last_gradient")))
        post = [depth_row("post", n, seeds=(0,))["growth"] for n in (2, 8)]
        self.assertAlmostEqual(*post, places=3)  # it is normalised every time
        self.assertGreater(depth_row("pre", 8, seeds=(0,))["growth"], depth_row("pre", 2, seeds=(0,))["growth"])

    def test_a_row_by_hand(self):
        model, streams = small_model(depth_config("pre", 3), 4), []
        ids, matrix = random_ids(model, 33, seed=4), model.weights["model.layers.2.mlp.down_proj.weight"].requires_grad_()
        model.token_table.requires_grad_()
        keep = lambda point, layer, x: streams.append(x) if point in ("embedding", "residual") else None  # noqa: E731
        logits = run(model, ids[:, :-1], trace=keep)
        loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])
        at_embedding, in_last = torch.autograd.grad(loss, (streams[0], matrix))
        row = depth_row("pre", 3, seeds=(4,))
        self.assertAlmostEqual(row["gradient"], at_embedding.square().sum().sqrt().item(), places=5)
        self.assertAlmostEqual(row["last_gradient"], in_last.square().sum().sqrt().item(), places=5)
        self.assertAlmostEqual(row["growth"], (streams[-1].norm() / streams[0].norm()).item(), places=4)
        self.assertAlmostEqual(streams[0].square().mean().sqrt().item(), 1.0, places=1)

    def test_the_gradient_is_that_of_a_finite_difference(self):
        model = small_model(depth_config("pre", 2)).to(dtype=torch.float64)
        ids = random_ids(model, 9)

        def loss():
            logits = run(model, ids[:, :-1])
            return torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])

        matrix = model.weights["model.layers.1.mlp.down_proj.weight"].requires_grad_()
        loss().backward()
        with torch.no_grad():
            matrix[3, 5] += 1e-6
            up = loss()
            matrix[3, 5] -= 2e-6
            self.assertAlmostEqual(((up - loss()) / 2e-6).item(), matrix.grad[3, 5].item(), places=6)

    def test_a_median_over_the_seeds(self):
        alone = [depth_row("both", 2, seeds=(s,)) for s in (5, 6, 7)]
        row = depth_row("both", 2, seeds=(5, 6, 7))
        for key in ("growth", "gradient", "last_gradient"):
            self.assertEqual(row[key], sorted(r[key] for r in alone)[1])


class Measured(unittest.TestCase):
    def test_the_values_beside_the_rows(self):
        calls = []
        found = measure(layers=(2, 3, 5), seeds=2, seed=7, progress=lambda: calls.append(1))
        self.assertEqual((len(calls), found["seeds"], len(found["rows"])), (18, 2, 9))
        by = {(r["norm_place"], r["layers"]): r for r in found["rows"]}
        self.assertEqual(by["post", 3], depth_row("post", 3, (7, 8)))
        self.assertEqual((found["pre_growth_2"], found["pre_growth_5"]), (by["pre", 2]["growth"], by["pre", 5]["growth"]))
        self.assertEqual((found["post_growth"], found["post_last_2"]), (by["post", 5]["growth"], by["post", 2]["last_gradient"]))
        self.assertEqual((found["pre_last_5"], found["post_last_5"]), tuple(by[p, 5]["last_gradient"] for p in ("pre", "post")))
        for place in ("pre", "post"):
            gradients = sorted(by[place, n]["gradient"] for n in (2, 3, 5))
            self.assertEqual(
                (found[f"{place}_gradient_smallest"], found[f"{place}_gradient_largest"]), (gradients[0], gradients[2])
            )


class Script(FolderCase):
    QUICK = ("--layers", "2,4", "--seeds", "1")

    def test_text_json_and_figure(self):
        status, out, err = call(norm_depth.main, *self.QUICK, "--plot", self.folder / "d.svg")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^post +4 +8 ")
        self.assertTrue((self.folder / "d.svg").read_bytes().startswith(b"<?xml"))
        value = parse_json(call(norm_depth.main, *self.QUICK, "--json")[1])
        self.assertEqual(value["depth"], finite(measure((2, 4), 1)))
        self.assertEqual((value["ran_with"]["layers"], value["ran_with"]["seeds"]), ([2, 4], 1))

    def test_bad_input(self):
        for argv, words in (
            (("--plot", "x.txt"), ".svg"),
            (("--layers", "0"), "1 or more"),
            (("--layers", "2,x"), "whole number"),
            (("--seeds", "0"), "1 to 1000"),
            (("more",), "unknown: more"),
        ):
            self.assertBad(norm_depth.main, argv, words)


if __name__ == "__main__":
    unittest.main()
