"""The page "Try it" in a browser, as different readers come to it: by a link into it, back from another page, with colours of their
own, on paper, with a text that changes under the pointer, and with one that is as long as the model takes."""

import base64
import io

from examples.ch03.tokens import decode
from examples.ch05.generate import generate
from tests.browser import at_width, open_page, the_browser
from tests.support import slow
from tests.try_page import LONG, TryPage

# Notes how many positions each pass is fed, and in which of the browser's turns, until put() is called.
WATCH_PASSES = """
window.passes = [];
window.turn = 0;
const [forward, forwardCached] = [lab.forward, lab.forwardCached];
const clock = setInterval(() => turn++, 1);
window.put = () => (clearInterval(clock), Object.assign(lab, { forward, forwardCached }));
const noted = (real) => (model, ids, ...more) => (passes.push([ids.length, turn]), real(model, ids, ...more));
Object.assign(lab, { forward: noted(forward), forwardCached: noted(forwardCached) });
"""
# How far a part's heading is from where the browser puts what a link leads to; the page's end cannot be scrolled further.
OFF = """
const goal = document.getElementById(arguments[0]);
const page = document.documentElement;
const wanted = scrollY + goal.getBoundingClientRect().top - parseFloat(getComputedStyle(page).scrollPaddingTop);
return scrollY - Math.min(wanted, page.scrollHeight - innerHeight);
"""
LOADED = "return document.querySelector('#try-state').textContent === 'The model is loaded.'"
DONE_BEFORE = """
const goal = document.getElementById(arguments[0]);
const before = [...document.querySelectorAll(".try")].filter((part) => part.compareDocumentPosition(goal) & 4);
const filled = (part) => !part.hasAttribute("aria-busy") && part.querySelector(".result").innerHTML;
return tryPage.waiting === null && before.every(filled);
"""
# Whether the page has not moved for ten frames.
STILL = """
if (scrollY !== window.lastY) [window.lastY, window.frames] = [scrollY, 0];
return ++window.frames > 10;
"""


@slow
class ALinkIntoThePage(TryPage):
    def setUp(self):
        at_width(self.driver, 1440)

    def come(self, address, width):
        """Open the page anew."""
        at_width(self.driver, width)
        open_page(self.driver, "index.html")  # else the same page with another end of its address would not load again
        open_page(self.driver, address)
        self.wait("the model to load", LOADED)

    def landed(self, goal):
        self.wait("the parts before it", DONE_BEFORE, goal, seconds=20)
        self.wait("the page to stand still", STILL)
        return abs(self.js(OFF, goal))

    def test_it_leads_to_the_part_though_those_before_are_filled_late(self):
        for width in (360, 1440):
            for goal in ("what-attention-reads", "who-hears-whom", "with-the-cache-and-without-it"):
                with self.subTest(width=width, goal=goal):
                    self.come(f"try-it.html#{goal}", width)
                    self.assertLess(self.landed(goal), 2)

    def test_a_click_in_the_contents_does_too(self):
        for width in (360, 1440):
            for goal in ("who-hears-whom", "a-text-one-token-at-a-time"):
                with self.subTest(width=width, goal=goal):
                    self.come("try-it.html", width)
                    self.js("document.querySelector(`a[href='#${arguments[0]}']`).click()", goal)
                    self.assertLess(self.landed(goal), 2)

    def test_who_scrolls_away_is_not_taken_back(self):
        goal = "who-hears-whom"
        self.come(f"try-it.html#{goal}", 1440)
        self.js("dispatchEvent(new WheelEvent('wheel')); scrollTo({top: 0, behavior: 'instant'})")
        self.part("influence")
        self.js("scrollTo({top: 0, behavior: 'instant'})")
        self.wait("the page to stand still", STILL)
        self.assertEqual(self.js("return scrollY"), 0)


