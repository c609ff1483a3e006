"""A picture of matplotlib's made small: what scour does, and then what many of its elements say alike, said once."""

import re
import string
import xml.etree.ElementTree as ET
from collections import Counter

from examples.lab.script import BadInput

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FONTS = "'DejaVu Sans',Verdana,sans-serif"  # pictures are laid out in the first; for readers who do not have it
LOOKS = {
    *("fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "stroke-dasharray"),
    *("stroke-dashoffset", "stroke-miterlimit", "opacity", "clip-path", "text-anchor", "font-size", "font-weight", "font-style"),
}
PLACES = ("x", "y", "width", "height")
SCOUR = {
    **dict(digits=4, cdigits=4, shorten_ids=True, strip_ids=True, indent_type="none", newlines=False, strip_comments=True),
    **dict(remove_metadata=True, remove_descriptive_elements=True, strip_xml_prolog=True, renderer_workaround=False),
}


def small(svg):
    """(markup, (width, height) in CSS pixels) of a picture."""
    try:
        from scour.scour import sanitizeOptions, scourString
    except ModuleNotFoundError:
        raise BadInput("the package scour is not installed here; run make web, which installs it") from None
    options = sanitizeOptions()
    for name, value in SCOUR.items():
        setattr(options, name, value)
    root = ET.fromstring(scourString(svg, options))
    width, height = (float(side) for side in root.get("viewBox").split()[2:])
    _tidy(root)
    _classes(root)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    text = ET.tostring(root, encoding="unicode").replace(" />", "/>")
    return text, (round(width * 4 / 3), round(height * 4 / 3))  # points to pixels


def _tidy(root):
    """Take out what draws nothing: turns by no angle, empty text, a font that all text has."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{SVG}}}text" and not len(child) and not (child.text or "").strip():
                parent.remove(child)
    for element in root.iter():
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        if "font-family" in element.attrib:
            del element.attrib["font-family"]
        for name in PLACES:
            if re.fullmatch(r"-?\d+\.\d{2,}", element.get(name, "")):
                element.set(name, f"{float(element.get(name)):.1f}".removesuffix(".0"))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)


def _classes(root):
    """Give what several elements say of their looks a class."""
    looks = {element: tuple(sorted(item for item in element.attrib.items() if item[0] in LOOKS)) for element in root.iter()}
    counts = Counter(look for look in looks.values() if look)
    often = [look for look, count in counts.most_common() if count > 1]
    names = dict(zip(often, _names(), strict=False))
    for element, look in looks.items():
        if look in names:
            for name, _ in look:
                del element.attrib[name]
            element.set("class", names[look])
    rules = [f"*{{stroke-linejoin:round;stroke-linecap:butt}}text{{font-family:{FONTS}}}"]
    rules += [f".{name}{{{';'.join(f'{key}:{value}' for key, value in look)}}}" for look, name in names.items()]
    for style in root.iter(f"{{{SVG}}}style"):
        style.text = "".join(rules)
        style.attrib.pop("type", None)
        return
    raise ValueError("matplotlib wrote no style into a picture")


def _names():
    letters = string.ascii_letters
    yield from letters
    yield from (a + b for a in letters for b in letters)
