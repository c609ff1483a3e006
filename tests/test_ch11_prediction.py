"""A request predicted before it runs: hand-computed values, what operators add, a clock of our own, and the record of it."""

import json
import unittest
from unittest import mock

import torch

from examples.ch01 import request as shows
from examples.ch01.record import append, predictions, read, request_record, summary
from examples.ch03.tokens import random_ids
from examples.ch11 import prediction
from examples.ch11.operations import operations, pass_bound, totals
from examples.ch11.overhead import pass_operators
from examples.ch11.prediction import compared, measure, measure_one, predict, request, three
from examples.lab.script import BadInput
from tests import support
from tests.rooms import RoomCase
from tests.support import call

MODEL = support.model()  # V 11, d 8, L 2, h 2, f 32, 16 positions
ARITHMETIC = {"flop_per_s": 1e6, "bytes_per_s": 1e30}
MEMORY = {"flop_per_s": 1e30, "bytes_per_s": 1e6}
KNOWN = {"rates": {**MEMORY, "operator_s": 1e-3}, "operators": {"prefill": 100, "decode": 90}, "matrices_per_s": 5e5}


OLDER = {"format": 0, "model": "embedded", "seconds": 1.5, "stages": {"load": 0.5, "prefill": 0.25, "decode": [0.25, 0.25]}}


def made(**more):
    """A record of this version."""
    stages = {"prefill": [0.4], "decode": [0.2, 0.3], "sample": [0.1] * 3}
    return request_record("x", 5, 3, stages, 2.0, {"source": "a", "sha256": "0" * 64}, 1, "float32", **more)


def setUpModule():
    torch.set_num_threads(1)


def flops(new, past):
    """FLOPs of the tiny config's pass by hand: two a weight and position, the full rectangle of scores, one position's logits."""
    d, f, layers, vocabulary = 8, 32, 2, 11
    return 2 * new * layers * (4 * d * d + 2 * d * f) + 4 * layers * d * new * (past + new) + 2 * d * vocabulary


class Predicted(unittest.TestCase):
    def test_arithmetic_by_hand(self):
        """A prompt of 5 and 4 new tokens: a pass over 5, and three over one behind 5, 6 and 7."""
        found = predict(MODEL.config, 5, 4, ARITHMETIC)
        steps = [flops(1, past) for past in (5, 6, 7)]
        self.assertEqual(found["flops"], flops(5, 0) + sum(steps))
        self.assertAlmostEqual(found["prefill_s"], flops(5, 0) / 1e6)
        self.assertAlmostEqual(found["decode_s"], sum(steps) / 1e6)
        self.assertAlmostEqual(found["seconds"], found["prefill_s"] + found["decode_s"])
        self.assertEqual((found["limit"], found["prefill_limit"], found["decode_limit"]), ("arithmetic",) * 3)
        self.assertEqual(found["rates"], ARITHMETIC)

    def test_memory(self):
        found = predict(MODEL.config, 5, 2, MEMORY)
        prefill = totals(operations(MODEL.config, 5), last_only=True, new=5)["bytes"]
        decode = totals(operations(MODEL.config, 1, 5))["bytes"]
        self.assertEqual(found["bytes"], prefill + decode)
        self.assertAlmostEqual(found["prefill_s"], prefill / 1e6)
        self.assertAlmostEqual(found["decode_s"], decode / 1e6)
        self.assertEqual(found["limit"], "memory")
        weights = totals(operations(MODEL.config, 1, 5))["weight_bytes"]
        halved = predict(MODEL.config, 5, 2, MEMORY, number=2)
        config = MODEL.config
        mask = 2 * config.n_layer * 5 * 5  # where it is compared with 0, one byte a pair, out and in, whatever a number takes
        self.assertEqual(halved["bytes"] - mask, (found["bytes"] - mask) / 2)
        self.assertGreater(found["bytes"], 2 * weights)

    def test_between_the_two_each_operation_has_its_own_limit(self):
        rates = {"flop_per_s": 2e6, "bytes_per_s": 1e6}
        found = predict(MODEL.config, 12, 1, rates)
        one = pass_bound(operations(MODEL.config, 12), rates, last_only=True, new=12)
        self.assertAlmostEqual(found["seconds"], one["seconds"])
        self.assertEqual(found["limit"], one["limit"])
        whole = predict(MODEL.config, 12, 1, rates)["flops"] / 2e6
        self.assertGreater(found["seconds"], whole)

    def test_operators_are_added_for_each_pass(self):
        rates = {**MEMORY, "operator_s": 1e-3}
        operators = {"prefill": 100, "decode": 90}
        plain, more = predict(MODEL.config, 5, 4, MEMORY), predict(MODEL.config, 5, 4, rates, operators=operators)
        self.assertAlmostEqual(more["prefill_s"] - plain["prefill_s"], 0.1)
        self.assertAlmostEqual(more["decode_s"] - plain["decode_s"], 3 * 0.09)
        self.assertAlmostEqual(more["seconds"] - plain["seconds"], 0.37)

    def test_one_new_token_is_a_prefill_alone(self):
        found = predict(MODEL.config, 5, 1, MEMORY, operators=None)
        self.assertEqual((found["decode_s"], found["decode_limit"]), (0, None))
        self.assertEqual(found["seconds"], found["prefill_s"])

    def test_no_tokens(self):
        for prompt, new in ((0, 3), (3, 0)):
            with self.assertRaises(BadInput):
                predict(MODEL.config, prompt, new, MEMORY)

    def test_three(self):
        found = three(MODEL, 5, 3, KNOWN)
        self.assertAlmostEqual(found["operators"]["seconds"], found["rates"]["seconds"] + 0.1 + 2 * 0.09)
        self.assertAlmostEqual(found["matrices"]["seconds"], 2 * found["rates"]["seconds"] + 0.28)  # half the rate of memory
        self.assertNotIn("operator_s", found["rates"]["rates"])

    def test_all_that_is_known_before(self):
        known = prediction.known_before(MODEL, runs=1)
        self.assertEqual(known["operators"], pass_operators(MODEL))
        self.assertGreater(min(known["matrices_per_s"], *known["rates"].values()), 0)


