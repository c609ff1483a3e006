"""Chapter 14's configurable forward: every family beside transformers at the edges, layer by layer, exactly causal; a planted fault
in every row of the table of choices; names and layouts of files; windows; what positions mean for a prefix; the script."""

import json
import math
import unittest
from dataclasses import replace
from functools import cache
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from examples.ch02 import families, layout
from examples.ch02.config import general
from examples.ch02.families import read_config
from examples.ch02.layout import general_weights, is_buffer, tensor_shapes, weight_shapes
from examples.ch02.model import general_form, load, run
from examples.ch03.tokens import random_ids
from examples.ch04 import agreement as ch04
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch05.generate import generate
from examples.ch05.repetition import library_greedy
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes, forward_cached
from examples.ch14 import family_agreement as ex
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import peers, serving, variants
from examples.ch14.ten_choices import explain, options_of
from examples.lab.script import BadInput
from tests.support import IDS, FolderCase, call, det, llama_model, slow, start
from tests.support import LLAMA as L
from tests.support import model as tiny_gpt2

MODEL = llama_model()
BOUND = 1e-5  # of the largest logit
CASES = {case: (kind, changes) for case, kind, changes in ex.CASES}


def setUpModule():
    torch.set_num_threads(1)


@cache
def case(name):
    """(library, model) of a case, built once."""
    return ex.case_models(*CASES[name])


def other(name, weights=None, **changes):
    """A case's model with `changes` to its config, and with other weights where they are given."""
    model = case(name)[1]
    return replace(model, config=replace(model.config, **changes), weights=model.weights if weights is None else weights)


@torch.no_grad()
def off(name, model=None, tokens=ex.LENGTH, batch=2):
    """How far our logits of a case are from transformers', of the largest; those of another `model` where one is given."""
    library, own = case(name)
    ids = random_ids(own, tokens, batch)
    return ch04.agreement(run(model or own, ids), library(ids, use_cache=False).logits)["relative_difference"]


class Agreement(unittest.TestCase):
    def test_every_family_is_there(self):
        self.assertEqual({kind for kind, _ in CASES.values()}, set(families.READERS))
        self.assertEqual(set(families.READERS), set(families.PROGRAMS))

    def test_logits_points_argmax_and_mask(self):
        for name, (kind, changes) in CASES.items():
            with self.subTest(name):
                row = ex.case_agreement(name, kind, changes)
                self.assertLessEqual(row["worst"], BOUND)
                self.assertLessEqual(row["worst_point"], BOUND)
                # the embedding, final norm and logits; of each layer all but the scores, of a Llama all but them and q, of the
                # others the weights, and the stream but for the last one
                self.assertEqual(row["points"], {"gpt2": 3 + 3 * 11, "llama": 3 + 3 * 10}.get(kind, 3 + 3 + 2))
                self.assertEqual(row["same_argmax"], row["positions"])
                self.assertEqual(row["above_diagonal"], 0.0)
                self.assertEqual(row["parameters"], row["library_parameters"])

    def test_the_tiny_models_hide_nothing(self):
        for name in CASES:
            model = case(name)[1]
            config = model.config
            self.assertGreater(config.n_layer, 1)
            if config.rope and not config.latent and name not in ("qwen2", "qwen2, windows"):  # which has no such field
                self.assertNotEqual(config.head_width * config.n_head, config.n_embd, name)
            for key, tensor in model.weights.items():
                if tensor.ndim == 1:
                    self.assertGreater(tensor.std().item(), 0.05, f"{name}: {key} is as good as constant")
            if config.windows:
                self.assertLess(min(x for x in config.windows if x), ex.LENGTH)

    def test_without_the_mask_it_is_not_causal(self):
        model = case("gemma2")[1]
        ids = random_ids(model, 8)
        changed = ids.clone()
        changed[0, -1] = (changed[0, -1] + 1) % model.config.vocab_size
        before, after = (run(model, x, causal=False)[0, :-1] for x in (ids, changed))
        self.assertGreater((before - after).abs().max().item(), 1e-3)

    def test_float64_and_half(self):
        for name in peers.TINY:
            model = case(name)[1]
            ids = random_ids(model, ex.LENGTH, 2)
            exact = run(model.to(dtype=torch.float64), ids)
            self.assertEqual(exact.dtype, torch.float64)
            self.assertLessEqual(ch04.agreement(run(model, ids), exact)["relative_difference"], BOUND, name)
            if name != "xglm":  # the library's takes no float64: its smallest number does not fit a float
                with torch.no_grad():
                    theirs = peers.library_tiny(name).double()(ids, use_cache=False).logits
                # where the library keeps no float32 for norms, softmax or angles, two programs agree to float64's own rounding
                bound = 1e-12 if name in ("gpt2", "openai-gpt") else BOUND
                self.assertLessEqual(ch04.agreement(exact, theirs)["relative_difference"], bound, name)
            for dtype, bound in ((torch.bfloat16, 0.15), (torch.float16, 0.03)):
                found = run(model.to(dtype=dtype), ids)
                self.assertEqual(found.dtype, dtype)
                if not model.config.experts:  # rounded scores may choose another expert
                    self.assertLessEqual(ch04.agreement(found.double(), exact)["relative_difference"], bound, (name, dtype))

    def test_beyond_the_context(self):
        for name in peers.TINY:
            model = case(name)[1]
            most = model.config.n_positions
            with self.assertRaisesRegex(BadInput, f"{most + 1} tokens are more than n_positions {most}"):
                run(model, torch.zeros(1, most + 1, dtype=torch.int64))
            with self.assertRaisesRegex(BadInput, "id 53 is outside"):
                run(model, torch.full((1, 2), 53))

    def test_it_is_the_oracle(self):
        for one in (tiny_gpt2(), MODEL):
            self.assertLessEqual(ch04.agreement(run(general_form(one), IDS), run(one, IDS))["relative_difference"], 1e-6)

    def test_traced_points_are_those_of_chapter_4(self):
        for name in ("gpt2", "openai-gpt", "gemma2", "mixtral", "deepseek_v3"):
            model, kept = case(name)[1], gpt2.Trace()
            run(model, random_ids(model, 5), trace=kept)
            wanted = {(p, i) for p in gpt2.LAYER_POINTS for i in range(3)} | {
                ("embedding", None),
                ("final_norm", None),
                ("logits", None),
            }
            dense = {i for i in range(3) if not model.config.has_experts(i)}
            self.assertEqual(set(kept), {(p, i) for p, i in wanted if p != "hidden" or i in dense})
            if model.config.norm_place != "post":
                total = kept["embedding", None] + sum(kept[p, i] for p in ("attention", "mlp") for i in range(3))
                torch.testing.assert_close(total, kept["residual", 2], atol=1e-4, rtol=1e-5)

    def test_latent_attention_absorbed(self):
        for name in ("deepseek_v3", "deepseek_v3, plain queries"):
            self.assertLessEqual(off(name, ex.in_absorbed_form(case(name)[1])), BOUND)


