"""Drafts from the text so far, by the earliest place."""


def draft(text, most, longest):
    for n in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - n):
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + most]
    return []


def accept(guessed, chosen):
    stood = 0
    while stood < len(guessed) and guessed[stood] == chosen[stood]:
        stood += 1
    return chosen[: stood + 1]


def replay(prompt, made, most, longest):
    done, counts = 0, []
    while done < len(made):
        guessed = draft(prompt + made[:done], min(most, len(made) - done - 1), longest)
        new = accept(guessed, made[done : done + len(guessed) + 1])
        counts.append([len(guessed), len(new)])
        done += len(new)
    return counts
