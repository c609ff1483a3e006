"""What models take to serve: every column of the table beside the config.json and brute force; the script."""

import functools
import unittest
from collections import deque

from examples.ch14 import costs, serving
from examples.ch14.configs import config_named, published
from examples.ch14.decode_trace import decode_step
from examples.lab.script import finite, parse_json
from tests.support import LLAMA, FolderCase, call, llama_model, write_folder

PUBLISHED = published()
NAMES = tuple(PUBLISHED)
MODEL = llama_model()


@functools.cache
def named(name):
    """The general Config of a published model."""
    return config_named(name)


@functools.cache
def brute_positions(name, tokens):
    """Positions that all layers' caches hold after `tokens`, each kept as a queue that drops its oldest."""
    caches = [deque(maxlen=named(name).window(layer)) for layer in range(named(name).n_layer)]
    for cache in caches:
        cache.extend(range(tokens))
    return sum(map(len, caches))


def pair(name):
    """Numbers of one position's keys and values in a layer, from the config.json."""
    v = PUBLISHED[name]["config"]
    if "kv_lora_rank" in v:
        return v["kv_lora_rank"] + v["qk_rope_head_dim"]
    heads = v.get("num_attention_heads") or v.get("n_head") or v["attention_heads"]
    width = v.get("head_dim") or (v.get("hidden_size") or v.get("n_embd") or v.get("n_embed") or v["d_model"]) // heads
    groups = 1 if v.get("multi_query") or v["model_type"] == "gpt_bigcode" else v.get("num_key_value_heads", heads)
    return 2 * groups * width


class Serving(unittest.TestCase):
    def test_the_table(self):
        rows = serving.serving_table()
        self.assertEqual(sorted(r["model"] for r in rows), sorted(NAMES))
        held = [r["memory_bytes"] for r in rows]
        self.assertEqual(held, sorted(held))
        for r in rows:
            name, c = r["model"], named(r["model"])
            self.assertEqual(r["context"], min(8192, c.n_positions))
            self.assertEqual(r["weight_bytes"], 2 * costs.tensor_table_total(c))
            self.assertEqual(r["cache_bytes"], 32 * 2 * pair(name) * brute_positions(name, r["context"]), name)
            self.assertEqual(r["memory_bytes"], r["weight_bytes"] + r["cache_bytes"])
            self.assertEqual(r["flops_per_token"], costs.flops_per_token(c, r["context"])["total"])
            self.assertEqual(r["step_bytes_per_token"], decode_step(c, r["context"] - 1, 32)["bytes"] / 32)

    def test_the_cheapest_and_the_smallest_of_those_that_reach_8192(self):
        reach = [n for n in NAMES if PUBLISHED[n]["config"].get("max_position_embeddings", 0) >= 8192]
        size = {n: costs.tensor_table_total(named(n)) for n in reach}
        by_hand = {n: 2 * size[n] + 32 * 2 * brute_positions(n, 8192) * pair(n) for n in reach}
        v = serving.measure()
        self.assertEqual([r["model"] for r in v["whole"]], sorted(by_hand, key=by_hand.get))
        self.assertEqual({r["model"]: r["memory_gib"] for r in v["whole"]}, {n: x / 2**30 for n, x in by_hand.items()})
        self.assertEqual((v["cheapest"], v["smallest"]), (min(by_hand, key=by_hand.get), min(size, key=size.get)))
        self.assertEqual((v["cheapest"], v["smallest"], v["cheapest_is_smallest"]), ("gemma-3-1b", "smollm2-135m", False))
        alone = {n: 2 * size[n] + 2 * brute_positions(n, 8192) * pair(n) for n in reach}
        self.assertEqual(v["cheapest_of_one_text"], min(alone, key=alone.get))
        self.assertEqual(set(NAMES) - set(reach), {n for n in NAMES if named(n).n_positions < 8192})

    def test_other_settings(self):
        (row,) = serving.serving_table(["llama-3-8b"], tokens=100, batch=2, bytes_per_number=1)
        self.assertEqual((row["context"], row["weight_bytes"], row["cache_bytes"]), (100, 8_030_261_248, 2 * 100 * 65_536))
        (row,) = serving.serving_table(["gpt2"], tokens=1, batch=1)  # nothing cached yet
        self.assertEqual(row["step_bytes_per_token"], decode_step(named("gpt2"), 0)["bytes"])


class Script(FolderCase):
    def run_json(self, *argv):
        """What is measured, by the strict JSON of a run, whose table is printed without error as well."""
        status, self.text, err = call(serving.main, *argv)
        self.assertEqual((status, err), (0, ""))
        status, out, err = call(serving.main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        return parse_json(out)["costs"]

    def row(self, start):
        """The cells of the printed row that starts so."""
        return next(line for line in self.text.splitlines() if line.startswith(start)).removeprefix(start).split()

    def test_table(self):
        value = self.run_json("--plot", self.folder / "s.svg")
        self.assertTrue((self.folder / "s.svg").read_bytes().startswith(b"<?xml"))
        self.assertEqual(value, finite(serving.measure()))
        self.assertIn("the cheapest to hold is gemma-3-1b,\nand the smallest is smollm2-135m;", self.text)
        for r in serving.serving_table():
            cells = [f"{r['parameters'] / 1e9:,.3f}", f"{r['active'] / 1e9:,.3f}", f"{r['flops_per_token'] / 1e9:,.2f}"]
            cells += [f"{r['kv_bytes_per_token'] / 1024:,.1f}", f"{r['context']:,}", f"{r['weight_bytes'] / 2**30:,.1f}"]
            cells += [f"{r[k] / 2**30:,.1f}" for k in ("cache_bytes", "memory_bytes")]
            cells += [f"{r['step_bytes_per_token'] / 2**20:,.0f}"]
            self.assertEqual(self.row(r["model"] + " "), cells)

    def test_some(self):
        tiny = write_folder(self.folder / "tiny", MODEL.weights, LLAMA)
        value = self.run_json("--config", "gpt2", tiny, "embedded", "--context", "64", "--batch", "2", "--bytes", "4")
        rows = {r["model"]: r for r in value["models"]}
        self.assertEqual(set(rows), {"gpt2", str(tiny), "embedded"})
        for key, size in (("weight_gib", 4 * 1560), ("cache_gib", 2**14)):
            self.assertAlmostEqual(rows[str(tiny)][key] * 2**30 / size, 1, places=6)
        self.assertIn("which is also the smallest", self.text)
        value = self.run_json("--config", "gpt2", "--context", "2000")  # nothing reaches it
        self.assertIsNone(value["cheapest"])
        self.assertIn("None of these has 2,000 positions.", self.text)

    def test_bad_input(self):
        self.assertBad(serving.main, ["--config", "gpt2", "nope"], "no config nope", "llama-3-8b")
        for option in ("--batch", "--context"):
            for value in ("0", "1" + "0" * 400):
                self.assertBad(serving.main, [option, value], option, "is not 1 to 1000000000")
        self.assertBad(serving.main, ["--bytes", "9"], "--bytes", "9 is not 1 to 8")
        self.assertBad(serving.main, ["--plot", "s.txt"], ".svg")


if __name__ == "__main__":
    unittest.main()
