"""The figures of the companion page, each in every state: what it shows is what Python computes, in an engine and in the page.

python -m tests.test_web_figures    # the table of figures: states, numbers held, words
"""

import html
import re
import sys
import unittest
from xml.etree import ElementTree

from tests import web_support
from tests.browser import open_page, problems, the_browser
from tests.support import ROOT, slow

PAGE = "forward-pass.html"
SHOWS = re.compile(r'<(tspan|span) data-shows="([\w.-]+)">(.*?)</\1>', re.S)
MOST = 3000  # states of one figure

# Through a figure's native controls, the last control fastest, as book.states has them: what stands in the page in each state.
WALK = """
const [id] = arguments;
const figure = document.getElementById(`figure-${id}`);
const tell = (field, kind) => field.dispatchEvent(new Event(kind, { bubbles: true }));
const kinds = { toggle: "button", choice: "select" };
const settings = book.figures[id].controls.map((control, at) => {
  const field = figure.querySelectorAll(".controls > .control")[at].querySelector(kinds[control.kind] || "input");
  const set = (property, value, kind) => () => tell(Object.assign(field, { [property]: value }), kind);
  const press = (wanted) => () => field.getAttribute("aria-pressed") === wanted || field.click();
  if (control.kind === "toggle") return ["false", "true"].map(press);
  if (control.kind === "choice") return [...field.options].map((_, i) => set("selectedIndex", i, "change"));
  return book.values(control).map((value) => set("value", value, "input"));
});
const seen = [];
const read = () => {
  const found = {};
  for (const part of figure.querySelectorAll(":is(.drawing, .words) [data-shows]"))
    (found[part.dataset.shows] ||= new Set()).add(part.textContent);
  seen.push(Object.fromEntries(Object.entries(found).map(([key, texts]) => [key, [...texts]])));
};
const walk = (at) => {
  if (at === settings.length) return read();
  for (const set of settings[at]) { set(); walk(at + 1); }
};
walk(0);
return seen;
"""
# Of a figure: is it live, who reads its words aloud, its fields' names, whether their ids differ and Tab reaches them, its caption.
FIELDS = """
const figure = document.getElementById(`figure-${arguments[0]}`);
const named = (e) => (e.localName === "button" ? e.textContent.trim() : e.labels.length === 1 && e.labels[0].textContent.trim());
const fields = [...figure.querySelectorAll(".controls :is(input, select, button)")];
const ids = fields.map((e) => e.id).filter(Boolean);
return [figure.classList.contains("live"), figure.querySelector(".words").getAttribute("aria-live"), fields.map(named),
        new Set(ids).size === ids.length, fields.every((e) => e.tabIndex === 0), figure.querySelector("figcaption").textContent];
"""
# Focus a figure's first field, and count its fields.
FOCUS = """
const figure = document.getElementById(`figure-${arguments[0]}`);
window.fields = [...figure.querySelectorAll(".controls :is(input, select, button)")];
window.state = () => figure.querySelector(".drawing").innerHTML + figure.querySelector(".words").innerHTML;
fields[0].scrollIntoView({ block: "center", behavior: "instant" });
fields[0].focus();
return fields.length;
"""
# A field's own setting: its value, whether it is pressed, or null for a button that steps another field.
OWN = "(({ value, type, ariaPressed }) => (type === 'submit' || type === 'button' ? ariaPressed : value))(document.activeElement)"
KEYS = {"range": ("ARROW_RIGHT", "ARROW_LEFT"), "select-one": ("ARROW_DOWN", "ARROW_UP")}
# Figure 3 says one layer too many above 40 of them.
FAULT = """
const figure = book.figures.layers;
window.kept = figure.shown;
figure.shown = (n) => ({ ...kept(n), layers: String(n.layers + (n.layers > 40)) });
"""


def keys_of(markup):
    """[(key, text)] of the shown numbers in a drawing or in words."""
    return [(key, html.unescape(text)) for _, key, text in SHOWS.findall(markup)]


def stray_digits(markup, literals):
    """What stands in the markup's text and labels with a digit and is neither a shown number nor declared."""
    labels = " ".join(re.findall(r'(?:aria-label|title|alt)="([^"]*)"', markup))
    text = html.unescape(re.sub(r"<[^>]*>", " ", SHOWS.sub(" ", markup)) + " " + labels)
    for literal in sorted(literals, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.]){re.escape(literal)}(?![\w]|\.\d)", " ", text)
    return re.findall(r"\S*\d\S*", text)


def well_formed(markup):
    """None, or what an XML parser says against a piece of markup."""
    named = re.sub(r"&(?!amp;|lt;|gt;|quot;|#)(\w+);", lambda name: html.unescape(name[0]), markup)
    try:
        ElementTree.fromstring(f"<all>{named}</all>")
    except ElementTree.ParseError as error:
        return str(error)
    return None


