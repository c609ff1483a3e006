"""Chapter 5's loop: at the model's last position, unequal prompts, end tokens, streaming, the script, an interrupt."""

import contextlib
import io
import json
import math
import re
import signal
import unittest
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from examples.ch02.model import Model, load
from examples.ch03.tokens import decode, encode
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch05 import generate as module
from examples.ch05.bigram import bigram
from examples.ch05.generate import Stream, end_tokens, generate
from examples.ch05.loop_agreement import library_greedy
from examples.lab.script import BadInput
from tests.faults import head_order, shifted_mask
from tests.support import FolderCase, G, call, config, library_gpt2, weights, write_folder

MODEL = Model(config(), weights())  # G: 11 ids, 16 positions
EMBEDDED = load()
PROMPTS = ([3, 1, 4], [7, 7, 7], [5], [9, 2, 6, 5, 3], [1, 0])


LIBRARY = library_gpt2(MODEL.config, MODEL.weights)


def library_tokens(ids, tokens, end=None):
    """transformers' greedy tokens for one prompt of G."""
    return library_greedy(LIBRARY, torch.tensor([ids]), tokens, end)


def setUpModule():
    torch.set_num_threads(1)


class Greedy(unittest.TestCase):
    def test_the_known_row(self):
        made = generate([[7]], MODEL, 16, end=None)
        self.assertEqual(made.sequence(), [0, 0, 0, 5, *[10] * 11, 0])
        self.assertEqual((made.lengths, made.ended, list(made.ids.shape)), ([16], [None], [1, 16]))

    def test_as_transformers_token_by_token(self):
        for prompt in PROMPTS:
            room = 16 - len(prompt) + 1
            for tokens in (1, 2, room):
                self.assertEqual(generate([prompt], MODEL, tokens, end=None).sequence(), library_tokens(prompt, tokens), prompt)

    def test_planted_faults(self):
        """A mask off by one, heads in another order, and a loop that reads the last position but one: each gives other tokens."""
        wanted = {i: library_tokens(p, 16 - len(p) + 1) for i, p in enumerate(PROMPTS)}

        def differs(**options):
            return [
                i
                for i, p in enumerate(PROMPTS)
                if generate([p], MODEL, 16 - len(p) + 1, end=None, **options).sequence() != wanted[i]
            ]

        self.assertEqual(differs(), [])
        for fault in (shifted_mask(2), head_order):
            with mock.patch.object(gpt2, "attention", fault):
                self.assertTrue(differs())
        self.assertTrue(differs(forward=lambda ids: gpt2.forward(ids, MODEL.weights, MODEL.config)[:, : max(1, ids.shape[1] - 1)]))

    def test_any_forward(self):
        model, forward, words = bigram()
        self.assertEqual(len(words), 8)
        made = generate([[words.index("cat")]], model, 6, forward=forward)
        self.assertEqual([words[i] for i in made.sequence()], "sat on the cat sat on".split())
        whole = generate([[7]], MODEL, 9, end=None, forward=lambda ids: gpt2.forward(ids, MODEL.weights, MODEL.config))
        self.assertEqual(whole.sequence(), generate([[7]], MODEL, 9, end=None).sequence())

    def test_the_last_token_is_never_fed(self):
        fed = []

        def forward(ids):
            fed.append(ids.shape[1])
            return module.whole_text(MODEL)(ids)

        generate([[3, 1, 4]], MODEL, 5, end=None, forward=forward)
        self.assertEqual(fed, [3, 4, 5, 6, 7])


