"""The register of claims: made from the root that is given, an entry for each record and claim, in the order of the text."""

import json
import re
import unittest
from dataclasses import replace

from scripts.register import headline, register, register_path, write_register
from tests.small_book import NEAR, ONE, SEEN, TIME, SmallBook

ENTRY = re.compile(r"^\*\*(?P<status>.+?)\.\*\* (?P<claim>.+)\n\n(?P<rows>(?:- .+\n)+)", re.M)


class Register(SmallBook):
    def entries(self):
        """{id: (status, claim, {name of a row: its text})}, in their order."""
        found = {}
        for match in ENTRY.finditer(register(self.folder)):
            rows = dict(row.removeprefix("- ").split(": ", 1) for row in match["rows"].splitlines())
            found[re.search(r"`([^`]+)`", rows.get("Record") or rows["Claim"])[1]] = match["status"], match["claim"], rows
        return found

    def test_entries(self):
        found = self.entries()
        self.assertEqual(list(found), ["ch98.one", "ch98.near", "ch98.seen", "ch98.time", "ch98.guess"])
        self.assertEqual(
            [status for status, _, _ in found.values()], ["Established", "Measured", "Measured", "Measured", "Hypothesis"]
        )
        self.assertEqual([claim for _, claim, _ in found.values()][::4], ["One is one.", "So it is."])
        values = [rows.get("Value") for _, _, rows in found.values()]
        self.assertEqual(values, ["`n`: 1,234", "at worst 0.5, the bound is 1", None, None, None])
        self.assertEqual(found["ch98.one"][2]["Made in"], "[The claim](../content/books/inference/98-chapter.md#the-claim)")
        self.assertEqual(found["ch98.one"][2]["Does not show"], "Nothing else.")
        self.assertRegex(
            found["ch98.one"][2]["Record"],
            r"^\[`ch98.one`\]\(ch98/results.json\), exact, of none; python .*, torch .*ONLY=ch98.one`$",
        )
        self.assertRegex(found["ch98.seen"][2]["Record"], r"observation, of none; this one, \d{4}-\d\d-\d\d")
        self.assertEqual(found["ch98.guess"][2]["Claim"], "`ch98.guess`; rests on [`ch98.seen`](ch98/results.json)")
        self.assertIn("\n## Chapter 98: A chapter\n", register(self.folder))

    def test_the_place_is_that_of_the_headline(self):
        """Another value of the record may stand earlier; and a claim that no text makes says so."""
        text = self.chapter.read_text()
        self.chapter.write_text(
            text.replace("\n## Key terms", "\n## Key terms\n\nIt is <!--=ch98.time run_ms ms1-->12.3 ms<!--/-->.")
        )
        self.assertIn("#the-claim", self.entries()["ch98.time"][2]["Made in"])
        self.use(ONE, NEAR, SEEN, replace(TIME, headline=("run_ms", "ms1")))
        self.chapter.write_text(self.chapter.read_text().replace("=ch98.time run_ms", "=ch98.time walk_ms", 1))
        self.assertIn("[Key terms]", self.entries()["ch98.time"][2]["Made in"])
        self.chapter.write_text(text.replace("<!--claim ch98.guess-->", ""))
        self.assertEqual(self.entries()["ch98.guess"][2]["Made in"], "no manuscript")

    def test_a_chapter_is_first_asked_for_its_own_claims(self):
        self.write("content/books/inference/97-chapter.md", "# Before\n\n## Early\n\nIt is <!--=ch98.one n int-->1,234<!--/-->.\n")
        self.assertIn("98-chapter.md#the-claim", self.entries()["ch98.one"][2]["Made in"])
        self.replace(self.chapter, "=ch98.one n int-->1,234", "=ch98.near of int-->3")
        self.assertIn("[Early](../content/books/inference/97-chapter.md#early)", self.entries()["ch98.one"][2]["Made in"])

    def test_an_appendix_is_asked_last(self):
        """Its name comes before the chapter's, and its claims behind them."""
        appendix = "# More\n\n## Tables\n\nIt is <!--=ch98.one n int-->1,234<!--/-->.\n"
        self.write("content/books/inference/98-appendix.md", appendix)
        self.assertIn("98-chapter.md#the-claim", self.entries()["ch98.one"][2]["Made in"])
        self.replace(self.chapter, "=ch98.one n int-->1,234", "=ch98.near of int-->3")
        self.assertIn("98-appendix.md#tables", self.entries()["ch98.one"][2]["Made in"])
        self.assertEqual(list(self.entries())[-1], "ch98.one")

    def test_headlines(self):
        records = self.records()
        self.assertEqual(headline(ONE, records["ch98.one"]), "`n`: 1,234")
        self.assertEqual(
            headline(replace(SEEN, headline=("rows[name=a|b].ms", "ms1")), records["ch98.seen"]), "`rows[name=a|b].ms`: 1.5 ms"
        )
        self.assertIsNone(headline(SEEN, records["ch98.seen"]))
        with self.assertRaises(LookupError):
            headline(replace(SEEN, headline=("y", "f1")), records["ch98.seen"])

    def test_records_and_claims_are_those_of_the_root(self):
        self.replace(self.claims, "So it is.", "So it was.")
        self.replace(self.path, "One is one.", "One was one.")
        write_register(self.folder)
        text = register_path(self.folder).read_text()
        for part in ("So it was.", "One was one."):
            self.assertIn(part, text)

    def test_no_claims_and_no_records(self):
        self.claims.unlink()
        self.assertNotIn("ch98.guess", self.entries())
        self.path.unlink()
        self.assertEqual(self.entries(), {})

    def test_another_model_stands_beside(self):
        value = json.loads(self.path.read_text())
        record = next(r for r in value["results"] if r["id"] == "ch98.one")
        value["results"].append(record | {"model": "somebody/gpt2", "model_sha256": "ab" * 32, "values": {"m": 1}})
        self.path.write_text(json.dumps(value))
        found = self.entries()
        self.assertEqual(len(found), 6)
        status, claim, rows = found["ch98.one@somebody/gpt2"]
        self.assertEqual((status, claim, rows["Made in"], rows.get("Value")), ("Established", "One is one.", "no manuscript", None))
        self.assertIn("somebody/gpt2 (sha256 abababababab)", rows["Record"])


if __name__ == "__main__":
    unittest.main()
