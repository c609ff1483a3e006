"""What `make check` says: what counts as a measured number, and that each thing that is wrong is named with its file and line. The
last is shown on a small book, changed in one place at a time."""

import functools
import json
import unittest
from dataclasses import replace
from unittest import mock

from scripts import check, transcripts
from scripts.check import check_markers, check_numbers
from scripts.page import line_at
from scripts.refresh import refresh
from scripts.register import write_register
from scripts.spelling import check_spelling
from tests.small_book import CLAIM, NEAR, ONE, SEEN, TIME, SmallBook
from tests.support import call


class Numbers(unittest.TestCase):
    def found(self, text):
        return [p.what.split("'")[1] for p in check_numbers("f", text)]

    def test_what_is_measured(self):
        for text, shown in (
            ("it took 3.5 of them", "3.5"),
            ("below 1e-5 there", "1e-5"),
            ("about 45 per cent of it", "45 per cent"),
            ("about 45% of it", "45%"),
            ("in 12 ms", "12 ms"),
            ("in 2 seconds", "2 seconds"),
            ("takes 77 MFLOP", "77 MFLOP"),
            ("reads 8 MB", "8 MB"),
            ("costs 4 bytes", "4 bytes"),
            ("is 3 times that", "3 times"),
            ("reads 30 GB/s", "30 GB/s"),
            ("all 124,439,808 of them", "124,439,808"),
            ("at 512, say", "512"),
            ("| 1,024 |", "1,024"),
            ("2100 things", "2100"),
            ("1,999 things", "1,999"),
            ("**3.5** and more", "3.5"),
            ("[see 3.5](a.md)", "3.5"),
            ("![a figure of 3.5](a.svg)", "3.5"),
            ("- an item\n\n  of 3.5", "3.5"),
            ("<p>3.5</p>", "3.5"),
            ("## Part 3.5", "3.5"),
            ("> 3.5 of them", "3.5"),
        ):
            self.assertEqual(self.found(text), [shown], text)

    def test_what_is_not(self):
        for text in (
            "twelve layers, 12 heads, chapter 4, 99 of them",
            "in 2019 and 1997",
            "GPT-2, gpt2, float32, 32-bit, 10-token",
            "`1.5` and `x = 124,439,808`",
            "$d = 768$ and $$\n0.044715 x^3\n$$",
            "[paper](https://example.org/abs/1706.03762)",
            "<!--const-->4.73e-4<!--/--> and <!--=x.y n int-->1,234<!--/-->",
            "```sh\npython x.py --tokens 16,1024\n```",
            "---\ntitle: 3.5\n---\n",
            "1. first\n2. second",
            "see <https://example.org/1.5>, and ![a figure](a-1.5.svg)",
            "~~~\n9.9\n~~~\n",
            "text\n\n    9.9\n",
            "<!-- 9.9 -->\n",
            "<p title='9.9'>x</p>\n",
            "<!--=x.y rows table t:int-->\n\n| t |\n|---|\n| 1,234 |\n\n<!--/-->\n",
        ):
            self.assertEqual(self.found(text), [], text)

    def test_line(self):
        for text, line in (
            ("a\n\n```text\n9.9\n```\nb 3.5\n", 6),
            ("a\nb **c\nd** 3.5\n", 3),
            ("---\ntitle: x\n---\n\n# H\na 3.5\n", 6),
            ("a <!--=x.y n int-->1,234<!--/-->\n\n<!--=x.y r table t:int-->\n\n| t |\n\n<!--/-->\n\n3.5\n", 9),
            ("| a |\n|---|\n| 1 |\n| 3.5 |\n", 4),
        ):
            self.assertEqual([p.line for p in check_numbers("f", text)], [line], text)


class Markers(SmallBook):
    def test_pairs_and_line_starts(self):
        records, used = check.load_records(self.folder), set()

        def problems(text):
            return [(p.line, p.what) for p in check_markers("f", text, records, used)]

        [(line, what)] = problems("x <!--=ch98.one n int-->1,234\n")
        self.assertIn("do not pair up", what)
        for text, line in (
            ("text\n<!--=ch98.one n int-->1,234<!--/--> more\n", 2),
            ("text\n\n- <!--=ch98.one n int-->1,234<!--/--> more\n", 3),
            ("<!--const-->7<!--/--> more\n", 1),
        ):
            [(found, what)] = problems(text)
            self.assertEqual(found, line)
            self.assertIn("takes it for HTML", what)
        for text in ("a\n\n```text\n<!--const-->7<!--/-->\n```\n", "a\n\n    <!--const-->7<!--/-->\n"):
            [(line, what)] = problems(text)
            self.assertIn("a block of code", what)
        self.assertEqual(problems("a <!--=ch98.one n int-->1,234<!--/--> b\n\n<!--claim x-->\n"), [])
        self.assertEqual(used, {"ch98.one"})


