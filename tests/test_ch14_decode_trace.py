"""One decode step, line by line: its sums beside the cost formulas in every configuration, its vectors and FLOPs beside those of
the program as it runs; each check is shown to fail on planted faults; and the script."""

import collections
import functools
import inspect
import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.config import NORMS, Experts, general
from examples.ch02.families import VARIANTS, read_config
from examples.ch02.layout import weight_shapes
from examples.ch02.model import Model, random_tensor
from examples.ch03.tokens import random_ids
from examples.ch10.kv_cache import KVCache, cache_bytes, forward_cached
from examples.ch14 import costs, decode_trace, variants
from examples.ch14.configs import config_named, published
from examples.ch14.decode_trace import decode_step, step_times
from examples.ch14.family_agreement import CASES, in_absorbed_form
from examples.ch14.peers import TINY
from examples.lab.experiment import plain
from examples.lab.script import BadInput, parse_json
from scripts.experiments import ROOT
from scripts.records import read_results, results_path
from tests.support import LLAMA, FolderCase, call, llama_model, write_folder

NAMES = tuple(published())
TINY_CASES = tuple(name for name, _, _ in CASES)
MODEL = llama_model()
COMPONENTS = {  # of the formula, and how the lines of the trace begin that are its parts
    "attention_projections": ("q projection", "k projection", "v projection", "o projection", "latent projections"),
    "attention_scores_and_values": ("attention over the cache",),
    "feed_forward": ("feed-forward", "routing", "experts"),
    "output_projection": ("head",),
}


def setUpModule():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny, and threads that wait for each other cost more
    unittest.addModuleCleanup(torch.set_num_threads, threads)


@functools.cache
def named(name):
    """The general Config of a published model."""
    return config_named(name)


@functools.cache
def tiny(case):
    """The general Config of one of the tiny CASES."""
    kind, changes = next((kind, changes) for name, kind, changes in CASES if name == case)
    return general(read_config(TINY[kind] | changes | {"model_type": kind}, case))


def operation(step, name):
    """The row of a decode step whose name starts so."""
    return next(r for r in step["operations"] if r["operation"].startswith(name))


def as_it_runs(case, form):
    """A tiny model as the program evaluates it: every expert sees every token, latent attention in one of its forms."""
    config = tiny(case)
    if config.experts:
        config = replace(config, experts=replace(config.experts, active=config.experts.count))
    model = Model(config, {n: random_tensor(n, s, 0) for n, s in weight_shapes(config).items()}, module=VARIANTS)
    return in_absorbed_form(model) if form == "absorbed" and config.latent else model


