"""Attention taken apart: that each way computes chapter 4's attention, that the causes add up, and what the verdict rests on."""

import json
import unittest
from pathlib import Path
from unittest import mock

import torch

from examples.ch02.model import Model
from examples.ch04.gpt2_from_scratch import attention, attention_scale, causal_mask, linear, no_trace
from examples.ch11 import attention_traffic
from examples.ch11.attention_traffic import fit, fits, measure, one_length, report, sentences
from examples.ch11.attention_ways import InBlocks, Kept, hide, new_scores, on_block, plain, ways
from examples.ch11.verdicts import share, verdict
from tests.support import FolderCase, call, config, weights, write_folder

CONFIG = config(n_positions=256)
MODEL = Model(CONFIG, weights(CONFIG))  # 2 heads of 4


def setUpModule():
    torch.set_num_threads(1)


def one_layer(T, batch=1):
    """(what chapter 4's attention adds, q, k, v, scale, mask) of layer 0 for random inputs."""
    x, mask = torch.randn(batch, T, 8, generator=torch.Generator().manual_seed(1)), causal_mask(T, T)
    qkv = linear(x, MODEL.weights, "h.0.attn.c_attn")
    q, k, v = qkv.view(batch, T, 3, 2, 4).permute(2, 0, 3, 1, 4)
    return attention(x, MODEL.weights, CONFIG, 0, mask, no_trace), q, k, v, attention_scale(CONFIG, 0), mask


def projected(mixed):
    return linear(mixed, MODEL.weights, "h.0.attn.c_proj")


class Ways(unittest.TestCase):
    def test_each_is_chapter_4s_attention(self):
        for T, batch in ((1, 1), (16, 2), (100, 1), (130, 2)):  # less than a block, and blocks that do not fill the last
            expected, *parts = one_layer(T, batch)
            for name, way in ways(parts[0]).items():
                with self.subTest(name, T=T):
                    torch.testing.assert_close(projected(way(*parts)), expected, rtol=0, atol=1e-5)
            self.assertTrue(torch.equal(projected(plain(*parts)), expected))

    def test_a_wrong_block_is_seen(self):
        expected, q, k, v, scale, mask = one_layer(130)
        shifted = mask.roll(1, dims=0)  # as if the second block's queries began a position earlier
        for way in (InBlocks(q), Kept(q)):
            self.assertGreater((projected(way(q, k, v, scale, shifted)) - expected).abs().max(), 1e-3)

    def test_memory_is_kept(self):
        _, q, k, _, scale, mask = one_layer(16)
        kept = Kept(q)
        places = [t.data_ptr() for t in (kept.scores, kept.A)]
        scores = kept.new_scores(q, k, scale)
        hide(scores, mask)
        self.assertEqual([scores.data_ptr(), kept.softmax(scores).data_ptr()], places)

    def test_a_block_does_the_arithmetic_of_its_rows(self):
        """All of h T queries, a block at a time: 2 heads of 128 in blocks of 64 are 4 calls, of which each has the true results."""
        _, q, k, v, scale, mask = one_layer(128)
        scores = new_scores(q, k, scale)
        hide(scores, mask)
        A = torch.softmax(scores, dim=-1)
        found, mm, softmax = {"mm": [], "softmax": []}, torch.mm, torch.softmax
        calls, over = on_block(q, k, v, scale, mask)
        with (
            mock.patch.object(torch, "mm", lambda *a, **o: found["mm"].append(mm(*a, **o)) or found["mm"][-1]),
            mock.patch.object(torch, "softmax", lambda *a, **o: found["softmax"].append(softmax(*a, **o)) or found["softmax"][-1]),
        ):
            for name in ("mask", "softmax", "values"):
                calls[name]()
        self.assertEqual((len(found["softmax"]), len(found["mm"]), over), (4, 4, 1))
        self.assertEqual(on_block(*one_layer(100)[1:])[1], 200 / 192)  # 3 blocks of 64 for 200 queries
        torch.testing.assert_close(found["softmax"][-1], A[0, 0, 32:96])
        torch.testing.assert_close(found["mm"][-1], (A @ v)[0, 0, 32:96])


def seconds_of(fresh, kept, cached, projections=1e-4):
    """An `in_turns` in which every piece takes so long, in seconds, with fresh memory, with kept memory and in the cache."""
    kinds = {"fresh": fresh, "kept": kept, "cached": cached, "way": fresh}
    return lambda calls, *_: {n: kinds[n[0]] if isinstance(n, tuple) else projections for n in calls}