class PlantedFaults(unittest.TestCase):
    """In every row of the table a wrong reading or a wrong line is seen by the comparison that finds the right ones the same."""

    def assertSeen(self, name, **changes):
        self.assertLessEqual(off(name), BOUND)
        self.assertGreater(off(name, other(name, **changes)), 20 * BOUND, (name, changes))

    def assertPatchSeen(self, name, module, attribute, wrong):
        self.assertLessEqual(off(name), BOUND)
        with mock.patch.object(module, attribute, wrong):
            self.assertGreater(off(name), 20 * BOUND, (name, attribute))

    def assertWeightsSeen(self, name, change):
        model = case(name)[1]
        self.assertLessEqual(off(name), BOUND)
        wrong = dict(model.weights)
        change(wrong, model.config)
        self.assertGreater(off(name, other(name, wrong)), 20 * BOUND, name)

    def test_normalisation(self):
        self.assertSeen("llama", norm="layer")
        self.assertSeen("gpt2", norm="rms")
        self.assertSeen("llama", norm_eps=1e-2)
        self.assertSeen("gemma", unit_gain=False)
        right = llama.rms
        self.assertPatchSeen("deepseek_v3", llama, "rms", lambda x, gain, eps=1e-6: right(x, gain, 0.05 if eps == 1e-6 else eps))

    def test_its_place(self):
        # a family read as another: what differs is where the same tensors are used
        weights, d = case("openai-gpt")[1].weights, case("openai-gpt")[1].config.n_embd
        moved = {k.replace("post_attention", "input").replace("post_feedforward", "post_attention"): w for k, w in weights.items()}
        self.assertGreater(off("openai-gpt", other("openai-gpt", moved, norm_place="pre")), 20 * BOUND)
        extra = weights | {"model.norm.weight": torch.ones(d), "model.norm.bias": torch.zeros(d)}  # one more, before the head
        self.assertGreater(off("openai-gpt", other("openai-gpt", extra, final_norm=True)), 20 * BOUND)
        weights = case("gemma2")[1].weights
        pre = {k.replace("pre_feedforward", "post_attention"): w for k, w in weights.items() if "post_attention" not in k}
        self.assertGreater(off("gemma2", other("gemma2", pre, norm_place="pre")), 20 * BOUND)

    def test_positions(self):
        at = torch.arange(ex.LENGTH)
        library, model = case("gpt2")
        ids = random_ids(model, ex.LENGTH)
        with torch.no_grad():
            theirs = library(ids, use_cache=False).logits
        self.assertLessEqual(ch04.agreement(ex.forward_at(model, ids, at), theirs)["relative_difference"], BOUND)
        self.assertGreater(ch04.agreement(ex.forward_at(model, ids, at + 1), theirs)["relative_difference"], 20 * BOUND)
        self.assertSeen("xglm", first_position=0)
        self.assertSeen("xglm", positions="none")
        self.assertSeen("llama", interleaved=True)
        self.assertSeen("deepseek_v3", interleaved=False)
        self.assertSeen("llama", rope=replace(case("llama")[1].config.rope, theta=20000.0))
        rope = case("deepseek_v3")[1].config.rope
        self.assertSeen("deepseek_v3", rope=replace(rope, kind="linear"))
        self.assertSeen("deepseek_v3", rope=replace(rope, mscale=0.0, mscale_all=0.0))
        self.assertSeen("gemma3_text", window_rope=None)
        right = variants.slopes
        self.assertPatchSeen("bloom", variants, "slopes", lambda n: right(n).flip(0))
        self.assertPatchSeen(
            "bloom", variants, "slopes", lambda n: 2.0 ** (-8 * torch.arange(1.0, n + 1) / n)
        )  # 6 is no power of 2
        self.assertSeen("bloom", embedding_norm=False)

    def test_attention(self):
        def tiled(x, y):  # as if head i met head i modulo g
            each = x.shape[1] // y.shape[1]
            order = torch.arange(x.shape[1]).view(-1, each).T.flatten() if each > 1 else torch.arange(x.shape[1])
            return llama_by_group(x[:, order.argsort()], y)

        llama_by_group = llama.by_group
        self.assertPatchSeen("llama", llama, "by_group", tiled)

        def backwards(x, width):
            return right(x, width).flip(1)

        right = variants.heads
        wrong = lambda x, width: backwards(x, width) if x.shape[-1] == 24 else right(x, width)  # noqa: E731  q, k, v of GPT-2 alone
        self.assertPatchSeen("gpt2", variants, "heads", wrong)  # heads meet the wrong columns of the projection

        def swapped(weights, config):
            for i in range(config.n_layer):
                k, v = (f"model.layers.{i}.self_attn.{x}_proj.weight" for x in "kv")
                weights[k], weights[v] = weights[v], weights[k]

        self.assertWeightsSeen("gemma", swapped)
        self.assertWeightsSeen("gpt_bigcode", swapped)
        right_latents = variants.latents

        def turned_first(*args):
            q_plain, q_turned, short, k_turned = right_latents(*args)
            return q_plain, q_turned, short, k_turned.roll(1, dims=2)

        self.assertPatchSeen("deepseek_v3", variants, "latents", turned_first)
        self.assertSeen("deepseek_v3", score_scale=None)
        self.assertSeen("gemma2", score_scale=None)
        self.assertSeen("gemma2", score_cap=None)

    def test_activation(self):
        self.assertSeen("gpt2", activation="silu")
        self.assertSeen("gpt2, SiLU", activation="gelu")
        self.assertSeen("llama", activation="gelu")

        def swapped(weights, config):  # the gate and what it gates
            for i in range(config.n_layer):
                a, b = (f"model.layers.{i}.mlp.{x}_proj.weight" for x in ("gate", "up"))
                weights[a], weights[b] = weights[b], weights[a]

        self.assertWeightsSeen("gemma", swapped)
        for name, act in (("gpt2", "gelu"), ("bloom", "gelu"), ("openai-gpt", "gelu"), ("gemma", "gelu"), ("xglm", "gelu_new")):
            found = off(name, other(name, activation=act))  # so near that a bar of 1e-3 would not see it
            self.assertGreater(found, 3 * BOUND, name)
            self.assertLess(found, 1e-3, name)

    def test_feed_forward(self):
        experts = case("mixtral")[1].config.experts
        self.assertSeen("mixtral", experts=replace(experts, active=1))
        self.assertSeen("mixtral", experts=replace(experts, renormalise=False))
        experts = case("deepseek_v3")[1].config.experts
        for changes in (dict(groups=1), dict(renormalise=False), dict(scale=1.0), dict(active=2), dict(shared=0)):
            self.assertSeen("deepseek_v3", experts=replace(experts, **changes))
        right = variants.routing

        def weighing(x, weights, config, name):  # the bias that only chooses, added to the weight as well
            bias = weights[f"{name}.gate.e_score_correction_bias"]
            return right(x, weights, config, name) * (1 + bias)

        self.assertPatchSeen("deepseek_v3", variants, "routing", weighing)

        def unbiased(weights, config):
            for name in weights:
                if is_buffer(name):
                    weights[name] = torch.zeros_like(weights[name])

        self.assertWeightsSeen("deepseek_v3", unbiased)

        def reordered(weights, config):
            a, b = (f"model.layers.1.mlp.experts.{e}.down_proj.weight" for e in (0, 1))
            weights[a], weights[b] = weights[b], weights[a]

        self.assertWeightsSeen("mixtral", reordered)

    def test_head(self):
        self.assertSeen("llama", tie_word_embeddings=True)
        self.assertSeen("gpt2, untied", tie_word_embeddings=True)
        self.assertSeen("gemma2", logit_cap=None)
        self.assertSeen("gemma", embedding_scale=1.0)

        weights = dict(case("gpt2")[1].weights)
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].flip(0)
        self.assertGreater(off("gpt2", other("gpt2", weights, tie_word_embeddings=False)), 20 * BOUND)

    def test_biases(self):
        for name, part in (("qwen2", "v_proj"), ("gpt2", "o_proj"), ("llama, biases", "down_proj")):

            def forgotten(weights, config, part=part):
                for key in [k for k in weights if k.endswith(f"{part}.bias")]:
                    del weights[key]

            self.assertWeightsSeen(name, forgotten)
        # a bias of the keys without positions would move all scores of a query alike; turned by position it counts
        lacking = {k: w for k, w in case("qwen2")[1].weights.items() if not k.endswith("k_proj.bias")}
        self.assertGreater(off("qwen2", other("qwen2", lacking)), 20 * BOUND)
        lacking = {k: w for k, w in case("gpt2")[1].weights.items() if not k.endswith("k_proj.bias")}
        self.assertLessEqual(off("gpt2", other("gpt2", lacking)), BOUND)

    def test_window(self):
        windows = case("mistral")[1].config.windows
        self.assertSeen("mistral", windows=())
        for wrong in (windows[0] - 1, windows[0] + 1):
            self.assertSeen("mistral", windows=(wrong,) * len(windows))
        windows = case("gemma2")[1].config.windows
        self.assertSeen("gemma2", windows=windows[1:] + windows[:1])
        self.assertSeen("gemma3_text", windows=(6, None, 6))
        self.assertSeen("qwen2, windows", windows=(6, 6, None))

    def test_q_and_k_norm(self):
        self.assertSeen("qwen3", qk_norm=False)
        right = variants.turned
        wrong = lambda x, *args: right(x.roll(1, -1), *args).roll(-1, -1)  # noqa: E731  gains meet other numbers
        self.assertPatchSeen("qwen3", variants, "turned", wrong)

        def swapped(weights, config):
            for i in range(config.n_layer):
                a, b = (f"model.layers.{i}.self_attn.{x}_norm.weight" for x in "qk")
                weights[a], weights[b] = weights[b], weights[a] * 1.5

        self.assertWeightsSeen("qwen3", swapped)
        self.assertWeightsSeen("gemma3_text", swapped)


