"""Chapter 14's Llama: known logits, transformers beside it at the edges and layer by layer, rotations and the spellings of a rope,
loading, the cache; every agreement shown to fail on planted faults."""

import json
import unittest
from dataclasses import replace
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from examples.ch02 import manifest
from examples.ch02.config import Rope
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import load, run, save
from examples.ch02.ropes import ROPE_KINDS, rope_from
from examples.ch03.tokens import embedding_share, random_ids
from examples.ch04 import cost_model
from examples.ch04.agreement import agreement
from examples.ch04.causal_mask import above_diagonal, influence
from examples.ch04.library import library_model, library_trace
from examples.ch05.generate import generate
from examples.ch10.cache_cost import flops_of_loop
from examples.ch10.kv_cache import Cached, KVCache, forward_cached
from examples.ch14 import llama_from_scratch as llama
from examples.ch14.costs import flops_per_token
from examples.lab.experiment import largest
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import IDS, FolderCase, call, det, write_folder
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
    torch.set_num_threads(1)


class Forward(unittest.TestCase):
    def assertFirst(self, found, *wanted):
        torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-4, rtol=0)

    def test_known_logits(self):
        found = llama.forward(IDS, MODEL.weights, MODEL.config)
        torch.testing.assert_close(found[0, -1], torch.tensor(BASELINE), atol=1e-4, rtol=0)
        self.assertEqual(found[0].argmax(-1).tolist(), [5, 3, 3, 3, 1, 1, 2, 2])

    def test_as_transformers_at_the_edges(self):
        for ids in (IDS[:, :1], IDS[:, :2], IDS, FULL[:, :63], FULL, torch.cat([IDS, IDS.flip(1), IDS * 0 + 7])):
            found = agreement(run(MODEL, ids), LIBRARY(ids, use_cache=False).logits.detach())
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
            self.assertLessEqual(largest(ours[key] - right), BOUND * largest(right), key)

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
            self.assertLessEqual(agreement(run(one, FULL), theirs)["relative_difference"], BOUND, changes)

    def test_float64_and_half(self):
        exact = MODEL.to(dtype=torch.float64)
        reference = run(exact, FULL)
        theirs = library_model(MODEL, torch.float64)(FULL, use_cache=False).logits.detach()
        self.assertLessEqual(
            agreement(reference, theirs)["relative_difference"], 1e-6
        )  # its norms, softmax and angles stay float32
        self.assertLessEqual(agreement(run(MODEL, FULL), reference)["relative_difference"], BOUND)
        for dtype, bound in ((torch.bfloat16, 0.05), (torch.float16, 0.01)):
            found = run(MODEL.to(dtype=dtype), FULL)
            self.assertEqual(found.dtype, dtype)
            self.assertLessEqual(agreement(found.double(), reference)["relative_difference"], bound)

    def test_the_mask_holds_exactly(self):
        self.assertEqual(above_diagonal(influence(MODEL, IDS)), 0.0)
        self.assertGreater(above_diagonal(influence(MODEL, IDS, causal=False)), 0)

    def test_head_dim_wins_over_the_quotient(self):  # L has 4 where d / h is 2
        self.assertEqual(MODEL.config.head_width, 4)
        self.assertEqual(model(head_dim=None).config.head_width, 2)

    def test_kv_heads_are_repeated_in_place(self):
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
                found = agreement(llama.forward(FULL, MODEL.weights, MODEL.config), theirs)
            self.assertGreater(found["relative_difference"], 100 * BOUND, name)


LLAMA3 = {
    **dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0),
    **dict(original_max_position_embeddings=32),
}


class Rotation(unittest.TestCase):
    def test_half_split_and_interleaved(self):
        x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
        angles = llama.rotation(torch.tensor([3]), Rope(), 4)
        wanted = torch.tensor([-1.413353, 1.879118, -2.828857, 4.058191])
        torch.testing.assert_close(llama.rotate(x, angles).flatten(), wanted, atol=1e-6, rtol=0)

    def test_the_permutation_between_them(self):
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

    def test_rows_in_the_other_order(self):  # interleaved rows fed to the half-split rotation
        order = torch.arange(4).view(2, 2).T.flatten()  # 0 2 1 3
        weights = dict(MODEL.weights)
        for name in weights:
            if "q_proj" in name or "k_proj" in name:
                weights[name] = weights[name].unflatten(0, (-1, 4))[:, order].flatten(0, 1)
        found = llama.forward(IDS, weights, MODEL.config)
        torch.testing.assert_close(found[0, -1, :4], torch.tensor([-0.745017, 0.273591, 0.758668, 1.202298]), atol=1e-4, rtol=0)
        right = llama.forward(IDS, MODEL.weights, MODEL.config)
        torch.testing.assert_close(found[0, 0], right[0, 0], atol=1e-6, rtol=0)  # one token would not have told

    def test_spellings_and_values(self):
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

    def test_llama3_blends(self):
        rope = Rope(kind="llama3", factor=8.0, original_positions=32)
        slowed = llama.frequencies(Rope(), 32) / llama.frequencies(rope, 32)
        self.assertAlmostEqual(slowed[0].item(), 1.0)
        self.assertAlmostEqual(slowed[-1].item(), 8.0)
        self.assertTrue((slowed.diff() >= -1e-12).all() and ((slowed > 1.001) & (slowed < 7.999)).any())

    def test_frequencies_are_the_library_s(self):
        from transformers import LlamaConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        for width in (8, 16, 64, 128):
            for kind, values in (
                ("linear", dict(factor=4.0)),
                ("llama3", dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
                ("llama3", dict(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)),
                ("yarn", dict(factor=40.0, beta_fast=32, beta_slow=1, original_max_position_embeddings=4096)),
                ("yarn", dict(factor=4.0, beta_fast=4, beta_slow=1, original_max_position_embeddings=16)),
                ("yarn", dict(factor=4.0, beta_fast=32, beta_slow=1, original_max_position_embeddings=10**6)),
                ("yarn", dict(factor=2.0, beta_fast=1, beta_slow=32, original_max_position_embeddings=4096)),
                ("yarn", dict(factor=4.0, original_max_position_embeddings=2048, mscale=1.0, mscale_all_dim=0.5)),
            ):
                for theta in (10000.0, 500000.0):
                    block = {"rope_type": kind, "rope_theta": theta, **values}
                    theirs = LlamaConfig(head_dim=width, num_attention_heads=2, hidden_size=2 * width, rope_parameters=dict(block))
                    wanted, gain = ROPE_INIT_FUNCTIONS[kind](theirs, "cpu")
                    rope = rope_from({"rope_parameters": block}, "c", (*ROPE_KINDS, "yarn"))
                    found = llama.frequencies(rope, width)
                    torch.testing.assert_close(found.float(), wanted, rtol=2e-6, atol=0, msg=f"{width} {block}")
                    self.assertAlmostEqual(rope.gain, gain, places=6)

    def test_equal_ends_of_yarn(self):
        found = llama.frequencies(Rope(kind="yarn", factor=4.0, original_positions=2, fast=9.0, slow=9.0), 8)
        self.assertTrue(found.isfinite().all())


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
            save(MODEL, self.folder / "x")

    def test_counts(self):
        self.assertEqual(sum(w.numel() for w in MODEL.weights.values()), 1560)
        shape = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32)
        big = config(**shape, num_key_value_heads=8, head_dim=None)
        self.assertEqual(sum(torch.Size(s).numel() for s in tensor_shapes(big).values()), 8_030_261_248)  # Llama-3-8B


