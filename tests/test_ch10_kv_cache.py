"""Chapter 10's cache: any split beside the oracle, layer by layer; its invariants, bytes and edges; the five failures, each seen
to be silent and seen to be stopped; the costs; the commands."""

import functools
import json
import math
import unittest
from dataclasses import replace
from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from examples.ch02.config import Config
from examples.ch02.model import Model, load, load_config, run
from examples.ch03.tokens import random_ids
from examples.ch04 import agreement as ch04
from examples.ch04 import gpt2_from_scratch as gpt2
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch05.generate import generate
from examples.ch05.loop_agreement import library_greedy
from examples.ch10 import cache_parity as ex
from examples.ch10 import kv_cache
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes, forward_cached
from examples.ch14 import family_agreement as ch14
from examples.ch14 import peers, variants
from examples.lab.script import BadInput
from tests import support, test_ch14_llama
from tests.faults import FAULTS
from tests.support import IDS, FolderCase, call, config, library_gpt2, slow, weights, write_folder

MODEL = support.model()  # G: 11 ids, 16 positions, 2 layers of 2 heads
FULL = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]])
BOUND = 1e-5  # of the largest logit
QUIET = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def in_chunks(model, ids, sizes, **options):
    return ex.in_chunks(model, ids, sizes, **options)[0]


def relative(ours, theirs):
    return ch04.agreement(ours, theirs)["relative_difference"]


def setUpModule():
    torch.set_num_threads(2)


class Splits(unittest.TestCase):
    @QUIET
    @given(st.data())
    def test_any_split_of_any_batch(self, data):
        """A hundred random texts, batches and splits on G, beside the oracle and transformers' own cache-free pass."""
        batch, tokens = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 16))
        row = st.lists(st.integers(0, 10), min_size=tokens, max_size=tokens)
        ids = torch.tensor(data.draw(st.lists(row, min_size=batch, max_size=batch)))
        sizes = []
        while sum(sizes) < tokens:
            sizes.append(data.draw(st.integers(1, tokens - sum(sizes))))
        found = in_chunks(MODEL, ids, sizes)
        self.assertEqual(found.shape, (batch, tokens, 11))
        self.assertLessEqual(relative(found, run(MODEL, ids)), BOUND)
        self.assertLessEqual(relative(found, LIBRARY(ids, use_cache=False).logits.detach()), BOUND)

    def test_every_split_of_the_full_context(self):
        oracle = run(MODEL, FULL)
        for row in ex.compare_splits(MODEL, FULL):
            self.assertLessEqual(row["relative_difference"], BOUND, row)
            self.assertEqual(row["same_argmax"], 16, row)
        for first in range(1, 16):
            self.assertLessEqual(relative(in_chunks(MODEL, FULL, [first, 16 - first]), oracle), BOUND)
        self.assertEqual([sum(sizes) for sizes in ex.splits(40).values()], [40] * 5)

    def test_layer_by_layer(self):
        for ids, sizes in ((FULL, [5, 1, 7, 3]), (torch.cat([IDS, IDS.flip(1)]), [1] * 8), (IDS, [8])):
            rows = ex.compare_layers(MODEL, ids, sizes)
            self.assertEqual(len(rows), 1 + 12 * 2 + 2)
            for row in rows:
                self.assertLessEqual(row["largest_difference"], BOUND * row["largest_value"], row)

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
            found, cache = ex.in_chunks(model, FULL, [5, 1, 1, 9])
            self.assertEqual({found.dtype, *(x.dtype for x in (*cache.keys, *cache.values))}, {dtype})
            self.assertLessEqual(relative(found, run(model, FULL)), bound)
        exact = run(MODEL.to(dtype=torch.float64), FULL)
        self.assertLessEqual(relative(in_chunks(MODEL, FULL, [1] * 16), exact), BOUND)

    def test_on_the_embedded_model_to_its_last_position(self):
        model = load()
        ids = random_ids(model, 256)
        self.assertLessEqual(relative(in_chunks(model, ids, [250, 1, 2, 3]), run(model, ids)), BOUND)

    def test_planted_faults(self):
        """Chapter 4's faults, seen through the cache: each leaves transformers' logits."""
        theirs = LIBRARY(FULL, use_cache=False).logits.detach()
        self.assertLessEqual(relative(in_chunks(MODEL, FULL, [4, 1, 11]), theirs), BOUND)
        for name, (target, fault) in FAULTS.items():
            with mock.patch.object(gpt2, target, fault):
                try:
                    found = relative(in_chunks(MODEL, FULL, [4, 1, 11]), theirs)
                except RuntimeError:
                    continue
            self.assertGreater(found, BOUND, name)

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
            (kv_cache, "mask_after", lambda past, new, device="cpu": ex.top_left(past, new)),
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


LIBRARY = library_gpt2(MODEL.config, MODEL.weights)


