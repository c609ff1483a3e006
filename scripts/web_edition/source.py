"""The pages of the edition and what they hold: their order, their titles, and their Markdown with the markers turned into links."""

import html
import re
from dataclasses import dataclass, field
from pathlib import Path

from examples.lab.script import BadInput
from scripts.grading.exercises import SECTION
from scripts.listings import CODE
from scripts.markers import CLAIM, CONST, MARKER, pages
from scripts.page import HEAD, line_at
from scripts.transcripts import RUN

BESIDE = ("forward-pass", "try-it")  # the pages beside the chapters, in the order to read them in
LAST = ("answers",)  # of the book's files, behind those
HALF = re.compile(r"<!--(?:=|const\b|code |run |exercises |/)[^>]*-->")  # of a marker, where no pattern found both
EVIDENCE = "research/evidence-register.md"  # a link to it leads to the page of the evidence


@dataclass
class Page:
    """A page of the edition. path: its manuscript, None where there is none. uses: the references of the records it shows."""

    name: str
    title: str
    path: Path | None = None
    number: str = ""
    blocks: list = field(default_factory=list)
    uses: list = field(default_factory=list)
    figures: list = field(default_factory=list)
    images: set = field(default_factory=set)
    sections: list = field(default_factory=list)  # (level, anchor, heading as markup, heading as text)

    @property
    def file(self):
        return f"{self.name}.html"

    def problem(self, near, what):
        """A BadInput that names the line of the manuscript in which `near` stands."""
        text = self.path.read_text(encoding="utf-8")
        return BadInput(f"{self.path}:{line_at(text, max(0, text.find(near)))}: {what}")

    @property
    def label(self):
        """What the list of all pages calls it."""
        if self.name.endswith("-appendix"):
            return f"{self.number}, appendix. {self.title}"
        return f"{self.number}. {self.title}" if self.number else self.title


def manuscripts(root):
    """The pages that have a manuscript, in the order to read them in; their blocks are still empty."""
    root = Path(root)
    found = {page.name: page for path in pages(root) if path.name != "README.md" for page in [_page(path)]}
    chapters = sorted((n for n in found if re.match(r"\d\d-", n)), key=lambda n: (n[:2], n.endswith("-appendix")))
    names = ["index", *chapters, *BESIDE, *LAST]
    others = sorted(set(found) - set(names))
    return [found[name] for name in [*names, *others] if name in found]


def _page(path):
    head = HEAD.match(path.read_text(encoding="utf-8"))
    fields = dict(re.findall(r"^(\w+): *(.+?) *$", head[0], re.M)) if head else {}
    if "title" not in fields:
        raise BadInput(f"{path} has no title; give it front matter with one")
    return Page(path.stem, fields["title"].strip('"'), path, fields.get("number", ""))


def evidence_link(ref, path, shown):
    """A number, or the words below a table, as a link to its record; `data-at` says where it stands there."""
    return f'<a href="evidence.html#{html.escape(ref)}" data-at="{html.escape(path)}">{shown}</a>'


def markdown(page, records, linked=True):
    """(text, references): the page's Markdown without front matter, each marked value a link to its record (plain where not
    `linked`), and the records that it uses. Raises BadInput for a marker of a record that is not there."""
    text = page.path.read_text(encoding="utf-8")
    uses = {}

    def value(match):
        ref, body = match["ref"], match["body"]
        if ref not in records:
            raise page.problem(match[0], f"there is no record {ref}; make check lists such markers")
        uses[ref] = None
        if not linked:
            return body
        if match["form"].split()[0] == "table":
            return f'{body}\n\n<p class="source">{evidence_link(ref, match["path"], "The record of this table")}</p>\n\n'
        return evidence_link(ref, match["path"], body)

    new = MARKER.sub(value, text)
    for pattern in (CONST, CODE, SECTION, RUN):
        new = pattern.sub(_body, new)
    new = CLAIM.sub("", HEAD.sub("", new))
    half = HALF.search(new)
    if half:
        raise page.problem(half[0], f"the marker {half[0]} has no other half; make check says what belongs there")
    return new, list(uses)


def _body(match):
    if match.re is CONST:
        return match[0].removeprefix("<!--const-->").removesuffix("<!--/-->")
    return match["body"]
