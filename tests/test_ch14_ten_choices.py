"""The ten choices in words: which option a config takes, what is said of each family, and the script."""

import json
import unittest
from dataclasses import replace

from examples.ch02.config import general
from examples.ch02.families import read_config
from examples.ch14 import ten_choices
from examples.ch14.configs import config_named, published
from examples.ch14.peers import TINY
from examples.ch14.ten_choices import OPTIONS, explain, options_of, users
from examples.lab.script import parse_json
from tests.support import FolderCase, call, config


def tiny(kind, **changes):
    """The general Config of a tiny model's config.json with `changes`."""
    return general(read_config(TINY[kind] | changes | {"model_type": kind}, "c"))


class Words(unittest.TestCase):
    def test_every_option_is_taken(self):
        self.assertEqual(len({choice for choice, _, _ in OPTIONS}), 10)
        unused = [(c, o) for c, o, _ in OPTIONS if (c, o) not in users()]
        self.assertEqual(unused, [("activation", "SiLU")])
        self.assertEqual(set(users()) - {(c, o) for c, o, _ in OPTIONS}, set())

    def test_explain_says_what_a_family_has(self):
        said = {name: " ".join(explain(config_named(name))) for name in published()}
        for name, words in (
            ("gpt", ("and the sum is normalised", "there is no norm before the output matrix", "GELU, tanh form")),
            ("gpt2", ("plus the position's row", "transposed, gives the logits", "has a bias")),
            ("bloom-560m", ("ALiBi", "is then layer-normalised")),
            ("xglm-564m", ("counted from 2", "GELU, exact", "times 32")),
            ("mistral-7b", ("sees 4,096 positions, itself included, in every layer",)),
            ("qwen3-30b-a3b", ("128 experts", "8 for each token", "softmax over all, the chosen ones renormalised")),
            ("mixtral-8x7b", ("8 experts", "2 for each token", "softmax over all")),
            ("qwen2-7b", ("Biases: on q, k and v", "sees itself and all before it")),
            ("qwen3-4b", ("RMS-normalised by themselves", "32 x 128, not the width 2,560")),
            ("gemma-2b", ("gains stored as what they differ from 1", "MQA", "gated GELU, tanh form")),
            ("gemma-2-9b", ("stay within 50", "stay within 30", "21 of 42 layers", "normalised before it is added")),
            ("gemma-3-1b", ("22 of 26 layers", "theta 1,000,000; in layers with a window theta 10,000")),
            (
                "deepseek-v3",
                ("MLA, 128 heads", "yarn", "first 3 layers", "256 experts", "1 more for every token", "not 1 / sqrt(192)"),
            ),
            ("llama-3.2-1b", ("divided by 32 (llama3)", "8 of keys and values, each shared by 4")),
            ("smollm2-135m", ("theta 100,000",)),
        ):
            for word in words:
                self.assertIn(word, said[name], name)
        switches = dict(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True)
        lines = " ".join(explain(general(config(**switches))))
        for word in ("divided by the layer's number", "of float32 even where weights are narrower"):
            self.assertIn(word, lines)
            self.assertNotIn(word, said["gpt2"])
        for lines in said.values():
            self.assertNotIn("None", lines)

    def test_at_the_edges(self):
        c = tiny("deepseek_v3", first_k_dense_replace=3)
        self.assertEqual(options_of(c)["feed-forward"], "dense")
        self.assertNotIn("experts", " ".join(explain(c)))
        c = tiny("deepseek_v3", norm_topk_prob=False)
        self.assertIn("times 1.7", " ".join(explain(c)))
        self.assertNotIn("renormalised", " ".join(explain(c)))
        lines = " ".join(explain(tiny("qwen3_moe")))  # of three layers the one in the middle is dense
        for words in ("in 1 of the 3 layers", "Feed-forward in the others: 5 experts"):
            self.assertIn(words, lines)
        self.assertNotIn("after them", lines)
        c = tiny("gpt2", n_head=1)
        self.assertEqual(options_of(c)["attention"], "MHA")
        self.assertEqual(options_of(replace(c, activation="relu"))["activation"], "relu")
        self.assertIn("2 matrices", " ".join(explain(c)))
        self.assertIn("3 matrices", " ".join(explain(config_named("llama-3-8b"))))


class Script(FolderCase):
    def test_who_takes_what(self):
        status, text, err = call(ten_choices.main)
        self.assertEqual((status, err), (0, ""))
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        found = parse_json(call(ten_choices.main, "--json")[1])["choices"]["options"]
        self.assertEqual([(r["choice"], r["option"]) for r in found], [(c, o) for c, o, _ in OPTIONS])
        self.assertEqual({(r["choice"], r["option"]): r["families"] for r in found}["attention", "MLA"], ["deepseek_v3"])

    def test_one_config(self):
        (self.folder / "config.json").write_text(json.dumps(published()["qwen3-4b"]["config"]))
        for source, kind, words in (
            (self.folder, "qwen3", "RMS-normalised"),
            (self.folder / "config.json", "qwen3", "RMS-normalised"),
            ("embedded", "gpt2", "has a bias"),
            ("gemma-2-9b", "gemma2", "stay within 50"),
        ):
            status, text, err = call(ten_choices.main, "--config", source)
            self.assertEqual((status, err), (0, ""))
            self.assertIn(words, text)
            found = parse_json(call(ten_choices.main, "--config", source, "--json")[1])["explain"]
            self.assertEqual((found["model_type"], found["lines"]), (kind, explain(config_named(source))))

    def test_bad_input(self):
        (self.folder / "config.json").write_text(json.dumps({"model_type": "mamba"}))
        (self.folder / "no.json").write_text("{")
        for source, words in (
            ("llama-9", ("no config llama-9",)),
            (self.folder, ("model_type is 'mamba'", "known here are")),
            (self.folder / "no.json", ("is not strict JSON",)),
        ):
            self.assertBad(ten_choices.main, ["--config", source], *words)


if __name__ == "__main__":
    unittest.main()
