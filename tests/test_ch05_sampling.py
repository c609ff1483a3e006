"""Chapter 5's filters and draws: the cases, ties, tiny temperatures, what always holds, and planted faults."""

import json
import math
import unittest
from unittest import mock

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.ch05 import sampling
from examples.ch05.sampling import candidates, choose, draw, keep_top_k, keep_top_p, only, probabilities
from examples.lab.script import BadInput
from tests.support import FolderCase, call

INF = math.inf
FIVE = torch.tensor(sampling.LOGITS)
QUIET = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def kept(p):
    """The ids of probability above 0 in [V]."""
    return (p > 0).nonzero().flatten().tolist()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class TopP(unittest.TestCase):
    CASES = (  # probabilities, p, what stays
        ((0.4, 0.3, 0.2, 0.1), 0.8, [0, 1, 2]),
        ((0.5, 0.3, 0.15, 0.05), 0.6, [0, 1]),
        ((0.5, 0.3, 0.15, 0.05), 0.85, [0, 1, 2]),
        ((0.5, 0.35, 0.1, 0.05), 0.9, [0, 1, 2]),
        ((0.5, 0.25, 0.125, 0.125), 0.75, [0, 1]),
        ((0.5, 0.25, 0.125, 0.125), 0.5, [0]),
        ((0.3, 0.1, 0.1, 0.5), 0.8, [0, 3]),
        ((0.6, 0.4), 1.0, [0, 1]),
        ((0.6, 0.4), 0.1, [0]),
    )

    def test_the_token_that_crosses_stays(self):
        for probs, p, stays in self.CASES:
            found = probabilities(torch.tensor(probs).log(), top_p=p)
            self.assertEqual(kept(found), stays, (probs, p))
            total = sum(probs[i] for i in stays)
            wanted = torch.tensor([x / total if i in stays else 0.0 for i, x in enumerate(probs)])
            torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)  # in the order of the ids, and sums to 1

    def test_planted_faults(self):
        """Dropping the token that crosses, cutting at p in place of 1 - p, and one too many at equality each break a case."""

        def fault(cut_of):
            def top_p(logits, p):
                order = logits.argsort(dim=-1, descending=True, stable=True)
                mass = torch.softmax(logits.gather(-1, order), -1).cumsum(-1)
                cut = cut_of(mass, torch.softmax(logits.gather(-1, order), -1), p)
                cut[..., 0] = False
                return logits.masked_fill(cut.scatter(-1, order, cut), -INF)

            return top_p

        for cut_of in (
            lambda mass, own, p: mass > p,
            lambda mass, own, p: mass - own >= 1 - p,
            lambda mass, own, p: mass - own > p,
        ):
            with mock.patch.object(sampling, "keep_top_p", fault(cut_of)), self.assertRaises(AssertionError):
                self.test_the_token_that_crosses_stays()

    def test_ties_go_to_the_lower_id(self):
        self.assertEqual(kept(probabilities(torch.zeros(10), top_p=0.25)), [0, 1, 2])
        self.assertEqual(kept(probabilities(torch.tensor([0.0, 1.0, 1.0, 1.0]), top_p=0.5)), [1, 2])

    def test_one_always_stays(self):
        self.assertEqual(kept(probabilities(torch.randn(50, generator=generator()), top_p=1e-12)), [43])
        self.assertEqual(int(torch.randn(50, generator=generator()).argmax()), 43)

    def test_bad_p(self):
        for p in (0, 0.0, -0.1, 1.0001, 2, math.nan, INF, True, "0.9"):
            with self.assertRaisesRegex(BadInput, "top-p"):
                probabilities(FIVE, top_p=p)
            with self.assertRaisesRegex(BadInput, "top-p"):
                choose(FIVE, temperature=0, top_p=p)

    def test_p_of_1_keeps_what_underflows(self):
        logits = torch.tensor([0.0, -80.0, -200.0])  # the last two have no mass beside the first in float32's sum
        torch.testing.assert_close(keep_top_p(logits, 1.0), logits, rtol=0, atol=0)
        torch.testing.assert_close(keep_top_p(logits, 1), logits, rtol=0, atol=0)


