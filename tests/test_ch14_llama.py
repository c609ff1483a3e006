"""Chapter 14's Llama: known logits, transformers beside it at the edges and layer by layer, the spellings of its config, loading,
the cache; every agreement shown to fail on planted faults."""

import json
import unittest
from dataclasses import replace
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from examples.ch02 import model as ch02
from examples.ch02.config import Rope
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import load, run
from examples.ch03 import tokens
from examples.ch04 import agreement as ch04
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.library import library_model, library_trace
from examples.ch05 import generate as generation
from examples.ch05.generate import generate
from examples.ch10 import kv_cache
from examples.ch10.kv_cache import Cached, KVCache, forward_cached
from examples.ch14 import family_agreement as ch14
from examples.ch14 import llama_from_scratch as llama
from examples.lab.script import BadInput
from tests.support import IDS, FolderCase, call, det
from tests.support import LLAMA as L
from tests.support import llama_config as config
from tests.support import llama_model as model

BASELINE = (-1.111243, 0.947984, 1.110743, 0.639667, -1.395286, 0.781528, -1.685865, -2.160209, -1.142410, 0.022450, 0.393481)
BOUND = 1e-5
FULL = torch.tensor([[(7 * i * i + 3) % 11 for i in range(64)]])
QUIET = settings(max_examples=60, deadline=None, derandomize=True, database=None)


MODEL = model()
LIBRARY = library_model(MODEL)


def first4(*args, **changes):
    made = model(**changes)
    return llama.forward(IDS, made.weights, made.config)[0, -1, :4]


def setUpModule():
    torch.set_num_threads(2)