class Invariants(unittest.TestCase):
    def test_exactly(self):
        for ids in (FULL, IDS):
            for sizes in ex.splits(ids.shape[1]).values():
                found = ex.invariants(MODEL, ids, sizes)
                self.assertEqual(set(found.values()), {True}, (sizes, found))

    def test_planted_faults(self):
        right = KVCache.extend

        def rewrites(cache, layer, k, v):
            keys, values = right(cache, layer, k, v)
            cache.keys[layer][:, :, 0] += 1e-7
            return keys, values

        def leaks(cache, layer, k, v):
            keys, values = right(cache, layer, k, v)
            if cache.length:
                cache.values[layer][:, :, 0] += v[:, :, -1]
            return keys, values

        def writes_behind(cache, layer, k, v):
            found = right(cache, layer, k, v)
            cache.keys[layer][:, :, -1] += 1
            return found

        def looks_ahead(past, new, device="cpu"):
            return right_mask(past, new).roll(-1, 0) if new > 1 else None

        right_mask = kv_cache.mask_after
        with mock.patch.object(KVCache, "extend", rewrites):
            self.assertFalse(ex.invariants(MODEL, FULL, [4, 12])["old_pairs_kept"])
        with mock.patch.object(KVCache, "extend", leaks):
            self.assertFalse(ex.invariants(MODEL, FULL, [4, 12])["causal_pairs"])
        with mock.patch.object(KVCache, "extend", writes_behind):
            self.assertFalse(ex.invariants(MODEL, IDS, [4, 4])["nothing_behind_them"])
        with mock.patch.object(kv_cache, "positions", lambda past, new, device="cpu": torch.arange(new)):
            self.assertFalse(all(r["same"] for r in ex.reuse(MODEL, FULL[:, :6], [torch.tensor([1])])))
        with mock.patch.object(kv_cache, "mask_after", looks_ahead):
            self.assertFalse(ex.invariants(MODEL, FULL, [4, 12])["causal_logits"])
        with mock.patch.object(KVCache, "advance", lambda cache, ids: setattr(cache, "length", cache.length + 1)):
            self.assertFalse(ex.invariants(MODEL, FULL, [4, 12])["holds_t_pairs"])

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
    def test_bytes_as_counted(self):  # C39
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

    def test_memory_of_gpt3(self):
        self.assertEqual(cache_bytes(ex.GPT3, 1, 1, 2), 4.5 * 2**20)
        self.assertEqual(cache_bytes(ex.GPT3, 512, 1, 2), 2.25 * 2**30)
        self.assertEqual(cache_bytes(ex.GPT3, 2048, 1, 2), 9 * 2**30)
        self.assertEqual(ex.memory(ex.GPT3, 2048)["sequences_to_outweigh"], 37)
        self.assertEqual(f"{ex.memory(ex.GPT3, 2048)['weight_bytes'] / 2**30:.0f}", "325")

    def test_memory_is_taken_once(self):
        cache = KVCache(MODEL)
        places = [x.data_ptr() for x in (*cache.keys, *cache.values)]
        for t in range(16):
            forward_cached(FULL[:, t : t + 1], MODEL, cache)
        self.assertEqual([x.data_ptr() for x in (*cache.keys, *cache.values)], places)

    def test_overflow_is_an_error_and_leaves_the_cache(self):  # C18
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
        for row in ex.reuse(MODEL, FULL[:, :6], [torch.tensor([1]), torch.tensor([2, 3])]):
            self.assertTrue(row["same"], row)
            self.assertEqual(row["computed"], row["ending"])

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


RIGHT_EXTEND = KVCache.extend
W, CHUNKS = 6, [7, 1, 5, 1, 2, 4]  # the tiny families' window; 20 positions, in chunks longer and shorter than it
WINDOWS, NO_WINDOWS = {"mistral": (W, W, W), "gemma2": (W, None, W)}, (None, None, None)  # of each layer
BYTES = {"mistral": 3 * 6 * 40 * 4, "gemma2": (6 + 64 + 6) * 40 * 4, "llama": 2 * 64 * 16 * 4}  # positions, numbers, bytes
BYTES |= dict.fromkeys(("deepseek_v3", "absorbed"), 3 * 64 * (14 + 8) * 4)


@functools.cache
def family(kind):
    """A tiny model of a family; "absorbed": the other form of DeepSeek-V3's latent attention; "llama": run by its own program."""
    if kind == "llama":
        return test_ch14_llama.MODEL
    if kind == "absorbed":
        return ch14.in_absorbed_form(family("deepseek_v3"))
    return ch14.case_models(kind, {})[1]


class Stopped(Exception):
    """What breaks a pass off."""


def stops_at(point, layer):
    """A trace that raises `Stopped` there."""

    def trace(*where_and_tensor):
        if where_and_tensor[:2] == (point, layer):
            raise Stopped

    return trace


def as_traced(model, cache, layer):
    """(k, v) [B, heads, n, .] of the live positions as the trace shows them, of latent attention by expanding what is kept."""
    m = model.config.latent
    if m is None:
        return cache.live(layer)
    short, turned = cache.live(layer)  # [B, 1, n, rank], [B, 1, n, turned]
    expand = model.weights[f"model.layers.{layer}.self_attn.kv_b_proj.weight"].unflatten(0, (model.config.n_head, -1))
    plain, values = torch.einsum("hwr,bnr->bhnw", expand, short[:, 0]).split((m.plain, m.value), dim=-1)
    return torch.cat([plain, turned.expand(-1, model.config.n_head, -1, -1)], dim=-1), values


