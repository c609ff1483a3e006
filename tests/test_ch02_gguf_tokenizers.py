"""Tokenizers of GGUF files: equal to those that transformers makes of the same file, and what cannot be read is one line that names
the file and the key."""

import functools
import json
import logging
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from examples.ch02 import gguf_file, gguf_tokenizer
from examples.ch02.model import load, run
from examples.ch03 import tokens as tokens_script
from examples.ch03.tokens import decode, encode
from examples.ch05.generate import end_tokens, generate
from examples.lab.script import BadInput
from tests.gguf_writer import write
from tests.support import FolderCase, call, llama_model, slow

SAMPLE = (
    "It is the east, and Juliet is the sun. They've said we'll go, and WE'LL go: I'm sure it's 1597, or 12 of 1234567890!\n\n"
    "  Two spaces, a tab\tand a naïve café — ½ «quoted»; 漢字 in the line.\r\n\n   the end   "
) * 2
TEXTS = (
    *(
        "the boat",
        " the boat",
        "  the boat",
        "the  boat ",
        "a",
        " ",
        "  ",
        "\n",
        "\n\n",
        "\t\tx",
        "x\r\n\r\ny",
        ".",
        "..!",
        "\x00\x7f",
    ),
    *("we'll WE'LL they've I'M it's o'clock", "1", "12", "1234", "12345678", "3.14159, 1,000,000", "a1b22c333d4444"),
    *("naïve café — ½ «quoted» 漢字 🤖 é", "▁ ▁▁ ▁the", "Ġthe Ċ", "<s>the</s>", "<0x41>", "<unk>", "x <s> y", "٣٤٥ ²"),
    *("<|begin_of_text|>the<|eot_id|> end", "<|eot_id|><|eot_id|>", "a<think>b", " <think> b", "trailing   \n   lines  \n"),
    SAMPLE,
)
QUIET = settings(max_examples=150, deadline=None, derandomize=True, database=None)
LETTERS = "thebo at'nsd1234567890 \n\t\r.,!éß漢🤖▁Ġ<>|LS_"
TEXT = st.text(st.sampled_from(LETTERS), min_size=1, max_size=40) | st.text(min_size=1, max_size=20)


