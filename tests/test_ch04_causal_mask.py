"""Chapter 4's causal mask: exact zeros before a changed token in every dtype, length and family; each wrong mask is told."""

import math
import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.families import READERS
from examples.ch02.model import DTYPES, Model, load, random_model, run
from examples.ch03.tokens import default_ids, encode, random_ids
from examples.ch04 import causal_mask as room
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.causal_mask import (
    above_diagonal,
    change_last,
    draw,
    influence,
    main,
    masked_with_minus_1e4,
    measure,
    measure_off,
    measure_parts,
    sharpened,
)
from examples.ch14 import llama_from_scratch as llama
from examples.ch14.peers import TINY
from examples.lab.script import BadInput, read_json
from tests.faults import shifted_mask
from tests.rooms import RoomCase
from tests.support import (
    IDS,
    LLAMA,
    ROOT,
    config,
    llama_model,
    loaded,
    model,
    needs_smollm2,
    slow,
    weights,
    write_folder,
)

MODEL, LLAMAS = model(), llama_model()
ZEROS = ("largest_earlier_change", "influence_above_diagonal", "sharpened_above_diagonal")
ZEROS += tuple(f"{name}_above_diagonal" for name in ("float64", "bfloat16", "float16"))


def llama_off_by_one():
    """A fault: each position of a Llama sees the next one too."""
    right = llama.attention
    return mock.patch.object(llama, "attention", lambda *args: right(*args[:5], args[5].triu(2), *args[6:]))


class WithMask(unittest.TestCase):
    def test_exactly_zero_on_a_gpt2_and_a_llama(self):
        for one in (MODEL, LLAMAS, loaded()):
            found = measure(one)
            self.assertEqual([found[key] for key in ZEROS], [0.0] * 6)
            self.assertEqual((found["tokens"], found["earlier_positions"], found["earlier_predictions_rewritten"]), (10, 9, 0))

    def test_a_position_hears_itself_and_all_before_it(self):
        for one in (MODEL, LLAMAS):
            for i, row in enumerate(influence(one, IDS)):
                self.assertTrue(all(x > 0 for x in row[: i + 1]), row)
                self.assertEqual(row[i + 1 :], [0.0] * (7 - i))

    def test_an_entry_is_the_change_at_i_by_the_id_at_j(self):
        found = influence(MODEL, IDS)
        for j in (0, 3, 7):
            other = IDS.clone()
            other[0, j] = (IDS[0, j] + 5) % 11
            change = (run(MODEL, IDS) - run(MODEL, other))[0].abs().amax(-1).tolist()
            self.assertEqual([row[j] for row in found], change)

    def test_above_the_diagonal(self):
        self.assertEqual(above_diagonal([[9, 2.0, 3.0], [8, 9, 5.0], [7, 6, 9]]), 5.0)
        self.assertEqual(above_diagonal([[9]]), 0.0)
        self.assertTrue(math.isnan(above_diagonal([[0, 0.0, math.nan], [0, 0, 0.0], [0, 0, 0]])))

    def test_a_wrong_mask_is_told(self):
        for shift, told in ((2, True), (1, False)):
            with mock.patch.object(gpt2, "attention", shifted_mask(shift)):
                found = measure(MODEL, IDS, ())
                self.assertEqual([found[key] > 0 for key in ZEROS[:3]], [told] * 3, found)
        with mock.patch.object(gpt2, "attention", shifted_mask(0)):  # hides the position itself: row 0 sees nothing
            self.assertTrue(math.isnan(change_last(MODEL, IDS)[0][0]))
            self.assertTrue(math.isnan(measure(MODEL, IDS, ())["largest_earlier_change"]))
        with mock.patch.object(gpt2, "attention", shifted_mask(2)):  # of one layer: only the last but one hears the last
            self.assertGreater(measure(model(n_layer=1), IDS, ())["largest_earlier_change"], 1e-3)
        with llama_off_by_one():
            self.assertGreater(measure(LLAMAS, IDS, ())["influence_above_diagonal"], 1e-3)

    def test_an_old_mask_is_told_by_sharpened_weights_alone(self):
        old = gpt2.causal_mask
        with mock.patch.object(gpt2, "causal_mask", lambda *args: old(*args).clamp(min=-1e4)):
            found = measure(MODEL, IDS, ())
        self.assertEqual((found["influence_above_diagonal"], found["largest_earlier_change"]), (0.0, 0.0))
        self.assertGreater(found["sharpened_above_diagonal"], 1e-3)

    def test_a_wrong_mask_breaks_the_record(self):
        record = next(r for r in read_json(ROOT / "research/ch04/results.json")["results"] if r["id"] == "ch04.mask")
        experiment = next(e for e in room.EXPERIMENTS if e.id == "ch04.mask")
        with mock.patch.object(gpt2, "attention", shifted_mask(2)):
            self.assertNotEqual(experiment.values(loaded()), record["values"])

    def test_every_dtype_and_length(self):
        for dtype in DTYPES.values():
            one = MODEL.to(dtype=dtype)
            for T in (1, 2, 16):
                self.assertEqual(above_diagonal(influence(one, random_ids(one, T))), 0.0)

    def test_masked_entries_of_A_are_exact_zeros(self):
        kept = gpt2.Trace("A")
        run(loaded(), default_ids(loaded(), 10), trace=kept)
        self.assertEqual(len(kept), 4)
        for A in kept.values():
            self.assertEqual(A.triu(1).abs().max().item(), 0.0)
            torch.testing.assert_close(A.sum(-1), torch.ones(A.shape[:-1]))


