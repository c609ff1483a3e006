"""Chapter 14's latent attention: both forms one function, their counts by hand, and a fault that parts them."""

import unittest
from unittest import mock

import torch

from examples.ch14 import latent_attention, variants
from tests.rooms import RoomCase


def setUpModule():
    torch.set_num_threads(1)


class Latent(RoomCase):
    def test_counts_by_hand(self):
        """DeepSeek-V3: 61 layers, 128 heads, rank 512, 64 turned, 128 without position, values of 128."""
        found = latent_attention.measure()
        kept = {r["form"]: r for r in found["forms"]}
        self.assertEqual(kept["absorbed"]["numbers_per_layer"], 512 + 64)
        self.assertEqual(kept["expanded"]["numbers_per_layer"], 128 * (128 + 64 + 128))
        self.assertEqual(kept["absorbed"]["kv_bytes_per_token"], 61 * 2 * 576)
        self.assertAlmostEqual(found["cache_ratio"], 128 * 320 / 576)
        self.assertTrue(found["held"])

    def test_a_fault_in_one_form(self):
        right = variants.absorbed_attention

        def early(x, weights, config, layer, at, *rest):
            return right(x, weights, config, layer, (at - 1).clamp(min=0), *rest)

        with mock.patch.object(variants, "absorbed_attention", early):
            self.assertFalse(latent_attention.measure()["held"])

    def test_the_script(self):
        value = self.values(latent_attention.main, "--context", "100")
        self.assertMeasured(value, latent=latent_attention.measure(100))
        self.assertIn("71.1 times smaller", self.page(latent_attention.main))

    def test_bad_input(self):
        for context, words in (("0", "0 is not 1 or more"), ("10000000", "positions; give fewer")):
            self.assertBad(latent_attention.main, ["--context", context], words)


if __name__ == "__main__":
    unittest.main()
