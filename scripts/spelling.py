"""The spelling of the prose: codespell's list of misspellings, and British where American differs. `.codespellrc` holds the words
that are right here all the same.
"""

import contextlib
import io
import re
import tempfile
from importlib import resources
from pathlib import Path

import codespell_lib

from scripts.experiments import ROOT
from scripts.markers import MARKER
from scripts.page import SIGN, Page, Problem, without

WORDS = ROOT / ".codespellrc"
QUOTED = re.compile(r'"[^"]*"')
ELSEWHERE = re.compile(r"\[[^\]]*\]\(https?://[^)]*\)")  # a title, which is spelt as its authors spell it
FOUND = re.compile(r"(?:.*/)?(\d+)\.txt:(\d+): (\S+) ==> (.+)")


def check_spelling(texts):
    """Words of the prose of {name: text}, Markdown, that are misspelt or American, as a list of `Problem`."""
    names, found = list(texts), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        american = Path(folder) / "american.dictionary"
        american.write_text("".join(f"{wrong}->{right}\n" for wrong, right in british().items()), encoding="utf-8")
        files = [Path(folder) / f"{i}.txt" for i in range(len(names))]
        for file, name in zip(files, names, strict=True):
            file.write_text(_prose(texts[name]), encoding="utf-8")
        settings = ["--config", str(WORDS), "--dictionary", "-", "--dictionary", str(american), "--disable-colors"]
        with contextlib.redirect_stdout(found), contextlib.redirect_stderr(found):
            try:
                status = codespell_lib.main(*settings, *map(str, files))
            except SystemExit as stop:
                status = stop.code
    problems = []
    for row in found.getvalue().splitlines():
        if match := FOUND.fullmatch(row):
            file, line, wrong, right = match.groups()
            what = f"{wrong!r} is spelt {right}; mend it, or put it into .codespellrc"
            problems.append(Problem(names[int(file)], int(line), what))
    if status and not problems:
        raise RuntimeError(f"codespell: {found.getvalue().strip()}")  # a defect of ours: wrong settings
    return problems


def british():
    """{American word: British one}."""
    text = resources.files("codespell_lib").joinpath("data", "dictionary_en-GB_to_en-US.txt").read_text(encoding="utf-8")
    pairs = (line.split("->") for line in text.splitlines())
    return {american: own for own, american in pairs}


def _prose(text):
    """The prose of a page, on the lines on which it stands there, without quotations, titles and what comes from records."""
    lines = [""] * (text.count("\n") + 1)
    for prose, line in Page(without(without(text, MARKER, SIGN), ELSEWHERE, SIGN)).prose:
        for i, row in enumerate(without(prose, QUOTED, SIGN).split("\n")):
            lines[line - 1 + i] += " " + row
    return "\n".join(lines)
