"""Keep the manuscripts true: numbers from the records, links and commands that work, headings that a chapter has.

    make check        # compare, and list what is wrong as file:line: what
    make evidence     # runs the experiments, then refreshes what stands between markers

A marker is a pair of HTML comments, invisible where Markdown is shown, with what it makes between them:

    GPT-2 has <!--=ch04.counts total int-->124,439,808<!--/--> parameters.

It names a record, a path into its values, and a format. A path goes down by dots, and picks rows by `[key=value]`, with `_` for
a space in the value: `lengths[tokens=512].untraced_ms`; one that starts with a dot starts at the record itself:
`.machine.processor`. A record of another model is `ch04.mask@openai-community/gpt2`; what the first edition printed is
`published.ID`. Formats: `int` 1,234; `f2` 1.23; `g3` three significant digits, and `0` for an exact zero; `s1` 1.2e-4; `%1`
45.5%; `pct1` 45.5 per cent; `bytes` 1,234 bytes; `mb1` 1.2 MB (10^6); `ms1` 1.2 ms; `text`. A table stands on lines of its
own, with columns `key:format` or `key:format:Its_heading`:

    <!--=ch04.counts components table component:text parameters:int share_percent:%1:share-->

    | component | parameters | share |
    ...

    <!--/-->

What counts as a measured number, and must stand in a marker: one with a decimal point or an exponent; one followed by a unit
(per cent, %, ms, s, bytes and their multiples, FLOP and its multiples, nats, bits, times); a whole number of 100 or more that
is not a year (1900 to 2099). Left alone are code, formulas between dollars, link targets, and what is marked as a constant of
the prose: `<!--const-->24.3<!--/-->`. `<!--claim ID-->` stands where a claim of the registry that no result settles is made.
No line of prose may start with a marker: Markdown would take the whole line for HTML.
"""

import importlib
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tabulate import tabulate

from examples.lab.script import BadInput, Parser, command, read_json, write_whole
from scripts.evidence import stale_figures
from scripts.experiments import ROOT
from scripts.experiments import claims as all_claims
from scripts.experiments import experiments as all_experiments
from scripts.records import read_results, results_path

