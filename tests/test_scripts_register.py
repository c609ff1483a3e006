"""The register of claims: made from the root that is given, a row for each record and claim."""

import json
import unittest

from scripts.register import register, register_path, write_register
from tests.small_book import SmallBook


class Register(SmallBook):
    def rows(self):
        rows = [
            [cell.strip() for cell in row.strip("| ").split(" | ")] for row in register(self.folder).splitlines() if "`ch98" in row
        ]
        return {row[0].strip("`"): row[1:] for row in rows}

    def test_rows(self):
        rows = self.rows()
        self.assertEqual(list(rows), ["ch98.guess", "ch98.near", "ch98.one", "ch98.seen", "ch98.time"])
        self.assertEqual([row[2] for row in rows.values()], ["hypothesis", "measured", "established", "measured", "measured"])
        self.assertEqual(rows["ch98.guess"], ["ch98", "So it is.", "hypothesis", "`ch98.seen`", "Not tested."])
        self.assertEqual(rows["ch98.one"][3], "exact; `make evidence ONLY=ch98.one`; none")

    def test_records_and_claims_are_those_of_the_root(self):
        self.replace(self.claims, "So it is.", "So it was | is.")
        self.replace(self.path, "One is one.", "One was one.")
        write_register(self.folder)
        text = register_path(self.folder).read_text()
        for part in ("So it was \\| is.", "One was one."):
            self.assertIn(part, text)

    def test_no_claims_and_no_records(self):
        self.claims.unlink()
        self.assertNotIn("ch98.guess", self.rows())
        self.path.unlink()
        self.assertEqual(self.rows(), {})

    def test_another_model_stands_beside(self):
        value = json.loads(self.path.read_text())
        record = next(r for r in value["results"] if r["id"] == "ch98.one")
        value["results"].append(record | {"model": "somebody/gpt2", "model_sha256": "ab" * 32})
        self.path.write_text(json.dumps(value))
        rows = self.rows()
        self.assertEqual(len(rows), 6)
        self.assertIn("somebody/gpt2 (abababababab)", rows["ch98.one@somebody/gpt2"][3])


if __name__ == "__main__":
    unittest.main()
