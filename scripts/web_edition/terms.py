"""The index of terms: what the chapters' sections "Key terms" define, with links to them and to where the text first has each."""

import re

from scripts.web_edition.pandoc import nodes, plain, read
from scripts.web_edition.search import in_sections
from scripts.web_edition.source import Page

ANCHOR = "key-terms"
HEAD = """# Terms

What the chapters' sections "Key terms" define, in the order of the alphabet. Each definition leads to its chapter, and to the
section in which that chapter first uses the term, where it is set apart there. A term of two chapters has both definitions.
"""


def page(pages):
    """The page of the terms of `pages`."""
    blocks, found = read(HEAD), sorted((term for page in pages for term in of_page(page)), key=lambda term: term.key)
    letter, same = None, {}
    for term in found:
        same.setdefault(term.anchor, []).append(term)
    for anchor, terms in same.items():
        if terms[0].key[0][:1] != letter:
            letter = terms[0].key[0][:1]
            blocks.append({"t": "Header", "c": [2, [f"letter-{letter}", [], []], [_word(letter.upper())]]})
            blocks.append({"t": "DefinitionList", "c": []})
        name = {"t": "Span", "c": [[anchor, [], []], terms[0].name]}
        blocks[-1]["c"].append([[name], [[{"t": "Plain", "c": [*term.meaning, *term.places]}] for term in terms]])
    return Page("terms", "Terms", blocks=blocks)


class Term:
    """A term of a page: its name and meaning as inlines, and links to where it stands, as inlines as well. anchor: the same in all
    chapters that define it."""

    def __init__(self, page, name, meaning):
        self.name, self.meaning, text = name, meaning, plain(name)
        chapter = f"Chapter {page.number}" if page.number else page.title
        self.key = (re.sub(r"[^\w ]", "", text).casefold(), page.name)
        self.anchor = re.sub(r"\W+", "-", re.split(r"[,(]", text)[0].strip().casefold())
        self.places = [{"t": "Space"}, _link(f"{page.file}#{ANCHOR}", chapter)]
        if first := _first(page, text):
            self.places += [_word(","), {"t": "Space"}, _link(f"{page.file}#{first[0]}", f"“{first[1]}”")]
        self.places.append(_word("."))


def of_page(page):
    """The terms that a page's section defines."""
    for anchor, _, blocks in in_sections(page):
        if anchor == ANCHOR:
            for items in (block["c"] for block in blocks if block["t"] == "BulletList"):
                for item in items:
                    for part in _parts(item[0]["c"]):
                        yield from _terms(page, part)


def _parts(inlines):
    """The definitions of an item, each of which starts with a term in bold."""
    parts = [[]]
    for node in inlines:
        if node["t"] == "Strong" and (not parts[-1] or plain(parts[-1]).endswith(".")):
            parts.append([])
        parts[-1].append(node)
    return [part for part in parts if part]


def _terms(page, part):
    colon = next((i for i, node in enumerate(part) if node["t"] == "Str" and node["c"].endswith(":")), None)
    bold = [node["c"] for node in part if node["t"] == "Strong"]
    if not bold:
        return
    if colon is None:
        name, meaning = bold[0], part
    else:
        head = [*part[:colon], _word(part[colon]["c"][:-1])]
        name, meaning = [node for one in head for node in (one["c"] if one["t"] == "Strong" else [one])], part[colon + 2 :]
    yield Term(page, name, _sentence(meaning))
    for other in bold[1:]:
        if colon is None or all(other is not node["c"] for node in part[:colon] if node["t"] == "Strong"):
            yield Term(page, other, _sentence(part))


def _sentence(inlines):
    """Inlines that begin with a capital and end with a full stop, as a sentence does."""
    found = [dict(node) for node in inlines]
    while found and found[-1]["t"] in ("Space", "SoftBreak"):
        found.pop()
    if found and found[0]["t"] == "Str":
        found[0]["c"] = found[0]["c"][:1].upper() + found[0]["c"][1:]
    return found if plain(found).endswith(".") else [*found, _word(".")]


def _first(page, name):
    """(anchor, heading) of the first section that sets the term apart, in italics or bold, before its definition."""
    wanted = {part.strip().casefold() for part in re.sub(r"\(.*?\)", "", name).split(",")}
    for anchor, heading, blocks in in_sections(page):
        if anchor == ANCHOR:
            return None
        if anchor and any(node["t"] in ("Emph", "Strong") and plain(node).casefold() in wanted for node in nodes(blocks)):
            return anchor, heading
    return None


def _word(text):
    return {"t": "Str", "c": text}


def _link(target, text):
    return {"t": "Link", "c": [["", [], []], [_word(text)], [target, ""]]}
