"""Chapter 5's `exact` and `tolerance` records, measured again; and mutations of the code, each of which breaks one."""

import unittest
from unittest import mock

import torch

from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch05 import generate as loop
from examples.ch05 import cycles as ex
from examples.ch05 import sampling
from tests import records
from tests.faults import shifted_mask
from tests.support import slow

RECORDS = records.of("ch05")
RIGHT_TOP_K, RIGHT_DRAW, RIGHT_CHOOSE = sampling.keep_top_k, sampling.draw, loop.choose


def setUpModule():
    torch.set_num_threads(2)


@slow
class MeasuredAgain(records.MeasuredAgain, unittest.TestCase):
    chapter, exact, tolerance = "ch05", 2, 4

    def test_what_the_records_say(self):
        example = RECORDS["ch05.example"]["values"]
        self.assertEqual(example["mat_percent"], 68.7)
        self.assertEqual([r["cut_percent"] for r in example["top_k"]], [31.3, 8.4, 3.3, 1.3, 0.0])
        self.assertEqual({r["p"]: r["kept"] for r in example["top_p"]}[0.9], 2)
        filters = RECORDS["ch05.filters"]["values"]
        self.assertEqual((filters["rows"], filters["same_kept"]), (1000, filters["compared"]))
        self.assertEqual(RECORDS["ch05.bigram"]["values"]["starts_that_cycle"], 8)
        cycles = RECORDS["ch05.cycles"]["values"]
        self.assertEqual(cycles["in_a_cycle"], cycles["prompts_count"])
        steps = RECORDS["ch05.one-step"]["values"]
        ends = ("back_in_the_old_cycle", "in_another_cycle", "in_none_within_300")
        self.assertEqual(sum(steps[key] for key in ends), steps["another_token"])
        shares = [p["percent"] for p in RECORDS["ch05.policies"]["values"]["policies"]]
        self.assertEqual(shares[:4], sorted(shares[:4], reverse=True))  # by rising temperature, less and less repeats


@slow
class Mutations(unittest.TestCase):
    """Each fault, planted in the code, makes a record fail to come out again."""

    def assertBreaks(self, id, module, name, wrong):
        with mock.patch.object(module, name, wrong):
            self.assertNotEqual(records.without_worst(records.again(id)), records.without_worst(RECORDS[id]["values"]))

    def test_one_token_too_many(self):
        for id in ("ch05.example", "ch05.filters"):
            self.assertBreaks(id, sampling, "keep_top_k", lambda logits, k: RIGHT_TOP_K(logits, k + 1))

    def test_draws_off_by_one(self):
        self.assertBreaks("ch05.draws", ex, "draw", lambda p, g: (RIGHT_DRAW(p, g) + 1) % p.shape[-1])

    def test_the_mask_off_by_one(self):
        self.assertBreaks("ch05.greedy", gpt2, "attention", shifted_mask(2))

    def test_rows_that_share_a_generator(self):
        shared = torch.Generator()
        self.assertBreaks("ch05.rows", loop, "choose", lambda logits, t, k, p, generator: RIGHT_CHOOSE(logits, t, k, p, shared))

    def test_the_second_best(self):
        second = lambda logits, *_: logits.topk(2).indices[1]  # noqa: E731
        self.assertBreaks("ch05.bigram", loop, "choose", second)


if __name__ == "__main__":
    unittest.main()