class Causes(unittest.TestCase):
    def taken_apart(self, **seconds):
        with mock.patch.object(attention_traffic, "in_turns", seconds_of(**seconds)):
            return measure(MODEL, [16], runs=1)

    def test_they_add_up_to_the_excess(self):
        v = self.taken_apart(fresh=4e-3, kept=3e-3, cached=1e-3)
        (row,) = v["lengths"]
        own = 1e-4 * (4 * 8 * 16 * 16) / (8 * 8 * 8 * 16)  # the projections' seconds, by FLOPs
        self.assertAlmostEqual(row["excess_ms"], 1e3 * (4 * 4e-3 - own))
        parts = [row[f"{name}_ms"] for name in attention_traffic.CAUSES]
        for part, expected in zip(parts, (4, 8, 2, 2 - 1e3 * own), strict=True):
            self.assertAlmostEqual(part, expected)
        self.assertAlmostEqual(sum(parts), row["excess_ms"])
        self.assertAlmostEqual(sum(row[f"{name}_percent"] for name in attention_traffic.CAUSES), 100)
        self.assertAlmostEqual(v["traffic_percent"], 100 * 8 / row["excess_ms"])

    def test_the_verdict_follows_the_traffic(self):
        for seconds, expected, words in (
            (dict(fresh=4e-3, kept=4e-3, cached=1e-4), "supported", "is memory traffic is supported; its"),
            (
                dict(fresh=4e-3, kept=2e-3, cached=5e-4),
                "supported in part",
                "supported in part; its largest part is\n  memory that",
            ),
            (dict(fresh=9e-3, kept=1e-3, cached=9e-4), "refuted", "refuted; its largest part is\n  memory that the system"),
            (dict(fresh=2e-3, kept=2e-3, cached=2e-3), "refuted", "refuted; its largest part is"),
        ):
            v = self.taken_apart(**seconds)
            self.assertEqual(v["verdict"], expected, seconds)
            self.assertIn(words, sentences(v)[-1])

    def test_without_an_excess_there_is_nothing_to_explain(self):
        v = self.taken_apart(fresh=1e-6, kept=1e-6, cached=1e-6, projections=1.0)
        self.assertEqual((v["verdict"], v["main_cause"], v["traffic_percent"]), ("nothing to explain", None, None))
        self.assertIn("no excess", report({"attention": v}))

    def test_a_clock_of_our_own(self):
        """Each reading of the clock is a second after the one before, so that every call takes one."""
        now = [0]

        def timer():
            now[0] += 1
            return now[0]

        row, pieces, times = one_length(MODEL, 16, runs=2, timer=timer)
        self.assertEqual((row["quadratic_ms"], row["linear_ms"], row["attention_ms"]), (4000, 1000, 1000))
        self.assertEqual({p[f"{kind}_ms"] for p in pieces for kind in ("kept", "cached")}, {1000})
        self.assertEqual({w["ms"] for w in times}, {1000})

    def test_a_way_that_differs_is_not_timed(self):
        def wrong(q, k, v, scale, mask):
            return plain(q, k, v, 1.01 * scale, mask)

        with mock.patch.object(attention_traffic, "ways", return_value={"plain": plain, "wrong": wrong}):
            v = measure(MODEL, [16], runs=1)
        right, other = v["ways"]
        self.assertEqual((right["relative_difference"], other["ms"], other["plain_over_it"]), (0, None, None))
        self.assertGreater(other["relative_difference"], v["within"])
        self.assertIn("not timed", report({"attention": v}))

    def test_shares(self):
        self.assertEqual(
            [verdict(p) for p in (50, 49.9, 20, 19.9, -5)], ["supported", *["supported in part"] * 2, *["refuted"] * 2]
        )
        self.assertEqual((share(1, 4), share(1, 0), share(1, -1)), (25, None, None))


class Fit(unittest.TestCase):
    def test_it_finds_the_parts(self):
        tokens = [64, 128, 256, 512, 1024]
        for found, expected in zip(fit(tokens, [3 + 0.5 * t + 0.01 * t * t for t in tokens]), (3, 0.5, 0.01), strict=True):
            self.assertAlmostEqual(found, expected)
        self.assertIsNone(fit([1, 2, 3], [1, 2, 3]))

    def test_a_step_at_the_longest_shows(self):
        rows = [{"tokens": t, "attention_ms": 0.5 * t + 0.01 * t * t, "faults": 0} for t in (64, 128, 256, 512, 1024)]
        rows[-1] |= {"faults": 9, "attention_ms": 2 * rows[-1]["attention_ms"]}
        everything, below = fits(rows, 8)
        self.assertAlmostEqual(below["measured_over_fit"], 2)
        self.assertAlmostEqual(below["linear_ms"], 512)
        self.assertLess(everything["measured_over_fit"], 2)


class Script(FolderCase):
    def test_on_a_tiny_model(self):
        folder, plot = write_folder(self.folder / "m"), self.folder / "a.svg"
        status, out, _ = call(attention_traffic.main, "--model", folder, "--runs", "1", "--plot", plot)
        self.assertEqual(status, 0)
        self.assertIn("fresh memory", out)
        self.assertIn("plain", Path(plot).read_text())
        status, out, _ = call(attention_traffic.main, "--model", folder, "--runs", "1", "--tokens", "8,16", "--json")
        self.assertEqual([r["tokens"] for r in json.loads(out)["attention"]["lengths"]], [8, 16])

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        self.assertBad(attention_traffic.main, ["--model", folder, "--tokens", "17"], "n_positions")
        self.assertBad(attention_traffic.main, ["--model", "random:tiny-llama"], "gpt2")


if __name__ == "__main__":
    unittest.main()