@slow
class OtherReaders(TryPage):
    # ------------------------------------------------------------------------------------------------ own colours, paper

    def inks(self, selector):
        """How many colours an element's inside has in a picture of the page, at the least 30 pixels of each."""
        from PIL import Image

        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", selector)
        script = """
        const { x, y, width, height } = document.querySelector(arguments[0]).getBoundingClientRect();
        return { x: x + scrollX + 2, y: y + scrollY + 2, width: width - 4, height: height - 4, scale: 1 };
        """
        given = {"format": "png", "clip": self.js(script, selector)}
        picture = base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", given)["data"])
        colours = Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 16)
        return sum(count >= 30 for count, _ in colours)

    def test_squares_bars_and_hatching_are_seen_in_a_readers_own_colours(self):
        self.addCleanup(the_browser)
        for name in ("next", "attention", "influence"):
            self.part(name)
        for scheme in ("light", "dark"):
            features = [{"name": "forced-colors", "value": "active"}, {"name": "prefers-color-scheme", "value": scheme}]
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            for seen in (
                "#try-next tbody tr .track",
                "#try-attention tbody td[data-row='3'][data-column='0']",
                "#try-attention tbody tr:first-child td[data-column='1']",
                "#try-influence tbody tr:first-child td[data-column='1']",
            ):
                with self.subTest(scheme=scheme, seen=seen):
                    self.assertGreater(self.inks(seen), 1)

    def test_squares_bars_and_hatching_are_printed(self):
        for name in ("next", "attention", "sizes", "influence"):
            self.part(name)
        for selector in (".bar span", ".squares i", ".masked", ".zero"):
            script = "return [...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e).printColorAdjust)"
            self.assertEqual(set(self.js(script, f".try {selector}")), {"exact"}, selector)

    # ------------------------------------------------------------------------------------------------ a text that changes

    def test_the_old_table_can_be_read_until_the_new_one_is_there(self):
        self.part("attention")
        last = "#try-attention td[data-row='5'][data-column='5']"
        hover = "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
        self.js(hover, last)
        said = self.words("attention")
        self.js("window.realWake = jobs.wake; jobs.wake = () => {}")  # its job is due, and does not run
        self.addCleanup(self.js, "jobs.wake = realWake; jobs.wake()")
        self.type("Go")
        self.js(hover, last)
        self.assertEqual(self.words("attention"), said)
        self.type("")
        self.js("document.querySelector('#try-attention .heads button').click()")
        self.js(hover, last)
        self.assertEqual(self.words("attention"), said)

    def test_a_single_entry_is_told_as_one(self):
        self.type("Good")
        self.assertEqual(self.ids("Good").shape[1], 2)
        for off, told in ((False, "With the mask the only entry above the diagonal is exactly 0."), (True, "Without the mask")):
            self.choose("influence-mask", "off" if off else "on")
            self.part("influence")
            self.assertIn(told, self.words("influence"))
            self.assertNotIn("entries", self.words("influence"))

    def test_what_was_typed_is_there_again_on_the_way_back(self):
        open_page(self.driver, "try-it.html")
        self.wait("the model to load", LOADED)
        text = self.driver.find_element("css selector", "#try-text")
        text.clear()
        text.send_keys("Good night")
        seed = self.driver.find_element("css selector", "#try-seed")
        seed.clear()
        seed.send_keys("12")
        open_page(self.driver, "index.html")
        self.driver.back()
        self.wait("the model to load", LOADED)
        self.wait("the text to be taken up", "return tryPage.waiting === null")
        shown = self.js("return ['text', 'seed'].map((name) => document.querySelector(`#try-${name}`).value)")
        self.assertEqual(shown, ["Good night", "12"])
        self.assertEqual([int(id) for id in self.texts("#try-tokens .id")], self.ids("Good night")[0].tolist())
        self.assertEqual(self.js("return tryPage.ids"), self.ids("Good night")[0].tolist())

    # ------------------------------------------------------------------------------------------------ a long text

    def test_a_long_text_is_fed_in_pieces(self):
        positions = self.model.config.n_positions
        text = decode((10 * self.ids(LONG)[0].tolist())[: positions - 2], self.model)
        T = self.ids(text).shape[1]
        self.type(text)
        made = decode(generate(self.ids(text), self.model, 2, 0.8, 50, None, seed=0).sequence(), self.model)
        one = decode(generate(self.ids(text), self.model, 1, 0.8, 50, None, seed=0).sequence(), self.model)
        self.field("count", "2")
        self.js(WATCH_PASSES)
        self.addCleanup(self.js, "put()")
        for button, name, fed in (("step", "generation", T), ("start", "generation", T + 1), ("both", "cache", 3 * T + 2)):
            with self.subTest(button=button):
                self.js("passes.length = 0")
                self.click(button)
                self.wait("the text", "return !document.getElementById(arguments[0]).hasAttribute('aria-busy')", f"try-{name}")
                passes = self.js("return passes")
                self.assertEqual(sum(n for n, _ in passes), fed)
                self.assertLessEqual(max(n for n, _ in passes), 16)
                self.assertGreater(len({turn for _, turn in passes}), len(passes) // 2, "turns of the browser")
                if name == "generation":
                    self.assertEqual(self.written(), one if button == "step" else made)
        self.assertEqual(self.texts("#try-cache .try-passage"), [made, made])

    def test_a_stop_before_the_first_token(self):
        self.type(decode((10 * self.ids(LONG)[0].tolist())[:250], self.model))
        self.field("count", "2")
        for button, stop, name in (("start", "stop", "generation"), ("step", "stop", "generation"), ("both", "both-stop", "cache")):
            self.click(button)
            self.click(stop)
            self.assertEqual(self.words(name), "Stopped before the first new token.")
        self.click("start")
        self.wait("the text", "return !document.getElementById('try-generation').hasAttribute('aria-busy')")
        self.assertIn("Done: 2 new tokens", self.words("generation"))

    def test_a_number_is_one_as_a_person_writes_it(self):
        for name, value in (("temperature", "0x10"), ("temperature", "0b1"), ("top-p", "0x1"), ("top-p", "0b1")):
            with self.subTest(name=name, value=value):
                self.field(name, value)
                self.click("step")
                self.assertTrue(self.invalid(name))
                self.assertIn(f"is “{value}”", self.texts("#try-generation .try-problem")[0])
                self.field(name, "0.8")
        for value in (" 1 ", ".5", "1.", "+0.8", "1e-1", "8E-1"):
            self.field("temperature", value)
            self.click("step")
            self.assertEqual(self.texts("#try-generation .try-problem"), [""])