class Files(FolderCase):
    def saved(self, kind, **changes):
        peers.library_tiny(kind, **changes).save_pretrained(self.folder / "m")
        return self.folder / "m"

    def test_the_names_are_those_of_the_files(self):
        for kind in peers.TINY:
            folder = self.saved(kind)
            held = load_file(folder / "model.safetensors")
            values = json.loads((folder / "config.json").read_text())
            config = read_config(values, "config.json")
            bare = {k.removeprefix("transformer."): tuple(w.shape) for k, w in held.items()}
            if config.tie_word_embeddings:
                bare.pop("lm_head.weight", None)
            self.assertEqual(bare, tensor_shapes(config), kind)

    def test_what_does_not_fit_is_refused(self):
        for kind in ("bloom", "mixtral", "deepseek_v3", "xglm"):
            folder = self.saved(kind)
            held = load_file(folder / "model.safetensors")
            name = sorted(held)[3]
            save_file({k: v for k, v in held.items() if k != name}, folder / "model.safetensors", metadata={"format": "pt"})
            with self.assertRaisesRegex(BadInput, f"lacks {name.removeprefix('transformer.')}".replace(".", r"\.")):
                load(folder)
            save_file(
                held | {"model.layers.9.extra.weight": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"}
            )
            with self.assertRaisesRegex(BadInput, "does not know"):
                load(folder)

    def test_quantised_weights_are_refused(self):
        folder = self.saved("qwen2")
        values = json.loads((folder / "config.json").read_text()) | {"quantization_config": {"quant_method": "fp8"}}
        (folder / "config.json").write_text(json.dumps(values))
        with self.assertRaisesRegex(BadInput, "quantization_config"):
            load(folder)

    def test_a_wrong_layout_is_another_model(self):
        library, model = case("bloom")
        held, name = library.transformer.state_dict(), "model.layers.0.self_attn.q_proj.weight"
        tensors = {key: held[key] for key in tensor_shapes(model.config)}
        self.assertTrue(torch.equal(general_weights(tensors, model.config)[name], model.weights[name]))
        blocks = dict(layout.LAYOUTS, bloom=replace(layout.LAYOUTS["bloom"], by_head=False))
        with mock.patch.object(layout, "LAYOUTS", blocks):
            self.assertGreater(off("bloom", other("bloom", general_weights(tensors, model.config))), 20 * BOUND)

    @slow
    def test_other_chapters_run_them(self):
        """A folder of any family generates text and shows its mask, through chapters 2, 4 and 5."""
        for kind in ("qwen2", "gemma3_text", "bloom", "deepseek_v3"):
            model = load(self.saved(kind))
            ids = random_ids(model, 5)
            self.assertEqual(generate(ids, model, 4, end=None).ids.shape, (1, 4))
            self.assertEqual(ch04.above_diagonal(ch04.influence(model, ids)), 0.0)
            status, out, err = call(gpt2.main, "mask", "--model", self.folder / "m", "--json")
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(json.loads(out)["largest_above_diagonal"], 0.0)
            status, out, err = call(gpt2.main, "compare", "--model", self.folder / "m", "--json")
            self.assertEqual((status, err), (0, ""), kind)
            self.assertLessEqual(max(r["relative_difference"] for r in json.loads(out)["edges"]), BOUND)


class Windows(unittest.TestCase):
    def test_a_window_holds_the_query_itself(self):  # C24
        at = torch.arange(5)
        shown = (variants.windowed(gpt2.causal_mask(5, 5), at[:, None] - at[None, :], 3) == 0).int().tolist()
        self.assertEqual(shown, [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]])

    def test_known_logits(self):  # C24
        values = {k: v for k, v in L.items() if k not in ("attention_bias", "mlp_bias")} | {"model_type": "mistral"}
        full = None
        for window, wanted, first in (
            (None, (-1.111243, 0.947984, 1.110743, 0.639667), None),
            (8, (-1.111243, 0.947984, 1.110743, 0.639667), None),
            (9, (-1.111243, 0.947984, 1.110743, 0.639667), None),
            (4, (-0.453153, 1.049955, 1.631304, -0.965853), 4),
            (3, (-0.416719, 0.653566, 1.300403, -1.176058), 3),
            (2, (-0.370873, -0.014352, 1.448854, -1.321449), 2),
            (1, (-0.111290, -0.327743, 0.826052, -1.273996), 1),
        ):
            config = read_config(values | {"sliding_window": window}, "config.json")
            found = variants.forward(IDS, {n: det(n, s) for n, s in weight_shapes(config).items()}, config)
            torch.testing.assert_close(found[0, -1, :4], torch.tensor(wanted), atol=1e-4, rtol=0)
            full = found if full is None else full
            changed = ((found - full).abs().amax(-1)[0] > 1e-6).nonzero().flatten().tolist()
            self.assertEqual(changed[:1], [] if first is None else [first])

    def test_reach(self):
        for row in ex.reaches():
            self.assertEqual(row["farthest"], row["formula"], row)
        right = variants.windowed
        with mock.patch.object(variants, "windowed", lambda mask, back, window: right(mask, back, window and window + 1)):
            self.assertNotEqual(ex.reach(3, 2)["farthest"], ex.reach(3, 2)["formula"])

    def test_a_decode_step_keeps_one_less_than_the_window(self):  # C24
        config, model = case("mistral")[1].config, other("mistral", n_layer=1)
        ids, W = random_ids(model, ex.LENGTH), config.windows[0]
        whole = run(model, ids)[0, -1]
        for kept, same in ((W, True), (W - 1, False)):  # the last W positions, the new one with them, are all that one layer sees
            part = ex.forward_at(model, ids[:, -kept:], torch.arange(ex.LENGTH - kept, ex.LENGTH))[0, -1]
            self.assertEqual(torch.allclose(part, whole, atol=1e-5), same)
        step = serving.decode_step(config, 3 * W, 1, 1)
        self.assertEqual(step["cache_bytes"], config.n_layer * (W - 1) * 2 * config.kv_heads * config.head_width)


