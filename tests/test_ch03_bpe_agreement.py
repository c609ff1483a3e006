"""How many texts agree with the library: the strings drawn, the characters left out, and what a fault does to the counts."""

import unicodedata
import unittest
from dataclasses import replace
from unittest import mock

from examples.ch03 import bpe_agreement as room
from examples.ch03.bpe_agreement import cut_otherwise, in_use, main, measure, random_strings
from tests.rooms import RoomCase
from tests.support import loaded

# All characters below U+10000, and one in 4,096 of those above: together they have every byte that UTF-8 can have.
EVERY_LEAD = (*range(0xD800), *range(0xE000, 0x110000, 0x1000))


class Strings(unittest.TestCase):
    def test_drawn(self):
        found = random_strings(600)
        self.assertEqual(found, random_strings(600))
        self.assertNotEqual(found, random_strings(600, seed=1))
        self.assertTrue(all(1 <= len(text) <= 40 for text in found))
        every = "".join(found)
        every.encode("utf-8")
        for first, last in room.RANGES.values():
            self.assertTrue(any(first <= ord(c) <= last for c in every))
        self.assertFalse(set(every) & {"e"} and set("".join(random_strings(600, without={"e"}))) & {"e"})

    def test_characters_left_out_are_younger(self):
        """Python's own table, whichever version it has up to 16, does not know them either."""
        apart = cut_otherwise()
        self.assertLess(apart, set(in_use()))
        if tuple(map(int, unicodedata.unidata_version.split("."))) <= (16, 0, 0):
            self.assertEqual({unicodedata.category(c) for c in apart}, {"Cn"})
        self.assertFalse(any(ord(c) < 0x300 for c in apart))


class Agreement(RoomCase):
    model = loaded()

    def test_counts(self):
        found = measure(self.model, strings=50)
        self.assertEqual(found["characters"], found["characters_cut_alike"] + found["characters_cut_otherwise"])
        for name, texts in (("strings", 50), ("play", 1), ("essay", 1)):
            self.assertEqual([found[name][key] for key in ("texts", "same_ids", "come_back")], [texts] * 3)
        self.assertEqual((found["merges"], found["bytes_without_an_id"]), (767, []))

    def test_a_fault_is_counted(self):
        right = room.read_bpe

        def backwards(model):
            bpe = right(model)
            return replace(bpe, ranks={pair: -rank for pair, rank in bpe.ranks.items()})

        with mock.patch.object(room, "read_bpe", backwards):
            found = measure(self.model, strings=50)
        self.assertEqual((found["play"]["same_ids"], found["play"]["come_back"]), (0, 1))  # other ids, of the same bytes
        self.assertLess(found["strings"]["same_ids"], 50)

    def test_letters_at_random_hardly_try_a_merge(self):
        """Which is why frequent letters are among the strings: without them ranks that are all reversed go unnoticed."""
        bpe = room.read_bpe(self.model)
        wrong = replace(bpe, ranks={pair: -rank for pair, rank in bpe.ranks.items()})
        same = lambda text: room.encode(text, wrong) == room.encode(text, bpe)  # noqa: E731
        strings = random_strings(150, without=cut_otherwise())
        self.assertEqual(sum(map(same, strings[1::3])), 50)  # each of one range
        self.assertLess(sum(map(same, strings[::3])), 25)  # of frequent letters

    def test_a_byte_without_an_id_is_lost(self):
        right = room.read_bpe

        def poorer(model):
            bpe = right(model)
            return replace(bpe, ids={piece: id for piece, id in bpe.ids.items() if piece != "Ċ"})

        with mock.patch.object(room, "read_bpe", poorer):
            found = measure(self.model, strings=5)
            self.assertIn("1 have none: a text that needs one of them", room.report({"bpe": found}))
        self.assertEqual((found["bytes_without_an_id"], found["play"]["come_back"]), ([10], 0))
        self.assertEqual((found["bytes_lacking"], found["bytes_lacking_that_utf8_has"]), (1, 1))

    def test_bytes_that_no_text_has(self):
        self.assertEqual(set(range(256)) - room.NEVER, {byte for c in map(chr, EVERY_LEAD) for byte in c.encode("utf-8")})

    def test_script(self):
        page = self.page(main, "--strings", "40")
        self.assertIn("256 bytes have an id.", page)
        self.assertIn("Of 42 texts 42 have the library's ids, and 42 come back from them.", page)
        self.assertMeasured(self.values(main, "--strings", "40", "--seed", "3"), bpe=measure(self.model, 40, 3))
        self.assertBad(main, ["--strings", "0"], "0 is not 1 or more")


if __name__ == "__main__":
    unittest.main()