@functools.cache
def llama3():
    """The keys of a small Llama 3: a byte-level BPE trained with its way of cutting words, and its special tokens."""
    made = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(gguf_tokenizer.LLAMA3), behavior="isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([SAMPLE], trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False))
    model = json.loads(made.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    n = len(pieces)
    return {
        **{"model": "gpt2", "pre": "llama-bpe", "merges": [" ".join(pair) for pair in model["merges"]]},
        "tokens": [*pieces, "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<think>", "<|endoftext|>"],
        "token_type": [1] * n + [3, 3, 3, 4, 3],
        **{"bos_token_id": n, "eos_token_id": n + 1, "eot_token_id": n + 2},
    }


@functools.cache
def sentencepiece():
    """The keys of a small Llama 2: pieces with scores, a byte of each kind, and its special tokens."""
    words = ["▁t", "he", "▁the", "▁a", "in", "er", "▁th", "ing", "and", "▁and", "▁▁", "▁▁▁", "on", "re", "▁b", "oa", "at", "▁boa"]
    words += ["▁boat", "la", "12", "123", "é", "th", "the"]
    letters = list("▁abcdefghijklmnopqrstuvwxyzTHEILW.,!'123456789")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    rest = words + letters
    return {
        **{"model": "llama", "pre": "default", "tokens": special + rest},
        "scores": [0.0] * len(special) + [-float(i) for i in range(len(rest))],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(rest),
        **{"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0},
    }


def made_of(keys):
    """A tiny Llama with a row for each of the tokens."""
    return llama_model(head_dim=8, vocab_size=len(keys["tokens"]))


def theirs(path):
    """transformers' own reading of the file."""
    from transformers import AutoTokenizer
    from transformers.utils import logging as library

    library.set_verbosity(logging.ERROR)
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


class Same(unittest.TestCase):
    """Ours and transformers' tokenizers of one file."""

    def same(self, keys, texts=TEXTS, drop=()):
        keys = {name: value for name, value in keys.items() if name not in drop}
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / "m.gguf", made_of(keys), {"rope.dimension_count": 8}, tokenizer=keys)
            ours, library = load(path), theirs(path)
        for text in texts:
            self.assertSameText(ours, library, text)
        return ours, library

    def assertSameText(self, ours, library, text):
        for special in (True, False):
            ids = library(text, add_special_tokens=special)["input_ids"]
            found = ours.tokenizer.encode(text, add_special_tokens=special).ids
            self.assertEqual(found, ids, text)
            self.assertEqual(decode(found, ours), library.decode(ids), text)
            if ids:
                self.assertEqual(encode(text, ours, special)[0].tolist(), ids)

    def test_llama3(self):
        keys = llama3()
        ours, _ = self.same(keys)
        self.assertNotIn(keys["bos_token_id"], encode("the", ours)[0].tolist())  # it does not say that one is added
        for kind in ("llama3", "llama-v3"):
            self.same(keys | {"pre": kind, "add_bos_token": True}, TEXTS[:20])
        ours, _ = self.same(keys | {"add_bos_token": True, "add_eos_token": True})
        ids = encode("the", ours)[0].tolist()
        self.assertEqual((ids[0], ids[-1]), (keys["bos_token_id"], keys["eos_token_id"]))
        self.assertEqual(decode(encode("we'll go\n", ours, special=False)[0], ours), "we'll go\n")
        self.same(keys | {"add_bos_token": False}, TEXTS[:20])

    def test_the_words_matter(self):
        """With GPT-2's way of cutting, numbers and line ends come out otherwise: the texts tell the two apart."""
        with mock.patch.dict(gguf_tokenizer.WORDS, {"llama-bpe": "gpt2"}), self.assertRaises(AssertionError):
            self.same(llama3())

    def test_gpt2(self):
        keys = llama3()
        for drop in ((), ("token_type",)):
            self.same(keys | {"pre": "gpt-2"}, drop=drop)
        self.same(keys, TEXTS[:20], drop=("pre",))
        self.same(keys | {"pre": "gpt-2", "padding_token_id": 3, "unknown_token_id": 5}, TEXTS[:20])

    def test_pieces_that_are_not_spelt_in_bytes(self):
        keys = llama3()
        tokens = [" " + piece[1:] if piece.startswith("Ġ") and piece[1:].isascii() else piece for piece in keys["tokens"]]
        self.assertNotEqual(tokens, keys["tokens"])
        self.same(keys | {"tokens": tokens})

    def test_sentencepiece(self):
        keys = sentencepiece()
        ours, _ = self.same(keys)
        self.assertEqual(encode("the boat", ours)[0, 0].item(), 1)  # a file that says nothing begins a text
        self.assertEqual(encode("日", ours, special=False)[0, 1:].tolist(), [3 + byte for byte in "日".encode()])
        self.assertEqual(decode(encode("the boat, é日", ours, special=False)[0], ours), "the boat, é日")
        self.same(keys | {"add_bos_token": False, "add_eos_token": True})
        self.same(keys | {"add_space_prefix": True}, TEXTS[:20])
        self.same(keys, TEXTS[:20], drop=("token_type",))
        self.same(keys, TEXTS[:20], drop=("bos_token_id",))

    def test_equal_scores(self):
        """Merges of one score are tried in the order in which transformers tries them."""
        keys = sentencepiece()
        self.same(keys | {"scores": [float(-(i // 7)) for i in range(len(keys["tokens"]))]})
        self.same(keys | {"scores": [0.0] * len(keys["tokens"])})
        wrong = mock.patch.object(gguf_tokenizer, "_merges_by_score", lambda *a: right(*a)[::-1])
        right = gguf_tokenizer._merges_by_score
        with wrong, self.assertRaises(AssertionError):
            self.same(keys)

    def test_sentencepiece_with_merges(self):
        keys = sentencepiece()
        self.same(keys | {"merges": ["▁ t", "h e", "▁t he", "o a"]}, drop=("scores",))

    def any_text(self, keys):
        ours, library = self.same(keys, ())
        QUIET(given(TEXT)(lambda text: self.assertSameText(ours, library, text)))()

    @slow
    def test_any_text(self):
        for keys in (llama3() | {"add_bos_token": True}, llama3() | {"pre": "gpt-2"}, sentencepiece()):
            self.any_text(keys)


class Otherwise(FolderCase):
    """Where transformers passes over what the file says, ours is held against what it would say of that."""

    def load(self, keys):
        return load(write(self.folder / "m.gguf", made_of(keys), tokenizer=keys))

    def test_no_space_before_a_text(self):
        from transformers import LlamaTokenizer

        keys = sentencepiece() | {"add_space_prefix": False}
        ours, vocabulary = self.load(keys), {piece: i for i, piece in enumerate(keys["tokens"])}
        merges = gguf_tokenizer._merges_by_score(keys["tokens"], keys["scores"], vocabulary)
        library = LlamaTokenizer(vocab=vocabulary, merges=merges, add_prefix_space=False)
        for text in TEXTS:
            ids = library(text, add_special_tokens=False)["input_ids"]
            self.assertEqual(encode(text, ours, special=False)[0].tolist(), ids, text)
            self.assertEqual(decode(ids, ours), library.decode(ids), text)
        with_one = self.load(sentencepiece())
        self.assertNotEqual(encode("the", ours, special=False).tolist(), encode("the", with_one, special=False).tolist())

    def test_a_word_that_is_a_piece(self):
        """Llama 3's tokenizer.json says ignore_merges: a word that no merge leads to is one piece all the same, GPT-2's is not."""
        keys = llama3()
        tokens = [*keys["tokens"], "Ġoclock"]
        keys = keys | {"tokens": tokens, "token_type": [*keys["token_type"], 1]}
        self.assertEqual(encode("x oclock", self.load(keys))[0, -1].item(), len(tokens) - 1)
        self.assertGreater(encode("x oclock", self.load(keys | {"pre": "gpt-2"})).shape[1], 2)

    def test_a_control_token_in_any_letters(self):
        """DeepSeek's distilled Llamas name theirs with letters that stand for no byte; the id is the file's, within the table."""
        keys, mark = llama3(), "<\uff5cbegin▁of▁sentence\uff5c>"
        n = keys["bos_token_id"]
        tokens = [*keys["tokens"][:n], mark, "<\uff5cUser\uff5c>", *keys["tokens"][n + 2 :]]
        types = [*keys["token_type"][:n], 3, 4, *keys["token_type"][n + 2 :]]
        ours = self.load(keys | {"tokens": tokens, "token_type": types, "add_bos_token": True})
        ids = encode("<\uff5cUser\uff5c>the" + mark, ours)[0].tolist()
        self.assertEqual((ids[:2], ids[-1]), ([n, n + 1], n))
        self.assertEqual(decode(ids, ours), mark + "<\uff5cUser\uff5c>the" + mark)

    def test_an_id_that_is_minus_one(self):
        ours = self.load(llama3() | {"padding_token_id": 2**32 - 1, "unknown_token_id": 2**32 - 1})
        self.assertTrue(encode("the", ours).numel())


class Ends(FolderCase):
    def test_each_end(self):
        keys = llama3()
        n = keys["bos_token_id"]
        for more, ends in (
            ({}, {n + 1, n + 2}),
            ({"eom_token_id": n + 3}, {n + 1, n + 2, n + 3}),
            ({"eot_token_id": n + 1}, {n + 1}),
        ):
            model = load(write(self.folder / "m.gguf", made_of(keys), tokenizer=keys | more))
            self.assertEqual(end_tokens(model), ends)

    def test_generation_stops_at_the_end_of_a_turn(self):
        keys, path = llama3(), self.folder / "m.gguf"
        model = load(write(path, made_of(keys), tokenizer=keys | {"eot_token_id": 0}))
        first = generate([[5, 6]], model, 1, end=None).sequence()[0]  # what it says greedily
        write(path, made_of(keys), tokenizer=keys | {"eot_token_id": first})
        self.assertEqual(generate([[5, 6]], load(path), 8).sequence(), [first])
        with mock.patch.object(gguf_file, "ENDS", ("eos_token_id",)):  # the fault: the end of a turn passed over
            self.assertEqual(len(generate([[5, 6]], load(path), 8).sequence()), 8)


class Refused(FolderCase):
    def assertRefused(self, keys, *words, rows=None):
        made = llama_model(head_dim=8, vocab_size=rows or len(keys["tokens"] or "elevenrows."))
        path = write(self.folder / "m.gguf", made, tokenizer={k: v for k, v in keys.items() if v is not None})
        with self.assertRaises(BadInput) as caught:
            load(path)
        message = str(caught.exception)
        for word in ("m.gguf", *words):
            self.assertIn(word, message)
        self.assertNotIn("no tokenizer", message)
        self.assertEqual(len(message.splitlines()), 1)
        self.assertBad(tokens_script.main, ["--model", path], "m.gguf", words[0])

    def test_byte_level(self):
        keys = llama3()
        n = len(keys["tokens"])
        tokens, merges = keys["tokens"], keys["merges"]
        for changes, *words in (
            (dict(merges=None), "lacks tokenizer.ggml.merges"),
            (dict(merges=[*merges, "Ġzz q"]), "tokenizer.ggml.merges", "'Ġzz' is not in"),
            (dict(merges=[*merges, "X Z"]), "tokenizer.ggml.merges", "'XZ' is not in"),
            (dict(merges=["the", *merges]), "tokenizer.ggml.merges", "'the'", "not two pieces"),
            (dict(merges=["a b c"]), "tokenizer.ggml.merges", "not two pieces"),
            (dict(merges=[" a"]), "tokenizer.ggml.merges", "not two pieces"),
            (dict(merges=[1, 2]), "tokenizer.ggml.merges", "not a list of texts"),
            (dict(merges="a b"), "tokenizer.ggml.merges", "not a list of texts"),
            (dict(tokens=[*tokens[:-1], tokens[0]]), "tokenizer.ggml.tokens", "twice, as 0 and"),
            (dict(tokens=None, token_type=None), "lacks tokenizer.ggml.tokens"),
            (dict(model=None), "lacks tokenizer.ggml.model"),
            (dict(model="bert"), "tokenizer.ggml.model is 'bert'", "known here"),
            (dict(model="t5"), "tokenizer.ggml.model is 't5'"),
            (dict(pre="deepseek-llm"), "tokenizer.ggml.pre is 'deepseek-llm'", "'llama-bpe'"),
            (dict(pre=7), "tokenizer.ggml.pre is 7"),
            (dict(token_type=[1, 3]), "tokenizer.ggml.token_type has 2 entries"),
            (dict(bos_token_id=n), f"tokenizer.ggml.bos_token_id is {n}"),
            (dict(padding_token_id=10**9), "tokenizer.ggml.padding_token_id is 1000000000"),
            (dict(eos_token_id="end"), "tokenizer.ggml.eos_token_id is 'end'"),
            (
                dict(add_bos_token=True, bos_token_id=None),
                "tokenizer.ggml.add_bos_token is true",
                "tokenizer.ggml.bos_token_id is not there",
            ),
            (dict(add_eos_token=1), "tokenizer.ggml.add_eos_token is 1, not true or false"),
        ):
            with self.subTest(changes.keys(), words=words):
                self.assertRefused(keys | changes, *words)

    def test_sentencepiece(self):
        keys = sentencepiece()
        n = len(keys["tokens"])
        for changes, *words in (
            (dict(scores=None), "lacks tokenizer.ggml.scores", "tokenizer.ggml.merges"),
            (dict(scores=[0.0]), "tokenizer.ggml.scores has 1 entries"),
            (dict(scores=[float("nan")] * n), "tokenizer.ggml.scores", "NaN"),
            (dict(merges=["▁ zz"]), "tokenizer.ggml.merges", "'zz' is not in"),
            (dict(pre="llama-bpe"), "tokenizer.ggml.pre is 'llama-bpe'", "SentencePiece"),
            (dict(tokens=["<s>", *keys["tokens"][1:]]), "tokenizer.ggml.tokens has '<s>' twice"),
        ):
            with self.subTest(changes.keys(), words=words):
                self.assertRefused(keys | changes, *words)

    def test_more_ids_than_rows(self):
        for keys in (llama3(), sentencepiece()):
            n = len(keys["tokens"])
            self.assertRefused(keys, f"tokenizer.ggml.tokens has {n} pieces, and the embedding table {n - 4} rows", rows=n - 4)
        keys = llama3()  # fewer are none of our business: tables are padded
        made = llama_model(head_dim=8, vocab_size=len(keys["tokens"]) + 7)
        self.assertTrue(load(write(self.folder / "m.gguf", made, tokenizer=keys)).tokenizer)

    def test_a_file_without_one(self):
        for keys in ({}, {"model": "none"}, {"model": "no_vocab"}):
            model = load(write(self.folder / "m.gguf", llama_model(head_dim=8), tokenizer=keys))
            self.assertIsNone(model.tokenizer)
        with self.assertRaisesRegex(BadInput, "no tokenizer"):
            encode("a", model)

    def test_the_checks_are_what_refuses(self):
        """The fault: a tokenizer taken as the file has it, without a guard."""
        keys = llama3()
        made = llama_model(head_dim=8, vocab_size=len(keys["tokens"]) - 4)
        path = write(self.folder / "m.gguf", made, tokenizer=keys)
        with mock.patch.object(gguf_file, "tokenizer_of", lambda f, rows, p: gguf_tokenizer.tokenizer_of(f, 10**6, p)):
            model = load(path)
            with self.assertRaises(Exception) as caught:
                run(model, encode("<|endoftext|>", model))
            self.assertIn("outside the vocabulary", str(caught.exception))

    def test_other_fields(self):
        path = self.folder / "m.gguf"
        for options, words in (
            (dict(fields={"split.count": 3}), "one of 3 parts"),
            (dict(fields={"attention.head_count_kv": [2, 2]}), "llama.attention.head_count_kv is \\[2, 2\\]"),
            (dict(fields={"block_count": "two"}), "llama.block_count is 'two'"),
            (dict(fields={"feed_forward_length": 0}), "llama.feed_forward_length is 0.*fetch it again"),
            (dict(fields={"attention.key_length": 7}), "m.gguf: a head of 7 numbers is odd"),
        ):
            with self.assertRaisesRegex(BadInput, words) as caught:
                load(write(path, llama_model(head_dim=8), **options))
            self.assertNotIn("config.json", str(caught.exception))


class Shown(FolderCase):
    def test_pieces_keep_their_space(self):
        keys = sentencepiece()
        path = write(self.folder / "m.gguf", made_of(keys), tokenizer=keys)
        status, out, err = call(tokens_script.main, "--model", path, "--text", "the boat at sea", "--json")
        self.assertEqual(status, 0, err)
        value = json.loads(out)
        self.assertEqual("".join(value["pieces"][1:]), " the boat at sea")
        self.assertEqual((value["pieces"][0], value["decoded"]), ("<s>", "the boat at sea"))
        self.assertEqual(value["added"], [True] + [False] * (len(value["ids"]) - 1))


if __name__ == "__main__":
    unittest.main()
