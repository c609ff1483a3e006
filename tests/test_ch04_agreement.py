"""Chapter 4's tables and measurements, value by value: each printed column is the measured one, each option reaches its place."""

import json
import math
import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02 import model as ch02
from examples.ch03.tokens import encode, random_ids
from examples.ch04 import agreement as ex
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04 import plots
from examples.ch04 import tour as commands
from examples.ch04.library import library_model
from examples.lab.figure import check_target
from examples.lab.script import BadInput
from tests.support import IDS, FolderCase, G, call, config, model, weights, write_folder

MODEL = model()


def tables(text):
    """Every table of an output: lists of rows, each a {heading: cell}."""
    found, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        if at and "--" in line and set(line) <= {"-", " "}:
            spans, start = [], 0
            for dashes in line.split("  "):
                if dashes:
                    spans.append((line.index(dashes, start), line.index(dashes, start) + len(dashes)))
                    start = spans[-1][1]
            headings = [lines[at - 1][a:b].strip() for a, b in spans]
            rows = []
            for row in lines[at + 1 :]:
                if not row.strip() or row.startswith(("sum ", "plot")):
                    break
                rows.append(dict(zip(headings, (row[a:b].strip() for a, b in spans), strict=True)))
            found.append(rows)
    return found


class TableCase(FolderCase):
    def run_once(self, *argv):
        """(value, tables, text) of one run, so that measured times are those that are printed."""
        args = commands.options().parse_args([str(a) for a in argv])
        value, text = args.command(args)
        return value, tables(text), text

    def tiny(self, **values):
        of = config(**values)
        return write_folder(self.folder / f"m{len(list(self.folder.iterdir()))}", weights(of), G | values)


class Tables(TableCase):
    def test_mask(self):
        value, (changes, influence), text = self.run_once("mask", "--model", self.tiny())
        for i, row in enumerate(changes):
            self.assertEqual(row["position"], str(i))
            on, off = value["change_with_mask"][i], value["change_without_mask"][i]
            self.assertEqual((row["mask on"], row["mask off"]), (f"{on:.4f}" if on else "0.0", f"{off:.4f}"))
            self.assertEqual([influence[i][str(j)] for j in range(10)], [f"{x:.2f}" if x else "0" for x in value["influence"][i]])
        self.assertIn(f"{value['earlier_argmax_moved_with_mask']} with the mask", text)
        self.assertIn(f", {value['earlier_argmax_moved_without_mask']} without", text)
        self.assertIn(f"minus infinity: {value['sharpened_above_diagonal_at_minus_1e4']:.3g}", text)

    def test_residual(self):
        value, (rows,), _ = self.run_once("residual", "--model", self.tiny())
        self.assertEqual([r["after how many layers"] for r in rows], ["embedding", "1", "2"])
        columns = {
            **{"largest": ("largest", ".2f"), "position": ("position", "d"), "dimension": ("dimension", "d")},
            **{"RMS": ("rms", ".3f"), "RMS without position 0": ("rms_without_first", ".3f")},
            **{"largest / median": ("largest_over_median", ".1f")},
            **{"attention adds": ("attention_norm", ".2f"), "feed-forward adds": ("mlp_norm", ".2f")},
        }
        for row, found in zip(rows, value["layers"], strict=True):
            for heading, (key, form) in columns.items():
                self.assertEqual(row[heading], f"{found[key]:{form}}" if key in found else "n/a", heading)

    def test_time(self):
        value, parts, text = self.run_once("time", "--model", self.tiny(), "--tokens", "4,16", "--runs", "1")
        for part, found in zip(parts, value["lengths"], strict=True):
            for row, c in zip(part, found["components"], strict=True):
                cells = [row["ms"], row["share of time"], row["share of FLOPs"]]
                self.assertEqual(cells, [f"{c['ms']:.2f}", f"{c['time_share']:.1%}", f"{c['flop_share']:.1%}"])
            for shown in (f"sum {found['sum_ms']:.2f} ms", f"untraced pass {found['untraced_ms']:.2f} ms"):
                self.assertIn(shown, text)
            self.assertAlmostEqual(found["unexplained_ms"], found["untraced_ms"] - found["sum_ms"])
            self.assertAlmostEqual(found["gflop_per_s"], found["gflop"] / found["untraced_ms"] * 1e3)
            self.assertAlmostEqual(found["sum_ms"], sum(c["ms"] for c in found["components"]))

    def test_compare(self):
        value, (prompts, edges, points, dtypes), _ = self.run_once("compare", "--model", self.tiny())
        for rows, found in ((prompts, value["prompts"]), (edges, value["edges"])):
            for row, r in zip(rows, found, strict=True):
                self.assertEqual(row["largest difference"], f"{r['largest_difference']:.1e}")
                self.assertEqual(row["largest logit"], f"{r['largest_logit']:.2f}")
                self.assertEqual(row["difference / logit"], f"{r['largest_difference'] / r['largest_logit']:.1e}")
                self.assertEqual(row["same argmax"], f"{r['same_argmax']} of {r['positions']}")
        for row in points:
            found = [r for r in value["layers"] if r["point"] == row["point of the pass"]]
            worst = max(found, key=lambda r: r["largest_difference"])
            self.assertEqual((row["largest difference"], row["tensors"]), (f"{worst['largest_difference']:.1e}", str(len(found))))
            self.assertEqual(row["in layer (from 0)"], "" if worst["layer"] is None else str(worst["layer"]))
        for row, r in zip(dtypes, value["from_float64"], strict=True):
            self.assertEqual(row["transformers"], f"{r['library']:.1e}")
            self.assertEqual(row["ours"], "0 (itself)" if r["dtype"] == "float64" else f"{r['ours']:.1e}")

    def test_tour(self):
        value, (rows,), text = self.run_once("tour")
        for row, r in zip(rows, value["next_tokens"], strict=True):
            self.assertEqual(row, {"next token": repr(r["piece"]), "id": str(r["id"]), "probability": f"{r['probability']:.2%}"})
        found = value["agreement"]
        self.assertIn(f"at {found['same_argmax']} of {found['positions']} positions", text)

    def test_count_flops_and_shapes(self):
        value, (rows,), _ = self.run_once("count", "--config", "gpt2")
        for row, (name, n) in zip(rows, value["parameters"].items(), strict=True):
            self.assertEqual((row["component"], row["parameters"]), (name.replace("_", " "), f"{n:,}"))
        value, (rows, passes), _ = self.run_once("flops", "--context", "16,512")
        for i, context in enumerate(("16", "512")):
            cells = [row[context] for row in rows][:-1]
            self.assertEqual(cells, [f"{n:,}" for n in value["contexts"][i]["per_token"].values()])
            totals = [value["contexts"][i]["pass"][pairs]["total"] for pairs in ("full", "causal")]
            self.assertEqual([row[context] for row in passes][:2], [f"{n / 1e9:.3f}" for n in totals])
        value, (rows,), _ = self.run_once("shapes")
        self.assertEqual([r["grows with"] for r in rows], [r["growth"] for r in value["tensors"]])
        self.assertEqual([r["bytes of one"] for r in rows], [f"{r['bytes']:,}" for r in value["tensors"]])


