"""The book as it stands: manuscripts, records, claims and register hold together, transcripts are what commands print, and what
earlier texts printed is recomputed."""

import importlib
import re
import unittest
from unittest import mock

from examples.ch04 import causal_mask, tour
from scripts import check, compare_published
from scripts.commands import script
from scripts.experiments import claims, experiments
from scripts.grading.exercises import SECTION
from scripts.markers import load_records, look_up, manuscripts, pages
from scripts.register import STATUS, headline, register
from scripts.transcripts import BODY, RUN, parsed, transcript
from tests.support import ROOT, installed, slow


def transcripts():
    """[(page, match of its marker)] of every transcript in README and the book."""
    return [(path, match) for path in pages(ROOT) for match in RUN.finditer(path.read_text(encoding="utf-8"))]


class Whole(unittest.TestCase):
    @slow
    def test_nothing_is_wrong(self):
        self.assertEqual([str(p) for p in check.check(ROOT)], [])

    def test_every_experiment_and_claim_is_whole(self):
        ids = [e.id for e in experiments()] + [c.id for c in claims()]
        self.assertEqual(len(ids), len(set(ids)))
        for e in experiments():
            self.assertTrue(e.claim.endswith(".") and e.limits.endswith("."), e.id)
            self.assertRegex(e.id, r"^ch\d\d\.[a-z0-9-]+$")
        for c in claims():
            self.assertIn(c.status, ("hypothesis", "not shown here"))
            self.assertLessEqual(set(c.evidence), {e.id for e in experiments()})

    def test_the_register_has_every_claim_with_its_status_and_its_place(self):
        entry = r"^\*\*(.+?)\.\*\* .+\n\n(?:- Value: .+\n)?- Made in: (.+)\n- (?:Record: \[|Claim: )`([^`]+)`"
        entries = re.findall(entry, register(ROOT), re.M)
        status = {id.partition("@")[0]: found.lower() for found, _, id in entries}  # of another model too
        self.assertEqual(status, {e.id: STATUS[e.kind] for e in experiments()} | {c.id: c.status for c in claims()})
        for _, place, id in entries:
            self.assertRegex(place, rf"\({re.escape('../content/books/inference/')}{id[2:4]}-\w+\.md#[\w-]+\)$", id)

    def test_a_claim_is_a_sentence_that_can_be_false(self):
        for c in (*experiments(), *claims()):
            self.assertNotRegex(c.claim, r"^(How|What|Which|Where|Whether|That|Any|Anything)\b", c.id)

    def test_most_experiments_have_a_value(self):
        records = load_records(ROOT)
        silent = {e.id for e in experiments() if headline(e, records[e.id]) is None}
        self.assertEqual(silent, {"ch04.mixing", "ch05.example", "ch10.invariants"})

    def test_each_chapter_is_a_chapter(self):
        limits = (
            ("ch01", 2500, 4200, 5),
            ("ch02", 2500, 4500, 7),
            ("ch03", 2500, 4500, 6),
            ("ch04", 3500, 7200, 7),
            ("ch05", 2500, 5200, 7),
            ("ch10", 2500, 5400, 7),
            ("ch14", 4000, 7200, 5),
        )
        for chapter, least, most, count in limits:
            text = manuscripts(ROOT)[chapter].read_text()
            told = SECTION.sub("", re.sub(r"(?m)^\|.*$", "", text))  # the starters' text is theirs
            prose = " ".join(found for found, _ in check.Page(told).prose)
            self.assertTrue(least <= len(prose.split()) <= most, (chapter, len(prose.split())))
            exercises = " ".join(text.split("## Exercises")[1].split("## References")[0].split())
            self.assertEqual((exercises.count("*Hand in:*"), exercises.count("*A right answer shows*")), (count, count), chapter)
            for kind in ("**Established", "**Measured", "**hypothesis"):
                self.assertIn(kind, text, chapter)


class Transcripts(unittest.TestCase):
    def test_they_are_found(self):
        self.assertLessEqual({"README.md", "04-chapter.md"}, {path.name for path, _ in transcripts()})

    @slow
    def test_each_command_prints_what_stands_there(self):
        for path, match in transcripts():
            name, arguments = script(parsed(match["spec"])[0])
            model = importlib.import_module(name).options().get_default("model")
            if "smollm2" in (model, *arguments) and not installed():
                continue
            with self.subTest(match["spec"], page=path.name):
                self.assertEqual(match["body"], transcript(ROOT, match["spec"], runs=1))

    def test_a_command_that_prints_something_else_is_seen(self):
        match = next(m for _, m in transcripts() if parsed(m["spec"])[0] == "python examples/ch04/causal_mask.py")
        whole = causal_mask.report
        for change, same in ((lambda text: text, True), (lambda text: text.replace("mask on", "mask  on"), False)):
            with mock.patch.object(causal_mask, "report", side_effect=lambda values, change=change: change(whole(values))):
                self.assertEqual(match["body"] == transcript(ROOT, match["spec"], runs=1), same)

    def test_a_page_that_shows_something_else_is_seen(self):
        """README's transcript, one character changed, beside what its script prints."""
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        body = RUN.search(text)["body"]
        output = BODY.fullmatch(body)["output"]
        with mock.patch.object(tour, "main", side_effect=lambda argv: print(output) or 0):
            for page, same in ((text, True), (text.replace("50.42%", "50.43%"), False)):
                match = RUN.search(page)
                self.assertEqual(match["body"] == transcript(ROOT, match["spec"], runs=1), same)


class Published(unittest.TestCase):
    def test_what_earlier_texts_printed_is_recomputed(self):
        """Every published number of chapters 1, 3, 5, 10 and 14, times aside, has the record that it names; slips differ."""
        records = load_records(ROOT)
        entries = [r for ref, r in records.items() if ref.startswith("published.") and " " in str(r.get("measured"))]
        self.assertEqual(len(entries), 20)
        for entry in entries:
            ref, path = entry["measured"].split(" ")
            measured = look_up(records[ref], path)
            verdict = lambda e, measured=measured: compare_published.verdict(e, measured)[0]  # noqa: E731
            if entry.get("slip"):
                self.assertEqual(verdict(entry), "different", entry)
                self.assertEqual(verdict({**entry, "value": measured}), "same")
                continue
            self.assertIn(verdict(entry), ("same", "within stated bounds"), entry)
            self.assertEqual(verdict({**entry, "value": entry["value"] * 2}), "different")


if __name__ == "__main__":
    unittest.main()
