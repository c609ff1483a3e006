"""Chapter 2's manifest as a file: it is written whole, verify names what changed, and diff holds two tensors at a time."""

import contextlib
import io
import json
import re
import shutil
import unittest
import weakref
from unittest import mock

import torch

from examples.ch02 import bundle_diff, bundle_files, manifest
from examples.ch02.bundle_diff import compare, diff, parts
from examples.ch02.bundle_files import beside, changes, digest, look, manifest_of, read_manifest, verify, write_manifest
from examples.ch02.manifest import main, measure_diff, measure_verify
from examples.ch02.model import EMBEDDED, load
from examples.lab.script import BadInput, parse_json
from tests import gguf_writer
from tests.support import ROOT, FolderCase, G, call, config, llama_model, loaded, weights, write_folder


class Case(FolderCase):
    def bundle(self, name="a", **more):
        """A folder of the tiny GPT-2 with a manifest beside its files."""
        folder = write_folder(self.folder / name, **more)
        write_manifest(str(folder), folder / "manifest.json")
        return folder

    def named(self, folder, path=None):
        """What verify names: [(of, name, change)]."""
        found = verify(str(folder), path or folder / "manifest.json")[1]
        return [(c["of"], c["name"], c["change"]) for c in found]


class Write(Case):
    def test_what_it_holds(self):
        folder = self.bundle()
        value = parse_json((folder / "manifest.json").read_text(encoding="utf-8"))
        self.assertEqual((value["format"], value["version"], value["source"]), ("inference-lab manifest", 1, "a"))
        self.assertEqual([f["name"] for f in value["files"]], ["config.json", "model.safetensors"])
        self.assertEqual([f["bytes"] for f in value["files"]], [(folder / f["name"]).stat().st_size for f in value["files"]])
        self.assertEqual(len(value["tensors"]), len(weights()))
        row = next(t for t in value["tensors"] if t["name"] == "ln_f.bias")
        self.assertEqual(row["sha256"], bundle_files.hashlib.sha256(weights()["ln_f.bias"].numpy().tobytes()).hexdigest())
        self.assertEqual((row["shape"], row["dtype"], row["bytes"], row["file"]), ([8], "F32", 32, "model.safetensors"))
        self.assertEqual((value["parameters"], value["tokenizer_sha256"]), (1976, None))
        self.assertEqual(value["config"]["n_embd"], 8)

    def test_it_is_the_same_each_time(self):
        folder = self.bundle()
        first = (folder / "manifest.json").read_bytes()
        write_manifest(str(folder), folder / "manifest.json")
        self.assertEqual((folder / "manifest.json").read_bytes(), first)

    def test_a_digest_does_not_depend_on_order_or_blanks(self):
        self.assertEqual(digest({"a": 1, "b": [1, 2]}), digest({"b": [1, 2], "a": 1}))
        self.assertNotEqual(digest({"a": 1}), digest({"a": 2}))
        self.assertEqual(digest({}), bundle_files.hashlib.sha256(b"{}").hexdigest())

    def test_where_it_goes_by_default(self):
        folder = write_folder(self.folder / "a")
        self.assertEqual(beside(str(folder)), folder / "manifest.json")
        file = gguf_writer.write(self.folder / "b.gguf", llama_model())
        self.assertEqual(beside(str(file)).name, "b.gguf.manifest.json")
        for source in ("embedded", str(EMBEDDED), "smollm2", "owner/name"):
            self.assertEqual(str(beside(source)), "manifest.json", source)

    def test_hidden_files_and_the_manifest_are_not_listed(self):
        folder = self.bundle()
        (folder / ".git").mkdir()
        (folder / ".git" / "a").write_text("x")
        (folder / ".hidden").write_text("x")
        self.assertEqual(self.named(folder), [])
        (folder / "sub").mkdir()
        (folder / "sub" / "manifest.json").write_text("{}")
        self.assertEqual(self.named(folder), [("file", "sub/manifest.json", "added")])

    def test_what_is_refused(self):
        folder = write_folder(self.folder / "a")
        (folder / "config.json").write_text(json.dumps(G | {"n_layer": 3}))
        with self.assertRaisesRegex(BadInput, "lacks"):
            write_manifest(str(folder), folder / "manifest.json")
        self.assertFalse((folder / "manifest.json").exists())
        other = self.folder / "notes.json"
        other.write_text("mine")
        self.assertBad(main, ["write", "--out", other], "notes.json is there and is no manifest")
        self.assertEqual(other.read_text(), "mine")
        self.assertBad(main, ["write", "--model", "random:gpt2", "--out", self.folder / "m.json"], "drawn from a seed")
        self.assertBad(main, ["write", "--model", self.folder / "none.gguf"], "no such file")
        self.assertBad(main, ["write", "--out", self.folder / "none" / "m.json"], "cannot be written")
        self.assertEqual([p.name for p in self.folder.iterdir() if "partial" in p.name], [])