def faults(id, renders, expected, literals):
    """A line for each thing that is wrong with a figure in its states, without a page."""
    found, placed = [], set()
    for i, (state, wanted) in enumerate(zip(renders, expected, strict=True)):
        shown, parts = state["shown"], state["drawing"] + state["words"]
        if shown != wanted:
            differ = sorted(key for key in shown.keys() | wanted.keys() if shown.get(key) != wanted.get(key))
            found += [f"{id}, state {i}: {key} is {shown.get(key)!r}, and Python has {wanted.get(key)!r}" for key in differ[:3]]
        placed |= {key for key, _ in keys_of(parts)}
        for part in ("drawing", "words"):
            stray = stray_digits(state[part], literals)
            broken = well_formed(state[part])
            found += [f"{id}, state {i}: {stray} in the {part}, not shown numbers"] if stray else []
            found += [f"{id}, state {i}: the {part} is not well formed: {broken}"] if broken else []
        if not re.search(r"\w", re.sub(r"<[^>]*>", "", state["words"])):
            found.append(f"{id}, state {i}: no words")
    never = set().union(*expected) - placed
    return found + ([f"{id}: {sorted(never)} stand in no state's drawing or words"] if never else [])


def faults_in_page(id, seen, expected):
    """A line for each number on the page that is not Python's, by what the walk through the controls has read."""
    if len(seen) != len(expected):
        return [f"{id}: the controls of the page lead through {len(seen)} states, and the figure has {len(expected)}"]
    found = []
    for i, (state, wanted) in enumerate(zip(seen, expected, strict=True)):
        found += [
            f"{id}, state {i}: the page shows {texts} as {key}, and Python has {wanted.get(key)!r}"
            for key, texts in state.items()
            if texts != [wanted.get(key)]
        ]
        found += [] if state else [f"{id}, state {i}: the page shows no number"]
    return found


def table():
    """[id, states, numbers held over all states] of every figure."""
    rows = []
    for id in web_support.figures_of_page():
        expected = web_support.expected(id)
        rows.append((id, len(expected), sum(map(len, expected))))
    return rows


class EveryFigure(unittest.TestCase):
    """All states of each figure in an engine, against Python."""

    @classmethod
    def setUpClass(cls):
        web_support.quickjs_book()
        cls.ids = web_support.figures_of_page()

    def test_there_are_28_in_their_order(self):
        self.assertEqual(len(self.ids), 28)
        numbers = [web_support.ask(f"book.figures['{id}'].number") for id in self.ids]
        self.assertEqual(numbers, list(range(1, 29)))
        names = [path.stem for path in sorted((ROOT / "content" / "web" / "figures").glob("*.js"))]
        self.assertEqual([name for name in names if name[:1].isdigit()], [f"{n:02}-{id}" for n, id in enumerate(self.ids, 1)])

    def test_each_shows_what_python_computes(self):
        for id in self.ids:
            with self.subTest(figure=id):
                _, literals = web_support.oracle(id)
                self.assertLessEqual(len(web_support.states(id)), MOST)
                found = faults(id, web_support.renders(id), web_support.expected(id), literals)
                self.assertEqual(found[:8], [], f"{len(found)} faults")

    def test_something_changes_with_every_control(self):
        """No control is idle: in at least one state of the others it changes what is drawn or said."""
        for id in self.ids:
            states, renders = web_support.states(id), web_support.renders(id)
            for name in states[0]:
                pairs = {}
                for state, found in zip(states, renders, strict=True):
                    others = tuple((key, value) for key, value in state.items() if key != name)
                    pairs.setdefault(others, set()).add(found["drawing"] + found["words"])
                self.assertGreater(max(map(len, pairs.values())), 1, f"figure {id}: {name} changes nothing")

    def test_planted_faults(self):
        drawn = '<svg><text>layers: <tspan data-shows="n">12</tspan></text></svg>'
        good = {"shown": {"n": "12"}, "drawing": drawn, "words": 'With <span data-shows="n">12</span> layers of GPT-2.'}
        wanted = [{"n": "12"}]
        self.assertEqual(faults("x", [good], wanted, ("GPT-2",)), [])
        for what, changes, literals in (
            ("another number", {"shown": {"n": "13"}}, ("GPT-2",)),
            ("a number too many", {"shown": {"n": "12", "m": "1"}}, ("GPT-2",)),
            ("a typed number", {"words": good["words"] + " That is 12."}, ("GPT-2",)),
            ("an undeclared name", {}, ()),
            ("part of a number declared", {"words": good["words"] + " 2.5"}, ("GPT-2", "2")),
            ("a number in a label", {"drawing": drawn.replace("<svg>", '<svg aria-label="12 layers">')}, ("GPT-2",)),
            ("broken markup", {"drawing": drawn.replace("</text>", "")}, ("GPT-2",)),
            ("no words", {"words": ""}, ("GPT-2",)),
            ("never placed", {"drawing": "<svg></svg>", "words": "layers"}, ("GPT-2",)),
        ):
            self.assertEqual(len(faults("x", [good | changes], wanted, literals)), 1, what)
        self.assertEqual(faults_in_page("x", [{"n": ["12"]}], wanted), [])
        for seen in ([], [{}], [{"n": ["13"]}], [{"n": ["12", "13"]}], [{"m": ["12"]}]):
            self.assertEqual(len(faults_in_page("x", seen, wanted)), 1, seen)


