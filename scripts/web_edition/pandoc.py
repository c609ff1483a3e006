"""pandoc, as the package pypandoc_binary carries it: Markdown into a tree, and a tree into a page or a book.

A tree is pandoc's own JSON: a list of blocks, each {"t": kind, "c": content}; in their content stand inlines of the same form.
"""

import functools
import json
import subprocess
from pathlib import Path

from examples.lab.script import BadInput

MARKDOWN = "gfm+tex_math_dollars"  # GitHub's, with its ids of headings, so that the manuscripts' links hold
TEXT = {"Str", "Code"}
GAPS = {"Space", "SoftBreak", "LineBreak"}


@functools.cache
def program():
    """Where the package keeps pandoc; raises BadInput where it is not installed."""
    try:
        import pypandoc
    except ModuleNotFoundError:
        raise BadInput("the package pypandoc_binary is not installed here; run make web, which installs it") from None
    return Path(pypandoc.__file__).parent / "files" / "pandoc"


@functools.cache
def version():
    """[1, 23, 1], say: the version of the trees that this pandoc reads."""
    return json.loads(_run([], "a", "json"))["pandoc-api-version"]


def read(markdown):
    """The blocks of a Markdown text."""
    return json.loads(_run(["--from", MARKDOWN], markdown, "json"))["blocks"]


def write(blocks, meta, form, *options, env=None):
    """A tree in the format `form`, as text, or nothing where an option names a file for it.

    meta: {name: markup as it is, what `words` made of a text, a list or a dict of such}.
    """
    meta = {name: _meta(value) for name, value in meta.items() if value is not None}
    tree = {"pandoc-api-version": version(), "meta": meta, "blocks": blocks}
    return _run(["--from", "json", *map(str, options)], json.dumps(tree), form, env)


def _meta(value):
    if isinstance(value, dict) and "t" in value:
        return value
    if isinstance(value, dict):
        return {"t": "MetaMap", "c": {key: _meta(one) for key, one in value.items()}}
    if isinstance(value, list):
        return {"t": "MetaList", "c": [_meta(one) for one in value]}
    return {"t": "MetaInlines", "c": [raw(value)]}


def words(text):
    """A text, for a meta value that is no markup."""
    return {"t": "MetaString", "c": text}


def _run(options, text, form, env=None):
    argv = [program(), *options, "--to", form, "--wrap=none"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, encoding="utf-8", env=env)
    if done.returncode or done.stderr:
        raise BadInput(f"pandoc: {' '.join(done.stderr.split())}")
    return done.stdout


# ------------------------------------------------------------------------------------------------------------------ trees


def raw(markup):
    """An inline of markup, written as it is."""
    return {"t": "RawInline", "c": ["html", markup]}


def raw_block(markup):
    """A block of markup, written as it is."""
    return {"t": "RawBlock", "c": ["html", markup]}


def changed(tree, change):
    """`tree` with `change(node)` for each node, from within outwards: a node, or a list of nodes to stand in its place."""
    if isinstance(tree, list):
        found = []
        for part in tree:
            new = changed(part, change)
            found += new if isinstance(part, dict) and isinstance(new, list) else [new]
        return found
    if not isinstance(tree, dict):
        return tree
    node = {key: changed(value, change) for key, value in tree.items()}
    return change(node) if "t" in node else node


def nodes(tree):
    """All nodes of a tree, in the order of the text."""
    if isinstance(tree, list):
        for part in tree:
            yield from nodes(part)
    elif isinstance(tree, dict):
        if "t" in tree:
            yield tree
        for value in tree.values():
            yield from nodes(value)


def plain(tree):
    """The text of a tree, without its markup."""
    parts = []
    for node in nodes(tree):
        if node["t"] == "Str":
            parts.append(node["c"])
        elif node["t"] in ("Code", "Math", "CodeBlock"):
            parts.append(node["c"][1])
        elif node["t"] in GAPS or node["t"] in ("Para", "Plain"):
            parts.append(" ")
    return " ".join("".join(parts).split())
