"""Chapter 2's manifest: what a model is made of, each file with its digest and each tensor with its bytes, is what lies there."""

import hashlib
import json
import unittest

import torch

from examples.ch02.layout import tensor_shapes
from examples.ch02.manifest import main
from tests.loading import LoadCase
from tests.support import call, config, weights, write_folder


class Script(LoadCase):
    def test_manifest(self):
        folder = write_folder(self.folder / "a", weights() | {"h.0.attn.masked_bias": torch.tensor(-1e4)})
        status, out, _ = call(main, "--model", folder, "--json")
        manifest = json.loads(out)
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        self.assertEqual((status, manifest["parameters"], manifest["head"]), (0, 1976, "tied"))
        self.assertEqual([f["sha256"] for f in manifest["files"] if f["name"] == "model.safetensors"], [digest])
        self.assertEqual(sum(t["bytes"] for t in manifest["tensors"]), 4 * 1976)
        self.assertEqual([b["name"] for b in manifest["buffers"]], ["h.0.attn.masked_bias"])
        self.assertEqual([t["name"] for t in manifest["tensors"]], list(tensor_shapes(config())))
        self.assertEqual([f["bytes"] for f in manifest["files"]], [(folder / f["name"]).stat().st_size for f in manifest["files"]])
        random = json.loads(call(main, "--model", "random:distilgpt2", "--json", "--seed", "3")[1])
        self.assertEqual((random["seed"], {t["dtype"] for t in random["tensors"]}), (3, {"F32"}))
        self.assertEqual(sum(t["bytes"] for t in random["tensors"]), 4 * random["parameters"])
        kinds = call(main, "--model", folder)[1]
        self.assertIn(f"{2 * 8 * 24 * 4:,}", next(row for row in kinds.splitlines() if "h.*.attn.c_attn.weight" in row))
        for more in ([], ["--tensors"]):
            status, out, err = call(main, "--model", folder, *more)
            self.assertEqual((status, err), (0, ""))
            for text in (digest, "parameters: 1,976 numbers in 28 tensors, 7,904 bytes", "buffers: 1 number in 1 tensor, 4 bytes."):
                self.assertIn(text, out)
        self.assertIn("h.1.mlp.c_proj.bias", out)

    def test_bad_options(self):
        self.assertBad(main, ["--modle", "x"], "--modle", "--help")
        self.assertBad(main, ["--seed", "-1"], "-1 is not 0")
        self.assertBad(main, ["--seed", "one"], "'one' is not a whole number")

    def test_help(self):
        status, out, _ = call(main, "--help")
        self.assertEqual(status, 0)
        for text in ("(default:\n                  embedded)", "examples:\n  python examples/ch02/manifest.py"):
            self.assertIn(text, out)


if __name__ == "__main__":
    unittest.main()