class LastPosition(unittest.TestCase):
    def test_one_more_is_an_error_before_any_work(self):
        for prompt in PROMPTS:
            room = 16 - len(prompt) + 1
            forward = mock.Mock(side_effect=module.whole_text(MODEL))
            with self.assertRaisesRegex(BadInput, rf"n_positions is 16; ask for at most {room} tokens"):
                generate([prompt], MODEL, room + 1, end=None, forward=forward)
            forward.assert_not_called()
            self.assertEqual(len(generate([prompt], MODEL, room, end=None).sequence()), room)
        with self.assertRaisesRegex(BadInput, "at most 12 tokens"):  # of a batch the longest prompt decides
            generate([[1], [1, 2, 3, 4, 5]], MODEL, 13)

    def test_a_full_prompt_has_room_for_one(self):
        full = [i % 11 for i in range(16)]
        self.assertEqual(generate([full], MODEL, 1, end=None).sequence(), library_tokens(full, 1))
        with self.assertRaisesRegex(BadInput, "17 tokens are more than n_positions 16"):
            generate([[*full, 0]], MODEL, 1)

    def test_a_window_goes_on(self):
        """Each step sees the last W tokens at positions from 0."""
        for window in (1, 5, 16):
            made = generate([[7, 3, 1]], MODEL, 40, end=None, window=window).sequence()
            text = [7, 3, 1]
            for _ in range(40):
                ids = torch.tensor([text[-window:]])
                text.append(int(gpt2.forward(ids, MODEL.weights, MODEL.config)[0, -1].argmax()))
            self.assertEqual(made, text[3:], window)
        long = generate(torch.tensor([[1, 2, 3, 4] * 6]), MODEL, 3, end=None, window=16).sequence()
        self.assertEqual(long, generate([[1, 2, 3, 4] * 4], MODEL, 3, end=None, window=16).sequence())
        self.assertEqual(long, generate([[1, 2, 3, 4] * 6], MODEL, 3, end=None, window=16).sequence())

    def test_bad_settings(self):
        for options, words in (
            (dict(tokens=0), "0 new tokens"),
            (dict(tokens=10**14, window=4), "100000000000000 new tokens"),
            (dict(tokens=1.5), "1.5 new tokens"),
            (dict(tokens=True), "True new tokens"),
            (dict(window=0), "window 0"),
            (dict(window=17), "window 17"),
            (dict(window=2.0), "window 2.0"),
            (dict(temperature=-1), "temperature"),
            (dict(top_k=0), "top-k is 0; .* None in a function"),
            (dict(top_p=0), "top-p is 0; .* None in a function"),
            (dict(seed=1.5), "the seed is 1.5; give a whole number"),
            (dict(seed="1"), "the seed is '1'"),
            (dict(seed=None), "the seed is None"),
            (dict(seed=True), "the seed is True"),
            (dict(seed=-1), "the seed is -1"),
            (dict(seed=2**63), "the seed is 9223372036854775808"),
            (dict(tokens=np.float64(2)), "new tokens"),
            (dict(window=np.bool_(True)), "window"),
            (dict(end="stop"), "end holds 'stop'"),
            (dict(end=[1, True]), "end holds True"),
            (dict(end=-1), "end holds -1"),
        ):
            forward = mock.Mock()
            with self.assertRaisesRegex(BadInput, words):
                generate([[1]], MODEL, **{"tokens": 2, "forward": forward, **options})
            forward.assert_not_called()

    def test_numpy_s_numbers(self):
        plain = generate([[7, 3]], MODEL, 9, temperature=1, top_k=3, top_p=0.5, seed=3, end=5, window=4)
        settings = dict(temperature=np.int64(1), top_k=np.int8(3), top_p=np.float32(0.5), seed=np.int64(3), end=np.int64(5))
        made = generate([np.array([7, 3])], MODEL, np.int8(9), **settings, window=np.uint8(4))
        self.assertEqual((made.sequence(), made.ended), (plain.sequence(), plain.ended))
        many = generate([[7] * 10], MODEL, np.int8(100), end=None, window=np.int8(16))  # 110 is no int8 times 2
        self.assertEqual(len(many.sequence()), 100)
        with self.assertRaisesRegex(BadInput, "ask for at most 7 tokens"):
            generate([[7] * 10], MODEL, np.int8(127))

    def test_bad_prompts(self):
        for ids, words in (
            ([], "neither a tensor"),
            ("abc", "neither a tensor"),
            ([[]], "empty"),
            ([[1], []], "empty"),
            ([[1, 11]], "id 11"),
            ([[1], [-1]], "id -1"),
            ([[1.9]], "float32"),
            ([["a"]], "no sequence of ids"),
            (["ab"], "no sequence of ids"),
            ([[None]], "no sequence of ids"),
            ([[2**70]], "no sequence of ids"),
            ([[True]], "bool"),
            (torch.tensor([1, 2]), "shape"),
            (torch.zeros(0, 3, dtype=torch.int64), "empty"),
            ([torch.tensor([[1]])], "shape"),
            (torch.tensor([[0.5]]), "float32"),
        ):
            for window in (None, 4):
                with self.assertRaisesRegex(BadInput, words):
                    generate(ids, MODEL, 2, window=window)


