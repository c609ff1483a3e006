"""Every family in every way of running it, each beside transformers: plain, in chunks, with a cache, the last position only; by its
own program and by the configurable forward; and each way is seen to fail on a planted fault."""

import unittest
from unittest import mock

import torch

from examples.ch02.families import PROGRAMS, READERS, formulas, program
from examples.ch02.model import general_form, run
from examples.ch03.tokens import random_ids
from examples.ch04 import agreement as ch04_agreement
from examples.ch04 import causal_mask, tour
from examples.ch04.agreement import agreement
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch05.generate import generate, whole_text
from examples.ch05.loop_agreement import library_greedy
from examples.ch10 import kv_cache
from examples.ch10.cache_parity import in_chunks
from examples.ch10.kv_cache import Cached, KVCache
from examples.ch14 import family_agreement, peers, variants
from examples.ch14 import llama_from_scratch as llama
from examples.ch14.family_agreement import CASES, OPTIONS, case_agreement, measure, measure_cached
from tests.rooms import RoomCase
from tests.support import slow

BOUND = 1e-5  # of the largest logit
TOKENS = 20  # more than every window
CHUNKS = [7, 1, 5, 7]


def setUpModule():
    torch.set_num_threads(1)


def one_by_one(model, ids):
    """Logits [1, T, V] of the loop's cached forward, called with a text that grows by one token."""
    cached = Cached(model, capacity=ids.shape[1])
    return torch.cat([cached(ids[:, : t + 1]) for t in range(ids.shape[1])], dim=1)


WAYS = {  # logits of ids [1, T], at all positions or at the last
    "plain": run,
    "in chunks": lambda model, ids: in_chunks(model, ids, CHUNKS)[0],
    "cached": one_by_one,
    "last position": lambda model, ids: whole_text(model)(ids),
}


@torch.no_grad()
def worst(way, model, library):
    """How far a way of running a model is from transformers' logits, over the largest of these."""
    ids = random_ids(model, TOKENS)
    found, theirs = WAYS[way](model, ids), library(ids, use_cache=False).logits
    same = agreement(found, theirs[:, -found.shape[1] :])
    return same["relative_difference"] if same["same_argmax"] == same["positions"] else 1.0


class Families(unittest.TestCase):
    @slow
    def test_every_way_of_every_case(self):
        seen = set()
        for case, kind, changes in CASES:
            library = peers.library_tiny(kind, **changes)
            own = peers.by_files(library)
            seen.add(kind)
            for model in (own, general_form(own)):
                for way in WAYS:
                    with self.subTest(case, way=way, program=program(model).__name__):
                        self.assertLessEqual(worst(way, model, library), BOUND)
        self.assertEqual(seen, set(READERS))
        self.assertEqual(set(PROGRAMS), set(READERS))

    def test_greedy_text(self):
        for kind in READERS:
            library = peers.library_tiny(kind)
            model = peers.by_files(library)
            ids = random_ids(model, 9)
            ours = generate(ids, model, 12, end=None, forward=Cached(model)).sequence()
            self.assertEqual(ours, library_greedy(library, ids, 12), kind)

    def test_a_program_has_the_same_few_functions(self):
        for kind in READERS:
            model = peers.by_files(peers.library_tiny(kind))
            for module, names in (
                (program(model), ("forward", "pass_over", "unembed", "new_cache")),
                (formulas(model.config), ("parameter_count", "flops_per_token", "flops_per_pass")),
            ):
                for name in names:
                    self.assertTrue(callable(getattr(module, name)), (module, name))

    def test_planted_faults(self):
        """A fault for each way, and the ways that see it."""
        right_positions, right_extend = kv_cache.positions, KVCache.extend

        def sees_all(past, new, device="cpu"):
            return None

        def one_early(past, new, device="cpu"):
            return right_positions(max(0, past - 1), new)

        def forgets_two(cache, layer, k, v):
            keys, values = right_extend(cache, layer, k, v)
            return (keys[:, :, 2:], values[:, :, 2:]) if cache.length > 2 else (keys, values)

        for kind in ("gpt2", "llama", "mistral", "gemma2", "bloom", "deepseek_v3"):
            library = peers.library_tiny(kind)
            model = peers.by_files(library)
            for target, name, fault, ways in (
                (kv_cache, "mask_after", sees_all, ("in chunks",)),
                (KVCache, "extend", forgets_two, ("in chunks", "cached")),
                *([(kv_cache, "positions", one_early, ("in chunks", "cached"))] if kind not in ("mistral",) else []),
            ):
                with mock.patch.object(target, name, fault):
                    for way in ways:
                        try:
                            found = worst(way, model, library)
                        except RuntimeError:  # a mask that does not fit: seen, and loudly
                            continue
                        self.assertGreater(found, 20 * BOUND, (kind, name, way))
            right = program(model).unembed
            with mock.patch.object(program(model), "unembed", lambda x, *rest, right=right: right(x.roll(1, -1), *rest)):
                for way in WAYS:
                    self.assertGreater(worst(way, model, library), 20 * BOUND, (kind, way))

    def test_without_the_mask_a_layer_with_a_window_keeps_its_rope(self):
        model = peers.by_files(peers.library_tiny("gemma3_text"))
        ids, with_mask, without = random_ids(model, TOKENS), Trace("k", "A"), Trace("k", "A")
        run(model, ids, trace=with_mask)
        run(model, ids, causal=False, trace=without)
        self.assertNotEqual(model.config.rope, model.config.window_rope)
        self.assertTrue(torch.equal(with_mask["k", 0], without["k", 0]))  # what goes in is the same: nothing has attended yet
        self.assertTrue((without["A", 0] > 0).all())
        self.assertFalse((with_mask["A", 0] > 0).all())

    def test_a_window_that_is_not_cut(self):
        library = peers.library_tiny("mistral")
        model = peers.by_files(library)
        right = variants.windowed
        with mock.patch.object(variants, "windowed", lambda mask, back, window: right(mask, back, None)):
            self.assertGreater(worst("plain", model, library), 20 * BOUND)


