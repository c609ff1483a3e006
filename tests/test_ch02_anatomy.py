"""Chapter 2's anatomy of weight files: the headers read by hand are what the libraries read, and a damaged file is one line."""

import struct
import unittest
from unittest import mock

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from examples.ch02 import anatomy as room
from examples.ch02.anatomy import TYPES, library_reading, main, measure, numbers, product, read
from examples.ch02.model import EMBEDDED
from examples.lab.script import BadInput
from tests import gguf_writer
from tests.rooms import RoomCase
from tests.support import FolderCase, det, llama_model, weights, write_folder

KINDS = gguf.GGMLQuantizationType
WIDE = dict(hidden_size=64, intermediate_size=64, num_attention_heads=4, head_dim=16)  # rows of two blocks


def many_dtypes(path):
    """A safetensors file of every dtype that is read here, a scalar, and a tensor without numbers."""
    dtypes = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
    tensors = {f"t.{d}": torch.arange(6).reshape(2, 3).to(getattr(torch, d)) for d in dtypes}
    save_file(tensors | {"scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4)}, path, metadata={"format": "pt", "ü": "é"})
    return path


def many_blocks(path, **more):
    """A GGUF file of a tiny Llama whose matrices are in blocks of several kinds."""
    kinds = ("Q8_0", "Q4_1", "Q4_0", "Q5_0", "Q5_1", "F16", "BF16")
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    types = {f"blk.0.{name}.weight": getattr(KINDS, kind) for name, kind in zip(names, kinds, strict=True)}
    return gguf_writer.write(path, llama_model(**WIDE), types=types, **more)


class Read(FolderCase):
    def assertAsTheLibrary(self, path):
        found = measure(path)
        self.assertTrue(found["same_metadata"], path)
        self.assertTrue(found["same_tensors"], path)
        self.assertTrue(found["same_bytes"], path)
        self.assertEqual(sum(p["bytes"] for p in found["parts"]), path.stat().st_size)
        return found

    def test_safetensors(self):
        found = self.assertAsTheLibrary(many_dtypes(self.folder / "a.safetensors"))
        self.assertEqual((found["kind"], found["tensors"], found["metadata"]), ("safetensors", 12, 2))
        self.assertEqual(found["dtypes"]["F16"], {"tensors": 1, "numbers": 6, "bytes": 12})
        self.assertAsTheLibrary(write_folder(self.folder / "b") / "model.safetensors")

    def test_safetensors_known_bytes(self):
        header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
        path = self.folder / "a.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2))
        found = read(path)
        [a] = found.tensors
        self.assertEqual((a.name, a.dtype, a.shape, a.begin, a.end), ("a", "F32", (2,), 8 + len(header), 16 + len(header)))
        self.assertEqual(numbers(path, a).view("<f4").tolist(), [1.5, -2])

    def test_gguf(self):
        tokens = {"tokens": ["a", "bé", "c"], "scores": [0.5, 1.5, 2.5], "add_bos_token": True, "eos_token_id": 2}
        path = many_blocks(self.folder / "a.gguf", tokenizer=tokens, fields={"split.count": 0})
        found = self.assertAsTheLibrary(path)
        self.assertEqual(set(found["dtypes"]), {"Q8_0", "Q4_1", "Q4_0", "Q5_0", "Q5_1", "F16", "BF16", "F32"})
        self.assertEqual(read(path).metadata["tokenizer.ggml.tokens"], ["a", "bé", "c"])
        shapes = {t.name: t.shape for t in read(path).tensors}
        self.assertEqual(shapes["blk.0.attn_k.weight"], (32, 64))  # [out, in], the other way round in the file

    def test_gguf_of_every_kind_of_value_and_alignment(self):
        for alignment in (32, 64, 256):
            path = self.folder / f"{alignment}.gguf"
            writer = gguf.GGUFWriter(path, "other")
            writer.add_custom_alignment(alignment)
            for bits in (8, 16, 32, 64):
                getattr(writer, f"add_uint{bits}")(f"u{bits}", 2**bits - 1)
                getattr(writer, f"add_int{bits}")(f"i{bits}", -(2 ** (bits - 1)))
            writer.add_float64("f64", 0.1)
            writer.add_bool("no", False)
            writer.add_array("many", [1, 2, 3])
            writer.add_tensor("one", np.ones((3, 5), np.float32))
            writer.add_tensor("two", np.ones(7, np.float16))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            self.assertAsTheLibrary(path)
            self.assertEqual(read(path).parts["numbers"][0] % alignment, 0)
            self.assertEqual((read(path).metadata["u64"], read(path).metadata["i64"]), (2**64 - 1, -(2**63)))

    def test_blocks_have_the_sizes_that_the_library_knows(self):
        theirs = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
        self.assertEqual(TYPES, {n: theirs[n] for n in TYPES})

    def test_product(self):
        self.assertEqual((product(()), product((2, 3)), product((0, 5)), product((2**40, 2**40))), (1, 6, 0, 2**80))

    def test_what_differs_is_seen(self):
        path = many_dtypes(self.folder / "a.safetensors")
        metadata, tensors = library_reading(path, "safetensors")
        name = "t.float16"
        dtype, shape, data = tensors[name]
        for key, other in (
            ("same_metadata", ({}, tensors)),
            ("same_tensors", (metadata, tensors | {name: ("F32", shape, data)})),
            ("same_tensors", (metadata, tensors | {name: (dtype, (3, 2), data)})),
            ("same_tensors", (metadata, tensors | {"more": (dtype, shape, data)})),
            ("same_bytes", (metadata, tensors | {name: (dtype, shape, data + np.uint8(1))})),
        ):
            with mock.patch.object(room, "library_reading", return_value=other):
                found = measure(path)
            self.assertEqual([k for k in found if k.startswith("same") and not found[k]], [key])


class Damaged(FolderCase):
    def assertRefused(self, path):
        with self.assertRaises(BadInput) as caught:
            read(path)
        self.assertEqual(len(str(caught.exception).splitlines()), 1)
        self.assertIn(path.name, str(caught.exception))

    def small_files(self):
        """A file of each kind, with its number of bytes up to the end of the last tensor."""
        made = many_dtypes(self.folder / "a.safetensors")
        one = gguf_writer.write(self.folder / "a.gguf", llama_model(num_hidden_layers=1), tokenizer={"tokens": ["a", "b"]})
        return [(path, max(t.end for t in read(path).tensors)) for path in (made, one)]

    def test_cut_at_every_byte(self):
        for path, end in self.small_files():
            data, cut = path.read_bytes(), path.with_stem("cut")
            header = read(path).parts["numbers"][0]
            for n in (*range(header + 1), *range(header + 1, end, 97), end - 1):
                cut.write_bytes(data[:n])
                self.assertRefused(cut)
            cut.write_bytes(data)
            self.assertEqual(read(cut), read(path))

    def test_a_flipped_bit_of_the_header_raises_nothing_else(self):
        for path, _ in self.small_files():
            data, other = bytearray(path.read_bytes()), path.with_stem("other")
            refused = 0
            for n in range(0, read(path).parts["numbers"][0]):
                data[n] ^= 1 << n % 8
                other.write_bytes(data)
                data[n] ^= 1 << n % 8
                try:
                    read(other)
                except BadInput as error:
                    refused += 1
                    self.assertEqual(len(str(error).splitlines()), 1)
            self.assertGreater(refused, 100)

    def test_other_files(self):
        for name, data, word in (
            ("a.gguf", b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version"),
            ("a.gguf", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "cut off or damaged"),
            ("a.gguf", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63), "cut off or damaged"),
            ("a.safetensors", b"", "cut off"),
            ("a.safetensors", b"<!doctype html><p>", "web page"),
            ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
            ("a.safetensors", struct.pack("<Q", 2) + b"[]", "damaged header"),
            ("a.bin", b"\x80\x02.", "is a pickle"),
        ):
            path = self.folder / name
            path.write_bytes(data)
            with self.assertRaisesRegex(BadInput, word):
                read(path)

    def test_a_type_that_is_not_known(self):
        path = many_blocks(self.folder / "a.gguf")
        data = path.read_bytes()
        at = data.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 16
        self.assertEqual(data[at], KINDS.Q8_0)
        path.write_bytes(data[:at] + b"\xc8" + data[at + 1 :])
        with self.assertRaisesRegex(BadInput, "200"):
            read(path)

    def test_deep_lists(self):
        path = self.folder / "a.gguf"
        nested = struct.pack("<IQ", 9, 1) * 5000
        path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 9) + nested)
        self.assertRefused(path)


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        self.assertMeasured(self.values(main), anatomy=measure(EMBEDDED / "model.safetensors"))

    def test_pages(self):
        out = self.page(main)
        for text in ("e8 13 00 00", "header, in JSON", "5,096", "transformer.h.0.attn.c_attn.bias", "reads the same"):
            self.assertIn(text, out)
        path = many_blocks(self.folder / "a.gguf", tokenizer={"tokens": [f"piece {i}" for i in range(11)]})
        out = self.page(main, "--file", path)
        for text in ("list of tensors", "47 47 55 46", "11 of them", "Q8_0", "reads the same"):
            self.assertIn(text, out)
        self.page(main, "--file", write_folder(self.folder / "b", {"wte.weight": det("wte.weight", (11, 8))}))
        other = library_reading(path, "GGUF")
        with mock.patch.object(room, "library_reading", return_value=({}, other[1])):
            self.assertIn("something ELSE", self.page(main, "--file", path))

    def test_plot(self):
        for name, path in (("a", EMBEDDED), ("b", many_blocks(self.folder / "b.gguf"))):
            self.assertIn("plot: ", self.drawn(name, path))
        self.assertEqual((self.folder / "a.svg").read_bytes(), (self.folder / "a-again.svg").read_bytes())

    def drawn(self, name, path):
        from tests.support import call

        for file in (f"{name}.svg", f"{name}-again.svg"):
            status, out, err = call(main, "--file", path, "--plot", self.folder / file)
            self.assertEqual((status, err), (0, ""))
        return out

    def test_bad_input(self):
        self.assertBad(main, ["--file", self.folder], "model.safetensors is not there")
        self.assertBad(main, ["--file", self.folder / "none.gguf"], "none.gguf is not there")
        path = write_folder(self.folder / "a", weights()) / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        self.assertBad(main, ["--file", path], "cut off", "fetch it again")
        self.assertBad(main, ["--file", self.folder / "none", "--plot", self.folder / "x.gif"], "x.gif")


if __name__ == "__main__":
    unittest.main()
