"""Chapter 4's oracle: the forward pass against known logits and transformers at every switch, what its trace shows, and the next
tokens that it prints."""

import math
import unittest

import torch

from examples.ch02.layout import tensor_shapes
from examples.ch02.model import Model, load, run
from examples.ch03.tokens import encode, random_ids
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.gpt2_from_scratch import PROMPT, main, next_tokens
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import (
    BASELINE,
    BASELINE_ARGMAX,
    IDS,
    LLAMA,
    config,
    library_gpt2,
    library_of,
    llama_model,
    loaded,
    model,
    weights,
    write_folder,
)


def logits(of=None, tensors=None, ids=IDS, **options):
    of = of or config()
    return gpt2.forward(ids, tensors or weights(of), of, **options)


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

    def test_the_two_gelus(self):
        """GELU and the form that GPT-2 was trained with are up to 4.73e-4 apart, at 2.7."""
        x = torch.linspace(-6, 6, 120001, dtype=torch.float64)
        gap = (gpt2.ACTIVATIONS["gelu"](x) - gpt2.ACTIVATIONS["gelu_new"](x)).abs()
        self.assertAlmostEqual(gap.max().item(), 4.73e-4, delta=1e-6)
        self.assertAlmostEqual(abs(x[gap.argmax()].item()), 2.699, delta=0.01)
        for at, erf, tanh in (
            (1.0, 0.8413447461, 0.8411919906),
            (-2.0, -0.0455002639, -0.0454023059),
            (3.0, 2.9959503059, 2.9963626079),
        ):
            value = torch.tensor([at], dtype=torch.float64)
            self.assertAlmostEqual(gpt2.ACTIVATIONS["gelu"](value).item(), erf, places=9)
            self.assertAlmostEqual(gpt2.ACTIVATIONS["gelu_new"](value).item(), tanh, places=9)

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

    def test_bad_ids(self):
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

    def test_changes_no_bit_and_keeps_copies(self):
        for switches in (dict(), dict(causal=False)):
            found, kept, copies = self.traced(**switches)
            self.assertTrue(torch.equal(found, logits(**switches)))
            for key, tensor in kept.items():
                self.assertTrue(torch.equal(tensor, copies[key]), key)
            storages = {t.untyped_storage().data_ptr() for (p, _), t in kept.items() if p not in "qkv"}
            self.assertEqual(len(storages), sum(p not in "qkv" for p, _ in kept))

    def test_contributions_add_up(self):
        found, kept, _ = self.traced()
        parts = [kept["embedding", None]] + [kept[p, i] for i in range(2) for p in ("attention", "mlp")]
        total = torch.stack(parts).sum(0)
        torch.testing.assert_close(total, kept["residual", 1], atol=1e-6, rtol=0)
        again = gpt2.layer_norm(total, weights(), "ln_f", config()) @ weights()["wte.weight"].T
        torch.testing.assert_close(again, found, atol=1e-5, rtol=0)
        norms = [p[0, -1].norm().item() for p in [*parts, total]]
        for norm, expected in zip(norms, (1.030555, 1.516969, 5.060403, 3.626001, 2.297137, 7.134527), strict=True):
            self.assertAlmostEqual(norm, expected, places=4)

    def test_which_state_has_the_final_norm(self):
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

    def test_a_trace_that_looks_empty(self):
        """A trace is asked whether it is None, not whether it is true: a dict that keeps is empty at first."""
        kept = gpt2.Trace()
        logits(trace=kept)
        self.assertIn(("logits", None), kept)

    def test_every_point_in_its_shape_and_chosen_ones(self):
        sizes = ((model(), dict(d=8, h=2, g=2, dh=4, f=32, V=11)), (llama_model(), dict(d=8, h=4, g=2, dh=4, f=12, V=11)))
        ids = torch.cat([IDS, IDS.flip(1)])[:, :5]
        for made, letters in sizes:
            kept, some, letters = gpt2.Trace(), gpt2.Trace("A", "residual", "logits"), letters | dict(B=2, T=5, S=5)
            for trace in (kept, some):
                self.assertTrue(torch.equal(run(made, ids, trace=trace), run(made, ids)))
            layers = [(point, layer) for layer in range(2) for point in gpt2.LAYER_POINTS]
            self.assertEqual(list(kept), [("embedding", None), *layers, ("final_norm", None), ("logits", None)])
            for (point, layer), tensor in kept.items():
                self.assertEqual(tensor.shape, tuple(letters[x] for x in gpt2.POINTS[point].split()), (point, layer))
            self.assertEqual(list(some), [("A", 0), ("residual", 0), ("A", 1), ("residual", 1), ("logits", None)])
            for key, tensor in some.items():
                self.assertTrue(torch.equal(tensor, kept[key]), key)


class NextTokens(unittest.TestCase):
    def test_they_are_the_librarys(self):
        ids = encode("To be, or not to", loaded())
        rows = next_tokens(loaded(), ids)
        shares = torch.softmax(library_of()(ids).logits[0, -1].double(), -1)
        top = shares.topk(5)
        self.assertEqual([r["id"] for r in rows], top.indices.tolist())
        for row, share in zip(rows, top.values.tolist(), strict=True):
            self.assertAlmostEqual(row["probability"], share, places=5)
            self.assertEqual(row["piece"], loaded().tokenizer.decode([row["id"]]))

    def test_ties_go_to_the_lower_id(self):
        none = {"ln_f.weight": torch.zeros(8), "ln_f.bias": torch.zeros(8)}
        wide = config(vocab_size=5000)  # where a sort that is not stable shows
        self.assertEqual([r["id"] for r in next_tokens(Model(wide, weights(wide) | none), IDS)], [0, 1, 2, 3, 4])
        flat = Model(config(), weights() | none)
        self.assertEqual([(r["piece"], round(r["probability"], 9)) for r in next_tokens(flat, IDS, 1)], [(None, round(1 / 11, 9))])


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        self.assertMeasured(self.values(main), next_tokens=next_tokens(loaded(), encode(PROMPT, loaded())))
        ids = encode("Good night", loaded())
        self.assertMeasured(self.values(main, "--prompt", "Good night"), next_tokens=next_tokens(loaded(), ids))
        folder = self.tiny()
        one = load(folder, dtype=torch.bfloat16)
        value = self.values(main, "--model", folder, "--seed", 3, "--dtype", "bfloat16")
        self.assertMeasured(value, next_tokens=next_tokens(one, random_ids(one, 10, seed=3)))

    def test_pages(self):
        self.assertIn("' lord'", self.page(main))
        self.assertIn("n/a", self.page(main, "--model", self.tiny()))
        made = llama_model(vocab_size=3)
        folder = write_folder(self.folder / "llama", made.weights, LLAMA | {"vocab_size": 3})
        self.assertIn("These 3 of 3 tokens hold 100.0%", self.page(main, "--model", folder))

    def test_bad_input(self):
        bad = write_folder(self.folder / "bad", weights() | {"wpe.weight": torch.full((16, 8), math.nan)})
        for argv, words in (
            (["nonsense"], ("nonsense", "--help")),
            (["--model", self.folder / "none"], ("no model",)),
            (["--model", bad], ("wpe.weight", "NaN")),
            (["--model", self.tiny(), "--prompt", "a"], ("no tokenizer",)),
            (["--prompt", ""], ("empty",)),
            (["--prompt", "word " * 257], ("n_positions", "256")),
            (["--seed", "-1"], ("-1 is not 0",)),
        ):
            with self.subTest(str(argv)):
                self.assertBad(main, argv, *words)


if __name__ == "__main__":
    unittest.main()
