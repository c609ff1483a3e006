"""The index that the search reads, `assets/search.js`, loaded on first use: all sections, and which of them a word is in.

    book_search = {
      sections: [[page, anchor, pageTitle, heading], ...],   // "04-chapter", "attention", "The transformer ...", "Attention"
      words: {"attention": "3,1,4", ...},                    // by word, in the order of the alphabet
      common: ["a", "an", ...],                              // words that are in no section's list
    };

A word's sections are numbers in base 36, each the difference to the one before (the first to 0): "3,1,4" is sections 3, 4
and 8. An asterisk behind a number says that the word stands in that section's heading: "3,1*,4". Words are in small letters,
of two characters or more, a number of four digits or more with its commas taken out (124439808); letters with accents stay as
they are. The keys are sorted, so that all words that begin with what has been typed stand together.
"""

import json
import re

from scripts.web_edition.pandoc import plain

WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*", re.U)
SMALL = re.compile(r"\d{1,3}|\d+\.\d{1,2}")  # numbers that stand in too many places to be looked for
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
    sections, places = [], {}
    for page in pages:
        for anchor, heading, blocks in in_sections(page):
            number = len(sections)
            sections.append([page.name, anchor, page.label, heading])
            in_heading = words(heading)
            for word in in_heading | words(plain([block for block in blocks if not printed(block)])):
                places.setdefault(word, []).append((number, word in in_heading))
    coded = {word: _coded(places[word]) for word in sorted(places)}
    found = {"sections": sections, "words": coded, "common": sorted(COMMON)}
    found = {"sections": sections, "words": coded, "common": sorted(COMMON)}
    written = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return f'"use strict";\nvar book_search = {written};\n'


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
