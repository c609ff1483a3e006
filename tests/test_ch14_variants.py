"""Chapter 14's configurable forward: every family beside transformers where configs, dtypes and devices are odd; a planted fault in
every row of the table of choices; windows; its cache; the script."""

import json
import tempfile
import unittest
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.ch02 import families, layout
from examples.ch02.families import read_config
from examples.ch02.layout import general_weights, is_buffer, tensor_shapes, weight_shapes
from examples.ch02.model import general_form, load, run
from examples.ch03.tokens import default_ids, random_ids
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.agreement import agreement
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes, forward_cached
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import peers, variants
from examples.ch14.family_agreement import CASES, LENGTH, cached_agreement, case_models, in_absorbed_form
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import IDS, det, llama_model
from tests.support import LLAMA as L
from tests.support import model as tiny_gpt2

MODEL = llama_model()
BOUND = 1e-5  # of the largest logit
BY_NAME = {case: (kind, changes) for case, kind, changes in CASES}


def setUpModule():
    torch.set_num_threads(1)


@cache
def case(name):
    """(library, model) of a case, built once."""
    return case_models(*BY_NAME[name])


def other(name, weights=None, **changes):
    """A case's model with `changes` to its config, and with other weights where they are given."""
    model = case(name)[1]
    return replace(model, config=replace(model.config, **changes), weights=model.weights if weights is None else weights)


@torch.no_grad()
def off(name, model=None, tokens=LENGTH, batch=2):
    """How far our logits of a case are from transformers', of the largest; those of another `model` where one is given."""
    library, own = case(name)
    ids = random_ids(own, tokens, batch)
    return agreement(run(model or own, ids), library(ids, use_cache=False).logits)["relative_difference"]


def forward_at(model, ids, at):
    """Logits [B, T, V] of `ids` [B, T] at positions `at` [T]."""
    x = variants.pass_over(ids, model.weights, model.config, at, gpt2.causal_mask(len(at), len(at)))  # [B, T, d]
    return variants.unembed(x, model.weights, model.config)


class Agreement(unittest.TestCase):
    def test_every_family_is_there(self):
        self.assertEqual({kind for kind, _ in BY_NAME.values()}, set(families.READERS))
        self.assertEqual(set(families.READERS), set(families.PROGRAMS))

    def test_the_tiny_models_hide_nothing(self):
        for name in BY_NAME:
            model = case(name)[1]
            config = model.config
            self.assertGreater(config.n_layer, 1)
            if config.rope and not config.latent and name not in ("qwen2", "qwen2, windows"):  # which has no such field
                self.assertNotEqual(config.head_width * config.n_head, config.n_embd, name)
            for key, tensor in model.weights.items():
                if tensor.ndim == 1:
                    self.assertGreater(tensor.std().item(), 0.05, f"{name}: {key} is as good as constant")
            if config.windows:
                self.assertLess(min(x for x in config.windows if x), LENGTH)

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
            ids = random_ids(model, LENGTH, 2)
            exact = run(model.to(dtype=torch.float64), ids)
            self.assertEqual(exact.dtype, torch.float64)
            self.assertLessEqual(agreement(run(model, ids), exact)["relative_difference"], BOUND, name)
            if name != "xglm":  # the library's takes no float64: its smallest number does not fit a float
                with torch.no_grad():
                    theirs = peers.library_tiny(name).double()(ids, use_cache=False).logits
                # where the library keeps no float32 for norms, softmax or angles, two programs agree to float64's own rounding
                bound = 1e-12 if name in ("gpt2", "openai-gpt") else BOUND
                self.assertLessEqual(agreement(exact, theirs)["relative_difference"], bound, name)
            for dtype, bound in ((torch.bfloat16, 0.15), (torch.float16, 0.03)):
                found = run(model.to(dtype=dtype), ids)
                self.assertEqual(found.dtype, dtype)
                if not model.config.experts:  # rounded scores may choose another expert
                    self.assertLessEqual(agreement(found.double(), exact)["relative_difference"], bound, (name, dtype))

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
            self.assertLessEqual(agreement(run(general_form(one), IDS), run(one, IDS))["relative_difference"], 1e-6)

    def test_traced_points_are_those_of_chapter_4(self):
        for name in ("gpt2", "openai-gpt", "gemma2", "mixtral", "qwen3_moe", "deepseek_v3"):
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
            self.assertLessEqual(off(name, in_absorbed_form(case(name)[1])), BOUND)


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
        at = torch.arange(LENGTH)
        library, model = case("gpt2")
        ids = random_ids(model, LENGTH)
        with torch.no_grad():
            theirs = library(ids, use_cache=False).logits
        self.assertLessEqual(agreement(forward_at(model, ids, at), theirs)["relative_difference"], BOUND)
        self.assertGreater(agreement(forward_at(model, ids, at + 1), theirs)["relative_difference"], 20 * BOUND)
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
        experts = case("qwen3_moe")[1].config.experts
        for changes in (dict(active=1), dict(renormalise=False)):
            self.assertSeen("qwen3_moe", experts=replace(experts, **changes))
        self.assertSeen("qwen3_moe, plain shares", experts=replace(experts, dense=(0, 2)))
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

    def test_a_wrong_layout_is_another_model(self):
        library, model = case("bloom")
        held, name = library.transformer.state_dict(), "model.layers.0.self_attn.q_proj.weight"
        tensors = {key: held[key] for key in tensor_shapes(model.config)}
        self.assertTrue(torch.equal(general_weights(tensors, model.config)[name], model.weights[name]))
        blocks = dict(layout.LAYOUTS, bloom=replace(layout.LAYOUTS["bloom"], by_head=False))
        with mock.patch.object(layout, "LAYOUTS", blocks):
            self.assertGreater(off("bloom", other("bloom", general_weights(tensors, model.config))), 20 * BOUND)

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


