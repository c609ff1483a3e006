"""A page of Markdown as what it holds: headings, links, code and prose, each with its line; and what a check says of one."""

import re
import urllib.parse
from dataclasses import dataclass

from markdown_it import MarkdownIt


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, at a line of a file."""

    path: str
    line: int
    what: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


MARKDOWN = MarkdownIt("commonmark").enable("table")
HEAD = re.compile(r"\A---\n.*?\n---\n", re.S)  # the front matter, which is no Markdown
MATH = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.S)
COMMENT, TAG = re.compile(r"<!--.*?-->", re.S), re.compile(r"<[^>]*>")
SIGN = "¤"  # stands where something was taken out, so that what is beside it stays apart


def without(text, pattern, sign=""):
    """`text` with `sign` for every match of `pattern`, and its line breaks, so that lines keep their numbers."""
    return pattern.sub(lambda match: sign + "\n" * match[0].count("\n"), text)


def line_at(text, at):
    """The number of the line that position `at` of `text` is in."""
    return text.count("\n", 0, at) + 1


class Page:
    """What Markdown makes of a text, each thing with the number of its line.

    headings: (level, text, line). links: (target, line), images too. images: (alternative text, line). code: (text, line) of code
    spans. blocks: (language, text, line) of fenced and indented code. html: (text, line) of lines that are HTML. prose: (text,
    line) of all other text, without code, link targets, tags and comments.
    """

    def __init__(self, text):
        self.headings, self.links, self.images, self.code, self.blocks, self.html, self.prose = [], [], [], [], [], [], []
        level = 0
        for token in MARKDOWN.parse(without(text, HEAD)):
            line = token.map[0] + 1 if token.map else None
            if token.type == "heading_open":
                level = int(token.tag[1])
            elif token.type in ("fence", "code_block"):
                self.blocks.append((token.info.strip(), token.content, line))
            elif token.type == "html_block":
                self.html.append((token.content, line))
                self.prose.append((without(without(token.content, COMMENT), TAG), line))
            elif token.type == "inline":
                self.prose.append((self._prose(token.children, line), line))
                if level:
                    shown = "".join(t.content for t in token.children if t.type in ("text", "code_inline"))
                    self.headings.append((level, shown.strip(), line))
                level = 0

    def _prose(self, tokens, line):
        """The prose of `tokens`, which begin in `line`."""
        text, address = "", False
        for token in tokens:
            here = line + text.count("\n")
            target = token.attrs.get("href") or token.attrs.get("src")
            if target:
                self.links.append((urllib.parse.unquote(target), here))
            if token.markup == "autolink":  # its text is its target
                address = token.type == "link_open"
            elif token.type == "code_inline":
                self.code.append((token.content, here))
                text += SIGN
            elif token.type in ("softbreak", "hardbreak"):
                text += "\n"
            elif token.type == "image":
                self.images.append((token.content, here))
                text += self._prose(token.children, here)
            elif token.type == "html_inline":
                text += "\n" * token.content.count("\n")
            elif not address:
                text += token.content
        return text

    @property
    def anchors(self):
        """What a link to each of the headings ends in, as GitHub makes it: a number follows where two have one text."""
        names = [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for _, text, _ in self.headings]
        return [f"{name}-{names[:i].count(name)}" if name in names[:i] else name for i, name in enumerate(names)]

    def heading(self, line):
        """(text, anchor) of the heading under which `line` stands, None before the first."""
        above = [(text, anchor) for (_, text, at), anchor in zip(self.headings, self.anchors, strict=True) if at <= line]
        return above[-1] if above else None
