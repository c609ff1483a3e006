"""Every page of the built site in a browser, from its file and without a network: what it loads, its width, its two themes, what an
accessibility checker finds, what is there without JavaScript, and what can be done by keyboard."""

import importlib.util
import itertools
import re
import tempfile
import unittest
from pathlib import Path

from scripts.markers import load_records
from tests.browser import as_it_opens, at_width, javascript, missing_modules, open_page, pages, problems, site, the_browser, theme
from tests.support import ROOT, slow

NARROW, WIDE = 360, 1440

# Elements that stand out of the page at its right; what a box scrolls or cuts is inside it.
TOO_WIDE = """
const room = document.documentElement.clientWidth;
const cut = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== "visible" || cut(e.parentElement));
const out = [...document.body.querySelectorAll("*")]
  .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > room + 1 && !cut(e.parentElement))
  .map((e) => `${e.localName}.${e.getAttribute("class")} ends at ${e.getBoundingClientRect().right} of ${room}`);
const whole = document.documentElement.scrollWidth;
return [...(whole > room ? [`the page is ${whole} wide in ${room}`] : []), ...out.slice(0, 5)];
"""
# Boxes that scroll sideways and that no key reaches.
UNREACHED = """
return [...document.querySelectorAll("body *")]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
  .filter((e) => e.tabIndex < 0 && !e.querySelector("a[href], button, input, [tabindex='0']"))
  .map((e) => `${e.localName}.${e.className} scrolls, ${e.scrollWidth} in ${e.clientWidth}`);
"""
# Levels of the headings, in their order.
HEADINGS = "return [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((e) => Number(e.localName[1]))"
# What moves: animations and transitions with a duration, and smooth scrolling.
MOVING = """
return [document.documentElement, ...document.querySelectorAll("body *")].flatMap((e) => {
  const { animationName, animationDuration, transitionDuration, scrollBehavior } = getComputedStyle(e);
  const long = (durations) => durations.split(", ").some((d) => parseFloat(d) > 0.01);
  const moves = [animationName !== "none" && long(animationDuration), long(transitionDuration), scrollBehavior === "smooth"];
  return moves.some(Boolean) ? [`${e.localName}.${e.className}: ${moves}`] : [];
}).slice(0, 5);
"""
AXE = """
const [options, done] = arguments;
axe.run(document, { resultTypes: ["violations"], ...options }).then((found) => done(found.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id} (${one.impact}): ${one.nodes.length} times, such as ${one.nodes[0].html.slice(0, 120)}`)),
  (error) => done([`axe: ${error}`]));
"""
# What a reader without JavaScript sees of each figure: [id, height of the drawing, words].
STATIC = """
return [...document.querySelectorAll("figure[data-figure]")].map((figure) => [figure.dataset.figure,
  figure.querySelector(".drawing").checkVisibility() ? figure.querySelector(".drawing").getBoundingClientRect().height : 0,
  figure.querySelector(".words").checkVisibility() ? figure.querySelector(".words").innerText.trim() : ""]);
"""
# The records that a page keeps, and those that its numbers link to.
RECORDS = """
const store = document.getElementById("records");
const linked = [...document.querySelectorAll("a[data-at]")].map((a) => decodeURIComponent(a.hash.slice(1)));
return [store ? JSON.parse(store.textContent) : {}, linked];
"""


def axe_script():
    """The text of axe-core, from the package that carries it."""
    (folder,) = importlib.util.find_spec("axe_core_python").submodule_search_locations
    return (Path(folder) / "axe.min.js").read_text(encoding="utf-8")


def axe(driver, *rules):
    """Lines of what axe-core finds serious or critical on the page; by these rules alone where some are given."""
    if not driver.execute_script("return typeof axe === 'object'"):
        driver.execute_script(axe_script() + ";window.axe = axe;")
    return driver.execute_async_script(AXE, {"runOnly": {"type": "rule", "values": rules}} if rules else {})


