"""The records behind the numbers: a page of all of them, and in each page those that it shows."""

import html
import json
import re
from collections import Counter
from pathlib import Path

from examples.lab.script import counted, read_json
from scripts.experiments import claims, experiments
from scripts.register import headline
from scripts.web_edition.pandoc import nodes, raw_block, read
from scripts.web_edition.search import in_sections
from scripts.web_edition.source import Page

LINK = re.compile(r'href="evidence\.html#([^"]+)" data-at=')
HEAD = """# The evidence

Every number of the book that was measured or computed leads here, to its record. A record says what was claimed, by which kind of
evidence, what made it, and what it does not show. Run its command in the repository, and it is made again.

- **Exact**, *established* in the text: true of the program by its structure; the same on any machine.
- **Tolerance**, *measured* in the text, as the next two are: within a stated bound; the tests measure it again.
- **Observation**: seen on the inputs and the model that the record names.
- **Timing**: a time on one machine; another machine gives another.
- **Published**: printed in one of the texts that the book grew out of, and quoted from it.
- **Hypothesis** and **not shown here**: claims that no record settles.
"""


class Evidence:
    """What a reader is told of the records, the published entries and the claims under `root`."""

    def __init__(self, root, records):
        self.root, self.records, self.printed = Path(root), records, {}
        for path in sorted(self.root.glob("research/ch[0-9][0-9]/published.json")):
            values = read_json(path)
            self.printed |= {f"published.{e['id']}": (path.parent.name, values["model"], e) for e in values["entries"]}
        counts = Counter(_versions(record) for ref, record in records.items() if ref not in self.printed)
        self.versions = max(counts, key=counts.get, default="")  # said once, and of a record only where it has others
        self.experiments = {e.id: e for e in experiments()}

    def facts(self, ref):
        """{field: text or number} that a page keeps of a record: those that the number's pop-up shows."""
        if ref in self.printed:
            _, model, e = self.printed[ref]
            claim = f"{e['what'][0].upper()}{e['what'][1:]}: {self._value(e)}."
            limits = "Quoted from the source text, and not measured by this repository's records."
            return {"claim": claim, "kind": f"published: printed in {e['source']}", "model": model, "limits": limits}
        record = self.records[ref]
        found = {name: record[name] for name in ("claim", "kind", "command", "model")}
        if found["command"] == f"make evidence ONLY={ref}":  # the pop-up makes this one from the record's id
            del found["command"]
        if machine := record.get("machine"):
            found["machine"] = f"{machine['processor']}, {machine['cores']} cores"
            found |= {"threads": record["threads"], "date": record["date"]}
        return found | {"limits": record["limits"]}

    def script(self, uses):
        """The JSON of a page's records, in a script tag."""
        text = json.dumps({ref: self.facts(ref) for ref in sorted(uses)}, ensure_ascii=False, separators=(",", ":"))
        return f'<script type="application/json" id="records">{text.replace("</", "<" + chr(92) + "/")}</script>'

    def page(self, pages):
        """The page of all records and claims, by chapter."""
        places, blocks = passages(pages), read(HEAD + f"\nWhere a record names no versions, it was made with {self.versions}.\n")
        chapters = {f"ch{page.number.zfill(2)}": page for page in reversed(pages) if page.number}
        entries = {}
        for ref in sorted(self.records):
            if ref in self.printed:
                chapter, entry = self.printed[ref][0], self._of_printed(ref, places)
                entries.setdefault((chapter, 2), []).append(entry)
            else:
                entries.setdefault((ref.split(".")[0], 0), []).append(self._of_record(ref, places))
        for claim in claims(self.root):
            entries.setdefault((claim.chapter, 1), []).append(self._of_claim(claim))
        last = None
        for (chapter, _), found in sorted(entries.items()):
            if chapter != last:
                title = chapters[chapter].label if chapter in chapters else chapter
                inside = [{"t": "Str", "c": title}]
                blocks.append({"t": "Header", "c": [2, [f"records-of-{chapter}", [], []], inside]})
                last = chapter
            blocks += [raw_block(entry) for entry in found]
        return Page("evidence", "The evidence", blocks=blocks)

    def _of_record(self, ref, places):
        record = self.records[ref]
        sha = f" (sha256 {record['model_sha256'][:12]})" if record["model_sha256"] else ""
        facts, versions = self.facts(ref), _versions(record)
        try:
            value = headline(self.experiments[record["id"]], record)
        except (KeyError, LookupError, ValueError):  # of another model, say, which has no such row
            value = None
        on = [record["model"] + sha, f"seed {record['seed']}", record["dtype"], counted(record["threads"], "thread")]
        on += [facts.get("machine"), record.get("date"), None if versions == self.versions else versions]
        on = html.escape(", ".join(part for part in on if part), False)
        rows = [
            ("Kind", record["kind"]),
            ("Value", value and value.replace("`", "")),
            ("Made by", f"<code>{html.escape(record['command'])}</code> on {on}"),
            ("Does not show", html.escape(record["limits"], False)),
            ("Used in", "; ".join(places.get(ref, ()))),
        ]
        return _entry(ref, record["claim"], rows)

    def _of_printed(self, ref, places):
        facts = self.facts(ref)
        rows = [("Kind", html.escape(facts["kind"])), ("Model", html.escape(facts["model"]))]
        rows.append(("Used in", "; ".join(places.get(ref, ()))))
        return _entry(ref, facts["claim"], rows)

    def _of_claim(self, claim):
        rests = ", ".join(f'<a href="#{html.escape(ref)}">{html.escape(ref)}</a>' for ref in claim.evidence)
        rows = [("Kind", claim.status), ("Rests on", rests), ("Limits", html.escape(claim.limits.replace("`", ""), False))]
        return _entry(claim.id, claim.claim, rows)

    @staticmethod
    def _value(entry):
        value = entry["value"]
        shown = f"{value:,}" if isinstance(value, int) and value > 9999 else f"{value}"
        unit = entry.get("unit") or ""
        named = unit and unit.rstrip("s") in entry["what"].lower()  # "Largest logit of prompt 1: 130", and no "130 logits"
        return shown if named else f"{shown} {unit}".strip()


def passages(pages):
    """{reference of a record: [links to the sections that show it, one a page]}."""
    found = {}
    for page in pages:
        seen, short = set(), page.label.partition(". ")[0] if page.number else page.title
        for anchor, heading, blocks in in_sections(page):
            marks = (node["c"][1] for node in nodes(blocks) if node["t"] in ("RawInline", "RawBlock"))
            for ref in {html.unescape(ref): None for mark in marks for ref in LINK.findall(mark)}:
                if ref not in seen:
                    seen.add(ref)
                    name = html.escape(f"{short}, {heading}" if anchor else short)
                    found.setdefault(ref, []).append(f'<a href="{page.file}{"#" if anchor else ""}{anchor}">{name}</a>')
    return found


def _versions(record):
    made = record.get("versions") or {k: v for k, v in record["machine"].items() if k not in ("processor", "cores")}
    return ", ".join(f"{name} {version}" for name, version in made.items())


def _entry(id, claim, rows):
    shown = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)
    id = html.escape(id)
    return f'<section id="{id}"><h3>{id}</h3><p>{html.escape(claim, False)}</p><dl>{shown}</dl></section>'
