"""What every script promises of what it prints: its width, its last sentence, right plurals, floats without noise, and a line in
--help for every key of --json."""

import fnmatch
import re
import tomllib
import unittest

from examples.lab import keys as lab_keys
from examples.lab.keys import declared, in_help
from examples.lab.script import DIGITS, parse_json
from tests.every_script import ARGUMENTS, SCRIPTS, answers, help_of, keys
from tests.rooms import COLUMNS
from tests.support import ROOT, FolderCase, slow

# What a call has to be of another kind to show: a hub's commit is no key of these, a family with a window takes another model.
UNSEEN = {"ch02/manifest": {"seed"}}
WRITES_TEXT = {"ch05/generate"}  # on stdout stands the text alone, and its note on stderr
PLURAL = re.compile(
    r"\(s\)|(?<![\d.,])\b1 (?!row\b|thread\b)(?:\w+ )?(?:sequence|token|position|thread|window|text|tensor|model|layer)s\b"
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def file(script):
    return ROOT / "examples" / f"{script}.py"


def noise(text):
    """The numbers of a JSON text with a point that have more significant digits than DIGITS."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    found = [x for x in NUMBER.findall(text) if "." in x]
    return [x for x in found if len(re.sub(r"[eE].*|[-.]", "", x).lstrip("0").rstrip("0")) > DIGITS]


def undeclared(script, printed, lines):
    """Keys of `printed`, pairs of a key and that above it, of which `lines` says nothing."""
    patterns = [name for names, _ in lines for name in names]
    return sorted({f"{script}: {above}.{key}" for above, key in printed if not any(fits(above, key, p) for p in patterns)})


def stale(script, printed, lines):
    """Names in `lines` that no key of `printed` has."""
    return [f"{script}: {name}" for names, _ in lines for name in names if not any(fits(a, k, name) for a, k in printed)]


def fits(above, key, pattern):
    return fnmatch.fnmatchcase(f"{above}.{key}" if "." in pattern else key, pattern)


class Scripts(unittest.TestCase):
    maxDiff = None

    def test_all_of_them(self):
        self.assertGreater(len(SCRIPTS), 45)
        self.assertLessEqual(set(ARGUMENTS), set(SCRIPTS))

    def test_help(self):
        for script in SCRIPTS:
            with self.subTest(script):
                shown = help_of(script)
                self.assertLessEqual(max(map(len, shown.splitlines())), COLUMNS)
                self.assertEqual("--json" in shown, "keys of --json" in shown)

    @slow
    def test_the_page(self):
        for script in SCRIPTS:
            for answer in answers(script):
                with self.subTest(script, arguments=answer.arguments):
                    self.assertLessEqual(max(map(len, answer.page.splitlines())), COLUMNS, answer.page)
                    self.assertEqual(PLURAL.findall(answer.page), [])
                    if script not in WRITES_TEXT:
                        self.assertTrue(answer.page.endswith(".\n"), answer.page[-200:])

    @slow
    def test_floats_of_json(self):
        for script in SCRIPTS:
            for answer in answers(script):
                if answer.json is not None:
                    with self.subTest(script, arguments=answer.arguments):
                        parse_json(answer.json)
                        self.assertEqual(noise(answer.json), [])

    @slow
    def test_every_key_of_json_stands_in_the_help(self):
        for script in SCRIPTS:
            with self.subTest(script):
                lines, printed = declared(file(script)), keys(script)
                self.assertEqual(undeclared(script, printed, lines), [])
                self.assertEqual(stale(script, printed, [(set(n) - UNSEEN.get(script, set()), t) for n, t in lines]), [])

    def test_every_line_is_used_and_says_something(self):
        used = {name for script in SCRIPTS for name in self.read(file(script)).get(file(script).stem, {}).get("common", "").split()}
        self.assertEqual(used, set(self.read(lab_keys.COMMON / "none", lab_keys.COMMON)))
        for path in ROOT.glob("examples/ch*/keys.toml"):
            self.assertLessEqual({f"{path.parent.name}/{name}" for name in self.read(path, path)}, set(SCRIPTS))
        for script in SCRIPTS:
            names = [name for names, _ in declared(file(script)) for name in names]
            self.assertEqual(len(names), len(set(names)), script)
            for _, text in declared(file(script)):
                self.assertGreater(len(text.split()), 1, script)

    def read(self, script, path=None):
        path = script.with_name("keys.toml") if path is None else path
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def test_what_breaks_is_seen(self):
        for text in ("2.9000000953674316", '{"a": [1, -0.00012345678]}', "[1.2345678e-10]"):
            self.assertEqual(len(noise(text)), 1, text)
        for text in ("2.9", "124439808", '{"a": 0.0001234567, "b": "2.9000000953674316"}', "[1.234567e-10, 16.05842, 1200000.0]"):
            self.assertEqual(noise(text), [], text)
        for text in ("1 sequence(s)", "each of 1 sequences", "after 1 new tokens", "1 sequences x 2"):
            self.assertTrue(PLURAL.search(text), text)
        for text in ("1 sequence", "21 tokens", "1.1 positions", "2,001 tokens"):
            self.assertFalse(PLURAL.search(text), text)

    def test_a_key_without_a_line_and_a_line_without_a_key(self):
        printed = {("", "a"), ("a", "first"), ("a", "x_ms"), ("config", "n_head"), ("", "config")}
        lines = [(["a", "first"], "b"), (["*_ms"], "b"), (["config"], "b"), (["config.*"], "b")]
        self.assertEqual((undeclared("s", printed, lines), stale("s", printed, lines)), ([], []))
        self.assertEqual(undeclared("s", printed, lines[1:]), ["s: .a", "s: a.first"])
        self.assertEqual(undeclared("s", printed, lines[:-1]), ["s: config.n_head"])
        self.assertEqual(stale("s", printed, [*lines, (["last", "b.first"], "b")]), ["s: last", "s: b.first"])


class Help(FolderCase):
    def test_lines(self):
        (self.folder / "keys.toml").write_text('[a]\ncommon = "held"\n"x_ms, y_ms" = "milliseconds"\n"' + "long_" * 6 + '" = "m"\n')
        shown = in_help(self.folder / "a.py", 60)
        self.assertIn("\n  x_ms, y_ms            milliseconds\n", shown)
        self.assertIn("\n  " + "long_" * 6 + "\n                        m\n", shown)
        self.assertIn("\n  held                  whether", shown)
        self.assertLessEqual(max(map(len, shown.splitlines()[1:])), 60)
        self.assertEqual(in_help(self.folder / "b.py", 60), "")


if __name__ == "__main__":
    unittest.main()
