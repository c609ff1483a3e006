"""Checks of ch11.5: drafts, what a pass makes of them, and a replay."""

from scripts.grading.answers import Mutant

TEXTS = ([7, 8, 9, 7, 8, 5, 7, 8], [1, 2, 3, 4], [4, 4, 4], [3], [5, 6, 5], [1, 2, 9, 2, 1, 2], [2, 1, 2, 3, 1, 2])


def cases(draw):
    for text in TEXTS:
        for most, longest in ((3, 3), (1, 2), (5, 1)):
            yield "a draft", "draft", {"text": text, "most": most, "longest": longest}
    for _ in range(8):
        text = [draw.whole(0, 4) for _ in range(draw.whole(6, 30))]
        yield "a draft", "draft", {"text": text, "most": draw.whole(1, 6), "longest": draw.whole(1, 4)}
    for guessed, chosen in (([], [4]), ([4], [4, 7]), ([4], [5, 7]), ([1, 2, 3], [1, 2, 3, 9]), ([1, 2, 3], [1, 8, 3, 9])):
        yield "what a pass makes", "accept", {"guessed": guessed, "chosen": chosen}
    for wrong in range(5):
        chosen = [draw.whole(10, 90) for _ in range(6)]
        guessed = [id + (i == wrong) for i, id in enumerate(chosen[:-1])]
        yield "what a pass makes", "accept", {"guessed": guessed, "chosen": chosen}
    for most in (0, 1, 3, 6):
        cycle = [draw.whole(0, 30) for _ in range(4)]
        made = [cycle[i % 4] for i in range(17)]
        for end in (made, [draw.whole(0, 3) for _ in range(20)]):
            yield "a replay", "replay", {"prompt": [draw.whole(0, 5) for _ in range(6)], "made": end, "most": most, "longest": 3}


MUTANTS = [
    Mutant(
        "the latest place counts here; the exercise wants the earliest",
        "in range(len(text) - n):",
        "in reversed(range(len(text) - n)):",
    ),
    Mutant("the last ids find themselves, so that nothing follows", "range(len(text) - n):", "range(len(text) - n, -1, -1):"),
    Mutant("a place may not overlap the last ids here; it may", "range(len(text) - n):", "range(len(text) - 2 * n + 1):"),
    Mutant(
        "fewer ids are looked for first; the longest should be",
        "range(min(longest, len(text) - 1), 0, -1)",
        "range(1, min(longest, len(text) - 1) + 1)",
    ),
    Mutant(
        "only the longest is looked for, and never fewer",
        "range(min(longest, len(text) - 1), 0, -1)",
        "range(min(longest, len(text) - 1), min(longest, len(text) - 1) - 1, -1)",
    ),
    Mutant(
        "the draft begins with the ids that were looked for", "text[start + n : start + n + most]", "text[start : start + n + most]"
    ),
    Mutant("the draft begins one id too late", "text[start + n : start + n + most]", "text[start + n + 1 : start + n + 1 + most]"),
    Mutant("the draft has no end but that of the text", "text[start + n : start + n + most]", "text[start + n :]"),
    Mutant(
        "guesses behind a wrong one are kept where they happen to be right",
        "    while stood < len(guessed) and guessed[stood] == chosen[stood]:\n        stood += 1\n",
        "    stood = sum(a == b for a, b in zip(guessed, chosen))\n",
    ),
    Mutant("the id that the pass itself chooses is left out", "return chosen[: stood + 1]", "return chosen[:stood] or chosen[:1]"),
    Mutant("all that was chosen is kept, behind a wrong guess too", "return chosen[: stood + 1]", "return chosen"),
    Mutant(
        "the pass keeps the wrong guess, not what was chosen in its place",
        "return chosen[: stood + 1]",
        "return (guessed + chosen[-1:])[: stood + 1]",
    ),
    Mutant("a pass drafts more than is wanted", "min(most, len(made) - done - 1)", "min(most, len(made) - done)"),
    Mutant("drafts are looked up in the new ids only, not in the prompt", "prompt + made[:done]", "made[:done]"),
    Mutant("drafts are looked up in the prompt only", "prompt + made[:done]", "prompt"),
]

RUBRIC = """
1 point: a table of tokens per pass for drafts of one to six tokens, with the text named.
1 point: a guess stands only where greedy decoding chooses it, so a rule changes the passes and never the text.
1 point: where drafts seldom stand, as in a story, longer ones make each pass take longer and save none.
"""