@slow
class Families(FolderCase):
    """Windows and latent attention in the same cache. Each `check_` is run right, and again on faults that it must not pass."""

    WINDOWED, ALL = ("mistral", "gemma2"), ("mistral", "gemma2", "deepseek_v3", "absorbed", "llama")

    def setUp(self):
        super().setUp()
        self.ids = {kind: random_ids(family(kind), 20, 2) for kind in self.ALL}

    def assertNear(self, found, right, about=None):
        self.assertEqual(found.shape, right.shape, about)
        self.assertLessEqual(relative(found, right), BOUND, about)

    def assertSeen(self, target, name, fault, check, *args):
        """The check fails while `target.name` is the fault."""
        with mock.patch.object(target, name, fault), self.assertRaises(AssertionError, msg=f"{name} {args}"):
            check(*args)

    def held(self, kind, tokens, capacity=None):
        """A cache of the first `tokens` positions of the text."""
        ids = self.ids[kind][:, :tokens]
        return ex.in_chunks(family(kind), ids, [tokens], capacity)[1]

    # -------------------------------------------------------------------------------------------------------- room and bytes

    def check_room(self, kind):
        model = family(kind)
        g, widths = model.config.kv_heads, (model.config.head_width,) * 2
        if model.config.latent:
            g, widths = 1, (14, 8)
        for capacity in (1, W - 1, W, W + 1, 20, None):
            cache = KVCache(model, 2, capacity)
            whole = capacity or model.config.n_positions
            windows = WINDOWS.get(kind, NO_WINDOWS)[: model.config.n_layer]
            wanted = [min(whole, window or whole) for window in windows]
            self.assertEqual([cache.room(layer) for layer in range(model.config.n_layer)], wanted, (kind, capacity))
            for layer, room in enumerate(wanted):
                shapes = [tuple(x[layer].shape) for x in (cache.keys, cache.values)]
                self.assertEqual(shapes, [(2, g, room, width) for width in widths], (kind, capacity, layer))

    def test_room(self):
        for kind in self.ALL:
            self.check_room(kind)
        right = variants.new_cache
        self.assertSeen(
            variants, "new_cache", lambda c, *a, **like: right(replace(c, windows=()), *a, **like), self.check_room, "gemma2"
        )

    def check_bytes(self, kind):
        self.assertEqual(KVCache(family(kind)).nbytes, BYTES[kind], kind)
        for dtype in (torch.float32, torch.bfloat16):
            model = family(kind).to(dtype=dtype)
            for batch, capacity in ((1, 1), (2, W - 1), (1, W), (3, W + 1), (1, model.config.n_positions)):
                wanted = cache_bytes(model.config, capacity, batch, dtype.itemsize)
                self.assertEqual(KVCache(model, batch, capacity).nbytes, wanted, (kind, batch, capacity, dtype))

    def test_bytes(self):
        for kind in self.ALL:
            self.check_bytes(kind)
        right = variants.new_cache
        self.assertSeen(
            variants, "new_cache", lambda c, *a, **like: right(replace(c, windows=()), *a, **like), self.check_bytes, "gemma2"
        )
        as_heads = lambda c, *a, **like: right(replace(c, latent=None), *a, **like)  # noqa: E731
        self.assertSeen(variants, "new_cache", as_heads, self.check_bytes, "deepseek_v3")

    # -------------------------------------------------------------------------------------------------------- live positions

    def check_live(self, kind, sizes):
        """After every chunk each layer holds the last positions, as many as it has room for, as a whole pass has them."""
        model, ids, whole = family(kind), self.ids[kind], Trace("k", "v")
        run(model, ids, trace=whole)
        cache, fed = KVCache(model, 2, 20), 0
        for size in sizes:
            forward_cached(ids[:, fed : fed + size], model, cache)
            fed += size
            for layer in range(model.config.n_layer):
                n = min(fed, WINDOWS.get(kind, NO_WINDOWS)[layer] or fed)
                for point, found in zip("kv", as_traced(model, cache, layer), strict=True):
                    right = whole[point, layer][:, :, fed - n : fed]
                    self.assertEqual(found.shape, right.shape, (kind, fed, layer, point))
                    off = ch04.largest(found - right)
                    self.assertLessEqual(off, BOUND * ch04.largest(right), (kind, fed, layer, point))
                    if len(sizes) == 1 and not model.config.latent:
                        self.assertTrue(torch.equal(found, right), (kind, layer, point))
            self.assertTrue(torch.equal(cache.ids[:, :fed], ids[:, :fed]))

    def test_live_positions(self):
        for kind in ("mistral", "gemma2", "deepseek_v3", "llama"):  # the trace of the absorbed form does not show what is expanded
            for sizes in (CHUNKS, [20], [1] * 20, [W, 14], [W - 1, 1, 14]):
                self.check_live(kind, sizes)

    @staticmethod
    def one_too_few(cache, layer, k, v):
        found = RIGHT_EXTEND(cache, layer, k, v)
        if layer in cache.pending:
            cache.pending[layer] = tuple(x[:, :, 1:] for x in cache.pending[layer])
        return found

    @staticmethod
    def one_too_early(cache, layer, k, v):
        """The window that stood before the last position came."""
        k, v = RIGHT_EXTEND(cache, layer, k, v)
        if layer in cache.pending and k.shape[2] > cache.room(layer):
            cache.pending[layer] = tuple(x[:, :, -cache.room(layer) - 1 : -1] for x in (k, v))
        return k, v

    @staticmethod
    def only_the_new(cache, layer, k, v):
        found = RIGHT_EXTEND(cache, layer, k, v)
        return found if layer not in cache.pending else (k, v)

    @staticmethod
    def at_once(cache, layer, k, v):
        """A window that is written before the pass is through."""
        found = RIGHT_EXTEND(cache, layer, k, v)
        cache.keep_windows()
        return found

    def test_planted_faults_of_live_positions(self):
        for kind in self.WINDOWED:
            for fault in (self.one_too_few, self.one_too_early, self.only_the_new):
                self.assertSeen(KVCache, "extend", fault, self.check_live, kind, CHUNKS)
            for fault in (self.one_too_few, self.one_too_early):  # what a first chunk leaves behind
                self.assertSeen(KVCache, "extend", fault, self.check_live, kind, [20])
        none = lambda cache: cache.pending.clear()  # noqa: E731
        self.assertSeen(KVCache, "keep_windows", none, self.check_live, "mistral", [20])
        self.assertSeen(
            KVCache, "extend", lambda c, i, k, v: RIGHT_EXTEND(c, i, k.roll(1, 2), v), self.check_live, "deepseek_v3", [20]
        )

    # --------------------------------------------------------------------------------------------- truncating, copying, reusing

    def check_truncate(self, kind):
        """From every length to every other: refused, with nothing changed, or right."""
        model, ids = family(kind), self.ids[kind]
        whole, windowed = run(model, ids), kind in self.WINDOWED
        for held in (3, W, W + 1, 12):
            for length in range(held + 1):
                cache = self.held(kind, held)
                allowed = length in (0, held) or held <= W or not windowed
                self.assertIs(cache.can_truncate(length), allowed, (kind, held, length))
                if not allowed:
                    with self.assertRaisesRegex(BadInput, f"cannot truncate to {length}: a window has pushed out"):
                        cache.truncate(length)
                    self.assertEqual(cache.length, held)
                    length = held
                cache.truncate(length)
                self.assertNear(forward_cached(ids[:, length:], model, cache), whole[:, length:], (kind, held, length))
            for length in (-1, held + 1, 1.0):
                with self.assertRaisesRegex(BadInput, f"the cache holds {held} positions"):
                    self.held(kind, held).truncate(length)

    def test_truncate(self):
        for kind in self.ALL:
            self.check_truncate(kind)
        anything, nothing = (lambda cache, length: True), (lambda cache, length: length in (0, cache.length))
        for kind in self.WINDOWED:
            self.assertSeen(KVCache, "can_truncate", anything, self.check_truncate, kind)
            self.assertSeen(KVCache, "can_truncate", nothing, self.check_truncate, kind)
        self.assertSeen(KVCache, "can_truncate", nothing, self.check_truncate, "deepseek_v3")
        ids, model = self.ids["mistral"], family("mistral")  # what it is refused for: the logits would be others
        cache = self.held("mistral", 12)
        cache.length = 9
        self.assertGreater(relative(forward_cached(ids[:, 9:], model, cache), run(model, ids)[:, 9:]), 100 * BOUND)

    def test_a_window_as_large_as_the_capacity_pushes_nothing_out(self):
        for capacity in (W - 1, W):
            cache = self.held("mistral", capacity, capacity)
            self.assertTrue(all(cache.can_truncate(n) for n in range(capacity + 1)))
            with self.assertRaisesRegex(BadInput, "so 1 more do not fit"):
                forward_cached(self.ids["mistral"][:, :1], family("mistral"), cache)

    def check_copy(self, kind):
        """A copy into another capacity, of one sequence or for several, goes on as the cache itself does, and leaves it alone."""
        model, whole = family(kind), run(family(kind), self.ids[kind])
        for held, capacities in ((3, (4, W, W + 1, 64)), (W, (W + 1, 64)), (12, (13, 20, 64))):
            for first in (held, held + 1, 20):
                for capacity in capacities:
                    cache = self.held(kind, held, first)
                    kept = [[x.clone() for x in cache.live(layer)] for layer in range(model.config.n_layer)]
                    copy = cache.copy(capacity=capacity)
                    self.assertEqual((copy.length, copy.capacity, cache.capacity), (held, capacity, first))
                    self.assertEqual(copy.shared_prefix(self.ids[kind]), held)
                    new = min(capacity, 20) - held
                    found = forward_cached(self.ids[kind][:, held : held + new], model, copy)
                    self.assertNear(found, whole[:, held : held + new], (kind, held, first, capacity))
                    for layer, pair in enumerate(kept):
                        self.assertTrue(all(map(torch.equal, cache.live(layer), pair)), (kind, layer))
                    if held + new <= first:
                        self.assertNear(forward_cached(self.ids[kind][:, held : held + new], model, cache), found)
            one = self.held(kind, held)
            two = one.copy()  # two texts from here on, in turns
            texts = self.ids[kind], torch.cat([self.ids[kind][:, :held], self.ids[kind].flip(1)], dim=1)
            for start in (held, held + 2, held + 4):
                for cache, text in zip((one, two), texts, strict=True):
                    found = forward_cached(text[:, start : start + 2], model, cache)
                    self.assertNear(found, run(model, text[:, : start + 2])[:, start:], (kind, held, start))
            cache = ex.in_chunks(model, self.ids[kind][:1, :held], [held])[1]
            endings = random_ids(model, 4, 3, seed=1)
            found = forward_cached(endings, model, cache.copy(batch=3, capacity=held + 4))
            texts = torch.cat([self.ids[kind][:1, :held].expand(3, -1), endings], dim=1)
            self.assertNear(found, run(model, texts)[:, held:], (kind, held))
            with self.assertRaisesRegex(BadInput, f"{held} positions do not fit a capacity of {held - 1}"):
                cache.copy(capacity=held - 1)

    def test_copies(self):
        for kind in self.ALL:
            self.check_copy(kind)
        right, live = KVCache.copy, KVCache.live

        def shifted(cache, *args, **options):
            other = right(cache, *args, **options)
            for layer in range(len(other.keys)):
                if other.length > 1:
                    keys, _ = live(other, layer)  # keys alone: pairs may stand in any order
                    keys.copy_(keys.roll(1, 2))
            return other

        def without_ids(cache, *args, **options):
            other = right(cache, *args, **options)
            other.ids.zero_()
            return other

        def without_values(cache, *args, **options):
            other = right(cache, *args, **options)
            other.values = [torch.zeros_like(x) for x in other.values]
            return other

        def shared(cache, *args, **options):
            other = right(cache, *args, **options)
            if other.capacity == cache.capacity and other.batch == cache.batch:
                other.keys = cache.keys
            return other

        for kind in ("mistral", "gemma2", "deepseek_v3"):
            for fault in (shifted, without_ids, without_values, shared):
                self.assertSeen(KVCache, "copy", fault, self.check_copy, kind)

    def check_cached(self, kind):
        """One `Cached` for several texts, one after the other: what it computes anew, and the logits of a whole pass."""
        model, ids, windowed = family(kind), self.ids[kind], kind in self.WINDOWED
        other = torch.cat([ids[:, :10], (ids[:, 10:19] + 1) % model.config.vocab_size], dim=1)  # another text from position 10 on
        forward = Cached(model, 2)
        for text, shared in (
            (ids[:, :8], 0),
            (ids[:, :9], 8),  # one token more
            (ids, 9),
            (other, 0 if windowed else 10),
            (other, 0 if windowed else 18),  # the same again: the last position at least is computed
            (ids[:, :5], 0 if windowed else 5 - 1),
            (other[:, :6], 5),
            (other[:, :4], 3),  # no window has pushed anything out
            (ids.flip(1), 0),
        ):
            before = forward.computed
            self.assertNear(forward(text), run(model, text)[:, -1:], (kind, text.shape, shared))
            self.assertEqual(forward.computed - before, text.shape[1] - shared, (kind, text.shape, shared))
            self.assertEqual(forward.cache.length, text.shape[1])

    def test_cached_begins_anew_on_another_text(self):
        for kind in self.ALL:
            self.check_cached(kind)
        for kind in self.WINDOWED:
            self.assertSeen(KVCache, "can_truncate", lambda cache, length: True, self.check_cached, kind)
        for kind in ("mistral", "gemma2", "deepseek_v3"):
            trusting = lambda cache, ids: min(cache.length, ids.shape[1])  # noqa: E731
            self.assertSeen(KVCache, "shared_prefix", trusting, self.check_cached, kind)

    def test_the_loop_writes_what_the_whole_text_writes(self):
        for kind in self.ALL:
            model, ids = family(kind), self.ids[kind][:1, :5]
            ours, naive = (generate(ids, model, 30, end=None, forward=f).sequence() for f in (Cached(model), None))
            self.assertEqual(ours, naive, kind)
            unequal = [[3], [1, 4, 1, 5, 9, 2, 6, 5], [3, 5, 8]]
            batch = generate(unequal, model, 15, end=None, forward=Cached(model, 3))
            self.assertEqual(
                [batch.sequence(r) for r in range(3)], [generate([p], model, 15, end=None).sequence() for p in unequal]
            )

    # --------------------------------------------------------------------------------------------------------- a broken pass

    def check_broken(self, kind, point, layer, retry):
        """A pass of 5 tokens after 9 breaks off there; then `retry` tokens at a time."""
        model, ids = family(kind), self.ids[kind]
        cache, whole = self.held(kind, 9, 20), run(model, ids)
        before = [[x.clone() for x in cache.live(i)] for i in range(model.config.n_layer)]
        with self.assertRaises(Stopped):
            forward_cached(ids[:, 9:14], model, cache, stops_at(point, layer))
        self.assertEqual(cache.length, 9)
        for i, pair in enumerate(before):
            self.assertTrue(all(map(torch.equal, cache.live(i), pair)), (kind, point, layer, i))
        self.assertNear(forward_cached(ids[:, 9:], model, cache.copy()), whole[:, 9:], (kind, point, layer))
        for start in range(9, 20, retry):
            stop = min(start + retry, 20)
            found = forward_cached(ids[:, start:stop], model, cache)
            self.assertNear(found, whole[:, start:stop], (kind, point, layer, start))

    def test_a_pass_that_breaks_off_leaves_the_cache_usable(self):
        for kind in self.ALL:
            last = family(kind).config.n_layer - 1
            points = ("embedding", None), ("norm_1", 0), ("A", 0), ("norm_1", 1), ("scores", last), ("residual", last)
            for point, layer in points:
                for retry in (1, 5, 11):
                    self.check_broken(kind, point, layer, retry)
        for kind in self.WINDOWED:
            self.assertSeen(KVCache, "extend", self.at_once, self.check_broken, kind, "norm_1", 1, 5)

        right_feed = kv_cache.feed

        def counted_all_the_same(ids, model, cache, *rest):
            try:
                return right_feed(ids, model, cache, *rest)
            except Stopped:
                cache.advance(ids)
                raise

        for kind in self.ALL:
            self.assertSeen(kv_cache, "feed", counted_all_the_same, self.check_broken, kind, "A", 0, 5)

    def test_a_pass_that_breaks_off_after_the_layers_is_held(self):
        """The logits come after the layers: a trace that raises there leaves a cache that holds the new positions, and says so."""
        for kind in self.ALL:
            model, ids = family(kind), self.ids[kind]
            cache = self.held(kind, 9)
            with self.assertRaises(Stopped):
                forward_cached(ids[:, 9:14], model, cache, stops_at("final_norm", None))
            self.assertEqual((cache.length, cache.shared_prefix(ids)), (14, 14))
            self.assertNear(forward_cached(ids[:, 14:], model, cache), run(model, ids)[:, 14:], kind)

    def test_the_loop_goes_on_after_a_broken_step(self):
        for kind in self.ALL:
            model, forward = family(kind), Cached(family(kind))
            module = kv_cache.program(model)
            right, count = module.mlp, [0]

            def breaks(*args, right=right, count=count, **options):
                count[0] += 1
                if count[0] == 30:
                    raise KeyboardInterrupt
                return right(*args, **options)

            with mock.patch.object(module, "mlp", breaks), self.assertRaises(KeyboardInterrupt):
                generate([[7, 3, 1]], model, 40, end=None, forward=forward)
            self.assertGreaterEqual(forward.cache.length, 3, kind)
            ours, naive = (generate([[7, 3, 1]], model, 20, end=None, forward=f).sequence() for f in (forward, None))
            self.assertEqual(ours, naive, kind)

    # ------------------------------------------------------------------------------------------------- invariants and commands

    def check_invariants(self, kind):
        ids = self.ids[kind][:1]
        for name, sizes in ex.splits(20).items():
            found = ex.invariants(family(kind), ids, sizes)
            self.assertEqual(len(found), 6)
            self.assertEqual(set(found.values()), {True}, (kind, name, found))

    def test_invariants(self):
        for kind in self.ALL:
            self.check_invariants(kind)
        for kind in self.WINDOWED:
            for fault in (self.one_too_few, self.one_too_early):
                self.assertSeen(KVCache, "extend", fault, self.check_invariants, kind)
        right = variants.new_cache
        self.assertSeen(
            variants, "new_cache", lambda c, *a, **like: right(replace(c, windows=()), *a, **like), self.check_invariants, "mistral"
        )

        right_advance = KVCache.advance

        def rewrites(cache, ids):
            right_advance(cache, ids)
            for keys in cache.keys:
                keys[:, :, 0] *= 1 + 1e-6

        for kind in self.ALL:
            self.assertSeen(KVCache, "advance", rewrites, self.check_invariants, kind)
            self.assertSeen(kv_cache, "mask_after", lambda *_: None, self.check_invariants, kind)

    def check_splits(self, kind):
        for row in ex.compare_splits(family(kind), self.ids[kind]):
            self.assertLessEqual(row["relative_difference"], BOUND, (kind, row))
        for sizes in (CHUNKS, [1] * 20, [20]):
            for row in ex.compare_layers(family(kind), self.ids[kind], sizes):
                self.assertLessEqual(row["largest_difference"], BOUND * row["largest_value"], (kind, row))

    def test_splits_point_by_point(self):
        right = variants.key_positions

        def one_before(at, S, cache=None):
            return right(at, S, cache) - int(cache is not None and len(at) < S)

        def from_zero(at, S, cache=None):
            return right(at, S, cache) if cache is None else torch.arange(S)

        for kind in self.ALL:
            self.check_splits(kind)
        for kind in self.WINDOWED:
            for fault in (self.one_too_few, self.one_too_early, self.only_the_new):
                self.assertSeen(KVCache, "extend", fault, self.check_splits, kind)
            self.assertSeen(variants, "key_positions", one_before, self.check_splits, kind)
            self.assertSeen(variants, "key_positions", from_zero, self.check_splits, kind)
        for kind in ("deepseek_v3", "absorbed", "llama"):
            zero = lambda past, new, device="cpu": torch.arange(new)  # noqa: E731
            self.assertSeen(kv_cache, "positions", zero, self.check_splits, kind)

    def saved(self, kind):
        """A folder that transformers wrote."""
        folder = self.folder / kind
        if not folder.exists():
            peers.library_tiny(kind).save_pretrained(folder)
        return folder

    def check_commands(self, kind):
        """Every command exits with 0 and says what it says of a right cache."""
        folder = self.saved(kind)
        found = {}
        for name in ("tour", "splits", "invariants", "failures"):
            status, out, err = call(kv_cache.main, name, "--model", folder)
            self.assertEqual((status, err), (0, ""), (kind, name))
            self.assertNotIn(" NO ", out)
            status, out, err = call(kv_cache.main, name, "--model", folder, "--json")
            self.assertEqual((status, err), (0, ""), (kind, name))
            found[name] = json.loads(out)
        self.assertTrue(found["tour"]["same_as_naive"])
        self.assertEqual(found["tour"]["cache_bytes"], KVCache(load(folder)).nbytes)
        self.assertEqual({r["same_argmax"] for r in found["splits"]["splits"]}, {40})
        self.assertLessEqual(max(r["relative_difference"] for r in found["splits"]["splits"]), BOUND)
        self.assertTrue(all(all(row.values()) for row in found["invariants"]["invariants"].values()))
        rows = {r["failure"]: r for r in found["failures"]["failures"]}
        self.assertEqual(list(rows), list(ex.FAILURES))
        self.assertTrue(all(r["guard"] and r["raised"] is None for r in rows.values()))
        first = {name: r["first"] for name, r in rows.items()}
        if kind == "mistral":  # where all layers drop the oldest, and rightly
            self.assertIsNone(first.pop("ring buffer"))
        self.assertEqual(list(first.values()), [12, 12, 24, 11, 12] if "ring buffer" in first else [12, 12, 11, 12])

    def test_commands(self):
        for kind in ("mistral", "llama", "gemma2", "deepseek_v3"):
            self.check_commands(kind)
        for fault in (self.one_too_few, self.one_too_early):
            self.assertSeen(KVCache, "extend", fault, self.check_commands, "mistral")
        self.assertSeen(ex, "guarded", lambda *_: None, self.check_commands, "llama")
        self.assertSeen(ex, "RingCache", KVCache, self.check_commands, "llama")

    def test_the_figure_of_failures(self):
        for kind in ("mistral", "gemma2"):
            target = self.folder / f"{kind}.svg"
            status, _, err = call(kv_cache.main, "failures", "--model", self.saved(kind), "--plot", target)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("ring buffer", target.read_text())


