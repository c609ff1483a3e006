"""Drafts from the text so far: what is looked up, that the text stays that of plain greedy decoding, and how it would go wrong."""

import unittest
from unittest import mock

import torch

from examples.ch02.model import Model
from examples.ch03.tokens import encode, random_ids
from examples.ch05.generate import generate
from examples.ch10.kv_cache import Cached
from examples.ch11 import drafts
from examples.ch11.drafts import look_up, replay, speculate, verified
from examples.ch11.paths import CachedStep
from examples.lab.script import BadInput
from tests.support import config, llama_model, loaded, model, needs_smollm2, slow, weights

MODELS = {"gpt2": model(n_positions=64), "llama": llama_model()}


def greedy(one, ids, tokens, end=None):
    """The plain loop's tokens."""
    return generate(ids, one, tokens, end=end, forward=Cached(one, capacity=ids.shape[1] + tokens - 1)).sequence()


class Guess(CachedStep):
    """A step that counts what it is fed."""

    def __init__(self, *args):
        super().__init__(*args)
        self.fed = []

    def step(self, ids):
        self.fed.append(len(ids))
        return super().step(ids)


class LookUp(unittest.TestCase):
    def test_the_longest_match_and_of_these_the_latest(self):
        self.assertEqual(look_up([1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3], 2, 3), [9, 8])
        self.assertEqual(look_up([1, 2, 3, 9, 8, 2, 3, 7, 1, 2, 3], 2, 2), [7, 1])
        self.assertEqual(look_up([5, 4, 5, 6, 5], 1, 3), [6])

    def test_nothing_to_find(self):
        for text in ([], [1], [1, 2, 3]):
            self.assertEqual(look_up(text, 3), [])
        self.assertEqual(look_up([1, 1], 0), [])

    def test_a_cycle_goes_on(self):
        self.assertEqual(look_up([1, 2, 1, 2], 5), [1, 2, 1, 2, 1])
        self.assertEqual(look_up([7, 7], 3), [7, 7, 7])

    def test_verified(self):
        self.assertEqual(
            [verified([1, 2], [1, 2, 3]), verified([1, 2], [1, 3, 3]), verified([2], [1, 2]), verified([], [1])], [2, 1, 0, 0]
        )


class Text(unittest.TestCase):
    def same(self, one, ids, tokens, **options):
        """The text with drafts is the plain one, and the passes are those of the replay."""
        made = speculate(ids, one, tokens, **options)
        wanted = greedy(one, ids, tokens, options.get("end"))
        self.assertEqual(made.ids, wanted)
        said = replay(ids[0].tolist(), wanted, tokens, options.get("draft", 3))
        self.assertEqual((made.drafted, made.accepted), (said.drafted, said.accepted))
        return made

    def test_the_text_is_that_of_plain_greedy_decoding(self):
        stood = refused = 0
        for one in MODELS.values():
            for seed in range(6):
                ids = random_ids(one, 3 + 4 * seed, seed=seed)
                for draft in (0, 1, 3, 6):
                    made = self.same(one, ids, 30, draft=draft, end=None)
                    self.assertEqual(made.passes + sum(made.accepted), 30)
                    self.assertLessEqual(max(made.drafted), draft)
                    stood, refused = stood + sum(made.accepted), refused + sum(made.drafted) - sum(made.accepted)
        self.assertGreater(stood, 100)  # both happen often enough to be tested
        self.assertGreater(refused, 100)

    def test_end_tokens(self):
        """A text stops at the first end token, also where that was drafted or where more of the draft stood."""
        stopped = set()
        for one in MODELS.values():
            ids = random_ids(one, 9, seed=3)
            for end in set(greedy(one, ids, 30)):
                made = self.same(one, ids, 30, end=end)
                self.assertEqual((made.ids[-1], made.ended), (end, end))
                stopped.add(made.accepted[-1] > 0)
        self.assertEqual(stopped, {True, False})

    def test_no_position_too_many(self):
        one = MODELS["gpt2"]
        ids = random_ids(one, 50)
        self.assertEqual(len(self.same(one, ids, 15, draft=6, end=None).ids), 15)

    def test_ids_without_a_piece_are_never_chosen(self):
        one, known = MODELS["gpt2"], torch.arange(11) < 6
        with (
            mock.patch.object(drafts, "known_ids", return_value=known),
            mock.patch("examples.ch05.generate.known_ids", return_value=known),
        ):
            made = self.same(one, random_ids(one, 5), 20, end=None)
        self.assertLess(max(made.ids), 6)

    def test_the_embedded_model(self):
        one = loaded()
        for text in ("JULIET:\n", "To be, or not to be, to be, or not", "Good night, good night! Good"):
            self.same(one, encode(text, one), 40, end=None)

    def test_a_step_that_holds_the_prompt(self):
        one = MODELS["llama"]
        ids, step = random_ids(one, 12), Guess(one, 40)
        step.step(ids[0])
        step.truncate(11)
        made = speculate(ids, one, 20, 3, end=None, step=step)
        self.assertEqual(made.ids, greedy(one, ids, 20))
        self.assertEqual(step.fed[1:], [1 + n for n in made.drafted])
        self.assertGreater(made.tokens_per_pass, 1)

    @slow
    @needs_smollm2
    def test_smollm2(self):
        one = loaded("smollm2")
        for text in ("one two three four. one two", "for i in range(10):\n    print(i)\n"):
            ids = encode(text, one)
            self.assertEqual(speculate(ids, one, 24, end=None).ids, greedy(one, ids, 24))


