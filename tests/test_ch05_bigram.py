"""Chapter 5's table of word pairs: its counts, its cycles, and a fault that breaks them."""

import json
import unittest
from unittest import mock

from examples.ch05 import bigram as room
from examples.ch05 import generate as loop
from tests.support import call


class Bigram(unittest.TestCase):
    def test_the_table(self):
        """The logits are logs of counts: "the" is followed twice by "cat" and twice by "mat", once by "rug"."""
        model, forward, words = room.bigram()
        counts = forward([words.index("the")]).exp().squeeze().tolist()
        self.assertEqual({w: round(n) for w, n in zip(words, counts, strict=True) if n}, {"cat": 2, "mat": 2, "rug": 1})
        self.assertEqual(model.config.vocab_size, 8)

    def test_every_start_ends_in_the_cycle(self):
        found = room.measure()
        self.assertEqual((found["words"], found["starts_that_cycle"], found["cycle_length"]), (8, 8, 4))
        follow = {"the": "cat", "cat": "sat", "sat": "on", "on": "the", "mat": "and", "and": "the", "saw": "the", "rug": "on"}
        for row in found["starts"]:
            path = [row["starts_with"]]
            while path[-1] not in path[:-1]:
                path.append(follow[path[-1]])
            first = path.index(path[-1])
            self.assertEqual((row["enters_after"], row["length"]), (first, len(path) - 1 - first))
        self.assertEqual(found["starts"][0]["followed_by"], "cat 2, mat 2, rug 1")
        self.assertEqual(found["from_cat"], "sat on the cat sat on the cat")

    def test_the_second_best_breaks_it(self):
        right = room.measure()
        with mock.patch.object(loop, "choose", lambda logits, *_: logits.topk(2).indices[1]):
            self.assertNotEqual(room.measure(), right)

    def test_script(self):
        status, out, err = call(room.main)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("8 of 8 starts enter a cycle of 4 words", out)
        self.assertEqual(json.loads(call(room.main, "--json")[1])["bigram"], room.measure())


if __name__ == "__main__":
    unittest.main()
