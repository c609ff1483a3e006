"""A number that a narrower dtype cannot hold is noticed where it is lost, whatever loads it; eight-bit weights are refused, with
what to do about it."""

import unittest
from unittest import mock

import torch
from safetensors.torch import save_file

from examples.ch02 import manifest
from examples.ch02 import model as ch02
from examples.ch02.model import converted, load, random_model, run
from examples.ch04 import agreement
from examples.lab.script import BadInput
from tests.gguf_writer import write as write_gguf
from tests.support import IDS, FolderCase, G, call, llama_fields, llama_model, model, slow, write_folder

LARGE = 70_000.0  # half precision ends at 65,504


def with_one(weights, name, value):
    """The weights, one number of one tensor being another."""
    changed = weights[name].clone()
    changed.view(-1)[-1] = value
    return weights | {name: changed}


class TooLarge(FolderCase):
    def assertNoticed(self, make, name, *words):
        with self.assertRaises(BadInput) as caught:
            make()
        message = str(caught.exception)
        for word in (name, "70,000", "float16 ends at 65,504", *words):
            self.assertIn(word, message)
        self.assertEqual(len(message.splitlines()), 1)

    def test_each_loader(self):
        name, half = "h.1.mlp.c_fc.weight", torch.float16
        made = model()
        folder = write_folder(self.folder / "a", with_one(made.weights, name, LARGE))
        self.assertNoticed(lambda: load(folder, dtype=half), name, str(folder))
        tiny = llama_model(head_dim=8)
        part = "model.layers.1.mlp.up_proj.weight"
        large = llama_model(head_dim=8).weights
        path = write_gguf(self.folder / "m.gguf", ch02.replace(tiny, weights=with_one(large, part, LARGE)))
        self.assertNoticed(lambda: load(path, dtype=half), part, "m.gguf")
        self.assertNoticed(lambda: load(folder).to(dtype=half), name, str(folder))
        self.assertNoticed(lambda: ch02.replace(made, weights=with_one(made.weights, name, LARGE)).to(half), name, "the model")
        with mock.patch.object(ch02, "random_tensor", lambda name, shape, seed: torch.full(shape, LARGE)):
            self.assertNoticed(lambda: random_model(G, dtype=half, source="random:tiny"), "wte.weight", "random:tiny")
        for wide in (torch.float32, torch.bfloat16, torch.float64):
            self.assertTrue(all(w.isfinite().all() for w in load(folder, dtype=wide).weights.values()))

    def test_the_script_says_it_in_one_line(self):
        name = "wte.weight"
        folder = write_folder(self.folder / "a", with_one(model().weights, name, LARGE))
        argv = ["--model", folder, "--dtype", "float16"]
        self.assertBad(agreement.main, argv, name, "70,000", "float16 ends at 65,504", "take a wider dtype")

    def test_the_bound(self):
        for value, lost in ((65504.0, False), (65519.0, False), (65520.0, True), (-65520.0, True), (-65504.0, False)):
            tensor = torch.tensor([1.0, value])
            if lost:
                with self.assertRaisesRegex(BadInput, "float16 ends at"):
                    converted(tensor, torch.float16, "a")
            else:
                self.assertTrue(converted(tensor, torch.float16, "a").isfinite().all())
        with self.assertRaisesRegex(BadInput, "a holds 1e\\+300, and float32 ends at 3.40282e\\+38"):
            converted(torch.tensor([1e300], dtype=torch.float64), torch.float32, "a")
        with self.assertRaisesRegex(BadInput, "bfloat16 ends at 3.38953e\\+38"):
            converted(torch.tensor([3.4e38]), torch.bfloat16, "a")

    def test_what_was_infinite_before_is_not_made(self):
        """`load_for` speaks of that, with the dtype that it is in; nothing is copied where nothing changes."""
        tensor = torch.tensor([torch.inf, torch.nan, 1.0])
        self.assertEqual(converted(tensor, torch.float16, "a")[2], 1)
        self.assertIs(converted(tensor, torch.float32, "a"), tensor)
        self.assertIs(converted(tensor, None, "a"), tensor)
        self.assertTrue(converted(torch.empty(3, device="meta"), torch.float16, "a").is_meta)
        folder = write_folder(self.folder, with_one(model().weights, "wte.weight", torch.inf))
        self.assertTrue(load(folder, dtype=torch.float16).weights["wte.weight"].isinf().any())
        self.assertBad(agreement.main, ["--model", folder, "--dtype", "float16"], "wte.weight holds NaN or infinity")

    def test_the_fault(self):
        """Without the check an infinity goes on, and makes every logit a NaN."""
        folder = write_folder(self.folder, with_one(model().weights, "h.1.mlp.c_fc.weight", LARGE))
        with mock.patch.object(ch02, "converted", lambda tensor, dtype, *rest: tensor.to(dtype or tensor.dtype)):
            made = load(folder, dtype=torch.float16)
        self.assertFalse(run(made.to(torch.float32), IDS).isfinite().all())