class Cache(unittest.TestCase):
    def test_every_family_in_chunks(self):
        for name, (kind, changes) in CASES.items():
            with self.subTest(name):
                row = ex.cached_agreement(name, kind, changes)
                self.assertLessEqual(row["worst"], BOUND)
                self.assertEqual(row["same_argmax"], row["positions"])
                self.assertTrue(row["bytes_as_counted"])

    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def test_any_split(self, data):
        name = data.draw(st.sampled_from(["gemma2", "gemma3_text", "mistral", "deepseek_v3", "bloom", "xglm", "qwen2, windows"]))
        model = case(name)[1]
        batch, tokens = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 30))
        capacity = data.draw(st.integers(tokens, 32))
        ids, cache, logits, fed = random_ids(model, tokens, batch), KVCache(model, batch, capacity), [], 0
        while fed < tokens:
            size = data.draw(st.integers(1, tokens - fed))
            logits.append(forward_cached(ids[:, fed : fed + size], model, cache))
            fed += size
            self.assertEqual((cache.length, cache.nbytes), (fed, cache_bytes(model.config, capacity, batch)))
            self.assertEqual(cache.copy(capacity=fed).nbytes, cache_bytes(model.config, fed, batch))
        found = ch04.agreement(torch.cat(logits, 1), run(model, ids))
        self.assertLessEqual(found["relative_difference"], BOUND)

    def test_planted_faults(self):
        right_room, right_positions, right_advance = variants.new_cache, variants.key_positions, KVCache.advance

        def kept(less):  # as if a window of W kept so many positions less
            def room(config, *args, **like):
                return right_room(replace(config, windows=tuple(w and w - less for w in config.windows)), *args, **like)

            return mock.patch.object(variants, "new_cache", room)

        def early(at, S, cache=None):  # keys that think they stand one position earlier
            found = right_positions(at, S, cache)
            return found if cache is None else found.where(found == found[-1], found - 1)

        def stale(cache, ids):  # a window that never moves on
            cache.pending = {}
            right_advance(cache, ids)

        for name in ("gemma2", "mistral"):
            with kept(1):  # a token that comes alone sees W with itself, so W - 1 others do
                self.assertLessEqual(ex.cached_agreement(name, *CASES[name])["worst"], BOUND, name)
            with kept(2):
                self.assertGreater(ex.cached_agreement(name, *CASES[name])["worst"], 20 * BOUND, name)
            with mock.patch.object(KVCache, "advance", stale):
                self.assertGreater(ex.cached_agreement(name, *CASES[name])["worst"], 20 * BOUND, name)
        for name in ("bloom", "mistral"):
            with mock.patch.object(variants, "key_positions", early):
                self.assertGreater(ex.cached_agreement(name, *CASES[name])["worst"], 20 * BOUND, name)

    def test_greedy_text_is_the_library_s(self):
        for name in ("gpt_bigcode", "mistral", "gemma3_text", "mixtral", "deepseek_v3", "qwen3"):
            library, model = case(name)
            ids = random_ids(model, 9)
            ours = generate(ids, model, 16, end=None, forward=Cached(model)).sequence()
            self.assertEqual(ours, generate(ids, model, 16, end=None).sequence(), name)
            self.assertEqual(ours, library_greedy(library, ids, 16), name)

    def test_a_text_that_does_not_go_on(self):
        for name, computed in (("gemma2", [9, 3, 5, 12, 5]), ("deepseek_v3", [9, 3, 1, 12, 5])):  # a window begins anew
            model = case(name)[1]
            cached, ids, costs = Cached(model), random_ids(model, 12), []
            for text in (ids[:, :9], ids, ids[:, :5], ids.flip(1), ids[:, :5]):
                before = cached.computed
                torch.testing.assert_close(cached(text)[:, 0], run(model, text)[:, -1], atol=1e-4, rtol=1e-4)
                costs.append(cached.computed - before)
            self.assertEqual(costs, computed, name)

    def test_a_broken_pass_leaves_it_as_it_was(self):
        for name in ("mistral", "gemma2", "deepseek_v3"):
            model = case(name)[1]
            ids, cache = random_ids(model, 12), KVCache(model)
            forward_cached(ids[:, :7], model, cache)
            layers = range(model.config.n_layer)
            before = [x.clone() for layer in layers for x in cache.live(layer)]

            def stop(point, layer, x):
                if (point, layer) == ("q", 1):
                    raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                forward_cached(ids[:, 7:], model, cache, trace=stop)
            after = [x for layer in layers for x in cache.live(layer)]
            self.assertEqual(cache.length, 7)
            self.assertTrue(all(torch.equal(x, y) for x, y in zip(after, before, strict=True)))
            found = forward_cached(ids[:, 7:], model, cache)
            self.assertLessEqual(ch04.agreement(found, run(model, ids)[:, 7:])["relative_difference"], BOUND)

    def test_bad_input(self):
        model = case("gpt2")[1]
        cache = KVCache(model)
        forward_cached(random_ids(model, 30), model, cache)
        with self.assertRaisesRegex(BadInput, "30 cached and 3 new tokens are 33, more than n_positions 32"):
            forward_cached(random_ids(model, 3), model, cache)
        with self.assertRaisesRegex(BadInput, "2 sequences of ids for a cache of 1"):
            forward_cached(random_ids(model, 1, 2), model, cache)
        model = case("mistral")[1]
        cache = KVCache(model)
        forward_cached(random_ids(model, 9), model, cache)
        with self.assertRaisesRegex(BadInput, "cannot truncate to 8: a window has pushed out what is before it"):
            cache.truncate(8)


