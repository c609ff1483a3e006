"""Our byte-level BPE: its letters, its words, its merges, and any text as the library has it, there and back; planted faults."""

import itertools
import unittest
from dataclasses import replace
from unittest import mock

import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from examples.ch03 import bpe as room
from examples.ch03 import bpe_agreement
from examples.ch03.bpe import decode, encode, main, measure, merging, pieces_of, read_bpe, spelt, words
from examples.ch03.pictures import MERGES, STAGES, STEPS
from examples.lab.script import BadInput
from tests.rooms import RoomCase
from tests.support import loaded, model, needs_smollm2

MODEL = loaded()
BPE = read_bpe(MODEL)
HARD = (  # what a program that works on characters gets wrong
    "👩‍🚀 🏴‍☠️ 👍🏽 🇬🇷❤️",  # emoji of several characters, with joiners and variation selectors
    "e\u0301 a\u0308\u0323 \u0301 \u200b\u200d\ufeff",  # combining marks, also with nothing to stand on
    "שָׁלוֹם עוֹלָם! السلام عليكم ٣٤٥ \u202eabc\u202c",  # right to left, with points, digits and an override
    "\x00\x01\x1b[31m\x7f\x85\x9f\r\n\r\t\v\f\x1c\u2028\u2029",  # control characters
    "  two   three    \n\n  x \u00a0\u3000 y  ",
    "I'm don't 's 'S \u2019s we'll they'VE o'clock'd",
    "½ ² Ⅷ 一二三 12٣ 1,000.50 x2y",
    "<|endoftext|><|endoftext|> <|endoftext|",
    "\U0010ffff\ue000\U000f0000",  # of no meaning
    "",
)


def theirs(text, one=MODEL):
    return one.tokenizer.encode(text, add_special_tokens=False).ids


def known(digits=False):
    """Any text without the characters that the library's version of Unicode does not know."""
    apart = bpe_agreement.cut_otherwise(digits)
    return st.text(max_size=60).map(lambda text: "".join(c for c in text if c not in apart))


class Letters(unittest.TestCase):
    def test_one_for_each_byte(self):
        self.assertEqual(len(set(room.LETTERS)), 256)
        self.assertEqual(set(room.LETTERS), set(pre_tokenizers.ByteLevel.alphabet()))
        self.assertEqual(spelt("a é\n"), "aĠÃ©Ċ")
        self.assertEqual([room.LETTERS[b] for b in (0, 32, 127, 160, 173, 255)], ["Ā", "Ġ", "ġ", "ł", "Ń", "ÿ"])

    def test_every_byte_is_its_own_again(self):
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        for text in (chr(c) for c in (*range(256), 0x7FF, 0x800, 0xFFFF, 0x10FFFF)):
            self.assertEqual(spelt(text), "".join(part for part, _ in level.pre_tokenize_str(text)))


class Words(unittest.TestCase):
    def test_what_is_a_word(self):
        for text, found in (
            ("Good night, good", ["Good", " night", ",", " good"]),
            ("It's 12 o'clock", ["It", "'s", " 12", " o", "'", "clock"]),
            ("a  b\n\n c ", ["a", " ", " b", "\n\n", " c", " "]),
            ("naïve?! 漢字", ["naïve", "?!", " 漢字"]),
        ):
            self.assertEqual(words(text), found)
            self.assertEqual("".join(words(text)), text)
        self.assertEqual(words("a 12b", digits=True), ["a", " ", "1", "2", "b"])