class Elsewhere(FolderCase):
    """What earlier chapters say of a Llama."""

    def test_the_loop(self):
        projection = 2 * 8 * 11  # of the last position alone
        steps = [flops_per_token(MODEL.config, t)["total"] for t in (20, 21)]
        first, second = (t * (step - projection) + projection for t, step in zip((20, 21), steps, strict=True))
        self.assertEqual(flops_of_loop(MODEL.config, 20, 2), (first + second, first + steps[1]))

    def test_the_share_of_the_embedding(self):
        self.assertEqual(embedding_share(MODEL.config), (88, 1560))

    def test_the_manifest_and_the_cost_model(self):
        folder = write_folder(self.folder / "m", MODEL.weights, L)
        status, out, err = call(manifest.main, "--model", folder)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("a llama with 1,560 parameters, head untied", out)
        self.assertBad(cost_model.main, ["--config", folder], "takes a gpt2, and this model is a llama")


class Script(RoomCase):
    def setUp(self):
        super().setUp()
        self.model = write_folder(self.folder / "m", MODEL.weights, L)

    def test_next_tokens(self):
        rows = self.values(llama.main, "--model", self.model)["next_tokens"]
        wanted = torch.softmax(run(MODEL, random_ids(MODEL, 10))[0, -1].double(), -1).sort(descending=True)
        self.assertEqual([row["id"] for row in rows], wanted.indices[:5].tolist())
        self.assertAlmostEqual(rows[0]["probability"], wanted.values[0].item(), places=12)
        self.assertIn(f"{rows[0]['probability']:.2%}", self.page(llama.main, "--model", self.model))

    def test_bad_input(self):
        for argv, words in (
            (["--model", "embedded"], "takes a llama, and this model is a gpt2"),
            (["--model", "nowhere"], "no model"),
            (["--model", self.folder / "x.gguf"], "no such file"),
            (["--model", self.model, "--prompt", "words"], "no tokenizer"),
            (["compare"], "compare"),
        ):
            self.assertBad(llama.main, argv, words)

    def test_without_smollm2(self):
        """With no arguments it runs the tiny Llama and says so in one line; a text, or SmolLM2 by name, it cannot have."""
        absent = mock.patch("importlib.util.find_spec", return_value=None)
        with absent:
            status, out, err = call(llama.main)
            self.assertEqual((status, len(err.splitlines())), (0, 1))
            for words in ("SmolLM2 is not installed", "random:tiny-llama", "random weights", "make real-model"):
                self.assertIn(words, err)
            self.assertIn("random:tiny-llama: random ids [", out)
            value = json.loads(call(llama.main, "--json", "--seed", 2)[1])
            for argv in (["--model", "smollm2"], ["--prompt", "words"]):
                self.assertBad(llama.main, argv, "not installed here; run `make real-model`")
        self.assertEqual(value["ran_with"]["model"], "random:tiny-llama")
        tiny = load("random:tiny-llama", seed=2)
        wanted = torch.softmax(run(tiny, random_ids(tiny, 10, seed=2))[0, -1].double(), -1).argmax().item()
        self.assertEqual(value["next_tokens"][0]["id"], wanted)
        with mock.patch.object(llama, "smollm2_file"):
            self.assertEqual((llama.default_model(), llama.default_model("words")), ("smollm2", "smollm2"))

    def test_weights_that_are_no_numbers(self):
        nan = {name: w * float("nan") for name, w in MODEL.weights.items()}
        self.assertBad(llama.main, ["--model", write_folder(self.folder / "nan", nan, L)], "holds NaN")


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
        found = agreement(torch.cat(logits, 1), run(MODEL, ids))
        self.assertLessEqual(found["relative_difference"], BOUND)

    def test_bytes_are_those_of_kv_heads(self):
        cache = KVCache(MODEL, capacity=8)
        self.assertEqual((cache.nbytes, [tuple(x.shape) for x in cache.keys]), (1024, [(1, 2, 8, 4)] * 2))

    def test_generation(self):
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