MARKER = re.compile(r"<!--=(?P<ref>\S+)\s+(?P<path>\S+)\s+(?P<form>[^>]*?)-->(?P<body>.*?)<!--/-->", re.S)
CONST = re.compile(r"<!--const-->.*?<!--/-->", re.S)
CLAIM = re.compile(r"<!--claim (\S+)-->")
_UNIT = "ms|s|seconds?|minutes?|hours?|[KMGT]FLOP/s|[KMGT]B/s|[KMGT]?FLOPs?|[KMGT]?i?B|bytes?|nats?|bits?|times"
UNITS = rf"(?:\s*(?:%|per cent\b)|\s+(?:{_UNIT})\b)"
NUMBER = re.compile(rf"(?<![\w.,/^-])(?P<n>\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w-])(?P<unit>{UNITS})?")
FRONT_MATTER = ("title", "number", "draft")
HEADINGS = (
    *("The claim", "Where this sits", "What the numbers do not show", "The Lab's increment", "What you should now be able to do"),
    *("Key terms", "Exercises", "References", "Evidence in this chapter"),
)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, at a line of a file."""

    path: str
    line: int
    what: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


def manuscripts(root):
    """{chapter: path} of the manuscripts that are there."""
    found = sorted((Path(root) / "content" / "books" / "inference").glob("[0-9][0-9]-chapter.md"))
    return {f"ch{path.name[:2]}": path for path in found}


def load_records(root):
    """{reference: record} of all chapters, and {"published.ID": entry} of what the first editions printed."""
    records = {}
    for folder in sorted((Path(root) / "research").glob("ch[0-9][0-9]")):
        records |= read_results(results_path(root, folder.name))
        if (folder / "published.json").exists():
            entries = read_json(folder / "published.json")["entries"]
            records |= {f"published.{e['id']}": {"values": e, **e} for e in entries}
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
        for condition in filters:
            key, _, wanted = condition.partition("=")
            rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
            rows = [row for row in rows if str(row.get(key)).replace(" ", "_") == wanted]
            if len(rows) != 1:
                raise LookupError(f"{len(rows)} rows have {condition}")
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


def refresh(root):
    """Refresh the markers of every manuscript, and write the register."""
    records = load_records(root)
    for path in manuscripts(root).values():
        text = path.read_text(encoding="utf-8")
        new = refreshed(text, records)
        if new != text:
            write_whole(path, new)
    write_whole(Path(root) / "research" / "evidence-register.md", register(records))


STATUS = {"exact": "established", "tolerance": "measured", "observation": "measured", "timing": "measured"}


def register(records):
    """The register of all claims, in Markdown."""
    rows = []
    for e in all_experiments():
        for ref in (r for r in records if r == e.id or r.startswith(f"{e.id}@")):
            record = records[ref]
            command = f"`{record['command']}`"
            model = record["model"] + (f" ({record['model_sha256'][:12]})" if record["model_sha256"] else "")
            rows.append([f"`{ref}`", e.chapter, record["claim"], STATUS[e.kind], f"{e.kind}; {command}; {model}", record["limits"]])
    for c in all_claims():
        evidence = ", ".join(f"`{e}`" for e in c.evidence) or "none"
        rows.append([f"`{c.id}`", c.chapter, c.claim, c.status, evidence, c.limits])
    rows = sorted(([cell.replace("|", "\\|") for cell in row] for row in rows), key=lambda row: (row[1], row[0]))
    headings = ["id", "chapter", "claim", "status", "evidence", "limits"]
    return (
        "# The evidence register\n\n"
        "Every claim of the book, made from the registry and the records by `make evidence`; do not edit it by hand. Established:\n"
        "exact, true of the program by its structure. Measured: within a stated bound, or observed or timed on one machine.\n"
        "Hypothesis: fits the measurements, and is not tested by them. Not shown here: nothing in the chapter speaks for it.\n\n"
        + tabulate(rows, headings, tablefmt="github", disable_numparse=True)
        + "\n"
    )


# ------------------------------------------------------------------------------------------------------------------ checking


def check(root=ROOT, experiments=None, claims=None):
    """Everything that is wrong in the manuscripts, their records, figures and register: a list of `Problem`."""
    root = Path(root)
    experiments = all_experiments() if experiments is None else experiments
    claims = all_claims(root) if claims is None else claims
    records = load_records(root)
    problems, used, claimed = [], set(), set()
    for path in manuscripts(root).values():
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        problems += check_markers(name, text, records, used)
        problems += check_numbers(name, text)
        problems += check_template(name, text)
        for match in CLAIM.finditer(text):
            claimed.add(match[1])
            if match[1] not in {c.id for c in claims}:
                problems.append(Problem(name, _line(text, match.start()), f"there is no claim {match[1]} in the registry"))
    readable = [*manuscripts(root).values(), root / "README.md", *sorted(root.glob("research/ch*/sources.md"))]
    for path in (p for p in readable if p.exists()):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        problems += check_links(root, path, name, text)
        problems += check_commands(root, name, text)
    problems += check_records(root, records, used, claimed, experiments, claims)
    return problems


def _line(text, at):
    return text.count("\n", 0, at) + 1


def check_markers(name, text, records, used):
    """Markers that name nothing or whose content differs; adds the records that are named to `used`."""
    problems = []
    for match in MARKER.finditer(text):
        line = _line(text, match.start())
        used.add(match["ref"])
        try:
            body = expected(records, match["ref"], match["path"], match["form"])
        except (LookupError, ValueError) as error:
            marker = f"{match['ref']} {match['path']} {match['form']}"
            problems.append(Problem(name, line, f"the marker {marker} names nothing: {error.args[0]}"))
            continue
        if match["body"] != body:
            problems.append(Problem(name, line, _difference(match["body"], body) + f" ({match['ref']} {match['path']})"))
        is_table = match["form"].startswith("table")
        if not is_table and text.rfind("\n", 0, match.start()) == match.start() - 1:
            problems.append(
                Problem(name, line, "a line starts with a marker, and Markdown takes it for HTML; move a word before it")
            )
    for block in re.finditer(FENCED, text, re.S | re.M):
        if "<!--" in block[0]:
            problems.append(
                Problem(name, _line(text, block.start()), "a marker stands in a fenced block, where it is shown as it is")
            )
    opened = len(re.findall(r"<!--(?:=|const-->)", text))
    if opened != len(re.findall(r"<!--/-->", text)) or opened != len(MARKER.findall(text)) + len(CONST.findall(text)):
        problems.append(Problem(name, 1, "the markers do not pair up: each <!--= and <!--const--> wants its <!--/-->"))
    return problems


def _difference(stands, should):
    """What differs, in one line; of a table the first lines that do."""
    if "\n" not in should:
        return f"{stands!r} stands, {should!r} should stand"
    pairs = zip(stands.strip().splitlines() + [""] * 99, should.strip().splitlines(), strict=False)
    a, b = next(((a, b) for a, b in pairs if a != b), ("more lines", "fewer"))
    return f"in the table {a!r} stands, {b!r} should stand"


def blanked(text, *patterns):
    """`text` with every match of `patterns` replaced by spaces, line breaks kept, so that positions stay."""
    for pattern in patterns:
        text = re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M)
    return text


FENCED, CODE, MATH = r"^```.*?^```[^\n]*$", r"`[^`\n]+`", r"\$\$.*?\$\$|\$[^$\n]+\$"
HEAD, COMMENT, TARGET = r"\A---\n.*?\n---\n", r"<!--.*?-->", r"(?<=\])\([^)\n]*\)"


def check_numbers(name, text):
    """Measured numbers, as the module's text defines them, that stand outside a marker."""
    rest = blanked(text, HEAD, FENCED, MARKER.pattern, CONST.pattern, COMMENT, CODE, MATH, TARGET)
    problems = []
    for match in NUMBER.finditer(rest):
        number = match["n"].rstrip(",")
        whole = number.replace(",", "")
        is_count = whole.isdigit() and int(whole) >= 100 and not (1900 <= int(whole) <= 2099 and "," not in number)
        if is_count or not whole.isdigit() or match["unit"]:
            shown = (number + (match["unit"] or "")).strip()
            what = f"the number {shown!r} stands outside a marker; give its result, or mark it const"
            problems.append(Problem(name, _line(text, match.start()), what))
    return problems


