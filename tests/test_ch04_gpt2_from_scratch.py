"""Chapter 4's oracle: agreement at the edges, layer by layer, against transformers and float64; the mask; the trace; the costs;
the commands. Every agreement is shown to fail on planted faults."""

import json
import math
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02 import model as ch02
from examples.ch02.layout import tensor_shapes
from examples.ch03.tokens import default_ids, encode, prompt_batches, random_ids
from examples.ch04 import agreement as ex
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.library import library_model, library_trace
from examples.lab.script import BadInput
from tests.faults import FAULTS, head_order, shifted_mask
from tests.support import (
    BASELINE,
    BASELINE_ARGMAX,
    IDS,
    FolderCase,
    agreement_at_size,
    call,
    config,
    library_gpt2,
    slow,
    start,
    weights,
    write_folder,
)

main = gpt2.main
BOUND = 1e-5  # of the largest logit, in float32


def logits(of=None, tensors=None, ids=IDS, **options):
    of = of or config()
    return gpt2.forward(ids, tensors or weights(of), of, **options)


def assert_agree(case, rows):
    """Every row of `compare_prompts` or `compare_edges` holds the claim: within BOUND, the same argmax everywhere."""
    case.assertTrue(rows)
    for row in rows:
        case.assertLessEqual(row["relative_difference"], BOUND, row)
        case.assertEqual(row["same_argmax"], row["positions"], row)


def setUpModule():
    torch.set_num_threads(2)


class Forward(unittest.TestCase):
    def test_known_logits(self):
        found = logits()
        torch.testing.assert_close(found[0, -1], BASELINE, atol=1e-4, rtol=0)
        self.assertEqual(found[0].argmax(-1).tolist(), BASELINE_ARGMAX)

    def test_every_switch_of_the_config(self):
        for change in (
            dict(),
            dict(scale_attn_weights=False),
            dict(scale_attn_by_inverse_layer_idx=True),
            dict(scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True),
            dict(reorder_and_upcast_attn=True),
            dict(layer_norm_epsilon=0.1),
            dict(n_inner=20),
            dict(tie_word_embeddings=False),
            dict(n_head=1),
            dict(n_head=8),
            dict(n_layer=1),
            dict(n_layer=3, scale_attn_by_inverse_layer_idx=True),
        ):
            of = config(**change)
            theirs = library_gpt2(of, weights(of))(IDS).logits
            torch.testing.assert_close(logits(of), theirs, atol=3e-6, rtol=0, msg=lambda m, c=change: f"{c}: {m}")
            tensors = weights(of)
            if change and tensor_shapes(of) == tensor_shapes(config()) and "reorder_and_upcast_attn" not in change:
                self.assertGreater((logits(of, tensors) - logits()).abs().max().item(), 1e-3, change)  # the switch does something

    def test_upcast_attention_in_half_precision(self):
        of = config(reorder_and_upcast_attn=True)
        half = {k: w.bfloat16() for k, w in weights().items()}
        kept = {}
        logits(of, half, trace=lambda p, i, x: kept.setdefault(p, x.dtype))
        self.assertEqual((kept["scores"], kept["A"], kept["logits"]), (torch.float32, torch.bfloat16, torch.bfloat16))

    def test_rows_of_a_batch_do_not_meet(self):
        ids = torch.cat([IDS, IDS.flip(1), IDS * 0 + 7])
        together = logits(ids=ids)
        for row in range(3):
            torch.testing.assert_close(together[row], logits(ids=ids[row : row + 1])[0], atol=2e-6, rtol=0)

    def test_a_prefix_has_the_logits_of_the_whole(self):
        for T in range(1, 9):
            torch.testing.assert_close(logits(ids=IDS[:, :T])[0], logits()[0, :T], atol=2e-6, rtol=0)

    def test_nothing_given_is_changed(self):
        tensors, ids = weights(), IDS.clone()
        logits(tensors=tensors, ids=ids, causal=False)
        logits(tensors=tensors, ids=ids)
        self.assertTrue(torch.equal(ids, IDS))
        for name, w in weights().items():
            self.assertTrue(torch.equal(tensors[name], w), name)

    def test_bad_ids(self):  # C18
        long = torch.zeros(1, 16, dtype=torch.int64)
        self.assertEqual(logits(ids=long).shape, (1, 16, 11))  # exactly n_positions works
        self.assertEqual(logits(ids=IDS.int()).shape, (1, 8, 11))
        for ids, words in (
            (torch.zeros(1, 17, dtype=torch.int64), ("17", "n_positions 16")),
            (torch.tensor([[3, 11]]), ("id 11", "0 to 10")),
            (torch.tensor([[3, -1]]), ("id -1", "0 to 10")),
            (torch.zeros(1, 0, dtype=torch.int64), ("empty", "[1, 0]")),
            (torch.zeros(0, 4, dtype=torch.int64), ("empty", "[0, 4]")),
            (torch.zeros(4, dtype=torch.int64), ("[4]", "[B, T]")),
            (torch.zeros(1, 1, 4, dtype=torch.int64), ("[1, 1, 4]", "[B, T]")),
            (torch.zeros(1, 4), ("float32", "int64")),
            (torch.zeros(1, 4, dtype=torch.bool), ("bool", "int64")),
            ([[1, 2]], ("list", "int64")),
        ):
            with self.assertRaises(BadInput) as caught:
                logits(ids=ids)
            for word in words:
                self.assertIn(word, str(caught.exception))