class Positions(unittest.TestCase):
    def test_what_a_shift_does(self):
        for name, moves in (("llama", False), ("bloom", False), ("deepseek_v3", False), ("gpt2", True), ("xglm", True)):
            model = case(name)[1]
            ids, at = random_ids(model, 8), torch.arange(8)
            found = ch04.agreement(ex.forward_at(model, ids, at + 9), ex.forward_at(model, ids, at))
            self.assertEqual(found["relative_difference"] > 1e-3, moves, (name, found["relative_difference"]))

    def test_prefix_keys(self):
        one = case("llama")[1]
        ids, before = random_ids(one, 8), random_ids(one, 5, seed=3)
        rows = ex.prefix_keys(one, before, ids)
        self.assertLess(rows[0]["keys"], 1e-5)
        self.assertEqual(rows[0]["values"], 0.0)
        for row in rows[1:]:
            self.assertGreater(min(row["keys"], row["values"]), 1e-2)  # upper layers have read what stands before
        right = variants.turned
        short = lambda x, config, layer, at: right(x, config, layer, at - 1 if len(at) == 1 else at)  # noqa: E731  on by one too few
        with mock.patch.object(variants, "turned", short):
            self.assertGreater(ex.prefix_keys(one, before, ids)[0]["keys"], 1e-2)


