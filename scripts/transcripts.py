"""Transcripts in a page: a command, and below it what it prints, run here and cut to the lines that the text needs.

A marker stands on a line of its own, and what it makes below it:

    <!--run python examples/ch04/causal_mask.py | 3-6,14,20-->

    ```sh
    python examples/ch04/causal_mask.py
    ```

    ```text
    ...
    the lines 3 to 6 of what it prints on stdout
    ...
    ```

    <!--/-->

Write `<!--run COMMAND--><!--/-->`, and `make refresh` puts the rest between. Behind a ` | ` stand the lines that are shown, counted
from 1 (`20-` is line 20 and all after it); three dots stand where others are left out. Without it all are. The command is one of
our scripts, called in this process through its `main`, in an empty folder, with one thread. What prints times, or anything else
that another run prints otherwise, is refused: show a table of its record in its place.
"""

import contextlib
import importlib
import io
import os
import re
import tempfile

import torch

from scripts.commands import command_problem, script

RUN = re.compile(r"<!--run (?P<spec>[^\n]*?)-->(?P<body>(?:(?!<!--).)*?)<!--/-->", re.S)
RANGES = re.compile(r"\d+(-\d*)?(\s*,\s*\d+(-\d*)?)*")
BODY = re.compile(r"\n\n```sh\n(?P<command>[^\n]+)\n```\n\n```text\n(?P<output>(?:(?!```).)*\S(?:(?!```).)*)\n```\n\n", re.S)


def parsed(spec):
    """(command, ranges) of a marker's text, ranges being [(first, last)] with None for the end, or None for all lines; raises
    ValueError."""
    command, bar, lines = spec.strip().rpartition(" | ")
    if not bar:
        return spec.strip(), None
    if not RANGES.fullmatch(lines.strip()):
        raise ValueError(f"{lines.strip()!r} are no lines; give 3-14,20, say")
    ranges, after = [], 1
    for part in lines.split(","):
        first, dash, last = part.strip().partition("-")
        found = int(first), (int(last) if last else None) if dash else int(first)
        if found[0] < after or (found[1] is not None and found[1] < found[0]):
            raise ValueError(f"the lines {lines.strip()} do not rise from 1")
        ranges.append(found)
        after = float("inf") if found[1] is None else found[1] + 1
    return command.strip(), ranges


def cut(output, ranges):
    """The lines of `output` in `ranges`, with `...` for others but blank ones; raises ValueError where it has too few."""
    lines = [line.rstrip() for line in output.rstrip().split("\n")]
    if ranges is None:
        return "\n".join(lines)
    shown, after = [], 0
    for first, last in [*ranges, (len(lines) + 1, len(lines))]:
        last = len(lines) if last is None else last
        if first > len(lines) + 1 or last > len(lines):
            raise ValueError(f"it prints {len(lines)} lines, and line {max(first, last)} is asked for")
        shown += ["..."] if any(lines[after : first - 1]) else []
        shown += lines[first - 1 : last]
        after = last
    return "\n".join(shown)


def call(command):
    """What `command` prints on stdout; raises ValueError where it fails."""
    name, arguments = script(command)
    module = importlib.import_module(name)
    if module.options().get_default("threads") is not None:
        arguments = [*arguments, "--threads", "1"]
    out, err = io.StringIO(), io.StringIO()
    with _elsewhere(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = module.main(arguments)
        except SystemExit as stop:  # --help
            status = stop.code
    if status:
        raise ValueError(f"it fails: {' '.join(err.getvalue().split())}")
    return out.getvalue()


@contextlib.contextmanager
def _elsewhere():
    """An empty folder to work in and a terminal of 100 columns; folder, width and threads are afterwards what they were."""
    here, columns, threads = os.getcwd(), os.environ.get("COLUMNS"), torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["COLUMNS"] = "100"
        try:
            yield
        finally:
            os.chdir(here)
            torch.set_num_threads(threads)
            if columns is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = columns


def transcript(root, spec, runs=2):
    """What should stand between the markers of `spec`; raises ValueError that says why it cannot.

    runs: how often the command is run; with two, one that prints something else the second time is refused.
    """
    command, ranges = _checked(root, spec)
    outputs = {call(command) for _ in range(runs)}
    if len(outputs) > 1:
        raise ValueError("it prints something else in a second run, a time perhaps; show a record's table in its place")
    output = cut(outputs.pop(), ranges)
    if "```" in output or "<!--" in output or not output.strip():
        raise ValueError("it prints nothing there, or what cannot be shown in a page")
    return f"\n\n```sh\n{command}\n```\n\n```text\n{output}\n```\n\n"


def transcript_problem(root, spec, body):
    """What is wrong with a transcript as it stands, as far as can be told without running it; None where nothing is."""
    try:
        command, ranges = _checked(root, spec)
    except ValueError as error:
        return str(error)
    found = BODY.fullmatch(body)
    if not found:
        return "it is not a sh block with the command and a text block with what it prints; run make refresh"
    if found["command"] != command:
        return f"the block shows `{found['command']}`, the marker says `{command}`; run make refresh"
    if ranges is not None and all(last for _, last in ranges):
        lines, wanted = found["output"].split("\n"), sum(last - first + 1 for first, last in ranges)
        if not wanted <= len(lines) <= wanted + len(ranges) + 1:
            return f"{len(lines)} lines stand, {wanted} are asked for; run make refresh"
    return None


def _checked(root, spec):
    """`parsed`, of a command that can be run; raises ValueError."""
    command, ranges = parsed(spec)
    if wrong := command_problem(root, command):
        raise ValueError(wrong)
    if script(command) is None or command.split()[0] != "python":
        raise ValueError("only `python examples/...` or `python scripts/...` can be shown with what it prints")
    return command, ranges