@torch.no_grad()
def step_as_it_runs(model, context=5, batch=2):
    """({line of the trace: numbers of vectors}, FLOPs) of one decode step of the program, counted as its functions are called.

    Each vector of the new tokens that a line reads or writes counts once.
    """
    config, found = model.config, collections.Counter()
    m, right = config.latent, {}

    def wrap(name):
        def decorate(body):
            right[name] = getattr(variants, name)
            return mock.patch.object(variants, name, body)

        return decorate

    @wrap("embed")
    def embed(*args):
        out = right["embed"](*args)
        found["embedding"] += out.numel()
        return out

    @wrap("norm")
    def norm(x, weights, name, c):
        if name is not None:
            part = name.rpartition(".")[2]
            if part in ("q_norm", "k_norm"):
                line = "norms of q and k"
            elif part in NORMS[c.norm_place]:
                line = f"{c.norm} norm at " + ("attention" if NORMS[c.norm_place].index(part) < 2 else "feed-forward")
            else:
                line = f"{c.norm} norm " + {"norm": "before the head", "embed_norm": "of the embedding"}[part]
            found[line] += 2 * x.numel()
        return right["norm"](x, weights, name, c)

    @wrap("turned")
    def turned(x, *args):
        found["rotation of q and k"] += 2 * x.numel()
        return right["turned"](x, *args)

    @wrap("linear")
    def linear(x, weights, name):
        out, part = right["linear"](x, weights, name), name.rpartition(".")[2]
        if part == "o_proj" or (part in ("q_proj", "k_proj", "v_proj") and not m):
            found[f"{part[0]} projection"] += x.numel() + out.numel()
        if m and ".self_attn." in name:
            line = "latent projections but o"
            if part == "o_proj":  # absorbed: what the mixtures of short vectors are taken to
                found[line] += x.numel() if m.absorbed else 0
            elif part == "kv_b_proj":  # expanded: of the new position alone
                found[line] += out[:, -1].numel()
            else:
                found[line] += out.numel() + (x.numel() if part == "kv_a_proj_with_mqa" else 0)
        return out

    @wrap("attend")
    def attend(q, *args):
        out = right["attend"](q, *args)
        found["attention over the cache"] += q.numel() + out.numel()
        if m and m.absorbed:  # queries taken to the short vectors, and the mixtures of those
            found["latent projections but o"] += q[..., : m.kv_rank].numel() + out.numel()
        return out

    @wrap("joined")
    def joined(x, y, *args):
        found["residual additions"] += 3 * x.numel()
        return right["joined"](x, y, *args)

    @wrap("routing")
    def routing(x, *args):
        out = right["routing"](x, *args)
        found["routing"] += x.numel() + out.numel()
        return out

    @wrap("mlp")
    def mlp(x, weights, c, name, *args):
        inner = x.numel() // x.shape[-1] * weights[f"{name}.down_proj.weight"].shape[1]
        line = f"experts ({c.experts.active + c.experts.shared} a token)" if "experts" in name else "feed-forward matrices"
        found[line] += 2 * x.numel() + (3 if f"{name}.gate_proj.weight" in weights else 1) * inner
        return right["mlp"](x, weights, c, name, *args)

    @wrap("unembed")
    def unembed(x, *args):
        out = right["unembed"](x, *args)
        found["head"] += x.numel() + out.numel()
        found["softmax and choice"] += 2 * out.numel()
        return out

    ids = random_ids(model, context + 1, batch)
    cache = KVCache(model, batch, context + 1)
    forward_cached(ids[:, :context], model, cache)
    with embed, norm, turned, linear, attend, joined, routing, mlp, unembed, FlopCounterMode(display=False) as counter:
        forward_cached(ids[:, context:], model, cache)
    return dict(found), counter.get_total_flops()


class Checks(unittest.TestCase):
    """The checks, each a method, so that the planted faults can be put before the same ones."""

    def check_step(self, c, context, batch=1, n=2, form="absorbed"):
        """The lines add up to the formulas: FLOPs of every component, one position written in every layer, old ones read as far as
        windows reach."""
        step = decode_trace.decode_step(c, context, batch, n, form)
        wanted = costs.flops_per_token(c, context + 1, form)
        for part, lines in COMPONENTS.items():
            found = sum(r["flops"] for r in step["operations"] if r["operation"].startswith(lines))
            self.assertEqual(found, batch * wanted[part], (c.model_type, part))
        self.assertEqual(step["flops"], batch * wanted["total"])
        one = n * costs.cached_numbers(c, form)
        self.assertEqual(step["written_bytes"], batch * c.n_layer * one)
        self.assertEqual(step["written_bytes"], batch * costs.kv_bytes_per_token(c, n, form))
        old = sum(context if w is None else min(context, w - 1) for w in map(c.window, range(c.n_layer)))
        self.assertEqual(step["cache_bytes"], batch * old * one)
        for key in ("flops", "weight_bytes", "cache_bytes", "written_bytes", "activation_bytes"):
            self.assertEqual(step[key], sum(r[key] for r in step["operations"]))
            self.assertTrue(all(type(r[key]) is int and r[key] >= 0 for r in step["operations"]), key)
        self.assertEqual(step["bytes"], step["weight_bytes"] + step["cache_bytes"] + step["written_bytes"])

    def check_weights_read(self, c, n=2, batch=1, form="absorbed"):
        """The active parameters, of the tables of tokens and positions only the rows; of a mixture at a batch of 1."""
        active, rows = costs.parameter_count(c, active=True), c.n_embd * (2 if c.positions == "learned" else 1)
        table = 0 if c.tie_word_embeddings else active["token_embedding"]  # a tied table is read as the head
        read = active["total"] - active["position_embedding"] - table + batch * rows
        self.assertEqual(decode_trace.decode_step(c, 5, batch, n, form)["weight_bytes"], n * read, c.model_type)

    def check_as_it_runs(self, case, form="absorbed"):
        """Every line's vectors, and the FLOPs of all, beside the program's own; expanded it makes keys of old positions again."""
        model = as_it_runs(case, form)
        found, flops = step_as_it_runs(model)
        step = decode_trace.decode_step(model.config, 5, 2, 4, form)
        said = {r["operation"]: r["activation_bytes"] for r in step["operations"] if r["activation_bytes"]}
        self.assertEqual(said, {line: 4 * n for line, n in found.items()}, (case, form))
        if form == "absorbed":
            self.assertEqual(step["flops"], flops, case)

    def check_touched(self, count, active, batch, draws=3000):
        """The experts that a batch reads beside a simulation in which each token takes `active` different ones."""
        c = replace(named("mixtral-8x7b"), experts=Experts(count, active, 64))
        row = operation(decode_trace.decode_step(c, 5, batch), "experts")
        read = row["weight_bytes"] / (2 * c.n_layer * 3 * c.n_embd * 64)
        generator = torch.Generator().manual_seed(1)
        chosen = torch.rand(draws, batch, count, generator=generator).topk(active, dim=-1).indices  # [draws, batch, active]
        touched = torch.zeros(draws, count).scatter(1, chosen.flatten(1), 1.0).sum(1)
        self.assertAlmostEqual(read, touched.mean().item(), delta=0.01 * count, msg=(count, active, batch))