class Table(unittest.TestCase):
    def test_every_option_is_verified_and_taken(self):
        found = {(choice, option) for name in CASES for choice, option in options_of(case(name)[1].config).items()}
        for choice, option, _ in ex.OPTIONS:
            self.assertIn((choice, option), found)
        self.assertEqual(len({choice for choice, _, _ in ex.OPTIONS}), 10)
        users = ex.users()
        unused = [(c, o) for c, o, _ in ex.OPTIONS if (c, o) not in users]
        self.assertEqual(unused, [("activation", "SiLU")])

    def test_effects(self):
        rows = {(r["choice"], r["option"]): r for r in ex.option_effects()}
        self.assertEqual(sum(r["is_base"] for r in rows.values()), 10)
        self.assertEqual(rows["attention", "MHA"]["kv_bytes_per_token"], 4 * rows["attention", "GQA"]["kv_bytes_per_token"])
        self.assertEqual(rows["attention", "MQA"]["kv_bytes_per_token"] * 8, rows["attention", "GQA"]["kv_bytes_per_token"])
        self.assertEqual(rows["head", "tied"]["parameters_change"], -128256 * 4096)
        self.assertEqual(rows["its place", "post"]["parameters_change"], -4096)
        self.assertEqual(rows["window", "sliding"]["cache_bytes"] * 2, rows["window", "full"]["cache_bytes"])
        self.assertEqual([r["choice"] for r in ex.ranking()][:3], ["attention", "feed-forward", "window"])

    def test_explain_says_what_a_family_has(self):
        said = {name: " ".join(explain(serving.config_named(name))) for name in serving.published()}
        for name, words in (
            ("gpt", ("and the sum is normalised", "there is no norm before the head", "GELU, tanh form")),
            ("gpt2", ("plus the position's row", "transposed, gives the logits", "has a bias")),
            ("bloom-560m", ("ALiBi", "is then layer-normalised")),
            ("xglm-564m", ("counted from 2", "GELU, exact", "times 32")),
            ("mistral-7b", ("sees 4,096 positions, itself included, in every layer",)),
            ("mixtral-8x7b", ("8 experts", "2 for each token", "softmax over all")),
            ("qwen2-7b", ("Biases: on q, k and v", "sees itself and all before it")),
            ("qwen3-4b", ("RMS-normalised by themselves", "32 x 128, not the width 2,560")),
            ("gemma-2b", ("gains stored as what they differ from 1", "MQA", "gated GELU, tanh form")),
            ("gemma-2-9b", ("stay within 50", "stay within 30", "21 of 42 layers", "normalised before it is added")),
            ("gemma-3-1b", ("22 of 26 layers", "theta 1,000,000; in layers with a window theta 10,000")),
            (
                "deepseek-v3",
                ("MLA, 128 heads", "yarn", "first 3 layers", "256 experts", "1 more for every token", "not 1 / sqrt(192)"),
            ),
            ("llama-3.2-1b", ("divided by 32 (llama3)", "8 of keys and values, each shared by 4")),
            ("smollm2-135m", ("theta 100,000",)),
        ):
            for word in words:
                self.assertIn(word, said[name], name)
        switches = dict(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True)
        lines = " ".join(explain(general(tiny_gpt2(**switches).config)))
        for word in ("divided by the layer's number", "of float32 even where weights are narrower"):
            self.assertIn(word, lines)
            self.assertNotIn(word, said["gpt2"])
        for lines in said.values():
            self.assertNotIn("None", lines)


