"""What each option does to one shape, by hand where a hand can count it; the ranking; and the script."""

import unittest
from unittest import mock

from examples.ch14 import choice_effects
from examples.ch14.choice_effects import option_effects, ranking
from examples.ch14.ten_choices import OPTIONS
from examples.lab.script import parse_json
from tests.support import FolderCase, call


class Effects(unittest.TestCase):
    def test_effects(self):
        rows = {(r["choice"], r["option"]): r for r in option_effects()}
        self.assertEqual(list(rows), [(choice, option) for choice, option, _ in OPTIONS])
        self.assertEqual(sum(r["is_base"] for r in rows.values()), 10)
        for r in rows.values():
            if r["is_base"]:
                self.assertEqual((r["parameters_change"], r["flops_change"], r["parameters"]), (0, 0, 8_030_261_248))
        self.assertEqual(rows["attention", "MHA"]["kv_bytes_per_token"], 4 * rows["attention", "GQA"]["kv_bytes_per_token"])
        self.assertEqual(rows["attention", "MQA"]["kv_bytes_per_token"] * 8, rows["attention", "GQA"]["kv_bytes_per_token"])
        self.assertEqual(rows["attention", "MHA"]["flops_change"], 32 * 2 * 2 * 4096 * (4096 - 1024))
        self.assertEqual(rows["output matrix", "tied"]["parameters_change"], -128256 * 4096)
        self.assertEqual(rows["place of the norm", "post"]["parameters_change"], -4096)
        self.assertEqual(rows["window", "sliding"]["cache_bytes"] * 2, rows["window", "full"]["cache_bytes"])
        self.assertEqual(rows["window", "sliding"]["flops_change"], -32 * 4 * 4096 * 4096)

    def test_ranking(self):
        self.assertEqual([r["choice"] for r in ranking(option_effects())][:3], ["attention", "feed-forward", "window"])
        keys = ("choice", "option", "step_bytes_per_token", "memory_bytes", "flops_per_token")
        rows = [("a", "x", 2, 3, 4), ("a", "y", 2, 6, 4), ("b", "x", 1, 1, 1), ("b", "y", 3, 1, 2), ("b", "z", 1, 1, 1)]
        first, second = ranking([dict(zip(keys, row, strict=True)) for row in rows])
        self.assertEqual(
            first, {"choice": "b", "step_ratio": 3, "memory_ratio": 1, "flops_ratio": 2, "cheapest": "x = z", "dearest": "y"}
        )
        self.assertEqual((second["memory_ratio"], second["cheapest"], second["dearest"]), (2, "all the same", ""))

    def test_an_option_that_changes_nothing_is_told(self):
        same = [(choice, option, {} if option == "MQA" else changes) for choice, option, changes in OPTIONS]
        with (
            mock.patch.object(choice_effects, "OPTIONS", same),
            self.assertRaisesRegex(AssertionError, "MQA of attention, but GQA"),
        ):
            option_effects()

    def test_loads(self):
        v = choice_effects.measure((2000, 1))
        at = {(r["positions"], r["sequences"]): r for r in v["loads"]}
        self.assertEqual((v["tokens"], v["sequences"], v["first"]), (2000, 1, at[2000, 1]["first"]))
        self.assertEqual(v["attention_step_ratio"], at[2000, 1]["attention"])
        self.assertEqual(v["largest_ratio_of_the_rest_but_activation"], at[2000, 1]["rest"])
        self.assertEqual(max(at[8192, 32], key=lambda k: at[8192, 32][k] if k in ("attention", "window") else 0), "attention")


class Script(FolderCase):
    def test_both(self):
        status, text, err = call(choice_effects.main)
        self.assertEqual((status, err), (0, ""))
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertIn("attention matters most", text)
        value = parse_json(call(choice_effects.main, "--context", "2000", "--batch", "1", "--json")[1])["effects"]
        self.assertEqual((value["tokens"], value["sequences"]), (2000, 1))

    def test_bad_input(self):
        self.assertBad(choice_effects.main, ["--context", "9000"], "context 9000", "n_positions 8192")
        self.assertBad(choice_effects.main, ["--batch", "0"], "--batch", "0 is not 1 to")


if __name__ == "__main__":
    unittest.main()