class Step(Checks):
    def test_every_configuration_adds_up(self):
        for form in costs.FORMS:
            for name in NAMES:
                with self.subTest(name, form=form):
                    for context, batch in ((0, 1), (1, 3), (500, 1), (509, 64)):
                        self.check_step(named(name), context, batch, 2, form)
            for case in TINY_CASES:  # whose windows are of 6
                with self.subTest(case, form=form):
                    for context, batch in ((0, 1), (4, 2), (5, 1), (6, 3), (20, 2)):
                        self.check_step(tiny(case), context, batch, 4, form)

    def test_every_configuration_reads_its_weights(self):
        for c in (*map(named, NAMES), *map(tiny, TINY_CASES)):
            with self.subTest(c.model_type):
                for form in costs.FORMS:
                    self.check_weights_read(c, 4, form=form)
                    if not c.experts:
                        self.check_weights_read(c, 2, 7, form)

    def test_every_line_as_it_runs(self):
        for case in TINY_CASES:
            with self.subTest(case):
                self.check_as_it_runs(case)
                if tiny(case).latent:
                    self.check_as_it_runs(case, "expanded")

    def test_weights_read_beside_the_tensors(self):
        table = MODEL.weights["model.embed_tokens.weight"]
        held = sum(w.nbytes for w in MODEL.weights.values()) - table.nbytes + table[0].nbytes
        self.assertEqual(decode_step(MODEL.config, 7, 1, 4)["weight_bytes"], held)

    def test_weights_are_read_once_whatever_the_batch(self):
        for name in ("gpt2", "llama-3-8b"):
            one, many = (decode_step(named(name), 100, batch) for batch in (1, 64))
            rows = operation(one, "embedding")["weight_bytes"]
            self.assertEqual(many["weight_bytes"] - one["weight_bytes"], 63 * rows)
            for key in ("flops", "cache_bytes", "written_bytes", "activation_bytes"):
                self.assertEqual(many[key], 64 * one[key], key)

    def test_llama_3_8b_at_2000(self):
        step = decode_step(named("llama-3-8b"), 2000)
        times = step_times(step)
        self.assertEqual(f"{step['flops'] / 1e9:.3f}", "16.058")
        self.assertEqual(f"{step['weight_bytes'] / 1e9:.2f}", "15.01")
        self.assertEqual(step["cache_bytes"], 262_144_000)  # 0.262144 GB
        self.assertEqual(step["written_bytes"], 131_072)
        self.assertEqual(operation(step, "attention")["flops"], 32 * 4 * 4096 * 2001)
        self.assertEqual(f"{times['memory_s'] * 1e3:.2f}", "4.56")
        self.assertEqual((times["bound"], f"{times['ratio']:.0f}"), ("memory", "281"))
        self.assertAlmostEqual(times["tokens_per_s"], 1 / times["memory_s"])

    def test_its_vectors_by_hand(self):
        """Llama-3-8B's: d 4096, q 4096, kv 1024, f 14336, V 128256; a batch of 3, two bytes."""
        rows = {r["operation"]: r["activation_bytes"] for r in decode_step(named("llama-3-8b"), 100, 3, 2)["operations"]}
        d, q, kv, f, V, L, two = 4096, 4096, 1024, 14336, 128256, 32, 3 * 2
        self.assertEqual(rows["q projection"], L * two * (d + q))
        self.assertEqual(rows["k projection"], L * two * (d + kv))
        self.assertEqual(rows["rotation of q and k"], L * two * 2 * (q + kv))
        self.assertEqual(rows["attention over the cache"], L * two * 2 * q)
        self.assertEqual(rows["residual additions"], 2 * L * two * 3 * d)
        self.assertEqual(rows["feed-forward matrices"], L * two * (2 * d + 3 * f))
        self.assertEqual(rows["head"], two * (d + V))
        self.assertEqual(rows["softmax and choice"], two * 2 * V)

    def test_a_windowed_layer_reads_all_but_one_position_of_its_window(self):
        c = named("mistral-7b")
        one = 32 * 2 * 8 * 128 * 2
        for context, old in ((0, 0), (1, 1), (4094, 4094), (4095, 4095), (4096, 4095), (30000, 4095)):
            step = decode_step(c, context)
            self.assertEqual((step["cache_bytes"], step["written_bytes"]), (old * one, one), context)
        mixed = decode_step(named("gemma-3-1b"), 2000)
        self.assertEqual(mixed["cache_bytes"], (22 * 511 + 4 * 2000) * 2 * 256 * 2)

    def test_at_batch_64_the_cache_outweighs_the_weights(self):
        step = decode_step(named("llama-3-8b"), 32768, 64)
        self.assertEqual(step["cache_bytes"], 274_877_906_944)
        self.assertGreater(step["cache_bytes"], 18 * step["weight_bytes"])

    def test_times(self):
        step = {"flops": 600, "bytes": 30, "batch": 4}
        found = step_times(step, peak=100, bandwidth=10)
        self.assertEqual(found, {"compute_s": 6.0, "memory_s": 3.0, "bound": "compute", "ratio": 2.0, "tokens_per_s": 4 / 6})
        self.assertEqual(step_times(step, peak=200, bandwidth=10)["bound"], "memory")  # a draw
        self.assertEqual(step_times(step, peak=600, bandwidth=10)["ratio"], 3.0)

    def test_experts_touched(self):
        for count, active, batch in ((8, 2, 1), (8, 2, 2), (8, 2, 5), (8, 2, 32), (64, 8, 4), (64, 8, 16), (5, 5, 3)):
            with self.subTest(count=count, active=active, batch=batch):
                self.check_touched(count, active, batch)

    def test_at_batch_1_the_experts_read_are_the_active_ones(self):
        for name in ("mixtral-8x7b", "deepseek-v3"):
            c = named(name)
            row = operation(decode_step(c, 5), "experts")
            layers, each = sum(map(c.has_experts, range(c.n_layer))), 3 * c.n_embd * c.experts.width
            self.assertEqual((row["times"], row["operation"]), (layers, f"experts ({c.experts.active + c.experts.shared} a token)"))
            self.assertEqual(row["weight_bytes"], 2 * layers * (c.experts.active + c.experts.shared) * each)
            self.assertEqual(row["flops"], row["weight_bytes"])  # 2 FLOPs and 2 bytes a weight
            many = operation(decode_step(c, 5, 10**6), "experts")
            self.assertEqual(many["weight_bytes"], 2 * layers * (c.experts.count + c.experts.shared) * each)

    def test_what_is_no_load(self):
        for context, batch, form in ((-1, 1, "absorbed"), (5, 0, "absorbed"), (5, 1, "flash")):
            with self.assertRaises(BadInput):
                decode_step(named("gpt2"), context, batch, 2, form)


