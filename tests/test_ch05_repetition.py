"""Chapter 5's repetition by policy: what counts as repeated, what each policy's shares are, the table and the figure."""

import json
import unittest
from unittest import mock

from examples.ch02.model import Model
from examples.ch05 import repetition as room
from examples.ch05.cycles import text_or_ids
from examples.ch05.generate import generate, whole_text
from examples.lab.script import BadInput
from tests.support import FolderCase, G, call, config, weights, write_folder

MODEL = Model(config(), weights())  # G: 11 ids, 16 positions, no tokenizer
TEXTS = ("a b", "c")


class Repeated(unittest.TestCase):
    def test_by_hand(self):
        self.assertEqual(room.repeated([1, 2, 1, 2, 1, 3], 2), [False, False, False, True, True, False])
        self.assertEqual(room.repeated([1, 1], 4), [False, False])
        self.assertEqual(room.repeated([], 4), [])


class Policies(unittest.TestCase):
    def test_greedy_counted_again(self):
        found = room.measure_policies(MODEL, texts=TEXTS, width=5, seeds=(0, 1))
        self.assertEqual((found["tokens"], found["prompts"], found["seeds"], found["width"]), (15, 2, 2, 5))
        self.assertEqual([r["policy"] for r in found["policies"]], [p["policy"] for p in room.POLICIES])
        self.assertEqual([len(r["shares"]) for r in found["policies"]], [3] * 6)
        flags = []
        for text in TEXTS:
            prompt = text_or_ids(MODEL, text)
            flags += room.repeated(prompt + generate([prompt], MODEL, 15, end=None).sequence())[-15:]
        greedy = found["policies"][0]
        for key in ("percent", "least_percent", "most_percent"):  # greedy text is the same from every seed
            self.assertAlmostEqual(greedy[key], 100 * sum(flags) / 30)
        self.assertAlmostEqual(greedy["last_percent"], 100 * (sum(flags[10:15]) + sum(flags[25:30])) / 10)
        self.assertEqual(found["greedy_last_percent"], greedy["last_percent"])
        self.assertEqual(found["temperature_1_last_percent"], found["policies"][3]["last_percent"])

    def test_over_seeds(self):
        """The mean, the least and the most of runs of one seed each."""
        policies = room.POLICIES[1:2]
        both = room.measure_policies(MODEL, texts=TEXTS, width=5, seeds=(0, 9), policies=policies)["policies"][0]
        alone = [
            room.measure_policies(MODEL, texts=TEXTS, width=5, seeds=(seed,), policies=policies)["policies"][0] for seed in (0, 9)
        ]
        percents = [r["percent"] for r in alone]
        self.assertAlmostEqual(both["percent"], sum(percents) / 2)
        self.assertEqual((both["least_percent"], both["most_percent"]), (min(percents), max(percents)))
        self.assertEqual(both["shares"], [sum(x) / 2 for x in zip(*(r["shares"] for r in alone), strict=True)])

    def test_another_forward(self):
        """It is made anew for each policy and seed, for the whole batch, and is what runs."""
        made = []

        def forward(model, batch):
            made.append(batch)
            return whole_text(model)

        options = dict(texts=TEXTS, width=5, seeds=(0, 1), policies=room.POLICIES[:2])
        self.assertEqual(room.measure_policies(MODEL, forward, **options), room.measure_policies(MODEL, **options))
        self.assertEqual(made, [2] * 4)

    def test_progress_and_missing_policies(self):
        told = []
        found = room.measure_policies(MODEL, None, TEXTS, 5, (0,), 5, room.POLICIES[1:2], progress=lambda: told.append(1))
        self.assertEqual(len(told), 10)
        self.assertEqual((found["greedy_last_percent"], found["temperature_1_last_percent"]), (None, None))

    def test_whole_stretches_only(self):
        for tokens in (0, 7, 4):
            with self.assertRaisesRegex(BadInput, "multiple of 5"):
                room.measure_policies(MODEL, texts=TEXTS, tokens=tokens, width=5)


class Figure(unittest.TestCase):
    def test_a_policy_looks_the_same_in_both_panels(self):
        with mock.patch.object(room, "write_figure") as write:
            room.draw_repetition(room.measure_policies(MODEL, texts=TEXTS, width=5, seeds=(0,)), None)
        above, below = ({line.get_label(): line for line in axes.lines} for axes in write.call_args.args[0].axes)
        self.assertEqual(list(above), ["greedy", "τ = 0.3", "τ = 0.7", "τ = 1"])
        self.assertEqual(list(below), ["τ = 1,\ntop-p 0.9", "τ = 1,\ntop-k 40", "τ = 1"])
        looks = {(line.get_color(), line.get_marker()) for line in [*above.values(), *below.values()]}
        self.assertEqual(len(looks), 6)


class Script(FolderCase):
    def test_options_reach_their_place(self):
        folder = write_folder(self.folder / "m", weights(config(n_positions=64)), G | {"n_positions": 64})
        plot = self.folder / "repetition.svg"
        order = ["--model", folder, "--prompts", "2", "--tokens", "30", "--seeds", "2", "--seed", "5"]
        value = json.loads(call(room.main, *order, "--json", "--plot", plot)[1])["policies"]
        self.assertEqual((value["prompts"], value["tokens"], value["seeds"]), (2, 30, 2))
        self.assertIn("<svg", plot.read_text())
        status, out, err = call(room.main, *order)
        self.assertEqual((status, err), (0, ""))
        for policy in room.POLICIES:
            self.assertIn(policy["policy"], out)

    def test_bad_input(self):
        for argv, word in (
            (["--tokens", "40"], "multiple of 30"),
            (["--tokens", "29"], "29 is not 30 or more"),
            (["--tokens", "600"], "n_positions"),
            (["--prompts", "9"], "9 is not 1 to 8"),
            (["--plot", self.folder / "no" / "a.svg"], "not a folder"),
        ):
            self.assertBad(room.main, argv, word)


if __name__ == "__main__":
    unittest.main()