class Rows(unittest.TestCase):
    def test_each_row_is_what_it_is_alone(self):
        for temperature in (0, 1.0):
            together = generate(PROMPTS, MODEL, 12, temperature=temperature, seed=5, end=None)
            for r, prompt in enumerate(PROMPTS):
                alone = generate([prompt], MODEL, 12, temperature=temperature, seed=5 + r, end=None)
                self.assertEqual(together.sequence(r), alone.sequence(), (temperature, prompt))

    def test_a_planted_fault_shows(self):
        """Prompts padded on the left with nothing to hide the padding, as a batch without a mask would be."""

        def padded(prompts, *arguments, **options):
            longest = max(map(len, prompts))
            rows = [[0] * (longest - len(p)) + list(p) for p in prompts]
            return generate(torch.tensor(rows), *arguments, **options)

        together = padded(PROMPTS, MODEL, 12, end=None)
        self.assertNotEqual(
            [together.sequence(r) for r in range(5)], [generate([p], MODEL, 12, end=None).sequence() for p in PROMPTS]
        )

    def test_no_row_of_attention_is_fully_masked(self):
        """A short prompt beside a long one: every logit on the way is finite, and the rows are those of the rows alone."""
        seen, sums = [], []

        def forward(ids):
            logits = gpt2.forward(
                ids, MODEL.weights, MODEL.config, trace=lambda p, i, x: sums.append(x.sum(-1)) if p == "A" else None
            )
            seen.append(logits)
            return logits

        made = generate([[3, 1, 4], [6, 2, 3, 1, 4]], MODEL, 6, end=None, forward=forward)
        self.assertTrue(all(x.isfinite().all() for x in seen))
        for total in sums:
            torch.testing.assert_close(total, torch.ones_like(total))
        self.assertEqual(made.sequence(0), generate([[3, 1, 4]], MODEL, 6, end=None).sequence())
        one = gpt2.forward(torch.tensor([[3, 1, 4]]), MODEL.weights, MODEL.config)
        torch.testing.assert_close(seen[0][:1], one, atol=2e-6, rtol=0)

    def test_a_fully_masked_row_would_be_an_error(self):  # softmax of nothing but -inf is NaN; it does not spread in silence
        dead = lambda ids: torch.full((ids.shape[0], 1, 11), -math.inf)  # noqa: E731
        for temperature in (0, 1.0):
            with self.assertRaisesRegex(BadInput, "nothing but minus infinity"):
                generate([[1]], MODEL, 2, temperature=temperature, forward=dead, end=None)

    def test_each_token_is_told_as_it_comes(self):
        told = []
        made = generate(PROMPTS, MODEL, 6, end=None, on_token=lambda r, i, x: told.append((r, i, int(x.argmax()), tuple(x.shape))))
        for r in range(len(PROMPTS)):
            self.assertEqual([i for row, i, _, _ in told if row == r], made.sequence(r))
        self.assertTrue(all(i == best and shape == (11,) for _, i, best, shape in told))
        self.assertEqual(len(told), 30)
        made.ids[0, 0] = 3  # a tensor like any other, although the loop runs in inference mode

    def test_padding_never_reaches_the_model(self):
        for pad in (-1, 99, 2):
            made = generate([[7], [3, 1, 4]], MODEL, 8, end=[5], pad=pad)
            rows = [made.sequence(r) for r in (0, 1)]
            self.assertEqual(rows, [generate([p], MODEL, 8, end=[5]).sequence() for p in ([7], [3, 1, 4])])
            self.assertEqual(set(made.ids[0, made.lengths[0] :].tolist()), {pad})

    def test_same_seed_same_text(self):
        one = [generate([[7]], MODEL, 16, temperature=1.0, seed=s, end=None).sequence() for s in (3, 3, 4)]
        self.assertEqual(one[0], one[1])
        self.assertNotEqual(one[0], one[2])

    def test_the_global_state_is_left_alone(self):
        torch.manual_seed(1)
        before = torch.get_rng_state()
        generate([[7]], MODEL, 8, temperature=1.0, end=None)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))


