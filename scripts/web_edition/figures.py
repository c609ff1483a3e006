"""The figures to take in hand: each one's first state is drawn here by QuickJS, so that the page shows it without JavaScript."""

import json
import re
from pathlib import Path

from examples.lab.script import BadInput
from scripts.web_edition.figure_data import figure_data

OPENING = r'<figure id="figure-(?P<id>[\w-]+)" data-figure="(?P=id)">'
SHOWN = re.compile(r'<(tspan|span) data-shows="[^"]*">(.*?)</\1>')  # a mark for the tests of the page, which draws it anew
FIGURE = re.compile(OPENING + r"\s*<figcaption>(?P<caption>.*?)</figcaption>\s*</figure>", re.S)


def script_of(folder, id):
    """The script of a figure in `folder`, content/web/figures; None where there is none."""
    return next((path for path in sorted(Path(folder).glob("[0-9][0-9]-*.js")) if path.stem[3:] == id), None)


def data_script():
    """The text of assets/figure-data.js."""
    return '"use strict";\nbook.data = ' + json.dumps(figure_data(), separators=(",", ":"), allow_nan=False, sort_keys=True) + ";\n"


class Figures:
    """The figures of content/web under `root`, drawn by an engine of its own."""

    def __init__(self, root):
        try:
            import quickjs
        except ModuleNotFoundError:
            raise BadInput("the package quickjs is not installed here; run make web, which installs it") from None
        self.folder = Path(root) / "content" / "web"
        self.engine, self.loaded, self.error = quickjs.Context(), set(), quickjs.JSException
        self.engine.eval((self.folder / "figures.js").read_text(encoding="utf-8"))
        self.engine.eval(data_script())

    def first_state(self, page, id):
        """{"drawing", "words", "number"} of a figure as its page opens. Raises BadInput where it is not there or fails."""
        path = script_of(self.folder / "figures", id)
        if path is None:
            raise page.problem(f'data-figure="{id}"', f"there is no script of the figure {id} in content/web/figures")
        try:
            if id not in self.loaded:
                self.engine.eval(path.read_text(encoding="utf-8"))
                self.loaded.add(id)
            number = self.engine.eval(f"book.figures[{json.dumps(id)}].number")
            state = self.engine.eval(f"JSON.stringify(book.render({json.dumps(id)}, book.start({json.dumps(id)})))")
        except self.error as error:
            raise BadInput(f"{path}: figure {id} cannot be drawn: {' '.join(str(error).split())}") from None
        drawn = json.loads(state)
        return {part: SHOWN.sub(r"\2", drawn[part]) for part in ("drawing", "words")} | {"number": number}

    def filled(self, page, markup):
        """(markup, ids) of a page: each figure of the Markdown with its first state, and which they are."""
        found = []

        def fill(match):
            id = match["id"]
            state = self.first_state(page, id)
            found.append(id)
            return (
                f'<figure id="figure-{id}" data-figure="{id}" class="take">\n<div class="controls"></div>\n'
                f'<div class="drawing">{state["drawing"]}</div>\n<p class="words">{state["words"]}</p>\n'
                f"<figcaption>Figure {state['number']}. {match['caption']}</figcaption>\n</figure>"
            )

        odd = re.search(r"<figure [^>]*data-figure[^>]*>", FIGURE.sub("", markup))
        if odd:
            raise page.problem(odd[0], f'{odd[0]} is no figure; write <figure id="figure-ID" data-figure="ID"> with a figcaption')
        return FIGURE.sub(fill, markup), found