class Options(TableCase):
    def test_dtype(self):
        folder = self.tiny()
        single, half = (self.run_once("compare", "--model", folder, "--dtype", d)[0] for d in ("float32", "bfloat16"))
        self.assertLess(single["edges"][-1]["largest_difference"], 1e-4)
        self.assertGreater(half["edges"][-1]["largest_difference"] + half["layers"][0]["largest_value"], 1e-4)
        args = commands.options().parse_args(["mask", "--model", str(folder), "--dtype", "bfloat16"])
        self.assertEqual({w.dtype for w in commands._load(args).weights.values()}, {torch.bfloat16})

    def test_seed(self):
        folder = self.tiny()
        ids = [self.run_once("mask", "--model", folder, "--seed", s)[0]["ids"] for s in (0, 0, 1)]
        self.assertEqual(ids[0], ids[1])
        self.assertNotEqual(ids[0], ids[2])
        args = commands.options().parse_args(["mask", "--model", "random:gpt2", "--seed", "7"])
        with mock.patch.object(commands, "load", return_value=MODEL) as load:
            commands._load(args)
        self.assertEqual((load.call_args.args, load.call_args.kwargs["seed"]), (("random:gpt2",), 7))

    def test_threads(self):
        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)
        for n in (2, 1):
            call(gpt2.main, "mask", "--model", self.tiny(), "--threads", n)
            self.assertEqual(torch.get_num_threads(), n)
        torch.set_num_threads(2)
        call(gpt2.main, "count")  # measures nothing, and leaves the caller's setting alone
        self.assertEqual(torch.get_num_threads(), 2)

    def test_prompt(self):
        value = self.run_once("mask", "--prompt", "Good night")[0]
        self.assertEqual(value["ids"], encode("Good night", ch02.load())[0].tolist())