class Clock:
    """Each reading is a second later."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Measured(unittest.TestCase):
    def test_a_request_on_a_clock_of_our_own(self):
        made_, stages, _ = request(MODEL, random_ids(MODEL, 5), 4, timer=Clock())
        self.assertEqual(len(made_), 4)
        self.assertEqual((stages["prefill"], stages["decode"], stages["sample"]), ([1.0], [1.0] * 3, [1.0] * 4))

    def test_compared(self):
        said = three(MODEL, 5, 3, KNOWN)
        found = compared(said, {"prefill": [2.0], "decode": [1.0, 3.0]})
        rows = {r["stage"]: r for r in found["stages"]}
        self.assertEqual([rows[name]["ms"] for name in ("prefill", "decode", "passes")], [2000, 4000, 6000])
        self.assertAlmostEqual(rows["decode"]["rates_ratio"], 4 / said["rates"]["decode_s"])
        self.assertAlmostEqual(rows["passes"]["matrices_ratio"], 6 / said["matrices"]["seconds"])

    def test_errors(self):
        """Said 50, 150 and 100 of a measured 100: off by 50, 50 and 0 per cent, and the sign says nothing."""
        stage = {"stage": "passes", "ms": 100.0}
        rows = [{"stages": [{**stage, "rates_ms": said}]} for said in (50.0, 150.0, 100.0)]
        found = prediction.errors_of(rows, "rates")
        self.assertAlmostEqual(found["median_percent"], 50)
        self.assertAlmostEqual(found["largest_percent"], 50)
        self.assertIsNone(found["decode_median_percent"])

    def test_nothing_is_predicted_once_a_request_of_the_model_ran(self):
        order = []

        def say(*arguments):
            order.append("said")
            return three(*arguments)

        def serve(*arguments):
            order.append("ran")
            return request(*arguments)

        wanted = [("embedded", 4, 2), ("embedded", 6, 2)]
        known = mock.patch.object(prediction, "known_before", return_value=KNOWN)
        with known, mock.patch.object(prediction, "three", say), mock.patch.object(prediction, "request", serve):
            found = measure(wanted, runs=2)
            self.assertEqual(order, ["said"] * 2 + ["ran"] * 6)
            order.clear()
            measure_one(MODEL, random_ids(MODEL, 3), 2)
            self.assertEqual(order, ["said", "ran"])
        self.assertEqual([r["prompt_tokens"] for r in found["requests"]], [4, 6])

    def test_smollm2_that_is_not_there_is_left_out(self):
        with mock.patch.object(prediction, "smollm2_file", side_effect=BadInput("not here")):
            found = measure([("smollm2", 4, 2), ("embedded", 4, 2)], runs=1)
            self.assertEqual((found["left_out"], len(found["requests"])), (["smollm2"], 1))
            self.assertIn("left out", prediction.report({"prediction": found}))
            with self.assertRaisesRegex(BadInput, "make real-model"):
                measure([("smollm2", 4, 2)], runs=1)


class Recorded(RoomCase):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "r.jsonl"

    def test_the_record_holds_what_was_said_and_what_it_took(self):
        arguments = ("--model", "embedded", "--tokens", "4")
        page = self.page(prediction.main, *arguments, "--record", self.path)
        self.assertIn("times what the two rates say", page)
        found = self.values(prediction.main, *arguments)["request"]
        [(_, record)], problems = read(self.path)
        self.assertEqual(problems, [])
        said = record["predicted"]
        for key in ("flops", "bytes", "seconds", "prefill_s", "decode_s", "limit", "rates"):
            self.assertIn(key, said)
        rates = said["rates"]
        again = predict(support.loaded().config, record["tokens"]["prompt"], 4, rates)
        self.assertEqual({k: said[k] for k in again}, again)
        self.assertEqual(found["gflop"], round(said["flops"] / 1e9, 7))
        self.assertGreater(said["with_operators"]["seconds"], said["seconds"])
        self.assertLessEqual(said["at"], record["at"])
        self.assertEqual((len(record["stages"]["prefill"]), len(record["stages"]["decode"])), (1, 3))
        page = self.page(shows.main, "show", self.path)
        self.assertIn("prefill said, ms", page)
        shown = self.values(shows.main, "show", self.path)["show"]["records"][0]["predicted"]
        self.assertAlmostEqual(shown["decode_ratio"], sum(record["stages"]["decode"]) / said["decode_s"], places=4)

    def test_records_with_and_without_it_read_together(self):
        said = {"limit": "memory", "prefill_s": 0.2, "decode_s": 0.25}
        for one in (made(), made(predicted=said), OLDER):
            append(self.path, one)
        found, problems = read(self.path)
        self.assertEqual((len(found), problems), (3, []))
        self.assertNotIn("predicted", found[0][1])
        self.assertEqual([summary(one)["predicted"] is None for _, one in found], [True, False, True])
        ratios = predictions(found[1][1])
        self.assertAlmostEqual(ratios["prefill_ratio"], 2)  # 0.4 of 0.2, and 0.5 of 0.25
        self.assertAlmostEqual(ratios["decode_ratio"], 2)
        page = self.page(shows.main, "show", self.path)
        self.assertEqual(page.count("x2.00"), 2)
        self.path.unlink()
        append(self.path, made())
        self.assertNotIn("said", self.page(shows.main, "show", self.path))

    def test_odd_predictions_are_unknown(self):
        odd = ["a", 1, [], True, {}, {"prefill_s": 0, "decode_s": "x", "limit": [1]}, {"prefill_s": None, "rates": 3}]
        self.path.write_text("".join(json.dumps({**made(), "predicted": x}) + "\n" for x in odd))
        self.assertIn("7 records read", self.page(shows.main, "show", self.path))

    def test_a_request_that_breaks_off_leaves_no_record(self):
        for error, status in ((KeyboardInterrupt, 130), (BadInput("no"), 2)):
            with mock.patch.object(prediction, "generate", side_effect=error):
                self.assertEqual(call(prediction.main, "--model", "embedded", "--tokens", "2", "--record", self.path)[0], status)
            self.assertFalse(self.path.exists())

    def test_ids_without_a_tokenizer(self):
        found = self.values(prediction.main, "--model", self.tiny(), "--tokens", "1")["request"]
        self.assertEqual((found["text"], found["prompt_tokens"], found["stages"][1]["rates_ratio"]), (None, 16, None))


class Script(RoomCase):
    def test_several(self):
        arguments = ("--requests", "embedded:8:4,embedded:16:2", "--runs", "1")
        page = self.page(prediction.main, *arguments)
        self.assertIn("The median error over 2 requests", page)
        found = self.values(prediction.main, *arguments)["prediction"]
        self.assertEqual([e["prediction"] for e in found["errors"]], list(prediction.PREDICTIONS))
        path = self.folder / "a.svg"
        prediction.draw(found, path)
        self.assertIn(b"embedded", path.read_bytes())

    def test_the_ten(self):
        """Ten of three models, each with short and long prompts, none longer than its model."""
        requests = prediction.REQUESTS
        self.assertEqual((len(requests), len({m for m, _, _ in requests})), (10, 3))
        for model in ("embedded", "smollm2", "random:gpt2"):
            lengths = [p for m, p, _ in requests if m == model]
            self.assertGreater(max(lengths), 10 * min(lengths))

    def test_bad_input(self):
        for argv, word in (
            (["--requests", "embedded"], "MODEL:PROMPT_TOKENS"),
            (["--requests", "embedded:0:3"], "1 or more"),
            (["--requests", "embedded:256:2"], "n_positions"),
            (["--requests", "embedded:3:3", "--model", "embedded"], "either"),
            (["--tokens", "3", "--plot", self.folder / "a.svg"], "either"),
            (["--model", "embedded", "--tokens", "1000"], "n_positions"),
            (["--prompt", ""], "empty"),
            (["--record", self.folder], "not a file"),
            (["--plot", self.folder / "a.gif"], ".svg"),
        ):
            self.assertBad(prediction.main, argv, word)


if __name__ == "__main__":
    unittest.main()