class Failures(unittest.TestCase):
    FIRST = (6, 6, 9, 5, 6)  # in the order of FAILURES, for a prompt of 6 and a ring of 9

    def test_each_leaves_the_oracle_where_it_must_and_says_nothing(self):
        for model in (MODEL, MODEL.to(dtype=torch.float64)):
            for name, first in zip(ex.FAILURES, self.FIRST, strict=True):
                ids = FULL[:, :15]  # the position one too far would be the model's last at 16
                found = ex.failure(model, name, ids, 6, 9)
                self.assertIsNone(found["raised"], name)
                self.assertEqual(found["first"], first, name)
                self.assertGreater(found["at_first"], 1e-3, name)
                before = found["by_position"][:first]
                if name == "another prefix":  # of which the first positions came out of the wrong cache
                    self.assertEqual(before, [None] * first)
                else:
                    self.assertLess(max(before), BOUND, name)
                self.assertEqual(found["positions"], 15 - before.count(None))

    def test_the_right_one_does_not(self):
        with mock.patch.object(ex, "wrong", lambda model, *_: Cached(model)):
            found = ex.failure(MODEL, "none", FULL, 6, 9)
        self.assertEqual((found["first"], found["moved"], found["raised"]), (None, 0, None))
        with mock.patch.object(ex, "wrong", lambda model, *_: ex.Wrong(model)):  # no fault in it
            found = ex.failure(MODEL, "none", FULL, 6, 9)
        self.assertEqual((found["first"], found["moved"], found["raised"]), (None, 0, None))

    def test_an_exception_would_be_told(self):
        found = ex.failure(MODEL, "position off by one", FULL, 6, 9)  # at the last position the table ends
        self.assertIn("IndexError", found["raised"])

    def test_each_guard_stops_its_failure(self):
        for name in ex.FAILURES:
            message = ex.guard(MODEL, name, FULL[:, :15], 6, 9)
            self.assertIsNotNone(message, name)
            self.assertIn(name, ex.GUARDS)

    def test_the_guards_let_the_right_one_pass(self):
        for name in ex.FAILURES:
            right = ex.Wrong(MODEL)
            with mock.patch.object(ex, "wrong", lambda *_, right=right: right):
                self.assertIsNone(ex.guard(MODEL, name, FULL, 6, 9), name)
        for past, new in ((0, 1), (0, 5), (3, 1), (3, 4)):
            cache = KVCache(MODEL)
            if past:
                forward_cached(FULL[:, :past], MODEL, cache)
            ids = FULL[:, past : past + new]
            ex.guarded(ids, MODEL.config, cache, kv_cache.positions(past, new), kv_cache.mask_after(past, new))
            if new > 1:
                with self.assertRaisesRegex(BadInput, "align the mask"):
                    ex.guarded(ids, MODEL.config, cache, kv_cache.positions(past, new), None)

    def test_text(self):
        model = load()
        ids = ex.some_ids(model, 12)
        right = generate(ids, model, 20, end=None).sequence()
        zero = ex.failure_text(model, "position always 0", ids, 20, 24)
        self.assertNotEqual(zero, ex.decode(right, model))
        self.assertIsInstance(ex.failure_text(MODEL, "ring buffer", FULL[:, :6], 9, 9), str)


