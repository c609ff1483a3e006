"""Listings of code in a page: taken from the file that runs, by name, so that a moved line changes nothing and a changed one shows.

A marker stands on a line of its own, and what it makes below it, a block and a caption that links to the file:

    <!--code examples/ch04/gpt2_from_scratch.py layer_norm bare-->

    ```python
    def layer_norm(...):
    ```
    *`layer_norm` in [`examples/ch04/gpt2_from_scratch.py`](../../../examples/ch04/gpt2_from_scratch.py)*

    <!--/-->

Write `<!--code FILE NAME--><!--/-->`, and `make refresh` puts the rest between. NAME is a function, a class, a method
`Class.method`, or what is assigned to; several with commas between, and no space, stand in one block. Decorators, the comments
directly above and all within are shown. Behind the names may stand

- `bare`: docstrings are left out;
- `quiet`: statements that only call or set `trace` are left out, and a loop or an `if` that holds nothing else;
- `from="text"`, `to="text"`: a part of a function, dedented: its own statements from the first whose source starts with the one
  text to the last whose source starts with the other; without `from` from its start, without `to` to its end.
"""

import ast
import os
import re
import shlex
import textwrap
from pathlib import Path

CODE = re.compile(r"<!--code (?P<spec>[^\n]*?)-->(?P<body>(?:(?!<!--).)*?)<!--/-->", re.S)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
RULE = re.compile(r"\s*# ?-{9}")  # a line between the parts of a file, which is nobody's comment


def listing(root, page, spec):
    """What should stand between the markers of `spec` in the file `page`: block and caption.

    Raises ValueError or LookupError that says what is not there or cannot be shown.
    """
    file, names, left_out, first, last = _parsed(spec)
    path = Path(root) / file
    if path.suffix != ".py" or not path.is_file():
        raise LookupError(f"there is no {file}")
    source = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"{file} is not Python: {error}") from None
    nodes = [_find(tree, name) for name in names]
    part = first is not None or last is not None
    if part and len(nodes) > 1:
        raise ValueError("from and to want one function, not several names")
    pieces = [_part(source, nodes[0], first, last, left_out) if part else _whole(source, node, left_out) for node in nodes]
    wide = [isinstance(node, DEFINITIONS) and "." not in name for node, name in zip(nodes, names, strict=True)]
    code = pieces[0]
    for i, piece in enumerate(pieces[1:]):
        code += ("\n\n\n" if wide[i] or wide[i + 1] else "\n\n") + piece
    if "<!--" in code or "```" in code:
        raise ValueError("code that holds <!-- or ``` cannot be shown in a page")
    return f"\n\n```python\n{code}\n```\n{_caption(root, page, file, names, part)}\n\n"


def _caption(root, page, file, names, part):
    target = Path(os.path.relpath(Path(root) / file, Path(page).parent)).as_posix()
    *most, end = [f"`{name}`" for name in names]
    shown = ", ".join(most) + " and " + end if most else end
    return f"*{'From ' if part else ''}{shown} in [`{file}`]({target})*"


def _parsed(spec):
    """(file, names, what is left out, from, to) of a marker's text; raises ValueError."""
    file, names, *options = shlex.split(spec) if len(shlex.split(spec)) > 1 else ("", "")
    if not names:
        raise ValueError("it wants a file and a name")
    left_out, ends = set(), {}
    for option in options:
        key, equals, text = option.partition("=")
        if option in LEFT_OUT:
            left_out.add(option)
        elif key in ("from", "to") and equals and text:
            ends[key] = text
        else:
            raise ValueError(f'{option!r} is no option; there are {", ".join(LEFT_OUT)}, from="..." and to="..."')
    return file, names.split(","), left_out, ends.get("from"), ends.get("to")


def _find(tree, name):
    """The one node of that name, dots leading into a class."""
    node = tree
    for part in name.split("."):
        found = [child for child in getattr(node, "body", ()) if part in _names(child)]
        if len(found) != 1:
            raise LookupError(f"there is no {name!r}" if not found else f"{name!r} stands there {len(found)} times")
        node = found[0]
    return node


def _names(node):
    """What a statement defines."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _start(lines, node):
    """The number of the first line that is shown of `node`: of a comment directly above it, or of its decorators."""
    at = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    while at > 1 and lines[at - 2].lstrip().startswith("#") and not RULE.match(lines[at - 2]):
        at -= 1
    return at


def _whole(source, node, left_out):
    lines = source.split("\n")
    return _cut(lines, _start(lines, node), node.end_lineno, _hidden(lines, [node], left_out))


def _part(source, node, first, last, left_out):
    body = node.body if isinstance(node, DEFINITIONS) else []
    lines = source.split("\n")
    if "bare" in left_out and _has_docstring(node):
        body = body[1:]
    texts = [ast.get_source_segment(source, statement) for statement in body]
    if not texts:
        raise ValueError("from and to want a function with statements")
    starts = [i for i, text in enumerate(texts) if first is None or text.startswith(first)]
    ends = [i for i, text in enumerate(texts) if last is None or text.startswith(last)]
    for found, text in ((starts, first), (ends, last)):
        if not found:
            raise LookupError(f"no statement there starts with {text!r}")
    if ends[-1] < starts[0]:
        raise LookupError(f"the statement {last!r} stands before {first!r}")
    return _cut(lines, _start(lines, body[starts[0]]), body[ends[-1]].end_lineno, _hidden(lines, body, left_out))


def _cut(lines, start, end, hidden):
    return textwrap.dedent("\n".join(lines[at - 1] for at in range(start, end + 1) if at not in hidden))


def _hidden(lines, nodes, left_out):
    """The numbers of the lines of `nodes` that `left_out` leaves out."""
    return {at for node in nodes for word in left_out for at in LEFT_OUT[word](lines, node)}


def _has_docstring(node):
    return isinstance(node, DEFINITIONS) and ast.get_docstring(node, clean=False) is not None


def _docstrings(lines, node):
    """The numbers of the lines that hold docstrings within `node`, and of blank lines behind; one that is all that a definition
    has, or shares a line with other code, stays."""
    found = set()
    for inner in ast.walk(node):
        if _has_docstring(inner) and len(inner.body) > 1:
            text = inner.body[0]
            after = text.end_lineno + 1
            alone = lines[text.lineno - 1].lstrip()[:1] in ('"', "'", "r") and inner.body[1].lineno >= after
            while alone and after < inner.body[1].lineno and not lines[after - 1].strip():
                after += 1
            found |= set(range(text.lineno, after)) if alone else set()
    return found


def _traces(lines, node):
    """The numbers of the lines of statements within `node` that do nothing but call or set `trace`."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.stmt) and _only_traces(inner):
            found |= set(range(inner.lineno, inner.end_lineno + 1))
    return found


def _only_traces(node):
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "trace"
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] == ["trace"]
    return isinstance(node, (ast.For, ast.If)) and all(map(_only_traces, (*node.body, *node.orelse)))


LEFT_OUT = {"bare": _docstrings, "quiet": _traces}
