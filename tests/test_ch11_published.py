"""What the source texts printed of capacity and limits, recomputed; every entry says by what, or why by nothing."""

import unittest

from examples.ch02.families import formulas
from examples.ch02.model import load_config
from examples.ch10.cache_memory import GPT3
from examples.ch11 import capacity, gpt3_memory
from examples.ch11.capacity import machine, rates_of
from examples.ch11.operations import operations
from examples.ch14.decode_trace import decode_step
from examples.lab.script import read_json
from scripts.compare_published import verdict
from tests.support import ROOT

ENTRIES = {e["id"]: e for e in read_json(ROOT / "research" / "ch11" / "published.json")["entries"]}
LLAMA = load_config("llama-3-8b")


class Published(unittest.TestCase):
    def check(self, id, measured, same=True):
        """The verdict on an entry: the same number, or a slip of the text's that is told as one."""
        entry = ENTRIES[id]
        self.assertEqual(verdict(entry, measured)[0], "same" if same else "different", (id, measured))
        self.assertEqual(entry.get("slip", False), not same, id)

    def test_every_entry_names_what_recomputes_it(self):
        for entry in ENTRIES.values():
            file, _, test = entry["recomputed"].partition(", ")
            if not entry["recomputed"].startswith("not recomputable here: "):
                self.assertTrue((ROOT / file).exists(), entry)
                self.assertTrue(hasattr(Published, test), entry)

    def test_gpt3(self):
        found = gpt3_memory.measure()
        self.check("shared-weights-gib", found["weights_gib"])
        self.check("sequence-cache-gib", found["cache_gib_each"])
        self.check("concurrent-sequences", found["sequences_below"])

    def test_intensity(self):
        """FLOPs of a layer's feed-forward matrices for each byte of them, in GPT-3's shape, and what an H100 asks for."""
        for tokens, past, id in ((16, 0, "prefill-intensity-16"), (1, 2047, "decode-intensity")):
            row = next(r for r in operations(GPT3, tokens, past, 1, 2) if r["operation"] == "feed-forward in")
            self.check(id, row["flops"] / row["weight_bytes"])
        self.check("compute-bound-at", capacity.limits(LLAMA, 2048, machine())["weights_arithmetic_from"], same=False)
        self.assertGreater(rates_of(machine())["ridge_flop_per_byte"], 16 * 18)
        self.assertLess(rates_of(machine("laptop"))["ridge_flop_per_byte"], 16)  # on such a machine it is

    def test_the_line_of_an_h100(self):
        found = capacity.line()
        self.check("h100-compute-ms", found["compute_ms"])
        self.check("h100-memory-ms", found["memory_ms"], same=False)
        self.check("h100-ratio", found["memory_over_compute"], same=False)
        self.check("cache-of-the-token", found["cache_gb"], same=False)
        self.check("weights-of-the-token", capacity.held(LLAMA, 2001)[0] / 1e9)
        self.assertEqual((f"{found['memory_ms']:.2f}", f"{found['memory_over_compute']:.0f}"), ("4.56", "281"))

    def test_shares_of_a_token(self):
        step = decode_step(LLAMA, 2000)

        def percent(key, name):
            return 100 * sum(r[key] for r in step["operations"] if r["operation"].startswith(name)) / step[key]

        self.check("feed-forward-share-of-flops", percent("flops", "feed-forward"))
        self.check("feed-forward-share-of-bytes", percent("weight_bytes", "feed-forward"), same=False)
        self.check("head-share-of-the-token", percent("flops", "head"))
        large = load_config("llama-3-70b")
        self.check("grouped-queries", large.n_head / large.kv_heads)

    def test_launches(self):
        """The product is right; how many a layer has is counted in `operators.py`."""
        self.check("launches", 80 * 10)
        self.check("launch-ms", 80 * 10 * 5e-6 * 1e3)

    def test_a_batch_of_64_at_32k_flips_the_balance(self):
        """The text says so, and gives no number: caches are then more bytes than weights."""
        weights = 2 * formulas(LLAMA).parameter_count(LLAMA)["total"]
        self.assertLess(64 * capacity.held(LLAMA, 128)[1], weights)
        self.assertGreater(decode_step(LLAMA, 32768, 64)["cache_bytes"], 10 * weights)


if __name__ == "__main__":
    unittest.main()
