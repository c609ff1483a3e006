"""What a config.json may say, in any of the families: read as the library reads it, or refused by name; the published ones."""

import copy
import functools
import json
import math
import unittest

from examples.ch02.config import Config, general
from examples.ch02.families import READERS, read_config
from examples.ch02.model import load
from examples.ch14 import peers
from examples.ch14.configs import config_named, published
from examples.ch14.costs import flops_per_token, parameter_count
from examples.ch14.family_agreement import CASES
from examples.ch14.ten_choices import explain
from examples.lab.script import BadInput
from tests.support import LLAMA, FolderCase, llama_model, write_folder

PUBLISHED = published()
NAMES = tuple(PUBLISHED)
MODEL = llama_model()
ODD = (..., None, "x", -1, 0, 1.5, True, [], {}, 10**400, math.inf)


@functools.cache
def named(name):
    """The general Config of a published model."""
    return config_named(name)


def fields_of(name, **changes):
    """The config.json of a published model with `changes`; a change to `...` takes the field away."""
    return {k: v for k, v in (copy.deepcopy(PUBLISHED[name]["config"]) | changes).items() if v is not ...}


def read(name, **changes):
    """The general Config of a published config.json with `changes`."""
    return general_of(fields_of(name, **changes))


def general_of(values):
    """The general Config of a config.json's fields."""
    return general(read_config(values, "c.json"))


def tiny_values(kind, **changes):
    """What transformers writes as the config.json of a tiny model, every field of it."""
    return json.loads(peers.library_config(kind, **changes).to_json_string(use_diff=False))


def paths(values, at=()):
    """The path of every field of a config.json, those of inner tables too."""
    for name, value in values.items():
        yield (*at, name)
        if isinstance(value, dict):
            yield from paths(value, (*at, name))


def changed(values, path, value):
    """A copy of `values` with another value at `path`; `...` takes the field away."""
    values = copy.deepcopy(values)
    inner = functools.reduce(dict.__getitem__, path[:-1], values)
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return values


def in_the_words_of_4(values):
    """A config.json of transformers 5 as version 4 wrote it: `rope_theta`, `rope_scaling`, and Gemma 3's second theta."""
    values = copy.deepcopy(values)
    block = values.pop("rope_parameters", None)
    if block and "full_attention" in block:
        values["rope_local_base_freq"] = block["sliding_attention"]["rope_theta"]
        block = block["full_attention"]
    if block:
        values["rope_theta"] = block.pop("rope_theta")
        kind = block.pop("rope_type")
        values["rope_scaling"] = None if kind == "default" else {"type": kind, **block}
    return values


class Published(unittest.TestCase):
    def test_all_that_must_be_there(self):
        self.assertEqual({named(n).model_type for n in NAMES}, set(READERS))
        for name, model in PUBLISHED.items():
            self.assertTrue(model["published"].startswith("https://"), name)
            self.assertRegex(model["released"], r"^20\d\d-(0[1-9]|1[0-2])$")
            self.assertEqual(set(model), {"published", "released", "config"})

    def test_named(self):
        self.assertEqual(config_named("embedded").model_type, "gpt2")
        self.assertEqual(config_named("smollm2"), config_named("smollm2-135m"))  # the name that --model takes
        with self.assertRaisesRegex(BadInput, "no config nope: give a config.json.*llama-3-8b"):
            config_named("nope")


