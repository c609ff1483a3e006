"""The caches that windows cap, beside brute force; untouched from the tests of configs."""

import functools
import unittest
from collections import deque
from dataclasses import replace
from unittest import mock

from examples.ch10 import kv_cache
from examples.ch10.kv_cache import cache_bytes
from examples.ch14 import configs, serving
from examples.lab.script import parse_json
from tests.support import FolderCase, call


@functools.cache
def named(name):
    """The general Config of a published model."""
    return configs.config_named(name)


def brute_positions(c, tokens):
    """Positions that all layers' caches hold after `tokens`, each kept as a queue that drops its oldest."""
    caches = [deque(maxlen=c.window(layer)) for layer in range(c.n_layer)]
    for token in range(tokens):
        for cache in caches:
            cache.append(token)
    return sum(map(len, caches))


def no_windows(right):
    return lambda config: replace(right(config), windows=())


def wider_windows(right):
    return lambda config: replace(right(config), windows=tuple(w and w + 1 for w in right(config).windows))


class Windows(unittest.TestCase):
    def check_window_cache(self, c, *lengths):
        for tokens in lengths:
            wanted = 2 * 2 * c.kv_heads * c.head_width * brute_positions(c, tokens)
            self.assertEqual(cache_bytes(c, tokens, bytes_per_number=2), wanted, tokens)

    def test_windows_cap(self):
        for name in ("mistral-7b", "gemma-2-9b", "gemma-3-1b", "llama-3-8b"):
            with self.subTest(name):
                self.check_window_cache(named(name), 1, 511, 512, 513, 5000)
        rows = {r["model"]: r for r in serving.window_rows()}
        self.assertEqual(rows["mistral-7b"]["times_as_many"], 8.0)
        self.assertEqual((rows["mistral-7b"]["windows"], rows["mistral-7b"]["layers_with_window"]), ("sliding", 32))
        self.assertEqual(rows["gemma-2-9b"]["windows"], "interleaved")
        self.assertAlmostEqual(rows["gemma-2-9b"]["times_as_many"], 2 * 32768 / (32768 + 4096))
        self.assertEqual((rows["gemma-3-1b"]["window"], rows["gemma-3-1b"]["layers_with_window"]), (512, 22))
        self.assertAlmostEqual(rows["gemma-3-1b"]["times_as_many"], 26 * 32768 / (22 * 512 + 4 * 32768))
        self.assertEqual(rows["mistral-7b"]["full_bytes"], 32768 * 131_072)

    def assertCaught(self, module, name, fault, check, *args):
        check(*args)
        with mock.patch.object(module, name, fault(getattr(module, name))), self.assertRaises(AssertionError):
            check(*args)

    def test_caches(self):
        for name in ("mistral-7b", "gemma-3-1b"):
            for fault in (no_windows, wider_windows):
                self.assertCaught(kv_cache, "general", fault, self.check_window_cache, named(name), 5000)


class Script(FolderCase):
    def run_json(self, *argv):
        """The strict JSON of a run, whose table is printed without error as well."""
        status, self.text, err = call(configs.main, *argv)
        self.assertEqual((status, err), (0, ""))
        status, out, err = call(configs.main, *argv, "--json")
        self.assertEqual((status, err), (0, ""))
        return parse_json(out)

    def row(self, start):
        """The cells of the printed row that starts so."""
        return next(line for line in self.text.splitlines() if line.startswith(start)).removeprefix(start).split()

    def test_window(self):
        value = self.run_json("window")
        self.assertEqual(value["requests"], serving.window_rows())
        self.assertEqual(self.row("mistral-7b"), ["4,096", "32", "of", "32", "4,096", "512", "8.00"])
        value = self.run_json("window", "--tokens", "100", "--bytes", "1")
        self.assertEqual([r["times_as_many"] for r in value["requests"]], [1.0] * 3)


if __name__ == "__main__":
    unittest.main()
