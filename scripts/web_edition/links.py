"""Where a manuscript's links lead in the edition: to its pages; what lies in the repository alone is named, and no link."""

import html
import os
import re
from pathlib import Path

from scripts.web_edition.pandoc import nodes, plain, raw
from scripts.web_edition.source import EVIDENCE

ID = re.compile(r'\sid="([^"]+)"')


class Links:
    """The links of the manuscripts under `root`, whose pages are `pages`."""

    def __init__(self, root, pages):
        self.root = Path(root).resolve()
        self.pages = {page.path.resolve(): page for page in pages if page.path}

    def node(self, page, node):
        """What stands in place of a Link of `page`."""
        attributes, inside, (target, title) = node["c"]
        address, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not address:
            return node
        path = Path(os.path.normpath(page.path.resolve().parent / address))
        place = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None
        if place == EVIDENCE:
            return _link(attributes, inside, "evidence.html", title)
        if path in self.pages:
            return _link(attributes, inside, self.pages[path].file + (f"#{anchor}" if anchor else ""), title)
        if place is None or not path.exists():
            raise page.problem(target, f"the link to {target} leads nowhere")
        title = "" if plain(inside) == place else f' title="{html.escape(place)}"'  # says where it lies
        return [raw(f'<span class="file"{title}>'), *inside, raw("</span>")]

    def check(self):
        """Raise BadInput for the first link between pages whose anchor is not there; to be called when all pages are read."""
        anchors = {page.file: set(_anchors(page)) for page in self.pages.values()}
        for page in self.pages.values():
            for target in (node["c"][2][0] for node in nodes(page.blocks) if node["t"] == "Link"):
                file, sign, anchor = target.partition("#")
                if sign and anchor not in anchors.get(file or page.file, {anchor}):
                    raise page.problem(f"#{anchor}", f"the link to {target} leads nowhere, since that page has no such section")


def _anchors(page):
    for node in nodes(page.blocks):
        if node["t"] == "Header":
            yield node["c"][1][0]
        elif node["t"] in ("RawInline", "RawBlock"):
            yield from ID.findall(node["c"][1])


def _link(attributes, inside, target, title):
    return {"t": "Link", "c": [attributes, inside, [target, title]]}