class Agreement(unittest.TestCase):
    """With transformers on the embedded model: prompts, edges, layer by layer, float64; and planted faults that break it."""

    @classmethod
    def setUpClass(cls):
        cls.model = ch02.load()
        cls.library = library_model(cls.model)
        cls.batches = prompt_batches(cls.model) + ex.edge_batches(cls.model)

    def test_prompts(self):
        rows = ex.compare_prompts(self.model, self.library)
        assert_agree(self, rows)
        self.assertEqual(len(rows), 4)
        for row in rows:
            self.assertTrue(5 <= row["tokens"] <= 18, row)

    def test_edges(self):
        rows = ex.compare_edges(self.model, self.library)
        assert_agree(self, rows)
        full = self.model.config.n_positions
        self.assertEqual({(r["batch"], r["tokens"]) for r in rows}, {(1, 1), (1, 2), (1, full - 1), (1, full), (4, 64)})
        with self.assertRaisesRegex(BadInput, f"{full + 1} tokens are more than n_positions {full}"):
            ch02.run(self.model, random_ids(self.model, full + 1))

    def test_layer_by_layer(self):
        rows = ex.compare_layers(self.model, self.library, self.batches[3])
        layers = self.model.config.n_layer
        self.assertEqual(len(rows), 3 + layers * (len(gpt2.LAYER_POINTS) - 1))  # all but the scores
        for row in rows:
            self.assertLessEqual(row["largest_difference"], BOUND * row["largest_value"], row)

    def test_layer_by_layer_names_the_layer_of_a_fault(self):
        wrong = dict(self.model.weights)
        wrong["h.2.mlp.c_fc.bias"] = wrong["h.2.mlp.c_fc.bias"] + 0.01
        rows = ex.compare_layers(replace(self.model, weights=wrong), self.library, self.batches[3])
        first = next(r for r in rows if r["largest_difference"] > BOUND * r["largest_value"])
        self.assertEqual((first["point"], first["layer"]), ("hidden", 2))

    def test_float64(self):
        rows = {r["dtype"]: r for r in ex.distance_from_float64(self.model, self.batches)}
        top = rows["float64"]["largest_logit"]
        self.assertLessEqual(rows["float64"]["library"], 1e-12 * top)
        self.assertLessEqual(rows["float32"]["ours"], 2 * rows["float32"]["library"])
        self.assertGreater(rows["float32"]["ours"], 0)
        for name in ("bfloat16", "float16"):  # reported, no bar; but they are numbers
            self.assertTrue(0 < rows[name]["ours"] < top, rows[name])

    def test_planted_faults_break_it(self):
        for fault, (name, wrong) in FAULTS.items():
            with self.subTest(fault), mock.patch.object(gpt2, name, wrong):
                broken = ex.compare_prompts(self.model, self.library) + ex.compare_edges(self.model, self.library)[-1:]
                self.assertGreater(max(r["relative_difference"] for r in broken), BOUND)

    def test_the_library_reads_the_folder_itself(self):
        self.assertEqual(self.library.config._attn_implementation, "eager")
        self.assertFalse(self.library.training)
        mine = self.model.weights["h.0.attn.c_attn.weight"]
        theirs = self.library.transformer.h[0].attn.c_attn.weight
        self.assertTrue(torch.equal(mine, theirs))
        self.assertNotEqual(mine.data_ptr(), theirs.data_ptr())