class Measurement(unittest.TestCase):
    def test_kernels_of_a_layer(self):
        # two norms, q, k, v, the rotation, the append, attention, o, two additions; three matrices and a product
        self.assertEqual(decode_trace.measure("llama-3-70b")["kernels_per_layer"], 11 + 4)
        # GPT-2 does not turn; two matrices and what stands between them
        self.assertEqual(decode_trace.measure("gpt2")["kernels_per_layer"], 10 + 3)
        for name in ("mixtral-8x7b", "deepseek-v3"):  # whose lines are of many parts
            self.assertIsNone(decode_trace.measure(name)["kernels_80_layers"])

    def test_shares(self):
        for name in NAMES:
            v, flops = decode_trace.measure(name, context=100), costs.flops_per_token(named(name), 101)
            for part, key in (("feed_forward", "feed_forward"), ("output_projection", "head")):
                self.assertAlmostEqual(v[f"{key}_flop_percent"], 100 * flops[part] / flops["total"], msg=name)

    def test_the_head(self):
        """Of Llama-3-8B 128,256 x 4,096 of 8,030,261,248 weights; a step reads all but the table that is looked into."""
        v, head = decode_trace.measure(), 128_256 * 4096
        self.assertEqual(f"{v['head_parameters_billions']:.3f} of {v['parameters_billions']:.3f}", "0.525 of 8.030")
        self.assertAlmostEqual(v["head_parameters_percent"], 100 * head / 8_030_261_248)
        self.assertAlmostEqual(v["head_weight_percent"], 100 * head / (8_030_261_248 - head + 4096))
        self.assertEqual((f"{v['head_weight_percent']:.1f}", v["head_gb"]), ("7.0", 2 * head / 1e9))
        tied = decode_trace.measure("smollm2-135m")
        self.assertEqual(tied["head_parameters_percent"], 100 * 49_152 * 576 / 134_515_008)

    def test_what_is_held(self):
        """All weights and the caches with the new tokens in them: of 64 sequences of 32,769 of 131,072 bytes each, say."""
        v = decode_trace.measure(context=32768, batch=64)
        held = 2 * 8_030_261_248 + 64 * 32_769 * 131_072
        self.assertEqual((v["held_gb"], v["large_held_gb"], v["memory_gb"]), (held / 1e9, held / 1e9, 80.0))
        self.assertEqual((v["fits"], v["large_fits"], v["accelerator"]), (False, False, "H100 SXM"))
        for memory, fits in ((held, True), (held - 1, False)):
            v = decode_trace.measure(context=32768, batch=64, memory=memory)
            self.assertEqual((v["fits"], v["large_fits"], v["accelerator"]), (fits, fits, None))
        v = decode_trace.measure()
        self.assertEqual((v["fits"], v["large_fits"], f"{v['held_gb']:.2f}"), (True, False, "16.32"))
        for name in NAMES:  # a window is full at its width, and holds the new token in place of the oldest
            config, v = named(name), decode_trace.measure(name, 6000, 3)
            held = 2 * costs.parameter_count(config)["total"] + cache_bytes(config, 6001, 3, 2)
            self.assertEqual(v["held_gb"], held / 1e9, name)
        self.assertFalse(decode_trace.measure("deepseek-v3")["fits"])  # of a mixture all experts are held

    def test_a_planted_fault_breaks_the_record(self):
        right = decode_trace.cached_numbers
        wrong = lambda c, form="absorbed": right(replace(c, kv_heads=c.n_head), form)  # noqa: E731  queries counted as keys
        kept = read_results(results_path(ROOT, "ch14"))["ch14.trace"]["values"]
        with mock.patch.object(decode_trace, "cached_numbers", wrong):
            self.assertNotEqual(plain(decode_trace.measure()), kept)
        self.assertEqual(plain(decode_trace.measure()), kept)