class NotFinite(TableCase):
    def test_nan_never_passes_for_agreement(self):
        nan = torch.full((1, 3, 4), math.nan)
        found = ex.agreement(nan, nan)
        self.assertTrue(math.isnan(found["largest_difference"]))
        self.assertEqual((found["same_argmax"], found["positions"]), (0, 3))
        self.assertTrue(math.isnan(ex.worst([0.0, math.nan, 1.0])))
        self.assertTrue(math.isnan(ex.above_diagonal([[0, 0.0, math.nan], [0, 0, 0.0], [0, 0, 0]])))
        self.assertEqual((ex.worst([]), ex.worst([1.0, 2.0])), (0.0, 2.0))

    def test_weights_that_are_not_numbers(self):
        bad = weights() | {"ln_f.bias": torch.full((8,), math.nan)}
        for name in ("tour", "mask", "residual", "compare", "time"):
            self.assertBad(gpt2.main, [name, "--model", write_folder(self.folder / "a", bad)], "ln_f.bias", "NaN")
        huge = weights() | {"ln_f.bias": torch.full((8,), 1e6)}  # overflows in float16 only
        folder = write_folder(self.folder / "b", huge)
        self.assertEqual(call(gpt2.main, "mask", "--model", folder)[0], 0)
        self.assertBad(gpt2.main, ["mask", "--model", folder, "--dtype", "float16"], "ln_f.bias", "float16")

    def test_a_pass_that_overflows_is_null_with_a_reason(self):
        loud = {k: w * 40 for k, w in weights().items()}
        status, out, err = call(gpt2.main, "compare", "--model", write_folder(self.folder / "a", loud), "--json")
        self.assertEqual((status, err), (0, ""))
        value = json.loads(out)
        half = next(r for r in value["from_float64"] if r["dtype"] == "float16")
        self.assertIsNone(half["ours"])
        self.assertTrue(any("from_float64" in reason and "nan" in reason for reason in value["not_finite"]))

    def test_half_precision_masks_on_the_embedded_model(self):
        for dtype in ("float16", "bfloat16"):
            status, out, _ = call(gpt2.main, "mask", "--dtype", dtype, "--json")
            value = json.loads(out)
            self.assertEqual((status, value["largest_above_diagonal"], value["sharpened_above_diagonal"]), (0, 0.0, 0.0))
            self.assertNotIn("not_finite", value)

    def test_a_model_of_zeros(self):
        zeros = {k: w * 0 for k, w in weights().items()}
        for name in ("tour", "mask", "residual", "compare"):
            self.assertEqual(call(gpt2.main, name, "--model", write_folder(self.folder / "a", zeros))[0], 0)


class OddModels(TableCase):
    def test_wrapper_prefixes_are_compared_with_the_right_weights(self):  # C01: the library would go on with random ones
        for i, prefix in enumerate(("_orig_mod.transformer.", "model.", "")):
            folder = write_folder(self.folder / str(i), prefix=prefix)
            value = self.run_once("tour", "--model", folder)[0]
            self.assertEqual(value["agreement"]["same_argmax"], 10)

    def test_upcast_attention(self):
        value = self.run_once("compare", "--model", self.tiny(reorder_and_upcast_attn=True))[0]
        self.assertIsNone(value["from_float64"][0]["library"])
        self.assertLess(value["from_float64"][1]["library"], 1e-4)

    def test_one_position(self):
        value = self.run_once("compare", "--model", self.tiny(n_positions=1))[0]
        self.assertEqual([(r["batch"], r["tokens"]) for r in value["edges"]], [(1, 1), (4, 1)])
        self.assertEqual({r["tokens"] for r in value["prompts"]}, {1})

    def test_fields_that_only_the_library_reads(self):
        folder = write_folder(self.folder / "whole", values=G | {"layer_norm_epsilon": 1})
        words = ("transformers cannot make this model by itself", "layer_norm_epsilon", "expected float, got int")
        self.assertBad(gpt2.main, ["tour", "--model", folder], *words)  # it is strict about what JSON is not
        for i, field in enumerate(({"attn_pdrop": 2.0}, {"bos_token_id": "x"}, {"id2label": 3})):
            folder = write_folder(self.folder / str(i), values=G | field)
            with self.subTest(field):
                self.assertEqual(call(gpt2.main, "tour", "--model", folder)[0], 0)