class Reading(FolderCase):
    def assertRefused(self, values, *words, reader=read_config):
        with self.assertRaises(BadInput) as caught:
            reader(values, "c.json")
        text = str(caught.exception)
        self.assertEqual(len(text.splitlines()), 1)
        self.assertTrue(text.startswith("c.json"), text)
        for word in words:
            self.assertIn(word, text)

    def test_unknown_model_type(self):
        for kind in ("mamba", None, ["llama"], 3, {}):
            self.assertRefused({"model_type": kind}, f"model_type is {kind!r}", "deepseek_v3")
        self.assertRefused({}, "model_type is None")

    def test_missing_fields(self):
        needed = {
            "gpt2": ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"),
            "gpt": ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"),
            "xglm-564m": ("vocab_size", "d_model", "ffn_dim", "num_layers", "attention_heads"),
            "llama-3-8b": ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
            "gemma-3-1b": ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
            "deepseek-v3": ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts")
            + ("num_experts_per_tok", "moe_intermediate_size"),
        }
        for name, fields in needed.items():
            for field in fields:
                self.assertRefused(fields_of(name, **{field: ...}), f"lacks {field}")
                self.assertRefused(fields_of(name, **{field: None}), f"lacks {field}")

    def test_wrong_types(self):
        for value in ("12", 12.0, -1, 0, True, [12], {}, 10**10):
            for name, field in (("gpt2", "n_layer"), ("llama-3-8b", "hidden_size"), ("mixtral-8x7b", "num_local_experts")):
                self.assertRefused(fields_of(name, **{field: value}), f"{field} is {value!r}", "whole number")
        for value in ("1e-5", 0, -1e-5, True, [], math.inf, math.nan, 10**400):
            self.assertRefused(fields_of("llama-3-8b", rms_norm_eps=value), "rms_norm_eps is ", "a number above 0")
        for value in ("true", 1, 0, []):
            self.assertRefused(
                fields_of("llama-3-8b", tie_word_embeddings=value), f"tie_word_embeddings is {value!r}", "true or false"
            )
        self.assertRefused(fields_of("gpt2", activation_function="mish"), "activation_function is 'mish'", "gelu_new")
        self.assertRefused(fields_of("gpt2", activation_function=["gelu"]), "activation_function is ['gelu']")
        self.assertRefused(fields_of("llama-3-8b", hidden_act="gelu"), "hidden_act is 'gelu'")

    def test_the_name_that_stands_there_is_the_one_blamed(self):
        self.assertRefused(fields_of("bloom-560m", n_embed=0), "n_embed is 0")

    def test_heads(self):
        self.assertRefused(fields_of("llama-3-8b", num_key_value_heads=5), "32 heads are not divisible by 5 key-value heads")
        self.assertRefused(fields_of("llama-3-8b", hidden_size=4097), "hidden_size 4097 is not divisible by 32 heads")
        self.assertRefused(fields_of("gpt2", n_embd=770), "width 770 is not divisible by 12 heads")
        self.assertRefused(fields_of("xglm-564m", d_model=1025), "width 1025 is not divisible by 16 heads")
        self.assertRefused(fields_of("llama-3-8b", head_dim=5), "head of 5 numbers is odd")
        self.assertRefused(fields_of("deepseek-v3", qk_rope_head_dim=7), "head of 7 numbers is odd")
        self.assertEqual(read("gpt2", n_embd=36).head_width, 3)  # nothing turns there

    def test_experts(self):
        self.assertRefused(fields_of("mixtral-8x7b", num_experts_per_tok=9), "9 experts per token of 8")
        for changes in ({"n_group": 7}, {"n_group": 256}, {"topk_group": 9}, {"topk_group": 1, "num_experts_per_tok": 33}):
            self.assertRefused(
                fields_of("deepseek-v3", **changes), "experts per token from", "groups cannot be chosen of 256 experts"
            )
        self.assertEqual(read("deepseek-v3", topk_group=1, num_experts_per_tok=32).experts.best_groups, 1)
        self.assertEqual(read("deepseek-v3", n_group=1, topk_group=1).experts.groups, 1)
        self.assertEqual(read("deepseek-v3", first_k_dense_replace=62).experts.dense, tuple(range(61)))  # as many as there are
        self.assertRefused(fields_of("deepseek-v3", first_k_dense_replace=-1), "first_k_dense_replace is -1")
        self.assertEqual(read("deepseek-v3", first_k_dense_replace=0).experts.dense, ())

    def test_layer_types(self):
        full, near = "full_attention", "sliding_attention"
        for types in ([full] * 41, [full] * 43, [full] * 41 + ["chunked"], "full_attention", [full] * 41 + [7], {full: 42}):
            self.assertRefused(fields_of("gemma-2-9b", layer_types=types), "layer_types", "one for each layer")
        self.assertEqual(read("gemma-2-9b", layer_types=[full] * 41 + [near]).windows, (None,) * 41 + (4096,))
        self.assertRefused(fields_of("qwen2-7b", use_sliding_window=True, layer_types=[full]), "layer_types")

    def test_ropes(self):
        yarn = fields_of("deepseek-v3")["rope_scaling"]
        for kind in ("longrope", "dynamic", "yarn"):
            block = yarn | {"type": kind}
            for spelling in ("rope_scaling", "rope_parameters"):
                self.assertRefused(fields_of("llama-3-8b", **{spelling: block}), f"the rope type {kind!r} is not known here")
        self.assertRefused(fields_of("deepseek-v3", rope_scaling=yarn | {"type": "longrope"}), "'longrope'", "yarn")
        rope = named("deepseek-v3").rope
        self.assertEqual((rope.kind, rope.factor, rope.original_positions, rope.theta), ("yarn", 40.0, 4096, 10000.0))
        self.assertAlmostEqual(named("deepseek-v3").score_scale, 192**-0.5 * (0.1 * math.log(40) + 1) ** 2)
        self.assertRefused(fields_of("llama-3-8b", rope_scaling={"type": "linear", "factor": 0}), "factor")
        self.assertRefused(fields_of("llama-3-8b", rope_scaling={"type": "linear", "factor": 2.0, "beta": 1}), "'beta'")
        self.assertRefused(fields_of("llama-3-8b", rope_parameters={"rope_theta": 1e4}), "spellings of the rope differ")
        self.assertRefused(fields_of("llama-3-8b", rope_theta="big"), "rope_theta is 'big'")

    def test_fields_that_change_the_computation(self):
        for name, fields in {
            "gpt2": {"add_cross_attention": True, "is_causal": False},
            "santacoder": {"add_cross_attention": True},
            "xglm-564m": {"add_cross_attention": True},
            "bloom-560m": {"apply_residual_connection_post_layernorm": True},
            "gemma-2b": {"use_bidirectional_attention": True},
            "gemma-2-9b": {"use_bidirectional_attention": "all"},
            "gemma-3-1b": {"use_bidirectional_attention": True},
            "deepseek-v3": {"attention_bias": True, "scoring_func": "softmax", "topk_method": "greedy", "moe_layer_freq": 2},
        }.items():
            for field, value in fields.items():
                self.assertRefused(fields_of(name, **{field: value}), f"{field} {value!r} may change the computation")
                harmless = {"is_causal": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1}
                for same in (None, harmless.get(field, False)):
                    self.assertEqual(read(name, **{field: same}), named(name), field)

    def test_a_field_that_nobody_knows(self):
        for name in NAMES:
            for value in (True, 1, "x", [0], {"a": None}):
                self.assertRefused(fields_of(name, clever=value), f"clever {value!r} may change the computation", "not known here")
            for value in (None, False, [], {}, ""):  # it says that something is not there
                self.assertEqual(read(name, clever=value), named(name))

    def test_quantised_weights_are_explained_and_not_loaded(self):
        for name in NAMES:
            values = fields_of(name, quantization_config={"quant_method": "fp8"})
            self.assertEqual(general_of(values), named(name))
            (self.folder / "config.json").write_text(json.dumps(values))
            with self.assertRaisesRegex(BadInput, "config.json: quantization_config says that weights are packed"):
                load(self.folder)  # before it looks for any weights
        for none in (None, {}):
            for name in NAMES:
                self.assertEqual(read(name, quantization_config=none), named(name))
            found = load(write_folder(self.folder / "tiny", MODEL.weights, LLAMA | {"quantization_config": none}))
            self.assertEqual(found.config, MODEL.config)

    def test_every_gelu_by_its_family(self):
        self.assertEqual(read("gpt", afn="gelu").activation, "gelu_new")  # the family's "gelu" is tanh's
        for name, field in (("gemma-2b", "hidden_act"), ("gemma-2-9b", "hidden_activation"), ("gemma-3-1b", "hidden_activation")):
            self.assertEqual(read(name, **{field: "gelu_pytorch_tanh"}).activation, "gelu_new")
            exact = "gelu_new" if name == "gemma-2b" else "gelu"  # only the first Gemma's "gelu" is tanh's
            self.assertEqual(read(name, **{field: "gelu"}).activation, exact)
            for wrong in ("silu", "relu"):
                self.assertRefused(fields_of(name, **{field: wrong}), f"{field} is {wrong!r}")
        both = {"hidden_act": "silu", "hidden_activation": None}  # transformers 5 reads the first, 4 the second
        self.assertRefused(fields_of("gemma-2b", **both), "hidden_act is 'silu'")
        self.assertEqual(read("gpt2", activation_function="gelu").activation, "gelu")
        self.assertEqual(read("bloom-560m").activation, "gelu_new")
        self.assertEqual(read("xglm-564m").activation, "gelu")

    def test_windows(self):
        self.assertEqual(read("mistral-7b", sliding_window=None).windows, ())
        self.assertEqual(read("mistral-7b", sliding_window=...).windows, (4096,) * 32)  # the library's default
        self.assertEqual(read("mixtral-8x7b", sliding_window=...).windows, ())
        for name in ("qwen2-7b", "qwen3-4b"):
            layers = named(name).n_layer
            self.assertEqual(read(name, sliding_window=7).windows, ())  # use_sliding_window is false
            on = dict(use_sliding_window=True, sliding_window=7)
            self.assertEqual(read(name, **on, max_window_layers=3).windows, (None,) * 3 + (7,) * (layers - 3))
            self.assertEqual(read(name, **on, max_window_layers=0).windows, (7,) * layers)
            self.assertEqual(read(name, use_sliding_window=True, sliding_window=None).windows, ())
            for value in ("x", -1, [], 1.5, True):
                self.assertRefused(fields_of(name, **on, max_window_layers=value), "max_window_layers is ")
        self.assertEqual(sum(w == 4096 for w in named("gemma-2-9b").windows), 21)
        self.assertEqual(named("gemma-2-9b").windows[:2], (4096, None))

    def test_windows_as_the_library_has_them(self):
        for kind in ("qwen2", "qwen3"):
            for on, window, first in ((True, 6, 2), (True, 6, 0), (True, 6, 28), (True, None, 0), (False, 6, 0)):
                fields = dict(use_sliding_window=on, sliding_window=window, max_window_layers=first)
                theirs = peers.library_config(kind, **fields).layer_types
                c = general_of(peers.TINY[kind] | fields | {"model_type": kind})
                self.assertEqual([c.window(i) for i in range(3)], [6 if t == "sliding_attention" else None for t in theirs], fields)

    def test_gemma_3s_pattern(self):
        c = named("gemma-3-1b")
        self.assertEqual(sum(w == 512 for w in c.windows), 22)
        self.assertEqual([i for i, w in enumerate(c.windows) if w is None], [5, 11, 17, 23])
        types = ["full_attention" if w is None else "sliding_attention" for w in c.windows]
        self.assertEqual(read("gemma-3-1b", layer_types=types, sliding_window_pattern=...), c)
        self.assertEqual(sum(w is None for w in read("gemma-3-1b", sliding_window_pattern=2).windows), 13)

    def test_gemma_3s_ropes_in_both_spellings(self):
        c = named("gemma-3-1b")
        self.assertEqual((c.rope.theta, c.window_rope.theta), (1e6, 1e4))
        old = dict(rope_theta=..., rope_local_base_freq=...)
        new = {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
        self.assertEqual(read("gemma-3-1b", **old, rope_parameters=new), c)
        self.assertEqual(read("gemma-3-1b", **old), c)  # both by default
        scaled = read("gemma-3-1b", rope_scaling={"rope_type": "linear", "factor": 8.0})
        self.assertEqual((scaled.rope.kind, scaled.rope.factor, scaled.window_rope), ("linear", 8.0, c.window_rope))
        new["full_attention"] |= {"rope_type": "linear", "factor": 8.0}
        self.assertEqual(read("gemma-3-1b", **old, rope_parameters=new), scaled)
        self.assertRefused(fields_of("gemma-3-1b", **old, rope_parameters=new | {"full_attention": 7}), "no table")

    def test_names_of_sizes(self):
        spelt = fields_of("bloom-560m", n_embed=..., num_attention_heads=..., n_layer=...)
        for names in (dict(hidden_size=1024, n_head=16, n_layer=24), dict(n_embed=1024, n_head=16, num_hidden_layers=24)):
            self.assertEqual(general_of(spelt | names), named("bloom-560m"))
        self.assertRefused(spelt | dict(n_embd=1024, n_head=16, n_layer=24), "lacks hidden_size")  # GPT-2's word alone
        spelt = fields_of("xglm-564m", d_model=..., attention_heads=..., num_layers=...)
        names = dict(hidden_size=1024, num_attention_heads=16, num_hidden_layers=24)
        self.assertEqual(general_of(spelt | names), named("xglm-564m"))

    def test_as_transformers_writes_it(self):
        for case, kind, changes in CASES:
            with self.subTest(case):
                c = general_of(peers.TINY[kind] | changes | {"model_type": kind})
                full = tiny_values(kind, **changes)
                self.assertEqual(general_of(full), c)
                self.assertEqual(general_of(json.loads(peers.library_config(kind, **changes).to_json_string())), c)
                self.assertEqual(general_of(in_the_words_of_4(full)), c)

    def test_spellings_of_the_published_ropes(self):
        for name in NAMES:
            values = fields_of(name)
            if "rope_theta" in values and "rope_local_base_freq" not in values:
                block = values.pop("rope_scaling", None) or {}
                block["rope_type"] = block.pop("type", block.get("rope_type", "default"))
                block["rope_theta"] = values.pop("rope_theta")
                self.assertEqual(general_of(values | {"rope_parameters": block}), named(name), name)

    def test_no_value_of_any_field_breaks_it(self):
        bases = {name: fields_of(name) for name in NAMES}
        bases |= {f"tiny {case}": tiny_values(kind, **changes) for case, kind, changes in CASES}
        bases["windows by number"] = changed(bases["tiny qwen2, windows"], ("layer_types",), ...)
        taken = refused = 0
        for name, base in bases.items():
            for path in paths(base):
                for value in ODD:
                    values = changed(base, path, value)
                    try:
                        c = general_of(values)
                    except BadInput as error:
                        text, refused = str(error), refused + 1
                        self.assertEqual(len(text.splitlines()), 1, text)
                        self.assertTrue(text.startswith("c.json"), text)
                        continue
                    except Exception as error:
                        self.fail(f"{name}, {path} as {value!r:.40}: {type(error).__name__}: {error}")
                    taken += 1
                    self.assertIsInstance(c, Config)
                    self.assertGreater(parameter_count(c)["total"], 0)
                    self.assertGreater(flops_per_token(c, 1)["total"], 0)
                    self.assertTrue(all(isinstance(line, str) for line in explain(c)))
        self.assertGreater(min(taken, refused), 2000)


if __name__ == "__main__":
    unittest.main()
