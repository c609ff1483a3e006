"""The manuscript tools: what a marker shows, what counts as a measured number, and that `make check` names each thing that is
wrong. The last is shown on a copy of the repository's own manuscript, changed in one place at a time."""

import json
import shutil
import unittest
from unittest import mock

from examples.lab.experiment import Claim
from scripts import check as ms
from scripts import compare_published
from scripts.registry import CLAIMS, EXPERIMENTS
from tests.support import ROOT, FolderCase, call, slow

RECORD = {
    "id": "x.y",
    "values": {
        "n": 1234,
        "share": 45.52,
        "zero": 0.0,
        "rows": [{"t": 16, "ms": 1.5, "name": "a|b"}, {"t": 128, "ms": None, "name": "c"}],
    },
    "machine": {"processor": "some"},
}


class Markers(unittest.TestCase):
    def test_paths(self):
        look = lambda path: ms.look_up(RECORD, path)  # noqa: E731
        self.assertEqual((look("n"), look("rows[t=16].ms"), look(".machine.processor")), (1234, 1.5, "some"))
        for path in ("m", "n.more", "rows[t=17].ms", "rows[t=16].s", ".values.x", "n[t=1]"):
            with self.assertRaises(LookupError):
                look(path)

    def test_formats(self):
        for value, form, shown in (
            (1234567, "int", "1,234,567"),
            (1234.0, "int", "1,234"),
            (1234, "bytes", "1,234 bytes"),
            (50331648, "mb1", "50.3 MB"),
            (45.52, "%1", "45.5%"),
            (45.52, "pct1", "45.5 per cent"),
            (30, "pct0", "30 per cent"),
            (0.00012345, "s1", "1.2e-4"),
            (7e-07, "s0", "7e-7"),
            (12.345, "ms1", "12.3 ms"),
            (3.0512, "f2", "3.05"),
            (1234.5, "f0", "1,234"),
            (12.345, "g3", "12.3"),
            (1234.5, "g3", "1,230"),
            (0.012345, "g2", "0.012"),
            (9.996, "g3", "10.0"),
            (0.0, "g3", "0"),
            (None, "f1", "n/a"),
            ("a\nb|c", "text", "a b\\|c"),
            (True, "text", "True"),
        ):
            self.assertEqual(ms.render(value, form), shown, (value, form))
        for value, form in ((1.5, "int"), ("x", "f1"), (True, "int"), (1, "furlongs"), ([1], "text"), (1, "f1x")):
            with self.assertRaises(ValueError):
                ms.render(value, form)

    def test_tables(self):
        text = ms.render_table(RECORD["values"]["rows"], ["name:text", "t:int:T", "ms:f1:time,_ms"])
        rows = [[c.strip() for c in row.replace("\\|", "/").strip("|").split("|")] for row in text.strip().splitlines()]
        self.assertEqual([rows[0], rows[2], rows[3]], [["name", "T", "time, ms"], ["a/b", "16", "1.5"], ["c", "128", "n/a"]])
        self.assertTrue(text.startswith("\n\n|") and text.endswith("|\n\n"))
        for rows in ([], 3, [1], {"a": 1}):
            with self.assertRaises(ValueError):
                ms.render_table(rows, ["a:int"])

    def test_refreshing(self):
        text = "a <!--=x.y n int-->7<!--/--> b <!--=x.z n int-->8<!--/--> c\n\n<!--=x.y rows table t:int-->old<!--/-->\n"
        new = ms.refreshed(text, {"x.y": RECORD})
        self.assertIn("a <!--=x.y n int-->1,234<!--/--> b <!--=x.z n int-->8<!--/--> c", new)
        self.assertIn("|   t |", new)
        self.assertEqual(ms.refreshed(new, {"x.y": RECORD}), new)

    def test_pairs_and_line_starts(self):
        used = set()
        problems = ms.check_markers("f", "x <!--=x.y n int-->1,234\n", {"x.y": RECORD}, used)
        self.assertIn("do not pair up", str(problems[0]))
        problems = ms.check_markers("f", "text\n<!--=x.y n int-->1,234<!--/--> more\n", {"x.y": RECORD}, used)
        self.assertEqual([p.line for p in problems], [2])
        self.assertIn("takes it for HTML", problems[0].what)
        self.assertEqual(used, {"x.y"})


class Numbers(unittest.TestCase):
    def found(self, text):
        return [p.what.split("'")[1] for p in ms.check_numbers("f", text)]

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
        ):
            self.assertEqual(self.found(text), [], text)

    def test_line(self):
        self.assertEqual(ms.check_numbers("f", "a\n\n```text\n9.9\n```\nb 3.5\n")[0].line, 6)