def chosen(*names):
    return [case for case in CASES if case[0] in names]


class Measurements(RoomCase):
    """What is recorded of every case, on a few."""

    def test_a_case(self):
        # the embedding, final norm and logits; of each layer all but the scores, of a Llama all but them and q, of the others the
        # weights, and the stream but for the last one
        for name, points in (("gpt2", 3 + 3 * 11), ("llama", 3 + 3 * 10), ("mixtral", 3 + 3 + 2)):
            row = case_agreement(*chosen(name)[0])
            self.assertLessEqual(max(row["worst"], row["worst_point"]), BOUND)
            self.assertEqual((row["points"], row["above_diagonal"]), (points, 0.0))
            self.assertEqual(row["same_argmax"], row["positions"])
            self.assertEqual(row["parameters"], row["library_parameters"])

    def test_the_worst_point_is_the_worst(self):
        right = family_agreement.library_trace

        def off(library, ids):
            found = right(library, ids)
            found["residual", 1] = found["residual", 1] * 1.1
            return found

        with mock.patch.object(family_agreement, "library_trace", off):
            self.assertGreater(case_agreement("gpt2", "gpt2", {})["worst_point"], 1e-2)
            self.assertFalse(measure(chosen("gpt2"))["held"])

    def test_options(self):
        found = measure(chosen("gpt2", "llama"))
        self.assertTrue(found["held"])
        self.assertEqual((found["count"], found["model_types"], found["options"]), (2, 2, len(OPTIONS)))
        takers = {(r["choice"], r["option"]): r["takers"] for r in found["by_option"]}
        self.assertEqual(takers["normalisation", "layer norm"], 1)
        self.assertEqual(takers["place of the norm", "pre"], 2)
        self.assertEqual(takers["attention", "MLA"], 0)
        self.assertEqual(found["options_verified"], sum(n > 0 for n in takers.values()))

    def test_every_option_is_in_some_case(self):
        taken = set()
        for _, kind, changes in CASES:
            config = general_form(peers.by_files(peers.library_tiny(kind, **changes))).config
            taken |= set(family_agreement.options_of(config).items())
        self.assertEqual({(choice, option) for choice, option, _ in OPTIONS} - taken, set())
        self.assertEqual(len({choice for choice, _, _ in OPTIONS}), 10)

    def test_planted_faults_break_the_records(self):
        right = variants.windowed
        wider = lambda mask, back, window: right(mask, back, window and window + 1)  # noqa: E731
        counts = family_agreement.cache_bytes
        for module, name, wrong, kind, measurement in (
            (llama, "rotate", llama.rotate_interleaved, "llama", measure),
            (variants, "windowed", wider, "mistral", measure),
            (family_agreement, "parameter_count", lambda config: {"total": 1}, "gpt2", measure),
            (family_agreement, "above_diagonal", lambda matrix: 1e-9, "gpt2", measure),
            (family_agreement, "cache_bytes", lambda *args: counts(*args) + 4, "gemma2", measure_cached),
            (kv_cache, "mask_after", lambda past, new, device="cpu": None, "gpt2", measure_cached),
        ):
            self.assertTrue(measurement(chosen(kind))["held"], kind)
            with mock.patch.object(module, name, wrong):
                self.assertFalse(measurement(chosen(kind))["held"], name)

    def test_the_script(self):
        value = self.values(family_agreement.main, "--family", "deepseek_v3")
        self.assertEqual([r["case"] for r in value["families"]["cases"]], ["deepseek_v3", "deepseek_v3, plain queries"])
        self.assertEqual(value["cached"]["positions"], 2 * 2 * 3 * 40)  # cases, forms, splits
        self.assertIn("Within the bounds", self.page(family_agreement.main, "--family", "gemma2"))
        self.assertBad(family_agreement.main, ["--family", "mamba"], "invalid choice")


class EarlierChapters(RoomCase):
    """Chapter 4's scripts on a folder of every family."""

    @slow
    def test_tour_agreement_and_mask(self):
        for kind in peers.TINY:
            folder = self.folder / kind
            peers.library_tiny(kind).save_pretrained(folder)
            for main in (tour.main, causal_mask.main, ch04_agreement.main):
                found = self.values(main, "--model", folder)
                if "agreement" in found:
                    self.assertTrue(found["agreement"]["held"], kind)
                    self.assertTrue(found["layers"]["held"], kind)
                if "mask" in found:
                    self.assertEqual(found["mask"]["influence_above_diagonal"], 0.0)
                    self.assertEqual(found["mask"]["sharpened_above_diagonal"], 0.0)
        self.assertBad(tour.main, ["--model", self.folder / "xglm", "--dtype", "float64"], "takes no float64")


if __name__ == "__main__":
    unittest.main()
