"""Chapter 4's cost model: parameters as the tensors have them, FLOPs as PyTorch's counter sees them, both as the book says."""

import math
import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.layout import tensor_shapes
from examples.ch02.model import PUBLISHED, load_config, random_tensor
from examples.ch04 import cost_model as room
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.cost_model import (
    draw_depth,
    flops_per_pass,
    flops_per_token,
    main,
    measure_counts,
    measure_depth,
    measure_flops,
    parameter_count,
)
from examples.lab.experiment import plain
from examples.lab.script import BadInput, read_json
from tests.rooms import RoomCase
from tests.support import IDS, LLAMA, ROOT, call, config, slow, weights, write_folder

GPT2 = load_config("gpt2")


def counted(of, ids, tensors=None):
    """FLOPs of one pass, as PyTorch counts those that it executes."""
    with FlopCounterMode(display=False) as counter:
        gpt2.forward(ids, tensors or weights(of), of)
    return counter.get_total_flops()


class Parameters(unittest.TestCase):
    def test_published_totals(self):
        for name, tied, untied in (
            ("gpt2", 124_439_808, 163_037_184),
            ("gpt2-medium", 354_823_168, 406_286_336),
            ("gpt2-large", 774_030_080, 838_359_040),
            ("gpt2-xl", 1_557_611_200, 1_638_022_400),
        ):
            of = load_config(name)
            self.assertEqual(parameter_count(of)["total"], tied)
            self.assertEqual(parameter_count(replace(of, tie_word_embeddings=False))["total"], untied)
        self.assertEqual(parameter_count(config())["total"], 1976)

    def test_the_formula_and_the_table_are_one_number(self):
        parts = {"wte": "token_embedding", "wpe": "position_embedding", "attn": "attention", "mlp": "feed_forward", "ln_": "norms"}
        parts |= {"lm_head": "output_projection"}
        for change in (dict(), dict(n_layer=5), dict(n_embd=12, n_head=3), dict(n_inner=7), dict(vocab_size=2, n_positions=1)):
            for tied in (True, False):
                of = config(**change, tie_word_embeddings=tied)
                added = dict.fromkeys(parts.values(), 0)
                for name, shape in tensor_shapes(of).items():
                    added[next(kind for part, kind in parts.items() if part in name)] += math.prod(shape)
                self.assertEqual(parameter_count(of), added | {"total": sum(added.values())})

    def test_what_is_measured_of_them(self):
        found = measure_counts(GPT2, 48)
        shares = [f"{found[f'{name}_share_percent']:.1f}" for name in ("feed_forward", "attention", "token_embedding")]
        self.assertEqual(shares, ["45.5", "22.8", "31.0"])
        layers = 12 * (12 * 768 * 768 + 13 * 768)  # attention, feed forward and two norms each; the final norm is outside
        self.assertAlmostEqual(found["blocks_share_percent"], 100 * layers / 124_439_808)
        self.assertEqual(f"{found['blocks_share_percent']:.1f}", "68.3")
        self.assertAlmostEqual(sum(r["share_percent"] for r in found["components"]), 100)
        self.assertEqual(sum(r["parameters"] for r in found["components"]), found["total"])
        self.assertEqual((found["total"], found["tensor_table_total"], found["tensors"]), (124_439_808, 124_439_808, 148))
        self.assertEqual((found["token_embedding"], found["position_embedding"]), (38_597_376, 786_432))
        self.assertEqual((found["layers"], found["one_layer"], found["other_depth"]), (12, 7_087_872, 48))
        self.assertEqual((found["other_depth_total"], f"{found['other_depth_ratio']:.2f}"), (379_603_200, "3.05"))
        self.assertEqual(f"{found['feed_forward_share_of_layer_matrices_percent']:.2f}", "66.67")
        self.assertEqual((found["untied_total"], found["without_positions"]), (163_037_184, 123_653_376))
        self.assertEqual([r["config"] for r in found["family"]], list(PUBLISHED))
        self.assertEqual([r["parameters"] for r in found["family"]][::4], [124_439_808, 81_912_576])
        self.assertEqual(found["embedded_total"], 3_487_232)
        wide = measure_counts(config(n_inner=20))  # 2 d f of 2 d f + 4 d d
        self.assertAlmostEqual(wide["feed_forward_share_of_layer_matrices_percent"], 100 * 320 / 576)

    def test_depth(self):
        """A straight line through the tables' 39,385,344 that rises by one layer's 7,087,872."""
        found = measure_depth()
        self.assertEqual([r["layers"] for r in found["depths"]], [1, 6, 12, 18, 24, 30, 36, 42, 48])
        self.assertEqual(found["outside_layers"], 50257 * 768 + 1024 * 768 + 2 * 768)
        for r in found["depths"]:
            self.assertEqual(r["in_layers"], 7_087_872 * r["layers"])
            self.assertEqual(r["parameters"], found["outside_layers"] + r["in_layers"])
        totals = {r["layers"]: r["parameters"] for r in found["depths"]}
        self.assertEqual((totals[12], totals[48]), (124_439_808, 379_603_200))
        for other in (1, 5, 100, 1000):
            found = measure_depth(config(), other)
            layers = [r["layers"] for r in found["depths"]]
            self.assertTrue({1, 2, other} <= set(layers) and len(layers) <= 12, layers)
        self.assertEqual(room.EXPERIMENTS[1].values(), plain(measure_depth()))

    def test_the_figure_of_depth(self):
        found = measure_depth(config(), 9)
        with mock.patch.object(room, "write_figure") as write:
            draw_depth(found, None)
        axes = write.call_args.args[0].axes[0]
        totals, layers, outside = ([y * 1e6 for y in line.get_ydata()] for line in axes.lines[:3])
        for r, total, inside, rest in zip(found["depths"], totals, layers, outside, strict=True):
            self.assertAlmostEqual(total, r["parameters"])
            self.assertAlmostEqual(inside + rest, total)
        self.assertEqual(list(axes.lines[0].get_xdata()), [1, 2, 6, 9])
        texts = [text.get_text() for text in axes.texts]
        self.assertIn(f"2 layers:\n{parameter_count(config())['total']:,}", texts)

    def test_a_bias_left_out_or_a_norm_too_many_breaks_the_record(self):
        record = next(r for r in read_json(ROOT / "research/ch04/results.json")["results"] if r["id"] == "ch04.counts")
        experiment = next(e for e in room.EXPERIMENTS if e.id == "ch04.counts")
        self.assertEqual(experiment.values(), record["values"])

        def short(of):
            parts = parameter_count(of)
            bias = of.n_layer * of.n_embd
            return parts | {"attention": parts["attention"] - bias, "total": parts["total"] - bias}

        def long(of):
            parts = parameter_count(of)
            norm = 2 * of.n_embd
            return parts | {"norms": parts["norms"] + norm, "total": parts["total"] + norm}

        for wrong in (short, long):
            with mock.patch.object(room, "parameter_count", wrong):
                self.assertNotEqual(experiment.values(), record["values"])


