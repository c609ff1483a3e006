"""The book as EPUB 3: the same pages, without what needs a script or a place to lead to."""

import os
import re
import tempfile
import uuid
from pathlib import Path

from examples.lab.script import BadInput, write_whole
from scripts.web_edition import images, terms
from scripts.web_edition.code import listing
from scripts.web_edition.pandoc import changed, plain, raw, raw_block, words, write
from scripts.web_edition.site import Edition

LEFT_OUT = ("try-it",)  # a page that is nothing without its scripts
WRITTEN = "1767225600"  # the time that the file says it was made at, in seconds, so that two builds give the same bytes
PAGE = re.compile(r"(?P<name>[\w-]+)\.html(?:#(?P<anchor>.*))?")
ANCHORS = re.compile(r"</?a\b[^>]*>")
ABOUT = {
    "lang": "en-GB",
    "identifier": uuid.uuid5(uuid.NAMESPACE_DNS, "inference-lab").urn,
    "date": "2026",
    "rights": "The code is under the MIT licence.",
}


def build(root, path, progress=lambda: None):
    """Write the book of `root` as EPUB to `path`, whole or not at all."""
    path = Path(path)
    if path.suffix != ".epub" or path.is_dir():
        raise BadInput(f"{path} does not end in .epub; name the file so")
    path.parent.mkdir(parents=True, exist_ok=True)
    edition = Edition(Path(root), linked=False)
    pages = [page for page in edition.pages if page.name not in LEFT_OUT]
    for page in pages:
        edition.read(page)
        progress()
    edition.links.check()
    pages.append(terms.page(pages))
    with tempfile.TemporaryDirectory() as work:
        sizes = images.draw(root, pages, work)
        blocks = [block for page in pages for block in _chapter(page, pages, edition, sizes)]
        made = Path(work) / "book.epub"
        style = edition.web / "epub.css"
        options = ("--mathml", "--split-level=1", "--toc", "--toc-depth=2", "--syntax-highlighting=none", f"--css={style}")
        meta = {name: words(value) for name, value in {"title": pages[0].title, **ABOUT}.items()}
        env = {**os.environ, "SOURCE_DATE_EPOCH": WRITTEN}
        write(blocks, meta, "epub3", *options, f"--resource-path={work}", f"--output={made}", env=env)
        write_whole(path, made.read_bytes())


def _chapter(page, pages, edition, sizes):
    """The blocks of a page whose ids, and the links to them, hold in one book of all pages."""
    own = {page.name for page in pages}
    anchors = {one.name: {node["c"][1][0] for node in one.blocks if node["t"] == "Header"} for one in pages}

    def target(name, anchor):
        known = anchor and anchor in anchors[name]
        return f"#{name}--{anchor}" if known else f"#{name}"

    def change(node):
        kind = node["t"]
        if kind == "Header":
            level, (id, classes, more), inside = node["c"]
            return {"t": kind, "c": [level, [page.name if level == 1 else f"{page.name}--{id}", classes, more], inside]}
        if kind == "Link":
            attributes, inside, (address, title) = node["c"]
            if address.startswith("#"):
                return {"t": kind, "c": [attributes, inside, [target(page.name, address[1:]), title]]}
            if match := PAGE.fullmatch(address):
                if match["name"] not in own:
                    return inside
                return {"t": kind, "c": [attributes, inside, [target(match["name"], match["anchor"]), title]]}
        if kind == "Image":
            return edition.image(page, node, sizes)
        if kind == "CodeBlock":
            (_, classes, _), code = node["c"]
            return raw_block(listing(classes[0] if classes else "", code).replace(' tabindex="0"', ""))
        if kind == "RawInline":
            return raw(ANCHORS.sub("", node["c"][1]))
        if kind == "RawBlock":
            return raw_block(ANCHORS.sub("", node["c"][1]).replace('<div class="controls"></div>\n', ""))
        return node

    blocks = changed(page.blocks, change)
    if not blocks or blocks[0]["t"] != "Header" or blocks[0]["c"][0] != 1:
        raise BadInput(f"{page.path} does not start with its title as a heading")
    blocks[0]["c"][2] = [{"t": "Str", "c": page.label if page.number else plain(blocks[0]["c"][2])}]
    return blocks