# Every range and select of the page taken to its last value, as a reader would.
MOVE = """
for (const e of document.querySelectorAll("figure.take :is(input, select)")) {
  if (e.localName === "select") e.selectedIndex = e.options.length - 1;
  else e.value = e.max;
  e.dispatchEvent(new Event(e.localName === "select" ? "change" : "input", { bubbles: true }));
}
"""
# Figures whose controls say another state than their words do.
APART = """
return Object.values(book.figures).filter((figure) => {
  const element = document.getElementById(`figure-${figure.id}`);
  const state = Object.fromEntries(figure.controls.map((control) => {
    const e = element.querySelector(`[name="${control.name}"]`);
    const value = { toggle: () => e.ariaPressed === "true", choice: () => control.options[e.selectedIndex][0] }[control.kind];
    return [control.name, value ? value() : Number(e.value)];
  }));
  const said = document.createElement("p");
  said.innerHTML = book.render(figure.id, state).words;
  return said.textContent !== element.querySelector(".words").textContent;
}).map((figure) => figure.id);
"""


@slow
class InThePage(unittest.TestCase):
    """The same through the page's own controls, and by keyboard alone."""

    @classmethod
    def setUpClass(cls):
        cls.driver = the_browser()
        open_page(cls.driver, PAGE)
        cls.ids = web_support.figures_of_page()

    def js(self, script, *given):
        return self.driver.execute_script(script, *given)

    def test_every_state_by_the_controls_of_the_page(self):
        for id in self.ids:
            with self.subTest(figure=id):
                found = faults_in_page(id, self.js(WALK, id), web_support.expected(id))
                self.assertEqual(found[:8], [], f"{len(found)} faults")
        self.assertEqual(problems(self.driver), [])
        open_page(self.driver, PAGE)

    def test_a_planted_fault_in_the_page(self):
        self.js(FAULT)
        try:
            found = faults_in_page("layers", self.js(WALK, "layers"), web_support.expected("layers"))
        finally:
            self.js("book.figures.layers.shown = kept")
        self.assertEqual(len(found), 8)

    def test_each_says_its_state_and_names_its_controls(self):
        for id in self.ids:
            with self.subTest(figure=id):
                live, aria, names, unique, reached, caption = self.js(FIELDS, id)
                self.assertEqual((live, aria, unique, reached), (True, "polite", True, True))
                self.assertTrue(names and all(names), names)
                self.assertTrue(caption.startswith(f"Figure {self.ids.index(id) + 1}. "), caption)

    def test_going_back_leaves_controls_and_drawing_as_one(self):
        """A browser that goes back fills in what forms held, and asks no script."""
        self.js(MOVE)
        open_page(self.driver, "index.html")
        self.driver.back()
        self.assertEqual(self.js(APART), [])
        open_page(self.driver, PAGE)

    def test_by_keyboard_alone(self):
        """Tab goes through a figure's controls in order, keys set each of them, and what the figure says changes with it."""
        from selenium.webdriver.common.keys import Keys

        def press(key):
            self.driver.switch_to.active_element.send_keys(key)

        for id in self.ids:
            with self.subTest(figure=id):
                changed = False
                for at in range(self.js(FOCUS, id)):
                    if at:
                        press(Keys.TAB)
                    self.assertEqual(self.js("return fields.indexOf(document.activeElement)"), at, "where Tab leads")
                    kind, own, before = self.js(f"return [document.activeElement.type, {OWN}, state()]")
                    for key in KEYS.get(kind, ("ENTER",)):
                        press(getattr(Keys, key))
                        if self.js(f"return {OWN}") != own:
                            break
                    if own is not None:
                        self.assertNotEqual(self.js(f"return {OWN}"), own, f"no key changes control {at}")
                    changed |= self.js("return state()") != before
                self.assertTrue(changed, "no key changes what the figure says")


if __name__ == "__main__":
    if sys.argv[1:]:
        unittest.main()
    print(f"{'figure':<20}{'states':>8}{'numbers':>10}")
    rows = table()
    for id, states, numbers in rows:
        print(f"{id:<20}{states:>8,}{numbers:>10,}")
    print(f"{len(rows):<20}{sum(row[1] for row in rows):>8,}{sum(row[2] for row in rows):>10,}")
