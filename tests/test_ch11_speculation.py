"""What drafts are worth: counts of passes, the prediction, and speeds on a clock of ours."""

import unittest
from unittest import mock

import torch

from examples.ch11 import speculation as room
from examples.ch11.drafts import replay
from examples.ch11.operations import operations, pass_bound
from tests.rooms import RoomCase
from tests.support import loaded, slow

RATES = {"flop_per_s": 1e12, "bytes_per_s": 1e9}
SHORT = {"one": "To be, or not to be, to be, or not", "two": "JULIET:\n"}


def setUpModule():
    torch.set_num_threads(1)


class Measure(unittest.TestCase):
    def test_rows(self):
        with mock.patch.object(room, "PROMPTS", SHORT):
            v = room.measure(loaded(), 12, 2)
        self.assertEqual([r["kind"] for r in v["kinds"]], ["one", "two"])
        for r in v["kinds"]:
            self.assertTrue(r["same"])
            self.assertEqual([x["draft_tokens"] for x in r["by_draft"]], list(range(7)))
            plain = r["by_draft"][0]
            self.assertEqual((plain["passes"], plain["drafted"], plain["tokens_per_pass"]), (12, 0, 1.0))
            for x in r["by_draft"]:
                self.assertEqual(x["passes"] + x["accepted"], r["new_tokens"])
                self.assertLessEqual(x["accepted"], x["drafted"])

    def test_another_text_is_seen(self):
        wrong = room.speculate

        def other(*args, **options):
            made = wrong(*args, **options)
            made.ids[-1] += 1
            return made

        with mock.patch.object(room, "PROMPTS", SHORT), mock.patch.object(room, "speculate", other):
            v = room.measure(loaded(), 4, 2)
        self.assertFalse(any(r["same"] for r in v["kinds"]))
        self.assertIn("all but one, two", room.report({"speculation": v}))

    def test_prompts_lose_their_start(self):
        found = room.prompts(loaded(), 200)
        self.assertEqual({ids.shape[1] for ids in found.values()} & {57}, {57})
        self.assertLessEqual(max(ids.shape[1] for ids in found.values()), 57)

    def test_prediction(self):
        """The sum of the roofline of each pass, behind what is held then."""
        one = loaded()
        wanted = sum(pass_bound(operations(one.config, n, past), RATES)["seconds"] for n, past in ((1, 9), (4, 10), (3, 13)))
        self.assertAlmostEqual(room.predicted(one, 10, [0, 3, 2], [0, 2, 1], RATES), wanted)


class Speed(unittest.TestCase):
    def test_ratios(self):
        """A pass takes 10 s, and 1 s more for each position beyond the first."""
        one, now, plain = loaded(), [0.0], room.CachedStep.step

        def step(self, ids):
            now[0] += 9 + len(ids)
            return plain(self, ids)

        with (
            mock.patch.object(room, "PROMPTS", SHORT),
            mock.patch.object(room.CachedStep, "step", step),
            mock.patch.object(room, "machine_rates", return_value=RATES),
        ):
            v = room.measure_speed(one, 16, 3, 1, timer=lambda: now[0])
        self.assertEqual((v["pass_ms"], v["wide_pass_ms"]), (10_000, 13_000))
        for r in v["kinds"]:
            self.assertTrue(r["same"])
            self.assertAlmostEqual(r["plain_per_s"], 1 / 10)
            self.assertAlmostEqual(r["times_as_fast"], r["from_passes_times_as_fast"])  # which is what the clock has
            self.assertGreaterEqual(r["predicted_times_as_fast"], r["times_as_fast"])
            self.assertGreaterEqual(r["tokens_per_pass"], 1)

    def test_the_text_that_both_are_of(self):
        made = replay([1, 2, 1, 2], [1, 2, 1, 2, 1, 2])
        self.assertEqual((made.passes, made.tokens_per_pass), (2, 3.0))


class Script(RoomCase):
    def test_page_json_and_figure(self):
        argv = ("--model", "embedded", "--tokens", 6, "--draft", 2)
        with mock.patch.object(room, "PROMPTS", SHORT):
            page = self.page(room.main, *argv)
            for words in ("float32, 1 thread", "with drafts of 2", "--time says"):
                self.assertIn(words, page)
            found = room.measure(loaded(), 6, 2)
            with mock.patch.object(room, "measure", return_value=found) as measured:
                value = self.values(room.main, *argv)
                self.assertDraws(room.main, *argv)
        self.assertMeasured(value, speculation=found)
        self.assertEqual(measured.call_args.args[1:4], (6, 2, None))

    @slow
    def test_with_times(self):
        page = self.page(room.main, "--tokens", 4, "--model", "embedded", "--time", "--runs", 1, "--prompt", "No, no")
        for words in ("the prompt", "A pass of 4 positions takes", "measured"):
            self.assertIn(words, page)

    def test_bad_input(self):
        self.assertBad(room.main, ["--model", "embedded", "--tokens", "300"], "n_positions is 256")
        self.assertBad(room.main, ["--model", "random:gpt2", "--tokens", "4"], "no tokenizer")
        self.assertBad(room.main, ["--draft", "0"], "0 is not")


if __name__ == "__main__":
    unittest.main()
