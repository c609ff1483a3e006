"""Chapter 4's `exact` and `tolerance` records, measured again; and mutations of the code, each of which breaks one."""

import unittest
from unittest import mock

import torch

from examples.ch04 import gpt2_from_scratch as gpt2
from scripts import compare_published, evidence
from scripts.registry import measure_by_id
from tests import records
from tests.faults import epsilon, head_order, shifted_mask
from tests.standin_hub import COMMIT, StandInHub, needs_loopback
from tests.support import FolderCase, call, slow

RECORDS = records.of("ch04")
RIGHT_COUNT = gpt2.parameter_count


def setUpModule():
    torch.set_num_threads(2)


@slow
class MeasuredAgain(records.MeasuredAgain, unittest.TestCase):
    chapter, exact, tolerance = "ch04", 6, 4

    def test_what_the_records_say(self):
        """What the manuscript builds on, apart from being the same again."""
        counts, flops = RECORDS["ch04.counts"]["values"], RECORDS["ch04.flops"]["values"]
        self.assertEqual(counts["total"], counts["tensor_table_total"])
        self.assertEqual(flops["embedded_pass_of_64_by_formula"], flops["embedded_pass_of_64_counted"])
        masked = RECORDS["ch04.mask"]["values"]
        zeros = [masked[key] for key in masked if key.endswith(("above_diagonal", "change"))]
        self.assertEqual((zeros, masked["earlier_predictions_rewritten"]), ([0.0] * 6, 0))
        mixing = RECORDS["ch04.mixing"]["values"]
        self.assertEqual([k for k, v in mixing.items() if not v], ["attention_keeps_the_bits"])
        self.assertTrue(RECORDS["ch04.tiny"]["values"]["all_equal"])


@slow
class Mutations(unittest.TestCase):
    """Each fault, planted in the code, makes a record fail to come out again."""

    def assertBreaks(self, id, name, wrong):
        with mock.patch.object(gpt2, name, wrong):
            self.assertNotEqual(records.without_worst(records.again(id)), records.without_worst(RECORDS[id]["values"]))

    def test_the_mask_off_by_one(self):
        self.assertBreaks("ch04.mask", "attention", shifted_mask(2))

    def test_another_epsilon(self):
        for id in ("ch04.agreement", "ch04.layers"):
            self.assertBreaks(id, "layer_norm", epsilon)

    def test_heads_in_another_order(self):
        for id in ("ch04.agreement", "ch04.layers"):
            self.assertBreaks(id, "attention", head_order)

    def test_a_bias_left_out_of_the_count(self):
        def count(config):
            parts = RIGHT_COUNT(config)
            short = config.n_layer * config.n_embd
            return parts | {"attention": parts["attention"] - short, "total": parts["total"] - short}

        self.assertBreaks("ch04.counts", "parameter_count", count)

    def test_flops_of_half_a_multiply_add(self):
        right = gpt2.flops_per_token
        self.assertBreaks("ch04.flops", "flops_per_token", lambda c, n: {k: v // 2 for k, v in right(c, n).items()})


@slow
class FirstEdition(FolderCase):
    def entries(self):
        return evidence.read_json(compare_published.PUBLISHED)["entries"]

    def test_what_follows_from_the_config_is_the_same(self):
        rows = {
            r["id"]: r
            for r in compare_published.compare([e for e in self.entries() if e["needs"] == "config"], compare_published.recompute())
        }
        self.assertGreaterEqual(len(rows), 13)
        for row in rows.values():
            self.assertEqual(row["verdict"], "same", row)
        wrong = [e | {"value": e["value"] + 1} for e in self.entries() if e["needs"] == "config"]
        for row in compare_published.compare(wrong, compare_published.recompute()):
            self.assertEqual(row["verdict"], "different", row)

    def test_verdicts(self):
        def verdict(how, value, measured, **more):
            return compare_published.verdict({"id": "x", "verdict_by": how, "value": value, **more}, measured)[0]

        self.assertEqual(verdict("equal", 3, 3), "same")
        self.assertEqual(verdict("equal", 3, 4), "different")
        self.assertEqual(verdict("rounds_to", 50.3, 50.33, bound=1), "same")
        self.assertEqual(verdict("rounds_to", 50.3, 50.36, bound=1), "different")
        self.assertEqual(verdict("at_most", 1e-4, 9e-5), "within stated bounds")
        self.assertEqual(verdict("at_most", 1e-4, 2e-4), "different")
        self.assertEqual(verdict("at_least", 1000, 3000), "within stated bounds")
        self.assertEqual(verdict("at_least", 1000, 10), "different")
        self.assertEqual([verdict(how, 1, 1) for how in ("machine", "prompt")], ["not comparable"] * 2)
        self.assertEqual(verdict("equal", 1, None), "not comparable")
        with self.assertRaisesRegex(ValueError, "guess"):
            verdict("guess", 1, 1)

    @needs_loopback
    def test_against_a_hub(self):
        """The whole comparison on a model that a stand-in hub serves: the embedded one, which is not the book's GPT-2."""
        import contextlib
        import json

        from examples.ch02.model import EMBEDDED
        from tests.support import start

        files = {p.name: p.read_bytes() for p in EMBEDDED.iterdir()}
        with contextlib.closing(StandInHub({"somebody/small-gpt2": files})) as hub:
            settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(self.folder), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
            order = ["scripts/compare_published.py", "--model", "somebody/small-gpt2", "--runs", "1", "--json"]
            done = start(*order, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        value = json.loads(done.stdout)
        rows = {r["id"]: r for r in value["rows"]}
        self.assertEqual(value["commit"], COMMIT)
        self.assertEqual(list(rows), [e["id"] for e in self.entries()])
        self.assertEqual((rows["total"]["verdict"], rows["mask-change"]["verdict"], rows["same-argmax"]["verdict"]), ("same",) * 3)
        self.assertEqual(rows["difference"]["verdict"], "within stated bounds")
        self.assertEqual(rows["residual-dimension"]["verdict"], "different")
        self.assertEqual(
            (rows["attention-time-share-512"]["measured"], rows["largest-logit-1"]["verdict"]), (None, "not comparable")
        )

    def test_bad_input(self):
        self.assertBad(compare_published.main, ["--model", self.folder / "none"], "no model")

    def test_table(self):
        status, out, err = call(compare_published.main, "--model", "embedded", "--runs", "1")
        self.assertEqual((status, err), (0, ""))
        for text in ("124,439,808", "not comparable: the prompt was not published", "another machine", "15 same"):
            self.assertIn(text, out)


class Shapes(unittest.TestCase):
    def test_the_formula_behind_the_counts_is_the_patched_one(self):
        """The mutations patch names that the experiments look up at run time; a copy bound at import would hide them."""
        with mock.patch.object(gpt2, "parameter_count", side_effect=ZeroDivisionError), self.assertRaises(ZeroDivisionError):
            measure_by_id("ch04.counts")


if __name__ == "__main__":
    unittest.main()
