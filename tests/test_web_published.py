"""Numbers of the figures that the book's sources have published, or that the issue names: one class for each group of figures."""

import unittest

import torch

from examples.ch02.model import load
from examples.ch03.tokens import encode
from examples.ch05.generate import generate
from examples.ch10.token_costs import measure as token_costs
from scripts.web_edition.loop import loop_lines, write_on
from tests import figures_01_08 as passes
from tests import figures_09_17 as loops
from tests import figures_18_28 as costs


class Figures01To08(unittest.TestCase):
    """The pass and the block."""

    def test_one_row_for_one_word_of_the_toy_and_two_ids_of_real_tokenizers(self):
        first, last = (passes.lookup(position=position) for position in (0, 4))
        self.assertEqual((first["id"], first["twin"], last["twin"]), (last["id"], "4", "0"))
        self.assertEqual([first[key] for key in ("token0.0", "token0.6", "token1.0", "token1.4")], ["687", "267", "1195", "260"])

    def test_depth(self):
        found = {layers: passes.layers(layers=layers) for layers in (12, 48)}
        self.assertEqual((found[12]["total"], found[48]["total"]), ("124,439,808", "379,603,200"))
        self.assertEqual((found[12]["block"], found[48]["ratio"]), ("7,087,872", "3.05"))  # the source: 7 million, a triple

    def test_a_replaced_stream_keeps_its_width_and_loses_its_rows(self):
        added, replaced = (passes.add_or_replace(move=move, blocks=3) for move in ("add", "replace"))
        self.assertEqual((added["slots"], replaced["slots"]), ("4", "4"))
        self.assertEqual((added["gone"], replaced["gone"]), ("0", "3"))

    def test_a_block_of_two_branches(self):
        parts = passes.block_parts()
        self.assertEqual([i for i, n in enumerate(parts) if n == 0], [2, 5])  # the two additions
        self.assertEqual(sum(parts), 7_087_872)

    def test_attention_reads_itself_and_all_before_it(self):
        """The source has it that attention reads every other position; that is so without a mask."""
        for position in range(5):
            masked, free = (passes.reads(position=position, mask=mask) for mask in (True, False))
            self.assertEqual((masked["attention"], free["attention"]), (str(position + 1), "5"))
            self.assertEqual((masked["forward"], free["forward"]), ("1", "1"))

    def test_a_third_and_two_thirds_at_any_width(self):
        for width in range(64, 1601, 64):
            found = passes.width(width=width)
            self.assertEqual((found["attentionShare"], found["forwardShare"]), ("33.3", "66.7"))
            self.assertEqual(found["rest"], f"{13 * width:,}")  # nine biases and four of the norms, d each
        found = passes.width(width=768)
        self.assertEqual((found["attentionWhole"], found["forwardWhole"], found["normsWhole"]), ("33.33", "66.63", "0.04"))

    def test_norms_on_the_path(self):
        """The source counts one norm a block with post-norm, and none with pre-norm: it is two, and the final one."""
        for layers in (1, 12, 48):
            pre, post = (passes.norms(place=place, layers=layers) for place in ("pre", "post"))
            self.assertEqual((pre["blocks"], pre["path"], pre["branches"]), ("0", "1", str(2 * layers)))
            self.assertEqual((post["blocks"], post["path"], post["branches"]), (str(2 * layers), str(2 * layers), "0"))


class Figures09To17(unittest.TestCase):
    """Choosing a token, and the two loops. That the page shows the same is what tests/test_web_figures.py holds."""

    def test_five_scores(self):
        found = loops.logits(candidate=2, raised=False)
        self.assertEqual([found[f"logit{i}"] for i in range(5)], ["4.0", "2.9", "1.4", "0.5", "0.0"])

    def test_raising_all_scores_changes_no_difference(self):
        for candidate in range(1, 6):
            plain, raised = (loops.logits(candidate=candidate, raised=raised) for raised in (False, True))
            self.assertNotEqual(plain["logit"], raised["logit"])
            self.assertEqual((plain["gap"], plain["ratio"]), (raised["gap"], raised["ratio"]))

    def test_temperature(self):
        best = {t: loops.temperature(temperature=t)["share0"] for t in (0, 0.1, 1, 3)}
        self.assertEqual((best[0], best[0.1], best[1]), ("100.0", "99.998", "68.7"))
        self.assertLess(float(best[3]), 50)

    def test_top_k(self):
        found = [loops.top_k(k=k)["discarded"] for k in range(1, 6)]
        self.assertEqual(found, ["31.30", "8.44", "3.33", "1.26", "0.00"])

    def test_top_p_adapts_to_the_row(self):
        kept = {t: loops.top_p(p=0.9, temperature=t)["kept"] for t in (0.5, 1, 2)}
        self.assertEqual(kept, {0.5: "2", 1: "2", 2: "4"})
        self.assertEqual(loops.top_p(p=1, temperature=1)["kept"], "5")
        self.assertEqual(loops.top_p(p=0.5, temperature=1)["kept"], "1")

    def test_one_drawn_step_does_not_end_the_repetition(self):
        """The source has it that one sampled step breaks the cycle, and that a cycle is one token repeated."""
        for start in ("the", "cat", "sat", "on", "and", "mat", "rug", "saw"):
            self.assertEqual(loops.greedy(steps=18, start=start, drawn="")["length"], "4")
            for drawn in ("mat", "rug", "saw"):
                found = loops.greedy(steps=18, start=start, drawn=drawn)
                self.assertEqual(found["again"], "4", (start, drawn))
                self.assertLessEqual(int(found["away"]), 2)

    def test_positions_of_both_loops(self):
        first, last = (loops.totals(tokens=tokens, prefill=True)["ratio"] for tokens in (1, 12))
        self.assertEqual((first, last), ("1.0", "7.9"))
        first, last = (loops.totals(tokens=tokens, prefill=False)["ratio"] for tokens in (1, 12))
        self.assertEqual((first, last), ("5.0", "10.5"))  # as the source has it: five, and over ten
        found = {counted: loops.totals_gpt2(tokens=100, counted=counted)["ratio"] for counted in ("positions", "decoding", "flops")}
        self.assertEqual(found, {"positions": "58.4", "decoding": "69.5", "flops": "42.9"})

    def test_shown_flops_divide_to_the_shown_ratio(self):
        """A reader who divides the two numbers of figure 16 or 17 gets the third."""
        toy = [loops.totals(tokens=tokens, prefill=True) for tokens in range(1, 13)]
        rows = [(found["naive_mflop"], found["cached_mflop"], found["flop_ratio"]) for found in toy]
        gpt2 = [loops.totals_gpt2(tokens=tokens, counted="flops") for tokens in range(1, 101)]
        for naive, cached, ratio in rows + [(found["naive"], found["cached"], found["ratio"]) for found in gpt2]:
            self.assertEqual(f"{float(naive.replace(',', '')) / float(cached.replace(',', '')):.1f}", ratio)