def check_template(name, text):
    """Front matter and headings that every chapter has."""
    problems = []
    head = re.match(HEAD, text, re.S)
    keys = re.findall(r"^(\w+):", head[0], re.M) if head else []
    problems += [Problem(name, 1, f"the front matter lacks {key}") for key in FRONT_MATTER if key not in keys]
    body = blanked(text, FENCED)
    headings = re.findall(r"^#{2,3} +(.+?) *$", body, re.M)
    problems += [Problem(name, 1, f"the heading {wanted!r} is missing") for wanted in HEADINGS if wanted not in headings]
    there = [h for h in headings if h in HEADINGS]
    if there != [h for h in HEADINGS if h in there]:
        problems.append(Problem(name, 1, f"the headings of the template stand in another order: {', '.join(there)}"))
    return problems


def check_links(root, path, name, text):
    """Relative links, images and paths in code spans that lead nowhere."""
    problems = []
    rest = blanked(text, FENCED)
    for match in re.finditer(r"\]\(([^)\s]+)\)", blanked(rest, CODE)):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        goal = (path.parent / target) if target else path
        line = _line(text, match.start())
        if not goal.exists():
            problems.append(Problem(name, line, f"the link {match[1]} leads to nothing"))
        elif anchor and goal.suffix == ".md" and anchor not in _anchors(goal.read_text(encoding="utf-8")):
            problems.append(Problem(name, line, f"the link {match[1]} leads to no heading of that file"))
    for match in re.finditer(r"`((?:examples|scripts|tests|research|content)/[\w./*-]+)`", rest):
        if not list(root.glob(match[1].replace("NN", "??"))):
            problems.append(Problem(name, _line(text, match.start()), f"the path {match[1]} does not exist"))
    return problems