def claim_of(record):
    """What a record says, or, for a number that a source printed, what it is a number of; without its first letter's case."""
    return record.get("claim") or record["what"][1:]


def out_of_order(levels):
    """Lines of what is wrong with a page's headings, by their levels."""
    found = [] if levels[:1] == [1] and levels.count(1) == 1 else [f"a page has one h1, and it comes first: {levels}"]
    return found + [f"h{b} below h{a}" for a, b in itertools.pairwise(levels) if b > a + 1]


def look(driver):
    """{check: lines of what is wrong} of the page that is open, in both widths and themes."""
    found = {"wide": driver.execute_script(TOO_WIDE), "reach": driver.execute_script(UNREACHED), "axe light": axe(driver)}
    found["headings"] = out_of_order(driver.execute_script(HEADINGS))
    driver.execute_script("document.documentElement.style.fontSize = '200%'")  # as a reader of large letters has it
    found["wide"] += driver.execute_script(TOO_WIDE)
    driver.execute_script("document.documentElement.style.fontSize = ''")
    theme(driver, "dark")
    found["axe dark"] = axe(driver, "color-contrast", "link-in-text-block")  # the others do not look at colours
    at_width(driver, NARROW)
    theme(driver, "light", reduced_motion=True)
    found["narrow"] = driver.execute_script(TOO_WIDE)
    found["reach"] += driver.execute_script(UNREACHED)
    found["motion"] = driver.execute_script(MOVING)
    as_it_opens(driver)
    return found


class InBrowser(unittest.TestCase):
    """A test case with the browser as it opens."""

    @classmethod
    def setUpClass(cls):
        if missing_modules("axe_core_python"):
            raise unittest.SkipTest("axe-core-python is not installed; make web installs it")
        cls.driver = the_browser()
        site()

    def setUp(self):
        self.addCleanup(as_it_opens, self.driver)

    def js(self, script, *given):
        return self.driver.execute_script(script, *given)

    def press(self, *keys):
        """Press keys of these names, or type a text, where the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(getattr(Keys, key) if key.isupper() else key).perform()

    def click(self, element):
        """A click of the mouse on an element that is brought into view first."""
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        element.click()

    def wait(self, script, what):
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, 20, 0.05).until(lambda driver: driver.execute_script(script), what)


@slow
class EveryPage(InBrowser):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = {}
        for name in pages():
            open_page(cls.driver, name)
            found = look(cls.driver)
            cls.found[name] = found | {"problems": problems(cls.driver)}

    def assertClean(self, *checks):
        found = {(name, check): lines for name, all in self.found.items() for check in checks if (lines := all[check])}
        self.assertEqual(found, {})

    def test_there_are_pages(self):
        self.assertLessEqual(
            {"index.html", "04-chapter.html", "14-appendix.html", "answers.html", "forward-pass.html", "try-it.html", "terms.html",
             "evidence.html"},
            set(self.found),
        )  # fmt: skip

    def test_no_console_error_and_no_request_outside(self):
        self.assertClean("problems")

    def test_nothing_is_wider_than_the_page(self):
        self.assertClean("wide", "narrow")

    def test_axe_finds_nothing_serious_in_light_and_dark(self):
        self.assertClean("axe light", "axe dark")

    def test_every_box_that_scrolls_can_be_reached_by_keyboard(self):
        self.assertClean("reach")

    def test_headings_are_in_order(self):
        self.assertClean("headings")

    def test_nothing_moves_where_the_reader_asks_for_it(self):
        self.assertClean("motion")


BAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>bad</title>
<style>p { transition: color 2s } .pale { color: #bbb; background: #fff }
@media (prefers-color-scheme: dark) { .dark { color: #444; background: #222 } }
.box { overflow: auto; width: 5em } .box span { display: block; width: 9em }
@media (max-width: 400px) { .wide { width: 500px } }</style>
<main><h1>Bad</h1><h3>Too deep</h3><p class="pale">pale</p><p class="dark">dark</p><div class="wide">wide</div>
<div class="box"><span>scrolls</span></div><div style="width: 2000px">wider</div><img src="https://example.org/picture.png"></main>
<script>console.error("broken"); missing();</script>
"""