class Check(SmallBook):
    """Each case leaves the book with as many problems as it names; spelling has a test of its own, since its list takes a while."""

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(check, "check_spelling", return_value=[])
        self.spelling = patch.start()
        self.addCleanup(patch.stop)

    def check(self):
        return [str(p) for p in check.check(self.folder)]

    def assertNamed(self, *problems):
        """As many things are wrong as there are `problems`, each a tuple of words that its line has."""
        found = self.check()
        self.assertEqual(len(found), len(problems), found)
        for line, words in zip(found, problems, strict=True):
            for word in words:
                self.assertIn(word, line)

    def test_nothing_is_wrong(self):
        self.assertEqual(self.check(), [])

    def test_a_number_in_the_manuscript(self):
        self.replace(self.chapter, "int-->1,234", "int-->1,235")
        self.assertNamed(("98-chapter.md:11: '1,235' stands, '1,234' should stand", "(ch98.one n)"))
        refresh(self.folder)
        self.assertEqual(self.check(), [])

    def test_a_cell_of_a_table(self):
        self.replace(self.chapter, "|       16 |", "|       17 |")
        self.assertNamed(("98-chapter.md:14: in the table", "17", "should stand"))

    def test_a_value_in_the_records(self):
        self.replace(self.path, '"n": 1234', '"n": 1233')
        self.assertNamed(("98-chapter.md:11: '1,234' stands, '1,233' should stand",), ("evidence-register.md:1: is not what",))

    def test_a_record_that_does_not_hold(self):
        self.replace(self.path, '"held": true', '"held": false')
        self.assertNamed(("research/ch98/results.json:1: ch98.near is outside its bound: 0.5 > 1.0",))

    def test_commands(self):
        for old, new, word in (
            ("cost_model.py --context 16,1024", "cost_model.py --contxt 16,1024", "--contxt"),
            ("cost_model.py --context 16,1024", "cost_model.py --context 16,many", "'many'"),
            ("cost_model.py --context 16,1024", "costly_model.py", "no examples.ch04.costly_model"),
            ("python examples/ch04/cost_model.py", "python -m examples.ch04.costly_model", "no examples.ch04.costly_model"),
            ("cost_model.py --context 16,1024", "cost_model.py --context '16", "quotation"),
            ("make evidence CHAPTER=ch98", "make evidences CHAPTER=ch98", "no evidences"),
            ("make evidence CHAPTER=ch98", "make evidence CHAPTERS=ch98", "no CHAPTERS=ch98"),
        ):
            text = self.chapter.read_text()
            self.replace(self.chapter, old, new)
            self.assertNamed(("98-chapter.md:", new, "does not work", word))
            self.chapter.write_text(text)
        for fine in (
            "pip install x",
            "OMP_NUM_THREADS=1 python -m unittest",
            "$ make check",
            ".venv/bin/python examples/ch04/tour.py --help",
        ):
            text = self.chapter.read_text()
            self.replace(self.chapter, "make evidence CHAPTER=ch98", fine)
            self.assertEqual(self.check(), [], fine)
            self.chapter.write_text(text)
        self.replace(self.folder / "README.md", "make check", "make chekc")
        self.assertNamed(("README.md:6: the command `make chekc` does not work",))

    def test_the_line_of_a_command(self):
        self.replace(self.chapter, "--context 16,1024", "--contxt 16,1024")
        line = self.chapter.read_text().splitlines().index("python examples/ch04/cost_model.py --contxt 16,1024") + 1
        self.assertNamed((f"98-chapter.md:{line}: ",))

    def test_headings_and_front_matter(self):
        text = self.chapter.read_text()
        self.replace(self.chapter, "## Key terms", "## Terms")
        self.assertNamed(("98-chapter.md:1: the heading 'Key terms' is missing",))
        self.chapter.write_text(
            text.replace("## Key terms", "## X").replace("## Exercises", "## Key terms").replace("## X", "## Exercises")
        )
        self.assertNamed(("another order: The claim, Where this sits",))
        self.chapter.write_text(text.replace("draft: false\n", ""))
        self.assertNamed(("front matter lacks draft",))
        self.chapter.write_text(text.replace("## Key terms", "```text\n## Key terms\n```"))
        self.assertNamed(("the heading 'Key terms' is missing",))

    def test_a_measured_number_without_a_marker(self):
        self.replace(self.chapter, "## Where this sits\n", "## Where this sits\n\nIt takes 12.5 ms.\n")
        self.assertNamed(("'12.5 ms' stands outside a marker",))

    def test_a_marker_that_names_nothing(self):
        text = self.chapter.read_text()
        self.replace(self.chapter, "=ch98.one n int", "=ch98.one m int")
        self.assertNamed(("98-chapter.md:11: the marker ch98.one m int names nothing: there is no 'm'",))
        self.chapter.write_text(text)
        self.replace(self.chapter, "=ch98.one n int", "=ch98.own n int")
        write_register(self.folder)
        self.assertNamed(("names nothing: there is no result ch98.own",), ("results.json:1: no manuscript uses ch98.one",))

    def test_links_and_paths(self):
        for old, new, word in (
            ("evidence-register.md)", "register.md)", "98-chapter.md:12: the link ../../../research/register.md leads to nothing"),
            ("figures/seen.svg)", "figures/sen.svg)", "sen.svg leads to nothing"),
            ("`scripts/evidence.py`", "`scripts/evidences.py`", "the path scripts/evidences.py does not exist"),
            ("(#the-claim)", "(#the-claims)", "the link #the-claims leads to no heading of that file"),
            ("evidence-register.md)", "evidence-register.md#nothing)", "leads to no heading"),
            ("[above](#the-claim)", "[above][1]", "one.md leads to nothing"),
        ):
            text = self.chapter.read_text()
            self.replace(self.chapter, old, new)
            self.chapter.write_text(self.chapter.read_text() + "\n[1]: one.md\n")
            self.assertNamed((word,))
            self.chapter.write_text(text)
        for fine in (
            "[x](https://example.org/a)",
            "[x](mailto:a@example.org)",
            "`examples/chNN/*.py`",
            "[x](#key-terms)",
            "`[x](y.md)`",
        ):
            self.replace(self.chapter, "Text.", f"Text. {fine}")
            self.assertEqual(self.check(), [], fine)

    def test_claims(self):
        line = line_at(self.chapter.read_text(), self.chapter.read_text().index("<!--claim"))
        self.replace(self.chapter, "<!--claim ch98.guess-->", "<!--claim ch98.gues-->")
        write_register(self.folder)
        self.assertNamed(
            (f"98-chapter.md:{line}: there is no claim ch98.gues in research/ch98/claims.json",),
            ("research/ch98/claims.json:1: no manuscript makes the claim ch98.guess",),
        )
        self.replace(self.chapter, "<!--claim ch98.gues-->", "<!--claim ch98.guess-->")
        self.assertNamed(("research/evidence-register.md:1: is not what",))
        self.claims.write_text(json.dumps({"chapter": "ch98", "claims": [CLAIM | {"evidence": ["ch98.nothing"]}]}))
        write_register(self.folder)
        self.assertNamed(("claims.json:1: the claim ch98.guess rests on ch98.nothing, which has no result",))

    def test_register_and_figures(self):
        self.replace(self.folder / "research/evidence-register.md", "One is one.", "One is two.")
        self.replace(self.folder / "research/ch98/figures/seen.svg", "1.23", "1.24")
        self.assertNamed(
            ("research/evidence-register.md:1: is not what", "make refresh"),
            ("research/ch98/figures/seen.svg:1: is not what ch98.seen draws", "make refresh"),
        )

    def test_records_out_of_step_with_the_experiments(self):
        self.use(replace(ONE, claim="Another."), NEAR, SEEN, TIME)
        self.assertNamed(("ch98.one has another claim than its experiment",))
        self.use(NEAR, SEEN, TIME)
        self.assertIn("research/ch98/results.json:1: ch98.one@none is of no experiment", self.check())
        self.use(ONE, NEAR, SEEN, TIME, replace(ONE, id="ch98.new"))
        self.assertNamed(("results.json:1: there is no result ch98.new",))

    def test_a_listing(self):
        """The code changes, the page changes, or the marker names what is not there: one line each."""
        text = self.chapter.read_text()
        self.assertIn("return y.add_(weights", text)
        code = self.write("research/ch98/code.py", "def f():\n    return 1\n")
        shown = "<!--code research/ch98/code.py f--><!--/-->"
        self.chapter.write_text(text.replace("It took", f"{shown}\n\nIt took"))
        self.assertNamed(("the listing `research/ch98/code.py f` is not what the file holds",))
        self.assertEqual(refresh(self.folder), [])
        self.assertEqual(self.check(), [])
        code.write_text("\n\n# It moves.\nX = 1\n\n\ndef f():\n    return 1\n")
        self.assertEqual(self.check(), [])
        code.write_text("def f():\n    return 2\n")
        self.assertNamed(("98-chapter.md:", "is not what the file holds"))
        code.write_text("def g():\n    return 1\n")
        self.assertNamed(("the listing `research/ch98/code.py f` shows nothing: there is no 'f'",))
        [problem] = refresh(self.folder)
        self.assertIn("98-chapter.md:", str(problem))
        self.assertIn("there is no 'f'", str(problem))
        self.chapter.write_text(text.replace("return y.add_", "return y.sub_"))
        self.assertNamed(("the listing `examples/ch04/gpt2_from_scratch.py linear` is not what",))

    def test_the_line_of_a_listing(self):
        self.write("research/ch98/code.py", "def f():\n    return 1\n")
        readme = self.folder / "README.md"
        for page in (self.chapter, readme):
            page.write_text(page.read_text() + "\nSee:\n\n<!--code research/ch98/code.py f--><!--/-->\n")
        self.assertEqual(refresh(self.folder), [])
        self.write("research/ch98/code.py", "def f():\n    return 2\n")
        self.assertNamed(*((f"{p.name}:{self.line(p, '<!--code research')}: the listing",) for p in (self.chapter, readme)))

    def line(self, path, start):
        """The number of the first line of a file that starts so."""
        return next(i for i, line in enumerate(path.read_text().split("\n"), start=1) if line.startswith(start))

    def test_what_a_command_prints(self):
        """With --run: the page changes, README's or the chapter's, or the command prints something else: its file and line."""
        readme = self.folder / "README.md"
        readme.write_text(readme.read_text() + "\n<!--run python examples/ch05/five_candidates.py | 1-3--><!--/-->\n")
        self.assertEqual(refresh(self.folder), [])
        ran = functools.partial(check.check, self.folder, run=True)
        self.assertEqual(ran(), [])
        for page in (readme, self.chapter):
            text, at = page.read_text(), self.line(page, "mat              4.0")
            self.replace(page, "mat              4.0", "mat              4.1")
            self.assertEqual(self.check(), [])  # without --run nothing is seen
            [problem] = map(str, ran())
            for words in (f"{page.name}:{at}: the transcript `python examples/ch05/five", "4.1", "prints 'mat              4.0"):
                self.assertIn(words, problem)
            page.write_text(text)
        printed = transcripts.call("python examples/ch05/five_candidates.py")
        with mock.patch.object(transcripts, "call", return_value=printed.replace("mat   ", "rat   ")):
            found = [str(p) for p in ran()]
        self.assertEqual(len(found), 2)
        for page, problem in zip((self.chapter, readme), found, strict=True):
            self.assertIn(f"{page.name}:{self.line(page, 'mat   ')}: ", problem)
            self.assertIn("the command prints 'rat   ", problem)
        with mock.patch.object(transcripts, "call", side_effect=ValueError("it fails: no")):
            self.assertIn("shows nothing: it fails: no", str(ran()[0]))

    def test_a_reversed_word_passes_and_the_help_says_so(self):
        self.replace(self.chapter, "the worst of", "the best of")
        self.assertEqual(self.check(), [])
        shown = " ".join(call(check.main, "--help")[1].split())
        self.assertIn('"most" for "least" beside the right number, passes', shown)

    def test_a_transcript(self):
        """`check` does not run it, and sees what no run could make."""
        text = self.chapter.read_text()
        command = "python examples/ch05/five_candidates.py"
        for old, new, word in (
            (f"<!--run {command} ", "<!--run python examples/ch05/six_candidates.py ", "there is no examples.ch05.six_candidates"),
            (f"<!--run {command} ", f"<!--run {command} --seeds 3 ", "--seeds"),
            (f"<!--run {command} ", f"<!--run {command} --json ", "the block shows"),
            (f"<!--run {command} ", "<!--run make run ", "only `python"),
            ("| 1-3,7-", "| 1-3,7-x", "are no lines"),
            ("| 1-3,7-", "| 7-9,1-3", "do not rise"),
            ("| 1-3,7-", "| 1-3", "3 are asked for"),
            ("```text\ncandidate", "```python\ncandidate", "it is not a sh block"),
        ):
            self.replace(self.chapter, old, new)
            self.assertNamed(("98-chapter.md:", "does not hold", word))
            self.chapter.write_text(text)

    def test_what_stands_in_readme(self):
        """It is checked like a manuscript, but that it may name numbers."""
        readme = self.folder / "README.md"
        readme.write_text(readme.read_text() + "\nIt takes 3.5 s: <!--=ch98.one n int-->1,234<!--/--> of them.\n")
        self.assertEqual(self.check(), [])
        self.replace(readme, ">1,234<", ">1,235<")
        self.assertNamed(("README.md:9: '1,235' stands, '1,234' should stand",))
        refresh(self.folder)
        self.assertEqual(self.check(), [])

    def test_what_only_readme_shows_is_in_no_manuscript(self):
        self.use(ONE, NEAR, SEEN, TIME, replace(ONE, id="ch98.more"))
        self.update(replace(ONE, id="ch98.more"))
        readme = self.folder / "README.md"
        readme.write_text(readme.read_text() + "\nThere are <!--=ch98.more n int-->1,234<!--/-->.\n")
        refresh(self.folder)
        self.assertNamed(("no manuscript uses ch98.more",))

    def test_an_appendix(self):
        """It is a part of the book, without a chapter's headings."""
        self.write("content/books/inference/98-appendix.md", "# More\n\nIt takes 3.5 s.\n")
        self.assertNamed(("98-appendix.md:3: the number '3.5 s' stands outside a marker",))

    def test_long_lines(self):
        line = "word " * 31 + "word"  # 159 characters
        self.replace(self.chapter, "Text.", line)
        self.assertEqual(self.check(), [])
        self.replace(self.chapter, line, line + "s")
        self.assertNamed(("the line has 160 characters",))
        self.replace(self.chapter, line + "s", f"| a |\n|---|\n| {line} more |")
        self.assertEqual(self.check(), [])
        readme = self.folder / "README.md"
        readme.write_text(readme.read_text() + f"\n{line}s\n")
        self.assertNamed(("README.md:9: the line has 160 characters",))

    def test_what_a_marker_makes_may_be_long(self):
        self.write("research/ch98/code.py", f"X = {'1 + ' * 50}1\n")
        columns = " ".join(f"ms:f1:{'long_' * 8}{i}" for i in range(6))
        both = f"<!--code research/ch98/code.py X--><!--/-->\n\n<!--=ch98.seen rows table {columns}--><!--/-->"
        self.replace(self.chapter, "Text.", both)
        refresh(self.folder)
        self.assertEqual(self.check(), [])

    def test_images(self):
        self.replace(self.chapter, "![What was seen, as one number]", "![What was seen, one]")
        self.assertNamed(("the image's alternative text 'What was seen, one' does not say what it shows",))

    def test_spelling_is_looked_at(self):
        self.spelling.side_effect = lambda texts: check_spelling({k: v for k, v in texts.items() if k == "README.md"})
        self.replace(self.folder / "README.md", "See", "Recieve a colour, see")
        self.assertNamed(("README.md:3: 'Recieve' is spelt Receive",))

    def test_a_headline_that_names_nothing(self):
        for wrong, word in ((("m", "int"), "there is no 'm'"), (("n", "furlongs"), "there is no format 'furlongs'")):
            self.use(replace(ONE, headline=wrong), NEAR, SEEN, TIME)
            write_register(self.folder)
            self.assertNamed(("results.json:1: the headline of ch98.one names nothing: " + word,))

    def test_script(self):
        with mock.patch.object(check, "check", return_value=[check.Problem("a.md", 7, "is wrong")]):
            status, out, err = call(check.main)
        self.assertEqual((status, out), (2, "a.md:7: is wrong\n"))
        self.assertEqual(len(err.splitlines()), 1)
        with mock.patch.object(check, "check", return_value=[]):
            self.assertEqual(call(check.main)[0], 0)


if __name__ == "__main__":
    unittest.main()