class Verify(Case):
    def test_nothing(self):
        self.assertEqual(self.named(self.bundle()), [])

    def test_files(self):
        folder = self.bundle()
        (folder / "README.md").write_text("a page")
        self.assertEqual(self.named(folder), [("file", "README.md", "added")])
        write_manifest(str(folder), folder / "manifest.json")
        (folder / "README.md").write_text("A page")
        self.assertEqual(self.named(folder), [("file", "README.md", "content")])
        (folder / "README.md").write_text("A page.")
        self.assertEqual(self.named(folder), [("file", "README.md", "size")])
        (folder / "README.md").unlink()
        self.assertEqual(self.named(folder), [("file", "README.md", "missing")])

    def test_tensors(self):
        path = self.folder / "kept.json"
        folder = self.bundle()
        shutil.copy(folder / "manifest.json", path)
        for i, (change, named) in enumerate(
            (
                ({"ln_f.bias": weights()["ln_f.bias"] + 1}, ("tensor", "ln_f.bias", "numbers")),
                ({"ln_f.bias": weights()["ln_f.bias"].half()}, ("tensor", "ln_f.bias", "dtype")),
                ({"h.0.attn.bias": torch.ones(1, 1, 16, 16)}, ("tensor", "h.0.attn.bias", "added")),
                ({"ln_f.bias": None}, ("tensor", "ln_f.bias", "missing")),
                ({"ln_f.bias": torch.zeros(4)}, ("tensor", "ln_f.bias", "shape")),
            )
        ):
            made = {n: w for n, w in (weights() | change).items() if w is not None}
            other = write_folder(self.folder / f"b{i}", made)
            found = [row for row in self.named(other, path) if row[0] == "tensor"]
            self.assertEqual(found, [named])

    def test_a_config_field(self):
        folder = self.bundle()
        (folder / "config.json").write_text(json.dumps(G | {"layer_norm_epsilon": 1e-6}))
        self.assertEqual([r for r in self.named(folder) if r[0] == "config"], [("config", "layer_norm_epsilon", "value")])
        (folder / "config.json").write_text(json.dumps(G, indent=3))
        self.assertEqual(self.named(folder), [("file", "config.json", "size")])

    def test_what_cannot_be_read(self):
        folder = self.bundle()
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[:-1])
        status, out, err = call(main, "verify", "--model", folder)
        self.assertEqual((status, len(err.splitlines())), (2, 1))
        self.assertIn("cut off", out)
        self.assertIn("2 things are not as", err)
        (folder / "model.safetensors").write_bytes(whole)
        (folder / "config.json").write_text("{")
        self.assertEqual([r[2] for r in self.named(folder) if r[0] == "bundle"], ["cannot be read"])
        (folder / "config.json").unlink()
        self.assertIn(("file", "config.json", "missing"), self.named(folder))

    def test_a_gguf_file(self):
        path = gguf_writer.write(self.folder / "a.gguf", llama_model(), tokenizer={"eos_token_id": 9})
        out = self.folder / "m.json"
        write_manifest(str(path), out)
        self.assertEqual(self.named(path, out), [])
        data = bytearray(path.read_bytes())
        at = max(t.end for t in bundle_files.read(path).tensors) - 1
        data[at] ^= 1
        path.write_bytes(data)
        self.assertEqual([r[2] for r in self.named(path, out)], ["content", "numbers"])

    def test_the_faults_of_the_record(self):
        named = {row["fault"]: row["named"] for row in measure_verify(loaded())["faults"]}
        self.assertEqual(named["nothing"], "nothing")
        last = max(bundle_files.read(EMBEDDED / "model.safetensors").tensors, key=lambda t: t.end).name
        self.assertEqual(named["one bit of the last weight"], f"file model.safetensors: content; tensor {last}: numbers")
        self.assertEqual(named["a blank more in config.json"], "file config.json: size")
        self.assertEqual(named["a file more"], "file pytorch_model.bin: added")
        self.assertIn("tokenizer: content", named["one merge less in tokenizer.json"])
        self.assertIn("tokenizer: missing", named["tokenizer.json is gone"])
        self.assertIn("config layer_norm_epsilon: value", named["another epsilon in config.json"])

    def test_a_blind_comparison_is_noticed(self):
        """Were tensors not compared, the record would say so."""
        with mock.patch.object(bundle_files, "tensors_of", return_value=[]):
            named = {row["fault"]: row["named"] for row in measure_verify(loaded())["faults"]}
        self.assertEqual(named["one bit of the last weight"], "file model.safetensors: content")

    def test_changes_of_made_up_manifests(self):
        empty = {"files": [], "config": {}, "config_sha256": "a", "tokenizer_sha256": None, "tensors": []}
        self.assertEqual(changes(empty, empty, []), [])
        more = empty | {"config": {"x": 1}, "config_sha256": "b", "tokenizer_sha256": "c"}
        found = [(c["of"], c["name"], c["change"], c["was"], c["now"]) for c in changes(empty, more, ["no"])]
        wanted = [
            ("config", "x", "value", None, 1),
            ("tokenizer", "", "added", None, "c"),
            ("bundle", "", "cannot be read", None, "no"),
        ]
        self.assertEqual(found, wanted)

    def test_files_that_are_no_manifest(self):
        folder = self.bundle()
        path = folder / "manifest.json"
        whole = parse_json(path.read_text())
        for text, word in (
            ("[]", "not an object"),
            ("{}", "is no manifest"),
            (json.dumps(whole | {"version": 2}), "version 2"),
            (json.dumps(whole | {"files": [{"name": "a"}]}), "parts missing"),
            (json.dumps(whole | {"tensors": None}), "parts missing"),
            (json.dumps({k: v for k, v in whole.items() if k != "config"}), "parts missing"),
            (path.read_text()[:-20], "not strict JSON"),
        ):
            path.write_text(text)
            self.assertBad(main, ["verify", "--model", folder], word)
        path.unlink()
        self.assertBad(main, ["verify", "--model", folder], "does not exist")


