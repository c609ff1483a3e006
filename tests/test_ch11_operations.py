"""What each operation moves and multiplies, beside what torch's dispatcher sees the programs do, and beside other formulas."""

import contextlib
import io
import re
import unittest
from dataclasses import replace
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from examples.ch02.families import formulas, program
from examples.ch02.layout import tensor_shapes
from examples.ch02.model import Model, load_config
from examples.ch04.gpt2_from_scratch import causal_mask
from examples.ch10.kv_cache import KVCache, cache_bytes
from examples.ch11 import operations as room
from examples.ch11.operations import KINDS, OPERATIONS, bound, operations, pass_bound, totals
from examples.ch14.decode_trace import decode_step
from examples.lab.script import BadInput
from tests.support import ROOT, config, llama_config

SHAPES = ("gpt2", "smollm2-135m", "llama-3-8b")  # the second and the third share keys among heads
PASSES = ((1, 0, 1), (16, 0, 1), (16, 0, 3), (1, 0, 3), (1, 15, 1), (1, 1023, 1), (1, 15, 3), (7, 20, 1), (7, 20, 2))
NO_WORK = ("aten::_unsafe_view", "aten::empty.memory_format")


class Counter(TorchDispatchMode):
    """Bytes and FLOPs of all operators between one traced point and the next, for each of OPERATIONS.

    Each operand is read once and each result written once; views do nothing, of a table only the rows that are looked up are read,
    and what is copied into is not. Ids and float64, which `operations` leaves out, are not counted.
    """

    def __init__(self):
        super().__init__()
        self.bytes, self.flops = dict.fromkeys(OPERATIONS, 0), dict.fromkeys(OPERATIONS, 0)
        self.names = {point: name for name, points in OPERATIONS.items() for point in points}
        self.now = [0, 0]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        name = function.name()
        if not function.is_view and name not in NO_WORK:
            read, written = (
                [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.bool)]
                for tree in (args, result)
            )
            if name == "aten::index.Tensor":
                read = written
            if name == "aten::copy_":
                read = read[1:]
            self.now[0] += sum(x.nbytes for x in {id(x): x for x in read}.values()) + sum(x.nbytes for x in written)
            if name in ("aten::mm", "aten::bmm"):
                self.now[1] += 2 * result.numel() * args[0].shape[-1]
        return result

    def trace(self, point, layer, tensor):
        name = self.names[point]
        self.bytes[name] += self.now[0]
        self.flops[name] += self.now[1]
        self.now = [0, 0]


def counted(of, new, past=0, batch=1):
    """The `Counter` of a pass of a config's program, on tensors without numbers, so that the largest shape takes no memory."""
    weights = {name: torch.empty(shape, device="meta") for name, shape in tensor_shapes(of).items()}
    model = Model(of, weights)
    cache = KVCache(model, batch, past + new) if past else None
    if past:
        cache.length = past
    ids, at = (torch.zeros(*shape, dtype=torch.int64, device="meta") for shape in ((batch, new), (new,)))
    mask = causal_mask(new, past + new, "meta") if new > 1 or not past else None  # as `forward` and `stream_cached` have it
    counter = Counter()
    with counter:
        x = program(model).pass_over(ids, weights, of, at, mask, counter.trace, cache)
        program(model).unembed(x, weights, of, counter.trace)
    return counter


class BesideTheDispatcher(unittest.TestCase):
    def assertCounted(self, of, *sizes):
        found, counter = operations(of, *sizes), counted(of, *sizes)
        self.assertEqual({r["operation"]: r["bytes"] for r in found}, counter.bytes)
        self.assertEqual({r["operation"]: r["flops"] for r in found}, counter.flops)

    def test_every_byte_and_every_flop(self):
        for shape in SHAPES:
            for sizes in PASSES:
                with self.subTest(shape, sizes=sizes):
                    self.assertCounted(replace(load_config(shape), n_layer=3), *sizes)

    def test_what_configs_change(self):
        """Activations, an untied head, biases in a Llama, one head of keys, and as many as of queries."""
        changed = [config(activation_function=name) for name in ("gelu", "relu", "silu", "tanh")]
        changed += [config(tie_word_embeddings=False), llama_config(attention_bias=True, mlp_bias=True)]
        changed += [llama_config(num_key_value_heads=n) for n in (1, 4)] + [config(n_head=1)]
        for of in changed:
            for sizes in ((5, 0, 2), (1, 4, 1)):
                with self.subTest(of=of, sizes=sizes):
                    self.assertCounted(of, *sizes)

    def test_other_families_nearly(self):
        """The configurable forward has further operators, of its embedding and its rotation, that are not counted here."""
        for shape in ("qwen2-7b", "mistral-7b"):
            for sizes in ((16, 0, 1), (1, 1023, 1)):
                with self.subTest(shape, sizes=sizes):
                    of = replace(load_config(shape), n_layer=3)
                    counter, all_bytes = counted(of, *sizes), totals(operations(of, *sizes))["bytes"]
                    self.assertLess(abs(sum(counter.bytes.values()) / all_bytes - 1), 0.01)

    def test_a_planted_fault_is_seen(self):
        """A norm in which one more operator reads and writes the vector, and a formula that forgets one."""
        with mock.patch.dict(room.NORM_PASSES, layer=14), self.assertRaises(AssertionError):
            self.assertCounted(load_config("gpt2"), 16, 0, 1)
        with mock.patch.dict(room.ACTIVATION_PASSES, gelu_new=18), self.assertRaises(AssertionError):
            self.assertCounted(load_config("gpt2"), 1, 15, 1)


