"""The page "Try it" in a browser, from its file: tokens, the next one, attention, sizes and influence, as Python computes them from
the same float16 weights."""

import re
import unittest

import torch

from examples.ch02.model import run
from examples.ch03.tokens import decode
from examples.ch04.causal_mask import influence
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch04.residual_trace import residual_statistics
from examples.ch05.generate import generate
from examples.ch05.sampling import probabilities
from tests.browser import at_width, javascript, open_page, problems, the_browser
from tests.support import ROOT, slow
from tests.try_page import LONG, TEXT, TryPage, as_shown
from tests.web_support import fixed

OTHERS = (
    "The king is dead.",
    "  two blanks,\na new line\tand a tab",
    "naïve café … 日本 🙂 x\u0000y",
    "It's 1599; we'll see\n\n",
    "<|endoftext|>HAMLET:",
)
# How many positions each call of the cached pass is fed, until put() is called.
COUNT_FED = """
window.fed = [];
const real = lab.forwardCached;
window.put = () => (lab.forwardCached = real);
lab.forwardCached = (model, ids, ...more) => { fed.push(ids.length); return real(model, ids, ...more); };
"""
# The square's share of a cell's area, 0 where there is none.
AREA = """(() => {
  const [square, ground] = [cell.querySelector("i"), cell].map((e) => e?.getBoundingClientRect());
  const edge = 1; // pixels, shared with the neighbour
  return square ? (square.width * square.height) / ((ground.width - edge) * (ground.height - edge)) : 0;
})()"""