class Depth(unittest.TestCase):
    def test_norms_on_the_path(self):
        self.assertEqual([ex.norms_on_the_path(ex.depth_config(p, 6)) for p in ("pre", "post", "both")], [1, 12, 1])

    def test_a_row(self):
        for place in ("pre", "post", "both"):
            row = ex.depth_row(place, 4, seeds=(0,))
            self.assertTrue(all(math.isfinite(row[k]) and row[k] > 0 for k in ("growth", "gradient", "last_gradient")))
        post = ex.depth_row("post", 8, seeds=(0,))
        self.assertAlmostEqual(
            post["growth"], ex.depth_row("post", 2, seeds=(0,))["growth"], places=3
        )  # it is normalised every time
        self.assertGreater(ex.depth_row("pre", 8, seeds=(0,))["growth"], ex.depth_row("pre", 2, seeds=(0,))["growth"])

    def test_the_gradient_is_that_of_a_finite_difference(self):
        model = ex.small_model(ex.depth_config("pre", 2)).to(dtype=torch.float64)
        ids = random_ids(model, 9)

        def loss():
            logits = run(model, ids[:, :-1])
            return torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])

        matrix = model.weights["model.layers.1.mlp.down_proj.weight"].requires_grad_()
        loss().backward()
        with torch.no_grad():
            matrix[3, 5] += 1e-6
            up = loss()
            matrix[3, 5] -= 2e-6
            self.assertAlmostEqual(((up - loss()) / 2e-6).item(), matrix.grad[3, 5].item(), places=6)