class Ends(FolderCase):
    def test_stops_at_any(self):  # on G greedy from [7] is 0 0 0 5 10 10 ...
        for end, wanted, ended in (
            (5, [0, 0, 0, 5], 5),
            ([99, 5], [0, 0, 0, 5], 5),
            ([10, 5], [0, 0, 0, 5], 5),  # not the first of the list
            ([5, 10], [0, 0, 0, 5], 5),
            (10, [0, 0, 0, 5, 10], 10),
            (0, [0], 0),
            ([], [0, 0, 0, 5, 10, 10], None),
            (None, [0, 0, 0, 5, 10, 10], None),
            ([99], [0, 0, 0, 5, 10, 10], None),
        ):
            made = generate([[7]], MODEL, 6, end=end)
            self.assertEqual((made.sequence(), made.ended[0]), (wanted, ended), end)
            if end not in (None, [], [99]):
                self.assertEqual(library_tokens([7], 6, end), wanted)

    def test_an_end_in_the_prompt_does_not_stop(self):
        self.assertEqual(generate([[7]], MODEL, 6, end=7).sequence(), [0, 0, 0, 5, 10, 10])
        made = generate([[7], [7, 0, 7, 7]], MODEL, 5, end=7)  # nor where the longer prompt is fed beside new tokens
        self.assertEqual(
            [made.sequence(r) for r in (0, 1)], [generate([p], MODEL, 5, end=None).sequence() for p in ([7], [7, 0, 7, 7])]
        )

    def test_finished_rows_are_padded(self):
        rows = [generate([p], MODEL, 8, end=None).sequence() for p in ([7], [3, 1, 4])]
        made = generate([[7], [3, 1, 4]], MODEL, 8, end=[99, 5], pad=2)
        cut = [row[: row.index(5) + 1] if 5 in row else row for row in rows]
        longest = max(map(len, cut))
        self.assertEqual(made.ids.tolist(), [row + [2] * (longest - len(row)) for row in cut])
        self.assertEqual(made.lengths, [len(row) for row in cut])
        self.assertLess(made.lengths[0], longest)

    def test_from_the_files(self):
        for generation, main_config, wanted in (
            (None, {}, set()),
            (None, {"eos_token_id": 3}, {3}),
            (None, {"eos_token_id": [3, 5]}, {3, 5}),
            ({"eos_token_id": [4, 5]}, {"eos_token_id": 3}, {4, 5}),
            ({"eos_token_id": []}, {"eos_token_id": 3}, set()),
            ({}, {"eos_token_id": 3}, {3}),
            ({"eos_token_id": None}, {"eos_token_id": 3}, {3}),
        ):
            folder = write_folder(self.folder / "m", values=G | main_config)
            path = folder / "generation_config.json"
            path.unlink(missing_ok=True)
            if generation is not None:
                path.write_text(json.dumps(generation))
            self.assertEqual(end_tokens(load(folder)), wanted)
        self.assertEqual(
            generate([[7]], load(write_folder(self.folder / "m", values=G | {"eos_token_id": [9, 5]})), 8).sequence(), [0, 0, 0, 5]
        )
        path.write_text('{"eos_token_id": "5"}')
        with self.assertRaisesRegex(BadInput, "generation_config.json: eos_token_id holds '5'"):
            generate([[7]], load(folder), 8)
        self.assertEqual(end_tokens(EMBEDDED), {1023})
        self.assertEqual(end_tokens(MODEL), set())


