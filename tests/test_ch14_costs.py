"""The cost formulas of any family: parameters beside transformers and the tensors, FLOPs beside torch's counter, caches beside real
ones; each check is shown to fail on planted faults; and the script."""

import functools
import json
import math
import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02 import layout
from examples.ch02.config import general
from examples.ch02.families import READERS, VARIANTS, read_config
from examples.ch02.layout import weight_shapes
from examples.ch02.model import Model, random_tensor, run
from examples.ch03.tokens import random_ids
from examples.ch04 import cost_model
from examples.ch10 import kv_cache
from examples.ch10.kv_cache import KVCache, cache_bytes
from examples.ch14 import costs, variants
from examples.ch14 import family_agreement as families
from examples.ch14.configs import config_named, published
from examples.ch14.peers import TINY
from examples.lab.script import BadInput, parse_json
from tests.support import LLAMA, FolderCase, G, call, config, llama_model, slow, write_folder

PUBLISHED = published()
NAMES = tuple(PUBLISHED)
MODEL = llama_model()
TOTALS = {  # as transformers counts them, and as sources.md quotes their pages
    **{"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200},
    **{"llama-2-7b": 6_738_415_616, "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496},
    **{"llama-3.2-1b": 1_235_814_400, "llama-3.2-3b": 3_212_749_824, "smollm2-135m": 134_515_008},
    **{"mistral-7b": 7_241_732_096, "mixtral-8x7b": 46_702_792_704, "qwen2-7b": 7_615_616_512},
    **{"qwen3-4b": 4_022_468_096, "qwen3-8b": 8_190_735_360, "qwen3-30b-a3b": 30_532_122_624, "gemma-2-9b": 9_241_705_984},
    "deepseek-v3": 671_026_404_352,
}
DENSE = tuple(case for case in families.CASES if case[1] not in ("mixtral", "qwen3_moe", "deepseek_v3"))
MIXED = tuple(case for case in families.CASES if case not in DENSE)


def setUpModule():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny, and threads that wait for each other cost more
    unittest.addModuleCleanup(torch.set_num_threads, threads)


@functools.cache
def named(name):
    """The general Config of a published model."""
    return config_named(name)


def with_fields(name, **changes):
    """The general Config of a published config.json with `changes`."""
    return general(read_config(PUBLISHED[name]["config"] | changes, "c.json"))


@functools.cache
def case_model(case):
    """Our model of one of `families.CASES`, by its name, in the general form with random weights."""
    kind, changes = next((kind, changes) for name, kind, changes in families.CASES if name == case)
    c = general(read_config(TINY[kind] | changes | {"model_type": kind}, case))
    return Model(c, {name: random_tensor(name, shape, 0) for name, shape in weight_shapes(c).items()}, module=VARIANTS)


def case_config(case):
    """The Config of one of `families.CASES`, by its name."""
    return case_model(case).config


def all_experts(c):
    """The config as the program evaluates it: every expert sees every token."""
    return replace(c, experts=replace(c.experts, active=c.experts.count)) if c.experts else c


@torch.no_grad()
def executed(call):
    """FLOPs that torch's counter sees in a call; the program has plain matmuls only, so none is missing."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def pass_flops(case, tokens, batch=1, form=None):
    """FLOPs that a pass of a tiny model executes; form: what makes another model of it."""
    model = case_model(case)
    model = model if form is None else form(model)
    ids = random_ids(model, tokens, batch)
    return executed(lambda: run(model, ids))


def brute_pairs(c, tokens):
    """Pairs of a query and a key that it sees, over all layers, by looking at each."""
    pairs = [(i, j) for i in range(tokens) for j in range(tokens) if j <= i]
    return sum(1 for layer in range(c.n_layer) for i, j in pairs if c.window(layer) is None or i - j < c.window(layer))


class Checks(unittest.TestCase):
    """The checks, each a method, so that the planted faults can be put before the same ones."""

    def check_parameters(self, c, wanted=None):
        """The formula beside the table of tensors, and beside a number that others print. The records ch14.counts and ch14.families
        compare it with transformers' own models."""
        parts = costs.parameter_count(c)
        self.assertEqual(parts["total"], sum(n for part, n in parts.items() if part != "total"))
        self.assertEqual(parts["total"], costs.tensor_table_total(c), c.model_type)
        self.assertEqual(parts["total"], wanted or parts["total"], c.model_type)

    def check_active(self, c):
        unused = 0
        for layer in range(c.n_layer):
            if c.has_experts(layer):
                unused += (c.experts.count - c.experts.active) * 3 * c.n_embd * c.experts.width
        self.assertEqual(costs.parameter_count(c, active=True)["total"], costs.tensor_table_total(c) - unused, c.model_type)

    def check_token(self, c, context, linear, attention):
        found = costs.flops_per_token(c, context)
        self.assertEqual(found["attention_scores_and_values"], attention)
        self.assertEqual(found["total"], linear + attention)
        self.assertEqual(found["total"], sum(n for part, n in found.items() if part != "total"))

    def check_pass(self, case):
        """The closed form beside the counter at two lengths, of which the second has four times the attention."""
        c = all_experts(case_config(case))
        parts = []
        for tokens in (8, 16):
            found = costs.flops_per_pass(c, tokens, batch=2)
            self.assertEqual(found["total"], pass_flops(case, tokens, batch=2), (case, tokens))
            self.assertEqual(found["total"], sum(n for part, n in found.items() if part != "total"))
            if not c.windows:
                self.assertEqual(found["total"], 2 * tokens * costs.flops_per_token(c, tokens, "expanded")["total"])
            parts.append(found)
        for part, n in parts[0].items():
            if part != "total":
                self.assertEqual(parts[1][part], (4 if part == "attention_scores_and_values" else 2) * n, (case, part))
        measured = pass_flops(case, 8, batch=2), pass_flops(case, 16, batch=2)  # a T + b T^2
        self.assertEqual(measured[1] - 2 * measured[0], 2 * parts[0]["attention_scores_and_values"])

    def check_absorbed(self, case):
        c, found = all_experts(case_config(case)), []
        for tokens in (8, 16):
            found.append(pass_flops(case, tokens, form=families.in_absorbed_form))
            self.assertEqual(found[-1], tokens * costs.flops_per_token(c, tokens)["total"], (case, tokens))
            self.assertNotEqual(found[-1], pass_flops(case, tokens))
        self.assertEqual(found[1] - 2 * found[0], 2 * 8 * costs.flops_per_token(c, 8)["attention_scores_and_values"])

    def check_causal(self, case):
        model = case_model(case)
        c = model.config
        for tokens in (1, 5, 6, 7, 20):
            found, full = (costs.flops_per_pass(c, tokens, pairs=pairs) for pairs in ("causal", "full"))
            pairs, each = brute_pairs(c, tokens), 2 * c.n_head * (c.query_width + c.value_width)
            self.assertEqual(found["attention_scores_and_values"], each * pairs, (case, tokens))
            self.assertEqual(full["attention_scores_and_values"], each * c.n_layer * tokens**2)
            for part in ("attention_projections", "feed_forward", "output_projection"):
                self.assertEqual(found[part], full[part])
            self.assertEqual(costs.flops_per_pass(c, tokens, 3, "causal")["total"], 3 * found["total"])
        open_pairs = []

        def trace(point, layer, x):
            if point == "scores":
                open_pairs.append(int(torch.isfinite(x).sum()) // c.n_head)

        run(model, random_ids(model, 20), trace=trace)
        self.assertEqual(sum(open_pairs), brute_pairs(c, 20), case)  # the program's own mask

    def check_cache(self, c, tokens, bytes_per_number, wanted):
        self.assertEqual(cache_bytes(c, tokens, bytes_per_number=bytes_per_number), wanted)
        self.assertEqual(costs.kv_bytes_per_token(c, bytes_per_number) * tokens, wanted)  # without a window
        self.assertEqual(cache_bytes(c, tokens, 7, bytes_per_number), 7 * wanted)


class Parameters(Checks):
    def test_every_published_config(self):
        for name in NAMES:
            with self.subTest(name):
                self.check_parameters(named(name), TOTALS.get(name))
                self.check_active(named(name))
        for case, *_ in families.CASES:
            with self.subTest(case):
                self.check_parameters(case_config(case))
                self.check_active(case_config(case))

    def test_the_appendix_has_what_a_count_by_hand_needs(self):
        """The chapter's formula for a dense, gated, pre-norm model without biases, from the columns of the table alone."""
        dense = (
            "llama-2-7b",
            "llama-3-8b",
            "llama-3-70b",
            "llama-3.2-1b",
            "llama-3.2-3b",
            "smollm2-135m",
            "mistral-7b",
            "gemma-2b",
        )
        for name in dense:
            shape = costs.shape_of(config_named(name))
            L, d, h, g, dh, f, V = (shape[k] for k in ("L", "d", "h", "g", "dh", "f", "V"))
            tables = V * d * (1 if shape["tied"] == "yes" else 2)
            by_hand = tables + L * (d * dh * (2 * h + 2 * g) + 3 * d * f) + (2 * L + 1) * d
            self.assertEqual(by_hand, costs.parameter_count(config_named(name))["total"], name)
        shape = costs.shape_of(config_named("deepseek-v3"))
        self.assertEqual((shape["g"], shape["dh"], shape["experts"]), (None, None, "256 of 2,048, 8 active, 1 shared"))
        self.assertIsNone(costs.shape_of(config_named("mixtral-8x7b"))["f"])
        self.assertEqual(costs.shape_of(config_named("gemma-2-9b"))["window"], "4,096 in 21")

    def test_deepseek_counts_no_routing_biases(self):  # 58 layers of 256 experts
        shapes = weight_shapes(named("deepseek-v3"))
        self.assertEqual([s for n, s in shapes.items() if layout.is_buffer(n)], [(256,)] * 58)
        self.assertEqual(sum(map(math.prod, shapes.values())), 671_026_404_352 + 58 * 256)

    def test_active(self):
        self.assertEqual(costs.parameter_count(named("mixtral-8x7b"), active=True)["total"], 12_879_925_248)
        self.assertEqual(costs.parameter_count(named("qwen3-30b-a3b"), active=True)["total"], 3_353_032_704)
        for name in NAMES:
            if not named(name).experts:
                self.assertEqual(costs.parameter_count(named(name), active=True), costs.parameter_count(named(name)))

    def test_other_known_totals(self):
        def total(*args, **changes):
            return costs.parameter_count(with_fields(*args, **changes))["total"]

        untied = {"gpt2": 163_037_184, "gpt2-medium": 406_286_336, "gpt2-large": 838_359_040, "gpt2-xl": 1_638_022_400}
        for name, wanted in (untied | {"llama-3.2-1b": 1_498_482_688}).items():
            self.assertEqual(total(name, tie_word_embeddings=False), wanted, name)
        stories = dict(vocab_size=32000, hidden_size=288, intermediate_size=768, num_hidden_layers=6)
        stories |= dict(num_attention_heads=6, num_key_value_heads=6)
        self.assertEqual(total("llama-2-7b", **stories, tie_word_embeddings=True), 15_191_712)
        self.assertEqual(total("llama-2-7b", **stories), 24_407_712)
        self.assertEqual(
            total("qwen3-8b", hidden_size=5120, num_hidden_layers=64, num_attention_heads=64, intermediate_size=25600),
            32_762_123_264,
        )
        qwen = dict(hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, intermediate_size=29568)
        self.assertEqual(total("qwen2-7b", **qwen), 72_706_203_648)
        self.assertEqual(costs.parameter_count(replace(named("qwen3-4b"), head_width=80))["total"], 3_668_570_240)

    def test_nanogpts_124m_leaves_out_positions(self):
        parts = costs.parameter_count(named("gpt2"))
        self.assertEqual(parts["total"] - parts["position_embedding"], 123_653_376)

    def test_as_chapter_4(self):
        for c in (config(), config(tie_word_embeddings=False), config(n_inner=5)):
            self.assertEqual(costs.parameter_count(general(c)), cost_model.parameter_count(c))
        by_hand = {"token_embedding": 11 * 8, "position_embedding": 0, "attention": 2 * 8 * 4 * (4 + 2 + 2 + 4)}  # q, k, v, o
        by_hand |= {"feed_forward": 2 * 3 * 8 * 12, "norms": 5 * 8, "output_projection": 11 * 8, "total": 1560}
        self.assertEqual(costs.parameter_count(MODEL.config), by_hand)
        self.assertEqual(costs.parameter_count(general(config()))["total"], 1976)
        self.assertEqual(costs.parameter_count(MODEL.config)["total"], 1560)


class Flops(Checks):
    def test_known_values(self):
        for c, context, linear, attention in (
            (general(config()), 8, 3248, 512),
            (general(config()), 1, 3248, 64),
            (MODEL.config, 8, 2864, 1024),
            (named("gpt2"), 1, 247_064_064, 36_864),
            (named("gpt2"), 1024, 247_064_064, 37_748_736),
            (named("llama-3-8b"), 8192, 15_009_316_864, 4_294_967_296),
            (named("llama-3.2-1b"), 1, 2_471_493_632, 131_072),
            (named("mixtral-8x7b"), 1, 25_497_174_016, 524_288),
        ):
            with self.subTest(c.model_type, context=context):
                self.check_token(c, context, linear, attention)
        found = costs.flops_per_pass(general(config()), 8, pairs="causal")
        self.assertEqual(found["total"], 28_288)
        self.assertEqual(costs.flops_per_pass(general(config()), 8)["total"], 30_080)
        self.assertEqual(costs.flops_per_pass(MODEL.config, 8)["total"], 31_104)
        self.assertEqual(costs.flops_per_pass(named("gpt2"), 16)["total"], 3_962_462_208)

    def test_dense_families_beside_the_counter(self):
        self.assertEqual({kind for _, kind, _ in DENSE} | {"mixtral", "qwen3_moe", "deepseek_v3"}, set(READERS))
        for case, *_ in DENSE:
            with self.subTest(case):
                self.check_pass(case)

    def test_mixtures_beside_the_counter_with_all_experts(self):
        for case, *_ in MIXED:
            with self.subTest(case):
                self.check_pass(case)
                c = case_config(case)
                said, done = (costs.flops_per_token(x, 8)["feed_forward"] for x in (c, all_experts(c)))
                idle = sum(c.has_experts(i) for i in range(c.n_layer)) * (c.experts.count - c.experts.active)
                self.assertEqual(done - said, 2 * idle * 3 * c.n_embd * c.experts.width)

    def test_latent_attention_absorbed(self):
        for case, kind, _ in MIXED:
            if kind == "deepseek_v3":
                with self.subTest(case):
                    self.check_absorbed(case)

    def test_the_two_forms_differ_by_the_width_of_a_position(self):
        c = named("deepseek-v3")
        short, long = (costs.flops_per_token(c, 1000, form) for form in costs.FORMS)
        self.assertEqual(short["attention_scores_and_values"], 61 * 2 * 128 * (2 * 512 + 64) * 1000)
        self.assertEqual(long["attention_scores_and_values"], 61 * 2 * 128 * (192 + 128) * 1000)
        self.assertEqual(short["attention_projections"], long["attention_projections"])
        same = named("llama-3-8b")  # nothing to absorb
        self.assertEqual(costs.flops_per_token(same, 9), costs.flops_per_token(same, 9, "expanded"))

    def test_causal_pairs_beside_brute_force(self):
        for case in ("llama", "mistral", "gemma2", "gemma3_text", "qwen2, windows", "mixtral, windows", "deepseek_v3"):
            with self.subTest(case):
                self.check_causal(case)

    def test_a_window_caps_a_token(self):
        c = named("mistral-7b")
        at = [costs.flops_per_token(c, n)["attention_scores_and_values"] for n in (4095, 4096, 4097, 32768)]
        self.assertEqual([n // (32 * 4 * 4096) for n in at], [4095, 4096, 4096, 4096])

    def test_as_chapter_4(self):
        c = config()
        self.assertEqual(costs.flops_per_token(general(c), 8), cost_model.flops_per_token(c, 8))
        for pairs in ("full", "causal"):
            self.assertEqual(costs.flops_per_pass(general(c), 8, 3, pairs), cost_model.flops_per_pass(c, 8, 3, pairs))

    def test_refusals(self):
        c = named("gpt2")
        for context in (0, -1, 1025):
            with self.assertRaisesRegex(BadInput, f"context {context} is not within 1 to n_positions 1024"):
                costs.flops_per_token(c, context)
        with self.assertRaisesRegex(BadInput, "'flash'.*absorbed or expanded"):
            costs.flops_per_token(c, 1, "flash")
        with self.assertRaisesRegex(BadInput, "'half'; give full or causal"):
            costs.flops_per_pass(c, 1, pairs="half")


class Cache(Checks):
    def test_known_values(self):
        for c, tokens, bytes_per_number, wanted in (
            (named("gpt2"), 1024, 4, 75_497_472),
            (named("llama-3-8b"), 8192, 2, 1_073_741_824),
            (named("llama-3-70b"), 32768, 2, 10_737_418_240),
            (named("qwen3-4b"), 1, 2, 147_456),
            (named("llama-2-7b"), 1, 2, 524_288),
            (MODEL.config, 8, 4, 1024),
        ):
            with self.subTest(c.model_type, tokens=tokens):
                self.check_cache(c, tokens, bytes_per_number, wanted)

    def test_known_wrong_values(self):
        self.assertEqual(cache_bytes(replace(named("llama-3-8b"), kv_heads=32), 8192, 1, 2), 4_294_967_296)
        self.assertEqual(costs.kv_bytes_per_token(replace(named("qwen3-4b"), head_width=80)), 92_160)
        self.assertEqual(cache_bytes(replace(MODEL.config, kv_heads=4), 8, 1, 4), 2048)

    def test_latent(self):
        c = named("deepseek-v3")
        self.assertEqual([costs.cached_numbers(c, form) for form in costs.FORMS], [576, 40_960])
        self.assertEqual(costs.kv_bytes_per_token(c), 61 * 576 * 2)
        self.assertEqual(cache_bytes(c, 100, 3, 1), 100 * 3 * 61 * 576)
        self.assertEqual(costs.kv_bytes_per_token(c, 1, "expanded"), 61 * 40_960)

    def test_the_real_cache(self):
        for changes in ({}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"head_dim": None}, {"num_hidden_layers": 5}):
            model = llama_model(**changes)
            for batch, tokens, dtype in ((1, 8, torch.float32), (3, 64, torch.bfloat16), (2, 1, torch.float64)):
                real = KVCache(model.to(dtype=dtype), batch, tokens)
                self.assertEqual(cache_bytes(model.config, tokens, batch, dtype.itemsize), real.nbytes, changes)


class Script(FolderCase):
    def run_json(self, *argv):
        """The strict JSON of a run, whose table is printed without error as well."""
        status, self.text, err = call(costs.main, *argv)
        self.assertEqual((status, err), (0, ""))
        status, out, err = call(costs.main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        return parse_json(out)

    def row(self, start):
        """The cells of the printed row that starts so."""
        return next(line for line in self.text.splitlines() if line.startswith(start)).removeprefix(start).split()

    def test_every_published_config(self):
        for name in NAMES:
            value = self.run_json("--config", name, "--context", "100", "--batch", "3")["cost"]
            c = named(name)
            self.assertEqual(value["parameters"], costs.parameter_count(c))
            self.assertEqual(value["active"], costs.parameter_count(c, active=True))
            self.assertEqual(value["flops_per_token"], costs.flops_per_token(c, 100))
            self.assertEqual(value["cache_bytes"], cache_bytes(c, 100, 3, 2))
            self.assertEqual(self.row("total")[0], f"{value['tensor_table_total']:,}")
            self.assertEqual(value["flops_per_token_expanded"] is not None, name == "deepseek-v3")

    def test_defaults(self):
        self.assertEqual(self.run_json()["cost"]["config"], "llama-3-8b")
        self.assertEqual(self.run_json("--config", "deepseek-v3")["cost"]["kv_bytes_per_token_expanded"], 61 * 40_960 * 2)
        for name, context in (("gpt2", 1024), ("embedded", 256), ("llama-3-8b", 2000)):  # as many as there are
            self.assertEqual(self.run_json("--config", name)["cost"]["context"], context)

    def test_a_folder_and_a_file(self):
        folder = write_folder(self.folder / "tiny", MODEL.weights, LLAMA)
        value = self.run_json("--config", folder / "config.json", "--context", "8")["cost"]
        self.assertEqual(value["flops_per_token"]["total"], 3888)
        value = self.run_json("--config", write_folder(self.folder / "g"), "--context", "8")["cost"]
        self.assertEqual(value["parameters"]["total"], 1976)

    @slow
    def test_all(self):
        some = {name: PUBLISHED[name] for name in ("gpt2", "smollm2-135m")}
        with mock.patch.object(costs, "published", return_value=some):
            value = self.run_json("--all")["counts"]
        self.assertEqual((value["count"], value["families"], value["all_the_same"]), (2, 2, True))
        self.assertIn("In 2 of 2 configurations", self.text)

    def test_bad_input(self):
        self.assertBad(costs.main, ["--config", "nope"], "no config nope", "llama-3-8b")
        self.assertBad(costs.main, ["--config", self.folder], "config.json does not exist")
        broken = self.folder / "config.json"
        for text, words in (("{", "not strict JSON"), ("[]", "not an object"), ('{"model_type": NaN}', "NaN"), ("\xff", "JSON")):
            broken.write_text(text, encoding="latin-1")
            for source in (broken, self.folder):
                self.assertBad(costs.main, ["--config", source], str(broken), words)
        broken.write_text(json.dumps(G | {"model_type": "mamba"}))
        self.assertBad(costs.main, ["--config", broken], str(broken), "model_type is 'mamba'", "gemma3_text")
        broken.write_text(json.dumps(LLAMA | {"hidden_size": "8"}))
        self.assertBad(costs.main, ["--config", self.folder], str(broken), "hidden_size is '8'")
        self.assertBad(costs.main, ["--batch", "0"], "--batch", "0 is not 1 to 1000000000")
        self.assertBad(costs.main, ["--bytes", "9"], "--bytes", "9 is not 1 to 8")
        self.assertBad(costs.main, ["--context", "9" * 400], "--context", "is not 1 to")
        self.assertBad(costs.main, ["--config", "gpt2", "--context", "1025"], "context 1025", "n_positions 1024")

    def test_two_derivations_that_differ_stop_it(self):
        with (
            mock.patch.object(costs, "weight_shapes", return_value={"x.weight": (3,)}),
            self.assertRaisesRegex(AssertionError, "124,439,808 and the tensor table 3"),
        ):
            costs.main(["--config", "gpt2"])


def all_heads(right):
    """Keys and values counted for every head of queries."""
    return lambda c, *args: right(c if c.latent else replace(c, kv_heads=c.n_head), *args)


def square_heads(right):
    """Heads counted as wide as d / h."""
    return lambda c, *args: right(replace(c, head_width=c.n_embd // c.n_head), *args)


def no_shared(right):
    """The shared experts forgotten."""
    return lambda c, *args: right(replace(c, experts=replace(c.experts, shared=0)) if c.experts else c, *args)


def no_router(right):
    def counted(c, layer, active):
        return right(c, layer, active) - (c.experts.count * c.n_embd if c.has_experts(layer) else 0)

    return counted


def all_layers_mixed(right):
    return lambda c, *args: right(replace(c, experts=replace(c.experts, dense=())) if c.experts else c, *args)


def tied_twice(right):
    return lambda c, *args, **kwargs: right(replace(c, tie_word_embeddings=False), *args, **kwargs)


def never_gated(right):
    return lambda c, *args: right(replace(c, gated=False), *args)


def no_cap(right):
    return lambda c, layer, context: context


def one_too_many(right):
    return lambda c, layer, context: context if c.window(layer) is None else min(context, c.window(layer) + 1)


def macs(right):
    """Multiply-adds, which are half of the FLOPs."""
    return lambda *args, **kwargs: {name: n // 2 for name, n in right(*args, **kwargs).items()}


def headless(right):
    """The output projection forgotten."""

    def counted(*args, **kwargs):
        flops = right(*args, **kwargs)
        return flops | {"output_projection": 0, "total": flops["total"] - flops["output_projection"]}

    return counted


def halved(right):
    """Pairs of query and key of half a square, without the diagonal."""
    return lambda tokens, window: tokens * tokens // 2


def other_form(right):
    return lambda c, context, form="absorbed": right(c, context, {"absorbed": "expanded", "expanded": "absorbed"}[form])


class Faults(Checks):
    """Each fault makes a check fail that holds without it."""

    def assertCaught(self, module, name, fault, check, *args):
        check(*args)
        with mock.patch.object(module, name, fault(getattr(module, name))), self.assertRaises(AssertionError):
            check(*args)

    def test_parameters(self):
        for name, fault, model in (
            ("attention_matrices", all_heads, "llama-3-8b"),
            ("attention_matrices", square_heads, "qwen3-4b"),
            ("network_matrices", never_gated, "mistral-7b"),
            ("feed_forward_matrices", no_shared, "deepseek-v3"),
            ("feed_forward_matrices", no_router, "mixtral-8x7b"),
            ("feed_forward_matrices", all_layers_mixed, "deepseek-v3"),
            ("parameter_count", tied_twice, "llama-3.2-1b"),
            ("parameter_count", tied_twice, "gpt2"),
        ):
            with self.subTest(name, fault=fault.__name__):
                self.assertCaught(costs, name, fault, self.check_parameters, named(model))
        fewer = costs.NORMS | {"both": costs.NORMS["pre"]}
        self.assertCaught(costs, "NORMS", lambda right: fewer, self.check_parameters, named("gemma-2-9b"))
        self.assertCaught(costs, "is_buffer", lambda right: lambda name: False, self.check_parameters, named("deepseek-v3"))
        self.assertCaught(costs, "feed_forward_matrices", no_shared, self.check_active, named("deepseek-v3"))

    def test_flops(self):
        for name, fault, case in (
            ("attention_matrices", all_heads, "llama"),
            ("attention_matrices", square_heads, "llama"),
            ("network_matrices", never_gated, "qwen2"),
            ("feed_forward_matrices", no_shared, "deepseek_v3"),
            ("feed_forward_matrices", no_router, "mixtral"),
            ("flops_per_pass", macs, "gpt2"),
            ("flops_per_pass", headless, "gpt2"),
        ):
            with self.subTest(name, fault=fault.__name__):
                self.assertCaught(costs, name, fault, self.check_pass, case)
        self.assertCaught(costs, "flops_per_token", other_form, self.check_absorbed, "deepseek_v3")
        self.assertCaught(
            costs, "attention_matrices", all_heads, self.check_token, named("mixtral-8x7b"), 1, 25_497_174_016, 524_288
        )
        self.assertCaught(costs, "flops_per_token", macs, self.check_token, named("gpt2"), 1, 247_064_064, 36_864)

    def test_a_fused_attention_would_be_seen(self):
        def fused(q, k, v, c, layer, at, mask, trace, cache=None):
            k, v = (x.repeat_interleave(c.n_head // x.shape[1], 1) for x in (k, v))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return mixed.transpose(1, 2).flatten(2)

        self.assertCaught(variants, "attend", lambda right: fused, self.check_pass, "llama")

    def test_pairs(self):
        for fault in (no_cap, one_too_many):
            self.assertCaught(costs, "seen", fault, self.check_causal, "mistral")
        self.assertCaught(costs, "_pairs", halved, self.check_causal, "llama")
        wider = lambda right: lambda mask, back, window: right(mask, back, window and window + 1)  # noqa: E731
        self.assertCaught(variants, "windowed", wider, self.check_causal, "gemma2")

    def test_caches(self):
        eight = named("llama-3-8b"), 8192, 2, 1_073_741_824
        for module in (kv_cache, costs):  # the whole cache, and one more token
            self.assertCaught(module, "cached_numbers", all_heads, self.check_cache, *eight)
            self.assertCaught(module, "cached_numbers", square_heads, self.check_cache, named("qwen3-4b"), 1, 2, 147_456)
            no_values = lambda right: lambda *a: right(*a) // 2  # noqa: E731
            self.assertCaught(module, "cached_numbers", no_values, self.check_cache, *eight)


if __name__ == "__main__":
    unittest.main()
