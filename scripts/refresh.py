"""Write anew what is made from the records and the code: figures, what stands between markers, the register. Runs no experiment.

    make refresh

Numbers and tables come from the records (scripts/markers.py), listings from the files that run (scripts/listings.py), exercises
from their starters (scripts/grading/exercises.py), transcripts from the commands, each of which is run twice
(scripts/transcripts.py). A marker that names nothing is left as it is, and named.
"""

import functools
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.lab.script import BadInput, Parser, command, progress_bar, write_whole
from scripts.experiments import ROOT
from scripts.figures import draw
from scripts.grading.exercises import SECTION, section
from scripts.listings import CODE, listing
from scripts.markers import load_records, pages, refreshed
from scripts.page import Problem, line_at
from scripts.register import write_register
from scripts.transcripts import RUN, transcript


def refresh(root, progress=lambda: None):
    """Refresh all of it under `root`; a list of `Problem`, one for each listing or transcript that cannot be made."""
    draw(root)
    problems = refresh_pages(root, progress)
    write_register(root)
    return problems


def refresh_pages(root, progress=lambda: None):
    """Refresh what stands between the markers of every page under `root`; a list of `Problem`."""
    records, problems = load_records(root), []

    @functools.cache
    def shown(spec):
        found = transcript(root, spec)
        progress()
        return found

    for path in pages(root):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        new, unmade = refreshed(text, records), []
        makers = ((CODE, functools.partial(listing, root, path)), (SECTION, functools.partial(section, root, path)), (RUN, shown))
        for pattern, make in makers:
            new, wrong = _filled(new, pattern, make)
            unmade += wrong
        problems += [Problem(name, line_at(new, new.index(marker)), what) for marker, what in unmade]
        if new != text:
            write_whole(path, new)
    return problems


def _filled(text, pattern, make):
    """(text, [(marker, what)]): `text` with `make(spec)` between the markers of `pattern`, and those that it cannot make."""
    wrong = []

    def fill(match):
        head = match[0][: match.start("body") - match.start()]
        try:
            body = make(match["spec"])
        except (LookupError, ValueError) as error:
            wrong.append((head, f"the marker `{match['spec']}` cannot be filled: {error.args[0]}"))
            return match[0]
        return head + body + "<!--/-->"

    return pattern.sub(fill, text), wrong


def options():
    """The script's argument parser."""
    return Parser(prog="refresh.py", description=__doc__)


@command
def main(argv=None):
    """Refresh, and name what could not be."""
    options().parse_args(argv)
    with progress_bar("transcript") as bar:
        problems = refresh(ROOT, bar.update)
    tell(problems)
    print("figures, manuscripts, README and register are what records and code make; look at git diff, then run make check")


def tell(problems):
    """Print `problems`, a line each; raises BadInput where there are any."""
    for problem in problems:
        print(problem)
    if problems:
        raise BadInput(f"{len(problems)} of these could not be made; all others are refreshed")


if __name__ == "__main__":
    sys.exit(main())
