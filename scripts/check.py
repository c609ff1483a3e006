"""Check the pages, the manuscripts and README: numbers from the records, listings from the code, links and commands that work,
headings that a chapter has, spelling, lines that are not too long, images that say what they show.

    make check        # compare, and list what is wrong as file:line: what
    make refresh      # write anew what stands between markers: scripts/markers.py, listings.py and transcripts.py say how they look
    make evidence     # run the experiments first

What counts as a measured number, and must stand in a marker: one with a decimal point or an exponent; one followed by a unit
(per cent, %, ms, s, bytes and their multiples, FLOP and its multiples, nats, bits, times); a whole number of 100 or more that
is not a year (1900 to 2099). Left alone are code, formulas between dollars, link targets, and what is marked as a constant of
the prose: `<!--const-->24.3<!--/-->`, and what an exercise gives. In README numbers may stand as they are.

--help says what this cannot see.
"""

import re
import sys
from itertools import zip_longest
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.lab.script import BadInput, Parser, command
from scripts.commands import command_problem
from scripts.experiments import ROOT, claims, experiments
from scripts.figures import stale_figures
from scripts.grading.exercises import SECTION, section
from scripts.listings import CODE, listing
from scripts.markers import CLAIM, CONST, MARKER, book, expected, load_records, manuscripts, pages
from scripts.page import COMMENT, HEAD, MATH, SIGN, Page, Problem, line_at, without
from scripts.register import headline, register, register_path
from scripts.spelling import check_spelling
from scripts.transcripts import RUN, transcript, transcript_problem

_UNIT = "ms|s|seconds?|minutes?|hours?|[KMGT]FLOP/s|[KMGT]B/s|[KMGT]?FLOPs?|[KMGT]?i?B|bytes?|nats?|bits?|times"
UNITS = rf"(?:\s*(?:%|per cent\b)|\s+(?:{_UNIT})\b)"
NUMBER = re.compile(rf"(?<![\w.,/^-])(?P<n>\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w-])(?P<unit>{UNITS})?")
WIDTH = 160  # columns of a source line
ALT = 5  # words
TABLE = re.compile(r"<!--=[^>]*? table [^>]*?-->(?:(?!<!--).)*?<!--/-->", re.S)
FRONT_MATTER = ("title", "number", "draft")
HEADINGS = (
    *("The claim", "Where this sits", "What the numbers do not show", "The Lab's increment", "What you should now be able to do"),
    *("Key terms", "Exercises", "References", "Evidence in this chapter"),
)


# ------------------------------------------------------------------------------------------------------------------ checking


