"""The pictures that the pages show: drawn again with text as text, made small, and their size told to the page."""

from pathlib import Path

from examples.lab.figure import with_rules
from scripts.figures import figures
from scripts.web_edition.svg import small


def name_of(path):
    """images/ch04-mask.svg of research/ch04/figures/mask.svg."""
    path = Path(path)
    return f"images/{path.parents[1].name}-{path.name}"


def draw(root, pages, folder):
    """Draw into `folder`/images the figures under `root` that `pages` show: {path: (width, height)} in CSS pixels."""
    wanted = {path: page for page in pages for path in page.images}
    sizes, folder = {}, Path(folder)
    with with_rules({"svg.fonttype": "none"}):
        for _, path, draw_it in figures(root):
            if path.resolve() in wanted:
                target = folder / name_of(path)
                target.parent.mkdir(exist_ok=True)
                draw_it(target)
                text, sizes[path.resolve()] = small(target.read_text(encoding="utf-8"))
                target.write_text(text, encoding="utf-8", newline="\n")
    for path in sorted(set(wanted) - set(sizes)):
        raise wanted[path].problem(path.name, f"no experiment and no chapter's pictures draw {path.name}")
    return sizes