class Copy(FolderCase):
    """A copy of what `check` reads, to be damaged."""

    def setUp(self):
        super().setUp()
        for name in ("content", "research"):
            shutil.copytree(ROOT / name, self.folder / name)
        for name in ("README.md", "Makefile"):
            shutil.copy(ROOT / name, self.folder / name)
        for name in ("examples", "scripts", "tests"):  # so that links and paths lead somewhere
            (self.folder / name).symlink_to(ROOT / name)
        self.chapter = self.folder / "content" / "books" / "inference" / "04-chapter.md"
        self.results = self.folder / "research" / "ch04" / "results.json"
        if self._testMethodName not in ("test_nothing_is_wrong", "test_register_and_figures"):  # drawing takes its time
            undrawn = mock.patch.object(ms, "check_figures", return_value=[])
            undrawn.start()
            self.addCleanup(undrawn.stop)

    def replace(self, path, old, new):
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1))

    def check(self, **options):
        return [str(p) for p in ms.check(self.folder, **options)]

    def assertNamed(self, *words, **options):
        """Something is wrong, and one line says so with all `words`."""
        problems = self.check(**options)
        self.assertTrue(any(all(word in p for word in words) for p in problems), problems)

    def line_of(self, text):
        content = self.chapter.read_text()
        return content.count("\n", 0, content.index(text)) + 1


class Check(Copy):
    @slow
    def test_nothing_is_wrong(self):
        self.assertEqual(self.check(), [])

    def test_a_number_in_the_manuscript(self):
        marker = "<!--=ch04.counts total int-->"
        line = self.line_of(marker)
        self.replace(self.chapter, marker + "124,439,808", marker + "124,439,809")
        self.assertNamed(f"04-chapter.md:{line}: '124,439,809' stands, '124,439,808' should stand", "ch04.counts total")
        ms.refresh(self.folder)
        self.assertEqual(self.check(), [])

    def test_a_cell_of_a_table(self):
        self.replace(self.chapter, "| feed forward       |   56,669,184 |", "| feed forward       |   56,669,185 |")
        self.assertNamed("04-chapter.md", "in the table", "56,669,185", "56,669,184")

    def test_a_value_in_the_records(self):
        self.replace(self.results, '"total": 124439808', '"total": 124439807')
        self.assertNamed("04-chapter.md", "'124,439,808' stands, '124,439,807' should stand")

    def test_a_record_that_does_not_hold(self):
        self.replace(self.results, '"held": true', '"held": false')
        self.assertNamed("results.json", "outside its bound")

    def test_a_flag_in_a_command(self):
        self.replace(self.chapter, "count --config gpt2-xl", "count --confg gpt2-xl")
        self.assertNamed("04-chapter.md", "count --confg gpt2-xl", "does not work", "--confg")

    def test_other_commands(self):
        for old, new, word in (
            ("flops --context 16,1024", "flops --context 16,many", "'many'"),
            ("gpt2_from_scratch.py mask", "gpt2_from_scratch.py masks", "masks"),
            ("examples/ch04/tiny_transformer.py --layers 3", "examples/ch04/tinier.py --layers 3", "no examples.ch04.tinier"),
            ("make evidence CHAPTER=ch04", "make evidences CHAPTER=ch04", "evidences"),
            ("make evidence CHAPTER=ch04", "make evidence CHAPTERS=ch04", "CHAPTERS"),
        ):
            text = self.chapter.read_text()
            self.replace(self.chapter, old, new)
            self.assertNamed("04-chapter.md", "does not work", word)
            self.chapter.write_text(text)
        self.replace(self.folder / "README.md", "compare --model openai-community/gpt2", "compare --modle openai-community/gpt2")
        self.assertNamed("README.md", "--modle")

    def test_a_heading(self):
        self.replace(self.chapter, "## What the numbers do not show", "## What they do not show")
        self.assertNamed("04-chapter.md", "the heading 'What the numbers do not show' is missing")

    def test_headings_in_another_order(self):
        text = self.chapter.read_text()
        text = text.replace("## Key terms", "## X").replace("## Exercises", "## Key terms").replace("## X", "## Exercises")
        self.chapter.write_text(text)
        self.assertNamed("another order")

    def test_front_matter(self):
        self.replace(self.chapter, "draft: false\n", "")
        self.assertNamed("front matter lacks draft")

    def test_a_measured_number_without_a_marker(self):
        self.replace(self.chapter, "## Where this sits\n", "## Where this sits\n\nIt takes 12.5 ms.\n")
        self.assertNamed("'12.5 ms' stands outside a marker")

    def test_a_marker_that_names_nothing(self):
        for old, new in (("=ch04.counts total int", "=ch04.count total int"), ("=ch04.counts total int", "=ch04.counts sum int")):
            text = self.chapter.read_text()
            self.replace(self.chapter, old, new)
            self.assertNamed("04-chapter.md", "names nothing")
            self.chapter.write_text(text)

    def test_a_result_that_no_manuscript_uses(self):
        text = self.chapter.read_text()
        self.chapter.write_text(text.replace("<!--=ch04.layers ", "<!--=ch04.agreement "))
        self.assertNamed("results.json", "no manuscript uses ch04.layers")

    def test_links_and_paths(self):
        for old, new, word in (
            ("](../../../research/ch04/sources.md)", "](../../../research/ch04/source.md)", "source.md leads to nothing"),
            ("figures/time.svg)", "figures/times.svg)", "times.svg leads to nothing"),
            ("`tests/test_ch04_evidence.py`", "`tests/test_ch04_evidences.py`", "does not exist"),
            ("[the register](../../../research/evidence-register.md)", "[the register](#no-such-heading)", "no heading"),
        ):
            text = self.chapter.read_text()
            self.replace(self.chapter, old, new)
            self.assertNamed("04-chapter.md", word)
            self.chapter.write_text(text)

    def test_claims(self):
        self.replace(self.chapter, "<!--claim ch04.no-gpu-->", "<!--claim ch04.no-cpu-->")
        self.assertNamed("there is no claim ch04.no-cpu")
        self.assertNamed("no manuscript makes the claim ch04.no-gpu")
        bold = (*CLAIMS, Claim("ch04.bold", "hypothesis", "It is so.", ("ch04.nothing",), "Nothing."))
        self.assertNamed("ch04.bold rests on ch04.nothing, which has no result", claims=bold)

    @slow
    def test_register_and_figures(self):
        self.replace(self.folder / "research" / "evidence-register.md", "ch04.mask", "ch04.task")
        self.assertNamed("evidence-register.md", "run make evidence")
        figure = self.folder / "research" / "ch04" / "figures" / "residual.svg"
        figure.write_text(figure.read_text() + "<!-- touched -->")
        self.assertNamed("residual.svg", "is not what ch04.residual draws")

    def test_records_out_of_step_with_the_registry(self):
        from dataclasses import replace

        changed = [replace(e, claim="Another.") if e.id == "ch04.mask" else e for e in EXPERIMENTS]
        self.assertNamed("ch04.mask has another claim", experiments=changed)
        self.assertNamed("ch04.mask is of no experiment", experiments=[e for e in EXPERIMENTS if e.id != "ch04.mask"])
        more = [*EXPERIMENTS, replace(EXPERIMENTS[0], id="ch04.new")]
        self.assertNamed("there is no result ch04.new", experiments=more)

    def test_script(self):
        status, out, err = call(ms.main)
        self.assertEqual((status, err), (0, ""), out)
        with mock.patch.object(ms, "check", return_value=[ms.Problem("a.md", 7, "is wrong")]):
            self.assertEqual(call(ms.main)[:2], (2, "a.md:7: is wrong\n"))