class Diff(Case):
    def test_config_and_shapes(self):
        a = self.folder / "a"
        write_folder(a)
        of = config(n_embd=16)
        b = write_folder(self.folder / "b", weights(of), G | {"n_embd": 16})
        found = diff(str(a), str(b))
        self.assertEqual(found["config"], [{"field": "n_embd", "a": 8, "b": 16}])
        row = found["tensors"][0]
        self.assertEqual((row["shape_a"], row["shape_b"], row["largest_difference"]), ([11, 8], [11, 16], None))
        self.assertEqual(found["same_tensors"], 0)

    def test_numbers_and_dtypes(self):
        a = write_folder(self.folder / "a")
        changed = weights()
        changed["ln_f.bias"] = changed["ln_f.bias"] + torch.tensor([0, 0, 0.5, 0, 0, -0.25, 0, 0])
        changed["wpe.weight"] = changed["wpe.weight"].bfloat16()
        found = diff(str(a), str(write_folder(self.folder / "b", changed)))
        rows = {r["name"]: r for r in found["tensors"]}
        self.assertEqual(set(rows), {"ln_f.bias", "wpe.weight"})
        self.assertEqual((rows["ln_f.bias"]["numbers_differing"], rows["ln_f.bias"]["largest_difference"]), (2, 0.5))
        self.assertEqual((rows["wpe.weight"]["dtype_a"], rows["wpe.weight"]["dtype_b"]), ("F32", "BF16"))
        off = (weights()["wpe.weight"] - changed["wpe.weight"].float()).abs().max().item()
        self.assertAlmostEqual(rows["wpe.weight"]["largest_difference"], off, places=7)
        self.assertEqual((found["same_tensors"], found["config"]), (len(changed) - 2, []))

    def test_the_same_numbers_in_another_dtype_are_no_same_tensor(self):
        ones = weights() | {"ln_f.weight": torch.ones(8)}
        a = write_folder(self.folder / "a", ones)
        b = write_folder(self.folder / "b", ones | {"ln_f.weight": torch.ones(8).bfloat16()})
        [row] = diff(str(a), str(b))["tensors"]
        self.assertEqual((row["name"], row["numbers_differing"], row["dtype_b"]), ("ln_f.weight", 0, "BF16"))

    def test_layers_that_one_has_alone(self):
        a = write_folder(self.folder / "a")
        b = write_folder(self.folder / "b", weights(config(n_layer=3)), G | {"n_layer": 3})
        rows = diff(str(a), str(b))["tensors"]
        self.assertEqual((len(rows), {r["shape_a"] for r in rows if r["name"].startswith("h.2.")}), (12, {None}))

    def test_a_gguf_beside_the_folder_that_it_was_made_of(self):
        made = llama_model()
        folder = write_folder(self.folder / "a", made.weights, made.fields)
        file = gguf_writer.write(self.folder / "a.gguf", made)
        found = diff(str(folder), str(file))
        self.assertEqual([r["field"] for r in found["config"]], ["norm_eps"])  # which a GGUF file has in float32
        self.assertEqual((found["config"][0]["b"], found["tensors"]), (torch.tensor(1e-5).item(), []))
        off = gguf_writer.write(self.folder / "b.gguf", made, order=False)
        self.assertTrue(all(".self_attn." in r["name"] for r in diff(str(folder), str(off))["tensors"]))

    def test_random_weights(self):
        found = diff("random:distilgpt2", "random:gpt2")
        self.assertEqual([r["field"] for r in found["config"]], ["n_layer"])
        self.assertEqual((found["same_tensors"], len(found["tensors"])), (76, 72))

    def test_compare(self):
        a, nan = torch.zeros(5), float("nan")
        self.assertEqual(compare(a, a), (0, 0.0))
        self.assertEqual(compare(torch.zeros(0), torch.zeros(0)), (0, 0.0))
        with mock.patch.object(bundle_diff, "PIECE", 2):
            self.assertEqual(compare(a, torch.tensor([0, 1, 0, 0, -3.0])), (2, 3.0))
            count, most = compare(torch.tensor([0, nan, 5.0, 0, 0]), a)
        self.assertEqual(count, 2)
        self.assertNotEqual(most, most)

    def test_two_tensors_at_a_time(self):
        """When a tensor is read, none that was read before is alive, but for the one that it is compared with."""
        a, b = write_folder(self.folder / "a"), write_folder(self.folder / "b")
        right, seen, most = bundle_diff._from_file, [], []

        def spy(stored):
            most.append(sum(ref() is not None for ref in seen))
            tensor = right(stored)
            seen.append(weakref.ref(tensor))
            return tensor

        with mock.patch.object(bundle_diff, "_from_file", spy):
            diff(str(a), str(b))
        self.assertEqual((len(seen), max(most)), (2 * len(weights()), 1))

    def test_no_weight_is_read_where_the_shapes_differ(self):
        with mock.patch.object(bundle_diff, "random_tensor", side_effect=AssertionError):
            diff("random:gpt2", "random:gpt2-medium")

    def test_parts_are_what_is_loaded(self):
        folder = write_folder(self.folder / "a")
        _, lazy = parts(str(folder))
        for name, w in load(folder).weights.items():
            self.assertTrue(torch.equal(lazy[name].read(), w))
            self.assertEqual((lazy[name].shape, lazy[name].dtype), (tuple(w.shape), "F32"))

    def test_the_record(self):
        found = measure_diff(loaded())
        self.assertEqual(found["one"], [{"name": "h.0.mlp.c_fc.weight", "numbers_differing": 1}])
        self.assertEqual((found["half"]["tensors"], found["half"]["dtypes"]), (52, ["F32 to BF16"]))