def as_the_library(kind, tokens=20, **changes):
    """How far our logits are from transformers', of the largest."""
    library, model = case_models(kind, changes)
    ids = random_ids(model, tokens, 2)
    with torch.no_grad():
        found = agreement(run(model, ids), library(ids, use_cache=False).logits)
    return found["relative_difference"]


class Settings(unittest.TestCase):
    def test_rare_settings_agree(self):
        yarn = peers.TINY["deepseek_v3"]["rope_parameters"]
        for kind, changes in (
            ("xglm", dict(d_model=25, attention_heads=5)),  # an odd width, whose table of sinusoids is padded
            ("xglm", dict(scale_embedding=False)),
            ("bloom", dict(n_head=1)),
            ("bloom", dict(n_head=8)),
            ("bloom", dict(n_head=12)),
            ("gpt2", dict(scale_attn_weights=False, n_inner=17)),
            ("gpt_bigcode", dict(activation_function="gelu", scale_attn_weights=False)),
            ("openai-gpt", dict(afn="silu")),
            ("openai-gpt", dict(tie_word_embeddings=False)),
            ("gemma2", dict(hidden_activation="gelu", attn_logit_softcapping=None, final_logit_softcapping=None)),
            ("gemma3_text", dict(hidden_activation="gelu", final_logit_softcapping=3.0)),
            ("gemma", dict(attention_bias=True)),
            ("mistral", dict(sliding_window=None)),
            ("mixtral", dict(num_attention_heads=5, num_key_value_heads=5, head_dim=10)),  # 24 is not divisible by 5
            ("mixtral", dict(num_experts_per_tok=5)),
            ("qwen2", dict(tie_word_embeddings=True)),
            ("qwen3_moe", dict(mlp_only_layers=[0, 1, 2])),
            ("qwen3_moe", dict(num_experts_per_tok=5)),
            ("qwen3_moe", dict(decoder_sparse_step=3, attention_bias=True, tie_word_embeddings=True)),
            ("deepseek_v3", dict(n_group=1, topk_group=1)),
            ("deepseek_v3", dict(first_k_dense_replace=0)),
            ("deepseek_v3", dict(first_k_dense_replace=3)),
            ("deepseek_v3", dict(norm_topk_prob=False)),
            ("deepseek_v3", dict(norm_topk_prob=None)),
            ("deepseek_v3", dict(rope_interleave=False)),
            ("deepseek_v3", dict(rope_interleave=None)),
            ("deepseek_v3", dict(rope_parameters={k: v for k, v in yarn.items() if not k.startswith(("beta", "mscale"))})),
            ("deepseek_v3", dict(rope_parameters=yarn | {"mscale": 0.0, "mscale_all_dim": 0.0})),
        ):
            with self.subTest(kind=kind, changes=changes):
                self.assertLessEqual(as_the_library(kind, **changes), BOUND)

    def test_mistral_with_types_of_layers(self):
        """From a file the library reads such a config as another class, with windows by layer; and so do we."""
        import transformers

        types = ["full_attention", "sliding_attention", "full_attention"]
        with tempfile.TemporaryDirectory() as folder:
            peers.library_tiny("mistral").save_pretrained(folder)
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"layer_types": types}))
            library = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
            model = general_form(load(folder))
            self.assertEqual(model.config.windows, (None, 6, None))
            ids = random_ids(model, 20, 2)
            for peer in (library, library_model(model), library_model(replace(model, path=None))):
                with torch.no_grad():
                    found = agreement(run(model, ids), peer(ids, use_cache=False).logits)
                self.assertLessEqual(found["relative_difference"], BOUND)


