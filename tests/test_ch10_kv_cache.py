"""Chapter 10's cache: its room, bytes, mask and edges, the faults that it must not survive, and chapter 5's loop with it."""

import contextlib
import io
import json
import math
import re
import unittest
from unittest import mock

import numpy as np
import torch

from examples.ch02.config import Config
from examples.ch02.model import Model, load, load_config, run
from examples.ch03.tokens import random_ids
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.agreement import agreement
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10 import cache_parity, kv_cache
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes, forward_cached
from examples.ch10.wrong_caches import top_left
from examples.lab.script import BadInput
from tests import support
from tests.support import IDS, FolderCase, call, config, library_gpt2, slow, weights, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
LIBRARY = library_gpt2(MODEL.config, MODEL.weights)
FULL = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]])
BOUND = 1e-5  # of the largest logit


def setUpModule():
    torch.set_num_threads(1)


def in_chunks(model, ids, sizes, **options):
    return cache_parity.in_chunks(model, ids, sizes, **options)[0]


def relative(ours, theirs):
    return agreement(ours, theirs)["relative_difference"]


class Pass(unittest.TestCase):
    def test_every_switch_of_the_config(self):
        for change in (
            dict(scale_attn_weights=False),
            dict(scale_attn_by_inverse_layer_idx=True),
            dict(reorder_and_upcast_attn=True),
            dict(tie_word_embeddings=False),
            dict(n_head=1),
            dict(n_head=8),
            dict(n_layer=3),
            dict(n_inner=20),
        ):
            model = support.model(**change)
            self.assertLessEqual(relative(in_chunks(model, FULL, [4, 1, 1, 10]), run(model, FULL)), BOUND, change)

    def test_other_precisions(self):
        for dtype, bound in ((torch.float64, 1e-13), (torch.bfloat16, 0.05), (torch.float16, 0.01)):
            model = MODEL.to(dtype=dtype)
            found, cache = cache_parity.in_chunks(model, FULL, [5, 1, 1, 9])
            self.assertEqual({found.dtype, *(x.dtype for x in (*cache.keys, *cache.values))}, {dtype})
            self.assertLessEqual(relative(found, run(model, FULL)), bound)
        exact = run(MODEL.to(dtype=torch.float64), FULL)
        self.assertLessEqual(relative(in_chunks(MODEL, FULL, [1] * 16), exact), BOUND)

    @slow
    def test_on_the_embedded_model_to_its_last_position(self):
        model = load()
        ids = random_ids(model, 256)
        self.assertLessEqual(relative(in_chunks(model, ids, [250, 1, 2, 3]), run(model, ids)), BOUND)

    def test_planted_faults_of_the_cache(self):
        theirs = run(MODEL, FULL)
        right_positions, right_mask, right_extend = kv_cache.positions, kv_cache.mask_after, KVCache.extend

        def upper_layers_forget(cache, layer, k, v):
            found = right_extend(cache, layer, k, v)
            return (k, v) if layer > 0 and cache.length and k.shape[2] == 1 else found

        def values_in_the_keys(cache, layer, k, v):
            keys, _ = right_extend(cache, layer, k, v)
            return keys, keys

        def every_layer_in_the_first(cache, layer, k, v):
            return right_extend(cache, 0, k, v)

        def hides_itself(past, new, device="cpu"):
            mask = torch.full((new, past + new), -math.inf).triu(past)
            mask[0, 0] = 0
            return mask

        for target, name, fault in (
            (kv_cache, "positions", lambda past, new, device="cpu": right_positions(0, new)),
            (kv_cache, "positions", lambda past, new, device="cpu": right_positions(max(0, past - 1), new)),
            (kv_cache, "mask_after", lambda past, new, device="cpu": None),
            (kv_cache, "mask_after", lambda past, new, device="cpu": top_left(past, new)),
            (kv_cache, "mask_after", hides_itself),
            (KVCache, "extend", upper_layers_forget),
            (KVCache, "extend", values_in_the_keys),
            (KVCache, "extend", every_layer_in_the_first),
        ):
            with mock.patch.object(target, name, fault):
                self.assertGreater(relative(in_chunks(MODEL, FULL, [4, 1, 8, 1, 2]), theirs), 100 * BOUND, (name, fault))
        self.assertLessEqual(relative(in_chunks(MODEL, FULL, [4, 1, 8, 1, 2]), theirs), BOUND)
        self.assertIsNone(right_mask(5, 1))

    def test_the_mask_is_the_last_rows_of_the_square(self):
        square = torch.full((9, 9), -math.inf).triu(1)
        for past in range(8):
            for new in range(2, 10 - past):
                self.assertTrue(torch.equal(kv_cache.mask_after(past, new), square[past : past + new, : past + new]))

    def test_one_pair_fewer_than_tokens(self):
        """After t emitted tokens the cache holds the prompt and t - 1 of them: the last was chosen and not fed."""
        for t in (1, 2, 9):
            forward = Cached(MODEL)
            generate([[7, 3]], MODEL, t, end=None, forward=forward)
            self.assertEqual((forward.cache.length, forward.computed), (2 + t - 1, 2 + t - 1))

    def test_nothing_given_is_changed(self):
        ids, tensors = FULL.clone(), weights()
        model = Model(config(), tensors)
        cache = KVCache(model)
        forward_cached(ids[:, :5], model, cache)
        forward_cached(ids[:, 5:], model, cache)
        self.assertTrue(torch.equal(ids, FULL))
        for name, w in weights().items():
            self.assertTrue(torch.equal(tensors[name], w), name)