@slow
class PlantedFaults(InBrowser):
    """A page with one fault of each kind, so that each check is seen to find it."""

    def test_each_is_found(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "bad.html").write_text(BAD, encoding="utf-8")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get((folder / "bad.html").as_uri())
        found = look(self.driver)
        wrong = " ".join(problems(self.driver, folder))
        for word in ("broken", "missing is not defined", "request: https://example.org/picture.png"):
            self.assertIn(word, wrong)
        for check, word in {
            "wide": "the page is 20",
            "narrow": "div.wide ends at 5",
            "headings": "h3 below h1",
            "axe light": "image-alt (critical)",
            "axe dark": "color-contrast (serious)",
            "reach": "div.box scrolls",
            "motion": "p.pale",
        }.items():
            self.assertIn(word, " ".join(found[check]), check)
        self.assertIn("color-contrast (serious): 1 times", " ".join(found["axe light"]))  # the dark one is fine in light
        for levels in ([], [2], [1, 1], [1, 2, 4], [2, 1]):
            self.assertTrue(out_of_order(levels), levels)
        self.assertEqual(out_of_order([1, 2, 3, 3, 2, 3, 4, 2]), [])


@slow
class WithoutJavaScript(InBrowser):
    def setUp(self):
        super().setUp()
        javascript(self.driver, False)

    def test_every_figure_stands_there_as_it_opens(self):
        open_page(self.driver, "forward-pass.html")
        self.assertFalse(self.js("return document.documentElement.classList.contains('js')"), "scripts ran")
        found = self.js(STATIC)
        self.assertEqual(len(found), 28)
        for id, height, words in found:
            self.assertGreater(height, 40, id)
            self.assertGreater(len(words.split()), 5, id)
        self.assertNotIn("data-shows=", self.js("return document.body.innerText"))

    def test_the_text_is_the_same(self):
        for name in ("04-chapter.html", "14-appendix.html", "terms.html"):
            texts = {}
            for on in (False, True):
                javascript(self.driver, on)
                open_page(self.driver, name)
                self.js("document.querySelectorAll('main button, main .figure .controls').forEach((e) => e.remove())")
                texts[on] = self.js("return document.getElementById('text').innerText").split()
            self.assertEqual(texts[False], texts[True], name)
            self.assertGreater(len(texts[False]), 300, name)

    def test_previous_and_next_go_through_all_pages(self):
        open_page(self.driver, "index.html")
        listed = self.js("return [...document.querySelectorAll('.pages a')].map((a) => a.getAttribute('href'))")
        self.assertEqual(sorted(listed), sorted(pages()))
        for rel, order in (("next", listed), ("prev", listed[::-1])):
            for here, there in zip(order, [*order[1:], None], strict=True):
                at = self.js(
                    "return [location.pathname.split('/').pop(), document.querySelector('.pages [aria-current]').textContent]"
                )
                self.assertEqual(at[0], here)
                link = self.driver.find_elements("css selector", f".turn a[rel={rel}]")
                self.assertEqual([a.get_attribute("href").rpartition("/")[2] for a in link], [there] if there else [], here)
                if there:
                    self.click(link[0])

    def test_what_needs_scripts_is_not_offered(self):
        open_page(self.driver, "04-chapter.html")
        shown = "return [...document.querySelectorAll('.js-only, .find')].filter((e) => e.checkVisibility()).length"
        self.assertEqual(self.js(shown), 0)
        self.click(self.driver.find_element("css selector", "a[data-at]"))
        self.assertIn("/evidence.html#", self.driver.current_url)  # a number is a link to its record
        self.assertTrue(self.js("return document.querySelector(':target') !== null"))