class Script(FolderCase):
    def test_commands(self):
        for argv, word in (
            (("explain", "gemma-2-9b"), "stay within 50"),
            (("explain", "embedded"), "model_type gpt2"),
            (("rank",), "attention"),
            (("reach",), "L (W - 1)"),
            (("prefix",), "positions later"),
        ):
            status, out, err = call(variants.main, *argv)
            self.assertEqual((status, err), (0, ""))
            self.assertIn(word, out)
            status, out, _ = call(variants.main, *argv, "--json")
            self.assertEqual((status, type(json.loads(out))), (0, dict))

    def test_the_table(self):
        some = tuple(c for c in ex.CASES if c[0] in ("gpt2", "llama"))
        with mock.patch.object(ex, "CASES", some):
            status, out, err = call(variants.main)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("2 tiny models beside transformers", out)
            found = json.loads(call(variants.main, "table", "--json")[1])
        self.assertEqual(len(found["options"]), len(ex.OPTIONS))
        self.assertLessEqual(found["worst"], BOUND)
        self.assertEqual(found["above_diagonal"], 0.0)
        by_option = {(r["choice"], r["option"]): r["cases"] for r in found["options"]}
        self.assertEqual(by_option["normalisation", "layer norm"], ["gpt2"])
        self.assertEqual(by_option["attention", "MLA"], [])

    def test_explain_a_folder_and_a_file(self):
        (self.folder / "config.json").write_text(json.dumps(serving.published()["qwen3-4b"]["config"]))
        for path in (self.folder, self.folder / "config.json"):
            status, out, err = call(variants.main, "explain", path)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("model_type qwen3", out)

    def test_depth_draws(self):
        rows = [ex.depth_row(p, n, seeds=(0,)) for p in ("pre", "post", "both") for n in (2, 4)]
        with mock.patch.object(ex, "depths", return_value=rows):
            status, _, err = call(variants.main, "depth", "--plot", self.folder / "d.svg")
        self.assertEqual((status, err), (0, ""))
        self.assertTrue((self.folder / "d.svg").read_bytes().startswith(b"<?xml"))

    def test_bad_input(self):
        (self.folder / "config.json").write_text(json.dumps({"model_type": "mamba"}))
        (self.folder / "no.json").write_text("{")
        for argv, words in (
            (("explain", "llama-9"), ("no config llama-9",)),
            (("explain", self.folder), ("model_type is 'mamba'", "known here are")),
            (("explain", self.folder / "no.json"), ("is not strict JSON",)),
            (("explain",), ("CONFIG",)),
            (("prefix", "--shifts", "9999"), ("n_positions",)),
            (("prefix", "--model", "nowhere"), ("no model nowhere",)),
            (("depth", "--plot", "x.txt"), (".svg",)),
            (("tables",), ("invalid choice",)),
        ):
            self.assertBad(variants.main, argv, *words)

    @slow
    def test_as_a_file(self):
        done = start("examples/ch14/variants.py", "explain", "mixtral-8x7b")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("mixture of experts", done.stdout)


if __name__ == "__main__":
    unittest.main()