class Merges(unittest.TestCase):
    def test_a_word_by_hand(self):
        """With four merges of our own: the lowest rank first, the first of two, and one that a later piece makes possible."""
        ids = {letter: i for i, letter in enumerate("abc")} | {"ab": 3, "abc": 4, "ca": 5, "aba": 6}
        bpe = room.BPE(ids, {("a", "b"): 0, ("c", "a"): 1, ("ab", "c"): 2, ("ab", "a"): 3}, {})
        self.assertEqual(list(merging("abcab", bpe)), [(0, ["ab", "c", "a", "b"]), (0, ["ab", "c", "ab"]), (2, ["abc", "ab"])])
        self.assertEqual(pieces_of("aba", bpe), ["aba"])
        self.assertEqual(pieces_of("caab", bpe), ["ca", "ab"])
        self.assertEqual(pieces_of("bbb", bpe), ["b", "b", "b"])
        self.assertEqual(encode("abx", bpe), [3])  # a letter without an id is passed over

    def test_the_picture_of_the_chapter(self):
        bpe = room.BPE({letter: i for i, letter in enumerate("Ġther")}, {pair: rank for rank, pair in enumerate(MERGES)}, {})
        steps = [(rank, " ".join(pieces)) for rank, pieces in merging(" there", bpe)]
        self.assertEqual([(None, " ".join("Ġthere")), *steps], list(STEPS))

    def test_the_picture_of_the_stages(self):
        """What stands beside the stages is what this program makes of the text."""
        _, text = STAGES[0]
        shown, found = dict(STAGES), words(text)
        self.assertEqual(shown["words"], " | ".join(spelt(word) for word in found))
        self.assertEqual(shown["bytes,\na letter each"], " | ".join(" ".join(spelt(word)) for word in found))
        self.assertEqual(shown["merges: pieces"], " | ".join(" ".join(pieces_of(word, BPE)) for word in found))
        self.assertEqual(shown["ids [T]"], f"{len(encode(text, BPE))} numbers")

    def test_each_step_joins_the_pair_of_its_rank(self):
        pairs = {rank: pair for pair, rank in BPE.ranks.items()}
        for word in (" remembrance", " nightingale", "unhappiness"):
            before = [*spelt(word)]
            for rank, after in merging(word, BPE):
                here = [BPE.ranks[pair] for pair in itertools.pairwise(before) if pair in BPE.ranks]
                self.assertEqual(min(here), rank)
                self.assertEqual("".join(after), spelt(word))
                self.assertIn("".join(pairs[rank]), after)
                self.assertEqual(len(after), len(before) - 1)
                before = after
            self.assertFalse([pair for pair in itertools.pairwise(before) if pair in BPE.ranks])


class AnyText(unittest.TestCase):
    def assertAlike(self, text, bpe=BPE, one=MODEL):
        ids = encode(text, bpe)
        self.assertEqual(ids, theirs(text, one), ascii(text))
        self.assertEqual(decode(ids, bpe), one.tokenizer.decode(ids, skip_special_tokens=False), ascii(text))

    def test_hard_ones(self):
        for text in HARD:
            self.assertAlike(text)
            self.assertEqual(decode(encode(text, BPE), BPE), text)

    @settings(max_examples=300, deadline=None)
    @given(known())
    def test_any(self, text):
        self.assertAlike(text)
        self.assertEqual(decode(encode(text, BPE), BPE), text)

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=60))
    def test_all_come_back(self, text):
        """Those too that the two programs cut otherwise."""
        self.assertEqual(decode(encode(text, BPE), BPE), text)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, 1023), max_size=12))
    def test_any_ids(self, ids):
        """Also those whose bytes are no UTF-8."""
        self.assertEqual(decode(ids, BPE), MODEL.tokenizer.decode(ids, skip_special_tokens=False))

    @needs_smollm2
    def test_smollm2(self):
        one = loaded("smollm2")
        bpe = read_bpe(one)
        self.assertTrue(bpe.digits)
        for text in HARD:
            self.assertAlike(text, bpe, one)
        self.assertEqual(decode(encode("a\x06b\x14", bpe), bpe), "ab")  # bytes that it has no id for are lost, as in the library