class Figures18To28(unittest.TestCase):
    """The cache, its bytes and faults, what a pass costs, and the loop."""

    def test_one_pair_fewer_than_tokens(self):
        """The source has t pairs after t emitted tokens."""
        for emitted in range(1, 8):
            found = costs.slots(prompt=5, emitted=emitted)
            self.assertEqual((found["tokens"], found["pairs"]), (str(5 + emitted), str(4 + emitted)))

    def test_cache_of_gpt3(self):
        full, quarter = (costs.context(context=tokens, number=2) for tokens in (2048, 512))
        self.assertEqual((full["gib"], quarter["gib"], full["token_mib"]), ("9.00", "2.25", "4.50"))

    def test_ring_is_right_for_a_window_that_is_not_longer(self):
        lost = {window: [int(costs.ring(fed=fed, window=window)["lost"]) for fed in range(1, 21)] for window in (0, 10, 8, 5)}
        self.assertEqual(lost[0], [max(0, fed - 8) for fed in range(1, 21)])
        self.assertEqual(lost[10][8:10] + lost[10][-1:], [1, 2, 2])
        self.assertEqual(set(lost[8] + lost[5]), {0})

    def test_drift_is_the_position(self):
        for fed in range(1, 9):
            wrong, right = (costs.position(fed=fed, fault=fault) for fault in (True, False))
            self.assertEqual((wrong["drift"], right["drift"]), (wrong["right"], "0"))

    def test_sixteen_tokens_are_not_compute_bound_everywhere(self):
        h100, processor = (costs.intensity(power=4, machine=machine) for machine in (2, 0))
        self.assertEqual([h100[key] for key in ("prefill", "decode", "first", "share")], ["16", "1", "296", "5.4"])
        self.assertEqual((processor["prefill"], processor["share"]), ("8", "100.0"))

    def test_weights_against_caches(self):
        found = costs.one_cache(context=2048)
        self.assertEqual([found[key] for key in ("weights", "cache", "percent")], ["325.2", "9.00", "2.77"])
        ratios = [float(costs.many_caches(sequences=n)["ratio"]) for n in (36, 37)]
        self.assertLess(ratios[0], 1)
        self.assertGreater(ratios[1], 1)

    def test_parts_of_gpt2(self):
        found = costs.parts(size="gpt2")
        shares = [found[f"{part}_percent"] for part in ("blocks", "tokens", "positions", "last")]
        self.assertEqual((found["total"], shares), ("124,439,808", ["68.3", "31.0", "0.6", "0.0012"]))

    def test_costs_are_those_of_chapter_10(self):
        rows = {row["model"]: row for row in token_costs()["models"]}
        for shape, name in (("gpt2", "gpt2"), ("gpt2-xl", "gpt2-xl"), ("gpt3", "GPT-3")):
            found, row = costs.costs(shape=shape, prompt=512), rows[name]
            self.assertEqual(found["decode_gflop"], costs.about(row["decode_gflop"]))
            self.assertEqual(found["ratio"], f"{row['naive_over_decode']:,.0f}")
            self.assertEqual(found["prefill_intensity"], costs.about(row["prefill_flop_per_weight_byte"]))

    def test_the_loop_of_figure_26_is_chapter_5s(self):
        model = load("embedded")
        ids = encode("The king is dead.", model)
        made = generate(ids, model, 20, end=None).sequence()
        self.assertEqual(write_on(ids[0], model, ids.shape[1] + 20).tolist(), ids[0].tolist() + made)
        drawn = [torch.Generator().manual_seed(0) for _ in range(2)]
        settings = {"temperature": 0.8, "top_k": 50, "top_p": 0.9}
        one, two = (write_on(ids[0], model, 25, **settings, generator=g) for g in drawn)
        self.assertTrue(torch.equal(one, two))
        end = made[4]  # the text stops behind it
        self.assertEqual(write_on(ids[0], model, 25, ends={end}).tolist(), ids[0].tolist() + made[: made.index(end) + 1])

    def test_the_loop_of_figure_26_asks_whether_there_is_a_cache(self):
        lines = [line.strip() for line in loop_lines()]
        self.assertIn("if cache is None:", lines)
        self.assertFalse([line for line in lines if "if cache " in line and "is None" not in line])


if __name__ == "__main__":
    unittest.main()