class WithoutMask(unittest.TestCase):
    def test_both_runs_by_themselves(self):
        found = measure_off(MODEL, IDS)
        other = IDS.clone()
        other[0, -1] = (IDS[0, -1] + 5) % 11
        on, off = (
            (run(MODEL, IDS, causal=causal) - run(MODEL, other, causal=causal))[0].abs().amax(-1).tolist()
            for causal in (True, False)
        )
        self.assertEqual([r["mask_on"] for r in found["positions"]], on)
        self.assertEqual([r["mask_off"] for r in found["positions"]], off)
        self.assertEqual([r["position"] for r in found["positions"]], list(range(8)))
        self.assertEqual((found["smallest_earlier_change"], found["largest_earlier_change"]), (min(off[:-1]), max(off[:-1])))
        self.assertEqual((found["change_at_last_with_mask"], found["change_at_last_without_mask"]), (on[-1], off[-1]))
        before, after = (run(MODEL, ids, causal=False)[0].argmax(-1) for ids in (IDS, other))
        self.assertEqual(found["earlier_predictions_rewritten"], int((before != after)[:-1].sum()))
        self.assertGreater(found["smallest_earlier_change"], 1e-3)
        self.assertEqual(found["influence"], influence(MODEL, IDS))

    def test_nan_is_not_hidden(self):
        with mock.patch.object(room, "change_last", return_value=([0.0, math.nan, 2.0, 1.0], [False] * 4)):
            found = measure_off(MODEL, IDS[:, :4])
        self.assertTrue(math.isnan(found["smallest_earlier_change"]))
        self.assertTrue(math.isnan(found["largest_earlier_change"]))

    def test_one_token_has_nothing_before_it(self):
        found = measure_off(MODEL, IDS[:, :1])
        self.assertIsNone(found["smallest_earlier_change"])
        self.assertIsNone(found["largest_earlier_change"])
        self.assertEqual(measure(MODEL, IDS[:, :1], ())["earlier_positions"], 0)

    def test_scores_below_a_mask_of_minus_1e4(self):
        """Where all that a position may see scores below -1e4, an old program's mask lets it see the future."""
        plain = Model(config(), weights())
        sharp, other = sharpened(plain), IDS.clone()
        other[0, -1] = 0
        for forward, expected in ((run, 0.0), (masked_with_minus_1e4, 0.0975)):
            change = forward(sharp, IDS) - forward(sharp, other)
            self.assertAlmostEqual(change[:, :7].abs().max().item(), expected, delta=1e-3 if expected else 0)
        kept = gpt2.Trace("scores")
        run(sharp, IDS, trace=kept)
        self.assertLess(kept["scores", 0][0, 1, 0, 0].item(), -3e4)
        unsharpened = masked_with_minus_1e4(plain, IDS) - masked_with_minus_1e4(plain, other)
        self.assertEqual(unsharpened[:, :7].abs().max().item(), 0.0)  # the ordinary test does not catch it
        for one in (plain, LLAMAS):
            self.assertGreater(measure_off(one, IDS)["minus_1e4_sharpened_above_diagonal"], 1e-3)

    def test_what_is_sharpened(self):
        for made, names in (
            (LLAMAS, {f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"}),
            (MODEL, {"h.0.attn.c_attn.weight"}),
        ):
            sharp = sharpened(made)
            changed = {name for name, w in made.weights.items() if not torch.equal(w, sharp.weights[name])}
            self.assertEqual(changed, names)
            for name in names:
                self.assertTrue(torch.equal(sharp.weights[name], 300.0 * made.weights[name]))
        self.assertEqual(sharpened(MODEL.to(torch.float16)).dtype, torch.float32)
        self.assertEqual(sharpened(MODEL.to(torch.float64)).dtype, torch.float64)

    def test_every_family_has_queries_and_keys_to_sharpen(self):
        for kind in READERS:
            made = random_model({"model_type": kind, **TINY[kind]})
            sharp = sharpened(made)
            changed = [name for name, w in made.weights.items() if not torch.equal(w, sharp.weights[name])]
            self.assertGreater(len(changed), 0, kind)
            self.assertTrue(all(".0." in name for name in changed), changed)


class Parts(unittest.TestCase):
    """Run alone, each part of the pass gives a position the same bits whatever its neighbours are; attention does not."""

    def test_only_attention_mixes_positions(self):
        found = measure_parts(MODEL)
        self.assertEqual([name for name, keeps in found.items() if not keeps], ["attention_keeps_the_bits"])
        self.assertEqual(len(found), 4)

    def test_a_part_that_mixes_is_told(self):
        for name in ("mlp", "layer_norm"):
            right = getattr(gpt2, name)
            with mock.patch.object(gpt2, name, lambda x, *more, right=right: right(x, *more) + x.mean(1, keepdim=True)):
                self.assertFalse(measure_parts(MODEL)[f"{'feed_forward' if name == 'mlp' else name}_keeps_the_bits"])

    def test_single_parts_are_those_of_a_gpt2(self):
        with self.assertRaisesRegex(BadInput, "takes a gpt2"):
            measure_parts(LLAMAS)


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        folder = self.tiny()
        one = load(folder)
        ids = random_ids(one, 10, seed=3)
        value = self.values(main, "--model", folder, "--seed", 3)
        self.assertMeasured(value, mask=measure(one, ids, ()), **{"mask-off": measure_off(one, ids)})
        self.assertNotEqual(value["mask-off"], self.values(main, "--model", folder)["mask-off"])

    def test_a_prompt(self):
        ids = encode("Good night", loaded())
        value = self.values(main, "--prompt", "Good night")
        self.assertMeasured(value, mask=measure(loaded(), ids, ()), **{"mask-off": measure_off(loaded(), ids)})
        self.assertIn("'Good night', 3 tokens", self.page(main, "--prompt", "Good night"))

    def test_pages_say_whether_the_program_is_causal(self):
        self.assertIn("no position hears a later one", self.page(main))
        self.assertIn("no position hears", self.page(main, "--prompt", "a"))  # one token: nothing before it
        self.assertIn("the first 12 of", self.page(main, "--prompt", "a long text, " * 4))
        with mock.patch.object(gpt2, "attention", shifted_mask(2)):
            self.assertIn("NOT causal", self.page(main, "--model", self.tiny()))

    def test_dtypes(self):
        for dtype in ("float64", "bfloat16", "float16"):
            value = self.values(main, "--dtype", dtype, "--prompt", "Good night")
            self.assertEqual([value["mask"][key] for key in ZEROS[:3]], [0.0] * 3)
            self.assertNotIn("not_finite", value)
        llama_folder = write_folder(self.folder / "llama", LLAMAS.weights, LLAMA)
        self.assertEqual(self.values(main, "--dtype", "bfloat16", "--model", llama_folder)["mask"]["influence_above_diagonal"], 0.0)

    def test_threads(self):
        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)
        for n in (2, 1):
            self.assertEqual(self.values(main, "--model", self.tiny(), "--threads", n)["ran_with"]["threads"], n)
            self.assertEqual(torch.get_num_threads(), n)

    def test_figure(self):
        self.assertDraws(main, "--prompt", "Good night")

    def test_a_figure_of_few_of_many_and_of_zeros(self):
        with mock.patch.object(room, "write_figure") as write:
            for matrix, texts in (
                ([[2.0, 0.0], [1.0, 3.0]], ["2.0", "0", "1.0", "3.0"]),
                ([[0.0, 0.0], [0.0, 0.0]], ["0"] * 4),
                ([[1.0] * 40] * 40, []),  # no room for numbers
            ):
                draw({"influence": matrix}, None)
                self.assertEqual([t.get_text() for t in write.call_args.args[0].axes[0].texts], texts)
        self.page(main, "--model", write_folder(self.folder / "zeros", {k: w * 0 for k, w in weights().items()}))

    def test_bad_input(self):
        bad = write_folder(self.folder / "bad", weights() | {"h.0.ln_1.bias": torch.full((8,), math.inf)})
        huge = write_folder(self.folder / "huge", weights() | {"ln_f.bias": torch.full((8,), 1e6)})
        self.values(main, "--model", huge)  # overflows in float16 only
        for argv, words in (
            (["--model", bad], ["h.0.ln_1.bias", "infinity"]),
            (["--model", huge, "--dtype", "float16"], ["ln_f.bias", "float16"]),
            (["--model", self.tiny(), "--prompt", "a"], ["no tokenizer"]),
            (["--prompt", ""], ["empty"]),
            (["--prompt", "word " * 300], ["n_positions 256"]),
        ):
            with self.subTest(str(argv)):
                self.assertBad(main, argv, *words)
        if not torch.cuda.is_available():
            self.assertBad(main, ["--device", "cuda"], "cuda", "leave it out")


@slow
@needs_smollm2
class SmolLM2(unittest.TestCase):
    def test_mask(self):
        one = loaded("smollm2")
        ids = encode("The king is dead.", one)
        found = measure(one, ids, ())
        self.assertEqual([found[key] for key in ZEROS[:3]], [0.0] * 3)
        self.assertGreater(min(row[i] for i, row in enumerate(influence(one, ids))), 1)
        with llama_off_by_one():
            self.assertGreater(max(change_last(replace(one, tokenizer=None), ids)[0][:-1]), 0)


if __name__ == "__main__":
    unittest.main()
