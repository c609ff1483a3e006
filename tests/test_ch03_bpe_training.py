"""Merges learned by counting: by hand, as the library's trainer has them, and with its rule for ties broken."""

import unittest
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from examples.ch03 import bpe_training as room
from examples.ch03.bpe_training import joined, library_merges, main, measure, taught, train
from tests.rooms import RoomCase
from tests.support import loaded


def pairs(text, merges):
    return [(row["left"], row["right"]) for row in train(text, merges)]


class Training(unittest.TestCase):
    def test_by_hand(self):
        """low, lower, lowest: `l o` and `o w` stand there three times each, and the tie goes to `l`, which has the lower id."""
        rows = train("low lower lowest", 3)
        self.assertEqual([(r["left"], r["right"], r["times"]) for r in rows], [("l", "o", 3), ("lo", "w", 3), ("Ġ", "low", 2)][:3])
        self.assertEqual(rows[0]["as_often"], 1)

    def test_joined_from_the_left(self):
        for pieces, found in (("aaa", ["aa", "a"]), ("aaaa", ["aa", "aa"]), ("baab", ["b", "aa", "b"]), ("", [])):
            self.assertEqual(joined([*pieces], ("a", "a")), found)
        self.assertEqual(joined(["ab", "c", "ab", "c"], ("ab", "c")), ["abc", "abc"])

    def test_until_no_pair_is_left(self):
        self.assertEqual(pairs("abc", 99), library_merges("abc", 99))
        self.assertEqual((train("", 5), train("a b", 0)), ([], []))

    @settings(max_examples=60, deadline=None)
    @given(st.text(alphabet="ab c\né", max_size=60), st.integers(1, 30))
    def test_as_the_library(self, text, merges):
        self.assertEqual(pairs(text, merges), library_merges(text, merges), repr(text))

    def test_the_play_and_the_essay(self):
        found = measure(loaded(), 60)
        for name in ("play", "essay"):
            self.assertEqual((found[name]["learned"], found[name]["same_as_the_library"]), (60, 60))
        self.assertEqual(found["play"]["rows"][0], {"left": "t", "right": "h", "times": 71, "as_often": 0})


class Faults(unittest.TestCase):
    text = room.PLAY.read_text(encoding="utf-8")

    def test_ties_to_the_higher_ids(self):
        with mock.patch.object(room, "LETTERS", [chr(0x10FFFF - ord(c)) for c in room.LETTERS]), self.assertRaises(KeyError):
            train(self.text, 5)
        right = sorted

        def backwards(values):
            return right(values, reverse=True)

        with mock.patch.object(room, "sorted", backwards, create=True):
            self.assertLess(taught(self.text, 60)["same_as_the_library"], 60)

    def test_each_word_counted_once(self):
        with mock.patch.object(room, "Counter", lambda found=(): Once(found)):
            self.assertLess(taught(self.text, 60)["same_as_the_library"], 60)

    def test_joined_from_the_right(self):
        def wrong(pieces, pair):
            return [p[::-1] for p in joined([p[::-1] for p in pieces[::-1]], (pair[1][::-1], pair[0][::-1]))][::-1]

        text = "aaaaa aaa aaaaaaa baaa"
        self.assertEqual(pairs(text, 8), library_merges(text, 8))
        with mock.patch.object(room, "joined", wrong):
            self.assertNotEqual(pairs(text, 8), library_merges(text, 8))


class Once(dict):
    """A counter that counts a word of a text once."""

    def __init__(self, found):
        super().__init__(dict.fromkeys(found, 1))

    def __missing__(self, key):
        return 0


class Script(RoomCase):
    def test_page_and_json(self):
        self.assertIn("play: 300 merges, 300 as the library's trainer has them", self.page(main))
        self.assertMeasured(self.values(main, "--merges", "20"), training=measure(loaded(), 20))

    def test_a_text_of_ones_own(self):
        path = self.folder / "a.txt"
        path.write_text("low lower lowest", encoding="utf-8")
        self.assertIn("low", self.page(main, "--file", path))
        self.assertMeasured(self.values(main, "--file", path, "--merges", "4"), taught=taught("low lower lowest", 4))
        path.write_bytes(b"\xff")
        self.assertBad(main, ["--file", path], "is not UTF-8")
        self.assertBad(main, ["--file", self.folder / "none"], "No such file")
        path.write_text("")
        self.assertBad(main, ["--file", path], "has no pair")


if __name__ == "__main__":
    unittest.main()
