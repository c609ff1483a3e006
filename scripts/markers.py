"""Numbers and tables between markers in a page: looked up in the records, rendered, and refreshed.

A marker is a pair of HTML comments, invisible where Markdown is shown, with what it makes between them:

    GPT-2 has <!--=ch04.counts total int-->124,439,808<!--/--> parameters.

It names a record, a path into its values, and a format. A path goes down by dots, and picks a row by one `[key=value]` or several,
with `_` for a space in the value: `lengths[tokens=512].untraced_ms`, `components[tokens=512][component=norms].ms`; one that starts
with a dot starts at the record itself: `.machine.processor`. A record of another model is `ch04.mask@openai-community/gpt2`; what
the source text printed is `published.ID`. Formats: `int` 1,234; `f2` 1.23; `g3` three significant digits, and `0` for an exact
zero; `s1` 1.2e-4; `%1` 45.5%; `pct1` 45.5 per cent; `bytes` 1,234 bytes; `mb1` 1.2 MB (10^6); `ms1` 1.2 ms; `text`. A table stands
on lines of its own, with columns `key:format` or `key:format:Its_heading`:

    <!--=ch04.counts components table component:text parameters:int share_percent:%1:share-->

    | component | parameters | share |
    ...

    <!--/-->

`<!--const-->24.3<!--/-->` marks a number that is no result, a constant of the prose; `<!--claim ID-->` stands where a claim that no
result settles is made. No line of prose may start with a marker: Markdown would take the whole line for HTML. Listings of code and
what commands print stand between markers too: scripts/listings.py and scripts/transcripts.py explain those, and
scripts/grading/exercises.py a chapter's exercises.
"""

import re
from pathlib import Path

from tabulate import tabulate

from examples.lab.script import read_json
from scripts.records import read_all

MARKER = re.compile(r"<!--=(?P<ref>\S+)\s+(?P<path>\S+)\s+(?P<form>[^>]*?)-->(?P<body>(?:(?!<!--).)*?)<!--/-->", re.S)
CONST = re.compile(r"<!--const-->(?:(?!<!--).)*?<!--/-->", re.S)
CLAIM = re.compile(r"<!--claim (\S+)-->")


def manuscripts(root):
    """{chapter: path} of the manuscripts that are there."""
    return {f"ch{path.name[:2]}": path for path in book(root) if re.fullmatch(r"\d\d-chapter\.md", path.name)}


def book(root):
    """The files of the book: the manuscripts, their appendices, the order to read them in."""
    return sorted((Path(root) / "content" / "books" / "inference").glob("*.md"))


def pages(root):
    """All files that may have markers: those of the book, the pages beside it, README."""
    root = Path(root)
    return [*book(root), *sorted((root / "content" / "pages").glob("*.md")), *(p for p in [root / "README.md"] if p.exists())]


def load_records(root):
    """{reference: record} of all chapters, and {"published.ID": entry} of what the source texts printed."""
    records = read_all(root)
    for path in sorted(Path(root).glob("research/ch[0-9][0-9]/published.json")):
        records |= {f"published.{e['id']}": {"values": e, **e} for e in read_json(path)["entries"]}
    return records


# ---------------------------------------------------------------------------------------------------- values and formats


def look_up(record, path):
    """The value at `path`; raises LookupError that says which part is not there."""
    value = record if path.startswith(".") else record["values"]
    for part in re.findall(r"[^.\[\]]+(?:\[[^\]]*\])*", path):
        name, *filters = re.findall(r"[^\[\]]+", part)
        if not isinstance(value, dict) or name not in value:
            raise LookupError(f"there is no {name!r}")
        value = value[name]
        if filters:
            conditions = [condition.partition("=") for condition in filters]
            rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
            rows = [r for r in rows if all(str(r.get(key)).replace(" ", "_") == wanted for key, _, wanted in conditions)]
            if len(rows) != 1:
                raise LookupError(f"{len(rows)} rows have {' and '.join(filters)}")
            value = rows[0]
    return value


def render(value, form):
    """`value` as the format says; raises ValueError for a format that is not there or does not fit."""
    if form == "text":
        if isinstance(value, (dict, list)):
            raise ValueError("text wants one value, not a table")
        return str(value).replace("\n", " ").replace("|", "\\|")
    match = re.fullmatch(r"(int|bytes|f|g|s|%|pct|mb|ms)(\d*)", form)
    if not match:
        raise ValueError(f"there is no format {form!r}")
    if value is None:
        return "n/a"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{form} wants a number, not {type(value).__name__}")
    kind, digits = match[1], int(match[2] or 0)
    if kind in ("int", "bytes"):
        if value != int(value):
            raise ValueError(f"{form} wants a whole number, not {value}")
        return f"{int(value):,}" + (" bytes" if kind == "bytes" else "")
    if kind == "g":
        if value == 0:
            return "0"  # exact, so no digits behind it
        near = float(f"{value:.{max(digits, 1) - 1}e}")
        return f"{near:,.{max(0, digits - 1 - _exponent(near))}f}"
    if kind == "s":
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if kind == "mb":
        value = value / 1e6
    return f"{value:,.{digits}f}" + {"%": "%", "pct": " per cent", "mb": " MB", "ms": " ms"}.get(kind, "")


def _exponent(value):
    return int(f"{value:e}".split("e")[1])


def render_table(rows, columns):
    """A Markdown table of `rows`, dicts, by `columns`: "key:format" or "key:format:Heading_with_underscores"."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("a table wants a list of rows")
    headings, forms = [], []
    for column in columns:
        key, form, heading = ([*column.split(":", 2), None])[:3] if ":" in column else (column, "", None)
        headings.append((heading or key).replace("_", " "))
        forms.append((key, form))
    cells = [[_cell(row, key, form) for key, form in forms] for row in rows]
    align = ["left" if form == "text" else "right" for _, form in forms]
    return "\n\n" + tabulate(cells, headings, tablefmt="github", colalign=align, disable_numparse=True) + "\n\n"


def _cell(row, key, form):
    if key not in row:
        return "n/a"
    return render(row[key], form)


def expected(records, ref, path, form):
    """What should stand between the markers; raises LookupError or ValueError when the marker names nothing."""
    if ref not in records:
        raise LookupError(f"there is no result {ref}")
    value = look_up(records[ref], path)
    kind, *columns = form.split()
    return render_table(value, columns) if kind == "table" else render(value, form.strip())


# --------------------------------------------------------------------------------------------------------------- refreshing


def refreshed(text, records):
    """`text` with every marker's content anew; one that names nothing is left as it is, for `check` to tell."""

    def fill(match):
        try:
            body = expected(records, match["ref"], match["path"], match["form"])
        except (LookupError, ValueError):
            return match[0]
        head = match[0][: match.start("body") - match.start()]
        return f"{head}{body}<!--/-->"

    return MARKER.sub(fill, text)
