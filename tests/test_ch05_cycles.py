"""Chapter 5's cycles: that one is found and holds, how sure its rounds are, and what one draw in it changes."""

import json
import unittest
from unittest import mock

import torch

from examples.ch02.model import Model
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch05 import cycles as room
from examples.ch05.generate import generate
from tests.support import FolderCase, call, config, weights, write_folder

MODEL = Model(config(), weights())  # G: 11 ids, 16 positions, no tokenizer
PROMPTS = ([3, 1, 4], [7, 7, 7], [5], [9, 2, 6, 5, 3], [1, 0])
RUNS = room.greedy_cycles(MODEL, ("a b", "c"), tokens=60, window=4)


class Cycle(unittest.TestCase):
    def test_it_is_found(self):
        self.assertEqual(room.cycle([9, 1, 2, 3, 1, 2, 3, 1, 2, 3], 2), (1, 3))
        self.assertEqual(room.cycle([5, 5, 5], 1), (0, 1))
        self.assertEqual(room.cycle([1, 2, 3, 4, 5], 2), None)
        self.assertEqual(room.cycle([4, 1, 2, 1, 2], 2), (1, 2))
        self.assertEqual(room.cycle([1, 2], 5), None)

    def test_what_repeats_for_the_window_goes_on(self):
        """The state of a windowed greedy loop is its window: on G every prompt ends in a cycle, and keeps to it."""
        for prompt in PROMPTS:
            whole = [*prompt, *generate([prompt], MODEL, 120, end=None, window=4).sequence()]
            start, length = room.cycle(whole[:80], 4)
            self.assertTrue(all(whole[i] == whole[i + length] for i in range(start, len(whole) - length)))


