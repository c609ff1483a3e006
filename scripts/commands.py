"""The commands that a page shows: which script of ours one runs, and whether that takes what stands behind it."""

import contextlib
import importlib
import io
import re
import shlex

from examples.lab.script import BadInput

ROOMS = ("examples", "scripts")


def script(row):
    """(module, arguments) of a command that runs one of our scripts, and None of any other; raises ValueError for open quotes."""
    words = _words(row)
    if len(words) < 2 or words[0].rpartition("/")[2] not in ("python", "python3"):
        return None
    if words[1] == "-m":
        module, arguments = "".join(words[2:3]), words[3:]
    else:
        module, arguments = words[1].removesuffix(".py").replace("/", "."), words[2:]
    return (module, arguments) if module.split(".")[0] in ROOMS else None


def command_problem(root, row):
    """Why the Makefile under `root`, or the script's own parser, would not take the command `row`; None where it would, and of
    other programs."""
    try:
        words, found = _words(row), script(row)
    except ValueError as error:
        return str(error)
    if words[:1] == ["make"]:
        return _target_problem((root / "Makefile").read_text(encoding="utf-8"), words[1:])
    if found is None:
        return None
    module, arguments = found
    if not (root / (module.replace(".", "/") + ".py")).exists():
        return f"there is no {module}"
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # --help prints
            importlib.import_module(module).options().parse_args(arguments)
    except BadInput as error:
        return str(error)
    except SystemExit:  # --help
        return None
    return None


def _words(row):
    """The words of a command, without the settings of the environment before it and the comment behind it."""
    words = shlex.split(row, comments=True)
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    return words


def _target_problem(makefile, words):
    for word in words:
        variable = re.fullmatch(r"([A-Z_]+)=.*", word)
        known = rf"\$\({variable[1]}\)" if variable else rf"(?m)^{re.escape(word)}:"
        if not re.search(known, makefile):
            return f"the Makefile has no {word}"
    return None
