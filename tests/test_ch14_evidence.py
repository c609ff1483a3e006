"""Chapter 14's `exact` and `tolerance` records, measured again; and mutations of the code, each of which breaks one."""

import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.model import smollm2_file
from examples.ch14 import costs as counts
from examples.ch14 import family_agreement as ex
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import serving, variants
from examples.lab.script import BadInput
from scripts.registry import EXPERIMENTS
from tests import records
from tests.support import slow

RECORDS = records.of("ch14")
MODEL_OF = {e.id: e.model for e in EXPERIMENTS}


def installed():
    """Whether the package that carries SmolLM2 is there."""
    try:
        smollm2_file()
    except BadInput:
        return False
    return True


def setUpModule():
    torch.set_num_threads(2)


@slow
class MeasuredAgain(records.MeasuredAgain, unittest.TestCase):
    chapter, exact, tolerance = "ch14", 5, 3

    def ids(self, kind):
        """Those on the real model only where it is."""
        return [id for id in super().ids(kind) if installed() or MODEL_OF[id] != "smollm2"]

    def test_what_the_records_say(self):
        values = {id: record["values"] for id, record in RECORDS.items()}
        self.assertEqual(values["ch14.mask"]["influence_above_diagonal"], 0)
        families = values["ch14.families"]
        self.assertEqual((families["model_types"], families["options_verified"], families["options"]), (14, 30, 30))
        self.assertEqual((families["same_argmax"], families["influence_above_diagonal"]), (families["positions"], 0))
        counted = {r["model"]: r for r in values["ch14.counts"]["models"]}
        self.assertTrue(all(r["same"] for r in counted.values()))
        for model, parameters in (("mixtral-8x7b", 46702792704), ("deepseek-v3", 671026404352), ("gemma-2-9b", 9241705984)):
            self.assertEqual(counted[model]["parameters"], parameters)
        self.assertEqual(counted["mixtral-8x7b"]["active"], 12879925248)
        trace = values["ch14.trace"]
        self.assertEqual((trace["gflop"], trace["weight_gb"], trace["cache_gb"]), (16.06, 15.01, 0.262))
        self.assertEqual((trace["memory_ms"], trace["large_cache_gb"], trace["append_bytes_per_layer"]), (4.56, 274.9, 4096))
        windows = values["ch14.windows"]
        self.assertEqual((windows["mistral_times"], windows["reach_as_the_formula"]), (8.0, True))
        costs = values["ch14.costs"]
        self.assertEqual(
            (costs["cheapest"], costs["smallest"], costs["cheapest_is_smallest"]), ("gemma-3-1b", "smollm2-135m", False)
        )
        self.assertEqual([r["choice"] for r in values["ch14.effects"]["ranking"]][:3], ["attention", "feed-forward", "window"])
        agreement = values["ch14.agreement"]
        self.assertEqual((agreement["greedy_same"], agreement["longest"], agreement["bound"]), (40, 2048, 1e-4))
        self.assertEqual(agreement["same_argmax"], agreement["positions"])
        names = [r["name"] for r in values["ch14.ablations-llama"]["rows"]]
        self.assertEqual([n for n in names if n.startswith("rope_theta")], ["rope_theta 10,000", "rope_theta 1,000,000"])


@slow
class Mutations(unittest.TestCase):
    """Each fault, planted in the code, makes a record fail to come out again."""

    def assertBreaks(self, id, module, name, wrong):
        with mock.patch.object(module, name, wrong):
            self.assertNotEqual(records.without_worst(records.again(id)), records.without_worst(RECORDS[id]["values"]))

    def test_a_window_that_leaves_the_query_out(self):
        right = variants.windowed
        wrong = lambda mask, back, window: right(mask, back, window and window + 1)  # noqa: E731
        self.assertBreaks("ch14.windows", variants, "windowed", wrong)
        self.assertBreaks("ch14.families", variants, "windowed", wrong)

    def test_the_other_rotation(self):
        self.assertBreaks("ch14.families", llama, "rotate", llama.rotate_interleaved)

    def test_queries_counted_as_keys(self):
        right = serving.cached_numbers
        wrong = lambda c, form="absorbed": right(replace(c, kv_heads=c.n_head), form)  # noqa: E731
        for id in ("ch14.trace", "ch14.costs"):
            self.assertBreaks(id, serving, "cached_numbers", wrong)

    def test_the_router_forgotten(self):
        right = counts.feed_forward_matrices
        wrong = lambda c, layer, active: right(c, layer, active) - (c.experts.count * c.n_embd if c.experts else 0)  # noqa: E731
        self.assertBreaks("ch14.counts", counts, "feed_forward_matrices", wrong)

    def test_an_option_that_changes_nothing(self):
        same = [(choice, option, {} if option == "MQA" else changes) for choice, option, changes in ex.OPTIONS]
        with mock.patch.object(ex, "OPTIONS", same), self.assertRaises(AssertionError):
            records.again("ch14.effects")

    @slow
    @unittest.skipUnless(installed(), "SmolLM2's package is not installed")
    def test_a_mask_one_too_far(self):
        right = torch.Tensor.triu
        wrong = lambda x, diagonal=0: right(x, diagonal + 1)  # noqa: E731
        self.assertBreaks("ch14.mask", torch.Tensor, "triu", wrong)


if __name__ == "__main__":
    unittest.main()
