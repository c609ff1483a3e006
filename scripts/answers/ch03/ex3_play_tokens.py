"""A play without what is special to plays."""

import re


def without_headings(text):
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("ACT ", "SCENE ")))


def without_speakers(text):
    kept, before = [], "\n"
    for line in text.splitlines(keepends=True):
        if not (line.rstrip("\n").endswith(":") and before == "\n"):
            kept.append(line)
        before = line
    return "".join(kept)


def without_directions(text):
    return re.sub(r"\[[^\]]*\]", "", text)


def without_line_ends(text):
    return re.sub(r"\n+", " ", text.strip("\n"))


def closed_percent(start, steps, goal):
    return [100 * (b - a) / (goal - start) for a, b in zip([start, *steps], steps, strict=False)]