def reading(tokenizer):
    """A model with this tokenizer, for `encode`, `decode` and `Stream`."""
    return replace(MODEL, tokenizer=tokenizer)


def byte_tokenizer(*merged):
    """A tokenizer of single bytes, and of `merged` pieces of bytes behind them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(letters)} | {piece: 256 + i for i, piece in enumerate(merged)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


class Streaming(unittest.TestCase):
    TEXTS = ("plain", "naïve café", "€ and 中文", "🙂👩‍👩‍👧 family", "a\u0301", "\ufffd in the text", "\n\n\ttabs")

    def stream(self, model, ids, prompt=()):
        stream = Stream(model, prompt)
        return [*(stream.push(i) for i in ids), stream.rest()]

    def test_whole_characters_and_the_same_text(self):
        model = reading(byte_tokenizer())
        for text in self.TEXTS:
            ids = model.tokenizer.encode(text).ids
            self.assertEqual(len(ids), len(text.encode()))
            parts = self.stream(model, ids)
            self.assertEqual("".join(parts), text)
            if "\ufffd" not in text:
                self.assertNotIn("\ufffd", "".join(parts))

    def test_a_prompt_that_ends_within_a_character(self):
        """The character is shown once it is whole, wherever the prompt was cut, and what was whole before is not shown again."""
        byte_fallback = Tokenizer(models.BPE(vocab={f"<0x{i:02X}>": i for i in range(256)}, merges=[], byte_fallback=True))
        byte_fallback.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        for model in (reading(byte_tokenizer()), reading(byte_fallback), EMBEDDED):
            for text in (*self.TEXTS[:4], "水", "a水b", "水火"):
                ids = list(text.encode()) if model.tokenizer is byte_fallback else model.tokenizer.encode(text).ids
                for cut in range(1, len(ids)):
                    whole = decode(ids[:cut], model).rstrip("\ufffd")  # a character that is not whole yet is no part of it
                    parts = self.stream(model, ids[cut:], ids[:cut])
                    self.assertEqual(whole + "".join(parts), text, (text, cut))
                    self.assertNotIn("\ufffd", "".join(parts))
        model = reading(byte_tokenizer())
        water = model.tokenizer.encode("水").ids
        self.assertEqual(self.stream(model, water[1:], water[:1]), ["", "水", ""])

    def test_what_a_prompt_shows_is_not_shown_again(self):
        model = reading(byte_tokenizer())
        x, water, mark = (model.tokenizer.encode(text).ids for text in ("x", "水", "\ufffd"))
        for prompt, new, shown in (
            ([*x, *mark], x, ["x", ""]),  # the mark is the prompt's own
            ([*x, *water[:1]], x, ["x", ""]),  # bytes that stay no character stand in the prompt's text
            ([*x, *water[:2]], [*x, *water], ["x", "", "", "水", ""]),
            ([*x, *water[:1]], water[1:2], ["", ""]),  # still waiting, and the prompt's text shows the mark
            ((), [*x, *water], ["x", "", "", "水", ""]),
        ):
            self.assertEqual(self.stream(model, new, prompt), shown, prompt)

    def test_a_character_waits_for_its_last_byte(self):
        model = reading(byte_tokenizer())
        self.assertEqual(self.stream(model, model.tokenizer.encode("a€b").ids), ["a", "", "", "€", "b", ""])

    def test_a_planted_fault_shows(self):
        """Decoding each id by itself breaks every character of more than one byte."""
        model = reading(byte_tokenizer())
        for text in self.TEXTS[1:4]:
            self.assertNotEqual("".join(decode([i], model) for i in model.tokenizer.encode(text).ids), text)

    def test_bytes_that_are_no_character(self):
        tokenizer = byte_tokenizer()
        model = reading(tokenizer)
        letters = pre_tokenizers.ByteLevel.alphabet()
        self.assertEqual(len(letters), 256)
        euro = tokenizer.encode("€").ids
        for ids in (euro[:2], [*euro[:1], *tokenizer.encode("x").ids], euro[1:], [*euro[:2], *euro[:2], *euro], euro[:1] * 7):
            self.assertEqual("".join(self.stream(model, ids)), decode(ids, model), ids)

    def test_a_tokenizer_with_a_mark_for_each_byte(self):
        """With byte fallback every byte of an unfinished character shows as one U+FFFD."""
        vocab = {f"<0x{i:02X}>": i for i in range(256)} | {"a": 256}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
        ids = [256, *"🙂".encode(), 256, *"€".encode()]
        model = reading(tokenizer)
        self.assertEqual(decode(ids[:3], model), "a\ufffd\ufffd")
        self.assertEqual(self.stream(model, ids), ["a", "", "", "", "🙂", "a", "", "", "€", ""])

    def test_the_embedded_tokenizer(self):
        model = EMBEDDED
        ids = encode("HAMLET:\nO, naïve — «word»", model)[0].tolist()
        self.assertEqual("".join(self.stream(model, ids)), "HAMLET:\nO, naïve — «word»")


class PaddedVocabulary(unittest.TestCase):
    def test_the_special_tokens_are_known(self):
        self.assertIsNone(module.known_ids(EMBEDDED))  # all of them, the end token too

    def test_ids_without_a_piece_are_never_chosen(self):
        tokenizer = byte_tokenizer()
        of = config(vocab_size=300)
        tensors = weights(of)
        tensors["wte.weight"] = tensors["wte.weight"].clone()
        tensors["wte.weight"][256:] *= 20  # large logits where there are no pieces
        model = Model(of, tensors, tokenizer)
        free = Model(of, tensors)
        greedy = [generate([[7]], m, 12, end=None).sequence() for m in (model, free)]
        self.assertLess(max(greedy[0]), 256)
        self.assertGreaterEqual(max(greedy[1]), 256)
        drawn = generate([[7]], model, 16, temperature=5.0, end=None).sequence()
        self.assertLess(max(drawn), 256)
        self.assertEqual(generate([[7]], model, 6, end=None).sequence(), generate([[7]], replace(model), 6, end=None).sequence())


class StartHere(unittest.TestCase):
    def test_the_chapter_s_first_program_runs(self):
        page = (Path(__file__).parents[1] / "content/books/inference/05-chapter.md").read_text(encoding="utf-8")
        block = re.search(r"^\*\*Start here\.\*\*.*?^```python\n(.*?)^```$", page, re.M | re.S)[1]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block, {})
        wanted = generate(encode("JULIET:", EMBEDDED), EMBEDDED, 24).sequence()
        self.assertEqual(out.getvalue(), decode(encode("JULIET:", EMBEDDED)[0].tolist() + wanted, EMBEDDED) + "\n")


class Script(FolderCase):
    def test_the_same_seed_gives_the_same_text(self):
        status, out, err = call(module.main, "--tokens", "12")
        self.assertEqual((status, out.startswith(module.PROMPT)), (0, True))
        self.assertIn("[12 new tokens in", err)
        self.assertEqual(call(module.main, "--tokens", "12")[1], out)

    def test_stdout_is_the_text_alone(self):
        """A redirected text ends with the text: seconds and settings are on stderr, in an interrupt's case as well."""
        ids = generate(encode("JULIET:", EMBEDDED), EMBEDDED, 8).sequence()
        for argv in ((), ("--show-candidates",)):
            status, out, err = call(module.main, "--prompt", "JULIET:", "--tokens", "8", "--temperature", "0", *argv)
            text = decode(encode("JULIET:", EMBEDDED)[0].tolist() + ids, EMBEDDED)
            self.assertEqual(status, 0)
            self.assertTrue(out.endswith(text + "\n") if argv else out == text + "\n", out)
            self.assertRegex(err, r"\[8 new tokens in \d+\.\d s; temperature 0\.0, top-k 50, seed 0;\neach step ran the whole text")

    def test_candidates_say_what_their_probabilities_are(self):
        for temperature, wanted in (
            ("0.5", "probabilities after temperature 0.5, before top-k and top-p"),
            ("0", "probabilities at temperature 1, since 0 takes the best without any"),
        ):
            out = call(module.main, "--tokens", "1", "--show-candidates", "--temperature", temperature)[1]
            self.assertIn(wanted, out.splitlines()[0])

    def test_json_and_candidates(self):
        status, out, err = call(
            module.main, "--tokens", "3", "--json", "--show-candidates", "--top-p", "0.5", "--prompt", "My lord, what"
        )
        value = json.loads(out)["generation"]
        self.assertEqual((status, err, len(value["ids"]), len(value["steps"])), (0, "", 3, 3))
        self.assertEqual(value["text"], decode(value["prompt"] + value["ids"], EMBEDDED))
        for step, id in zip(value["steps"], value["ids"], strict=True):
            self.assertEqual((len(step["candidates"]), step["id"]), (10, id))
            kept = {c["id"] for c in step["candidates"] if c["cut"] is None}
            self.assertTrue(id in kept or len(kept) == 10)
            self.assertEqual(
                sorted((c["probability"] for c in step["candidates"]), reverse=True), [c["probability"] for c in step["candidates"]]
            )
        status, out, _ = call(module.main, "--tokens", "2", "--show-candidates", "--top-p", "0.5", "--prompt", "My lord, what")
        for text in ("step 1:", "step 2:", "kept", "cut by top-p", "drawn with", "My lord, what"):
            self.assertIn(text, out)

    def test_temperature_0_is_greedy(self):
        _, out, _ = call(module.main, "--tokens", "20", "--temperature", "0", "--json", "--prompt", "JULIET:")
        model = EMBEDDED
        self.assertEqual(json.loads(out)["generation"]["ids"], generate(encode("JULIET:", model), model, 20).sequence())

    def test_random_weights_show_ids(self):
        folder = write_folder(self.folder / "m")
        status, out, err = call(module.main, "--model", folder, "--tokens", "4", "--temperature", "0")
        self.assertEqual((status, "[4 new tokens in" in err), (0, True))
        self.assertEqual(out.split(), ["0", *map(str, generate([[0]], MODEL, 4, end=None).sequence())])

    def test_bad_input(self):
        for argv, word in (
            (["--tokens", "300"], "at most 252 tokens"),
            (["--tokens", "0"], "0 is not 1 or more"),
            (["--temperature", "-0.5"], "temperature"),
            (["--top-k", "0"], "--top-k off"),
            (["--top-p", "0"], "--top-p off"),
            (["--top-k", "all"], "'all' is neither a whole number from 1 nor off"),
            (["--window", "300"], "window 300"),
            (["--prompt", ""], "empty"),
            (["--model", "nowhere"], "no model"),
        ):
            self.assertBad(module.main, argv, word)
        self.assertBad(module.main, ["--model", write_folder(self.folder / "m"), "--prompt", "x"], "no tokenizer")

    def test_an_end_token_is_told(self):
        free = generate([[0]], MODEL, 9, end=None).sequence()
        end = next(i for i in free if i != free[0])
        folder = write_folder(self.folder / "m", values=G | {"eos_token_id": [99, end]})
        order = ["--model", folder, "--tokens", "9", "--temperature", "0"]
        value = json.loads(call(module.main, *order, "--json")[1])["generation"]
        self.assertEqual((value["ids"], value["ended"]), (free[: free.index(end) + 1], end))
        self.assertIn(f"[{len(value['ids'])} new tokens up to an end token in", call(module.main, *order)[2])

    def test_the_seed_is_used(self):
        made = {}
        for seed in (0, 0, 7):
            value = json.loads(call(module.main, "--tokens", "12", "--json", "--seed", seed)[1])
            ids = value["generation"]["ids"]
            self.assertEqual(made.setdefault(seed, ids), ids)
            self.assertEqual(value["ran_with"]["seed"], seed)
        self.assertNotEqual(made[0], made[7])
        model = EMBEDDED
        settings = dict(temperature=0.8, top_k=50, seed=7)
        self.assertEqual(made[7], generate(encode(module.PROMPT, model), model, 12, **settings).sequence())

    def test_a_candidate_keeps_the_space_before_it(self):
        """SentencePiece's decoder takes the space from the first piece of a text; within one the piece has it."""
        pieces = ["<unk>", "▁a", "a", "▁boat", "s", "▁", "b", "c", "d", "e", "f"]
        tokenizer = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], unk_token="<unk>"))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        args = SimpleNamespace(temperature=1.0, top_k=None, top_p=None)
        show = module._Show(args, reading(tokenizer), torch.tensor([[1]]), None)
        self.assertEqual([show.piece(id) for id in (1, 2, 3, 4)], ["' a'", "'a'", "' boat'", "'s'"])

    def test_the_filters_turned_off(self):
        made = json.loads(call(module.main, "--tokens", "12", "--json", "--top-k", "off", "--top-p", "off")[1])
        self.assertEqual((made["ran_with"]["top_k"], made["ran_with"]["top_p"]), (None, None))
        wanted = generate(encode(module.PROMPT, EMBEDDED), EMBEDDED, 12, temperature=0.8)
        self.assertEqual(made["generation"]["ids"], wanted.sequence())

    def test_half_a_character_at_the_end_is_shown(self):
        model = EMBEDDED
        first = encode("é", model)[0, 0]
        self.assertNotEqual(decode([first], model), "é")
        with mock.patch.object(module, "choose", return_value=first):
            out = call(module.main, "--tokens", "1")[1]
        self.assertTrue(out.startswith(module.PROMPT + "\N{REPLACEMENT CHARACTER}\n"), out[:40])

    def test_threads(self):
        with mock.patch.object(torch, "set_num_threads") as threads:
            call(module.main, "--tokens", "1", "--threads", "2")
        threads.assert_called_with(2)

    def test_a_model_of_few_tokens(self):
        """Fewer pieces than ten candidates, and ids without a piece: strict JSON all the same."""
        tokenizer = byte_tokenizer()
        model = Model(config(vocab_size=300), weights(config(vocab_size=300)), tokenizer)
        few = mock.Mock(wraps=tokenizer)
        few.get_vocab = lambda **_: {"a": 64, "b": 65}
        few.decode, few.encode = tokenizer.decode, tokenizer.encode
        with mock.patch.object(module, "load_for", return_value=replace(model, tokenizer=few)):
            status, out, _ = call(module.main, "--tokens", "3", "--prompt", "a", "--json", "--show-candidates")
        self.assertEqual(status, 0)
        self.assertEqual([{c["id"] for c in s["candidates"]} for s in json.loads(out)["generation"]["steps"]], [{64, 65}] * 3)

    def interrupted(self, *argv):
        """The script's answer when SIGINT comes as the fourth token is chosen."""
        heed = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may have been told not to
        self.addCleanup(signal.signal, signal.SIGINT, heed)
        ids = iter([5, 6, 7])

        def choose(*_):
            id = next(ids, None)
            if id is None:
                signal.raise_signal(signal.SIGINT)
            return torch.tensor(id)

        with mock.patch.object(module, "choose", choose):
            return call(module.main, *argv)

    def test_an_interrupt_keeps_the_text(self):
        """Ctrl-C in the middle: the text so far stands on stdout, the exit status is 130, and there is no traceback."""
        status, out, err = self.interrupted()
        self.assertEqual((status, out), (130, module.PROMPT + decode([5, 6, 7], EMBEDDED) + "\n"))
        self.assertIn("[3 new tokens in", err)
        self.assertTrue(err.endswith("error: interrupted\n"), err)

    def test_an_interrupt_keeps_the_json(self):
        status, out, err = self.interrupted("--json")
        value = json.loads(out)["generation"]
        self.assertEqual((status, err), (130, "error: interrupted\n"))
        self.assertEqual((value["ids"], value["interrupted"]), ([5, 6, 7], True))


if __name__ == "__main__":
    unittest.main()
