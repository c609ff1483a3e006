"""Where a manuscript's links lead in the edition: to its pages; what lies in the repository alone is named, and no link."""

import html
import os
from pathlib import Path

from examples.lab.script import BadInput
from scripts.web_edition.pandoc import plain, raw
from scripts.web_edition.source import EVIDENCE


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
            raise BadInput(f"{page.path}: the link to {target} leads nowhere")
        title = "" if plain(inside) == place else f' title="{html.escape(place)}"'  # says where it lies
        return [raw(f'<span class="file"{title}>'), *inside, raw("</span>")]


def _link(attributes, inside, target, title):
    return {"t": "Link", "c": [attributes, inside, [target, title]]}
