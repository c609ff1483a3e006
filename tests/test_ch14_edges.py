"""Chapter 14 where configs, dtypes and devices are odd: defaults and rare settings beside transformers, half precision beside the
library's own, ropes beside its frequencies; and the measurements of the chapter on inputs whose answer is known."""

import json
import math
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

from examples.ch02.config import Config, Rope, general
from examples.ch02.families import READERS, read_config
from examples.ch02.layout import is_buffer
from examples.ch02.model import Model, general_form, load, run
from examples.ch02.ropes import ROPE_KINDS, rope_from
from examples.ch03.tokens import random_ids
from examples.ch04 import agreement as ch04
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.library import library_model
from examples.ch10.kv_cache import cache_bytes
from examples.ch14 import ablations, configs, peers, serving, variants
from examples.ch14 import family_agreement as ex
from examples.ch14 import llama_from_scratch as llama
from examples.ch14.ten_choices import explain, options_of
from examples.lab.script import BadInput
from tests.support import FolderCase, call

BOUND = 1e-5  # of the largest logit


def setUpModule():
    torch.set_num_threads(1)


def as_the_library(kind, tokens=20, **changes):
    """How far our logits are from transformers', of the largest."""
    library, model = ex.case_models(kind, changes)
    ids = random_ids(model, tokens, 2)
    with torch.no_grad():
        found = ch04.agreement(run(model, ids), library(ids, use_cache=False).logits)
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

    def test_defaults_are_the_library_s(self):
        """A config.json with nothing in it but what must be there reads as transformers fills it up."""
        from transformers import AutoConfig

        old = dict(vocab_size=53, n_positions=32, n_embd=24, n_layer=30, n_head=4)
        new = dict(vocab_size=53, hidden_size=128, intermediate_size=40, num_hidden_layers=30, num_attention_heads=32)
        latent = dict(kv_lora_rank=14, qk_rope_head_dim=8, v_head_dim=7, qk_nope_head_dim=6, n_routed_experts=32)
        bare = dict.fromkeys(("gpt2", "openai-gpt", "gpt_bigcode"), old)
        bare |= dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), new)
        bare["deepseek_v3"] = new | latent | dict(num_key_value_heads=32, num_experts_per_tok=8, moe_intermediate_size=18)
        bare["bloom"] = dict(vocab_size=53, hidden_size=24, n_layer=3, n_head=4)
        bare["xglm"] = dict(vocab_size=53, d_model=24, num_layers=3, attention_heads=4, ffn_dim=40)
        self.assertEqual(set(bare), set(READERS))
        for kind, values in bare.items():
            filled = AutoConfig.for_model(kind, **values).to_dict() | {"model_type": kind}
            ours, theirs = (general(read_config(x, "c")) for x in (values | {"model_type": kind}, filled))
            self.assertEqual(ours, theirs, kind)
        windows = new | {"use_sliding_window": True, "model_type": "qwen2"}
        filled = AutoConfig.for_model(**windows).to_dict() | {"model_type": "qwen2"}
        self.assertEqual(read_config(windows, "c"), read_config(filled, "c"))

    def test_mistral_with_types_of_layers(self):
        """From a file the library reads such a config as another class, with windows by layer; and so do we."""
        import tempfile

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
                    found = ch04.agreement(run(model, ids), peer(ids, use_cache=False).logits)
                self.assertLessEqual(found["relative_difference"], BOUND)

    def test_gemma_3_s_ropes_in_every_spelling(self):
        sizes = peers.TINY["gemma3_text"] | {"model_type": "gemma3_text"}
        old = read_config(sizes | {"rope_theta": 7e5, "rope_local_base_freq": 3e3}, "c")
        self.assertEqual((old.rope.theta, old.window_rope.theta), (7e5, 3e3))
        nested = {"full_attention": {"rope_theta": 7e5}, "sliding_attention": {"rope_theta": 3e3}}
        self.assertEqual(read_config(sizes | {"rope_parameters": nested}, "c"), old)
        bare = {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}}
        mixed = sizes | {"rope_parameters": bare, "rope_theta": 7e5, "rope_local_base_freq": 3e3}
        self.assertEqual(read_config(mixed, "c"), old)
        plain = read_config(sizes, "c")
        self.assertEqual((plain.rope.theta, plain.window_rope.theta), (1e6, 1e4))
        for changes in (
            {"rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}},
            {"rope_parameters": nested, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_parameters": {"full_attention": 3}},
            {"attn_logit_softcapping": 30.0},
        ):
            with self.assertRaises(BadInput):
                read_config(sizes | changes, "c")

    def test_what_would_be_read_otherwise_is_refused(self):
        llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        for kind, changes, words in (
            ("xglm", dict(pad_token_id=5), "pad_token_id"),
            ("xglm", dict(d_model=3, attention_heads=1), "d_model"),
            ("bloom", dict(slow_but_exact=True), "slow_but_exact"),
            ("bloom", dict(num_attention_heads=5), "two names of one thing"),
            ("openai-gpt", dict(num_attention_heads=8), "two names of one thing"),
            ("xglm", dict(num_attention_heads=8), "two names of one thing"),
            ("qwen2", dict(layer_types=["sliding_attention"] * 3), "use_sliding_window"),
            ("gemma2", dict(sliding_window=None), "sliding_window is null"),
            ("llama", dict(rope_parameters=llama3 | {"high_freq_factor": 0.5}), "low_freq_factor"),
            (
                "llama",
                dict(rope_parameters=llama3 | {"original_max_position_embeddings": 32}, original_max_position_embeddings=16),
                "twice and differs",
            ),
            ("deepseek_v3", dict(rope_parameters=peers.TINY["deepseek_v3"]["rope_parameters"] | {"rope_theta": 1.0}), "yarn"),
            *(
                ("llama", dict(rope_parameters=llama3 | {"original_max_position_embeddings": bad}), "original_max_position")
                for bad in (16.9, 0.5, 0, True, "16")
            ),
            ("llama", dict(rope_parameters={"rope_type": 3, "rope_theta": 1e4}), "the rope type 3 is not known"),
            ("gemma2", dict(sliding_window=..., sliding_window_size=6), "sliding_window_size 6"),
            ("gemma2", dict(sliding_window_size=7), "sliding_window_size 7"),
            ("qwen2", dict(layer_types=["full_attention"], use_sliding_window=False), "layer_types"),
            ("qwen2", dict(layer_types=["chunked"] * 3, use_sliding_window=False), "layer_types"),
            ("gpt_bigcode", dict(multi_query=True, attention_type="multi_head"), "attention_type"),
            ("deepseek_v3", dict(head_dim=9), "head_dim 9"),
            ("deepseek_v3", dict(n_shared_experts=0), "n_shared_experts is 0"),
            ("deepseek_v3", dict(num_key_value_heads=...), "num_key_value_heads"),  # 128 in the library's class
            *(("deepseek_v3", {name: None}, f"{name} is None") for name in ("n_group", "topk_group", "routed_scaling_factor")),
            *(("gpt2", {name: None}, f"{name} is None") for name in ("scale_attn_weights", "tie_word_embeddings")),
            ("llama", dict(tie_word_embeddings=None), "tie_word_embeddings is None"),
            ("llama", dict(num_hidden_layers=10**9), "num_hidden_layers"),
            ("mixtral", dict(num_local_experts=10**9), "num_local_experts"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                kept = {name: v for name, v in (peers.TINY[kind] | changes).items() if v is not ...}
                read_config(kept | {"model_type": kind}, "c")
        config = read_config(peers.TINY["llama"] | {"model_type": "llama", "rope_parameters": llama3}, "c")
        self.assertEqual(config.rope.original_positions, 64)  # as the library: the positions there are

    def test_options_and_sentences_at_the_edges(self):
        config = read_config(peers.TINY["deepseek_v3"] | {"model_type": "deepseek_v3", "first_k_dense_replace": 3}, "c")
        self.assertEqual(options_of(config)["feed-forward"], "dense")
        self.assertNotIn("experts", " ".join(explain(config)))
        config = read_config(peers.TINY["deepseek_v3"] | {"model_type": "deepseek_v3", "norm_topk_prob": False}, "c")
        self.assertIn("times 1.7", " ".join(explain(config)))
        self.assertNotIn("renormalised", " ".join(explain(config)))
        config = general(read_config(peers.TINY["gpt2"] | {"model_type": "gpt2", "n_head": 1}, "c"))
        self.assertEqual(options_of(config)["attention"], "MHA")
        self.assertEqual(options_of(replace(config, activation="relu"))["activation"], "relu")
        self.assertIn("2 matrices", " ".join(explain(config)))
        self.assertIn("3 matrices", " ".join(explain(serving.config_named("llama-3-8b"))))


class Ropes(unittest.TestCase):
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
                    rope = llama_rope(block)
                    found = llama.frequencies(rope, width)
                    torch.testing.assert_close(found.float(), wanted, rtol=2e-6, atol=0, msg=f"{width} {block}")
                    self.assertAlmostEqual(rope.gain, gain, places=6)

    def test_equal_ends_of_yarn(self):
        found = llama.frequencies(Rope(kind="yarn", factor=4.0, original_positions=2, fast=9.0, slow=9.0), 8)
        self.assertTrue(found.isfinite().all())


def llama_rope(block):
    return rope_from({"rope_parameters": block}, "c", (*ROPE_KINDS, "yarn"))


class HalfPrecision(unittest.TestCase):
    def test_as_near_to_float64_as_the_library(self):
        """In half precision our distance from float64 is at most one and a half times the library's, in every family."""
        for kind in peers.TINY:
            model = ex.case_models(kind, {})[1]
            ids = random_ids(model, ex.LENGTH, 2)
            exact = run(model.to(dtype=torch.float64), ids)
            for dtype in (torch.bfloat16, torch.float16):
                library = peers.library_tiny(kind).to(dtype)
                for name, buffer in library.named_buffers():  # the library keeps this one in float32 when it loads
                    if is_buffer(name):
                        buffer.data = buffer.data.float()
                with torch.no_grad():
                    theirs = library(ids, use_cache=False).logits
                ours = run(model.to(dtype=dtype), ids)
                near, far = (ch04.agreement(x.double(), exact)["relative_difference"] for x in (ours, theirs))
                self.assertLessEqual(near, max(1.5 * far, 0.01), (kind, dtype))

    def test_what_is_done_in_float32(self):
        half = ex.case_models("gemma", {})[1].to(dtype=torch.float16)
        config, weights, name = half.config, half.weights, "model.layers.0.input_layernorm"
        x = 200 * torch.randn(1, 3, config.n_embd, generator=torch.Generator().manual_seed(0)).half()  # squares overflow float16
        y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + config.norm_eps)
        wide = y * (1 + weights[f"{name}.weight"].float())
        torch.testing.assert_close(variants.norm(x, weights, name, config), wide.half(), rtol=0, atol=0)
        half = ex.case_models("gpt2", {})[1].to(dtype=torch.float16)
        config, weights, x = half.config, half.weights, x[..., : half.config.n_embd]
        gain, shift = (weights[f"{name}.{part}"].float() for part in ("weight", "bias"))
        y = torch.nn.functional.layer_norm(x.float(), (config.n_embd,), gain, shift, config.norm_eps)
        torch.testing.assert_close(variants.norm(x, weights, name, config), y.half(), rtol=1e-3, atol=1e-3)
        half = ex.case_models("deepseek_v3", {})[1].to(dtype=torch.float16)
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
            there = ex.case_models(kind, {})[1].to(device="meta")
            self.assertEqual(there.device.type, "meta")
            ids = torch.zeros(1, 4, dtype=torch.int64, device="meta")
            with mock.patch.object(variants, "check_ids"), mock.patch.object(variants, "check_positions"):
                self.assertEqual(run(there, ids).shape, (1, 4, there.config.vocab_size), kind)

    def test_positions_outside_the_table(self):
        model = ex.case_models("gpt2", {})[1]
        for at in (torch.arange(4) + 30, torch.arange(4) - 1):
            with self.assertRaisesRegex(BadInput, "not all within"):
                ex.forward_at(model, random_ids(model, 4), at)


class Costs(unittest.TestCase):
    def test_activations_of_a_step(self):
        """Bytes of the new tokens' vectors, by hand for Llama-3-8B's shape: d 4096, q 4096, kv 1024, f 14336, V 128256."""
        config = serving.config_named("llama-3-8b")
        rows = {r["operation"]: r["activation_bytes"] for r in serving.decode_step(config, 100, 3, 2)["operations"]}
        d, q, kv, f, V, L, two = 4096, 4096, 1024, 14336, 128256, 32, 3 * 2
        self.assertEqual(rows["q projection"], L * two * (d + q))
        self.assertEqual(rows["k projection"], L * two * (d + kv))
        self.assertEqual(rows["rotation of q and k"], L * two * 2 * (q + kv))
        self.assertEqual(rows["attention over the cache"], L * two * 2 * q)
        self.assertEqual(rows["residual additions"], 2 * L * two * 3 * d)
        self.assertEqual(rows["feed-forward matrices"], L * two * (2 * d + 3 * f))
        self.assertEqual(rows["head"], two * (d + V))
        self.assertEqual(rows["softmax and choice"], two * 2 * V)
        plain = serving.config_named("gpt2")
        rows = {r["operation"]: r["activation_bytes"] for r in serving.decode_step(plain, 100, 1, 2)["operations"]}
        self.assertEqual(rows["feed-forward matrices"], 12 * 2 * (2 * 768 + 3072))

    def test_what_is_no_load(self):
        config = serving.config_named("gpt2")
        for call_it in (
            lambda: serving.decode_step(config, -1),
            lambda: serving.decode_step(config, 5, 0),
            lambda: cache_bytes(config, -5),
        ):
            with self.assertRaises(BadInput):
                call_it()

    def test_an_alias(self):
        self.assertEqual(serving.config_named("smollm2"), serving.config_named("smollm2-135m"))

    def test_count_takes_as_many_positions_as_there_are(self):
        for name, context in (("gpt2", 1024), ("embedded", 256), ("llama-3-8b", 2000)):
            status, out, err = call(configs.main, "count", name, "--json")
            self.assertEqual((status, err, json.loads(out)["context"]), (0, "", context))


class Measurements(unittest.TestCase):
    def test_byte_entropy(self):
        text = ex.PLAY.read_bytes()
        wanted = -sum(n / len(text) * math.log(n / len(text)) for n in (text.count(b) for b in set(text)))
        self.assertAlmostEqual(ex.byte_entropy(), wanted, places=9)

    def test_training(self):
        first = ex.training("pre", 2, steps=1, width=16)
        self.assertGreater(first, math.log(256) - 1)  # before any step it guesses
        self.assertLess(ex.training("pre", 2, steps=60, width=16, rate=3e-3), first - 1)
        self.assertEqual(ex.training("post", 2, seed=3, steps=3, width=16), ex.training("post", 2, seed=3, steps=3, width=16))
        with mock.patch.object(ex.statistics, "mean", side_effect=list):
            losses = ex.training("pre", 1, steps=25, width=16)
            self.assertEqual(len(losses), 20)
            self.assertEqual(ex.training("pre", 1, steps=24, width=16)[1:], losses[:-1])  # the last twenty

    def test_a_warm_up_starts_slowly(self):
        rates = []
        right = torch.optim.Adam.step

        def step(adam, *args, **kwargs):
            rates.append(adam.param_groups[0]["lr"])
            return right(adam, *args, **kwargs)

        with mock.patch.object(torch.optim.Adam, "step", step):
            ex.training("pre", 1, steps=6, rate=1.0, width=16, warm_up=4)
        self.assertEqual(rates, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0])

    def test_depth_row_by_hand(self):
        model, streams = ex.small_model(ex.depth_config("pre", 3), 4), []
        ids, matrix = random_ids(model, 33, seed=4), model.weights["model.layers.2.mlp.down_proj.weight"].requires_grad_()
        model.token_table.requires_grad_()
        keep = lambda point, layer, x: streams.append(x) if point in ("embedding", "residual") else None  # noqa: E731
        logits = run(model, ids[:, :-1], trace=keep)
        loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:])
        at_embedding, in_last = torch.autograd.grad(loss, (streams[0], matrix))
        row = ex.depth_row("pre", 3, seeds=(4,))
        self.assertAlmostEqual(row["gradient"], at_embedding.square().sum().sqrt().item(), places=5)
        self.assertAlmostEqual(row["last_gradient"], in_last.square().sum().sqrt().item(), places=5)
        self.assertAlmostEqual(row["growth"], (streams[-1].norm() / streams[0].norm()).item(), places=4)
        self.assertAlmostEqual(streams[0].square().mean().sqrt().item(), 1.0, places=1)

    def test_times_of_options(self):
        sizes = dict(vocab_size=53, n_embd=24, n_layer=2, n_head=4, kv_heads=2, head_width=6, inner_width=40, n_positions=64)
        model = ex.random_llama(Config("llama", **sizes, rope=Rope()))
        clock = iter(range(10**6))
        rows = {r["option"]: r for r in ex.option_times(model, context=8, batch=2, runs=2, timer=lambda: next(clock))}
        self.assertTrue(all(r["ms"] == 1e3 and r["ratio"] == 1 for r in rows.values()))  # every call takes one tick
        self.assertLess(rows["MQA"]["bytes_ratio"], 1)
        self.assertGreater(rows["MHA"]["bytes_ratio"], 1)
        self.assertLess(rows["a window of a quarter"]["bytes_ratio"], 1)

    def test_losses_of_an_ablation(self):
        ids, model = torch.tensor([[3, 1, 4, 1, 5]]), Model(None, {}, module=variants.__name__)
        logits = 30 * torch.randn(1, 4, 11, generator=torch.Generator().manual_seed(0))
        with mock.patch.object(variants, "forward", return_value=logits):
            nats, best = ablations.losses(ids, model)
        wanted = torch.nn.functional.cross_entropy(logits[0].double(), ids[0, 1:], reduction="none")
        torch.testing.assert_close(nats[0], wanted, rtol=1e-13, atol=1e-13)  # in float64: float32 is 1e-7 off
        self.assertEqual(best.tolist(), logits.argmax(-1).tolist())
        logits[0, 2, 5] = float("nan")
        with mock.patch.object(variants, "forward", return_value=logits):
            self.assertEqual(ablations.losses(ids, model)[1][0, 2].item(), -1)  # among these no argmax means anything

    def test_the_worst_point_is_the_worst(self):
        right = ex.library_trace

        def off(library, ids):
            found = right(library, ids)
            found["residual", 1] = found["residual", 1] * 1.1
            return found

        with mock.patch.object(ex, "library_trace", off):
            self.assertGreater(ex.case_agreement("gpt2", "gpt2", {})["worst_point"], 1e-2)


