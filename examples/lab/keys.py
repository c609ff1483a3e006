"""What the keys of --json mean: a line for each in the keys.toml of the script's chapter, which --help shows.

    [agreement]                                   # of agreement.py
    common = "bound worst"                        # these mean what examples/lab/keys.toml says of them
    "all_ms, last_ms" = "milliseconds of a pass: with all logits, and with the last alone"
    "config.*" = "one field of it"                # whatever stands directly below the key config; * is any text

tests/test_every_script.py holds the lines to the keys that are printed.
"""

import textwrap
import tomllib
from pathlib import Path

COMMON = Path(__file__).with_name("keys.toml")


def declared(script):
    """[(names, what they mean)] for the path of a script, in the order of the file; those of its `common` stand last."""
    script = Path(script)
    lines = dict(_read(script.with_name("keys.toml")).get(script.stem, {}))
    texts, common = _read(COMMON), lines.pop("common", "").split()
    return [(names.split(", "), text) for names, text in lines.items()] + [([name], texts[name]) for name in common]


def in_help(script, width):
    """The lines for --help, indented as an option's help is; "" where there are none."""
    shown = []
    for names, text in declared(script):
        head, indent = "  " + ", ".join(names), " " * 24
        first, rest = (
            (head.ljust(23) + " ", []) if len(head) < 23 else (indent, [textwrap.fill(head, width, subsequent_indent="  ")])
        )
        shown += [*rest, textwrap.fill(text, width, initial_indent=first, subsequent_indent=indent)]
    head = "keys of --json, beside ran_with, the arguments, and not_finite, where null stands for no number:\n"
    return head + "\n".join(shown) + "\n" if shown else ""


def _read(path):
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
