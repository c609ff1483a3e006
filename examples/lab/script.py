"""How every script of this book is called, and how it answers.

A script is a function `main(argv=None)` under the decorator `command`. Bad input raises `BadInput`, which becomes one line on
stderr and exit status 2; tables go to stdout for a person, or one strict JSON object with `--json`; files are written whole
or not at all. Nothing here knows about models.
"""

import argparse
import contextlib
import functools
import json
import math
import numbers
import os
import re
import secrets
import shutil
import sys
import textwrap
from pathlib import Path

from tabulate import tabulate
from tqdm import tqdm

from examples.lab.keys import in_help
from examples.lab.timing import warn_if_busy

COLUMNS = 98  # of the help and of what a script prints, at most 100
DIGITS = 7  # of the floats that --json prints: as many as float32 has, so that 2.9 is not 2.9000000953674316


class BadInput(ValueError):
    """Input that the caller can mend. Its text is one line: what is wrong, and what to do."""


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the defaults that say something: not None, and not that a switch is off. Leaves the examples' lines as they are."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{"width": min(shutil.get_terminal_size().columns - 2, COLUMNS)} | kwargs)

    def _get_help_string(self, action):
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def _example(line):
    """A command of a docstring; where it is too long with the comment behind it, the comment stands before it."""
    command, sign, words = line.partition("  # ")
    return line if len(line) < COLUMNS - 2 or not sign else f"# {words.strip()}\n  {command.strip()}"


class Parser(argparse.ArgumentParser):
    """argparse with defaults shown in the help, no guessed abbreviations, and errors as `BadInput`.

    description: a script's docstring, whole: its first line and the commands in it are shown in the help. It is None under
    `python -OO`, which takes docstrings away, and the help then has neither. keys: the script's file, for which lab/keys.py finds
    what the help says of the keys that --json prints.
    """

    def __init__(self, *args, description=None, keys=None, **kwargs):
        first, *rest = (description or "").strip().splitlines() or [None]
        examples = [line.strip() for line in rest if line.lstrip().startswith(("python ", "make "))]
        kwargs.setdefault("epilog", "\n  ".join(["examples:", *map(_example, examples)]) if examples else None)
        kwargs.setdefault("formatter_class", _Help)
        kwargs.setdefault("allow_abbrev", False)
        self.keys = keys
        super().__init__(*args, description=first and textwrap.fill(first, COLUMNS), **kwargs)

    def format_help(self):
        keys = in_help(self.keys, COLUMNS) if self.keys else ""
        return super().format_help() + (f"\n{keys}" if keys else "")

    def parse_args(self, args=None, namespace=None):
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            raise BadInput(f"unknown: {' '.join(rest)}; `{self.prog} --help` lists what it takes")
        return found

    def error(self, message):
        raise BadInput(f"{message}; `{self.prog} --help` lists what it takes")

    def add(self, *names):
        """Add options that several scripts share: model, dtype, device, prompt, threads, seed, plot, json."""
        for name in names:
            self.add_argument(f"--{name}", **_SHARED[name])
        return self


def as_whole(value):
    """`value` as an int where it is a whole number, numpy's kinds too; None for anything else, as True, 2.0 and "2" are."""
    return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else None


def as_number(value):
    """`value` as an int or a float where it is a real number, numpy's kinds too; None for anything else, True and "2" say."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    return as_whole(value) if isinstance(value, numbers.Integral) else float(value)


def whole_number(minimum, maximum=None):
    """An argparse type: a whole number from `minimum` up, to `maximum` where one is given."""

    def convert(text):
        bounds = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, {bounds}") from None
        if value < minimum or (maximum is not None and value > maximum):
            raise argparse.ArgumentTypeError(f"{value} is not {bounds}")
        return value

    return convert


def positive_number(text):
    """An argparse type: a number from 1e-6 to 1e9."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-6 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1e-6 to 1e9")
    return value


def or_off(convert):
    """An argparse type: what `convert` makes of the text, or None for the word "off"."""
    return lambda text: None if text == "off" else convert(text)


def number_list(minimum):
    """An argparse type: whole numbers separated by commas, each `minimum` or more."""
    one = whole_number(minimum)
    return lambda text: [one(part) for part in text.split(",")]


_SHARED = {
    "model": dict(
        default="embedded",
        metavar="SOURCE",
        help="embedded, a folder, a .gguf file, smollm2, random:gpt2 or another shape, or a hub id owner/name[@revision]",
    ),
    "dtype": dict(choices=["float64", "float32", "bfloat16", "float16"], default="float32", help="what to compute in"),
    "device": dict(choices=["cpu", "cuda"], default="cpu", help="where to compute"),
    "prompt": dict(default=None, metavar="TEXT", help="by default one of the chapter's, or random ids for random weights"),
    "threads": dict(type=whole_number(1, 1024), default=1, metavar="N", help="torch threads"),
    "seed": dict(type=whole_number(0, 2**63 - 1), default=0, metavar="N", help="of weights and ids that are drawn at random"),
    "plot": dict(type=Path, default=None, metavar="FILE", help="draw it: .svg, .png or .pdf"),
    "json": dict(action="store_true", help="print one JSON object instead of tables"),
}