class Measured(unittest.TestCase):
    """On G, which has no tokenizer: random ids, as many as a text has words."""

    def test_where_each_text_enters(self):
        for row, text in zip(*RUNS, strict=True):
            whole = text["ids"]  # the least period of the end, and the first token from which it holds
            length = next(n for n in range(1, 40) if whole[-20:] == whole[-20 - n : -n])
            start = next(s for s in range(len(whole)) if all(whole[i] == whole[i + length] for i in range(s, len(whole) - length)))
            self.assertEqual((row["length"], text["start"]), (length, start))
            self.assertEqual(row["enters_after"], max(0, start - row["prompt"]))

    def test_rounds(self):
        for row, text in zip(*RUNS, strict=True):
            self.check_rounds(row, text)

    def test_steps(self):
        row, text = RUNS[0][0], RUNS[1][0]
        steps = room.one_sampled_step(MODEL, text["ids"], text["start"], row["length"], seeds=6, tokens=60, window=4)
        self.check_steps(row, text, steps)

    def test_the_summary_of_cycles(self):
        found = room.measure(MODEL, RUNS, tokens=60, window=4)
        rows = RUNS[0]
        self.assertEqual((found["prompts"], found["prompts_count"], found["in_a_cycle"]), (rows, 2, 2))
        self.assertEqual((found["window"], found["tokens"]), (4, 60))
        entries, lengths = [r["enters_after"] for r in rows], [r["length"] for r in rows]
        self.assertEqual((found["first_entry"], found["last_entry"]), (min(entries), max(entries)))
        self.assertEqual((found["shortest"], found["longest"]), (min(lengths), max(lengths)))
        rounds = [
            room.probability_by_round(MODEL, t["ids"], t["start"], r["length"], window=4, rounds=4)
            for r, t in zip(*RUNS, strict=True)
        ]
        self.assertEqual([r["mean_probability"] for r in found["rounds"]], [sum(x) / 2 for x in zip(*rounds, strict=True)])
        self.assertEqual(found["surer_in_round_4"], sum(r[3] > r[0] for r in rounds))

    def test_the_summary_of_steps(self):
        found = room.measure_one_step(MODEL, RUNS, window=4, seeds=5)
        self.assertEqual((found["draws"], len(found["steps"])), (10, 10))
        moved = [r for r in found["steps"] if not r["same_token"]]
        self.assertEqual(found["another_token"], len(moved))
        for key, value in (("back_in_the_old_cycle", True), ("in_another_cycle", False), ("in_none_within_300", None)):
            self.assertEqual(found[key], sum(r["same_cycle"] is value for r in moved), key)
        self.assertEqual(found["in_a_cycle_again"], found["back_in_the_old_cycle"] + found["in_another_cycle"])
        self.assertEqual(found["longest_way_to_a_cycle"], max(r["after"] for r in moved))

    def test_a_text_that_ends_before_its_third_round(self):
        (row, *_), (text, *_) = RUNS
        short = {"ids": text["ids"][: text["start"] + 3 * row["length"] - 1], "start": text["start"]}
        with self.assertRaisesRegex(ValueError, "third round"):
            room.one_sampled_step(MODEL, short["ids"], short["start"], row["length"], window=4)
        self.assertEqual(room.measure_one_step(MODEL, ([row], [short]), window=4)["draws"], 0)

    def test_no_cycle_at_all(self):
        """A window that never comes back within the tokens: nothing is claimed, and nothing fails."""
        runs = room.greedy_cycles(MODEL, ("a b",), tokens=3, window=4)
        found = room.measure(MODEL, runs, tokens=3, window=4)
        self.assertEqual((found["in_a_cycle"], found["first_entry"], found["rounds"]), (0, None, []))
        self.assertEqual(room.measure_one_step(MODEL, runs, window=4)["steps"], [])

    def test_a_cycle_after_a_draw_is_not_looked_for_beyond_the_bound(self):
        (row, *_), (text, *_) = RUNS
        with mock.patch.object(room, "cycle", return_value=None), mock.patch.object(room, "generate", wraps=generate) as loop:
            steps = room.one_sampled_step(MODEL, text["ids"], text["start"], row["length"], seeds=1, tokens=70, window=4)
        self.assertEqual([c.args[2] for c in loop.call_args_list], [1, 50, 20])
        self.assertEqual((steps[0]["after"], steps[0]["length"], steps[0]["same_cycle"]), (None, None, None))

    def check_rounds(self, row, text):
        """The mean probability of the chosen tokens, round by round, from the logits themselves."""
        whole, n = text["ids"], row["length"]
        for r, mean in enumerate(room.probability_by_round(MODEL, whole, text["start"], n, window=4, rounds=3)):
            chosen = []
            for t in range(text["start"] + r * n, text["start"] + (r + 1) * n):
                logits = gpt2.forward(torch.tensor([whole[max(0, t - 4) : t]]), MODEL.weights, MODEL.config)[0, -1]
                chosen.append(torch.softmax(logits, -1)[whole[t]].item())
            self.assertAlmostEqual(mean, sum(chosen) / n, places=5)

    def check_steps(self, row, text, steps):
        """Each draw again, by itself: what was drawn, and where the text is in a cycle after it."""
        whole, n = text["ids"], row["length"]
        old = {tuple(whole[text["start"] + i : text["start"] + i + n]) for i in range(n)}
        self.assertEqual(len(steps), 6)
        for seed, step in enumerate(steps):
            at = text["start"] + 2 * n + seed * n // 6
            drawn = generate([whole[:at]], MODEL, 1, temperature=1.0, seed=seed, end=None, window=4).sequence()
            self.assertEqual(step["same_token"], drawn[0] == whole[at])
            after = [*whole[:at], *drawn, *generate([[*whole[:at], *drawn]], MODEL, 60, end=None, window=4).sequence()]
            start = next(s for s in range(at - 3, len(after)) if after[s : -step["length"]] == after[s + step["length"] :])
            round_ = tuple(after[start : start + step["length"]])
            self.assertEqual((step["after"], step["same_cycle"]), (max(0, start - at - 1), round_ in old))


class Script(FolderCase):
    def test_options_reach_their_place(self):
        order = ["--model", write_folder(self.folder / "m"), "--prompt", "a b", "--tokens", "60", "--window", "4", "--draws", "3"]
        value = json.loads(call(room.main, *order, "--json")[1])
        rows = room.greedy_cycles(MODEL, ("a b",), tokens=60, window=4)[0]
        self.assertEqual(value["cycles"]["prompts"], rows)
        self.assertEqual((value["cycles"]["tokens"], value["cycles"]["window"], value["one-step"]["draws"]), (60, 4, 3))
        status, out, err = call(room.main, *order)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("Texts in a cycle: 1 of 1.", out)

    def test_all_are_the_books(self):
        with mock.patch.object(room, "greedy_cycles", return_value=([], [])) as runs:
            call(room.main, "--all")
            self.assertEqual(runs.call_args.args[1:4], (room.PROMPTS, 400, 64))
            call(room.main)
            self.assertEqual(runs.call_args.args[1:4], (room.EARLY, 150, 64))

    def test_bad_input(self):
        for argv, word in (
            (["--window", "300"], "window 300"),
            (["--tokens", "0"], "0 is not 1 or more"),
            (["--prompt", ""], "empty"),
        ):
            self.assertBad(room.main, argv, word)


if __name__ == "__main__":
    unittest.main()