class BesideOtherFormulas(unittest.TestCase):
    def test_flops_of_chapters_4_and_14(self):
        for shape in SHAPES:
            of = load_config(shape)
            for tokens, batch in ((1, 1), (16, 1), (512, 3)):
                flops = formulas(of).flops_per_pass(of, tokens, batch)
                rows = {r["operation"]: r["flops"] for r in operations(of, tokens, 0, batch)}
                self.assertEqual(sum(rows.values()), flops["total"])
                self.assertEqual(rows["output projection"], flops["output_projection"])
                self.assertEqual(rows["feed-forward in"] + rows["feed-forward out"], flops["feed_forward"])
            step = totals(operations(of, 1, 99, 2))
            self.assertEqual(step["flops"], 2 * formulas(of).flops_per_token(of, 100)["total"])

    def test_decode_steps_of_chapter_14(self):
        """The same weights. The cache is read with the new position in it, which is copied from where it was made."""
        for shape in SHAPES[1:]:
            of = load_config(shape)
            for past, batch, number in ((1, 1, 2), (2000, 1, 2), (2000, 8, 4)):
                ours, step = totals(operations(of, 1, past, batch, number)), decode_step(of, past, batch, number)
                self.assertEqual(ours["weight_bytes"], step["weight_bytes"])
                new = cache_bytes(of, 1, batch, number)
                self.assertEqual(ours["cache_bytes"], step["cache_bytes"] + step["written_bytes"] + 2 * new)
                self.assertEqual(ours["least_bytes"], ours["weight_bytes"] + ours["cache_bytes"])
                self.assertEqual(ours["bytes"], sum(ours[kind] for kind in KINDS))

    def test_weights_are_all_but_the_unread_rows(self):
        """GPT-2 small in float16: a pass of 16 reads all parameters once, of the position table 16 rows, and 16 rows of the tied
        table twice."""
        of = load_config("gpt2")
        read = totals(operations(of, 16, number=2))["weight_bytes"] // 2
        self.assertEqual(read, 124_439_808 - (1024 - 16) * 768 + 16 * 768)

    def test_narrow_weights(self):
        """Weights of 4.5 bits beside a computation in float32: an eighth and a bit of the bytes, and nothing else changes."""
        of = load_config("smollm2-135m")
        wide, narrow = (totals(operations(of, 1, 100, weight=w)) for w in (None, 0.5625))
        self.assertAlmostEqual(narrow["weight_bytes"] / wide["weight_bytes"], 4.5 / 32, places=6)
        self.assertEqual([narrow[k] for k in KINDS[1:]], [wide[k] for k in KINDS[1:]])


class Bounds(unittest.TestCase):
    def test_one_operation(self):
        rates = {"flop_per_s": 100.0, "bytes_per_s": 10.0}
        found = bound(200, 50, **rates)
        self.assertEqual(found, {"compute_s": 2, "memory_s": 5, "seconds": 5, "limit": "memory"})
        self.assertEqual(bound(200, 10, **rates)["limit"], "arithmetic")
        self.assertEqual(bound(200, 20, **rates), {"compute_s": 2, "memory_s": 2, "seconds": 2, "limit": "memory"})

    def test_a_pass_is_the_sum_of_its_operations(self):
        rows = operations(load_config("gpt2"), 16)
        rates = {"flop_per_s": 60e9, "bytes_per_s": 10e9}
        found = pass_bound(rows, rates)
        each = [bound(r["flops"], r["bytes"], **rates) for r in rows]
        self.assertAlmostEqual(found["seconds"], sum(b["seconds"] for b in each))
        self.assertAlmostEqual(found["memory_s"], sum(b["seconds"] for b in each if b["limit"] == "memory"))
        self.assertAlmostEqual(found["arithmetic_s"] + found["memory_s"], found["seconds"])
        whole = totals(rows)
        self.assertGreater(found["seconds"], bound(whole["flops"], whole["bytes"], **rates)["seconds"])  # which can overlap
        self.assertLess(pass_bound(rows, rates, "least_bytes")["seconds"], found["seconds"])

    def test_the_last_position_only(self):
        """Of 16 rows of logits one: a sixteenth of its FLOPs and of its vectors, and the whole matrix."""
        rows = operations(load_config("gpt2"), 16)
        one, all_rows = totals(rows, True, 16), totals(rows)
        head = next(r for r in rows if r["operation"] == "output projection")
        self.assertAlmostEqual(all_rows["flops"] - one["flops"], head["flops"] * 15 / 16)
        self.assertAlmostEqual(all_rows["bytes"] - one["bytes"], head["vector_bytes"] * 15 / 16)
        self.assertEqual(one["weight_bytes"], all_rows["weight_bytes"])

    def test_bad_input(self):
        for sizes in ((0,), (1, -1), (1, 0, 0)):
            with self.assertRaisesRegex(BadInput, "give 1 or more"):
                operations(config(), *sizes)
        for shape in ("mixtral-8x7b", "deepseek-v3"):
            with self.assertRaisesRegex(BadInput, "not counted here"):
                operations(load_config(shape), 1)


class Manuscript(unittest.TestCase):
    def test_its_program_prints_what_stands_below_it(self):
        page = (ROOT / "content/books/inference/11-chapter.md").read_text(encoding="utf-8")
        programs = re.findall(r"^```python\n((?:(?!^```).)*)^```\n\n^```text\n(.*?)^```$", page, re.M | re.S)
        self.assertEqual(len(programs), 1)
        for code, output in programs:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(code, {})
            self.assertEqual(out.getvalue(), output)


if __name__ == "__main__":
    unittest.main()