class Measurements(unittest.TestCase):
    def test_agreement_counts_what_differs(self):
        ours = torch.zeros(2, 3, 4)
        theirs = ours.clone()
        ours[..., 1], theirs[..., 1] = 1.0, 1.0
        theirs[0, 2, 3], theirs[1, 1, 0] = 5.0, -7.0  # one argmax moves, one value only grows
        found = ex.agreement(ours, theirs)
        self.assertEqual((found["same_argmax"], found["positions"], found["batch"], found["tokens"]), (5, 6, 2, 3))
        self.assertEqual((found["largest_difference"], found["largest_logit"], found["relative_difference"]), (7.0, 7.0, 1.0))

    def test_distance_from_float64(self):
        batches = [IDS, IDS[:, :3]]
        rows = {r["dtype"]: r for r in ex.distance_from_float64(MODEL, batches, ("float32", "bfloat16"))}
        exact = MODEL.to(dtype=torch.float64)
        for name, row in rows.items():
            same = MODEL.to(dtype=ex.DTYPES[name])
            theirs = library_model(MODEL, ex.DTYPES[name])
            ours_worst, library_worst, moved = [], [], 0
            for ids in batches:
                reference, found = ch02.run(exact, ids), ch02.run(same, ids)
                ours_worst.append((found.double() - reference).abs().max().item())
                library_worst.append((theirs(ids).logits.double() - reference).abs().max().item())
                moved += int((found.argmax(-1) != reference.argmax(-1)).sum())
            self.assertEqual((row["ours"], row["ours_same_argmax"]), (max(ours_worst), 11 - moved))
            self.assertAlmostEqual(row["library"], max(library_worst), places=6)
            self.assertEqual(row["positions"], 11)

    def test_mask_test_counts_each_run_by_itself(self):
        found = ex.mask_test(MODEL, IDS)
        other = IDS.clone()
        other[0, -1] = (IDS[0, -1] + 5) % 11
        for key, causal in (("with", True), ("without", False)):
            before, after = (ch02.run(MODEL, ids, causal=causal)[0] for ids in (IDS, other))
            self.assertEqual(found[f"change_{key}_mask"], (before - after).abs().amax(-1).tolist())
            moved = int((before.argmax(-1) != after.argmax(-1))[:-1].sum())
            self.assertEqual(found[f"earlier_argmax_moved_{key}_mask"], moved)
        self.assertEqual(found["change_with_mask"][:-1], [0.0] * 7)

    def test_residual_columns(self):
        kept = {}
        ch02.run(MODEL, IDS, trace=lambda p, i, x: kept.setdefault((p, i), x))
        row = ex.residual_statistics(MODEL, IDS)[1]
        self.assertAlmostEqual(row["attention_norm"], kept["attention", 0].double().norm().item())
        self.assertAlmostEqual(row["mlp_norm"], kept["mlp", 0].double().norm().item())
        size = kept["residual", 0].double().abs().flatten()
        self.assertAlmostEqual(row["largest_over_median"], (size.max() / size.median()).item())

    def test_errors_by_layer_and_length(self):
        rows = ex.error_by_layer(MODEL, IDS)
        self.assertEqual([r["layer"] for r in rows], [0, 1, 2])
        self.assertTrue(all(0 <= r["relative_error"] < 1e-6 for r in rows))
        self.assertGreater(rows[-1]["relative_error"], 0)
        rows = ex.error_by_length(MODEL, [1, 16])
        self.assertEqual([r["tokens"] for r in rows], [1, 16])
        self.assertTrue(all(0 < r["relative_error"] < 1e-6 for r in rows))

    def test_position_by_itself(self):
        found = ex.position_by_itself(MODEL)
        self.assertEqual(found, {"embedding": True, "layer_norm": True, "feed_forward": True, "attention": False})
        right = gpt2.mlp
        with mock.patch.object(gpt2, "mlp", lambda x, *more: right(x, *more) + x.mean(1, keepdim=True)):
            self.assertFalse(ex.position_by_itself(MODEL)["feed_forward"])

    def test_last_position(self):
        x = gpt2.pass_over(IDS, MODEL.weights, MODEL.config, torch.arange(8), gpt2.causal_mask(8, 8))
        last = gpt2.unembed(x[:, -1:], MODEL.weights, MODEL.config)
        torch.testing.assert_close(last[0, 0], ch02.run(MODEL, IDS)[0, -1], atol=1e-6, rtol=0)
        readings = iter([0, 1000, 1000, 2000, 2000, 2004, 2004, 2005])  # a slow first turn, then 4 s and 1 s
        found = ex.last_position_saving(MODEL, 8, runs=1, timer=lambda: next(readings))
        flops = gpt2.flops_per_pass(MODEL.config, 8)
        self.assertAlmostEqual(found["flop_saving_percent"], 100 * flops["output_projection"] * 7 / 8 / flops["total"])
        self.assertEqual((found["all_ms"], found["last_ms"], found["time_saving_percent"]), (4000, 1000, 75))

    def test_random_ids(self):
        a, b, c = (random_ids(MODEL, 12, 2, seed) for seed in (0, 0, 1))
        self.assertTrue(torch.equal(a, b))
        self.assertFalse(torch.equal(a, c))
        self.assertEqual(a.shape, (2, 12))

    def test_ties_go_to_the_lower_id(self):
        flat = replace(MODEL, weights=MODEL.weights | {"ln_f.weight": torch.zeros(8), "ln_f.bias": torch.zeros(8)})
        self.assertEqual([r["id"] for r in ex.next_tokens(flat, IDS)], [0, 1, 2, 3, 4])

    def test_lengths_stop_at_1024(self):
        self.assertEqual(ex.timing_lengths(config(n_positions=4096)), [16, 128, 512, 1024])

    def test_costs_of_a_batch(self):
        for pairs in ("full", "causal"):
            one, three = (gpt2.flops_per_pass(config(), 8, batch, pairs)["total"] for batch in (1, 3))
            self.assertEqual(three, 3 * one)
        half = gpt2.tensor_table(config(), 8, bytes_per_number=2)
        for a, b in zip(half, gpt2.tensor_table(config(), 8), strict=True):
            self.assertEqual(b["bytes"], a["bytes"] * (1 if a["point"] == "mask" else 2))  # the mask is of float32

    def test_a_trace_that_looks_empty(self):
        class Kept(dict):
            def __call__(self, point, layer, tensor):
                self[point, layer] = tensor

        kept = Kept()
        gpt2.forward(IDS, MODEL.weights, MODEL.config, trace=kept)
        self.assertIn(("logits", None), kept)

    def test_the_library_is_left_as_it_was(self):
        library = library_model(MODEL)
        ex.compare_layers(MODEL, library, IDS)
        after = [len(m._forward_hooks) for m in library.modules()]
        ex.compare_layers(MODEL, library, IDS)  # the library keeps hooks of its own from the first pass on
        self.assertEqual([len(m._forward_hooks) for m in library.modules()], after)
        self.assertEqual(library.config._attn_implementation, "eager")