class Cost(unittest.TestCase):
    def test_the_published_ratios(self):
        """5, 10.5 and 69.5 count the new tokens' work alone; with the prefill they are 1.0, 7.9 and 58.4."""
        for prompt, new, without, with_it in ((5, 1, "5.0", "1.0"), (5, 12, "10.5", "7.9"), (20, 100, "69.5", "58.4")):
            found = ex.tokens_processed(prompt, new)
            self.assertEqual((f"{found['ratio_without_prefill']:.1f}", f"{found['ratio']:.1f}"), (without, with_it))
            self.assertEqual(found["ratio_without_prefill"], prompt + (new - 1) / 2)

    def test_positions_are_those_that_run(self):
        for prompt, new in ((5, 1), (3, 7), (1, 16)):
            fed, cached = [], Cached(MODEL)

            def forward(ids, fed=fed):
                fed.append(ids.shape[1])
                return gpt2.forward(ids, MODEL.weights, MODEL.config)

            generate(FULL[:, :prompt], MODEL, new, end=None, forward=forward)
            generate(FULL[:, :prompt], MODEL, new, end=None, forward=cached)
            counted = ex.tokens_processed(prompt, new)
            self.assertEqual((sum(fed), cached.computed), (counted["naive"], counted["cached"]))

    def test_flops_are_those_that_torch_counts(self):
        for prompt, new in ((5, 1), (3, 7), (1, 16)):
            wanted = ex.flops_of_loop(MODEL.config, prompt, new)
            for forward, flops in zip((None, Cached(MODEL)), wanted, strict=True):
                with FlopCounterMode(display=False) as counter:
                    generate.__wrapped__(FULL[:, :prompt], MODEL, new, end=None, forward=forward)
                self.assertEqual(counter.get_total_flops(), flops, (prompt, new, forward))

    def test_times_on_a_clock_of_our_own(self):
        """Each position costs 1 s in either loop; the first run of each 1,000 s more, and is discarded."""
        now, runs = [0.0], [0]

        class Slow(Cached):
            def __call__(self, ids):
                before = self.computed
                found = super().__call__(ids)
                now[0] += self.computed - before
                return found

        def naive(model):
            runs[0] += 1
            first = [1000.0 if runs[0] == 1 else 0.0]

            def forward(ids):
                now[0] += ids.shape[1] + first[0]
                first[0] = 0.0
                return gpt2.forward(ids, model.weights, model.config)

            return forward

        with mock.patch.object(ex, "Cached", Slow), mock.patch.object(ex, "whole_text", naive):
            rows = ex.loop_times(MODEL, 5, 10, (1, 2, 10), runs=3, timer=lambda: now[0])
        for row in rows:
            counted = ex.tokens_processed(5, row["new"])
            self.assertEqual((row["naive_s"], row["cached_s"]), (counted["naive"], counted["cached"]))
            self.assertEqual((row["ratio"], row["positions_ratio"]), (counted["ratio"],) * 2)
        self.assertIsNone(rows[0]["ratio_without_prefill"])
        self.assertAlmostEqual(rows[2]["ratio_without_prefill"], rows[2]["positions_ratio_without_prefill"])

    def test_decode_rates(self):
        """Turns, warm-up and ratios; the matrices are all that a step reads whole."""
        rates = ex.decode_rates(MODEL, tokens=4, runs=2)
        self.assertAlmostEqual(rates["over_floor"], rates["ours_per_s"] / rates["floor_per_s"])
        self.assertAlmostEqual(rates["over_library"], rates["ours_per_s"] / rates["library_per_s"])
        for of in (config(), config(tie_word_embeddings=False)):
            flops = sum(2 * w.numel() for w in ex.matrices(Model(of, weights(of))))
            counted = gpt2.flops_per_token(of, 1)
            self.assertEqual(flops, counted["total"] - counted["attention_scores_and_values"])