class TopK(unittest.TestCase):
    def test_exactly_k_and_ties_to_the_lower_id(self):
        logits = torch.tensor([1.0, 3.0, 3.0, 3.0, 0.0])
        for k, stays in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4])):
            self.assertEqual(kept(probabilities(logits, top_k=k)), stays)
        self.assertEqual(kept(probabilities(torch.zeros(100), top_k=7)), list(range(7)))

    def test_k_above_the_vocabulary_cuts_nothing(self):
        for k in (5, 6, 10**9):
            torch.testing.assert_close(probabilities(FIVE, top_k=k), probabilities(FIVE), rtol=0, atol=0)

    def test_bad_k(self):
        for k in (0, -1, 1.5, True, "3", math.nan):
            for temperature in (0, 1.0):
                with self.assertRaisesRegex(BadInput, "top-k"):
                    choose(FIVE, temperature, top_k=k, generator=generator())

    def test_off(self):
        """None is no filter, and what 0 is refused with says so."""
        every = probabilities(FIVE)
        torch.testing.assert_close(probabilities(FIVE, top_k=None, top_p=None), every, rtol=0, atol=0)
        for zero in (dict(top_k=0), dict(top_p=0)):
            with self.assertRaisesRegex(BadInput, "is 0; .*--top-k off and --top-p off, or None in a function"):
                probabilities(FIVE, **zero)

    def test_numpy_s_numbers(self):
        """A number is what it is, whoever made it."""
        for k in (np.int64(2), np.int8(2), np.uint16(2)):
            torch.testing.assert_close(probabilities(FIVE, top_k=k), probabilities(FIVE, top_k=2), rtol=0, atol=0)
        for half in (np.float64(0.5), np.float32(0.5), np.float16(0.5)):
            torch.testing.assert_close(probabilities(FIVE, half, top_p=half), probabilities(FIVE, 0.5, top_p=0.5), rtol=0, atol=0)
        torch.testing.assert_close(probabilities(FIVE, np.int64(2)), probabilities(FIVE, 2), rtol=0, atol=0)
        torch.testing.assert_close(probabilities(FIVE, np.int8(0)), probabilities(FIVE, 0), rtol=0, atol=0)
        for bad in (np.bool_(True), np.float32(2), np.int64(0), np.array([2])):
            with self.assertRaisesRegex(BadInput, "top-k"):
                probabilities(FIVE, top_k=bad)
        for bad in (np.bool_(True), np.float32(math.nan), np.int64(2), np.float32(0)):
            with self.assertRaisesRegex(BadInput, "top-p"):
                probabilities(FIVE, top_p=bad)
        with self.assertRaisesRegex(BadInput, "temperature"):
            probabilities(FIVE, np.bool_(True))

    def test_k_of_1_is_greedy(self):
        rows = torch.randn(20, 30, generator=generator()).round()  # with ties
        drawn = choose(rows, top_k=1, generator=generator())
        self.assertEqual(drawn.tolist(), choose(rows, temperature=0).tolist())
        self.assertEqual(drawn.tolist(), [row.index(max(row)) for row in rows.tolist()])


