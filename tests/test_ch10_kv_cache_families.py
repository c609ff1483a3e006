"""Windows and latent attention in chapter 10's cache, of other families; each check is run right, and on faults that it sees."""

import functools
import unittest
from dataclasses import replace
from unittest import mock

import torch

from examples.ch02.families import read_config
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import Model, run
from examples.ch03.tokens import random_ids
from examples.ch04.agreement import agreement
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch05.generate import generate
from examples.ch10 import cache_invariants, cache_parity, kv_cache, wrong_caches
from examples.ch10.cache_invariants import invariants
from examples.ch10.cache_parity import compare_layers, compare_splits, in_chunks, splits
from examples.ch10.kv_cache import Cached, KVCache, cache_bytes, forward_cached
from examples.ch14 import peers, variants
from examples.ch14.family_agreement import case_models, in_absorbed_form
from examples.lab.experiment import largest
from examples.lab.script import BadInput
from tests.support import FolderCase, call, det, slow

BOUND = 1e-5  # of the largest logit


def setUpModule():
    torch.set_num_threads(1)


def relative(ours, theirs):
    return agreement(ours, theirs)["relative_difference"]


RIGHT_EXTEND = KVCache.extend
LLAMA = {
    **dict(model_type="llama", vocab_size=11, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4),
    **dict(num_key_value_heads=2, head_dim=4, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None, hidden_act="silu"),
    **dict(max_position_embeddings=64, tie_word_embeddings=False, attention_bias=False, mlp_bias=False),
}
W, CHUNKS = 6, [7, 1, 5, 1, 2, 4]  # the tiny families' window; 20 positions, in chunks longer and shorter than it
WINDOWS, NO_WINDOWS = {"mistral": (W, W, W), "gemma2": (W, None, W)}, (None, None, None)  # of each layer
BYTES = {"mistral": 3 * 6 * 40 * 4, "gemma2": (6 + 64 + 6) * 40 * 4, "llama": 2 * 64 * 16 * 4}  # positions, numbers, bytes
BYTES |= dict.fromkeys(("deepseek_v3", "absorbed"), 3 * 64 * (14 + 8) * 4)


@functools.cache
def family(kind):
    """A tiny model of a family; "absorbed": the other form of DeepSeek-V3's latent attention; "llama": run by its own program."""
    if kind == "llama":
        of = read_config(LLAMA, "config.json")
        return Model(of, {name: det(name, shape) for name, shape in tensor_shapes(of).items()}, fields=LLAMA)
    if kind == "absorbed":
        return in_absorbed_form(family("deepseek_v3"))
    return case_models(kind, {})[1]


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
        return in_chunks(family(kind), ids, [tokens], capacity)[1]

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
                    off = largest(found - right)
                    self.assertLessEqual(off, BOUND * largest(right), (kind, fed, layer, point))
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
            cache = in_chunks(model, self.ids[kind][:1, :held], [held])[1]
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

    # --------------------------------------------------------------------------------- what the chapter's scripts measure of them

    def check_invariants(self, kind):
        ids = self.ids[kind][:1]
        for name, sizes in splits(20).items():
            found = invariants(family(kind), ids, sizes)
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
        for row in compare_splits(family(kind), self.ids[kind]):
            self.assertLessEqual(row["relative_difference"], BOUND, (kind, row))
        for sizes in (CHUNKS, [1] * 20, [20]):
            for row in compare_layers(family(kind), self.ids[kind], sizes):
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

    def check_measured(self, kind):
        """What each script of the chapter measures of the family is what it measures of a right cache, and can be told."""
        model = family(kind)
        ids = random_ids(model, 40)
        written = kv_cache.measure(model, ids[:, :12], 20)
        self.assertEqual(written["ids"], generate(ids[:, :12], model, 20, end=None).sequence())
        self.assertEqual(written["full_context_bytes"], BYTES[kind])
        self.assertEqual((written["shortest_window"], written["pairs"]), (W if kind in self.WINDOWED else None, 31))
        self.assertIn("the last 6 of these" if kind in self.WINDOWED else "31 ", kv_cache.report({"kv-cache": written}))
        fed = cache_parity.measure(model, ids)
        self.assertTrue(fed["held"])
        self.assertIs(fed["in_float64_within_1e_12"], None if kind == "deepseek_v3" else True)
        self.assertIn("624 of 624", cache_parity.report({"splits": fed}))
        held = cache_invariants.measure(model, ids)
        self.assertEqual([value for value in held.values() if isinstance(value, bool)], [True] * 6)
        failures, guards = wrong_caches.measure(model, ids), wrong_caches.measure_guards(model, ids)
        self.assertEqual((guards["raised_unguarded"], guards["stopped"]), (0, 5))
        first = {r["failure"]: r["first"] for r in failures["failures"]}
        if kind == "mistral":  # where all layers drop the oldest, and rightly
            self.assertIsNone(first.pop("ring buffer"))
        self.assertEqual(list(first.values()), [12, 12, 24, 11, 12] if "ring buffer" in first else [12, 12, 11, 12])
        self.assertIn("ring buffer", wrong_caches.report({"failures": failures, "guards": guards}))

    def test_measured(self):
        for kind in ("mistral", "gemma2", "deepseek_v3"):
            self.check_measured(kind)
        self.assertSeen(KVCache, "extend", self.one_too_early, self.check_measured, "mistral")

    def test_the_figure_of_failures(self):
        """From the files that transformers writes; of a model whose layers all have a window the ring buffer is never wrong."""
        peers.library_tiny("mistral").save_pretrained(self.folder / "mistral")
        target = self.folder / "f.svg"
        status, out, err = call(wrong_caches.main, "--model", self.folder / "mistral", "--plot", target)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("none", out)
        self.assertIn("ring buffer", target.read_text())


if __name__ == "__main__":
    unittest.main()
