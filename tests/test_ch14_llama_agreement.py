"""Chapter 14's Llama beside the library: prompts, shapes, points, a greedy text; planted faults; and chapter 4's experiments."""

import json
import unittest
from functools import partial
from unittest import mock

import torch

from examples.ch02.model import load
from examples.ch04 import causal_mask, component_timing, residual_trace
from examples.ch04.gpt2_from_scratch import POINTS
from examples.ch14 import llama_agreement
from examples.ch14 import llama_from_scratch as llama
from examples.lab.script import finite
from tests.support import LLAMA as L
from tests.support import FolderCase, call, llama_config, write_folder
from tests.support import llama_model as model

MODEL = model()


def setUpModule():
    torch.set_num_threads(1)


class Agreement(FolderCase):
    def setUp(self):
        super().setUp()
        self.model = write_folder(self.folder / "m", MODEL.weights, L)

    def test_on_a_folder(self):
        told = []
        found = llama_agreement.measure(load(self.model), tokens=60, progress=lambda: told.append(1))
        self.assertTrue(found["held"])
        self.assertLess(found["worst"], 1e-5)
        self.assertEqual(
            (found["greedy_same"], found["greedy_tokens"], len(found["greedy"])), (55, 55, 55)
        )  # 10 + 55 - 1 positions
        self.assertEqual([(r["batch"], r["tokens"]) for r in found["edges"]], [(1, 1), (1, 2), (1, 64), (4, 64)])
        self.assertEqual((found["longest"], found["parameters"]), (64, 1560))
        self.assertEqual(found["positions"], 5 + 9 + 13 + 18 + 1 + 2 + 64 + 4 * 64)
        self.assertEqual([r["point"] for r in found["by_point"]], [p for p in POINTS if p not in ("q", "scores")])
        self.assertEqual(len(told), 4 + 4 + 2)

    def test_the_longest_text_is_no_longer_than_it_has_to_be(self):
        shapes = llama_agreement.shapes
        self.assertEqual(shapes(llama_config(max_position_embeddings=8192)), [(1, 1), (1, 2), (1, 2048), (4, 64)])
        self.assertEqual(shapes(llama_config(max_position_embeddings=1)), [(1, 1), (4, 1)])

    def test_planted_faults(self):
        turned_back = lambda x, angles, right=llama.rotate: right(x, (angles[0], -angles[1]))  # noqa: E731
        unlike = lambda library, ids, tokens: [(i + 1) % 11 for i in range(tokens)]  # noqa: E731
        loud = lambda x, weights, name, config, right=llama.rms_norm: 1.001 * right(x, weights, name, config)  # noqa: E731
        for module, name, wrong in (
            (llama, "rotate", turned_back),  # seen everywhere
            (llama, "rms_norm", loud),  # too little for an argmax
            (llama_agreement, "library_greedy", unlike),  # seen by the greedy text alone
        ):
            with mock.patch.object(module, name, wrong):
                found = llama_agreement.measure(MODEL, tokens=8)
                self.assertFalse(found["held"], name)
                self.assertIn("OUTSIDE the bounds", llama_agreement.report({"agreement": found}))
            self.assertEqual(found["worst"] < 1e-5, module is llama_agreement)

    def test_the_script(self):
        status, out, err = call(llama_agreement.main, "--model", self.model, "--tokens", "5", "--json")
        self.assertEqual((status, err), (0, ""))
        value = json.loads(out)
        self.assertEqual(value["agreement"], finite(llama_agreement.measure(load(self.model), tokens=5)))
        status, out, err = call(llama_agreement.main, "--model", self.model, "--tokens", "5")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("Within the bounds", out)
        self.assertTrue(out.endswith(".\n"))

    def test_bad_input(self):
        for argv, words in (
            (["--model", "embedded"], "takes a llama, and this model is a gpt2"),
            (["--model", "nowhere"], "no model"),
            (["--tokens", "0"], "0 is not 1 or more"),
            (["--model", self.model, "--prompt", "words"], "no tokenizer"),
        ):
            self.assertBad(llama_agreement.main, argv, words)

    def test_weights_of_zero(self):
        zero = {name: torch.zeros_like(w) for name, w in MODEL.weights.items()}
        status, out, err = call(llama_agreement.main, "--model", write_folder(self.folder / "zero", zero, L), "--json")
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(json.loads(out)["agreement"]["held"])


class Experiments(unittest.TestCase):
    def test_chapter_4s_are_its_own(self):
        """Chapter 14 keeps of SmolLM2 what chapter 4's own functions measure."""
        measures = {e.id: e.measure for e in llama_agreement.EXPERIMENTS}
        self.assertEqual({e.model for e in llama_agreement.EXPERIMENTS}, {"smollm2"})
        for id, wanted in (("mask", causal_mask.measure), ("time", component_timing.measure)):
            self.assertIsInstance(measures[f"ch14.{id}"], partial)
            self.assertIs(measures[f"ch14.{id}"].func, wanted)
        self.assertIs(measures["ch14.residual"], residual_trace.measure)
        self.assertIs(measures["ch14.residual-others"], residual_trace.measure_others)

    def test_they_run_on_a_llama(self):
        for experiment in llama_agreement.EXPERIMENTS[1:4]:
            self.assertTrue(experiment.values(MODEL), experiment.id)


if __name__ == "__main__":
    unittest.main()