class Temperature(unittest.TestCase):
    LOGITS = torch.tensor([1.0, 2.0, 0.0])

    def test_values(self):
        for temperature, wanted in (
            (0.5, (0.117310, 0.866813, 0.015876)),
            (1, (0.244728, 0.665241, 0.090031)),
            (2, (0.307196, 0.506480, 0.186324)),
            (0, (0, 1, 0)),
            (1e-4, (0, 1, 0)),
        ):
            torch.testing.assert_close(probabilities(self.LOGITS, temperature), torch.tensor(wanted).float(), atol=1e-6, rtol=0)

    def test_tiny_ones_are_never_nan(self):
        for temperature in (1e-3, 1e-39, 1e-46, 5e-324):
            for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
                for logits in (self.LOGITS, self.LOGITS * 10, torch.tensor([10.0, 20.0]), torch.tensor([-3e4, -6e4, -INF])):
                    found = probabilities(logits.to(dtype), temperature)
                    self.assertTrue(found.isfinite().all(), (temperature, dtype))
                    self.assertEqual(int(found.argmax()), int(logits.argmax()))
                    self.assertEqual(found.max().item(), 1.0)
        torch.testing.assert_close(probabilities(torch.zeros(4), 1e-46), torch.full((4,), 0.25))  # equal ones stay equal

    def test_zero_draws_nothing(self):
        ours = generator()
        before = ours.get_state()
        self.assertEqual(choose(torch.tensor([[1.0, 5.0, 5.0], [7.0, 7.0, 0.0]]), 0, generator=ours).tolist(), [1, 0])
        self.assertTrue(torch.equal(ours.get_state(), before))
        self.assertEqual(choose(FIVE, temperature=0.0).item(), 0)  # nor needs a generator

    def test_bad_ones(self):
        for temperature in (-1, -1e-30, math.nan, INF, -INF, True, "1", None):
            for function in (probabilities, choose, candidates):
                with self.assertRaisesRegex(BadInput, "temperature"):
                    function(FIVE, temperature)

    def test_large_logits_keep_their_digits(self):
        """1e4 added to all changes nothing but the rounding of the sum itself; divided first, float32 would lose it."""
        logits = torch.tensor([10.0, 10.5, 9.25])
        torch.testing.assert_close(probabilities(logits + 2**17, 0.05), probabilities(logits, 0.05), rtol=0, atol=0)


class Order(unittest.TestCase):
    def test_temperature_then_k_then_p(self):
        self.assertEqual(kept(probabilities(FIVE, 2.0, top_p=0.9)), [0, 1, 2, 3])  # the temperature first: flatter, so more stay
        self.assertEqual(kept(probabilities(FIVE, 1.0, top_p=0.9)), [0, 1])
        probs = torch.tensor([0.3, 0.25, 0.2, 0.15, 0.1]).log()
        self.assertEqual(kept(probabilities(probs, top_p=0.5)), [0, 1])
        self.assertEqual(kept(probabilities(probs, top_k=2, top_p=0.5)), [0])  # top-p of what top-k left, renormalised
        torch.testing.assert_close(probabilities(probs, top_k=2), torch.tensor([0.3 / 0.55, 0.25 / 0.55, 0, 0, 0]))

    def test_nothing_given_is_changed(self):
        logits = FIVE.clone()
        for function in (lambda x: keep_top_k(x, 2), lambda x: keep_top_p(x, 0.5), lambda x: probabilities(x, 0.5, 2, 0.5)):
            function(logits)
            self.assertTrue(torch.equal(logits, FIVE))

    def test_any_leading_shape(self):
        rows = torch.randn(2, 3, 11, generator=generator())
        together = probabilities(rows, 0.7, 5, 0.8)
        for i in range(2):
            for j in range(3):
                torch.testing.assert_close(together[i, j], probabilities(rows[i, j], 0.7, 5, 0.8), rtol=0, atol=0)
        self.assertEqual(choose(rows, generator=generator()).shape, (2, 3))


class WhatAlwaysHolds(unittest.TestCase):
    @QUIET
    @given(
        st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
        st.floats(0.05, 5),
        st.one_of(st.none(), st.integers(1, 50)),
        st.one_of(st.none(), st.floats(0.01, 1)),
    )
    def test_what_always_holds(self, values, temperature, k, p):
        logits = torch.tensor(values)
        found = probabilities(logits, temperature, k, p)
        self.assertAlmostEqual(found.sum().item(), 1, places=5)
        self.assertEqual(found[logits.argmax()].item(), found.max().item())
        self.assertLessEqual(len(kept(found)), k or len(values))
        self.assertIn(choose(logits, temperature, k, p, generator()).item(), kept(found))


