"""Checks of ch10.2: the loop with a cache on a model that is a table, and its counts."""

import torch

from scripts.grading.answers import Mutant

DRIVER = '''
def written(module, table, places, prompt, tokens, feed_last):
    """What the loop writes and what it feeds; the logits depend on every id that was fed and on its position."""
    fed, held = [], [0]

    def feed(ids):
        fed.append(list(ids))
        at = sum(map(len, fed[:-1]))
        rows = table[list(ids)] * places[at : at + len(ids), None]
        out = rows.cumsum(0) + held[0]
        held[0] = out[-1]
        return out

    return [module.loop(feed, prompt, tokens, feed_last), fed]
'''


def run(draw, P, tokens, feed_last, V=11):
    places = 1 + draw.normal(P + tokens + 4, scale=0.5)
    prompt = draw.ids(V, P).tolist()
    return {"table": draw.normal(V, V), "places": places, "prompt": prompt, "tokens": tokens, "feed_last": feed_last}


def cases(draw):
    for feed_last, check in ((False, "the chapter's loop"), (True, "the loop that feeds the last")):
        for P, tokens in ((4, 9), (1, 5), (6, 1)):
            yield check, "written", run(draw, P, tokens, feed_last)
    for _ in range(2):
        even = run(draw, 2, 5, False)
        yield "equal logits", "written", {**even, "table": torch.zeros(11, 11).index_fill(1, torch.tensor(draw.order(10)[:3]), 1.0)}
    for _ in range(10):
        yield "positions without a cache", "positions_naive", {"P": draw.whole(1, 50), "m": draw.whole(1, 200)}
    for i in range(10):
        yield "pairs held", "pairs_held", {"P": draw.whole(1, 50), "m": draw.whole(1, 200), "feed_last": bool(i % 2)}
    for i in range(10):
        P = draw.whole(1, 60)
        yield "the most new tokens", "most_new", {"n": P + draw.whole(0, 900) * (i > 1), "P": P, "feed_last": bool(i % 2)}


ALL = "range(tokens):\n        new = [int(feed(new)[-1].argmax())]\n        made += new\n"

MUTANTS = [
    Mutant("the last token is fed whether `feed_last` says so or not", "if feed_last:", "if True:"),
    Mutant("the last token is never fed", "if feed_last:", "if False:"),
    Mutant(
        "the whole text is fed each time, though the cache holds it already",
        "new = [int(feed(new)[-1].argmax())]\n        made += new\n",
        "made.append(int(feed([*prompt, *made])[-1].argmax()))\n        new = made[-1:]\n",
    ),
    Mutant(
        "the last id of the prompt is fed twice",
        "    for _ in range(tokens):\n",
        "    feed(new)\n    new = new[-1:]\n    for _ in range(tokens):\n",
    ),
    Mutant(
        "the prompt is fed id by id; it is to go in one piece",
        "    for _ in range(tokens):\n",
        "    for i in new[:-1]:\n        feed([i])\n    new = new[-1:]\n    for _ in range(tokens):\n",
    ),
    Mutant("the first position's logits choose, not the last's", "[-1].argmax", "[0].argmax"),
    Mutant("one token too few is made", "range(tokens)", "range(max(1, tokens - 1))"),
    Mutant("one token too many is made", "range(tokens)", "range(tokens + 1)"),
    Mutant("the prompt is returned as well", "return made", "return prompt + made"),
    Mutant(
        "the prompt that was given grows",
        "made, new = [], list(prompt)",
        "made, new = [], list(prompt)\n    given = prompt",
        (("    return made", "    given += made\n    return made"),),
    ),
    Mutant(
        "of equal logits the highest id is taken",
        "int(feed(new)[-1].argmax())",
        "(lambda z: len(z) - 1 - int(z.flip(0).argmax()))(feed(new)[-1])",
    ),
    Mutant("each step is counted as one position, as with a cache", "m * P + m * (m - 1) // 2", "P + m - 1"),
    Mutant(
        "the first step is counted with a new token that is not there yet", "m * P + m * (m - 1) // 2", "m * P + m * (m + 1) // 2"
    ),
    Mutant("the growth of the text is left out", "m * P + m * (m - 1) // 2", "m * P"),
    Mutant("the prompt is counted once, as if it were cached", "m * P + m * (m - 1) // 2", "P + m * (m - 1) // 2"),
    Mutant("the last token is counted though nothing fed it", "P + m - 1 + feed_last", "P + m"),
    Mutant("the prompt's pairs are left out", "P + m - 1 + feed_last", "m - 1 + feed_last"),
    Mutant("with the last token fed there is one pair more, not fewer", "P + m - 1 + feed_last", "P + m - 1 - feed_last"),
    Mutant("the last new token needs no position where it is not fed", "n - P + 1 - feed_last", "n - P"),
    Mutant("with the last token fed there is room for one fewer, not one more", "n - P + 1 - feed_last", "n - P + 1 + feed_last"),
]

RUBRIC = """
1 point: the tokens are the same, and after t emitted tokens the cache holds P + t pairs in place of P + t - 1.
1 point: at the last position the last token would need one that the model does not have, so that one new token fewer fits.
"""