class Register(Copy):
    def test_every_claim_with_its_status(self):
        text = (self.folder / "research" / "evidence-register.md").read_text()
        rows = {
            r.split("|")[1].strip().strip("`"): [c.strip() for c in r.split("|")] for r in text.splitlines() if r.startswith("| `")
        }
        self.assertEqual(set(rows), {e.id for e in EXPERIMENTS} | {c.id for c in CLAIMS})
        for e in EXPERIMENTS:
            self.assertEqual(rows[e.id][4], "established" if e.kind == "exact" else "measured")
        for c in CLAIMS:
            self.assertEqual(rows[c.id][4], c.status)

    def test_another_model_stands_beside(self):
        value = json.loads(self.results.read_text())
        record = next(r for r in value["results"] if r["id"] == "ch04.mask")
        value["results"].append(record | {"model": "somebody/gpt2", "model_sha256": "ab" * 32})
        self.results.write_text(json.dumps(value))
        text = ms.register(ms.load_records(self.folder))
        self.assertIn("`ch04.mask@somebody/gpt2`", text)
        self.assertIn("somebody/gpt2 (abababababab)", text)


class Length(unittest.TestCase):
    def test_each_chapter_is_a_chapter(self):
        limits = (("ch04", 3500, 6000, 7), ("ch05", 2500, 4500, 7), ("ch10", 2500, 4500, 7), ("ch14", 4000, 6000, 5))
        for chapter, least, most, count in limits:
            text = ms.manuscripts(ROOT)[chapter].read_text()
            prose = ms.blanked(text, ms.HEAD, ms.FENCED, ms.COMMENT, r"^\|.*?$")
            self.assertTrue(least <= len(prose.split()) <= most, chapter)
            exercises = text.split("## Exercises")[1].split("## References")[0]
            self.assertEqual((exercises.count("*Hand in:*"), exercises.count("*A right answer shows*")), (count, count), chapter)
            for kind in ("**Established", "**Measured", "**hypothesis"):
                self.assertIn(kind, text, chapter)


class Published(unittest.TestCase):
    def test_what_earlier_texts_printed_is_recomputed(self):
        """Every published number of chapters 5, 10 and 14 is set beside the record that it names; of a slip it differs."""
        records = ms.load_records(ROOT)
        entries = [r for ref, r in records.items() if ref.startswith("published.") and " " in str(r.get("measured"))]
        self.assertEqual(len(entries), 16)
        for entry in entries:
            ref, path = entry["measured"].split(" ")
            measured = ms.look_up(records[ref], path)
            verdict = lambda e, measured=measured: compare_published.verdict(e, measured)[0]  # noqa: E731
            if entry.get("slip"):
                self.assertEqual(verdict(entry), "different", entry)
                self.assertEqual(verdict({**entry, "value": measured}), "same")
                continue
            self.assertIn(verdict(entry), ("same", "within stated bounds"), entry)
            self.assertEqual(verdict({**entry, "value": entry["value"] * 2}), "different")


if __name__ == "__main__":
    unittest.main()
