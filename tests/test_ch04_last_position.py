"""Chapter 4's last position: its logits are those of the whole pass, what it spares is the output projection of the others."""

import unittest
from unittest import mock

import torch

from examples.ch02.families import formulas, program
from examples.ch02.model import load_config, run
from examples.ch04 import last_position as room
from examples.ch04.gpt2_from_scratch import causal_mask
from examples.ch04.last_position import last_position_saving, main, measure
from tests.rooms import RoomCase
from tests.support import IDS, LLAMA, config, llama_model, model, write_folder

MODEL, LLAMAS = model(), llama_model()


class Measure(unittest.TestCase):
    def test_the_last_logits_are_those_of_the_whole(self):
        for one in (MODEL, LLAMAS):
            x = program(one).pass_over(IDS, one.weights, one.config, torch.arange(8), causal_mask(8, 8))
            last = program(one).unembed(x[:, -1:], one.weights, one.config)
            torch.testing.assert_close(last[0, 0], run(one, IDS)[0, -1], atol=1e-6, rtol=0)

    def test_only_the_last_position_is_unembedded(self):
        for one in (MODEL, LLAMAS):
            right, streams = program(one).unembed, []

            def spy(x, *rest, right=right, streams=streams):
                streams.append(x)
                return right(x, *rest)

            with mock.patch.object(program(one), "unembed", spy):
                last_position_saving(one, 8, runs=1)
            self.assertEqual([tuple(x.shape) for x in streams], [(1, 8, 8), (1, 1, 8)] * 2)
            self.assertTrue(torch.equal(streams[0][:, -1:], streams[1]))

    def test_times_and_savings(self):
        """A slow first turn, then 4 s for all and 1 s for the last."""
        for one in (MODEL, LLAMAS):
            readings = iter([0, 1000, 1000, 2000, 2000, 2004, 2004, 2005])
            found = last_position_saving(one, 8, runs=1, timer=lambda readings=readings: next(readings))
            self.assertEqual((found["all_ms"], found["last_ms"], found["time_saving_percent"]), (4000, 1000, 75))
            flops = formulas(one.config).flops_per_pass(one.config, 8)
            self.assertAlmostEqual(found["flop_saving_percent"], 100 * flops["output_projection"] * 7 / 8 / flops["total"])
        self.assertAlmostEqual(found["flop_saving_percent"], 100 * 176 * 7 / (8 * 3888))
        self.assertEqual(last_position_saving(MODEL, 1, runs=1)["flop_saving_percent"], 0)

    def test_lengths(self):
        self.assertEqual([r["tokens"] for r in measure(MODEL, runs=1)["lengths"]], [16])
        self.assertEqual([r["tokens"] for r in measure(MODEL, [2, 5], runs=1)["lengths"]], [2, 5])
        with mock.patch.object(room, "last_position_saving", side_effect=lambda model, t, *rest, **more: t):
            self.assertEqual(measure(mock.Mock(config=load_config("gpt2")))["lengths"], [16, 128, 512])
            self.assertEqual(measure(mock.Mock(config=config(n_positions=100)))["lengths"], [16, 100])


class Script(RoomCase):
    def test_json_is_what_was_measured(self):
        times = measure(MODEL, [4], 1)
        with mock.patch.object(room, "measure", return_value=times) as measured:
            value = self.values(main, "--model", self.tiny(), "--tokens", "4", "--runs", 2, "--seed", 5)
        self.assertMeasured(value, **{"last-position": times})
        self.assertEqual(measured.call_args.args[1:4], ([4], 2, 5))

    def test_lengths_where_none_are_given(self):
        with mock.patch.object(room, "measure", return_value=measure(MODEL, [4], 1)) as measured:
            self.values(main, "--model", self.tiny(n_positions=2000))
        self.assertEqual(measured.call_args.args[1], [16, 128, 512])

    def test_pages(self):
        self.page(main, "--model", self.tiny(), "--tokens", "4,8", "--runs", 1)
        self.page(main, "--model", write_folder(self.folder / "llama", LLAMAS.weights, LLAMA), "--runs", 1, "--dtype", "bfloat16")

    def test_bad_input(self):
        tiny = self.tiny()
        self.assertBad(main, ["--model", tiny, "--tokens", "8,17"], "17 tokens", "n_positions 16")
        self.assertBad(main, ["--model", tiny, "--runs", "0"], "0 is not 1")
        self.assertBad(main, ["--model", self.folder / "none"], "no model")


if __name__ == "__main__":
    unittest.main()