def command(body):
    """Make `body(argv)` a script's `main`: exit status 0, 2 with one line on stderr for bad input, 130 for an interrupt."""

    @functools.wraps(body)
    def main(argv=None):
        for name in ("stdout", "stderr"):  # a caller may have closed either
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  for as long as the process lasts
        if hasattr(sys.stdout, "reconfigure"):  # a terminal that cannot show a piece of text gets its escape instead
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            body(argv)
            sys.stdout.flush()
            return 0
        except BadInput as error:
            message = str(error)
        except BrokenPipeError as error:  # the reader of our output, say `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 130 if isinstance(error.__context__, KeyboardInterrupt) else 0
        except ModuleNotFoundError as error:
            if not error.name or error.name.partition(".")[0] in ("examples", "scripts"):
                raise  # a defect of ours
            message = f"the package {error.name} is not installed here; `make ready` installs what requirements.txt names"
        except OSError as error:
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        except KeyboardInterrupt:
            print("error: interrupted", file=sys.stderr)
            return 130
        print("error: " + " ".join(message.split()), file=sys.stderr)
        return 2

    return main


def _words(column):
    """Whether the cells of a column are words: most of those that say something begin like no number."""
    said = [str(cell) for cell in column if str(cell) not in ("", "n/a")]
    return sum(not re.match(r"[-+~<>]?\.?\d|-?inf|nan", cell) for cell in said) > len(said) / 2


def table(headings, rows):
    """Text of a table: numbers to the right, the first column and every other column of words to the left."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headings)
    align = ["left" if i == 0 or _words(column) else "right" for i, column in enumerate(columns)]
    return tabulate(rows, headings, tablefmt="simple", colalign=align, disable_numparse=True)


def counted(number, noun):
    """A number of things in words: 1 sequence, 2,048 sequences."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def progress_bar(unit, total=None):
    """A progress bar on stderr, where that is a terminal, for work of more than five seconds: `with progress_bar(...) as bar:
    bar.update()`. total: how many units there will be, where that is known."""
    return tqdm(total=total, unit=unit, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False)


def dump_json(value):
    """Strict JSON of plain values, indented, in ASCII so that any stream takes it; raises ValueError on NaN and Infinity,
    TypeError on tensors."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def finite(value):
    """`value` as --json prints it: floats to DIGITS significant digits, null for what is no number in JSON, and, where that
    happened, a key that says so."""
    lost = []

    def clean(x, path):
        if isinstance(x, dict):
            return {k: clean(v, f"{path}.{k}" if path else k) for k, v in x.items()}
        if isinstance(x, list):
            return [clean(v, f"{path}[{i}]") for i, v in enumerate(x)]
        if isinstance(x, float) and not math.isfinite(x):
            lost.append(f"{path}: {x}")
            return None
        return float(f"{x:.{DIGITS}g}") if isinstance(x, float) else x

    cleaned = clean(value, "")
    return cleaned | ({"not_finite": lost} if lost else {})


def answer(args, values, report, draw=None, notes=()):
    """A script's answer. With --json: one strict JSON object of `values`, {measurement: what it returned}, and under `ran_with` the
    arguments that it ran with, as `finite` has them. Else the text of `report(values)`.

    draw: called as draw(values, path) where --plot names a file, before anything is printed. Where runs were timed, stderr says
    so if the machine looks busy; notes: what else says that, as `far_from_record` finds it.
    """
    path = getattr(args, "plot", None)
    if path is not None:
        draw(values, path)
    if args.json:
        given = {name: value for name, value in vars(args).items() if name not in ("json", "plot")}
        ran_with = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        print(dump_json(finite({"ran_with": ran_with, **values})), end="")
    else:
        print(report(values) + (f"\n\nplot: {path}" if path is not None else ""))
    warn_if_busy(notes)


def parse_json(text):
    """The value of strict JSON `text`; raises ValueError on NaN, Infinity and a key given twice."""

    def once(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
        if twice:
            raise ValueError(f"the key {twice[0]!r} stands there twice")
        return dict(pairs)

    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path):
    """The object in the JSON file at `path`; raises BadInput that names the file."""
    try:
        value = parse_json(Path(path).read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; check the path, a model is a folder that holds it") from None
    except ValueError as error:
        raise BadInput(f"{path} is not strict JSON ({error}); fetch or write it again") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path} holds a JSON {type(value).__name__}, not an object; fetch or write it again")
    return value


def write_whole(path, data):
    """Write `data`, text or bytes, to `path` so that a reader sees the old file or the whole new one, never a part.

    A link is followed. Raises BadInput that names `path` where it cannot be written.
    """
    goal = Path(os.path.realpath(path))
    partial = goal.with_name(f".{secrets.token_hex(8)}.partial")
    data = data.encode("utf-8") if isinstance(data, str) else memoryview(data)
    try:
        partial.write_bytes(data)
        partial.replace(goal)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); choose another place") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
