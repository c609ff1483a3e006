"""A picture of matplotlib's made small: what scour does, and then what many of its elements say alike, said once."""

import re
import string
import xml.etree.ElementTree as ET
from collections import Counter

from examples.lab.figure import RULES
from examples.lab.script import BadInput

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FONTS = "'DejaVu Sans',Verdana,sans-serif"  # pictures are laid out in the first; for readers who do not have it
LINE = RULES["hatch.linewidth"]
LOOKS = {
    *("fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "stroke-dasharray"),
    *("stroke-dashoffset", "stroke-miterlimit", "opacity", "clip-path", "text-anchor", "font-size", "font-weight", "font-style"),
}
DOTS = re.compile(r'(?P<head><pattern [^>]*>\s*<rect [^>]*/>\s*)<path d="(?P<d>[^"]*)"\s*style="[^"]*"\s*/>')
TICK = re.compile(r"m0 0[hv]-?[\d.]+")
PATH, USE, RECT, HREF = f"{{{SVG}}}path", f"{{{SVG}}}use", f"{{{SVG}}}rect", f"{{{XLINK}}}href"
TOKEN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?|[a-zA-Z]")
STROKE = re.compile(r"m-?[\d.]+ -?[\d.]+[hv]-?[\d.]+")
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
    root = ET.fromstring(scourString(_dots(svg), options))
    width, height = (float(side) for side in root.get("viewBox").split()[2:])
    _tidy(root)
    _joined(root)
    _classes(root)
    ET.register_namespace("", SVG)
    for path in root.iter(PATH):
        path.set("d", _rounded(path.get("d", "")))
    for use in root.iter(USE):
        use.set("href", use.attrib.pop(HREF))  # which every browser takes without a namespace
    text = ET.tostring(root, encoding="unicode").replace(" />", "/>")
    return text, (round(width * 4 / 3), round(height * 4 / 3))  # points to pixels


def _dots(svg):
    """The picture with the dots of a hatch, circles of eight curves each, as round ends of lines that have no length."""

    def pattern(match):
        found = [[float(x) for x in re.findall(r"-?[\d.]+", part)] for part in match["d"].split("M")[1:]]
        if not all(len(numbers) == 50 for numbers in found):  # a point, and eight curves of three
            return match[0]
        centres = [((min(n[::2]) + max(n[::2])) / 2, (min(n[1::2]) + max(n[1::2])) / 2) for n in found]
        width = max(found[0][::2]) - min(found[0][::2])
        d = "".join(f"M{x:.1f} {y:.1f}h.01" for x, y in centres)
        return f'{match["head"]}<path d="{d}" style="stroke: #000000; stroke-width: {width + LINE:.1f}; stroke-linecap: round"/>'

    return DOTS.sub(pattern, svg)


def _joined(root):
    """Join strokes of one look that have one parent, ticks and lines of a grid, up to the next thing that is filled and might lie
    between them: one path in place of many."""
    parents = {child: parent for parent in root.iter() for child in parent}
    paths = [path for path in root.iter(PATH) if path.get("id") and TICK.fullmatch(path.get("d", ""))]
    marks, first, kept = {f"#{path.get('id')}": path for path in paths}, {}, set()
    for element in list(root.iter()):
        look = tuple(sorted(item for item in element.attrib.items() if item[0] not in ("d", "x", "y")))
        if element.tag == USE and element.get(HREF) in marks and "transform" not in element.attrib:
            d = f"M{element.get('x', 0)} {element.get('y', 0)}{marks[element.get(HREF)].get('d').removeprefix('m0 0')}"
        elif element.tag == PATH and STROKE.fullmatch(element.get("d", "")) and not element.get("id"):
            d = "M" + element.get("d")[1:]
        else:
            kept.add(element.get(HREF))
            if element.tag in (PATH, USE, RECT) and element.get("fill") != "none" and not element.get("id"):
                first.clear()
            continue
        key = (parents[element], element.tag, look)
        if key in first:
            first[key].set("d", first[key].get("d") + d)
            parents[element].remove(element)
        else:
            first[key] = element
            element.set("d", d)
            for name in ("x", "y", HREF):
                element.attrib.pop(name, None)
            element.tag = PATH
    for href, mark in marks.items():
        if href not in kept:
            parents[mark].remove(mark)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag == f"{{{SVG}}}defs" and not len(child):
                parent.remove(child)


def _rounded(d):
    """The data of a path with two digits behind the point, and no sign between numbers that is not needed."""
    parts, last = [], ""
    for token in TOKEN.findall(d):
        if not token.isalpha():
            token = f"{float(token):.2f}".rstrip("0").rstrip(".").replace("-0.", "-.").removeprefix("0") or "0"
            token = "0" if token == "-0" else token
            if last and not last.isalpha() and not token.startswith("-") and not (token.startswith(".") and "." in last):
                parts.append(" ")
        parts.append(token)
        last = token
    return "".join(parts)


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
    root.set("stroke-linejoin", "round")  # matplotlib's rule for all, which in a style would go before an element's attributes
    rules = [f"text{{font-family:{FONTS}}}"]
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
