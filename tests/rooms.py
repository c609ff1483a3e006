"""What the tests of rooms share: a script's answer, as JSON and as a page for a person, is held to what every script promises."""

from examples.lab.experiment import plain
from examples.lab.script import finite, parse_json
from tests.support import FolderCase, G, call, config, weights, write_folder

COLUMNS = 100  # of a page for a person


class RoomCase(FolderCase):
    """A test case of a script: `values` and `page` run it, and check what is promised of every script's answer."""

    def values(self, main, *argv):
        """What the script prints with --json: strict, alone on stdout, and with what it ran with."""
        status, out, err = call(main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        value = parse_json(out)
        self.assertIn("ran_with", value)
        return value

    def page(self, main, *argv):
        """What it prints for a person: lines of 100 columns, the last of which ends a sentence."""
        status, out, err = call(main, *argv)
        self.assertEqual((status, err), (0, ""))
        self.assertLessEqual(max(map(len, out.splitlines())), COLUMNS, out)
        self.assertTrue(out.endswith(".\n"), out[-200:])
        return out

    def assertMeasured(self, value, **measured):
        """The JSON object `value` holds what each `measure` returned, unrounded, and nothing else but what it ran with."""
        self.assertEqual({k: v for k, v in value.items() if k != "ran_with"}, finite(plain(measured)))

    def assertDraws(self, main, *argv):
        """With --plot the script writes a figure, the same each time, and refuses a bad target before it loads a model."""
        for name, start in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
            path = self.folder / name
            self.assertIn(f"plot: {path}", call(main, *argv, "--plot", path)[1])
            self.assertTrue(path.read_bytes().startswith(start))
        call(main, *argv, "--plot", self.folder / "again.svg")
        self.assertEqual((self.folder / "again.svg").read_bytes(), (self.folder / "a.svg").read_bytes())
        nowhere = ["--model", self.folder / "no-model"]  # which would be the error if the target were looked at later
        self.assertBad(main, [*nowhere, "--plot", self.folder / "x.gif"], "x.gif", ".svg")
        self.assertBad(main, [*nowhere, "--plot", self.folder / "none" / "x.svg"], "not a folder")

    def tiny(self, **changes):
        """The folder of the tiny GPT-2 with `changes` to its config; it has no tokenizer."""
        folder = self.folder / f"model-{len(list(self.folder.iterdir()))}"
        return write_folder(folder, weights(config(**changes)), G | changes)
