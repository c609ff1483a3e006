"""FLOPs per byte, by the rule and counted: small numbers by hand, where the ridge stands, and the script."""

import unittest
from unittest import mock

from examples.ch02.families import formulas
from examples.ch02.model import load_config
from examples.ch11 import intensity as room
from examples.ch11.intensity import COUNTS, accelerators, first_prefix, intensities, main, measure, prefix_at_ridge
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import config

H100 = 989e12 / 3.35e12  # FLOPs a byte, as published: 295
GPT2 = load_config("gpt2")


class Counts(unittest.TestCase):
    def test_the_rule_is_p_in_half_precision_and_half_of_it_in_single(self):
        for tokens in (1, 16, 1024):
            self.assertEqual(intensities(GPT2, tokens)["rule"], tokens)
            self.assertEqual(intensities(GPT2, tokens, number=4)["rule"], tokens / 2)
        self.assertEqual(intensities(GPT2, 1, 1023)["rule"], 1)

    def test_gpt2_by_hand(self):
        """A prompt of 16: 2 FLOPs for each weight of the matrices and each token, and scores of 16 by 16."""
        matrices = 12 * (4 * 768**2 + 8 * 768**2) + 768 * 50257
        read = 124_439_808 - (1024 - 16) * 768 + 16 * 768  # positions that are not reached, and rows of the tied table once more
        scores, cache = 12 * 4 * 768 * 16 * 16, 12 * 2 * 768 * 16
        found = intensities(GPT2, 16)
        self.assertAlmostEqual(found["weights"], 2 * 16 * matrices / (2 * read))
        self.assertAlmostEqual(found["cache"], (2 * 16 * matrices + scores) / (2 * (read + cache)))
        last = 2 * 16 * (matrices - 768 * 50257) + 2 * 768 * 50257 + scores
        self.assertAlmostEqual(found["last"], last / (2 * (read + cache)))
        self.assertLess(found["operands"], found["cache"])

    def test_heads_that_share_keys_earn_more(self):
        """Of what the cache alone earns in decoding: a FLOP a byte where each head has its own keys, h / g where they share."""
        for shape, wanted in (("gpt2", 1), ("llama-2-7b", 1), ("llama-3-8b", 4)):
            of = load_config(shape)
            near, far = (intensities(of, 1, n)["cache"] for n in (0, of.n_positions - 1))
            self.assertEqual(far - near > 0.01, wanted > 1, shape)
            flops = [formulas(of).flops_per_token(of, n)["attention_scores_and_values"] for n in (1, 101)]
            kept = [room.cache_bytes(of, n, 1, 2) for n in (1, 101)]
            self.assertAlmostEqual((flops[1] - flops[0]) / (kept[1] - kept[0]), wanted)

    def test_where_the_ridge_stands(self):
        self.assertEqual((prefix_at_ridge(H100), prefix_at_ridge(5.0, 4)), (H100, 10.0))
        self.assertEqual(first_prefix(GPT2, H100, "rule"), 296)
        self.assertIsNone(first_prefix(GPT2, H100, "operands"))
        for key in COUNTS:
            P = first_prefix(GPT2, 40, key)
            self.assertGreaterEqual(intensities(GPT2, P)[key], 40)
            self.assertLess(intensities(GPT2, P - 1)[key], 40)

    def test_published(self):
        """An H100's ridge is 295, and 16 tokens are far below it."""
        chip = accelerators()["h100"]
        self.assertEqual((chip["flop_per_s"], chip["bytes_per_s"]), (989e12, 3.35e12))
        found = measure(("gpt2",), (1, 16), name="h100")
        self.assertEqual(round(found["ridge_flop_per_byte"]), 295)
        self.assertAlmostEqual(found["share_at_16_percent"], 100 * 16 / H100)
        self.assertEqual([r["tokens"] for r in found["decode"]], [1, 16])
        self.assertEqual(found["ridges"][0]["rule"], 296)
        self.assertLess(found["ridges"][0]["most_of_operands"], H100)

    def test_a_given_ridge(self):
        found = measure(("gpt2",), (16,), ridge=5.0, number=4)
        self.assertEqual((found["machine"], found["ridge_flop_per_byte"], found["prefix_by_the_rule"]), (None, 5.0, 10.0))
        self.assertEqual(found["share_at_16_percent"], 100)  # 8 FLOPs a byte are enough

    def test_bad_input(self):
        with self.assertRaisesRegex(BadInput, "known are h100"):
            measure(name="abacus")
        with self.assertRaisesRegex(BadInput, "n_positions 1024 of gpt2"):
            measure(("gpt2",), (1025,))


class Script(RoomCase):
    def test_json_page_and_figure(self):
        found = measure(("gpt2",), (1, 16), 20.0)
        with mock.patch.object(room, "measure", return_value=found) as measured:
            value = self.values(main, "--config", "gpt2", "--tokens", "1,16", "--ridge", "20", "--bytes", "4")
            self.assertEqual(measured.call_args.args, (("gpt2",), [1, 16], 20.0, "h100", 4))
            self.assertMeasured(value, intensity=found)
            self.assertDraws(lambda argv: main([a for a in argv if a != "--model" and "no-model" not in a]))
            self.assertIn("A machine needs 20 FLOPs a byte", self.page(main))
        self.assertIn("An H100 SXM needs 295 FLOPs a byte", self.page(main, "--config", "embedded"))

    def test_tokens_as_far_as_the_config_reaches(self):
        folder = self.tiny()
        self.assertEqual(config().n_positions, 16)
        value = self.values(main, "--config", folder)["intensity"]
        self.assertEqual([r["tokens"] for r in value["prefill"]], [1, 16])

    def test_bad_arguments(self):
        for argv, words in (
            (["--ridge", "0"], ["'0' is not a number above 0"]),
            (["--ridge", "much"], ["'much' is not a number"]),
            (["--accelerator", "abacus"], ["no accelerator 'abacus'", "h100"]),
            (["--config", "nobody"], ["nobody"]),
            (["--config", "gpt2", "--tokens", "2000"], ["n_positions 1024"]),
            (["--config", "mixtral-8x7b"], ["not counted here"]),
        ):
            self.assertBad(main, argv, *words)


if __name__ == "__main__":
    unittest.main()