class Commands(FolderCase):
    def json(self, *argv):
        status, out, err = call(kv_cache.main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        return json.loads(out)

    def test_tour(self):
        status, out, err = call(kv_cache.main)
        self.assertEqual((status, err), (0, ""))
        for text in ("the same tokens", "71 with it, 2,490 without", "holds 71 pairs", "8,192 bytes a token", "2,097,152"):
            self.assertIn(text, out)
        self.assertTrue(self.json()["same_as_naive"])

    def test_every_command_on_a_tiny_model(self):
        folder = write_folder(self.folder / "m")
        for argv, texts in (
            (["splits", "--model", folder], ("one by one", "16 of 16", "residual_mid")),
            (["invariants", "--model", folder], ("holds t pairs", "yes")),
            (["failures", "--model", folder, "--plot", self.folder / "f.svg"], ("ring buffer", "What stops each", "nothing")),
            (["cost", "--model", folder, "--prompt-tokens", "5", "--new", "1,12"], ("7.9", "10.5")),
            (["cost"], ("58.4", "69.5", "6,950", "119")),
            (["memory"], ("2.250", "9.000", "4,718,592", "325.2 GiB", "37")),
            (["memory", "--config", "gpt2", "--bytes", "4", "--batch", "2"], (f"{2 * 75_497_472:,}",)),
        ):
            status, out, err = call(kv_cache.main, *argv)
            self.assertEqual((status, err), (0, ""), argv)
            self.assertNotIn(" NO ", out)
            for text in texts:
                self.assertIn(text, out, argv)
        self.assertIn("position always 0", (self.folder / "f.svg").read_text())

    def test_json(self):
        folder = write_folder(self.folder / "m")
        self.assertTrue(all(r["relative_difference"] <= BOUND for r in self.json("splits", "--model", folder)["splits"]))
        self.assertTrue(all(all(row.values()) for row in self.json("invariants", "--model", folder)["invariants"].values()))
        failures = self.json("failures", "--model", folder)["failures"]
        self.assertEqual([f["failure"] for f in failures], list(ex.FAILURES))
        self.assertTrue(all(f["guard"] for f in failures))
        found = self.json("cost", "--model", "toy", "--prompt-tokens", "5", "--new", "1,12", "--time")
        self.assertEqual([t["new"] for t in found["times"]], [1, 12])
        self.assertEqual(self.json("memory", "--tokens", "2048")["rows"][0]["all_bytes"], 9 * 2**30)

    def test_a_model_of_no_numbers(self):
        broken = weights() | {"h.0.ln_1.bias": torch.full((8,), math.nan)}
        folder = write_folder(self.folder / "nan", broken)
        for name in ("tour", "splits", "invariants", "failures"):
            self.assertBad(kv_cache.main, [name, "--model", folder], "NaN or infinity")

    def test_bad_input(self):
        folder = write_folder(self.folder / "m")
        for argv, word in (
            (["cost", "--model", folder, "--new", "100"], "n_positions 16"),
            (["cost", "--plot", "x.svg"], "--time"),
            (["cost", "--time", "--plot", "x.txt"], "x.txt"),
            (["failures", "--plot", "x.txt"], "x.txt"),
            (["memory", "--tokens", "2049"], "n_positions 2048"),
            (["memory", "--config", "gpt5"], "gpt5"),
            (["memory", "--bytes", "3"], "--bytes"),
            (["memory", "--batch", "1" + "0" * 400], "--batch"),
            (["cost", "--model", "gpt2"], "gpt2"),
            (["nonsense"], "nonsense"),
            (["--model", "nowhere"], "no model"),
        ):
            self.assertBad(kv_cache.main, argv, word)


if __name__ == "__main__":
    unittest.main()
