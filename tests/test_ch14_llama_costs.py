"""A Llama's costs: parameters as its tensors have them, FLOPs as PyTorch's counter sees them, the visible pairs token by token."""

import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.families import formulas
from examples.ch02.layout import tensor_shapes
from examples.ch14 import llama_from_scratch as llama
from examples.lab.script import BadInput
from tests.support import IDS
from tests.support import llama_config as config
from tests.support import llama_model as model

MODEL = model()
COSTS = formulas(MODEL.config)
parameter_count, flops_per_token, flops_per_pass = COSTS.parameter_count, COSTS.flops_per_token, COSTS.flops_per_pass
SWITCHES = (
    *({}, dict(tie_word_embeddings=True), dict(attention_bias=True), dict(mlp_bias=True), dict(head_dim=6)),
    *(dict(num_key_value_heads=1), dict(num_key_value_heads=4), dict(num_hidden_layers=3, intermediate_size=20)),
)


class Costs(unittest.TestCase):
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
            self.assertEqual(parameter_count(of), self.counted(of), changes)
        self.assertEqual(parameter_count(MODEL.config)["total"], 1560)
        sizes = dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9)
        smollm2 = config(**sizes, num_key_value_heads=3, head_dim=None, tie_word_embeddings=True)
        self.assertEqual(parameter_count(smollm2)["total"], 134_515_008)
        both = config(attention_bias=True, mlp_bias=True)
        self.assertEqual(parameter_count(both)["total"] - 1560, 2 * (16 + 2 * 8 + 8 + 2 * 12 + 8))

    def test_flops_of_a_token(self):
        self.assertEqual([flops_per_token(MODEL.config, c)["total"] for c in (8, 1)], [3888, 2992])
        sizes = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32)
        big = config(**sizes, num_key_value_heads=8, head_dim=None, max_position_embeddings=8192)  # Llama-3-8B
        self.assertEqual(flops_per_token(big, 8192)["total"], 19_304_284_160)
        all_heads = flops_per_token(replace(big, kv_heads=32), 8192)
        fewer = flops_per_token(big, 8192)
        self.assertEqual(fewer["attention_scores_and_values"], all_heads["attention_scores_and_values"])
        self.assertEqual(fewer["attention_projections"] * 8, all_heads["attention_projections"] * 5)
        for context in (0, 65, -1):
            with self.assertRaisesRegex(BadInput, f"context {context} is not within 1 to n_positions 64"):
                flops_per_token(MODEL.config, context)

    def test_full_is_what_the_program_executes(self):
        for changes in SWITCHES:
            made = model(**changes)
            for batch, tokens in ((1, 1), (1, 8), (2, 8), (1, 64)):
                ids = torch.zeros(batch, tokens, dtype=torch.int64)
                with FlopCounterMode(display=False) as counter:
                    llama.forward(ids, made.weights, made.config)
                self.assertEqual(counter.get_total_flops(), flops_per_pass(made.config, tokens, batch)["total"], changes)

    def test_causal_is_token_by_token(self):
        of = MODEL.config
        for tokens in (1, 8, 64):
            one_by_one = [flops_per_token(of, context) for context in range(1, tokens + 1)]
            for batch in (1, 3):
                found = flops_per_pass(of, tokens, batch, pairs="causal")
                self.assertEqual(found, {name: batch * sum(n[name] for n in one_by_one) for name in found})
        with self.assertRaisesRegex(BadInput, "half"):
            flops_per_pass(of, 8, pairs="half")

    def test_what_a_pass_costs_is_not_told_by_a_wrong_program(self):
        """The counter sees the difference where the program repeats its work."""
        right = llama.mlp
        with (
            mock.patch.object(llama, "mlp", lambda *args: right(*args) + 0 * right(*args)),
            FlopCounterMode(display=False) as counter,
        ):
            llama.forward(IDS, MODEL.weights, MODEL.config)
        parts = flops_per_pass(MODEL.config, 8)
        self.assertEqual(counter.get_total_flops(), parts["total"] + parts["feed_forward"])


if __name__ == "__main__":
    unittest.main()
