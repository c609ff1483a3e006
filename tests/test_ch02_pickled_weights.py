"""Chapter 2's pickle: it would run code, its steps are listed and none of them is run, and loading refuses it."""

import os
import pickle
import unittest
from pathlib import Path
from unittest import mock

from examples.ch02 import pickled_weights as room
from examples.ch02.pickled_weights import MARKER, calls, dangerous, honest, main, measure, refused, steps
from tests.rooms import RoomCase


class Pickle(RoomCase):
    def setUp(self):
        super().setUp()
        here = os.getcwd()
        os.chdir(self.folder)  # where the marker would be written
        self.addCleanup(os.chdir, here)

    def test_it_would_run_code(self):
        found = [(step, arg) for _, step, arg in steps(dangerous())]
        self.assertIn(("GLOBAL", "'__builtin__ exec'"), found)
        self.assertEqual([step for step, _ in found].count("REDUCE"), 1)
        self.assertLess([s for s, _ in found].index("GLOBAL"), [s for s, _ in found].index("REDUCE"))
        text = next(arg for step, arg in found if step == "BINUNICODE" and "open" in arg)
        self.assertIn(MARKER, text)

    def test_nothing_is_unpickled(self):
        def forbidden(*args, **more):
            raise AssertionError("a pickle was opened")

        blocked = mock.patch.multiple(pickle, load=forbidden, loads=forbidden, Unpickler=forbidden)
        with blocked, mock.patch("torch.load", forbidden):
            found = measure()
        self.assertFalse(found["anything_ran"])
        self.assertEqual(list(Path().rglob(MARKER)), [])

    def test_a_loader_that_ran_it_would_be_noticed(self):
        def load(place):
            Path(MARKER).touch()  # what unpickling would do

        with mock.patch.object(room, "load", load):
            found = measure()
        self.assertTrue(found["anything_ran"])
        self.assertEqual({r["said"] for r in found["refused"]}, {"it was loaded"})
        self.assertFalse(measure()["anything_ran"])  # the file is there, and was before

    def test_what_is_refused(self):
        place = self.folder / "x"
        place.mkdir()
        said = list(refused(place).values())
        self.assertRegex(said[0], r"^model-0.pytorch_model.bin is a pickle, .*never read here")
        self.assertIn("cut off", said[1])
        self.assertRegex(said[2], "^weights.pt is a pickle")
        self.assertTrue(all(len(line.splitlines()) == 1 for line in said))

    def test_what_is_fetched(self):
        self.assertEqual(calls(dangerous()), ["__builtin__ exec"])
        self.assertIn("torch._utils _rebuild_tensor_v2", calls(honest()))
        self.assertEqual(calls(pickle.dumps([1, 2.5, "a"], protocol=2)), [])

    def test_script(self):
        self.assertMeasured(self.values(main), pickle=measure())
        out = self.page(main)
        for text in ("'__builtin__ exec'", "REDUCE", "Something ran: no", "never read"):
            self.assertIn(text, out)
        self.assertBad(main, ["--model", "x"], "unknown: --model")
        self.assertEqual([p.name for p in Path().iterdir()], [])


if __name__ == "__main__":
    unittest.main()
