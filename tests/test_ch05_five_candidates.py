"""Chapter 5's worked example: what each filter does to five candidates, in the record, the table and the figure."""

import json
from unittest import mock

import torch

from examples.ch05 import five_candidates as room
from examples.ch05 import sampling
from tests.support import FolderCase, call

RIGHT_TOP_K = sampling.keep_top_k


class Measured(FolderCase):
    def test_by_hand(self):
        found = room.measure()
        self.assertEqual(found["mat_percent"], 68.7)
        self.assertEqual([c["candidate"] for c in found["candidates"]], ["mat", "rug", "floor", "sofa", "roof"])
        self.assertEqual([r["cut_percent"] for r in found["top_k"]], [31.3, 8.4, 3.3, 1.3, 0.0])
        self.assertEqual([(r["p"], r["kept"]) for r in found["top_p"]], [(0.5, 1), (0.9, 2), (0.95, 3), (1.0, 5)])
        self.assertEqual((found["after_temperature_half_kept_at_p_0_9"], found["after_temperature_2_kept_at_p_0_9"]), (2, 4))
        exponentials = torch.tensor(sampling.LOGITS, dtype=torch.float64).div(2).exp()
        wanted = [round(x, 4) for x in (exponentials / exponentials.sum()).tolist()]
        self.assertEqual({r["temperature"]: r["probabilities"] for r in found["temperatures"]}[2.0], wanted)

    def test_one_token_too_many_breaks_the_record(self):
        right = room.measure()
        with mock.patch.object(sampling, "keep_top_k", lambda logits, k: RIGHT_TOP_K(logits, k + 1)):
            wrong = room.measure()
        self.assertEqual({key for key in right if right[key] != wrong[key]}, {"top_k"})

    def test_candidates_of_ones_own(self):
        value = json.loads(call(room.main, "--logits=-1,2,0", "--json")[1])["example"]
        self.assertEqual([c["candidate"] for c in value["candidates"]], ["1", "2", "0"])  # best first
        self.assertEqual([c["percent"] for c in value["candidates"]], [84.4, 11.4, 4.2])
        self.assertEqual((value["1_percent"], value["temperatures"][2]["1"]), (84.4, 84.4))

    def test_script(self):
        plot = self.folder / "temperature.svg"
        status, out, err = call(room.main, "--plot", plot)
        self.assertEqual((status, err), (0, ""))
        for text in ("68.7%", "31.3%", "91.6%", "mat", "roof", "keeps 4 of 5", "before it 2.", str(plot)):
            self.assertIn(text, out)
        self.assertIn("<svg", plot.read_text())

    def test_bad_input(self):
        for argv, word in (
            (["--logits", "1,nan"], "'1,nan' is not a list of numbers"),
            (["--plot", self.folder / "a.bmp"], ".svg"),
        ):
            self.assertBad(room.main, argv, word)