def quantised(weights, block=4):
    """({name: F8_E4M3 tensor, and its scales}, {name: what they mean}), as DeepSeek-V3 has them: a scale for each square."""
    stored, meant = {}, {}
    for name, w in weights.items():
        if w.ndim < 2 or "proj" not in name:
            stored[name] = meant[name] = w
            continue
        rows, columns = w.shape
        padded = torch.zeros(-(-rows // block) * block, -(-columns // block) * block)
        padded[:rows, :columns] = w
        squares = padded.unflatten(0, (-1, block)).unflatten(-1, (-1, block))  # [R, block, C, block]
        scales = squares.abs().amax((1, 3)) / 448  # [R, C]; 448 is the largest number of the format
        full = scales.repeat_interleave(block, 0).repeat_interleave(block, 1)[:rows, :columns]
        stored[name] = (w / full).to(torch.float8_e4m3fn)
        stored[f"{name}_scale_inv"] = scales
        meant[name] = stored[name].float() * full
    return stored, meant


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [4, 4]}


class EightBits(FolderCase):
    def test_refused_with_what_to_do(self):
        stored, _ = quantised(llama_model().weights)
        folder = write_folder(self.folder / "a", stored, llama_fields() | {"quantization_config": FP8})
        what = ("packed (fp8)", "FineGrainedFP8Config(dequantize=True)", "save_pretrained")
        self.assertBad(manifest.main, ["--model", folder], "quantization_config", *what)
        folder = write_folder(self.folder / "b", stored, llama_fields())
        self.assertBad(manifest.main, ["--model", folder], "down_proj.weight is F8_E4M3, quantised", *what[1:])
        for other, method in (
            ({"quant_method": "gptq", "bits": 4}, "packed (gptq)"),
            ({"bits": 4}, "packed, and"),
            (True, "packed, and"),
        ):
            folder = write_folder(self.folder / "c", values=G | {"quantization_config": other})
            self.assertBad(manifest.main, ["--model", folder], "quantization_config", method)

    def test_each_narrow_dtype(self):
        narrow = {"F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu, "F8_E4M3": torch.float8_e4m3fn}
        for name, dtype in narrow.items():
            folder = write_folder(self.folder)
            save_file({"wte.weight": torch.ones(11, 8).to(dtype)}, folder / "model.safetensors")
            self.assertBad(manifest.main, ["--model", folder], f"wte.weight is {name}, quantised")

    @slow
    def test_what_the_line_says_works(self):
        from transformers import AutoModelForCausalLM, FineGrainedFP8Config, logging

        logging.set_verbosity_error()
        stored, meant = quantised(llama_model().weights)
        folder = write_folder(self.folder / "a", stored, llama_fields() | {"quantization_config": FP8})
        how = FineGrainedFP8Config(dequantize=True, weight_block_size=(4, 4))
        library = AutoModelForCausalLM.from_pretrained(folder, quantization_config=how, dtype=torch.float32)
        library.save_pretrained(self.folder / "b")
        ours = load(self.folder / "b")
        for name, w in meant.items():
            self.assertTrue(torch.equal(ours.weights[name], w), name)
        self.assertEqual(call(manifest.main, "--model", self.folder / "b")[0], 0)


if __name__ == "__main__":
    unittest.main()
