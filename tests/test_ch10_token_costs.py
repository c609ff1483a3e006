"""All costs of a token in one table: beside PyTorch's counter and the cache's own tensors, and as the chapters have them."""

import unittest

import torch
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.families import program
from examples.ch02.model import load_config
from examples.ch10.cache_cost import flops_of_step
from examples.ch10.kv_cache import KVCache, stream_cached
from examples.ch10.token_costs import EXPERIMENTS, main, measure
from scripts.experiments import ROOT
from scripts.records import read_results, results_path
from tests.rooms import RoomCase
from tests.support import LLAMA, llama_model, model, write_folder


def counted(one, cache, ids):
    """FLOPs that PyTorch sees in a pass over `ids` behind the cache, with logits at the last position."""
    with FlopCounterMode(display=False) as counter:
        program(one).unembed(stream_cached(ids, one, cache)[:, -1:], one.weights, one.config)
    return counter.get_total_flops()


class Costs(unittest.TestCase):
    def test_steps_are_what_the_programs_execute(self):
        """Prefill, a decode step, and the whole text anew, of a GPT-2 and a Llama."""
        for one in (model(), llama_model()):
            ids, cache = torch.zeros(1, 9, dtype=torch.int64), KVCache(one, 1)
            found = [counted(one, cache, ids[:, :8]), counted(one, cache, ids[:, 8:]), counted(one, KVCache(one, 1), ids)]
            self.assertEqual(found, [flops_of_step(one.config, *size) for size in ((0, 8), (8, 1), (0, 9))])

    def test_gpt2(self):
        """By hand: 2 a weight of 12 layers, 4 d a position seen, and one row of the head, whose matrix is the table's."""
        (row,) = measure(["gpt2"])["models"]
        blocks, seen, head = 12 * 2 * 12 * 768**2, 12 * 4 * 768, 2 * 50257 * 768
        self.assertEqual(row["parameters"], 124_439_808)
        self.assertEqual(row["decode_gflop"], (blocks + 513 * seen + head) / 1e9)
        self.assertEqual(row["prefill_gflop"], (512 * (blocks + 512 * seen) + head) / 512 / 1e9)
        self.assertEqual(row["naive_gflop"], (513 * (blocks + 513 * seen) + head) / 1e9)
        self.assertAlmostEqual(row["decode_flop_per_weight_byte"], row["decode_gflop"] * 1e9 / 124_439_808 / 2)
        self.assertAlmostEqual(row["prefill_flop_per_weight_byte"], 512 * row["prefill_gflop"] * 1e9 / 124_439_808 / 2)
        self.assertEqual((row["cache_kib_per_token"], row["cache_gib"]), (36.0, 513 * 36 / 2**20))

    def test_the_record(self):
        """As it was kept, and broken by a cache of half the size."""
        kept = read_results(results_path(ROOT, "ch10"))["ch10.token-costs"]["values"]
        self.assertEqual(EXPERIMENTS[0].values(), kept)
        gpt3 = kept["models"][-1]
        self.assertEqual((gpt3["cache_kib_per_token"], f"{gpt3['weight_gib']:.1f}"), (4608.0, "325.2"))
        self.assertEqual(measure(bytes_per_number=1)["models"][-1]["cache_kib_per_token"], 2304.0)


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        for words in ("124,439,808", "1,557,611,200", "4,608", "A prompt of 512 tokens, and then a new one"):
            self.assertIn(words, page)
        folder = write_folder(self.folder / "m", llama_model().weights, LLAMA)
        value = self.values(main, "--config", folder, "embedded", "llama-3-8b", "--prompt-tokens", 40, "--bytes", 4)
        self.assertMeasured(value, **{"token-costs": measure([str(folder), "embedded", "llama-3-8b"], 40, 4)})
        self.page(main, "--config", "embedded", "llama-3-8b", "--prompt-tokens", 1, "--bytes", 8)

    def test_bad_input(self):
        self.assertBad(main, ["--prompt-tokens", "1024"], "1024 tokens and a new one", "1024 positions of gpt2")
        self.assertEqual(measure(["gpt2"], load_config("gpt2").n_positions - 1)["prompt"], 1023)
        self.assertBad(main, ["--config", "nope"], "no config nope")
        self.assertBad(main, ["--prompt-tokens", "0"], "0 is not 1")


if __name__ == "__main__":
    unittest.main()
