"""Chapter 4's test double: shapes, the causal property, counts; and the oracle's blocks that act on each position alone."""

import math
import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import tiny_transformer as tiny
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import config, weights

CONFIG = tiny.TinyConfig()
WEIGHTS = tiny.make_weights(CONFIG)
IDS = torch.randint(CONFIG.vocab_size, (2, 8), generator=torch.Generator().manual_seed(1))


class Tiny(unittest.TestCase):
    def test_shapes_and_bytes(self):
        rows = tiny.shape_report(CONFIG, WEIGHTS, IDS)
        of = {r["point"]: r["shape"] for r in rows}
        B, T, d, h = 2, 8, CONFIG.n_embd, CONFIG.n_head
        self.assertEqual(of["embedding"], [B, T, d])
        self.assertEqual(of["qkv"], [B, T, 3 * d])
        self.assertEqual(of["scores of a head"], [B, T, T])
        self.assertEqual(of["hidden"], [B, T, 4 * d])
        self.assertEqual(of["logits"], [B, T, CONFIG.vocab_size])
        self.assertEqual(sum(r["point"] == "scores of a head" for r in rows), CONFIG.n_layer * h)
        for r in rows:
            self.assertEqual(r["bytes"], 4 * torch.Size(r["shape"]).numel())

    def test_causal_exactly(self):
        for layers in (1, 2, 5):
            deep = replace(CONFIG, n_layer=layers)
            found = tiny.causal_check(deep, tiny.make_weights(deep), IDS)
            self.assertEqual(found["earlier"], 0.0)
            self.assertGreater(found["last"], 0.1)
        self.assertGreater(tiny.causal_check(CONFIG, WEIGHTS, IDS, causal=False)["earlier"], 0.01)

    def test_counts(self):
        for row in tiny.count_depths(CONFIG):
            self.assertEqual(row["formula"], row["counted"])
        self.assertEqual([r["layers"] for r in tiny.count_depths(CONFIG)], list(tiny.DEPTHS))
        for change in (dict(n_embd=8), dict(vocab_size=7), dict(n_positions=3), dict(n_head=1)):
            other = replace(CONFIG, **change)
            self.assertEqual(sum(w.numel() for w in tiny.make_weights(other).values()), tiny.parameter_count(other))

    def test_the_block_is_what_it_says(self):
        """The double is GPT-2 with no attention bias and the exact GELU: the oracle with such weights gives the same logits."""
        named = {}
        for name, w in WEIGHTS.items():
            name = name.replace("attn.qkv", "attn.c_attn").replace("attn.out", "attn.c_proj")
            named[name.replace("mlp.up", "mlp.c_fc").replace("mlp.down", "mlp.c_proj")] = w
        d = CONFIG.n_embd
        for i in range(CONFIG.n_layer):
            named |= {f"h.{i}.attn.c_attn.bias": torch.zeros(3 * d), f"h.{i}.attn.c_proj.bias": torch.zeros(d)}
        sizes = dict(vocab_size=CONFIG.vocab_size, n_positions=CONFIG.n_positions, n_embd=d)
        same = config(**sizes, n_layer=CONFIG.n_layer, n_head=CONFIG.n_head, activation_function="gelu")
        torch.testing.assert_close(tiny.forward(IDS, WEIGHTS, CONFIG), gpt2.forward(IDS, named, same), atol=1e-5, rtol=0)
        other = replace(same, activation_function="gelu_new")
        self.assertGreater((tiny.forward(IDS, WEIGHTS, CONFIG) - gpt2.forward(IDS, named, other)).abs().max().item(), 1e-5)

    def test_each_traced_tensor_is_what_it_says(self):
        kept = {}
        tiny.forward(IDS, WEIGHTS, CONFIG, trace=lambda p, i, x: kept.setdefault((p, i), x))
        stream = kept["embedding", None]
        for i in range(CONFIG.n_layer):
            stream = stream + kept["attention", i] + kept["mlp", i]
            torch.testing.assert_close(stream, kept["residual", i], atol=1e-6, rtol=0)

    def test_both_changes_of_the_check(self):
        other = IDS.clone()
        other[:, -1] = (IDS[:, -1] + 1) % CONFIG.vocab_size
        change = (tiny.forward(IDS, WEIGHTS, CONFIG, False) - tiny.forward(other, WEIGHTS, CONFIG, False)).abs()
        found = tiny.causal_check(CONFIG, WEIGHTS, IDS, causal=False)
        self.assertEqual((found["earlier"], found["last"]), (change[:, :-1].max().item(), change[:, -1].max().item()))

    def test_bad_ids(self):
        for ids in (torch.zeros(1, 17, dtype=torch.int64), torch.tensor([[50]]), torch.zeros(3, dtype=torch.int64)):
            with self.assertRaises(BadInput):
                tiny.forward(ids, WEIGHTS, CONFIG)

    def test_a_mask_off_by_one_is_told(self):
        with mock.patch.object(tiny, "causal_mask", lambda T, S: torch.full((T, S), -math.inf).triu(2)):
            self.assertGreater(tiny.causal_check(CONFIG, WEIGHTS, IDS)["earlier"], 0.01)
            found = tiny.measure()
        self.assertGreater(found["largest_earlier_change"], 0.01)

    def test_a_wrong_count_is_told(self):
        right = tiny.parameter_count
        with mock.patch.object(tiny, "parameter_count", lambda config: right(config) - config.n_embd):
            self.assertFalse(tiny.measure()["all_equal"])
        with mock.patch.object(tiny, "parameter_count", lambda config: right(config) - (config.n_layer == 4)):
            self.assertFalse(tiny.measure()["all_equal"])  # wrong at one depth alone


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        found = tiny.measure(replace(CONFIG, n_layer=3), 5, seed=4)
        value = self.values(tiny.main, "--layers", 3, "--tokens", 5, "--seed", 4)
        self.assertMeasured(value, tiny=found)
        self.assertEqual((found["config"]["n_layer"], found["tokens"]), (3, 5))
        self.assertEqual((found["largest_earlier_change"], found["with_mask"]["earlier"]), (0.0, 0.0))
        self.assertTrue(found["changes_without_mask"] and found["all_equal"])
        self.assertEqual([r["layers"] for r in found["depths"]], list(tiny.DEPTHS))

    def test_the_seed_reaches_the_weights(self):
        one, again, two = (self.values(tiny.main, "--seed", seed)["tiny"] for seed in (0, 0, 1))
        self.assertEqual(one, again)
        self.assertNotEqual(one["without_mask"], two["without_mask"])

    def test_pages_say_what_holds(self):
        self.assertIn("no position hears a later one;\nand the formula counts every parameter", self.page(tiny.main))
        self.page(tiny.main, "--tokens", 16, "--layers", 1)
        right = tiny.parameter_count
        with mock.patch.object(tiny, "parameter_count", lambda config: right(config) + 1):
            self.assertIn("does NOT count every parameter", self.page(tiny.main))

    def test_bad_input(self):
        self.assertBad(tiny.main, ["--tokens", "17"], "17", "n_positions 16")
        self.assertBad(tiny.main, ["--tokens", "1"], "1 is not 2 or more")
        self.assertBad(tiny.main, ["--layers", "0"], "0 is not 1 to 64")


