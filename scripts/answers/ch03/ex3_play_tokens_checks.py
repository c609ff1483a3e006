"""Checks of ch03.3: a play without headings, speakers, directions and line ends, and the distance that each step closes."""

from scripts.grading.answers import Mutant

NAMES = ("HAMLET:", "First Witch:", "KING HENRY V:", "ALL:")
LINES = (
    "What news from the north?",
    "I said: nothing.",
    "Mark, king of Scotland, mark:",
    "ACT as he did",
    "The SCENE is set",
    "Go, ACT I",
)
DIRECTIONS = ("[Exeunt]", "[Enter ROSS,\nwith others]", "[Thunder:]", "[Aside] [To BANQUO]", "[Exit]: ")


def play(draw):
    """A play of some speeches; its lines end in colons now and then, and directions stand within speeches too."""
    parts = [draw.choice(("ACT I", "SCENE II. A heath:", "ACT IV\n\nSCENE I. A cavern"))]
    for _ in range(draw.whole(3, 6)):
        lines = [draw.choice(LINES) for _ in range(draw.whole(1, 4))]
        if draw.whole(0, 2) == 0:
            lines.insert(draw.whole(0, len(lines)), draw.choice(DIRECTIONS))
        parts.append("\n".join([draw.choice(NAMES), *lines]))
        if draw.whole(0, 1):
            parts.append(draw.choice(DIRECTIONS))
    return "\n\n".join(parts) + "\n" * draw.whole(0, 2)


EDGES = (
    "",
    "\n",
    "HAMLET:",
    "A\nB:\n\nC:\nD:\nE",
    "[a",
    "a]b[c]d",
    "ACT",
    "ACT I",
    "  ACT I\nSCENE",
    "[[x] y]",
    "\n\n\nALL:\n\n\nGo:\n\n",
)


def cases(draw):
    for f in ("without_headings", "without_speakers", "without_directions", "without_line_ends"):
        for _ in range(10):
            yield f.replace("_", " "), f, {"text": play(draw)}
        for text in EDGES:
            yield f"{f.replace('_', ' ')}, short texts", f, {"text": text}
    for n in (1, 2, 4, 5):
        start = draw.uniform(1, 2)
        yield (
            "the distance closed",
            "closed_percent",
            {"start": start, "steps": [draw.uniform(1, 3) for _ in range(n)], "goal": start + 1},
        )
        goal = draw.uniform(1, 1.5)
        yield (
            "the distance closed, downwards",
            "closed_percent",
            {"start": 3.0, "steps": [draw.uniform(1, 3) for _ in range(n)], "goal": goal},
        )


TOLERANCE = 1e-9

MUTANTS = [
    Mutant(
        "the lines of a heading go, and their line ends stay",
        'return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("ACT ", "SCENE ")))',
        "return re.sub(r'(?m)^(ACT |SCENE ).*$', '', text)",
    ),
    Mutant(
        "a line that holds ACT or SCENE anywhere counts as a heading",
        'not line.startswith(("ACT ", "SCENE "))',
        "not re.search(r'ACT |SCENE ', line)",
    ),
    Mutant(
        "a heading of blanks and ACT counts as well; the line has to begin with it",
        'not line.startswith(("ACT ", "SCENE "))',
        'not line.strip().startswith(("ACT ", "SCENE "))',
    ),
    Mutant("headings of scenes stay", '("ACT ", "SCENE ")', '("ACT ",)'),
    Mutant("every line that ends in a colon counts as a speaker", ' and before == "\\n"', ""),
    Mutant(
        "the name goes, and its line end stays",
        "            kept.append(line)\n",
        '            kept.append(line)\n        else:\n            kept.append("\\n")\n',
    ),
    Mutant("a speaker at the text's start stays", 'kept, before = [], "\\n"', 'kept, before = [], ""'),
    Mutant(
        "only names in capitals count as speakers",
        'line.rstrip("\\n").endswith(":")',
        'line.rstrip("\\n").endswith(":") and line.isupper()',
    ),
    Mutant(
        "behind a speaker that was taken out the next line counts as one as well",
        "        before = line\n",
        "            before = line\n",
    ),
    Mutant(
        "the whole speech goes with its speaker",
        "        if not (line",
        '        if before == "gone" and line != "\\n":\n            continue\n        if not (line',
        (("        before = line\n", '            before = line\n        else:\n            before = "gone"\n'),),
    ),
    Mutant("a direction over several lines stays", "[^\\]]*", "[^\\]\\n]*"),
    Mutant(
        "from the first [ to the last ] all is taken out, the text between two directions too",
        're.sub(r"\\[[^\\]]*\\]", "", text)',
        're.sub(r"(?s)\\[.*\\]", "", text)',
    ),
    Mutant("what stands within the brackets goes, and the brackets stay", '\\[[^\\]]*\\]", ""', '\\[[^\\]]*\\]", "[]"'),
    Mutant("a direction takes the line end behind it away as well", '[^\\]]*\\]"', '[^\\]]*\\]\\n?"'),
    Mutant("each line end becomes a blank by itself, so that an empty line leaves two", 'r"\\n+"', 'r"\\n"'),
    Mutant("line ends are taken out without a blank, and words grow together", '\\n+", " "', '\\n+", ""'),
    Mutant("a blank is left at the start or the end", 'text.strip("\\n"))', "text)"),
    Mutant(
        "all runs of blanks become one, not of line ends alone", 'r"\\n+", " ", text.strip("\\n")', 'r"\\s+|, ", " ", text.strip()'
    ),
    Mutant("each step is measured from the start, not from the step before it", "(b - a)", "(b - start)"),
    Mutant("the shares are of the start, not of the distance", "(goal - start)", "start"),
    Mutant("the shares are parts of 1, not per cent", "100 * (b", "(b"),
    Mutant("what is left is given, not what is closed", "(b - a)", "(goal - b)"),
    Mutant("steps away from the goal are taken for steps towards it", "(b - a) / (goal - start)", "abs(b - a) / abs(goal - start)"),
]

RANGES = {
    "without_headings": (2.1975, 2.1998),
    "without_speakers": (2.2620, 2.2645),
    "without_directions": (2.2818, 2.2842),
    "without_line_ends": (2.3956, 2.3980),
}
MISTAKES = {"without_headings": [(2.1970, 2.1974, "this is the play as it is")]}

RUBRIC = """
1 point: of the distance from 2.20 to 2.69 the steps close a small part each, line ends and names most, and more than half is left.
1 point: a cause for what is left is called a guess (old words and names, say), and nothing is said of other plays.
"""