@slow
class TryIt(TryPage):
    # ------------------------------------------------------------------------------------------------ tokens, next tokens

    def test_tokens_and_ids_as_they_are_typed(self):
        for text in (TEXT, *OTHERS, LONG):
            with self.subTest(text=text):
                self.type(text)
                text = self.js("return document.querySelector('#try-text').value")  # a browser may take a sign out
                ids = self.ids(text)[0].tolist()
                self.assertEqual([int(id) for id in self.texts("#try-tokens .id")], ids)
                self.assertEqual(self.words("tokens"), f"{len(ids)} tokens of at most {self.model.config.n_positions}.")
                shown = self.texts("#try-tokens .token")
                pieces = [decode([id], self.model) for id in ids]
                whole = [i for i, piece in enumerate(pieces) if "\N{REPLACEMENT CHARACTER}" not in piece]
                self.assertEqual([shown[i] for i in whole], [as_shown(pieces[i]) for i in whole])
                for i in set(range(len(ids))) - set(whole):
                    self.assertRegex(shown[i], r"^0x[0-9A-F]{2}( 0x[0-9A-F]{2})*$")

    def test_the_five_next_tokens(self):
        for text in (TEXT, *OTHERS):
            with self.subTest(text=text):
                self.type(text)
                text = self.js("return document.querySelector('#try-text').value")
                self.part("next")
                p = probabilities(run(self.model, self.ids(text))[0, -1])
                best = p.sort(descending=True, stable=True)
                rows = self.texts("#try-next tbody tr td:nth-of-type(1)"), self.texts("#try-next tbody tr td:nth-of-type(2)")
                self.assertEqual([int(id) for id in rows[0]], best.indices[:5].tolist())
                for shown, value in zip(rows[1], best.values[:5].tolist(), strict=True):
                    self.assertShown(shown.removesuffix("%"), 100 * value, 2, 2e-4)
                held = re.search(r"hold ([\d.]+)%", self.words("next"))[1]
                self.assertShown(held, 100 * best.values[:5].sum().item(), 2, 1e-3)

    def test_a_prediction_of_a_text_that_grew_feeds_only_what_is_new(self):
        text = 2 * LONG
        self.type(text)
        self.part("next")
        self.js(COUNT_FED)
        self.addCleanup(self.js, "put()")
        self.type(text + "Good")
        self.part("next")
        grown = self.ids(text + "Good").shape[1]
        self.assertLessEqual(sum(self.js("return fed")), 4, f"of {grown} positions")
        best = run(self.model, self.ids(text + "Good"))[0, -1].argmax().item()
        self.assertEqual(int(self.texts("#try-next tbody td")[0]), best)

    # ------------------------------------------------------------------------------------------------ attention, sizes

    def attention(self, layer, head):
        self.choose("layer", layer)
        self.part("attention")
        self.js("document.querySelectorAll('#try-attention .heads button')[arguments[0]].click()", head)
        return self.grid("attention")

    def test_attention_with_the_mask_and_without(self):
        for text, off in ((TEXT, False), (TEXT, True), (LONG, False)):
            self.type(text)
            self.choose("mask", "off" if off else "on")
            ids = self.ids(text)[:, : self.js("return tryPage.attentionTokens")]
            trace = Trace("A")
            run(self.model, ids, trace=trace, causal=not off)
            for layer, head in ((0, 0), (1, 6), (3, 2)):
                with self.subTest(text=text, off=off, layer=layer, head=head):
                    found, labels = self.attention(layer, head)
                    expected = trace["A", layer][0, head]
                    self.assertEqual(found.shape, expected.shape)
                    self.assertLess((found - expected).abs().max().item(), 1e-5)
                    above = found.triu(1).sum().item()
                    self.assertTrue(above > 0 if off else above == 0)
                    for i, row in enumerate(labels):
                        for j, label in enumerate(row):
                            if not off and j > i:
                                self.assertEqual(label, "hidden, 0")
                            else:
                                self.assertShown(label, expected[i, j].item(), 3, 1e-5)

    def test_the_squares_are_as_large_as_the_weights(self):
        found, _ = self.attention(0, 4)
        areas = self.cells("#try-attention tbody tr", AREA)
        for weight, share in zip(found.flatten().tolist(), (share for row in areas for share in row), strict=True):
            self.assertAlmostEqual(weight, share, delta=0.01)

    def test_each_head_has_its_picture(self):
        self.part("attention")
        pictures = self.js("return [...document.querySelectorAll('.heads path')].map((p) => p.getAttribute('d'))")
        self.assertEqual(len(set(pictures)), self.model.config.n_head)
        T = self.ids().shape[1]
        for d in pictures:
            self.assertLessEqual(d.count("M"), T * (T + 1) // 2)

    def test_a_weight_in_words_by_keyboard(self):
        from selenium.webdriver.common.keys import Keys

        trace = Trace("A")
        run(self.model, self.ids(), trace=trace)
        self.attention(0, 0)
        self.js("document.querySelector('#try-attention td[tabindex=\"0\"]').focus()")
        for key, (i, j) in ((Keys.ARROW_DOWN, (1, 0)), (Keys.ARROW_RIGHT, (1, 1)), (Keys.ARROW_RIGHT, (1, 2)), (Keys.END, (1, 5))):
            self.driver.switch_to.active_element.send_keys(key)
            words = self.words("attention")
            if j > i:
                self.assertIn("the mask hides it. Its weight is 0.", words)
                self.assertIn(f"position {j},", words)
            else:
                self.assertIn("From position 1, “ood”", words)
                self.assertShown(re.search(r"weight of ([\d.]+)\.$", words)[1], trace["A", 0][0, 0, i, j].item(), 3, 1e-5)

    def test_the_sizes_of_the_stream(self):
        for text in (TEXT, LONG):
            with self.subTest(text=text):
                self.type(text)
                self.part("sizes")
                ids = self.ids(text)[:, : self.js("return tryPage.attentionTokens")]
                trace, stream = Trace("embedding", "residual"), residual_statistics(self.model, ids)
                run(self.model, ids, trace=trace)
                layers = [trace["embedding", None], *(trace["residual", i] for i in range(self.model.config.n_layer))]
                last = self.model.config.n_layer - 1
                names = ["embedding", *(f"layer {i}" for i in range(last + 1))]  # counted from 0, as the heads' layers are
                self.assertEqual(self.texts("#try-sizes tbody th"), names)
                rows = self.cells("#try-sizes tbody tr", "[cell.dataset.value, cell.textContent]")
                both = rows[0][0][1], rows[-1][0][1]
                told = f"is {both[0]} after the embedding and {both[1]} after layer {last}, "
                self.assertIn(f"{told}{fixed(float(both[1]) / float(both[0]), 0)} times as large.", self.words("sizes"))
                self.assertEqual(len(rows), len(layers))
                for row, x, known in zip(rows, layers, stream, strict=True):
                    rms = x[0].double().square().mean(-1).sqrt().tolist()
                    for (value, shown), expected in zip(row, [known["rms"], known["rms_without_first"], *rms], strict=True):
                        self.assertAlmostEqual(float(value), expected, delta=1e-5 * max(1, expected))
                        self.assertAlmostEqual(float(shown), expected, delta=0.006 if expected >= 1 else 0.0006)

    # ------------------------------------------------------------------------------------------------ influence

    def test_influence_with_the_mask_and_without(self):
        for text in (TEXT, LONG):
            ids = self.ids(text)[:, : self.js("return tryPage.influenceTokens")]
            self.type(text)
            for off in (False, True):
                with self.subTest(text=text, off=off):
                    self.choose("influence-mask", "off" if off else "on")
                    self.part("influence")
                    found, labels = self.grid("influence")
                    expected = torch.tensor(influence(self.model, ids, causal=not off))
                    self.assertLess((found - expected).abs().max().item(), 1e-4 * expected.max().item())
                    T = ids.shape[1]
                    for row, expected_row in zip(labels, expected.tolist(), strict=True):
                        for label, x in zip(row, expected_row, strict=True):
                            if x == 0:
                                self.assertEqual(label, "0")
                            else:
                                self.assertShown(label, x, 2, 2e-3)
                    above = [labels[i][j] for i in range(T) for j in range(i + 1, T)]
                    zeros = 0 if off else len(above)
                    told = f"{zeros} of the {len(above)} entries above the diagonal are exactly 0."
                    self.assertEqual(self.words("influence"), f"{'Without' if off else 'With'} the mask {told}")

    def test_what_a_token_is_replaced_by(self):
        passes = []

        def forward(model, ids, **options):
            passes.append(ids[0].tolist())
            return run(model, ids, **options)

        ids = self.ids()[0].tolist()
        influence(self.model, self.ids(), forward=forward)
        becomes = [as_shown(decode([other[j]], self.model)) for j, other in enumerate(passes[1:])]
        self.part("influence")
        for j, (head, text) in enumerate(zip(self.texts("#try-influence thead th"), becomes, strict=True)):
            self.assertEqual(head, f"{j} {as_shown(decode([ids[j]], self.model))} → {text}")
        self.js('document.querySelector(\'#try-influence td[data-row="3"][data-column="2"]\').focus()')
        at = f"position 2, “{as_shown(decode([ids[2]], self.model))}”"
        self.assertTrue(self.words("influence").startswith(f"When the token at {at}, becomes “{becomes[2]}”, a logit changes by"))

    def test_influence_of_one_chosen_token(self):
        self.choose("changed", 2)
        self.part("influence")
        found, _ = self.grid("influence")
        expected = torch.tensor(influence(self.model, self.ids()))[:, 2:3]
        self.assertEqual(found.shape, expected.shape)
        self.assertLess((found - expected).abs().max().item(), 1e-3)
        self.assertEqual(found[:2].abs().sum().item(), 0)

    # ------------------------------------------------------------------------------------------------ what is wrong is told

    def test_a_text_that_cannot_be_computed(self):
        most = self.model.config.n_positions
        long = "ab " * most
        T = self.ids(long).shape[1]
        for text, told in (
            ("", "The text is empty, and a model needs at least one token; type some text."),
            (long, f"The text has {T} tokens, and the model has {most} positions; shorten it."),
            ("a" * 20001, "The text has 20,001 characters, and this page cuts at most 20,000 into tokens; shorten it."),
        ):
            with self.subTest(text=text[:20]):
                self.type(text)
                self.assertEqual(self.texts("#try-problem"), [told])
                self.assertTrue(self.invalid("text"))
                for name in ("next", "attention", "sizes", "influence"):
                    self.part(name)
                    self.assertEqual(self.words(name), "There is no text to compute.")
                    self.assertEqual(self.texts(f"#try-{name} .result"), [""])
                for button, name in (("start", "generation"), ("step", "generation"), ("both", "cache")):
                    self.click(button)
                    self.assertIn("There is no text to go on from", self.texts(f"#try-{name} .try-problem")[0])
        self.type(TEXT)
        self.assertEqual(self.texts("#try-problem"), [""])
        self.part("next")
        self.assertEqual(int(self.texts("#try-next tbody td")[0]), run(self.model, self.ids())[0, -1].argmax().item())

    def test_a_text_of_all_positions_works(self):
        text = decode((10 * self.ids(LONG)[0].tolist())[: self.model.config.n_positions], self.model)
        self.assertEqual(self.ids(text).shape[1], self.model.config.n_positions)
        self.type(text)
        self.part("next")
        self.assertEqual(int(self.texts("#try-next tbody td")[0]), run(self.model, self.ids(text))[0, -1].argmax().item())
        self.field("count", "2")
        self.click("start")
        told = self.texts("#try-generation .try-problem")[0]
        self.assertEqual(told, "The model has room for 1 new tokens, and 2 are asked for; ask for fewer.")

    # ------------------------------------------------------------------------------------------------ the page as a whole

    def test_by_keyboard_alone(self):
        """From the text to a grown text with Tab, Enter and letters."""
        from selenium.webdriver.common.keys import Keys

        self.js("const t = document.querySelector('#try-text'); t.focus(); t.setSelectionRange(t.value.length, t.value.length)")
        self.driver.switch_to.active_element.send_keys(" good")
        self.wait("the text to be taken up", "return tryPage.waiting === null")
        self.assertEqual([int(id) for id in self.texts("#try-tokens .id")], self.ids(TEXT + " good")[0].tolist())
        reached = []
        for _ in range(60):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            reached.append(self.js("return document.activeElement.id || document.activeElement.dataset.head"))
            if reached[-1] == "try-start":
                break
        for control in ("try-layer", "try-mask", "0", "7", "try-changed", "try-influence-mask", "try-temperature", "try-count"):
            self.assertIn(control, reached)
        self.driver.switch_to.active_element.send_keys(Keys.ENTER)
        self.part("generation")
        made = generate(self.ids(TEXT + " good"), self.model, 40, 0.8, 50, None, seed=0).sequence()
        self.assertEqual(self.written(), decode(made, self.model))

    def test_markup_in_a_text_stays_text(self):
        self.type("<b>&amp;</b><img src=x onerror=window.hit=1>")
        for name in ("next", "attention", "sizes", "influence"):
            self.part(name)
        self.click("step")
        self.assertIn("<b>&amp;</b>", self.texts("#try-generation .prompt")[0])
        self.assertEqual(self.js("return [document.querySelectorAll('.try b, .try img').length, window.hit ?? 0]"), [0, 0])

    def test_the_pointer_reads_a_cell_too(self):
        self.attention(0, 0)
        script = 'document.querySelector(\'#try-attention td[data-row="5"][data-column="5"]\').dispatchEvent(arguments[0])'
        self.js(script.replace("arguments[0]", "new MouseEvent('mouseover', {bubbles: true})"))
        self.assertRegex(self.words("attention"), r"^From position 5, “␣my”: itself, is read with a weight of 0\.\d{3}\.$")

    def test_it_says_what_it_weighs(self):
        size = self.js("return book_model.bytes")
        self.assertEqual(self.texts("#try-weighs"), [f"The file is {size / 1e6:.1f} MB in size."])

    def test_nothing_is_wider_than_a_narrow_page(self):
        for width in (360, 1440):
            at_width(self.driver, width)
            self.type(LONG)
            for name in ("tokens", "next", "attention", "sizes", "influence"):
                self.part(name)
            self.field("count", "5")
            for button, name in (("step", "generation"), ("both", "cache")):
                self.click(button)
                self.part(name)
            self.assertEqual(self.js("return document.documentElement.scrollWidth"), width)


@slow
class WithoutScripts(unittest.TestCase):
    def test_the_page_names_what_shows_the_same_in_a_terminal(self):
        driver = the_browser()
        javascript(driver, False)
        self.addCleanup(javascript, driver, True)
        open_page(driver, "try-it.html")
        text = driver.find_element("tag name", "main").text
        self.assertIn("This page needs JavaScript", text)
        for script in re.findall(r"examples/ch\d\d/\w+\.py", text):
            self.assertTrue((ROOT / script).is_file(), script)
        self.assertGreaterEqual(len(set(re.findall(r"examples/ch\d\d/\w+\.py", text))), 7)
        self.assertEqual([part for part in driver.find_elements("css selector", ".try") if part.is_displayed()], [])
        self.assertEqual(problems(driver), [])