class Faults(unittest.TestCase):
    """What goes wrong shows in the text."""

    def wrong(self, one, step=None):
        """Whether some text is not that of the plain loop."""
        other = 0
        for seed in range(6):
            ids = random_ids(one, 7 + 4 * seed, seed=seed)
            with_step = {} if step is None else {"step": step(one, ids.shape[1] + 29)}
            other += speculate(ids, one, 30, end=None, **with_step).ids != greedy(one, ids, 30)
        return other > 0

    def test_one_too_many_accepted(self):
        for one in MODELS.values():
            self.assertFalse(self.wrong(one))
            with mock.patch.object(drafts, "verified", lambda guessed, chosen: min(verified(guessed, chosen) + 1, len(guessed))):
                self.assertTrue(self.wrong(one))

    def test_a_refused_draft_that_stays_in_the_cache(self):
        class Keeps(CachedStep):
            def truncate(self, length):
                self.cache.length = length if length == self.cache.length else self.cache.length - 1  # one of it stays

        self.assertTrue(any(self.breaks(one, Keeps) for one in MODELS.values()))

    def breaks(self, one, step):
        try:
            return self.wrong(one, step)
        except (BadInput, RuntimeError, IndexError):  # no room, say
            return True

    def test_positions_shifted_by_one(self):
        class Shifted(CachedStep):
            def step(self, ids):
                return super().step(ids).roll(1, 0)

        self.assertTrue(self.wrong(MODELS["gpt2"], Shifted))


class BadSettings(unittest.TestCase):
    def test_refused(self):
        one = Model(config(), weights(config()))
        ids = torch.tensor([[1, 2]])
        for options, words in (
            (dict(tokens=0), "tokens is 0"),
            (dict(tokens=5, draft=-1), "draft is -1"),
            (dict(tokens=5, longest=0), "longest is 0"),
            (dict(tokens=16), "n_positions is 16"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                speculate(ids, one, **options)
        with self.assertRaisesRegex(BadInput, "one prompt"):
            speculate(torch.tensor([[1], [2]]), one, 3)
        step = CachedStep(one, 8)
        step.step(ids[0])
        with self.assertRaisesRegex(BadInput, "the step holds 2 positions"):
            speculate(ids, one, 3, step=step)


if __name__ == "__main__":
    unittest.main()