class OnlyAttentionMixesPositions(unittest.TestCase):
    """Run alone, each part gives a position the same bits whatever its neighbours are; attention does not.

    Both inputs have the same shape, so a position keeps its place in every sum, and bits can be compared.
    """

    def setUp(self):
        self.config, self.weights = config(), weights()
        stream = torch.Generator().manual_seed(3)
        self.x = torch.randn(1, 8, 8, generator=stream)
        self.other = torch.randn(1, 8, 8, generator=stream)
        self.other[0, 4] = self.x[0, 4]  # one position in common

    def same_at_4(self, part):
        return torch.equal(part(self.x)[0, 4], part(self.other)[0, 4])

    def test_norm_and_feed_forward_do_not(self):
        self.assertTrue(self.same_at_4(lambda x: gpt2.layer_norm(x, self.weights, "ln_f", self.config)))
        self.assertTrue(self.same_at_4(lambda x: gpt2.mlp(x, self.weights, self.config, 0, gpt2.no_trace)))

    def test_the_embedding_does_not(self):
        kept = []
        for ids in ([[1, 2, 3, 4, 5]], [[9, 9, 3, 9, 9]]):
            gpt2.forward(
                torch.tensor(ids), self.weights, self.config, trace=lambda p, i, x: kept.append(x) if p == "embedding" else 0
            )
        self.assertTrue(torch.equal(kept[0][0, 2], kept[1][0, 2]))
        self.assertFalse(torch.equal(kept[0][0, 3], kept[1][0, 3]))

    def test_attention_does(self):
        for mask in (None, gpt2.causal_mask(8, 8)):
            part = lambda x, mask=mask: gpt2.attention(x, self.weights, self.config, 0, mask, gpt2.no_trace)  # noqa: E731
            self.assertFalse(self.same_at_4(part))

    def test_position_0_sees_only_itself(self):
        """With the mask, position 0 has one visible position, so there attention does not mix either."""
        self.other[0, 0] = self.x[0, 0]
        mask = gpt2.causal_mask(8, 8)
        a, b = (gpt2.attention(x, self.weights, self.config, 0, mask, gpt2.no_trace) for x in (self.x, self.other))
        self.assertTrue(torch.equal(a[0, 0], b[0, 0]))


if __name__ == "__main__":
    unittest.main()