class HalfPrecision(unittest.TestCase):
    def test_as_near_to_float64_as_the_library(self):
        """In half precision our distance from float64 is at most one and a half times the library's, in every family."""
        for kind in peers.TINY:
            model = case(kind)[1]
            ids = random_ids(model, LENGTH, 2)
            exact = run(model.to(dtype=torch.float64), ids)
            for dtype in (torch.bfloat16, torch.float16):
                library = peers.library_tiny(kind).to(dtype)
                for name, buffer in library.named_buffers():  # the library keeps this one in float32 when it loads
                    if is_buffer(name):
                        buffer.data = buffer.data.float()
                with torch.no_grad():
                    theirs = library(ids, use_cache=False).logits
                ours = run(model.to(dtype=dtype), ids)
                near, far = (agreement(x.double(), exact)["relative_difference"] for x in (ours, theirs))
                self.assertLessEqual(near, max(1.5 * far, 0.01), (kind, dtype))

    def test_what_is_done_in_float32(self):
        half = case("gemma")[1].to(dtype=torch.float16)
        config, weights, name = half.config, half.weights, "model.layers.0.input_layernorm"
        x = 200 * torch.randn(1, 3, config.n_embd, generator=torch.Generator().manual_seed(0)).half()  # squares overflow float16
        y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + config.norm_eps)
        wide = y * (1 + weights[f"{name}.weight"].float())
        torch.testing.assert_close(variants.norm(x, weights, name, config), wide.half(), rtol=0, atol=0)
        half = case("gpt2")[1].to(dtype=torch.float16)
        config, weights, x = half.config, half.weights, x[..., : half.config.n_embd]
        gain, shift = (weights[f"{name}.{part}"].float() for part in ("weight", "bias"))
        y = torch.nn.functional.layer_norm(x.float(), (config.n_embd,), gain, shift, config.norm_eps)
        torch.testing.assert_close(variants.norm(x, weights, name, config), y.half(), rtol=1e-3, atol=1e-3)
        half = case("deepseek_v3")[1].to(dtype=torch.float16)
        config, weights, gate = half.config, half.weights, "model.layers.1.mlp"
        x = torch.randn(1, 5, config.n_embd, generator=torch.Generator().manual_seed(1)).half()
        scores = (x.float() @ weights[f"{gate}.gate.weight"].float().T).sigmoid()
        found = variants.routing(x, weights, config, gate)
        chosen = found > 0
        own = scores.where(chosen, 0)
        wanted = (own / own.sum(-1, keepdim=True) * config.experts.scale).half()
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


class Devices(unittest.TestCase):
    def test_nothing_stays_behind_on_the_processor(self):
        for kind in peers.TINY:
            there = case(kind)[1].to(device="meta")
            self.assertEqual(there.device.type, "meta")
            ids = torch.zeros(1, 4, dtype=torch.int64, device="meta")
            with mock.patch.object(variants, "check_ids"), mock.patch.object(variants, "check_positions"):
                self.assertEqual(run(there, ids).shape, (1, 4, there.config.vocab_size), kind)

    def test_positions_outside_the_table(self):
        model = case("gpt2")[1]
        for at in (torch.arange(4) + 30, torch.arange(4) - 1):
            with self.assertRaisesRegex(BadInput, "not all within"):
                forward_at(model, random_ids(model, 4), at)


class Windows(unittest.TestCase):
    def test_a_window_holds_the_query_itself(self):
        at = torch.arange(5)
        shown = (variants.windowed(gpt2.causal_mask(5, 5), at[:, None] - at[None, :], 3) == 0).int().tolist()
        self.assertEqual(shown, [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [0, 0, 1, 1, 1]])

    def test_known_logits(self):
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


class Cache(unittest.TestCase):
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
        found = agreement(torch.cat(logits, 1), run(model, ids))
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
                self.assertLessEqual(cached_agreement(name, *BY_NAME[name])["worst"], BOUND, name)
            with kept(2):
                self.assertGreater(cached_agreement(name, *BY_NAME[name])["worst"], 20 * BOUND, name)
            with mock.patch.object(KVCache, "advance", stale):
                self.assertGreater(cached_agreement(name, *BY_NAME[name])["worst"], 20 * BOUND, name)
        for name in ("bloom", "mistral"):
            with mock.patch.object(variants, "key_positions", early):
                self.assertGreater(cached_agreement(name, *BY_NAME[name])["worst"], 20 * BOUND, name)

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
            self.assertLessEqual(agreement(found, run(model, ids)[:, 7:])["relative_difference"], BOUND)

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


class Script(RoomCase):
    def test_next_tokens_of_any_family(self):
        found = self.values(variants.main)  # the embedded GPT-2, which has its own program too
        self.assertEqual(set(found["families"]), set(families.READERS))
        embedded = load()
        ids = default_ids(embedded, 10)
        for ours, own in zip(found["next_tokens"], gpt2.next_tokens(embedded, ids), strict=True):
            self.assertEqual(ours["id"], own["id"])
            self.assertAlmostEqual(ours["probability"], own["probability"], places=5)
        case("gemma2")[0].save_pretrained(self.folder / "m")
        self.assertIn("a gemma2, by the configurable forward", self.page(variants.main, "--model", self.folder / "m"))

    def test_bad_input(self):
        (self.folder / "config.json").write_text(json.dumps({"model_type": "mamba"}))
        for argv, words in (
            (["--model", self.folder], ("model_type is 'mamba'", "known here are")),
            (["--model", "nowhere"], ("no model nowhere",)),
            (["explain"], ("explain",)),
        ):
            self.assertBad(variants.main, argv, *words)


if __name__ == "__main__":
    unittest.main()
