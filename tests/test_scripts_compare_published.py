"""What the source text printed beside what is measured: what follows from the config is the same; each verdict is deserved."""

import contextlib
import json
import unittest

from examples.ch02.model import EMBEDDED
from examples.lab.script import read_json
from scripts import compare_published
from tests.standin_hub import COMMIT, StandInHub, needs_loopback
from tests.support import FolderCase, call, start


class Published(FolderCase):
    def entries(self):
        return read_json(compare_published.PUBLISHED)["entries"]

    def test_what_follows_from_the_config_is_the_same(self):
        rows = {
            r["id"]: r
            for r in compare_published.compare([e for e in self.entries() if e["needs"] == "config"], compare_published.recompute())
        }
        self.assertGreaterEqual(len(rows), 13)
        for row in rows.values():
            self.assertEqual(row["verdict"], "same", row)
        wrong = [e | {"value": e["value"] + 1} for e in self.entries() if e["needs"] == "config"]
        for row in compare_published.compare(wrong, compare_published.recompute()):
            self.assertEqual(row["verdict"], "different", row)

    def test_verdicts(self):
        def verdict(how, value, measured, **more):
            return compare_published.verdict({"id": "x", "verdict_by": how, "value": value, **more}, measured)[0]

        self.assertEqual(verdict("equal", 3, 3), "same")
        self.assertEqual(verdict("equal", 3, 4), "different")
        self.assertEqual(verdict("rounds_to", 50.3, 50.33, bound=1), "same")
        self.assertEqual(verdict("rounds_to", 50.3, 50.36, bound=1), "different")
        self.assertEqual(verdict("at_most", 1e-4, 9e-5), "within stated bounds")
        self.assertEqual(verdict("at_most", 1e-4, 2e-4), "different")
        self.assertEqual(verdict("at_least", 1000, 3000), "within stated bounds")
        self.assertEqual(verdict("at_least", 1000, 10), "different")
        self.assertEqual([verdict(how, 1, 1) for how in ("machine", "prompt")], ["not comparable"] * 2)
        self.assertEqual(verdict("equal", 1, None), "not comparable")
        with self.assertRaisesRegex(ValueError, "guess"):
            verdict("guess", 1, 1)

    @needs_loopback
    def test_against_a_hub(self):
        """The whole comparison on a model that a stand-in hub serves: the embedded one, which is not the book's GPT-2."""
        files = {p.name: p.read_bytes() for p in EMBEDDED.iterdir()}
        with contextlib.closing(StandInHub({"somebody/small-gpt2": files})) as hub:
            settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(self.folder), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
            order = ["scripts/compare_published.py", "--model", "somebody/small-gpt2", "--runs", "1", "--json"]
            done = start(*order, **settings)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        value = json.loads(done.stdout)
        rows = {r["id"]: r for r in value["rows"]}
        self.assertEqual(value["commit"], COMMIT)
        self.assertEqual(list(rows), [e["id"] for e in self.entries()])
        self.assertEqual((rows["total"]["verdict"], rows["mask-change"]["verdict"], rows["same-argmax"]["verdict"]), ("same",) * 3)
        self.assertEqual(rows["difference"]["verdict"], "within stated bounds")
        self.assertEqual(rows["residual-dimension"]["verdict"], "different")
        self.assertEqual(
            (rows["attention-time-share-512"]["measured"], rows["largest-logit-1"]["verdict"]), (None, "not comparable")
        )

    def test_bad_input(self):
        self.assertBad(compare_published.main, ["--model", self.folder / "none"], "no model")

    def test_table(self):
        status, out, err = call(compare_published.main, "--model", "embedded", "--runs", "1")
        self.assertEqual((status, err), (0, ""))
        for text in ("124,439,808", "not comparable: the prompt was not published", "another machine", "15 same"):
            self.assertIn(text, out)


if __name__ == "__main__":
    unittest.main()
