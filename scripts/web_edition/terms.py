"""The index of terms: what the chapters' sections "Key terms" define, with links to them."""

from scripts.web_edition.pandoc import read
from scripts.web_edition.source import Page


def page(pages):
    """The page of the terms."""
    return Page("terms", "Terms", blocks=read("# Terms\n"))