def _anchors(text):
    """The anchors that GitHub makes from headings."""
    headings = re.findall(r"^#+ +(.+?) *$", blanked(text, FENCED), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def check_commands(root, name, text):
    """Commands in `sh` blocks that the script's own parser or the Makefile would not take. Other programs are left alone."""
    problems = []
    for block in re.finditer(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.S | re.M):
        for i, row in enumerate(block[1].splitlines()):
            problem = _command_problem(root, row.strip().removeprefix("$ "))
            if problem:
                problems.append(
                    Problem(name, _line(text, block.start()) + 1 + i, f"the command `{row.strip()}` does not work: {problem}")
                )
    return problems


def _command_problem(root, row):
    try:
        words = shlex.split(row, comments=True)
    except ValueError as error:
        return str(error)
    while words and re.fullmatch(r"\w+=.*", words[0]):  # settings of the environment
        words = words[1:]
    if words[:1] == ["make"]:
        makefile = (root / "Makefile").read_text()
        for word in words[1:]:
            variable = re.fullmatch(r"([A-Z_]+)=.*", word)
            known = rf"\$\({variable[1]}\)" if variable else rf"(?m)^{re.escape(word)}:"
            if not re.search(known, makefile):
                return f"the Makefile has no {word}"
        return None
    if words[:1] not in (["python"], ["python3"]) or len(words) < 2:
        return None
    if words[1] == "-m":
        module, arguments = words[2], words[3:]
    else:
        module, arguments = words[1].removesuffix(".py").replace("/", "."), words[2:]
    if module.split(".")[0] not in ("examples", "scripts"):
        return None
    if not (root / (module.replace(".", "/") + ".py")).exists():
        return f"there is no {module}"
    try:
        importlib.import_module(module).options().parse_args(arguments)
    except BadInput as error:
        return str(error)
    except SystemExit:  # --help
        return None
    return None


def check_records(root, records, used, claimed, experiments, claims):
    """Records, figures and register that are out of step with the registry, and what no manuscript uses."""
    problems = []
    written = manuscripts(root)
    for e in experiments:
        where = f"research/{e.chapter}/results.json"
        record = records.get(e.id)
        if record is None:
            problems.append(Problem(where, 1, f"there is no result {e.id}; run make evidence ONLY={e.id}"))
            continue
        stale = [f for f in ("claim", "kind", "limits") if record[f] != getattr(e, f)]
        if stale:
            problems.append(
                Problem(where, 1, f"{e.id} has another {', '.join(stale)} than the registry; run make evidence ONLY={e.id}")
            )
        if record["kind"] == "tolerance" and not record["values"]["held"]:
            problems.append(
                Problem(where, 1, f"{e.id} is outside its bound: {record['values']['worst']} > {record['values']['bound']}")
            )
        if e.chapter in written and e.id not in used:
            problems.append(Problem(where, 1, f"no manuscript uses {e.id}"))
    for c in claims:
        if c.chapter in written and c.id not in claimed:
            problems.append(Problem("scripts/registry.py", 1, f"no manuscript makes the claim {c.id}"))
        for ref in c.evidence:
            if ref not in records:
                problems.append(Problem("scripts/registry.py", 1, f"the claim {c.id} rests on {ref}, which has no result"))
    for ref, record in records.items():
        if not ref.startswith("published.") and record["id"] not in {e.id for e in experiments}:
            problems.append(Problem(f"research/{ref.split('.')[0]}/results.json", 1, f"{ref} is of no experiment in the registry"))
    path = root / "research" / "evidence-register.md"
    if not path.exists() or path.read_text(encoding="utf-8") != register(records):
        problems.append(
            Problem("research/evidence-register.md", 1, "is not what the registry and the records make; run make evidence")
        )
    return problems + check_figures(root, records)


def check_figures(root, records):
    """Figures that are not what their records draw."""
    return [
        Problem(path.relative_to(root).as_posix(), 1, f"is not what {id} draws; run make evidence")
        for path, id in stale_figures(root)
    ]


def options():
    """The script's argument parser."""
    return Parser(prog="check.py", description=__doc__.splitlines()[0])


@command
def main(argv=None):
    """Print what is wrong, a line each."""
    options().parse_args(argv)
    problems = check()
    for problem in problems:
        print(problem)
    if problems:
        raise BadInput(f"{len(problems)} of these; mend them, or run make evidence where a record changed")
    print(f"{len(manuscripts(ROOT))} manuscript(s), {len(load_records(ROOT))} records: nothing wrong")


if __name__ == "__main__":
    sys.exit(main())
