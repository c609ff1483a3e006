"""Chapter 2, the hub: only the named kinds of file, one commit, and one line for each way to fail. All against a stand-in."""

import contextlib
import json
import unittest
from types import SimpleNamespace

from examples.ch02 import hub
from tests.standin_hub import COMMIT, StandInHub, needs_loopback
from tests.support import IDS, LLAMA, FolderCase, config, llama_model, slow, start, weights, write_folder

REPO = "somebody/tiny-gpt2"
FETCH = (
    "import sys; from examples.lab.script import command; from examples.ch02 import hub\n"
    "sys.exit(command(lambda argv: print(hub.fetch(sys.argv[1])))())"
)


@needs_loopback
@slow
class Hub(FolderCase):
    def setUp(self):
        super().setUp()
        made = write_folder(self.folder / "made")
        self.files = {name: (made / name).read_bytes() for name in ("config.json", "model.safetensors")}
        # what must never be fetched
        unwanted = ("pytorch_model.bin", "modeling.py", "onnx/model.safetensors", "flax_model.msgpack", "README.md")
        self.files |= dict.fromkeys(unwanted, b"no")

    def script(self, source, hub_url, *more, program=("examples/ch02/manifest.py", "--model"), **environment):
        """manifest.py on `source`, in a process of its own: huggingface_hub reads the environment when it is imported."""
        settings = {"HF_ENDPOINT": hub_url, "HF_HOME": str(self.folder / "cache"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": ""}
        settings |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        return start(*program, source, *more, **(settings | environment))

    def fetch(self, source, hub_url, **environment):
        """Only the fetching, with the script's manner of answering: it starts in a third of the time, without torch."""
        return self.script(source, hub_url, program=("-c", FETCH), **environment)

    def serve(self, fault=None):
        return contextlib.closing(StandInHub({REPO: self.files}, fault))

    def assertOneLine(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_fetches_only_what_it_names_and_then_works_offline(self):
        with self.serve() as server:
            done = self.script(f"{REPO}@v1", server.url, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            manifest = json.loads(done.stdout)
            self.assertEqual((manifest["commit"], manifest["parameters"]), (COMMIT, 1976))
            self.assertEqual(sorted(server.requested), [f"{REPO}/config.json", f"{REPO}/model.safetensors"])
            self.assertIn("v1", server.revisions)
        self.assertLessEqual(set(server.revisions), {"v1", COMMIT})
        offline = self.script(f"{REPO}@v1", server.url, "--json", HF_HUB_OFFLINE="1")
        self.assertEqual((offline.returncode, json.loads(offline.stdout)), (0, manifest), offline.stderr)

    def test_a_llama_too(self):
        """`load` of a hub id in a process of its own: the pass over what came is that of the tensors that were served."""
        import torch

        from examples.ch02.model import run

        tiny = llama_model()
        made = write_folder(self.folder / "llama", tiny.weights, LLAMA)
        self.files |= {name: (made / name).read_bytes() for name in ("config.json", "model.safetensors")}
        program = (
            "import json, sys, torch; from examples.ch02.model import load, run\n"
            "m = load(sys.argv[1]); logits = run(m, torch.tensor(json.loads(sys.argv[2]))).tolist()\n"
            "print(json.dumps({k: m.manifest[k] for k in ('model_type', 'commit', 'parameters')} | {'logits': logits}))"
        )
        with contextlib.closing(StandInHub({"somebody/tiny-llama": self.files})) as server:
            done = self.script("somebody/tiny-llama", server.url, json.dumps(IDS.tolist()), program=("-c", program))
            self.assertEqual(done.returncode, 0, done.stderr)
            wanted = ["somebody/tiny-llama/config.json", "somebody/tiny-llama/model.safetensors"]
            self.assertEqual(sorted(server.requested), wanted)
        found = json.loads(done.stdout)
        torch.testing.assert_close(torch.tensor(found.pop("logits")), run(tiny, IDS), atol=1e-5, rtol=0)
        self.assertEqual(found, {"model_type": "llama", "commit": COMMIT, "parameters": 1560})

    def test_shards_and_tokenizer(self):
        """A sharded repository with a tokenizer arrives whole, and a damaged second shard is noticed."""
        from safetensors.torch import save

        from examples.ch02.model import EMBEDDED

        keys = sorted(weights())
        parts = {f"model-0000{i}-of-00002.safetensors": part for i, part in ((1, keys[:10]), (2, keys[10:]))}
        index = {"metadata": {}, "weight_map": {k: name for name, part in parts.items() for k in part}}
        values = json.loads(self.files["config.json"]) | {"vocab_size": 1024}
        tensors = weights(config(vocab_size=1024))
        self.files = {name: save({k: tensors[k] for k in part}) for name, part in parts.items()}
        self.files |= {"config.json": json.dumps(values).encode(), "model.safetensors.index.json": json.dumps(index).encode()}
        self.files |= {name: (EMBEDDED / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
        with self.serve() as server:
            done = self.script(REPO, server.url, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            names = [f["name"] for f in json.loads(done.stdout)["files"]]
            self.assertEqual(set(names), set(self.files))
        good = dict(self.files)
        with self.serve("corrupt second") as server:
            done = self.fetch(REPO, server.url, HF_HOME=str(self.folder / "other"))
            self.assertOneLine(done, "model-00002-of-00002.safetensors", "damaged")
        self.assertEqual(self.files, good)

    def test_no_address_and_no_place(self):
        self.assertOneLine(self.fetch(REPO, "junk"), "HF_ENDPOINT is 'junk'", "no address")
        (self.folder / "cache").write_text("a file where the cache's folder should be")
        with self.serve() as server:
            self.assertOneLine(self.fetch(REPO, server.url), REPO)

    def test_offline_and_unreachable(self):
        self.assertOneLine(self.fetch(REPO, "http://127.0.0.1:9", HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE")
        self.assertOneLine(self.fetch(REPO, "http://127.0.0.1:9"), "cannot be reached", "go online")

    def test_refusals(self):
        with self.serve() as server:
            self.assertOneLine(self.fetch("somebody/nothing", server.url), "no model somebody/nothing", "spelling")
            self.assertOneLine(self.fetch(f"{REPO}@v9", server.url), "no revision 'v9'")
        with self.serve("gated") as server:
            self.assertOneLine(self.fetch(REPO, server.url), "gated", "HF_TOKEN")
        with self.serve("broken") as server:
            self.assertOneLine(self.fetch(REPO, server.url), REPO, "try again")

    def test_interrupted_then_whole(self):
        impatient = "import time\ntime.sleep = lambda seconds: None\n"  # the library waits before each new try
        with self.serve("interrupted") as server:
            done = self.script(REPO, server.url, program=("-c", impatient + FETCH))
            self.assertOneLine(done, "interrupted", "again")
            server.fault = None
            self.assertEqual(self.fetch(REPO, server.url).returncode, 0)

    def test_corrupt_then_whole(self):
        with self.serve("corrupt") as server:
            done = self.fetch(REPO, server.url)
            self.assertOneLine(done, "model.safetensors", "damaged", "delete")
            server.fault = None
            self.assertOneLine(self.fetch(REPO, server.url), "damaged")  # it stays so until it is deleted
            blob = done.stderr.split("delete ")[1].split(" and run")[0]
            start("-c", f"import os; os.remove({blob!r})")
            self.assertEqual(self.fetch(REPO, server.url).returncode, 0)


class Explanations(unittest.TestCase):
    """One line for what the hub's library raises, also for answers that the stand-in does not give."""

    def explain(self, error):
        return hub._explain(error, "a/b", None)

    def test_answers(self):
        for status, word in (
            (401, "HF_TOKEN"),
            (403, "HF_TOKEN"),
            (404, "check the spelling"),
            (429, "HTTP 429"),
            (503, "try again"),
        ):
            error = OSError("no")
            error.response = SimpleNamespace(status_code=status)
            wrapped = RuntimeError("outer")
            wrapped.__cause__ = error
            self.assertIn(word, self.explain(error))
            self.assertIn(word, self.explain(wrapped))

    def test_kinds(self):
        from huggingface_hub import errors

        self.assertIn("not a hub id", self.explain(errors.HFValidationError("no")))
        self.assertIn("cannot be written", self.explain(PermissionError(13, "Permission denied", "/x")))
        self.assertIn("HF_ENDPOINT is", self.explain(type("UnsupportedProtocol", (Exception,), {})("no")))
        self.assertIn("interrupted", self.explain(type("ReadError", (Exception,), {})("no")))
        self.assertIn("interrupted", self.explain(OSError("Consistency check failed")))
        self.assertIn("cannot be reached", self.explain(type("ConnectError", (Exception,), {})("no")))
        self.assertIn("could not be fetched", self.explain(RuntimeError("anything else")))


if __name__ == "__main__":
    unittest.main()