class Script(FolderCase):
    def run_json(self, *argv):
        """What is measured, by the strict JSON of a run, whose table is printed without error as well."""
        status, self.text, err = call(decode_trace.main, *argv)
        self.assertEqual((status, err), (0, ""))
        status, out, err = call(decode_trace.main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        return parse_json(out)["trace"]

    def row(self, start):
        """The cells of the printed row that starts so."""
        return next(line for line in self.text.splitlines() if line.startswith(start)).removeprefix(start).split()

    def test_trace(self):
        for name in NAMES:
            value = self.run_json("--config", name, "--context", "300", "--batch", "2")
            step = decode_step(named(name), 300, 2)
            self.assertEqual([r["mflop"] for r in value["operations"]], [r["flops"] / 1e6 for r in step["operations"]])
            self.assertEqual((value["gb"], value["bound"]), (step["bytes"] / 1e9, step_times(step)["bound"]))
            self.assertEqual(self.row("total")[0], f"{step['flops'] / 1e6:,.1f}")
            self.assertNotIn("Note", self.text)

    def test_options_reach_their_place(self):
        self.run_json()
        for shown in ("16.06 GFLOP", "15.27 GB (weights 15.01, cache 0.26)", "4.559 ms", "bound by memory, 281 to 1"):
            self.assertIn(shown, self.text)
        value = self.run_json("--tflops", "0.5", "--tbps", "100")
        self.assertEqual(value["bound"], "compute")
        self.assertAlmostEqual(value["compute_ms"], value["gflop"] / 0.5)
        self.assertAlmostEqual(value["memory_ms"], value["gb"] / 100)
        long = self.run_json("--config", "deepseek-v3", "--form", "expanded", "--bytes", "1")
        self.assertEqual(long["append_bytes_per_layer"], 40_960)
        tiny = write_folder(self.folder / "tiny", MODEL.weights, LLAMA)
        self.assertEqual(self.run_json("--config", tiny, "--context", "7")["gflop"], 3888 / 1e9)

    def test_what_does_not_fit_is_said(self):
        self.run_json()
        self.assertIn("All weights and the caches are 16.3 GB, and fit into the 80 GB of an H100 SXM.", self.text)
        self.assertIn("and all weights with them 290.9 GB, and do NOT fit into the 80 GB of an H100 SXM.", self.text)
        self.assertIn("The head is 7.0% of the weights read, 1.05 GB, and 6.5% of the FLOPs.", self.text)
        self.assertTrue(self.text.endswith("tokens/s over all sequences.\n"))
        self.run_json("--batch", "64", "--context", "32768")
        self.assertIn("All weights and the caches are 290.9 GB, and do NOT fit into the 80 GB of an H100 SXM.", self.text)
        self.assertTrue(self.text.endswith("tokens/s over all sequences,\nif they fitted into its memory.\n"))
        value = self.run_json("--batch", "64", "--context", "32768", "--gb", "640")
        self.assertTrue(value["fits"])
        self.assertIn("fit into the 640 GB of this accelerator.", self.text)
        self.assertLessEqual(max(map(len, self.text.splitlines())), 100)

    def test_beyond_the_positions(self):
        self.run_json("--config", "gpt2", "--context", "1023")
        self.assertNotIn("Note", self.text)
        value = self.run_json("--config", "gpt2", "--context", "1024")  # the 1,025th position is the first that has no row
        self.assertIn("Note: gpt2 was made for 1,024 positions; this is what more would cost.", self.text)
        self.assertEqual(value["cache_gb"], 1024 * 12 * 2 * 768 * 2 / 1e9)

    def test_plot(self):
        for context in ("300", "32768"):  # the second is the large load's own
            self.run_json("--context", context, "--plot", self.folder / "b.svg")
            self.assertTrue((self.folder / "b.svg").read_bytes().startswith(b"<?xml"))

    def test_bad_input(self):
        main, huge = decode_trace.main, "1" + "0" * 400
        self.assertBad(main, ["--config", "nope"], "no config nope")
        self.assertBad(main, ["--config", self.folder], "config.json does not exist")
        for value in ("0", "-1", "nan", "inf", "fast", "1e999", "1e300", "5e-324"):
            self.assertBad(main, [f"--tflops={value}"], "--tflops", "is not a number from 1e-6 to 1e9")
            self.assertBad(main, [f"--tbps={value}"], "--tbps", "is not a number from 1e-6 to 1e9")
        for option in ("--batch", "--context"):
            for value in ("0", huge):
                self.assertBad(main, [option, value], option, "is not 1 to 1000000000")
        self.assertBad(main, ["--bytes", "9"], "--bytes", "9 is not 1 to 8")
        self.assertBad(main, ["--form", "flash"], "--form", "flash")
        self.assertBad(main, ["--plot", "b.txt"], ".svg")


# -------------------------------------------------------------------------------------------------------------- planted faults


def never_gated(right):
    return lambda c, *args: right(replace(c, gated=False), *args)


def no_cap(right):
    return lambda c, layer, context: context


def one_too_many(right):
    return lambda c, layer, context: context if c.window(layer) is None else min(context, c.window(layer) + 1)


def more(right):
    return lambda *args: right(*args) + 1


def mutated(text, wrong):
    """`decode_step` with a piece of its source replaced; raises AssertionError where that does not stand there once."""
    source = inspect.getsource(decode_step)
    assert source.count(text) == 1, f"{text!r} stands in decode_step {source.count(text)} times"
    namespace = dict(vars(decode_trace))
    exec(source.replace(text, wrong), namespace)
    return namespace["decode_step"]


class Faults(Checks):
    """Each fault makes a check fail that holds without it."""

    def assertCaught(self, module, name, fault, check, *args):
        check(*args)
        with mock.patch.object(module, name, fault(getattr(module, name))), self.assertRaises(AssertionError):
            check(*args)

    def test_steps(self):
        eight, mistral, sparse = named("llama-3-8b"), named("mistral-7b"), named("deepseek-v3")
        for name, fault, model, context in (
            ("seen", no_cap, mistral, 5000),
            ("seen", one_too_many, mistral, 5000),
            ("seen", more, eight, 2000),  # the new position read back
            ("network_matrices", never_gated, eight, 5),
            ("attention_matrices", more, sparse, 5),
        ):
            with self.subTest(name):
                self.assertCaught(decode_trace, name, fault, self.check_step, model, context)
        self.assertCaught(costs, "cached_numbers", more, self.check_step, eight, 5)
        self.assertCaught(decode_trace, "network_matrices", never_gated, self.check_weights_read, sparse)

    def test_vectors(self):
        """A sum for a product, a width forgotten, a vector counted twice: no total of the formulas would tell."""
        for text, wrong, case in (
            ("2 * (h + 1) * m.turned", "2 + (h + 1) * m.turned", "deepseek_v3"),
            ("2 * (h + 1) * m.turned", "2 * h * m.turned", "deepseek_v3, plain queries"),
            ("h * (2 * m.kv_rank + value)", "h * (m.kv_rank + value)", "deepseek_v3"),
            ("moved=d + queries + q + short + made", "moved=d + queries + q + short", "deepseek_v3"),
            ("moved=2 * (q + kv))", "moved=2 * q + kv)", "qwen3"),
            ("moved=h * width", "moved=q * 2 + 1", "llama"),
            ("moved=3 * d", "moved=2 * d", "gpt2"),
            ("inner = 3 if config.gated else 1", "inner = 3", "gpt2"),
            ("moved=d + e.count", "moved=d", "mixtral"),
            ("bool(e.shared) * 2 * d", "e.shared * 2 * d", "deepseek_v3"),
        ):
            with self.subTest(wrong):
                fault = functools.partial(lambda wrong, right: wrong, mutated(text, wrong))
                self.assertCaught(decode_trace, "decode_step", fault, self.check_as_it_runs, case)

    def test_experts_touched(self):
        def every(right):  # as if no two tokens ever chose the same expert
            def step(c, context, batch=1, n=2):
                found = right(c, context, batch, n)
                row = operation(found, "experts")
                row["weight_bytes"] = (
                    2 * c.n_layer * min(batch * c.experts.active, c.experts.count) * 3 * c.n_embd * c.experts.width
                )
                return found

            return step

        self.assertCaught(decode_trace, "decode_step", every, self.check_touched, 8, 2, 2)


if __name__ == "__main__":
    unittest.main()
