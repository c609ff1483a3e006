"""A Llama's pass beside a GPT-2's: the programs are called alike, and their traces show the same points with a cache too."""

import inspect
import unittest

import torch

from examples.ch02.families import formulas, program
from examples.ch02.model import general_form
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch10.kv_cache import KVCache, forward_cached
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import variants
from tests.support import IDS, llama_model, model

GPT2, MODEL = model(), llama_model()


class Programs(unittest.TestCase):
    def test_the_programs_are_called_alike(self):
        programs = [program(GPT2), program(MODEL), program(general_form(GPT2))]
        self.assertEqual(programs, [gpt2, llama, variants])
        costs = [formulas(GPT2.config), formulas(MODEL.config)]
        names = [(programs, name) for name in ("forward", "pass_over", "unembed", "new_cache")]
        for modules, name in [*names, *((costs, name) for name in ("parameter_count", "flops_per_token", "flops_per_pass"))]:
            first, *others = (list(inspect.signature(getattr(one, name)).parameters.values()) for one in modules)
            for parameters in others:
                same, more = parameters[: len(first)], parameters[len(first) :]
                self.assertEqual([(p.name, p.kind, p.default) for p in same], [(p.name, p.kind, p.default) for p in first], name)
                if name not in ("parameter_count", "flops_per_token"):  # of what only other families have
                    self.assertEqual(more, [], name)
                self.assertTrue(all(p.default is not p.empty for p in more), name)

    def test_every_point_in_its_shape_with_a_cache(self):
        ids = torch.cat([IDS, IDS.flip(1)])
        for made, sizes in ((GPT2, dict(h=2, g=2, f=32)), (MODEL, dict(h=4, g=2, f=12))):
            sizes = dict(B=2, T=3, S=8, d=8, dh=4, V=11) | sizes
            kept, cache = gpt2.Trace(), KVCache(made, batch=2)
            forward_cached(ids[:, :5], made, cache)
            forward_cached(ids[:, 5:], made, cache, kept)
            keys = [("embedding", None), *((point, layer) for layer in range(2) for point in gpt2.LAYER_POINTS)]
            self.assertEqual(list(kept), [*keys, ("final_norm", None), ("logits", None)])
            for (point, layer), tensor in kept.items():
                self.assertEqual(tensor.shape, tuple(sizes[letter] for letter in gpt2.POINTS[point].split()), (point, layer))


if __name__ == "__main__":
    unittest.main()