class Script(Case):
    def test_write_and_verify(self):
        folder, out = write_folder(self.folder / "a"), self.folder / "m.json"
        status, text, err = call(main, "write", "--model", folder, "--out", out)
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(text.endswith("28 tensors, each with its sha256.\n"))
        status, text, err = call(main, "verify", "--model", folder, "--manifest", out)
        self.assertEqual((status, err, text[:9]), (0, "", "All is as"))
        status, text, _ = call(main, "--model", folder, "write", "--json")  # beside the model's files, by default
        self.assertEqual(json.loads(text)["write"], read_manifest(folder / "manifest.json"))
        (folder / "more").write_text("x")
        status, text, err = call(main, "verify", "--model", folder, "--json")
        self.assertEqual((status, len(err.splitlines())), (2, 1))
        self.assertEqual([c["name"] for c in parse_json(text)["verify"]["changes"]], ["more"])
        status, text, err = call(main, "verify", "--model", folder)
        self.assertIn("1 thing is not as", err)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_verify_of_another_model_is_short(self):
        a = self.bundle("a")
        b = write_folder(self.folder / "b", weights(config(n_layer=4)), G | {"n_layer": 4})
        status, text, _ = call(main, "verify", "--model", b, "--manifest", a / "manifest.json")
        self.assertEqual(status, 2)
        self.assertLess(len(text.splitlines()), 30)
        self.assertIn("more; --json lists them all", text)

    def test_diff(self):
        a = write_folder(self.folder / "a")
        for b, more in ((a, []), ("random:gpt2", []), ("random:gpt2", ["--tensors"])):
            status, text, err = call(main, "diff", a, b, *more)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(text.endswith(".\n"))
            self.assertLessEqual(max(map(len, text.splitlines())), 130 if "/" in str(a) else 100)
            self.assertEqual("--tensors lists" in text, b != a and not more)
        value = parse_json(call(main, "diff", a, "random:gpt2", "--json")[1])
        self.assertEqual(value["diff"], diff(str(a), "random:gpt2"))

    def test_embedded_is_not_written_to(self):
        before = sorted(p.name for p in EMBEDDED.iterdir())
        with mock.patch.object(manifest, "write_manifest", return_value=manifest_of("embedded")) as write:
            call(main, "write")
        self.assertEqual(str(write.call_args.args[1]), "manifest.json")
        self.assertEqual(sorted(p.name for p in EMBEDDED.iterdir()), before)
        self.assertEqual(look(EMBEDDED)[1], [])

    def test_bad_input(self):
        self.assertBad(main, ["diff", "embedded"], "required: SOURCE")
        self.assertBad(main, ["diff", "embedded", self.folder / "none"], "no model")
        self.assertBad(main, ["diff", "random:gpt9", "embedded"], "no published shape")
        self.assertBad(main, ["frobnicate"], "frobnicate")
        self.assertBad(main, ["write", "--modle", "x"], "--modle")
        self.assertBad(main, ["verify", "--model", self.folder / "none"], "does not exist")
        self.assertEqual(call(main, "diff", "--help")[0], 0)


class Manuscript(unittest.TestCase):
    def test_start_here_prints_what_stands_below_it(self):
        page = (ROOT / "content/books/inference/02-chapter.md").read_text(encoding="utf-8")
        program, output = re.search(r"^\*\*Start here.*?^```python\n(.*?)^```\n\n^```text\n(.*?)^```$", page, re.M | re.S).groups()
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(program, {})
        self.assertEqual(out.getvalue(), output)


if __name__ == "__main__":
    unittest.main()
