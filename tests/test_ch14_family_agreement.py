"""Every family in every way of running it, each beside transformers: plain, in chunks, with a cache, the last position only; by its
own program and by the configurable forward; and each way is seen to fail on a planted fault."""

import unittest
from unittest import mock

import torch

from examples.ch02.families import PROGRAMS, READERS, program
from examples.ch02.model import general_form, run
from examples.ch03.tokens import random_ids
from examples.ch04 import agreement as ch04
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch05.generate import generate, whole_text
from examples.ch05.repetition import library_greedy
from examples.ch10 import kv_cache
from examples.ch10.cache_parity import in_chunks
from examples.ch10.kv_cache import Cached, KVCache
from examples.ch14 import family_agreement as ex
from examples.ch14 import peers, variants

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
    same = ch04.agreement(found, theirs[:, -found.shape[1] :])
    return same["relative_difference"] if same["same_argmax"] == same["positions"] else 1.0


class Families(unittest.TestCase):
    def test_every_way_of_every_case(self):
        seen = set()
        for case, kind, changes in ex.CASES:
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
        for module in set(PROGRAMS.values()):
            names = vars(__import__(module, fromlist=["forward"]))
            for name in ("forward", "pass_over", "unembed", "new_cache", "parameter_count", "flops_per_token", "flops_per_pass"):
                self.assertTrue(callable(names[name]), (module, name))

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


if __name__ == "__main__":
    unittest.main()
