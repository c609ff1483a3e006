"""The records behind the numbers: a page of all of them, and in each page those that it shows."""

import json

from scripts.web_edition.pandoc import raw_block, read
from scripts.web_edition.source import Page

FIELDS = ("claim", "kind", "command", "model", "seed", "dtype", "threads", "machine", "date", "limits")


def facts(record):
    """{field: value} of what a reader is told of a record, or of an entry that the source texts printed."""
    return {name: record[name] for name in FIELDS if record.get(name) not in (None, "")}


def script(uses, records):
    """The JSON of a page's records, in a script tag."""
    found = {ref: facts(records[ref]) for ref in sorted(uses)}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f'<script type="application/json" id="records">{text}</script>'


def page(pages, records):
    """The page of all records."""
    blocks = read("# The evidence\n")
    for ref in records:
        blocks.append(raw_block(f'<section id="{ref}"><h2>{ref}</h2></section>'))
    return Page("evidence", "The evidence", blocks=blocks)
