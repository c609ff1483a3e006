"""The register of all claims of the book, `research/evidence-register.md`: status, value, place and limits of each."""

import os
import re
from pathlib import Path

from examples.lab.script import write_whole
from scripts.experiments import claims, experiments
from scripts.markers import CLAIM, MARKER, book, look_up, manuscripts, render
from scripts.page import HEAD, Page, line_at
from scripts.records import DATED, read_all, results_path

STATUS = {"exact": "established", "tolerance": "measured", "observation": "measured", "timing": "measured"}
HEAD_TEXT = """# The evidence register

Every claim of the book, in the order in which each chapter makes them, with its value, the passage that makes it and its record.
`make refresh` makes this page from the experiments, the claims, the records and the manuscripts; do not edit it by hand.

- **Established**: exact, true of the program by its structure.
- **Measured**: within a stated bound, or observed or timed on one machine.
- **Hypothesis**: fits the measurements, and is not tested by them.
- **Not shown here**: may be so; nothing in the chapter speaks for it.
"""


def register_path(root):
    """Where the register is kept."""
    return Path(root) / "research" / "evidence-register.md"


def register(root):
    """The register of the records and claims under `root`, in Markdown."""
    root = Path(root)
    records, places, texts = read_all(root), passages(root), {}
    for e in experiments():
        for ref in (r for r in records if r == e.id or r.startswith(f"{e.id}@")):
            place = places.get((ref, e.headline and e.headline[0])) or places.get(ref)
            text = _of_record(root, e, ref, records[ref], place)
            texts.setdefault(e.chapter, []).append((place.order if place else LAST, ref, text))
    for c in claims(root):
        place = places.get(c.id)
        texts.setdefault(c.chapter, []).append((place.order if place else LAST, c.id, _of_claim(root, c, place)))
    parts = [HEAD_TEXT]
    for chapter, found in sorted(texts.items()):
        parts.append(f"## {_title(root, chapter)}\n")
        parts += [text for _, _, text in sorted(found)]
    return "\n".join(parts)


def write_register(root):
    """Write the register of `root`, whole."""
    write_whole(register_path(root), register(root))


def headline(experiment, record):
    """What a record has to say in one value: "`path`: value"; of a tolerance without a headline its worst and its bound; None.

    Raises LookupError or ValueError where the headline names nothing.
    """
    if experiment.headline:
        path, form = experiment.headline
        return f"`{path}`: {render(look_up(record, path), form)}"
    if record["kind"] == "tolerance":
        return f"at worst {record['values']['worst']:g}, the bound is {record['values']['bound']:g}"
    return None


# --------------------------------------------------------------------------------------------------------- where a claim is made

LAST = (2, "", 0)  # behind every place


class Passage:
    """Where the text makes a claim: the heading and the file in which its marker first stands."""

    def __init__(self, path, at, heading):
        self.path, self.heading, self.order = path, heading, (_is_appendix(path), path.name, at)

    def link(self, root):
        text, anchor = self.heading or (self.path.name, "")
        target = Path(os.path.relpath(self.path, register_path(root).parent)).as_posix()
        return f"[{text}]({target}{'#' if anchor else ''}{anchor})"


def _is_appendix(path):
    return path.name.endswith("-appendix.md")


def passages(root):
    """{reference of a record or id of a claim: Passage}, by the first marker of its own chapter's files, else of the book's; and
    {(reference, path): Passage} by the first of one value, so that a headline leads to where it stands. Appendices come last."""
    found = {}
    for path in sorted(book(root), key=_is_appendix):
        text = path.read_text(encoding="utf-8")
        page, chapter = Page(text), f"ch{path.name[:2]}"
        for match in sorted([*MARKER.finditer(text), *CLAIM.finditer(text)], key=lambda match: match.start()):
            ref, line = match[1], line_at(text, match.start())
            own = ref.startswith(f"{chapter}.")
            for key in (ref, (ref, match.groupdict().get("path"))):
                if key not in found or (own and not found[key].path.name.startswith(path.name[:2])):
                    found[key] = Passage(path, match.start(), page.heading(line))
    return found


def _title(root, chapter):
    """A chapter's number and title, the latter from its manuscript's front matter."""
    path = manuscripts(root).get(chapter)
    head = HEAD.match(path.read_text(encoding="utf-8")) if path else None
    title = re.search(r"^title: *(.+)$", head[0], re.M) if head else None
    return f"Chapter {int(chapter[2:])}" + (f": {title[1]}" if title else "")


# ---------------------------------------------------------------------------------------------------------------- a claim's text


def _of_record(root, experiment, ref, record, place):
    try:
        value = headline(experiment, record)
    except (LookupError, ValueError):  # of another model, say, which has no such row; of its own, check tells
        value = None
    versions = record.get("versions") or {k: v for k, v in record["machine"].items() if k not in ("processor", "cores")}
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    if record["kind"] in DATED:
        made = f"{record['machine']['processor']}, {record['date']}, {made}"
    model = record["model"] + (f" (sha256 {record['model_sha256'][:12]})" if record["model_sha256"] else "")
    file = Path(os.path.relpath(results_path(root, experiment.chapter), register_path(root).parent)).as_posix()
    rows = [
        *([f"Value: {value}"] if value else []),
        f"Made in: {place.link(root) if place else 'no manuscript'}",
        f"Record: [`{ref}`]({file}), {record['kind']}, of {model}; {made}; `{record['command']}`",
        f"Does not show: {record['limits']}",
    ]
    return _entry(record["claim"], STATUS[experiment.kind], rows)


def _of_claim(root, claim, place):
    links = []
    for ref in claim.evidence:
        file = Path(os.path.relpath(results_path(root, ref.split(".")[0]), register_path(root).parent)).as_posix()
        links.append(f"[`{ref}`]({file})")
    rows = [
        f"Made in: {place.link(root) if place else 'no manuscript'}",
        f"Claim: `{claim.id}`; rests on {', '.join(links) or 'nothing recorded here'}",
        f"Limits: {claim.limits}",
    ]
    return _entry(claim.claim, claim.status, rows)


def _entry(claim, status, rows):
    return "\n".join([f"**{status[0].upper()}{status[1:]}.** {claim}\n", *(f"- {row}" for row in rows), ""])