class Faults(unittest.TestCase):
    """What is wrong by a little gives other ids, and measuring says so."""

    def same(self, bpe=BPE):
        texts = bpe_agreement.random_strings(200) + [bpe_agreement.PLAY.read_text(encoding="utf-8")]
        return sum(encode(text, bpe) == theirs(text) for text in texts)

    def test_nothing_is_wrong(self):
        self.assertGreater(self.same(), 190)  # of 201; a few hold characters that the library does not know

    def test_two_ranks_swapped(self):
        one, other = ("h", "e"), ("e", "r")  # of which her, here and there have only one
        swapped = BPE.ranks | {one: BPE.ranks[other], other: BPE.ranks[one]}
        play = bpe_agreement.PLAY.read_text(encoding="utf-8")
        self.assertNotEqual(encode(play, replace(BPE, ranks=swapped)), theirs(play))

    def test_the_blank_is_dropped(self):
        right, wrong = self.same(), regex.compile(room.WORDS.pattern.replace(" ?", ""))
        with mock.patch.object(room, "WORDS", wrong):
            self.assertNotEqual(words(" night"), [" night"])
            self.assertLess(self.same(), right)

    def test_a_table_of_bytes_off_by_one(self):
        off = room.LETTERS[1:] + room.LETTERS[:1]
        with mock.patch.object(room, "LETTERS", off):
            self.assertEqual(self.same(), 0)
            self.assertNotEqual(decode(encode("night", BPE), BPE), "night")

    def test_the_last_of_two_pairs_first(self):
        """A word of one letter many times over tells which of two equal pairs is joined first."""
        ids = {"a": 0, "aa": 1}
        bpe = room.BPE(ids, {("a", "a"): 0}, {})
        self.assertEqual(pieces_of("aaaaa", bpe), ["aa", "aa", "a"])


class Refused(unittest.TestCase):
    def other(self, tokenizer):
        return replace(MODEL, tokenizer=tokenizer)

    def test_what_is_no_byte_level_bpe(self):
        sentencepiece = Tokenizer(models.BPE(vocab={"▁": 0, "a": 1}, merges=[], byte_fallback=True))
        sentencepiece.pre_tokenizer = pre_tokenizers.Metaspace()
        metaspace = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
        metaspace.pre_tokenizer = pre_tokenizers.Metaspace()
        uncut = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
        uncut.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        blank = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
        blank.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        whole = Tokenizer(models.BPE(vocab={"a": 0}, merges=[], ignore_merges=True))
        whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        for tokenizer in (sentencepiece, metaspace, uncut, blank, whole, Tokenizer(models.WordPiece(unk_token="a"))):
            with self.assertRaisesRegex(BadInput, "not a byte-level BPE with GPT-2's words"):
                read_bpe(self.other(tokenizer))

    def test_no_tokenizer_and_tokens_with_blanks(self):
        from tokenizers import AddedToken

        with self.assertRaisesRegex(BadInput, "no tokenizer"):
            read_bpe(model())
        eager = Tokenizer.from_str(MODEL.tokenizer.to_str())
        eager.add_special_tokens([AddedToken("<mask>", lstrip=True)])
        with self.assertRaisesRegex(BadInput, "take blanks beside them away"):
            read_bpe(self.other(eager))


class Script(RoomCase):
    def test_page_and_json(self):
        page = self.page(main)
        for text in ("12 words, 22 ids", "Ġrem em b rance", "ids: 951, 480, 65, 973", "the same ids as the library's"):
            self.assertIn(text, page)
        self.assertMeasured(self.values(main), merges=measure(MODEL))
        found = self.values(main, "--word", " night", "--text", "Hi")["merges"]
        self.assertEqual((found["word_ids"], found["ids"]), (theirs(" night"), theirs("Hi")))
        self.assertEqual(self.values(main, "--word", "q")["merges"]["merges"], [])

    def test_ids_that_differ_are_said(self):
        with mock.patch.object(room, "encode", return_value=[1]):
            self.assertIn("OTHER ids than", self.page(main))

    def test_bad_input(self):
        self.assertBad(main, ["--word", "\ud800"], "not valid UTF-8")
        self.assertBad(main, ["--model", "random:gpt2"], "no tokenizer")


if __name__ == "__main__":
    unittest.main()
