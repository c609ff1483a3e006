"""The index that the search reads, `assets/search.js`, loaded on first use: all sections, and which of them a word is in.

    book_search = {
      pages: [["04-chapter", "4. The transformer ..."], ...], // file and title
      sections: [[page, anchor, heading], ...],              // 3, "attention", "Attention"; page is a place in the list of pages
      words: {"attention": "3,1,4", ...},                    // by word, in the order of the alphabet
      common: ["a", "an", ...],                              // words that are in no section's list
    };

A word's sections are numbers in base 36, each the difference to the one before (the first to 0): "3,1,4" is sections 3, 4
and 8. An asterisk behind a number says that the word stands in that section's heading: "3,1*,4". Words are in small letters,
of two characters or more, a number of four digits or more with its commas taken out (124439808); letters with accents stay as
they are. The keys are sorted, so that all words that begin with what has been typed stand together.

The sections stand in the order in which they are shown where words and headings weigh the same: the terms, each with its
definition behind its heading; the chapters' key terms; the pages beside the chapters; the chapters; what comes after them; and
last the sections that close a chapter.
"""

import itertools
import json
import re

from scripts.web_edition.pandoc import nodes, plain
from scripts.web_edition.source import BESIDE

WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*", re.U)
SMALL = re.compile(r"\d{1,3}|\d+\.\d{1,2}")  # numbers that stand in too many places to be looked for
CLOSING = {"what-the-numbers-do-not-show", "exercises", "review-questions", "references", "evidence-in-this-chapter"}
COMMON = set(
    "a an and are as at be been but by can do does for from had has have if in into is it its no not of on one or so than that "
    "the their them then there these they this to was were what when which with would".split()
)


def printed(block):
    """Whether a block is what a command prints, whose numbers and table heads nobody looks for."""
    return block["t"] == "CodeBlock" and block["c"][0][1][:1] == ["text"]


def words(text):
    """The words of a text, as the index has them."""
    found = (re.sub(r"(?<=\d),(?=\d)", "", word.lower()) for word in WORD.findall(text))
    return {word for word in found if len(word) > 1 and word not in COMMON and not SMALL.fullmatch(word)}


def index(pages):
    """The text of assets/search.js."""
    found = [(page, *section) for page in pages for section in (defined(page) if page.name == "terms" else in_sections(page))]
    numbers, sections, places = {page.name: i for i, page in enumerate(pages)}, [], {}
    for number, (page, anchor, heading, blocks) in enumerate(sorted(found, key=lambda one: _rank(*one[:2]))):
        text = plain([block for block in blocks if not printed(block)])
        sections.append([numbers[page.name], anchor, heading, *(_shown(blocks[0]) if page.name == "terms" else [])])
        in_heading = words(heading)
        for word in in_heading | words(text):
            places.setdefault(word, []).append((number, word in in_heading))
    coded = {word: _coded(places[word]) for word in sorted(places)}
    named = [[page.name, page.label] for page in pages]
    found = {"pages": named, "sections": sections, "words": coded, "common": sorted(COMMON)}
    written = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return f'"use strict";\nvar book_search = {written};\n'


def _rank(page, anchor):
    """A section's place among those that hold the same words equally: small is first."""
    if anchor in CLOSING:
        return 5
    if anchor == "key-terms" or page.name == "terms":
        return 0 if page.name == "terms" else 1
    return 2 if page.name in BESIDE else 3 if re.fullmatch(r"\d\d-chapter", page.name) else 4


def defined(page):
    """(anchor, term, its definitions as blocks, without the links behind them) of each term of the page of terms."""
    for items in (block["c"] for block in page.blocks if block["t"] == "DefinitionList"):
        for (name,), meanings in items:  # the name is one span, which has the anchor
            blocks = [block for meaning in meanings for block in meaning]
            cut = [list(itertools.takewhile(lambda node: node["t"] != "Link", block["c"])) for block in blocks]
            term = plain([node for node in name["c"][1] if node["t"] != "Math"]).rstrip(",")
            yield name["c"][0][0], term, [{"t": "Plain", "c": inlines} for inlines in cut]


def _shown(definition):
    """[a definition as text], [] for one with a formula that is more than a name."""
    formulas = (plain(node) for node in nodes(definition) if node["t"] == "Math")
    return [plain(definition)] if all(formula.isalnum() for formula in formulas) else []


def in_sections(page):
    """(anchor, heading, blocks) of each section of a page, without those below it."""
    anchor, heading, blocks = "", page.title, []
    for block in page.blocks:
        if block["t"] == "Header":
            if blocks or anchor:
                yield anchor, heading, blocks
            anchor, heading, blocks = block["c"][1][0], plain(block["c"][2]), []
        else:
            blocks.append(block)
    if blocks or anchor:
        yield anchor, heading, blocks


def _coded(found):
    parts, last = [], 0
    for number, in_heading in found:
        parts.append(_base36(number - last) + ("*" if in_heading else ""))
        last = number
    return ",".join(parts)


def _base36(number):
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return digits[number] if number < 36 else _base36(number // 36) + digits[number % 36]