@slow
class AgreementAtFullSize(unittest.TestCase):
    """With transformers on random weights of GPT-2's shape, up to 1,024 tokens and in a batch."""

    def test_edges(self):
        found = agreement_at_size()
        self.assertLessEqual(found["worst"], BOUND)
        self.assertEqual(found["same_argmax"], found["positions"])
        edges = {(r["batch"], r["tokens"]) for r in found["edges"]}
        self.assertEqual(edges, {(1, 1), (1, 2), (1, 1023), (1, 1024), (4, 64)})

    def test_a_planted_fault(self):
        model = ch02.load("random:gpt2")
        with mock.patch.object(gpt2, "attention", head_order):
            row = ex.compare_prompts(model, library_model(model))[0]
        self.assertGreater(row["relative_difference"], BOUND)


class Mask(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ch02.load()
        cls.ids = default_ids(cls.model, 10)

    def test_exactly_zero(self):
        found = ex.mask_test(self.model, self.ids)
        self.assertEqual(found["change_with_mask"][:-1], [0.0] * 9)
        self.assertEqual((found["earlier_argmax_moved_with_mask"], found["largest_above_diagonal"]), (0, 0.0))
        self.assertGreater(found["change_with_mask"][-1], 0.1)
        self.assertGreater(min(found["change_without_mask"]), 1e-3)
        self.assertEqual(found["sharpened_above_diagonal"], 0.0)
        self.assertGreater(found["sharpened_above_diagonal_at_minus_1e4"], 1e-3)
        for i, row in enumerate(found["influence"]):  # each position hears itself and all before it
            self.assertTrue(all(x > 0 for x in row[: i + 1]))

    def test_a_mask_off_by_one_is_seen(self):
        for shift, earlier in ((2, True), (1, False)):
            with mock.patch.object(gpt2, "attention", shifted_mask(shift)):
                self.assertEqual(max(ex.change_last(self.model, self.ids)[0][:-1]) > 0, earlier)
                self.assertEqual(ex.above_diagonal(ex.influence(self.model, self.ids)) > 0, earlier)
        with mock.patch.object(gpt2, "attention", shifted_mask(0)):  # hides the position itself: row 0 sees nothing
            self.assertTrue(math.isnan(ex.change_last(self.model, self.ids)[0][0]))

    def test_scores_below_the_mask(self):  # C21
        plain = ch02.Model(config(), weights())
        sharp = ex.sharpened(plain)
        other = IDS.clone()
        other[0, -1] = 0
        for forward, expected in ((ch02.run, 0.0), (ex.masked_with_minus_1e4, 0.0975)):
            change = forward(sharp, IDS) - forward(sharp, other)
            self.assertAlmostEqual(change[:, :7].abs().max().item(), expected, delta=1e-3 if expected else 0)
        kept = gpt2.Trace("scores")
        ch02.run(sharp, IDS, trace=kept)
        self.assertLess(kept["scores", 0][0, 1, 0, 0].item(), -3e4)
        plain = ex.masked_with_minus_1e4(plain, IDS) - ex.masked_with_minus_1e4(plain, other)
        self.assertEqual(plain[:, :7].abs().max().item(), 0.0)  # the ordinary test does not catch it

    def test_every_dtype_and_length(self):
        for dtype in ex.DTYPES.values():
            model = self.model.to(dtype=dtype)
            for T in (1, 2, 33):
                table = ex.influence(model, random_ids(model, T))
                self.assertEqual(ex.above_diagonal(table), 0.0)

    def test_masked_entries_of_A_are_exact_zeros(self):
        kept = []
        ch02.run(self.model, self.ids, trace=lambda p, i, x: kept.append(x) if p == "A" else None)
        for A in kept:
            self.assertEqual(A.triu(1).abs().max().item(), 0.0)
            torch.testing.assert_close(A.sum(-1), torch.ones(A.shape[:-1]))


class Trace(unittest.TestCase):
    def traced(self, of=None, tensors=None, **options):
        kept, copies = {}, {}

        def trace(point, layer, tensor):
            kept[point, layer] = tensor
            copies[point, layer] = tensor.clone()

        return logits(of, tensors, trace=trace, **options), kept, copies

    def test_points_in_order(self):
        _, kept, _ = self.traced()
        layers = [(p, i) for i in range(2) for p in gpt2.LAYER_POINTS]
        self.assertEqual(list(kept), [("embedding", None), *layers, ("final_norm", None), ("logits", None)])

    def test_changes_no_bit_and_keeps_copies(self):  # C50
        for switches in (dict(), dict(causal=False)):
            found, kept, copies = self.traced(**switches)
            self.assertTrue(torch.equal(found, logits(**switches)))
            for key, tensor in kept.items():
                self.assertTrue(torch.equal(tensor, copies[key]), key)
            storages = {t.untyped_storage().data_ptr() for (p, _), t in kept.items() if p not in "qkv"}
            self.assertEqual(len(storages), sum(p not in "qkv" for p, _ in kept))

    def test_contributions_add_up(self):  # C50
        found, kept, _ = self.traced()
        parts = [kept["embedding", None]] + [kept[p, i] for i in range(2) for p in ("attention", "mlp")]
        total = torch.stack(parts).sum(0)
        torch.testing.assert_close(total, kept["residual", 1], atol=1e-6, rtol=0)
        again = gpt2.layer_norm(total, weights(), "ln_f", config()) @ weights()["wte.weight"].T
        torch.testing.assert_close(again, found, atol=1e-5, rtol=0)
        norms = [p[0, -1].norm().item() for p in [*parts, total]]
        for norm, expected in zip(norms, (1.030555, 1.516969, 5.060403, 3.626001, 2.297137, 7.134527), strict=True):
            self.assertAlmostEqual(norm, expected, places=4)

    def test_which_state_has_the_final_norm(self):  # C49
        found, kept, _ = self.traced()
        states = library_gpt2(config(), weights())(IDS, output_hidden_states=True).hidden_states
        self.assertEqual(len(states), 3)
        for ours, theirs in (("embedding", None), 0), (("residual", 0), 1), (("final_norm", None), 2):
            torch.testing.assert_close(kept[ours], states[theirs], atol=2e-6, rtol=0)
        self.assertTrue(torch.equal(kept["final_norm", None] @ weights()["wte.weight"].T, found))
        twice = gpt2.layer_norm(kept["final_norm", None], weights(), "ln_f", config()) @ weights()["wte.weight"].T
        self.assertAlmostEqual((twice - found).abs().max().item(), 0.385, delta=1e-3)

    def test_what_each_point_is(self):
        _, kept, _ = self.traced()
        q, k = kept["q", 0], kept["k", 0]
        scores = q @ k.transpose(-1, -2) / math.sqrt(4)
        seen = torch.ones(8, 8).tril().bool()
        torch.testing.assert_close(kept["scores", 0][..., seen], scores[..., seen], atol=1e-6, rtol=0)
        self.assertTrue(torch.all(kept["scores", 0][..., ~seen] == -math.inf))
        torch.testing.assert_close(kept["residual_mid", 0], kept["embedding", None] + kept["attention", 0])
        torch.testing.assert_close(kept["residual", 0], kept["residual_mid", 0] + kept["mlp", 0])

    def test_the_library_trace_is_of_the_same_points(self):
        _, kept, _ = self.traced()
        theirs = library_trace(library_gpt2(config(), weights()), IDS)
        self.assertEqual(list(theirs), [key for key in kept if key[0] != "scores"])
        for key, tensor in theirs.items():
            torch.testing.assert_close(kept[key], tensor, atol=1e-5, rtol=0, msg=lambda m, k=key: f"{k}: {m}")

    def test_shapes_are_those_of_the_table(self):
        for batch, tokens in ((1, 1), (2, 5), (1, 16)):
            _, kept, _ = self.traced(ids=torch.zeros(batch, tokens, dtype=torch.int64))
            rows = {r["point"]: r for r in gpt2.tensor_table(config(), tokens, batch) if r["traced"]}
            self.assertEqual(
                list(rows), list(dict.fromkeys(p for p, _ in kept if p not in ("final_norm", "logits"))) + ["final_norm", "logits"]
            )
            for (point, _), tensor in kept.items():
                self.assertEqual((list(tensor.shape), tensor.nbytes), (rows[point]["shape"], rows[point]["bytes"]))
                self.assertEqual(rows[point]["count"], sum(p == point for p, _ in kept))

    def test_nothing_else_grows_with_the_square(self):
        """What every single operation of the pass makes, at T and at 2T: four times as much only for [T, T] and [h, T, T]."""
        from torch.utils._python_dispatch import TorchDispatchMode

        class Spy(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                out = function(*args, **(kwargs or {}))
                if isinstance(out, torch.Tensor):
                    made.append(tuple(out.shape))
                return out

        passes = []
        for T in (7, 14):
            made = []
            with Spy():
                logits(ids=torch.zeros(3, T, dtype=torch.int64))
            passes.append(made)
        self.assertEqual(len(passes[0]), len(passes[1]))
        squares = {a for a, b in zip(*passes, strict=True) if math.prod(b) > 2 * math.prod(a)}
        self.assertEqual({math.prod(s) for s in squares}, {7 * 7, 3 * 2 * 7 * 7})
        rows = gpt2.tensor_table(config(), 7, 3)
        self.assertEqual({math.prod(r["shape"]) for r in rows if r["growth"] == "T^2"}, {7 * 7, 3 * 2 * 7 * 7})
        self.assertEqual({r["point"] for r in rows if not r["traced"]}, {"mask", "qkv", "mixed", "inner"})

    def test_growth(self):
        one, two = ({r["point"]: r for r in gpt2.tensor_table(config(), t)} for t in (8, 16))
        for point, row in one.items():
            self.assertEqual(two[point]["bytes"] // row["bytes"], {"T": 2, "T^2": 4}[row["growth"]])


class Cost(unittest.TestCase):
    def test_parameters(self):  # C33
        for name, tied, untied in (
            ("gpt2", 124_439_808, 163_037_184),
            ("gpt2-medium", 354_823_168, 406_286_336),
            ("gpt2-large", 774_030_080, 838_359_040),
            ("gpt2-xl", 1_557_611_200, 1_638_022_400),
        ):
            of = ch02.load_config(name)
            self.assertEqual(gpt2.parameter_count(of)["total"], tied)
            self.assertEqual(gpt2.parameter_count(replace(of, tie_word_embeddings=False))["total"], untied)
        self.assertEqual(gpt2.parameter_count(config())["total"], 1976)

    def test_the_formula_and_the_table_are_one_number(self):
        for change in (dict(), dict(n_layer=5), dict(n_embd=12, n_head=3), dict(n_inner=7), dict(vocab_size=2, n_positions=1)):
            for tied in (True, False):
                of = config(**change, tie_word_embeddings=tied)
                parts = gpt2.parameter_count(of)
                self.assertEqual(parts["total"], sum(math.prod(s) for s in tensor_shapes(of).values()))
                self.assertEqual(parts.pop("total"), sum(parts.values()))

    def test_published_shares(self):
        of = ch02.load_config("gpt2")
        parts = gpt2.parameter_count(of)
        shares = {name: f"{n / parts['total']:.1%}" for name, n in parts.items()}
        self.assertEqual((shares["feed_forward"], shares["attention"], shares["token_embedding"]), ("45.5%", "22.8%", "31.0%"))
        self.assertEqual(parts["position_embedding"], 786_432)
        deep = gpt2.parameter_count(replace(of, n_layer=48))["total"]
        self.assertEqual((deep, f"{deep / parts['total']:.2f}"), (379_603_200, "3.05"))
        block = gpt2.parameter_count(replace(of, n_layer=13))["total"] - parts["total"]
        self.assertEqual(block, 7_087_872)

    def test_flops_per_token(self):  # C35
        of = ch02.load_config("gpt2")
        for context, total in ((1, 247_100_928), (16, 247_653_888), (1024, 284_812_800)):
            parts = gpt2.flops_per_token(of, context)
            self.assertEqual(parts["total"], total)
            self.assertEqual(parts["total"] - parts["attention_scores_and_values"], 247_064_064)
        self.assertEqual(gpt2.flops_per_token(of, 16)["output_projection"], 77_194_752)
        self.assertEqual([gpt2.flops_per_token(config(), c)["total"] for c in (8, 1)], [3760, 3312])
        self.assertEqual(gpt2.flops_per_token(config(tie_word_embeddings=False), 8)["total"], 3760)
        for context in (0, 1025, -1):
            with self.assertRaisesRegex(BadInput, f"{context}.*1024"):
                gpt2.flops_per_token(of, context)

    def test_attention_shares_of_a_pass(self):
        of = ch02.load_config("gpt2")
        for pairs, expected in (("causal", ["23.0%", "23.7%", "25.8%"]), ("full", ["23.1%", "24.4%", "28.4%"])):
            found = []
            for tokens in (16, 128, 512):
                parts = gpt2.flops_per_pass(of, tokens, pairs=pairs)
                found.append(f"{(parts['attention_projections'] + parts['attention_scores_and_values']) / parts['total']:.1%}")
            self.assertEqual(found, expected)
        self.assertEqual(gpt2.flops_per_pass(config(), 8, pairs="causal")["total"], 28_288)
        with self.assertRaisesRegex(BadInput, "half"):
            gpt2.flops_per_pass(of, 16, pairs="half")

    def counted(self, of, ids, tensors=None):
        with FlopCounterMode(display=False) as counter:
            logits(of, tensors, ids)
        return counter.get_total_flops()

    def test_full_is_what_the_program_executes(self):  # C37
        for of in (config(), config(n_inner=20), config(n_layer=3, tie_word_embeddings=False)):
            for batch, tokens in ((1, 1), (1, 8), (2, 8), (1, 16)):
                ids = torch.zeros(batch, tokens, dtype=torch.int64)
                self.assertEqual(self.counted(of, ids), gpt2.flops_per_pass(of, tokens, batch)["total"])
        self.assertEqual(self.counted(config(), IDS), 30_080)

    def test_full_size(self):  # C35: 16 times the cost of one token at context 16
        model = ch02.load("random:gpt2")
        found = self.counted(model.config, torch.zeros(1, 16, dtype=torch.int64), model.weights)
        self.assertEqual((found, gpt2.flops_per_pass(model.config, 16)["total"]), (3_962_462_208, 3_962_462_208))

    def test_the_quadratic_part(self):  # C37
        counts = [self.counted(config(), torch.zeros(1, t, dtype=torch.int64)) for t in (4, 8, 16)]
        linear = [3248 * t for t in (4, 8, 16)]
        attention = [c - n for c, n in zip(counts, linear, strict=True)]
        self.assertEqual((attention[1] / attention[0], attention[2] / attention[1]), (4, 4))

    def test_a_counter_sees_nothing_of_fused_attention(self):  # C37, why the oracle uses plain matmuls
        q = torch.randn(1, 12, 64, 64)
        with FlopCounterMode(display=False) as counter:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        self.assertLess(counter.get_total_flops(), 4 * 12 * 64**3)

    def test_score_bytes(self):
        rows = {r["point"]: r for r in gpt2.tensor_table(ch02.load_config("gpt2"), 1024)}
        self.assertEqual((rows["scores"]["bytes"], rows["scores"]["count"]), (12 * 1024**2 * 4, 12))
        self.assertEqual([p for p, r in rows.items() if r["growth"] == "T^2"], ["mask", "scores", "A"])
        self.assertEqual((rows["mask"]["bytes"], rows["mask"]["count"]), (1024**2 * 4, 1))
        with self.assertRaises(BadInput):
            gpt2.tensor_table(ch02.load_config("gpt2"), 1025)


class Residual(unittest.TestCase):
    def test_statistics(self):
        tensors = weights()
        model = ch02.Model(config(), tensors)
        kept = {}
        logits(trace=lambda p, i, x: kept.setdefault((p, i), x))
        rows = ex.residual_statistics(model, IDS)
        self.assertEqual([r["layer"] for r in rows], [0, 1, 2])
        x = kept["residual", 1][0].double().numpy()
        row = rows[2]
        self.assertEqual(abs(x[row["position"], row["dimension"]]), row["largest"])
        self.assertEqual(row["largest"], abs(x).max())
        self.assertAlmostEqual(row["rms"], (x**2).mean() ** 0.5)
        self.assertAlmostEqual(row["rms_without_first"], (x[1:] ** 2).mean() ** 0.5)
        self.assertAlmostEqual(row["mlp_norm"], float((kept["mlp", 1].double() ** 2).sum() ** 0.5))
        self.assertNotIn("mlp_norm", rows[0])

    def test_one_token_has_no_others(self):
        model = ch02.Model(config(), weights())
        self.assertIsNone(ex.residual_statistics(model, IDS[:, :1])[1]["rms_without_first"])


class Time(unittest.TestCase):
    def test_the_first_call_is_discarded_and_the_median_taken(self):  # C51
        self.assertEqual(ex.median_after([1000, 10, 12, 10, 11, 500]), 11)
        self.assertEqual(ex.median_after([1000, 10]), 10)
        self.assertEqual(ex.median_after([1000, 900, 10, 12, 11], discarded=2), 11)

    def test_components(self):
        """A clock that ticks one second a reading, a thousand each in the first pass."""
        model = ch02.Model(config(), weights())
        points = 3 + 2 * len(gpt2.LAYER_POINTS)
        state = {"readings": 0, "now": 0.0}

        def timer():
            state["readings"] += 1
            state["now"] += 1000 if state["readings"] <= points + 3 else 1
            return state["now"]

        found = ex.component_times(model, 8, runs=1, timer=timer)  # a median of three would hide a first pass that counts
        seconds = {c["component"]: c["ms"] / 1e3 for c in found["components"]}
        counts = {"embedding": 1, "norms": 5, "attention": 2 * 7, "feed_forward": 2 * 3, "output_projection": 1}
        self.assertEqual(seconds, counts)
        self.assertEqual(sum(counts.values()), points)
        self.assertEqual((found["untraced_ms"], found["unexplained_ms"]), (1e3, 1e3 * (1 - points)))
        self.assertAlmostEqual(sum(c["time_share"] for c in found["components"]), 1)
        self.assertAlmostEqual(sum(c["flop_share"] for c in found["components"]), 1)
        attention = next(c for c in found["components"] if c["component"] == "attention")
        flops = gpt2.flops_per_pass(config(), 8)
        share = (flops["attention_projections"] + flops["attention_scores_and_values"]) / flops["total"]
        self.assertAlmostEqual(attention["flop_share"], share)
        self.assertAlmostEqual(attention["gflop_per_s"], share * flops["total"] / 14 / 1e9)

    def test_every_point_belongs_to_a_component(self):
        self.assertEqual(set(ex._COMPONENT_OF), set(gpt2.POINTS))
        self.assertEqual(set(ex._COMPONENT_OF.values()), set(ex.COMPONENTS))

    def test_denormals(self):  # C52b
        bias = torch.tensor([0, 1e-39, -1e-44, 1.2e-38, 1.0, -1, 2, 3])
        model = ch02.Model(config(), weights() | {"ln_f.bias": bias})
        self.assertEqual(ex.denormals(model), 2)

    def test_lengths(self):
        self.assertEqual(ex.timing_lengths(ch02.load_config("gpt2")), [16, 128, 512, 1024])
        self.assertEqual(ex.timing_lengths(config()), [16])
        self.assertEqual(ex.timing_lengths(config(), [3, 9]), [3, 9])


class Commands(FolderCase):
    def test_json_is_strict_and_alone(self):
        tiny = write_folder(self.folder / "a")
        for argv in (
            ["count"],
            ["flops"],
            ["shapes"],
            ["compare", "--model", tiny],
            ["mask"],
            ["residual"],
            ["time", "--model", tiny, "--runs", "1"],
            ["tour"],
            [],
        ):
            status, out, err = call(main, *argv, "--json")
            self.assertEqual((status, err), (0, ""), argv)
            value = json.loads(out, parse_constant=lambda name: self.fail(name))
            self.assertIsInstance(value, dict)
            if argv and argv[0] in ("compare", "mask", "residual", "time", "tour"):
                self.assertLessEqual({"model", "seed", "dtype", "device", "threads", "torch"}, value.keys())

    def test_the_tour(self):
        status, out, err = call(main)
        self.assertEqual((status, err), (0, ""))
        for text in (
            "The model: embedded",
            "Agreement:",
            "The mask: with another last token the logits before it change by 0.0",
            "Next:",
        ):
            self.assertIn(text, out)
        self.assertEqual(len([line for line in out.splitlines() if line.endswith("%")]), 5)

    def test_next_tokens(self):
        model = ch02.load()
        ids = encode("To be, or not to", model)
        rows = ex.next_tokens(model, ids)
        shares = torch.softmax(library_model(model)(ids).logits[0, -1], -1)
        self.assertEqual(rows[0]["id"], int(shares.argmax()))
        self.assertAlmostEqual(rows[0]["probability"], shares.max().item(), places=5)
        self.assertEqual([r["probability"] for r in rows], sorted((r["probability"] for r in rows), reverse=True))

    def test_published_figures(self):
        for argv, texts in (
            (["count"], ("124,439,808", "786,432", "7,087,872", "45.5%", "22.8%", "31.0%", "66.7%", "the same")),
            (["count", "--layers", "48"], ("379,603,200", "3.05 times the 124,439,808 of 12 layers")),
            (["count", "--config", "gpt2-xl"], ("1,557,611,200",)),
            (["flops"], ("247,653,888", "284,812,800", "77,194,752", "15.0% more", "23.0%", "23.1%", "25.8%", "28.4%")),
            (["shapes"], ("50,331,648", "50.3 MB", "[1, 12, 1024, 1024]")),
        ):
            status, out, _ = call(main, *argv)
            self.assertEqual(status, 0)
            for text in texts:
                self.assertIn(text, out)

    def test_configs(self):
        folder = write_folder(self.folder / "a")
        for source in (folder, folder / "config.json"):
            (folder / "model.safetensors").unlink(missing_ok=True)  # loads no weights
            self.assertIn("1,976", call(main, "count", "--config", source)[1])
        self.assertIn("2,848", call(main, "count", "--config", folder, "--layers", "3")[1])

    @slow
    def test_tables_for_people(self):
        tiny = write_folder(self.folder / "a")
        for argv, texts in (
            (["compare", "--model", tiny], ("random ids", "1 x 16", "4 x 16")),
            (
                ["compare", "--prompt", "Good night"],
                ('"Good night"', "4 x 64", "residual_mid", "bfloat16", "0 (itself)", "in layer (from 0)"),
            ),
            (["mask"], ("mask off", "Largest above the diagonal: 0.0.", "minus infinity: ")),
            (["residual"], ("17 tokens", "largest / median", "embedding")),
            (["time", "--tokens", "4,8", "--runs", "2"], ("4 tokens", "8 tokens", "share of FLOPs", "unexplained", "1 thread")),
        ):
            status, out, err = call(main, *argv)
            self.assertEqual((status, err), (0, ""), argv)
            for text in texts:
                self.assertIn(text, out)

    @slow
    def test_plots(self):
        for argv in (["residual"], ["time", "--tokens", "4", "--runs", "1"]):
            for form, start_of_file in (("svg", b"<?xml"), ("png", b"\x89PNG")):
                path = self.folder / f"{argv[0]}.{form}"
                self.assertEqual(call(main, *argv, "--plot", path)[0], 0)
                self.assertTrue(path.read_bytes().startswith(start_of_file))
        again = self.folder / "again.svg"
        call(main, "residual", "--plot", again)
        self.assertEqual(again.read_bytes(), (self.folder / "residual.svg").read_bytes())

    def test_bad_input(self):
        tiny = write_folder(self.folder / "a")
        full = ch02.load().config.n_positions
        for argv, words in (
            (["nonsense"], ("nonsense", "--help")),
            (["mask", "--model", self.folder / "none"], ("no model",)),
            (["mask", "--prompt", ""], ("empty",)),
            (["mask", "--prompt", "word " * (full + 1)], ("n_positions", str(full))),
            (["mask", "--model", tiny, "--prompt", "a"], ("no tokenizer",)),
            (["time", "--model", tiny, "--tokens", "17"], ("17 tokens", "n_positions 16")),
            (["time", "--tokens", "0"], ("0 is not 1 or more",)),
            (["time", "--tokens", f"{full + 1}"], (f"{full + 1} tokens", "n_positions")),
            (["time", "--tokens", "a"], ("'a' is not a whole number",)),
            (["time", "--runs", "0"], ("0 is not 1",)),
            (["time", "--plot", self.folder / "x.gif"], ("x.gif", ".svg")),
            (["residual", "--plot", self.folder / "none" / "x.svg"], ("not a folder",)),
            (["mask", "--dtype", "int8"], ("int8",)),
            (["mask", "--threads", "0"], ("0 is not 1",)),
            (["count", "--config", "gpt5"], ("gpt5", "gpt2-xl")),
            (["flops", "--context", "2000"], ("2000", "1024")),
            (["shapes", "--tokens", "1025"], ("1025 tokens", "1024")),
            (["--model", "embedded", "count"], ("unknown: count", "a command comes before its options")),
            (["count", "--prompt", "x"], ("unknown: --prompt x", "count --help")),
            (["flops", "--model", "embedded"], ("--model",)),
            (["--model", "random:gpt9"], ("gpt9",)),
        ):
            with self.subTest(str(argv)):
                self.assertBad(main, argv, *words)
        if not torch.cuda.is_available():
            self.assertBad(main, ["mask", "--device", "cuda"], "cuda", "leave it out")

    @slow
    def test_runs_from_anywhere_as_a_module_and_imported(self):
        path = Path(gpt2.__file__).resolve()
        runs = [
            start(path, "count", cwd=self.folder),
            start("-m", "examples.ch04.gpt2_from_scratch", "count"),
            start("-c", "from examples.ch04.gpt2_from_scratch import main; main(['count'])"),
        ]
        for done in runs:
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, runs[0].stdout)

    @slow
    def test_importing_does_no_work(self):
        code = (
            "import sys, examples.ch04.gpt2_from_scratch, examples.ch04.agreement, examples.ch04.commands, examples.ch03.tokens\n"
            "import examples.ch04.tiny_transformer\n"
            "print([m for m in ('transformers', 'matplotlib', 'huggingface_hub') if m in sys.modules])"
        )
        done = start("-c", code)
        self.assertEqual((done.stdout, done.stderr), ("[]\n", ""))

    @slow
    def test_no_traceback_in_a_process_of_its_own(self):
        done = start("examples/ch04/gpt2_from_scratch.py", "mask", "--model", self.folder)
        self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