class Flops(unittest.TestCase):
    def test_of_one_token(self):
        """247.65 million at 16 positions, and a part that grows with the context by 4 d L for each position."""
        for context, total in ((1, 247_100_928), (16, 247_653_888), (1024, 284_812_800)):
            parts = flops_per_token(GPT2, context)
            self.assertEqual(parts["total"], total)
            self.assertEqual(parts["total"] - parts["attention_scores_and_values"], 247_064_064)
            self.assertEqual(parts.pop("total"), sum(parts.values()))
        self.assertEqual(flops_per_token(GPT2, 16)["output_projection"], 77_194_752)
        self.assertEqual([flops_per_token(config(), c)["total"] for c in (8, 1)], [3760, 3312])
        self.assertEqual(flops_per_token(config(tie_word_embeddings=False), 8)["total"], 3760)
        for context in (0, 1025, -1):
            with self.assertRaisesRegex(BadInput, f"{context}.*1024"):
                flops_per_token(GPT2, context)

    def test_full_is_what_the_program_executes(self):
        for of in (config(), config(n_inner=20), config(n_layer=3, tie_word_embeddings=False)):
            for batch, tokens in ((1, 1), (1, 8), (2, 8), (1, 16)):
                ids = torch.zeros(batch, tokens, dtype=torch.int64)
                self.assertEqual(counted(of, ids), flops_per_pass(of, tokens, batch)["total"])
        self.assertEqual(counted(config(), IDS), 30_080)

    def test_causal_is_token_by_token(self):
        for tokens in (1, 8, 16):
            one_by_one = [flops_per_token(config(), context) for context in range(1, tokens + 1)]
            for batch in (1, 3):
                found = flops_per_pass(config(), tokens, batch, pairs="causal")
                self.assertEqual(found, {name: batch * sum(n[name] for n in one_by_one) for name in found})
        with self.assertRaisesRegex(BadInput, "half"):
            flops_per_pass(GPT2, 16, pairs="half")

    @slow
    def test_full_size(self):
        """A pass of 16 tokens through GPT-2 executes 16 times what one token at a context of 16 costs."""
        tensors = {name: random_tensor(name, shape, 0) for name, shape in tensor_shapes(GPT2).items()}
        found = counted(GPT2, torch.zeros(1, 16, dtype=torch.int64), tensors)
        self.assertEqual((found, flops_per_pass(GPT2, 16)["total"]), (16 * 247_653_888, 16 * 247_653_888))

    def test_the_quadratic_part(self):
        counts = [counted(config(), torch.zeros(1, t, dtype=torch.int64)) for t in (4, 8, 16)]
        attention = [c - 3248 * t for c, t in zip(counts, (4, 8, 16), strict=True)]
        self.assertEqual((attention[1] / attention[0], attention[2] / attention[1]), (4, 4))

    def test_a_counter_sees_nothing_of_fused_attention(self):
        """One more reason why the oracle is written in plain matmuls."""
        q = torch.randn(1, 12, 64, 64)
        with FlopCounterMode(display=False) as counter:
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
        self.assertLess(counter.get_total_flops(), 4 * 12 * 64**3)

    def test_what_is_measured_of_them(self):
        found = measure_flops(GPT2, (1, 16, 128, 512, 1024))
        shares = {
            pairs: [f"{r[f'attention_share_{pairs}_percent']:.1f}" for r in found["passes"]][:3] for pairs in ("causal", "full")
        }
        self.assertEqual(shares, {"causal": ["23.0", "23.7", "25.8"], "full": ["23.1", "24.4", "28.4"]})
        for r in found["passes"]:
            full, causal = (flops_per_pass(GPT2, r["tokens"], pairs=pairs)["total"] for pairs in ("full", "causal"))
            self.assertEqual((r["full_gflop"], r["causal_gflop"]), (full / 1e9, causal / 1e9))
        for r in found["contexts"]:
            parts = flops_per_token(GPT2, r["context"])
            self.assertEqual({name: r[name] for name in parts}, parts)
            self.assertEqual(r["output_share_percent"], 100 * parts["output_projection"] / parts["total"])
        self.assertEqual([r["tokens"] for r in found["passes"]], [16, 128, 512, 1024])  # a pass over one token is no pass
        self.assertEqual((found["from_context"], found["context_ratio"], found["from_gflop"]), (16, 64, 0.247653888))
        self.assertEqual((found["output_projection_mflop"], f"{found['rise_percent']:.1f}"), (77.194752, "15.0"))
        counts = [found[f"embedded_pass_of_64_{how}"] for how in ("by_formula", "counted")]
        self.assertEqual(counts, [flops_per_pass(load_config(), 64)["total"]] * 2)
        one = measure_flops(config(), (1,))
        self.assertEqual(([r["tokens"] for r in one["passes"]], one["rise_percent"]), ([1], 0))

    def test_work_done_twice_is_seen_by_the_counter(self):
        right = gpt2.mlp
        with mock.patch.object(gpt2, "mlp", lambda *args: right(*args) + 0 * right(*args)):
            parts = flops_per_pass(config(), 8)
            self.assertEqual(counted(config(), IDS), parts["total"] + parts["feed_forward"])


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        value = self.values(main, "--config", self.tiny(), "--other-depth", 3, "--context", "8,2,8")
        self.assertMeasured(
            value, counts=measure_counts(config(), 3), depth=measure_depth(config(), 3), flops=measure_flops(config(), [2, 8])
        )

    def test_without_arguments_it_is_gpt2(self):
        value = self.values(main)
        self.assertEqual([r["context"] for r in value["flops"]["contexts"]], [1, 16, 128, 512, 1024])
        page = self.page(main)
        for text in ("124,439,808", "7,087,872", "379,603,200", "3.05 times", "247,653,888", "284,812,800", "77,194,752", "15.0%"):
            self.assertIn(text, page)

    def test_sources(self):
        """A folder or its config.json is enough: no weights are read."""
        folder = self.tiny()
        (folder / "model.safetensors").unlink()
        for source in (folder, folder / "config.json"):
            self.assertIn("1,976", self.page(main, "--config", source))
        self.assertIn("1,557,611,200", self.page(main, "--config", "gpt2-xl"))
        self.assertEqual(self.values(main, "--config", folder)["flops"]["contexts"][-1]["context"], 16)
        self.page(main, "--config", "embedded", "--context", "1")

    def test_a_formula_that_is_wrong_is_not_printed(self):
        def short(of):
            return parameter_count(of) | {"total": 1}

        with mock.patch.object(room, "parameter_count", short), self.assertRaisesRegex(AssertionError, "the tensor table"):
            room.report({"counts": measure_counts(config()), "flops": measure_flops(config(), (1,))})

    def test_plot(self):
        argv = ("--config", self.tiny(), "--plot")
        for name in ("a.svg", "b.svg"):
            self.assertEqual(call(main, *argv, self.folder / name)[0], 0)
        self.assertEqual((self.folder / "a.svg").read_bytes(), (self.folder / "b.svg").read_bytes())
        self.assertBad(main, ["--config", "nowhere", "--plot", "x.gif"], "x.gif", ".svg")

    def test_bad_input(self):
        llama = write_folder(self.folder / "llama", {}, LLAMA)
        for argv, words in (
            (["--config", "gpt5"], ["gpt5", "gpt2-xl"]),
            (["--config", llama], ["chapter 4's cost model takes a gpt2", "a llama"]),
            (["--context", "2000"], ["2000", "1024"]),
            (["--context", "0"], ["0 is not 1"]),
            (["--other-depth", "0"], ["0 is not 1 to 1000"]),
            (["--model", "embedded"], ["--model"]),
            (["--prompt", "x"], ["unknown: --prompt x", "--help"]),
        ):
            with self.subTest(str(argv)):
                self.assertBad(main, argv, *words)


if __name__ == "__main__":
    unittest.main()