def of_shape(layers, heads, width):
    """A config of so many layers and heads of keys, which is all that the bytes of a cache depend on; four queries for each key."""
    sizes = dict(vocab_size=11, n_embd=8, n_head=4 * heads, inner_width=8, n_positions=1 << 20)
    return Config("llama", n_layer=layers, kv_heads=heads, head_width=width, **sizes)


class Cache(unittest.TestCase):
    def test_bytes_as_counted(self):
        for shape, args, wanted in (
            ((12, 12, 64), (1024,), 75_497_472),  # gpt2
            ((32, 8, 128), (8192, 1, 2), 1_073_741_824),  # Llama-3-8B
            ((80, 8, 128), (32768, 1, 2), 10_737_418_240),  # Llama-3-70B
            ((36, 8, 128), (1, 1, 2), 147_456),  # Qwen3-4B
            ((32, 32, 128), (1, 1, 2), 524_288),  # Llama-2-7B
            ((2, 2, 4), (8,), 1024),  # a tiny Llama with two heads of keys
        ):
            self.assertEqual(cache_bytes(of_shape(*shape), *args), wanted)
        for batch, capacity, dtype in ((1, 16, torch.float32), (3, 5, torch.float16), (2, 1, torch.float64)):
            cache = KVCache(MODEL.to(dtype=dtype), batch, capacity)
            self.assertEqual(cache.nbytes, cache_bytes(MODEL.config, capacity, batch, dtype.itemsize))
            self.assertEqual(cache.nbytes, sum(x.numel() * x.element_size() for x in (*cache.keys, *cache.values)))
        of = load_config("gpt2")
        self.assertEqual(KVCache(Model(of, {"wte.weight": torch.zeros(1, 1)})).nbytes, 75_497_472)
        self.assertEqual(cache_bytes(of, 1024), 75_497_472)
        self.assertEqual((cache_bytes(of, 0), cache_bytes(of, 1, 0)), (0, 0))
        for args, words in (((of, -1), "-1 tokens"), ((of, 1, -2), "-2 sequences")):
            with self.assertRaisesRegex(BadInput, words):
                cache_bytes(*args)

    def test_memory_is_taken_once(self):
        cache = KVCache(MODEL)
        places = [x.data_ptr() for x in (*cache.keys, *cache.values)]
        for t in range(16):
            forward_cached(FULL[:, t : t + 1], MODEL, cache)
        self.assertEqual([x.data_ptr() for x in (*cache.keys, *cache.values)], places)

    def test_overflow_is_an_error_and_leaves_the_cache(self):
        cache = KVCache(MODEL, capacity=6)
        forward_cached(FULL[:, :5], MODEL, cache)
        before = [x.clone() for x in (*cache.keys, *cache.values)], cache.length
        with self.assertRaisesRegex(BadInput, "holds 5 positions and has room for 6, so 2 more do not fit"):
            forward_cached(FULL[:, 5:7], MODEL, cache)
        self.assertTrue(all(map(torch.equal, (*cache.keys, *cache.values), before[0])))
        self.assertEqual(cache.length, before[1])
        forward_cached(FULL[:, 5:6], MODEL, cache)
        with self.assertRaisesRegex(BadInput, "so 1 more do not fit"):
            forward_cached(FULL[:, 6:7], MODEL, cache)
        full = KVCache(MODEL)
        forward_cached(FULL, MODEL, full)
        with self.assertRaisesRegex(BadInput, "16 cached and 1 new tokens are 17, more than n_positions 16"):
            forward_cached(FULL[:, :1], MODEL, full)

    def test_numpy_s_numbers(self):
        cache = KVCache(MODEL, np.int64(1), np.int8(16))
        forward_cached(torch.tensor([[1, 2, 3]]), MODEL, cache)
        cache.truncate(np.uint8(2))
        self.assertEqual([type(n) for n in (cache.batch, cache.capacity, cache.length)], [int] * 3)
        self.assertEqual((cache.batch, cache.capacity, cache.length), (1, 16, 2))
        for bad in (np.float64(2), np.bool_(True), 1.0):
            with self.assertRaises(BadInput):
                KVCache(MODEL, bad)
            with self.assertRaises(BadInput):
                cache.truncate(bad)

    def test_bad_input(self):
        for options, words in (
            (dict(batch=0), "batch 0"),
            (dict(batch=1.0), "batch 1.0"),
            (dict(capacity=0), "capacity 0"),
            (dict(capacity=17), "capacity 17"),
            (dict(capacity=True), "capacity True"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                KVCache(MODEL, **options)
        cache = KVCache(MODEL, batch=2)
        for ids, words in (
            (FULL, "1 sequences of ids for a cache of 2"),
            (torch.tensor([[1], [11]]), "id 11"),
            (torch.tensor([[1], [-1]]), "id -1"),
            (torch.zeros(2, 0, dtype=torch.int64), "empty"),
            (torch.zeros(2, 17, dtype=torch.int64), "17 tokens"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                forward_cached(ids, MODEL, cache)
        self.assertEqual(cache.length, 0)
        half = KVCache(MODEL.to(dtype=torch.bfloat16))
        with self.assertRaisesRegex(BadInput, "the cache is torch.bfloat16 and the weights are torch.float32"):
            forward_cached(FULL, MODEL, half)

    def test_truncate(self):
        cache = KVCache(MODEL)
        forward_cached(FULL[:, :10], MODEL, cache)
        for length in (10, 4):
            cache.truncate(length)
            again = cache.copy()
            found = forward_cached(FULL[:, length:], MODEL, again)
            self.assertLessEqual(relative(found, run(MODEL, FULL)[:, length:]), BOUND)
        other = torch.tensor([[0, 0, 7]])
        found = forward_cached(other, MODEL, cache)  # over what stood behind
        whole = torch.cat([FULL[:, :4], other], dim=1)
        self.assertLessEqual(relative(found, run(MODEL, whole)[:, 4:]), BOUND)
        for length in (-1, 8, 2.0, True):
            with self.assertRaisesRegex(BadInput, f"cannot truncate to {length}"):
                cache.truncate(length)
        cache.truncate(0)
        self.assertLessEqual(relative(forward_cached(IDS, MODEL, cache), run(MODEL, IDS)), BOUND)

    def test_copies_are_their_own(self):
        cache = KVCache(MODEL)
        forward_cached(FULL[:, :6], MODEL, cache)
        copy, wide = cache.copy(), cache.copy(batch=3, capacity=9)
        forward_cached(FULL[:, 6:8], MODEL, copy)
        self.assertEqual((cache.length, copy.length, wide.length, wide.batch, wide.capacity), (6, 8, 6, 3, 9))
        self.assertFalse(any(x[:, :, 6:].any() for x in (*cache.keys, *cache.values)))
        endings = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        found = forward_cached(endings, MODEL, wide)
        whole = torch.cat([FULL[:, :6].expand(3, -1), endings], dim=1)
        self.assertLessEqual(relative(found, run(MODEL, whole)[:, 6:]), BOUND)
        for options, words in (
            (dict(batch=0), "batch 0"),
            (dict(batch=-1), "batch -1"),
            (dict(capacity=0), "capacity 0"),
            (dict(capacity=99), "capacity 99"),
        ):
            with self.assertRaisesRegex(BadInput, words):
                cache.copy(**options)
        with self.assertRaisesRegex(BadInput, "6 positions do not fit a capacity of 5"):
            cache.copy(capacity=5)
        with self.assertRaisesRegex(BadInput, "cache of 3 sequences cannot become one of 2"):
            wide.copy(batch=2)

    def test_a_shared_prefix(self):
        cache = KVCache(MODEL)
        forward_cached(FULL[:, :6], MODEL, cache)
        for ids, shared in (
            (FULL, 6),
            (FULL[:, :6], 6),
            (FULL[:, :3], 3),
            (torch.tensor([[3, 1, 4, 0, 5, 9, 2]]), 3),
            (torch.tensor([[0, 1, 4]]), 0),
            (FULL.expand(2, -1), 0),
        ):
            self.assertEqual(cache.shared_prefix(ids), shared)
        pair = KVCache(MODEL, batch=2)
        rows = torch.tensor([[1, 2, 3], [1, 2, 4]])
        forward_cached(rows, MODEL, pair)
        self.assertEqual(pair.shared_prefix(torch.tensor([[1, 2, 3, 0], [1, 0, 4, 0]])), 1)
        self.assertEqual(pair.shared_prefix(rows[:1]), 0)  # one text is no prefix of a cache of two
        twins = KVCache(MODEL, batch=2)
        forward_cached(rows[:1].expand(2, -1), MODEL, twins)
        self.assertEqual(twins.shared_prefix(rows[:1]), 0)
        self.assertEqual(Cached(MODEL, capacity=5).cache.capacity, 5)

    def test_if_cache_is_refused(self):
        """`cache or KVCache(...)` would throw an empty cache away, and `if cache` feed the whole text or only its last token."""
        for cache in (KVCache(MODEL), Cached(MODEL).cache):
            with self.assertRaisesRegex(TypeError, "ambiguous"):
                bool(cache)
        with self.assertRaises(TypeError):
            KVCache(MODEL) or None


class Loop(unittest.TestCase):
    PROMPTS = ([3, 1, 4], [7, 7, 7], [5], [9, 2, 6, 5, 3], [1, 0])

    def test_the_tokens_of_the_whole_text(self):
        for temperature in (0, 1.0):
            for prompt in self.PROMPTS:
                room = 16 - len(prompt) + 1
                options = dict(temperature=temperature, end=None, seed=2)
                ours = generate([prompt], MODEL, room, **options, forward=Cached(MODEL)).sequence()
                self.assertEqual(ours, generate([prompt], MODEL, room, **options).sequence())
        batch = generate(self.PROMPTS, MODEL, 12, end=None, forward=Cached(MODEL, 5))
        self.assertEqual(
            [batch.sequence(r) for r in range(5)], [generate([p], MODEL, 12, end=None).sequence() for p in self.PROMPTS]
        )

    def test_as_transformers(self):
        for prompt in self.PROMPTS:
            room = 16 - len(prompt) + 1
            theirs = library_greedy(LIBRARY, torch.tensor([prompt]), room)
            self.assertEqual(generate([prompt], MODEL, room, end=None, forward=Cached(MODEL)).sequence(), theirs)

    def test_a_window_that_moves(self):
        """Where the window has moved, no prefix is shared and all is computed anew: right, and no faster."""
        for window in (4, 16):
            cached = Cached(MODEL)
            ours = generate([[7, 3, 1]], MODEL, 40, end=None, window=window, forward=cached).sequence()
            self.assertEqual(ours, generate([[7, 3, 1]], MODEL, 40, end=None, window=window).sequence())
        self.assertGreater(cached.computed, 16 * 20)

    def test_another_text_in_the_same_cache(self):
        cached = Cached(MODEL)
        for prompt in (*self.PROMPTS, [3, 1, 4], [3, 1, 5]):
            self.assertEqual(
                generate([prompt], MODEL, 9, end=None, forward=cached).sequence(), generate([prompt], MODEL, 9, end=None).sequence()
            )
        before = cached.computed
        generate([[3, 1, 5]], MODEL, 9, end=None, forward=cached)  # the same again: only the last position is computed anew
        self.assertEqual(cached.computed - before, 9)

    def test_a_cache_made_in_the_loop_can_be_used_outside(self):
        cached, copies = Cached(MODEL), []
        generate([[7]], MODEL, 5, end=None, forward=cached, on_token=lambda *_: copies.append(cached.cache.copy()))
        forward_cached(FULL[:, :2], MODEL, copies[2])
        self.assertEqual(copies[2].length, 5)

    def test_a_refused_call_forgets_nothing(self):
        cached = Cached(MODEL)
        cached(FULL[:, :9])
        for ids in (torch.cat([FULL[:, :4]] * 2), torch.tensor([[3, 1, 11]]), torch.cat([FULL, FULL], 1)):
            with self.assertRaises(BadInput):
                cached(ids)
            self.assertEqual((cached.cache.length, cached.computed), (9, 9))
        cached(FULL[:, :10])
        self.assertEqual(cached.computed, 10)

    def test_the_cache_of_another_model(self):
        with self.assertRaisesRegex(BadInput, "another model"):
            Cached(support.model(), cache=KVCache(MODEL))

    def test_an_interrupted_step_does_no_harm(self):
        cached = Cached(MODEL)
        right, count = gpt2.mlp, [0]

        def breaks(*args):
            count[0] += 1
            if count[0] == 6:  # in the second layer of the third step
                raise KeyboardInterrupt
            return right(*args)

        with mock.patch.object(gpt2, "mlp", breaks), self.assertRaises(KeyboardInterrupt):
            generate([[7]], MODEL, 9, end=None, forward=cached)
        self.assertEqual(cached.cache.length, 2)
        self.assertEqual(
            generate([[7]], MODEL, 9, end=None, forward=cached).sequence(), generate([[7]], MODEL, 9, end=None).sequence()
        )

    def test_counts_what_it_was_given(self):
        cached = Cached(MODEL)
        generate([[7, 3]], MODEL, 5, end=None, forward=cached)
        self.assertEqual((cached.given, cached.computed), (2 + 3 + 4 + 5 + 6, 6))


class Manuscript(unittest.TestCase):
    def test_its_programs_print_what_stands_below_them(self):
        """The blocks of code with a block of text directly below: "Start here" and the loop."""
        page = (support.ROOT / "content/books/inference/10-chapter.md").read_text(encoding="utf-8")
        programs = re.findall(r"^```python\n((?:(?!^```).)*)^```\n\n^```text\n(.*?)^```$", page, re.M | re.S)
        self.assertEqual(len(programs), 2)
        for program, output in programs:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(program, {})
            self.assertEqual(out.getvalue(), output)


class Script(FolderCase):
    def json(self, *argv):
        status, out, err = call(kv_cache.main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)["kv-cache"]

    def test_what_it_spared(self):
        found = self.json()
        self.assertEqual((found["prompt_tokens"], found["new_tokens"], found["pairs"]), (12, 60, 71))
        self.assertEqual((found["computed"], found["without_cache"]), (71, 2490))
        self.assertEqual((found["bytes_per_token"], found["full_context_bytes"]), (8192, 2_097_152))
        model = load()
        ids = kv_cache.ids_for(kv_cache.options().parse_args([]), model, 12)
        self.assertEqual(found["ids"], generate(ids, model, 60, end=None).sequence())

    def test_text_of_a_tiny_model(self):
        folder = write_folder(self.folder / "m")
        status, out, err = call(kv_cache.main, "--model", folder)
        self.assertEqual((status, err), (0, ""))
        found = self.json("--model", folder)  # 12 random ids, and room for 5 more
        self.assertEqual((found["new_tokens"], found["computed"], found["text"]), (5, 16, None))
        for text in (str(found["ids"]), "16 with the cache", "without it 70"):
            self.assertIn(text, out)
        self.assertEqual(self.json("--model", folder, "--dtype", "float64")["bytes_per_token"], 2 * found["bytes_per_token"])
        self.assertEqual(self.json("--model", folder, "--tokens", "2")["new_tokens"], 2)

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        broken = weights() | {"h.0.ln_1.bias": torch.full((8,), math.nan)}
        for argv, word in (
            (["--model", write_folder(self.folder / "nan", broken)], "NaN or infinity"),
            (["--model", folder, "--prompt", "text"], "no tokenizer"),
            (["--model", "nowhere"], "no model"),
            (["--prompt", "word " * 300], "n_positions 256"),
            (["--tokens", "0"], "--tokens"),
            (["splits"], "splits"),
        ):
            self.assertBad(kv_cache.main, argv, word)


if __name__ == "__main__":
    unittest.main()
