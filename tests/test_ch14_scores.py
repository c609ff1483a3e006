"""What two fields of a GPT-2 do to its scores, in the configurable forward beside chapter 4's own."""

import functools
import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02 import model as ch02
from examples.ch02.config import general
from examples.ch02.families import read_config
from examples.ch02.model import general_form, run
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch14 import variants
from examples.ch14.configs import config_named, published
from tests import support

GPT2_FIELDS = {"scale_attn_by_inverse_layer_idx": "score_scale_by_layer", "reorder_and_upcast_attn": "wide_scores"}
TWO = torch.cat([support.IDS, support.IDS.flip(1)])  # [2, 8]


def setUpModule():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny, and threads that wait for each other cost more
    unittest.addModuleCleanup(torch.set_num_threads, threads)


def counted_from_2(right):
    """Scores divided by the layer's number, which is counted from 2."""
    return lambda q, k, v, c, layer, *args: right(q, k, v, c, layer + 1, *args)


def narrow(right):
    """Scores of q and k as they are, and only then in float32."""

    def attend(q, k, v, c, layer, at, mask, trace, cache=None):
        def widened(point, layer, x):
            trace(point, layer, x.float() if point == "scores" else x)

        return right(q, k, v, replace(c, wide_scores=False), layer, at, mask, widened, cache)

    return attend


class Scores(unittest.TestCase):
    def check_scores(self, dtype, **changes):
        """A GPT-2 in the general form beside chapter 4's pass, at every point of the trace; and the scores beside those that its
        own queries and keys have: in float32 where they are to be of that, which bfloat16 could not pass for."""
        model = support.model(**changes).to(dtype=dtype)
        ours, theirs, bound = Trace(), Trace(), 1e-5 if dtype == torch.float32 else 0.05
        run(general_form(model), TWO, trace=ours)
        run(model, TWO, trace=theirs)
        self.assertEqual(set(ours), set(theirs))
        for at, right in theirs.items():
            self.assertEqual(ours[at].dtype, right.dtype, at)
            torch.testing.assert_close(ours[at], right, atol=bound, rtol=bound, msg=lambda text, at=at: f"{at}: {text}")
        fields = model.config
        wide = torch.float32 if fields.reorder_and_upcast_attn else dtype
        for layer in range(fields.n_layer):
            scores, q, k = (ours[point, layer] for point in ("scores", "q", "k"))
            scale = fields.head_width**-0.5 if fields.scale_attn_weights else 1.0
            scale = scale / (layer + 1) if fields.scale_attn_by_inverse_layer_idx else scale
            seen, right = scores.isfinite(), scale * q.double() @ k.double().mT  # [2, h, T, T]
            bound = 1e-5 if wide == torch.float32 else 0.02
            torch.testing.assert_close(scores[seen].double(), right[seen], atol=bound, rtol=bound)

    def test_by_layer(self):
        for changes in ({}, {"scale_attn_weights": False}, {"reorder_and_upcast_attn": True}):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(changes, dtype=dtype):
                    self.check_scores(dtype, scale_attn_by_inverse_layer_idx=True, **changes)

    def test_upcast(self):
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype=dtype):
                self.check_scores(dtype, reorder_and_upcast_attn=True)

    def test_what_the_fields_come_to(self):
        fields = published()["gpt2"]["config"]
        for field, ours in GPT2_FIELDS.items():
            for value in (True, False):
                self.assertIs(getattr(general(read_config(fields | {field: value}, "c.json")), ours), value)
            self.assertFalse(getattr(config_named("gpt2"), ours))

    def assertCaught(self, module, name, fault, check, *args):
        check(*args)
        with mock.patch.object(module, name, fault(getattr(module, name))), self.assertRaises(AssertionError):
            check(*args)

    def test_scores(self):
        def ignoring(field):
            return lambda right: lambda config: replace(right(config), **{field: False})

        by_layer, wide = GPT2_FIELDS
        for dtype in (torch.float32, torch.bfloat16):
            check = functools.partial(self.check_scores, dtype, **{by_layer: True})
            self.assertCaught(ch02, "general", ignoring(GPT2_FIELDS[by_layer]), check)
            self.assertCaught(variants, "attend", counted_from_2, check)
        check = functools.partial(self.check_scores, torch.bfloat16, **{wide: True})  # float32 is as wide already
        self.assertCaught(ch02, "general", ignoring(GPT2_FIELDS[wide]), check)
        self.assertCaught(variants, "attend", narrow, check)


if __name__ == "__main__":
    unittest.main()