class Forward(unittest.TestCase):
    def assertFirst(self, found, *wanted):
        torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-4, rtol=0)

    def test_known_logits(self):
        found = llama.forward(IDS, MODEL.weights, MODEL.config)
        torch.testing.assert_close(found[0, -1], torch.tensor(BASELINE), atol=1e-4, rtol=0)
        self.assertEqual(found[0].argmax(-1).tolist(), [5, 3, 3, 3, 1, 1, 2, 2])

    def test_as_transformers_at_the_edges(self):
        for ids in (IDS[:, :1], IDS[:, :2], IDS, FULL[:, :63], FULL, torch.cat([IDS, IDS.flip(1), IDS * 0 + 7])):
            found = ch04.agreement(run(MODEL, ids), LIBRARY(ids, use_cache=False).logits.detach())
            self.assertLessEqual(found["relative_difference"], BOUND)
            self.assertEqual(found["same_argmax"], found["positions"])
        with self.assertRaisesRegex(BadInput, "65 tokens are more than n_positions 64"):
            run(MODEL, torch.zeros(1, 65, dtype=torch.int64))

    def test_layer_by_layer(self):
        ours = {}
        run(MODEL, FULL, trace=lambda point, layer, x: ours.setdefault((point, layer), x))
        theirs = library_trace(LIBRARY, FULL)
        self.assertEqual(len(theirs), 1 + 10 * 2 + 2)
        for key, right in theirs.items():
            self.assertLessEqual(ch04.largest(ours[key] - right), BOUND * ch04.largest(right), key)

    def test_every_switch_of_the_config(self):
        for changes in (
            dict(tie_word_embeddings=True),
            dict(attention_bias=True),
            dict(mlp_bias=True),
            dict(num_key_value_heads=1),
            dict(num_key_value_heads=4),
            dict(num_key_value_heads=None),
            dict(head_dim=None),
            dict(head_dim=6),
            dict(rms_norm_eps=0.1),
            dict(num_hidden_layers=3),
            dict(rope_theta=500000.0),
            dict(rope_scaling={"rope_type": "linear", "factor": 4.0}),
            dict(rope_scaling=LLAMA3),
        ):
            one = model(**changes)
            theirs = library_model(one)(FULL, use_cache=False).logits.detach()
            self.assertLessEqual(ch04.agreement(run(one, FULL), theirs)["relative_difference"], BOUND, changes)

    def test_float64_and_half(self):
        exact = MODEL.to(dtype=torch.float64)
        reference = run(exact, FULL)
        theirs = library_model(MODEL, torch.float64)(FULL, use_cache=False).logits.detach()
        self.assertLessEqual(
            ch04.agreement(reference, theirs)["relative_difference"], 1e-6
        )  # its norms, softmax and angles stay float32
        self.assertLessEqual(ch04.agreement(run(MODEL, FULL), reference)["relative_difference"], BOUND)
        for dtype, bound in ((torch.bfloat16, 0.05), (torch.float16, 0.01)):
            found = run(MODEL.to(dtype=dtype), FULL)
            self.assertEqual(found.dtype, dtype)
            self.assertLessEqual(ch04.agreement(found.double(), reference)["relative_difference"], bound)

    def test_the_mask_holds_exactly(self):
        found = ch04.influence(MODEL, IDS)
        self.assertEqual(ch04.above_diagonal(found), 0.0)
        self.assertGreater(ch04.above_diagonal(ch04.influence(MODEL, IDS, causal=False)), 0)

    def test_head_dim_wins_over_the_quotient(self):  # C29: L has 4 where d / h is 2
        self.assertEqual(MODEL.config.head_width, 4)
        self.assertEqual(model(head_dim=None).config.head_width, 2)

    def test_kv_heads_are_repeated_in_place(self):  # C28
        weights, order = dict(MODEL.weights), [0, 2, 1, 3]  # tiled, heads 0 and 2 would share; as if they stood side by side
        for i in range(2):
            name = f"model.layers.{i}.self_attn"
            weights[f"{name}.q_proj.weight"] = weights[f"{name}.q_proj.weight"].unflatten(0, (4, 4))[order].flatten(0, 1)
            weights[f"{name}.o_proj.weight"] = weights[f"{name}.o_proj.weight"].unflatten(1, (4, 4))[:, order].flatten(1)
        self.assertFirst(llama.forward(IDS, weights, MODEL.config)[0, -1, :4], -0.061045, 0.653178, -0.508093, 0.280856)
        x, y = det("x", (2, 6, 5, 3)), det("y", (2, 2, 3, 4))
        torch.testing.assert_close(llama.by_group(x, y), x @ y.repeat_interleave(3, dim=1))

    def test_planted_faults(self):
        theirs = LIBRARY(FULL, use_cache=False).logits.detach()
        right_norm, right_rotate = llama.rms_norm, llama.rotate

        def interleaved(x, angles):
            cos, sin = (a[:, : a.shape[-1] // 2].repeat_interleave(2, -1) for a in angles)
            turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
            return x * cos + turned * sin

        for name, fault in (
            ("rms_norm", lambda x, w, n, c: right_norm(x - x.mean(-1, keepdim=True), w, n, c)),
            ("rms_norm", lambda x, w, n, c: right_norm(x, w, n, replace(c, norm_eps=1e-3))),
            ("rotate", interleaved),
            ("rotate", lambda x, angles: right_rotate(x, (angles[0], -angles[1]))),
            ("rotate", lambda x, angles: x),
            ("silu", torch.relu),
            ("silu", lambda x: x),
        ):
            with mock.patch.object(llama, name, fault):
                found = ch04.agreement(llama.forward(FULL, MODEL.weights, MODEL.config), theirs)
            self.assertGreater(found["relative_difference"], 100 * BOUND, name)


LLAMA3 = {
    **dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
    **dict(original_max_position_embeddings=32),
}


class Rotation(unittest.TestCase):
    def test_half_split_and_interleaved(self):  # C25
        x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
        angles = llama.rotation(torch.tensor([3]), Rope(), 4)
        wanted = torch.tensor([-1.413353, 1.879118, -2.828857, 4.058191])
        torch.testing.assert_close(llama.rotate(x, angles).flatten(), wanted, atol=1e-6, rtol=0)

    def test_the_permutation_between_them(self):  # C25
        x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
        angles = llama.rotation(torch.tensor([3]), Rope(), 4)
        wanted = torch.tensor([-1.272233, -1.838865, 2.878668, 4.088187])
        torch.testing.assert_close(llama.rotate_interleaved(x, angles).flatten(), wanted, atol=1e-6, rtol=0)
        self.assertEqual(llama.halves_order(8).tolist(), [0, 2, 4, 6, 1, 3, 5, 7])
        of = config(head_dim=8)
        x, angles, order = det("x", (2, 4, 5, 8)), llama.rotation(torch.arange(5), of.rope, 8), llama.halves_order(8)
        found, other = llama.rotate(x[..., order], angles), llama.rotate_interleaved(x, angles)[..., order]
        torch.testing.assert_close(found, other, atol=1e-6, rtol=0)
        back = order.argsort()  # with 8 numbers this is another order, with 4 it would be the same
        self.assertGreater((llama.rotate(x[..., back], angles) - llama.rotate_interleaved(x, angles)[..., back]).abs().max(), 0.1)

    def test_rows_in_the_other_order(self):  # C25: interleaved rows fed to the half-split rotation
        order = torch.arange(4).view(2, 2).T.flatten()  # 0 2 1 3
        weights = dict(MODEL.weights)
        for name in weights:
            if "q_proj" in name or "k_proj" in name:
                weights[name] = weights[name].unflatten(0, (-1, 4))[:, order].flatten(0, 1)
        found = llama.forward(IDS, weights, MODEL.config)
        torch.testing.assert_close(found[0, -1, :4], torch.tensor([-0.745017, 0.273591, 0.758668, 1.202298]), atol=1e-4, rtol=0)
        right = llama.forward(IDS, MODEL.weights, MODEL.config)
        torch.testing.assert_close(found[0, 0], right[0, 0], atol=1e-6, rtol=0)  # one token would not have told

    def test_spellings_and_values(self):  # C26
        for changes, wanted in (
            (dict(), BASELINE[:4]),
            (dict(rope_theta=500000.0), (-1.120384, 0.976256, 1.132614, 0.611181)),
            (
                dict(rope_theta=None, rope_parameters={"rope_theta": 500000.0, "rope_type": "default"}),
                (-1.120384, 0.976256, 1.132614, 0.611181),
            ),
            (dict(rope_theta=1e6), (-1.120805, 0.977604, 1.133666, 0.609829)),
            (dict(rope_theta=100), (-1.017428, 0.692403, 0.925115, 0.939785)),
            (dict(rope_scaling={"type": "linear", "factor": 4.0}), (-1.248806, 1.007764, 1.251231, 0.237492)),
            (dict(rope_scaling={"rope_type": "linear", "factor": 4}), (-1.248806, 1.007764, 1.251231, 0.237492)),
            (
                dict(rope_theta=None, rope_parameters={"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0}),
                (-1.248806, 1.007764, 1.251231, 0.237492),
            ),
        ):
            torch.testing.assert_close(first4(**changes), torch.tensor(wanted), atol=1e-4, rtol=0, msg=str(changes))

    def test_what_is_not_understood_is_refused(self):  # C26
        for changes, words in (
            (dict(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "'yarn' is not known"),
            (dict(rope_scaling={"type": "dynamic", "factor": 2.0}), "'dynamic' is not known"),
            (dict(rope_scaling={"rope_type": "linear"}), "factor is None"),
            (dict(rope_scaling={"rope_type": "linear", "factor": "4"}), "factor is '4'"),
            (dict(rope_scaling={"rope_type": "linear", "factor": 4.0, "beta": 1}), "'beta'"),
            (dict(rope_scaling={"rope_type": "default", "partial_rotary_factor": 0.5}), "'partial_rotary_factor'"),
            (dict(rope_scaling={k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}), "low_freq_factor is None"),
            (dict(rope_scaling=[4.0]), "no table"),
            (dict(rope_parameters={"rope_theta": 5e5, "rope_type": "default"}), "differ"),
            (dict(rope_theta=-1.0), "rope_theta is -1.0"),
            (dict(rope_theta=float("nan")), "rope_theta is nan"),
            (dict(hidden_act="gelu"), "hidden_act"),
            (dict(num_key_value_heads=3), "4 heads are not divisible by 3"),
            (dict(head_dim=3), "a head of 3 numbers is odd"),
            (dict(head_dim=0), "head_dim is 0"),
            (dict(hidden_size=9, head_dim=None), "not divisible"),
            (dict(vocab_size=None), "lacks vocab_size"),
            (dict(rms_norm_eps=0), "rms_norm_eps"),
            (dict(attention_bias="no"), "attention_bias"),
            (dict(rotary_dim=4), "rotary_dim 4 may change the computation, and is not known here of a llama"),
            (dict(model_type="mamba"), "model_type is 'mamba'; known here are 'gpt2', .*'llama'"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                config(**changes)

    def test_llama3_blends(self):
        rope = Rope(kind="llama3", factor=8.0, original_positions=32)
        slowed = llama.frequencies(Rope(), 32) / llama.frequencies(rope, 32)
        self.assertAlmostEqual(slowed[0].item(), 1.0)
        self.assertAlmostEqual(slowed[-1].item(), 8.0)
        self.assertTrue((slowed.diff() >= -1e-12).all() and ((slowed > 1.001) & (slowed < 7.999)).any())


class Loading(FolderCase):
    def folder_of(self, made, values=None, prefix="", drop=(), extra=()):
        folder = self.folder / "m"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(L if values is None else values))
        tensors = {prefix + name: w.contiguous() for name, w in made.weights.items() if name not in drop} | dict(extra)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def test_from_a_folder(self):
        frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(2)}
        for extra in ((), frequencies):
            loaded = load(self.folder_of(MODEL, extra=extra))
            self.assertEqual(list(loaded.weights), list(tensor_shapes(MODEL.config)))
            self.assertEqual((loaded.config, loaded.manifest["model_type"]), (MODEL.config, "llama"))
            self.assertEqual(loaded.manifest["parameters"], 1560)
            self.assertTrue(torch.equal(run(loaded, IDS), run(MODEL, IDS)))

    def test_as_transformers_writes_it(self):
        library_model(MODEL).save_pretrained(self.folder / "theirs")
        loaded = load(self.folder / "theirs")
        self.assertEqual(loaded.config.rope, MODEL.config.rope)
        torch.testing.assert_close(run(loaded, IDS), run(MODEL, IDS), rtol=0, atol=0)

    def test_tied_and_untied(self):
        tied = model(tie_word_embeddings=True)
        values = L | {"tie_word_embeddings": True}
        self.assertTrue(torch.equal(run(load(self.folder_of(tied, values)), IDS), run(tied, IDS)))
        copy = {"lm_head.weight": tied.weights["model.embed_tokens.weight"].clone()}
        self.assertEqual(load(self.folder_of(tied, values, extra=copy)).manifest["head"], "tied, with a copy in the file")
        with self.assertRaisesRegex(BadInput, "lm_head.weight differs from model.embed_tokens.weight"):
            load(self.folder_of(tied, values, extra={"lm_head.weight": copy["lm_head.weight"] + 1}))

    def test_bad_files(self):
        for drop, extra, words in (
            (("model.layers.1.mlp.up_proj.weight",), (), "lacks model.layers.1.mlp.up_proj.weight"),
            (("lm_head.weight",), (), "lacks lm_head.weight"),
            ((), {"model.layers.2.mlp.up_proj.weight": torch.ones(12, 8)}, "does not know: model.layers.2"),
            ((), {"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}, "does not know"),
            (("model.norm.weight",), {"model.norm.weight": torch.ones(9)}, "another shape"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                load(self.folder_of(MODEL, drop=drop, extra=extra))

    def test_packed_weights_are_refused(self):
        folder = self.folder_of(MODEL, L | {"quantization_config": {"bits": 4}})
        with self.assertRaisesRegex(BadInput, "quantization_config says that weights are packed"):
            load(folder)

    def test_a_llama_is_not_written(self):
        with self.assertRaisesRegex(BadInput, "writing a model folder takes a gpt2, and this model is a llama"):
            ch02.save(MODEL, self.folder / "x")

    def test_counts(self):
        self.assertEqual(sum(w.numel() for w in MODEL.weights.values()), 1560)
        shape = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32)
        big = config(**shape, num_key_value_heads=8, head_dim=None)
        self.assertEqual(sum(torch.Size(s).numel() for s in tensor_shapes(big).values()), 8_030_261_248)  # Llama-3-8B


class Elsewhere(FolderCase):
    """What the earlier chapters do with a Llama: what they can, and one line for what they cannot."""

    def setUp(self):
        super().setUp()
        save_file(
            {n: w.contiguous() for n, w in MODEL.weights.items()}, self.folder / "model.safetensors", metadata={"format": "pt"}
        )
        (self.folder / "config.json").write_text(json.dumps(L))

    def test_the_manifest_and_the_loop(self):
        status, out, err = call(ch02.main, "--model", self.folder)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("a llama with 1,560 parameters, head untied", out)
        order = ["--model", self.folder, "--tokens", "8", "--temperature", "0", "--json"]
        value = json.loads(call(generation.main, *order)[1])
        self.assertEqual(value["ids"], generate([[0]], MODEL, 8, end=None).sequence())
        self.assertEqual(tokens.embedding_share(MODEL.config), (88, 1560))

    def test_chapter_4s_cost_model_says_so(self):
        for command in ("count", "flops"):
            self.assertBad(gpt2.main, [command, "--config", self.folder], "takes a gpt2, and this model is a llama")

    def values_of(self, *argv):
        """What a command of chapter 10's script has to say as JSON, after the same command as text."""
        status, out, err = call(kv_cache.main, *argv)
        self.assertEqual((status, err), (0, ""), argv)
        self.assertNotEqual(out, "")
        return json.loads(call(kv_cache.main, *argv, "--json")[1])

    def test_chapter_10s_tour(self):
        value = self.values_of("--model", self.folder)
        self.assertEqual((value["same_as_naive"], value["bytes_per_token"], value["cache_bytes"]), (True, 128, 64 * 128))
        self.assertEqual(value["ids"], generate([value["prompt"]], MODEL, 53, end=None).sequence())
        self.assertEqual((value["computed"], value["naive"]), (64, 53 * 12 + 53 * 26))
        self.assertLessEqual(value["worst_split"], BOUND)

    def test_chapter_10s_failures(self):
        rows = self.values_of("failures", "--model", self.folder)["failures"]
        self.assertEqual(len(rows), 5)
        for row in rows:
            self.assertGreater(row["largest"], 100 * BOUND, row["failure"])
            self.assertIsNone(row["raised"], row["failure"])
            self.assertIsInstance(row["guard"], str, row["failure"])

    def test_chapter_10s_counts(self):
        rows = self.values_of("cost", "--model", self.folder, "--new", "2,40")["counts"]
        self.assertEqual([(r["new"], r["naive"], r["cached"]) for r in rows], [(2, 41, 21), (40, 1580, 59)])
        projection = 2 * 8 * 11  # of the last position alone
        first = 20 * (llama.flops_per_token(MODEL.config, 20)["total"] - projection) + projection
        second = 21 * (llama.flops_per_token(MODEL.config, 21)["total"] - projection) + projection
        self.assertEqual(round(rows[0]["naive_gflop"] * 1e9), first + second)
        self.assertEqual(round(rows[0]["cached_gflop"] * 1e9), first + llama.flops_per_token(MODEL.config, 21)["total"])
        rows = self.values_of("memory", "--config", self.folder, "--bytes", "4", "--batch", "3")["rows"]
        self.assertEqual([(r["tokens"], r["all_bytes"], r["weight_bytes"]) for r in rows], [(t, 384 * t, 6240) for t in (1, 64)])


class Compare(FolderCase):
    def setUp(self):
        super().setUp()
        save_file(dict(MODEL.weights), self.folder / "model.safetensors", metadata={"format": "pt"})
        (self.folder / "config.json").write_text(json.dumps(L))

    def test_on_a_folder(self):
        status, out, err = call(llama.main, "compare", "--model", self.folder)
        self.assertEqual((status, err), (0, ""))
        for text in (
            "Within the bar",
            "323 of 323 positions",
            "Greedy with our cache, 40 of 40",
            "residual_mid",
            "1,560 parameters",
        ):
            self.assertIn(text, out)
        value = json.loads(call(llama.main, "--model", self.folder, "--tokens", "60", "--json")[1])
        self.assertEqual((value["within"], value["greedy_same"], len(value["greedy"])), (True, 60, 60))
        self.assertLess(value["worst"], BOUND)

    def test_it_tells_how_far_it_is(self):
        """On SmolLM2 the command takes minutes."""
        told = []
        found = ch14.llama_agreement(load(self.folder), tokens=2, progress=lambda: told.append(1))
        self.assertEqual(len(told), len(found["prompts"] + found["edges"]) + 1)

    def test_a_planted_fault_is_told(self):
        right = llama.rotate
        with mock.patch.object(llama, "rotate", lambda x, angles: right(x, (angles[0], -angles[1]))):
            out = call(llama.main, "--model", self.folder)[1]
        self.assertIn("OUTSIDE the bar", out)

    def test_bad_input(self):
        for argv, words in (
            (["--model", "embedded"], "takes a llama, and this model is a gpt2"),
            (["--model", "nowhere"], "no model"),
            (["--model", self.folder / "x.gguf"], "no such file"),
            (["--tokens", "0"], "0 is not 1 or more"),
            (["nonsense"], "nonsense"),
        ):
            self.assertBad(llama.main, argv, words)


class Cache(unittest.TestCase):
    @QUIET
    @given(st.data())
    def test_any_split(self, data):
        batch, tokens = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 64))
        ids = FULL[:, :tokens].roll(batch, 1).expand(batch, -1)
        cache, logits, start = KVCache(MODEL, batch), [], 0
        while start < tokens:
            size = data.draw(st.integers(1, tokens - start))
            logits.append(forward_cached(ids[:, start : start + size], MODEL, cache))
            start += size
        found = ch04.agreement(torch.cat(logits, 1), run(MODEL, ids))
        self.assertLessEqual(found["relative_difference"], BOUND)

    def test_bytes_are_those_of_kv_heads(self):  # C39
        cache = KVCache(MODEL, capacity=8)
        self.assertEqual((cache.nbytes, [tuple(x.shape) for x in cache.keys]), (1024, [(1, 2, 8, 4)] * 2))

    def test_generation(self):  # C45
        greedy = generate([[3, 1, 4]], MODEL, 8, end=None).sequence()
        self.assertEqual(greedy, [3, 2, 2, 9, 5, 2, 2, 2])
        self.assertEqual(generate([[3, 1, 4]], MODEL, 8, end=None, forward=Cached(MODEL)).sequence(), greedy)
        for end, wanted in ((2, [3, 2]), ([99, 9], [3, 2, 2, 9]), ([5, 2], [3, 2])):
            self.assertEqual(generate([[3, 1, 4]], MODEL, 8, end=end, forward=Cached(MODEL)).sequence(), wanted)
        batch = generate([[3, 1, 4], [7, 7, 7]], MODEL, 8, end=[2], forward=Cached(MODEL, 2))
        self.assertEqual(batch.ids.tolist(), [[3, 2, 0, 0, 0, 0, 0, 0], [7] * 8])

    def test_bad_input(self):
        cache = KVCache(MODEL, capacity=4)
        with self.assertRaisesRegex(BadInput, "5 more do not fit"):
            forward_cached(FULL[:, :5], MODEL, cache)
        half = KVCache(MODEL.to(dtype=torch.bfloat16))
        with self.assertRaisesRegex(BadInput, "the cache is torch.bfloat16"):
            forward_cached(FULL[:, :5], MODEL, half)


if __name__ == "__main__":
    unittest.main()