def check(root=ROOT, run=False):
    """Everything that is wrong in the pages, records, figures and register under `root`: a list of `Problem`.

    run: whether to run the commands whose output a page shows.
    """
    root = Path(root)
    records, known = load_records(root), {c.id for c in claims(root)}
    problems, used, claimed, texts = [], set(), set(), {}
    for path in pages(root):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        texts[name], of_the_book = text, path in book(root)
        problems += check_markers(name, text, records, used if of_the_book else set())
        problems += check_listings(root, path, name, text)
        problems += check_exercises(root, path, name, text)
        problems += check_outputs(root, name, text) if run else check_transcripts(root, name, text)
        problems += check_lines(name, text)
        if of_the_book:
            problems += check_numbers(name, text)
        if path in manuscripts(root).values():
            problems += check_template(name, text)
        for match in CLAIM.finditer(text):
            claimed.add(match[1])
            if match[1] not in known:
                what = f"there is no claim {match[1]} in research/{match[1].split('.')[0]}/claims.json"
                problems.append(Problem(name, line_at(text, match.start()), what))
    for path in (*sorted(root.glob("research/ch*/sources.md")), *(p for p in [register_path(root)] if p.exists())):
        texts[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        page = Page(text)
        problems += check_links(root, root / name, name, page)
        problems += check_commands(root, name, page)
        problems += check_images(name, page)
    problems += check_spelling(texts)
    return problems + check_records(root, records, used, claimed) + check_figures(root)


def check_markers(name, text, records, used):
    """Markers that name nothing or whose content differs; adds the records that are named to `used`."""
    problems = []
    for match in MARKER.finditer(text):
        line = line_at(text, match.start())
        used.add(match["ref"])
        try:
            body = expected(records, match["ref"], match["path"], match["form"])
        except (LookupError, ValueError) as error:
            marker = f"{match['ref']} {match['path']} {match['form']}"
            problems.append(Problem(name, line, f"the marker {marker} names nothing: {error.args[0]}"))
            continue
        if match["body"] != body:
            problems.append(Problem(name, line, _difference(match["body"], body) + f" ({match['ref']} {match['path']})"))
    page = Page(text)
    for found, line in page.html:
        if found.lstrip().startswith("<!--") and without(found, COMMENT).strip():
            what = "a line starts with a marker, and Markdown takes it for HTML; move a word before it"
            problems.append(Problem(name, line, what))
    for _, found, line in page.blocks:
        if "<!--" in found:
            problems.append(Problem(name, line, "a marker stands in a block of code, where it is shown as it is"))
    opened = len(re.findall(r"<!--(?:=|const-->|code |exercises |run )", text))
    paired = sum(len(pattern.findall(text)) for pattern in (MARKER, CONST, CODE, SECTION, RUN))
    if opened != len(re.findall(r"<!--/-->", text)) or opened != paired:
        what = "the markers do not pair up: each <!--=, <!--const-->, <!--code, <!--exercises and <!--run wants its <!--/-->"
        problems.append(Problem(name, 1, what))
    return problems


def check_listings(root, path, name, text):
    """Listings that are not what their files hold now."""
    problems = []
    for match in CODE.finditer(text):
        line = line_at(text, match.start())
        try:
            body = listing(root, path, match["spec"])
        except (LookupError, ValueError) as error:
            problems.append(Problem(name, line, f"the listing `{match['spec']}` shows nothing: {error.args[0]}"))
            continue
        if match["body"] != body:
            what = f"the listing `{match['spec']}` is not what the file holds; run make refresh, and read the text around it"
            problems.append(Problem(name, line, what))
    return problems


def check_exercises(root, path, name, text):
    """Lists of exercises that are not what the starters hold now."""
    problems = []
    for match in SECTION.finditer(text):
        line = line_at(text, match.start())
        try:
            body = section(root, path, match["spec"])
        except (LookupError, BadInput) as error:
            problems.append(Problem(name, line, f"the exercises `{match['spec']}` cannot be shown: {error.args[0]}"))
            continue
        if match["body"] != body:
            problems.append(
                Problem(name, line, f"the exercises of {match['spec']} are not what the starters hold; run make refresh")
            )
    return problems


def check_transcripts(root, name, text):
    """Transcripts that cannot be what their commands print. None is run here: the tests run each."""
    found = ((match, transcript_problem(root, match["spec"], match["body"])) for match in RUN.finditer(text))
    return [
        Problem(name, line_at(text, match.start()), f"the transcript `{match['spec']}` does not hold: {wrong}")
        for match, wrong in found
        if wrong
    ]


def check_outputs(root, name, text):
    """Transcripts that are not what their commands print now, each with the first line that differs. Runs all of them."""
    problems = []
    for match in RUN.finditer(text):
        start = line_at(text, match.start("body"))
        try:
            body = transcript(root, match["spec"], runs=1)
        except ValueError as error:
            problems.append(Problem(name, start, f"the transcript `{match['spec']}` shows nothing: {error.args[0]}"))
            continue
        pairs = zip_longest(match["body"].split("\n"), body.split("\n"))
        at, (stands, prints) = next(((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1]), (0, (None, None)))
        if match["body"] != body:
            what = f"{stands!r} stands, and the command prints {prints!r}; run make refresh, and read the text around it"
            problems.append(Problem(name, start + at, f"the transcript `{match['spec']}`: {what}"))
    return problems


def check_lines(name, text):
    """Lines of WIDTH characters or more, tables and what stands between markers on lines of their own aside."""
    for pattern in (CODE, RUN, TABLE):
        text = without(text, pattern)
    return [
        Problem(name, number, f"the line has {len(line)} characters; wrap it before {WIDTH}")
        for number, line in enumerate(text.split("\n"), start=1)
        if len(line) >= WIDTH and not line.lstrip().startswith("|")
    ]


def check_images(name, page):
    """Images whose alternative text is too short to say what they show."""
    return [
        Problem(name, line, f"the image's alternative text {shown!r} does not say what it shows; give it {ALT} words or more")
        for shown, line in page.images
        if len(shown.split()) < ALT
    ]


def _difference(stands, should):
    """What differs, in one line; of a table the first lines that do."""
    if "\n" not in should:
        return f"{stands!r} stands, {should!r} should stand"
    pairs = zip(stands.strip().splitlines() + [""] * 99, should.strip().splitlines(), strict=False)
    a, b = next(((a, b) for a, b in pairs if a != b), ("more lines", "fewer"))
    return f"in the table {a!r} stands, {b!r} should stand"


def check_numbers(name, text):
    """Measured numbers, as the module's text defines them, that stand outside a marker."""
    problems = []
    for prose, line in Page(without(without(without(text, MARKER, SIGN), CONST, SIGN), SECTION, SIGN)).prose:
        prose = without(prose, MATH, SIGN)
        for match in NUMBER.finditer(prose):
            number = match["n"].rstrip(",")
            whole = number.replace(",", "")
            is_count = whole.isdigit() and int(whole) >= 100 and not (1900 <= int(whole) <= 2099 and "," not in number)
            if is_count or not whole.isdigit() or match["unit"]:
                shown = (number + (match["unit"] or "")).strip()
                what = f"the number {shown!r} stands outside a marker; give its result, or mark it const"
                problems.append(Problem(name, line + line_at(prose, match.start()) - 1, what))
    return problems


def check_template(name, text):
    """Front matter and headings that every chapter has."""
    head = HEAD.match(text)
    keys = re.findall(r"^(\w+):", head[0], re.M) if head else []
    problems = [Problem(name, 1, f"the front matter lacks {key}") for key in FRONT_MATTER if key not in keys]
    headings = [shown for level, shown, _ in Page(text).headings if level in (2, 3)]
    problems += [Problem(name, 1, f"the heading {wanted!r} is missing") for wanted in HEADINGS if wanted not in headings]
    there = [h for h in headings if h in HEADINGS]
    if there != [h for h in HEADINGS if h in there]:
        problems.append(Problem(name, 1, f"the headings of the template stand in another order: {', '.join(there)}"))
    return problems


PATH = re.compile(r"(?:examples|scripts|tests|research|content)/[\w./*-]+")


def check_links(root, path, name, page):
    """Relative links, images and paths in code spans that lead nowhere."""
    problems = []
    for link, line in page.links:
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        goal = (path.parent / target) if target else path
        if not goal.exists():
            problems.append(Problem(name, line, f"the link {link} leads to nothing"))
        elif anchor and goal.suffix == ".md" and anchor not in Page(goal.read_text(encoding="utf-8")).anchors:
            problems.append(Problem(name, line, f"the link {link} leads to no heading of that file"))
    for found, line in page.code:
        if PATH.fullmatch(found) and not list(root.glob(found.replace("NN", "??"))):
            problems.append(Problem(name, line, f"the path {found} does not exist"))
    return problems


def check_commands(root, name, page):
    """Commands in `sh` blocks that the script's own parser or the Makefile would not take. Other programs are left alone."""
    problems = []
    for language, block, line in page.blocks:
        for i, row in enumerate(block.splitlines() if language in ("sh", "bash", "console") else ()):
            problem = command_problem(root, row.strip().removeprefix("$ "))
            if problem:
                problems.append(Problem(name, line + 1 + i, f"the command `{row.strip()}` does not work: {problem}"))
    return problems


def check_records(root, records, used, claimed):
    """Records, claims and register that are out of step with the experiments, and what no manuscript uses."""
    problems = []
    written = manuscripts(root)
    for e in experiments():
        where = f"research/{e.chapter}/results.json"
        record = records.get(e.id)
        if record is None:
            problems.append(Problem(where, 1, f"there is no result {e.id}; run make evidence ONLY={e.id}"))
            continue
        stale = [f for f in ("claim", "kind", "limits") if record[f] != getattr(e, f)]
        if stale:
            what = f"{e.id} has another {', '.join(stale)} than its experiment; run make evidence ONLY={e.id}"
            problems.append(Problem(where, 1, what))
        if record["kind"] == "tolerance" and not record["values"]["held"]:
            what = f"{e.id} is outside its bound: {record['values']['worst']} > {record['values']['bound']}"
            problems.append(Problem(where, 1, what))
        try:
            headline(e, record)
        except (LookupError, ValueError) as error:
            problems.append(Problem(where, 1, f"the headline of {e.id} names nothing: {error.args[0]}"))
        if e.chapter in written and e.id not in used:
            problems.append(Problem(where, 1, f"no manuscript uses {e.id}"))
    for c in claims(root):
        where = f"research/{c.chapter}/claims.json"
        if c.chapter in written and c.id not in claimed:
            problems.append(Problem(where, 1, f"no manuscript makes the claim {c.id}"))
        for ref in c.evidence:
            if ref not in records:
                problems.append(Problem(where, 1, f"the claim {c.id} rests on {ref}, which has no result"))
    for ref, record in records.items():
        if not ref.startswith("published.") and record["id"] not in {e.id for e in experiments()}:
            problems.append(Problem(f"research/{ref.split('.')[0]}/results.json", 1, f"{ref} is of no experiment"))
    path = register_path(root)
    if not path.exists() or path.read_text(encoding="utf-8") != register(root):
        what = "is not what the experiments, the claims, the records and the pages make; run make refresh"
        problems.append(Problem(path.relative_to(root).as_posix(), 1, what))
    return problems


def check_figures(root):
    """Figures that are not what their records draw."""
    return [
        Problem(path.relative_to(root).as_posix(), 1, f"is not what {id} draws; run make refresh")
        for path, id in stale_figures(root)
    ]


BLIND = """What this cannot see: whether a sentence says of its number what is so. A word that is
reversed, "most" for "least" beside the right number, passes; that wants a reader. Nor, without
--run, whether a command still prints what its transcript shows; the tests run every transcript."""


def options():
    """The script's argument parser."""
    parser = Parser(prog="check.py", description=__doc__, epilog=BLIND)
    about = "run every command whose output a page shows, and compare; some minutes"
    parser.add_argument("--run", action="store_true", help=about)
    return parser


@command
def main(argv=None):
    """Print what is wrong, a line each."""
    args = options().parse_args(argv)
    problems = check(run=args.run)
    for problem in problems:
        print(problem)
    if problems:
        raise BadInput(f"{len(problems)} of these; mend them, or run make refresh where a record or the code changed")
    print(f"{len(manuscripts(ROOT))} manuscripts, {len(load_records(ROOT))} records: nothing wrong")


if __name__ == "__main__":
    sys.exit(main())
