"""Checks of ch05.5: the greedy loop on a model that is a table, and the cycle."""

import torch

from scripts.grading.answers import Mutant

DRIVER = '''
import torch


def written(module, table, places, ids, tokens, window, ends):
    """What greedy decoding writes from a model whose logits depend on every id that it sees and on its place: the new ids, and how
    many ids each call of the model was given."""
    given = []

    def forward(x):
        given.append(list(x.shape))
        return (table[x] * places[: x.shape[1], None]).cumsum(1)

    made = module.greedy(forward, ids, tokens, window, ends)
    return [made, given]
'''


def model(draw, V, tokens, prompt):
    places = 1 + draw.normal(tokens + prompt + 1, scale=0.5)
    return {"table": draw.normal(V, V), "places": places, "ids": draw.ids(V, prompt).tolist(), "tokens": tokens}


def cases(draw):
    for prompt, tokens in ((1, 8), (5, 12), (3, 1)):
        yield "the loop", "written", {**model(draw, 13, tokens, prompt), "window": tokens + prompt, "ends": []}
    for prompt, window in ((2, 4), (9, 3), (6, 1), (4, 4), (3, 5)):
        yield "the loop with a window", "written", {**model(draw, 13, 15, prompt), "window": window, "ends": []}
    for window in (40, 3):
        made = model(draw, 17, 14, 3)
        ends = sorted(draw.order(17)[:6])
        made["ids"] = [ends[0], 2, ends[1]]
        made["table"][:, ends[0]] -= 9.0
        made["table"][:, ends[1:]] += 0.3
        made["table"][:, ends[1]] += 1.0
        for some in (ends, ends[:3], ends[1:2]):
            yield "end tokens", "written", {**made, "window": window, "ends": some}
    for _ in range(3):
        even = {**model(draw, 7, 6, 2), "window": 3, "ends": []}
        even["table"] = torch.zeros(7, 7)
        even["table"][:, draw.order(6)[:3]] = 1.0
        yield "equal logits", "written", even
    for start, length, window in ((0, 1, 2), (3, 4, 2), (5, 3, 3), (2, 6, 4), (7, 2, 5), (4, 5, 1), (6, 3, 7)):
        body = [100 + i for i in draw.order(length)]
        ids = draw.order(start) + body * (window + 3)
        yield "the cycle", "cycle", {"ids": ids[: start + 2 * length + window + draw.whole(0, 3)], "window": window}
    for window in (2, 3, 4):  # one id alone comes back often, a run of two later
        ids = [1, 2, 1, 3, 1, 4] + [5, 6, 5, 7] * 5
        yield "the cycle where ids come back within it", "cycle", {"ids": ids, "window": window}
        yield "the cycle where ids come back within it", "cycle", {"ids": [9, 8, 7, 5, 7] + [6, 5, 7, 7, 5] * 4, "window": window}
    for n in (1, 3, 8):
        for window in (2, 4, 20):
            yield "no cycle", "cycle", {"ids": draw.order(n), "window": window}
    for window in (3, 5):  # the second run is whole with the last id, or lacks one
        whole = draw.order(3) + [50, 51, 52, 53] * 4
        for missing in (0, 1):
            yield "the cycle at the text's end", "cycle", {"ids": whole[: 3 + 4 + window - missing], "window": window}
            yield "the cycle at the text's end", "cycle", {"ids": whole[3 : 3 + 4 + window - missing], "window": window}


MUTANTS = [
    Mutant("the logits of the first position are used, not of the last", "[0, -1]", "[0, 0]"),
    Mutant("the last position but one chooses", "[0, -1]", "[0, max(0, len(text[-window:]) - 2)]"),
    Mutant("only the newest id is fed; without a cache the model has to see the text", "text[-window:]", "text[-1:]"),
    Mutant("the window is not used: the whole text is fed", "text[-window:]", "text"),
    Mutant("the window is one too long", "text[-window:]", "text[-window - 1 :]"),
    Mutant("the window stays at the beginning of the text", "text[-window:]", "text[:window]"),
    Mutant("the loop makes one token too many", "while len(made) < tokens:", "while len(made) < tokens + 1:"),
    Mutant("the prompt counts among the new tokens", "while len(made) < tokens:", "while len(text) < tokens:"),
    Mutant("the prompt is returned as well", "return made", "return text"),
    Mutant("the text does not grow: every step sees the prompt alone", "        text.append(id)\n", ""),
    Mutant("the prompt that was given grows", "text = list(ids)", "text = ids"),
    Mutant("end tokens do not end the text", "if id in ends:", "if False:"),
    Mutant("only the first of several end tokens ends the text", "if id in ends:", "if id in ends[:1]:"),
    Mutant("the end token is not returned; it is the last of the new ids", "            break\n", "            return made[:-1]\n"),
    Mutant(
        "an end token in the prompt ends the text at once",
        "    made = []\n",
        "    made = []\n    if set(ids) & set(ends):\n        return made\n",
    ),
    Mutant("of equal logits the highest id is taken", "int(logits.argmax())", "len(logits) - 1 - int(logits.flip(0).argmax())"),
    Mutant("the smallest logit is taken", "logits.argmax()", "logits.argmin()"),
    Mutant(
        "this is where the first window ends, not where the cycle starts",
        "            while start > 0 and ids[start - 1] == ids[start - 1 + length]:\n                start -= 1\n",
        "",
    ),
    Mutant(
        "start is one too small: it names the last id before the cycle",
        "return [start, length]",
        "return [max(0, start - 1), length]",
    ),
    Mutant(
        "one id that comes back is taken for a cycle; a whole window has to",
        "state = tuple(ids[t - window : t])",
        "state = ids[t - 1]",
    ),
    Mutant(
        "the last window is left out, so that a cycle proved by the last id is missed",
        "range(window, len(ids) + 1)",
        "range(window, len(ids))",
    ),
    Mutant("the windows are one id too short", "state = tuple(ids[t - window : t])", "state = tuple(ids[t - window + 1 : t])"),
    Mutant("the length is that of the window, not how far the two are apart", "return [start, length]", "return [start, window]"),
    Mutant("start and length are exchanged", "return [start, length]", "return [length, start]"),
]

RUBRIC = """
1 point: entry and length for ten prompts and three windows, and what of it changes with the window.
1 point: a step depends on the window alone, and windows are finitely many: one comes back, or the text ends; then all repeats.
"""