class Commands(FolderCase):
    def saved(self, kind, change=lambda w: w):
        folder = self.folder / kind
        peers.library_tiny(kind).save_pretrained(folder)
        held = {k: change(w) for k, w in load_file(folder / "model.safetensors").items()}
        save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def test_prefix_of_every_rope(self):
        for kind in ("gemma3_text", "deepseek_v3", "qwen3", "mistral"):
            status, out, err = call(variants.main, "prefix", "--model", self.saved(kind), "--shifts", "3", "--json")
            self.assertEqual((status, err), (0, ""), kind)
            found = json.loads(out)
            self.assertLess(found["shifts"][0]["worst"], 1e-4, kind)
            self.assertLess(found["layers"][0]["keys"], 1e-5, kind)
            self.assertEqual(found["layers"][0]["values"], 0.0, kind)

    def test_compare_and_tour_of_every_family(self):
        for kind in peers.TINY:
            folder = self.saved(kind)
            status, _, err = call(gpt2.main, "tour", "--model", folder, "--json")
            self.assertEqual((status, err), (0, ""), kind)
        folder = self.folder / "xglm"
        status, out, err = call(gpt2.main, "compare", "--model", folder, "--json")  # which the library takes in no float64
        self.assertEqual((status, err), (0, ""))
        row = next(r for r in json.loads(out)["from_float64"] if r["dtype"] == "float64")
        self.assertIsNone(row["library"])
        self.assertBad(gpt2.main, ["tour", "--model", folder, "--dtype", "float64"], "takes no float64")

    def test_weights_that_are_no_numbers(self):
        bad = self.saved("llama", lambda w: w * float("nan"))
        for main, argv in (
            (llama.main, ["--model", bad]),
            (variants.main, ["prefix", "--shifts", "1", "--model", bad]),
            (configs.main, ["measure", "--model", bad, "--contexts", "3"]),
        ):
            self.assertBad(main, argv, "holds NaN")

    def test_weights_of_zero(self):
        zero = self.saved("llama", torch.zeros_like)
        for main, argv in (
            (llama.main, ["--model", zero, "--json"]),
            (variants.main, ["prefix", "--shifts", "1", "--model", zero]),
        ):
            status, _, err = call(main, *argv)
            self.assertEqual((status, err), (0, ""))

    def test_absurd_numbers(self):
        huge = "1" + "0" * 400
        for argv in (
            ["trace", "llama-3-8b", "--context", huge],
            ["trace", "mixtral-8x7b", "--batch", huge],
            ["table", "--batch", huge],
            ["window", "--tokens", huge],
            ["trace", "gpt2", "--tflops", "1e300"],
            ["trace", "gpt2", "--tbps", "5e-324"],
        ):
            self.assertBad(configs.main, argv, "is not")


if __name__ == "__main__":
    unittest.main()
