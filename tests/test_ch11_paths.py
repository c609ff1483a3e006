"""The faster paths as models: the same logits where they compute the same, and int8 weights as what they are."""

import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.model import run
from examples.ch03.tokens import random_ids
from examples.ch10.kv_cache import KVCache, forward_cached
from examples.ch11 import compiled_blocks, fused_attention
from examples.ch11.paths import CachedStep, Int8Matrix, in_bfloat16, paths, rounded, widened, with_int8
from examples.lab.experiment import largest
from examples.lab.script import BadInput
from tests.support import llama_model, model, published_fields, slow

MODELS = {
    "gpt2": model(n_positions=64),
    "gpt2, scores by layer": model(n_positions=64, scale_attn_by_inverse_layer_idx=True),
    "llama": llama_model(),
    "llama, biases": llama_model(attention_bias=True, mlp_bias=True),
}


def in_parts(one, ids, sizes):
    """Logits [T, V] of ids [1, T] fed to a cache in parts."""
    cache = KVCache(one, 1, ids.shape[1])
    with torch.inference_mode():
        return torch.cat([forward_cached(part, one, cache)[0] for part in ids.split(sizes, dim=1)])


class Programs(unittest.TestCase):
    def held(self, module, one):
        """The program's logits, whole and through the cache, are the oracle's."""
        other, ids = replace(one, module=module.__name__), random_ids(one, 12)
        oracle = run(one, ids)[0]
        with torch.inference_mode():
            self.assertLessEqual(largest(run(other, ids)[0] - oracle), 1e-5 * largest(oracle))
            open_eyed = run(one, ids, causal=False)[0]
            self.assertLessEqual(largest(run(other, ids, causal=False)[0] - open_eyed), 1e-5 * largest(oracle))
        for sizes in ([12], [5, 1, 1, 4, 1]):
            self.assertLessEqual(largest(in_parts(other, ids, sizes) - oracle), 1e-5 * largest(oracle))

    def test_fused_attention(self):
        for one in MODELS.values():
            self.held(fused_attention, one)

    @slow
    def test_compiled_blocks(self):
        """Of a few positions, of one at two lengths, and of others: each of these is compiled, which takes seconds."""
        for name in ("gpt2", "llama"):
            one = MODELS[name]
            ids = random_ids(one, 8)
            found, oracle = in_parts(replace(one, module=compiled_blocks.__name__), ids, [4, 1, 1, 2]), run(one, ids)[0]
            self.assertLessEqual(largest(found - oracle), 1e-5 * largest(oracle))

    def test_a_wrong_scale_shows(self):
        one, plain = MODELS["llama"], fused_attention.one_operator
        with mock.patch.object(fused_attention, "one_operator", lambda q, k, v, mask, scale: plain(q, k, v, mask, 1.1 * scale)):
            self.assertRaises(AssertionError, self.held, fused_attention, one)

    def test_other_families_are_refused_by_name(self):
        from examples.ch02.model import random_model

        other = random_model(published_fields("gemma"))
        for module in (fused_attention, compiled_blocks):
            with self.assertRaisesRegex(BadInput, "gemma"):
                module.check(other.config)
        with self.assertRaisesRegex(BadInput, "compiled blocks"):  # whose layers are not one computation
            compiled_blocks.check(MODELS["gpt2, scores by layer"].config)

    def test_no_compiler(self):
        with mock.patch("shutil.which", return_value=None), self.assertRaisesRegex(BadInput, "no C\\+\\+ compiler"):
            compiled_blocks.check(MODELS["llama"].config)


class Int8(unittest.TestCase):
    W = torch.tensor([[0.5, -1.27, 0.013], [0.0, 0.0, 0.0], [-254.0, 1.0, 2.0]])

    def test_rows_are_rounded_by_themselves(self):
        numbers, scales = rounded(self.W)
        self.assertEqual(numbers.tolist(), [[50, -127, 1], [0, 0, 0], [-127, 0, 1]])
        self.assertEqual((numbers.dtype, scales.dtype), (torch.int8, torch.float32))
        back = numbers * scales[:, None]
        self.assertTrue(((back - self.W).abs() <= scales[:, None] / 2 + 1e-6).all())  # at most half a step

    def test_products(self):
        """As the dequantised matrix multiplies, on whichever side the model holds it, and for its rows."""
        w, x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)), torch.randn(2, 5, 32)
        numbers, scales = rounded(w)
        back, of = numbers * scales[:, None], {product: Int8Matrix(numbers, scales, product) for product in (widened, in_bfloat16)}
        with mock.patch("examples.ch11.paths.WIDENED", 32 * 7):  # in blocks of 7 rows, the last of 1
            found = x @ of[widened].T
        self.assertEqual(found.shape, (2, 5, 64))
        torch.testing.assert_close(found, x @ back.T, rtol=1e-5, atol=1e-5)
        self.assertLess(largest(x @ of[in_bfloat16].T - x @ back.T), 0.02 * largest(x @ back.T))
        torch.testing.assert_close(x @ Int8Matrix(numbers, scales, widened, turned=True), found, rtol=1e-5, atol=1e-5)
        ids = torch.tensor([[3, 63, 3]])
        torch.testing.assert_close(of[widened][ids], back[ids])
        with self.assertRaisesRegex(BadInput, "int8"):
            torch.randn(4, 64) @ of[widened]

    def test_models(self):
        """The pass on int8 weights is the pass on the same weights, dequantised; gains, biases and positions are left alone."""
        for one in MODELS.values():
            packed, ids = with_int8(one), random_ids(one, 12)
            back = {}
            for name, w in packed.weights.items():
                if isinstance(w, Int8Matrix):
                    matrix = w.numbers * w.scales[:, None]
                    back[name] = matrix.T if w.turned else matrix
                else:
                    self.assertIs(w, one.weights[name])
            plain = run(replace(one, weights=one.weights | back), ids)
            self.assertLess(largest(run(packed, ids) - plain), 1e-5 * largest(plain))
            self.assertGreater(len(back), 2 * 4)
            self.assertEqual(in_parts(packed, ids, [7, 5]).shape, (12, 11))


class Steps(unittest.TestCase):
    def test_the_step(self):
        one = MODELS["llama"]
        ids = random_ids(one, 12)
        oracle, step = run(one, ids)[0], CachedStep(one, 12)
        first = step.step(ids[0, :8])
        step.step(torch.tensor([1, 2]))
        self.assertEqual(step.length, 10)
        step.truncate(8)
        torch.testing.assert_close(torch.cat([first, step.step(ids[0, 8:])]), oracle, rtol=1e-5, atol=1e-5)
        last = CachedStep(one, 12, last_only=True).step(ids[0])
        torch.testing.assert_close(last, oracle[-1:], rtol=1e-5, atol=1e-5)

    def test_what_cannot_run_says_why(self):
        one = MODELS["llama"]
        ways = {way.name: way for way in paths(one)}
        self.assertIs(ways["plain pass"].make(), one)
        with mock.patch("shutil.which", return_value=None), self.assertRaisesRegex(BadInput, "compiler"):
            ways["compiled blocks"].make()
        with self.assertRaisesRegex(BadInput, "multiples of 32, and a matrix has 8"):
            ways["int8, torch's product"].make()
        with mock.patch.object(torch, "_weight_int8pack_mm", create=True):
            del torch._weight_int8pack_mm
            with self.assertRaisesRegex(BadInput, "product of int8"):
                ways["int8, torch's product"].make()


if __name__ == "__main__":
    unittest.main()