@slow
class ByKeyboard(InBrowser):
    def focused(self):
        return self.js("const e = document.activeElement; return e.id || e.className || e.localName")

    def test_the_skip_link(self):
        open_page(self.driver, "04-chapter.html")
        self.press("TAB")
        self.assertEqual(self.focused(), "skip")
        self.assertTrue(self.js("return document.activeElement.getBoundingClientRect().left >= 0"), "it can be seen")
        self.press("ENTER")
        self.assertEqual(self.focused(), "text")

    def search(self, text):
        """Go to the search box by Tab, and type; what it says of the sections it finds."""
        open_page(self.driver, "01-chapter.html")
        for _ in range(12):
            self.press("TAB")
            if self.focused() == "find":
                break
        self.assertEqual(self.focused(), "find")
        self.press(text)
        return self.wait("return document.querySelector('#found-count').textContent", f"the search for {text!r}")

    def test_search(self):
        self.assertRegex(self.search("temperature"), r"^\d+ sections")
        first, second = self.js("return [...document.querySelectorAll('#found a')].slice(0, 2).map((a) => a.getAttribute('href'))")
        self.assertEqual((first, second), ("terms.html#temperature", "forward-pass.html#temperature"))  # the definition leads
        self.press("ARROW_DOWN")
        self.assertEqual(self.js("return document.querySelector('#found [aria-selected=true]').getAttribute('href')"), first)
        self.press("ENTER")
        self.assertTrue(self.driver.current_url.endswith(f"/{first}"), self.driver.current_url)
        self.assertIn("temperature", self.js("return document.getElementById('text').innerText").lower())
        anchor = first.partition("#")[2]
        self.assertTrue(not anchor or self.js("return document.getElementById(arguments[0]) !== null", anchor))
        self.assertEqual(problems(self.driver), [])

    def test_search_finds_a_number_and_says_where_nothing_is_found(self):
        self.assertRegex(self.search("124,439,808"), r"^\d+ section")
        self.press("ESCAPE")
        self.assertTrue(self.js("return document.querySelector('.find .panel').hidden"))
        self.assertRegex(self.search("qqqzzz"), "No section")

    def test_a_number_shows_its_record(self):
        """Enter opens the record, which says what research/ has; Escape closes it, and the focus is back at the number."""
        open_page(self.driver, "04-chapter.html")
        records = load_records(ROOT)
        for at in (0, 3):
            link = self.driver.find_elements("css selector", "a[data-at]")[at]
            id = link.get_attribute("href").partition("#")[2]
            self.js("arguments[0].focus()", link)
            self.press("ENTER")
            text = self.js("return document.querySelector('#record:popover-open').innerText")
            self.assertIn(claim_of(records[id]), text)
            self.assertTrue(text.startswith(f"{link.text} stands at {link.get_attribute('data-at')} in the record"), text[:200])
            self.assertIn(records[id].get("kind", "published"), text)
            self.assertIn("record", self.focused())
            self.press("ESCAPE")
            self.assertEqual(self.js("return document.querySelectorAll(':popover-open').length"), 0)
            self.assertTrue(self.js("return document.activeElement === arguments[0]", link), "the focus is back")
        self.click(link)
        self.assertEqual(self.js("return document.querySelectorAll('#record:popover-open').length"), 1)

    def test_every_linked_number_has_its_record(self):
        records, count = load_records(ROOT), 0
        at_home = set(re.findall(r' id="([^"]+)"', (site() / "evidence.html").read_text(encoding="utf-8")))
        self.assertGreaterEqual(at_home, set(records))
        for name in pages():
            open_page(self.driver, name)
            stored, linked = self.js(RECORDS)
            self.assertLessEqual(set(linked), set(stored), name)
            for id, record in stored.items():
                self.assertIn(claim_of(records[id]), record["claim"], f"{name}: {id}")
                self.assertIn(records[id].get("kind", "published"), record["kind"], f"{name}: {id}")
            count += len(linked)
        self.assertGreater(count, 100)


if __name__ == "__main__":
    unittest.main()