class Plots(FolderCase):
    def test_bars_and_lines_are_the_measured_ones(self):
        rows = ex.residual_statistics(MODEL, IDS)
        found = [ex.component_times(MODEL, 8, 1), ex.component_times(MODEL, 16, 1)]
        with mock.patch.object(plots, "write_figure") as write:
            plots.plot_residual(rows, None)
            lines = {line.get_label(): list(line.get_ydata()) for line in write.call_args.args[0].axes[0].lines}
            self.assertEqual(lines["largest absolute value"], [r["largest"] for r in rows])
            self.assertEqual(lines["RMS, all positions"], [r["rms"] for r in rows])
            self.assertEqual(lines["RMS without position 0"], [r["rms_without_first"] for r in rows])
            plots.plot_time(found, None)
            for bars, component in zip(write.call_args.args[0].axes[0].containers, found[0]["components"], strict=True):
                name = component["component"]
                pairs = [next(c for c in f["components"] if c["component"] == name) for f in found]
                expected = [x for c in pairs for x in (100 * c["time_share"], 100 * c["flop_share"])]
                for bar, height in zip(bars, expected, strict=True):
                    self.assertAlmostEqual(bar.get_height(), height)
            plots.plot_throughput([{"tokens": 16, "gflop_per_s": 30.0}, {"tokens": 128, "gflop_per_s": 70.0}], None)
            line = write.call_args.args[0].axes[0].lines[0]
            self.assertEqual((list(line.get_xdata()), list(line.get_ydata())), ([16, 128], [30.0, 70.0]))
            plots.plot_influence([[2.0, 0.0], [1.0, 3.0]], None)
            texts = [t.get_text() for t in write.call_args.args[0].axes[0].texts]
            self.assertEqual(texts, ["2.0", "0", "1.0", "3.0"])

    def test_targets(self):
        from pathlib import Path

        (self.folder / "d.svg").mkdir()
        for path, word in (
            (self.folder / "d.svg", "a folder"),
            (self.folder / "x.gif", ".svg"),
            (Path("/proc/none/x.svg"), "not a"),
        ):
            with self.assertRaisesRegex(BadInput, word):
                check_target(path)


if __name__ == "__main__":
    unittest.main()