class Draws(unittest.TestCase):
    def test_the_number_picks_the_interval(self):
        p = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
        for u, id in ((0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (1 - 2**-53, 4)):
            with mock.patch.object(torch, "rand", return_value=torch.tensor(u, dtype=torch.float64)):
                self.assertEqual(draw(p, generator()).item(), id)
        third = torch.full((3,), 1 / 3)  # sums to a little more than 1 in float64
        with mock.patch.object(torch, "rand", return_value=torch.tensor(1 - 2**-53, dtype=torch.float64)):
            self.assertEqual(draw(torch.cat([third, torch.zeros(2)]), generator()).item(), 2)

    def test_in_float64(self):
        """In float32 neither the number nor the sum could tell a million tokens apart."""
        many = torch.full((2**20,), 2.0**-20)
        ids = draw(many.expand(64, -1), generator(5))
        u = torch.rand(64, generator=generator(5), dtype=torch.float64)
        self.assertEqual(ids.tolist(), (u * 2**20).floor().long().tolist())
        uneven = torch.rand(2**16, generator=generator(1)) + 0.5
        p = uneven / uneven.sum()
        wanted = torch.searchsorted(p.double().cumsum(0), u * p.double().sum(), right=True)
        self.assertEqual(draw(p.expand(64, -1), generator(5)).tolist(), wanted.tolist())

    def test_one_number_a_row_and_never_the_global_state(self):
        torch.manual_seed(7)
        before = torch.get_rng_state()
        a = [choose(FIVE, generator=g).item() for g in [generator(3)] for _ in range(20)]
        self.assertTrue(torch.equal(torch.get_rng_state(), before))
        b = choose(FIVE.expand(20, -1), generator=generator(3)).tolist()
        self.assertEqual(a, b)
        self.assertGreater(len(set(a)), 1)
        torch.manual_seed(8)
        self.assertEqual([choose(FIVE, generator=g).item() for g in [generator(3)] for _ in range(20)], a)

    def test_a_draw_needs_a_generator(self):
        with self.assertRaisesRegex(BadInput, "generator"):
            choose(FIVE)


class BadLogits(unittest.TestCase):
    def test_no_probabilities(self):
        for logits, word in (
            ([1.0, math.nan], "NaN"),
            ([math.nan, math.nan], "NaN"),
            ([1.0, INF], "plus infinity"),
            ([-INF, -INF], "nothing but minus infinity"),
        ):
            for rows in (torch.tensor(logits), torch.tensor([[0.0, 1.0], logits]), torch.tensor(logits).half()):
                for temperature in (0, 1.0):
                    with self.assertRaisesRegex(BadInput, word):
                        choose(rows, temperature, generator=generator())
        for logits in (torch.tensor([1, 2]), torch.tensor(1.0), torch.zeros(2, 0)):
            with self.assertRaisesRegex(BadInput, "logits are"):
                probabilities(logits)

    def test_impossible_tokens_stay_impossible(self):
        logits = torch.tensor([-INF, 2.0, -INF, 1.0])
        for setting in ((1.0, None, None), (0.3, 3, None), (2.0, None, 0.99), (1e-40, None, None), (1.0, None, 1.0)):
            found = probabilities(logits, *setting)
            self.assertEqual(found[[0, 2]].tolist(), [0, 0])
            self.assertFalse(found.isnan().any())
        self.assertEqual(set(choose(logits.expand(200, -1), generator=generator()).tolist()), {1, 3})

    def test_a_padded_vocabulary(self):
        logits = torch.tensor([1.0, 2.0, 9.0, 9.0])
        allowed = torch.tensor([True, True, False, False])
        self.assertEqual(only(logits, allowed).tolist(), [1.0, 2.0, -INF, -INF])
        self.assertEqual(kept(probabilities(only(logits, allowed))), [0, 1])
        self.assertEqual(choose(only(logits, allowed), 0).item(), 1)

    def test_half_precision_is_widened(self):
        for dtype in (torch.float16, torch.bfloat16):
            found = probabilities(FIVE.to(dtype), 0.9, 4, 0.95)
            self.assertEqual(found.dtype, torch.float32)
            torch.testing.assert_close(found, probabilities(FIVE.to(dtype).float(), 0.9, 4, 0.95), rtol=0, atol=0)
        self.assertEqual(probabilities(FIVE.double()).dtype, torch.float64)


class Candidates(unittest.TestCase):
    def test_what_cut_each(self):
        rows = candidates(torch.tensor([3.0, 2.0, 1.0, 0.0, -INF]), top_k=3, top_p=0.9)
        self.assertEqual([r["cut"] for r in rows], [None, None, "top-p", "top-k"])  # the impossible one is no candidate
        self.assertEqual([r["id"] for r in rows], [0, 1, 2, 3])
        self.assertAlmostEqual(sum(r["final"] for r in rows), 1, places=6)
        self.assertEqual([r["cut"] for r in candidates(FIVE, 0, count=2)], [None, "temperature 0"])
        self.assertEqual([r["id"] for r in candidates(torch.zeros(100))], list(range(10)))
        for temperature in (0.5, 2.0):
            shown = torch.tensor([r["probability"] for r in candidates(FIVE, temperature, top_k=2)])
            torch.testing.assert_close(shown, probabilities(FIVE, temperature))


class Script(FolderCase):
    def test_what_the_options_leave(self):
        status, out, err = call(sampling.main)
        self.assertEqual((status, err), (0, ""))
        for text in ("68.70%", "cut by top-p", "mat", "roof", "One of 2 tokens"):
            self.assertIn(text, out)
        self.assertIn("Only one token is left", call(sampling.main, "--temperature", "0")[1])
        order = ("--logits", "2,1,0", "--top-k", "2", "--temperature", "0.5", "--top-p", "1", "--json")
        value = json.loads(call(sampling.main, *order)[1])
        self.assertEqual([c["cut"] for c in value["choice"]["candidates"]], [None, None, "top-k"])
        ran = value["ran_with"]
        self.assertEqual((ran["temperature"], ran["top_k"], ran["top_p"], ran["logits"]), (0.5, 2, 1.0, [2.0, 1.0, 0.0]))

    def test_filters_turned_off(self):
        status, out, err = call(sampling.main, "--top-p", "off", "--top-k", "off")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("top-k off, top-p off", out)
        self.assertNotIn("cut by", out)
        ran = json.loads(call(sampling.main, "--top-p", "off", "--json")[1])["ran_with"]
        self.assertEqual((ran["top_k"], ran["top_p"]), (None, None))

    def test_bad_input(self):
        for argv, *words in (
            (["--temperature", "-1"], "temperature"),
            (["--temperature", "nan"], "temperature"),
            (["--temperature", "hot"], "--temperature"),
            (["--top-k", "0"], "top-k is 0; ", "--top-k off"),
            (["--top-p", "0"], "top-p is 0.0; ", "--top-p off"),
            (["--top-k", "none"], "'none' is neither a whole number from 1 nor off"),
            (["--top-k", "2.5"], "'2.5' is neither a whole number from 1 nor off"),
            (["--top-p", "all"], "'all' is neither a number up to 1 nor off"),
            (["--top-p", "1.5"], "top-p"),
            (["--logits", "1,nan"], "'1,nan' is not a list of numbers"),
            (["--logits", "1,,2"], "is not a list of numbers"),
            (["--logits", "0,-1e39"], "is not a list of numbers"),
            (["--temperature", "0", "--top-p", "7"], "top-p"),
            (["--temperature", "0", "--top-k", "0"], "top-k"),
        ):
            self.assertBad(sampling.main, argv, *words)


if __name__ == "__main__":
    unittest.main()
