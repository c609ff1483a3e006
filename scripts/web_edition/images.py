"""The pictures that the pages show: drawn again with text as text, made small, and their size told to the page."""

import re
from pathlib import Path

from examples.lab.figure import with_rules
from examples.lab.script import BadInput
from scripts.figures import figures

FONTS = "'DejaVu Sans',Verdana,sans-serif"  # the first is what they are laid out in
SCOUR = dict(digits=4, cdigits=4, shorten_ids=True, strip_ids=True, indent_type="none", newlines=False, strip_comments=True)


def name_of(path):
    """images/ch04-mask.svg of research/ch04/figures/mask.svg."""
    path = Path(path)
    return f"images/{path.parents[1].name}-{path.name}"


def draw(root, wanted, folder):
    """Draw into `folder`/images the figures under `root` whose paths are in `wanted`: {path: (width, height)} in CSS pixels."""
    try:
        from scour.scour import sanitizeOptions, scourString
    except ModuleNotFoundError:
        raise BadInput("the package scour is not installed here; run make web, which installs it") from None
    options = sanitizeOptions()
    for name, value in (SCOUR | dict(remove_metadata=True, remove_descriptive_elements=True, strip_xml_prolog=True)).items():
        setattr(options, name, value)
    sizes, folder = {}, Path(folder)
    with with_rules({"svg.fonttype": "none"}):
        for _, path, draw_it in figures(root):
            if path.resolve() not in wanted:
                continue
            target = folder / name_of(path)
            target.parent.mkdir(exist_ok=True)
            draw_it(target)
            text = target.read_text(encoding="utf-8")
            box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
            sizes[path.resolve()] = tuple(round(float(side) * 4 / 3) for side in box.groups())  # points to pixels
            target.write_text(_fonts(scourString(text, options)), encoding="utf-8", newline="\n")
    lacking = sorted(set(wanted) - set(sizes))
    if lacking:
        raise BadInput(f"no experiment and no chapter's pictures draw {lacking[0]}, which a page shows")
    return sizes


def _fonts(svg):
    """Other families behind the one that the picture was laid out in, for readers who do not have it."""
    return svg.replace("'DejaVu Sans'", FONTS)
