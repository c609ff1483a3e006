"""Checks of ch05.6: draws and greedy text behind them, the same cycle, and counts."""

from scripts.grading.answers import Mutant

DRIVER = '''
def written(module, table, places, ids, uniforms, tokens, window):
    """What stands behind the text, and the shapes that the model was given; its logits depend on all that it sees."""
    given = []

    def forward(x):
        given.append(list(x.shape))
        return (table[x] * places[: x.shape[1], None]).cumsum(1)

    return [module.drawn_then_greedy(forward, ids, uniforms, tokens, window), given]
'''


def turned(round_, by):
    return round_[by:] + round_[:by]


def cases(draw):
    def run(draws, tokens, window, V=12):
        return {
            "table": draw.normal(V, V, scale=0.6),
            "places": 1 + draw.normal(60, scale=0.3),
            "ids": draw.ids(V, draw.whole(2, 6)).tolist(),
            "uniforms": [draw.uniform() for _ in range(draws)],
            "tokens": tokens,
            "window": window,
        }

    for draws, tokens, window in ((10, 0, 4), (14, 0, 30), (9, 0, 1)):
        yield "the draws", "written", run(draws, tokens, window)
    for tokens, window in ((8, 3), (12, 30)):
        yield "greedy text", "written", run(0, tokens, window)
    for draws, tokens, window in ((1, 9, 4), (5, 6, 3), (7, 8, 40)):
        yield "draws, then greedy text", "written", run(draws, tokens, window)
    first = {**run(8, 0, 6), "uniforms": [0.0] * 8}
    first["table"][:, :4] = -1e9  # ids of probability 0
    yield "a draw of u = 0", "written", {**first, "places": first["places"] * 0 + 1}
    for length in (1, 2, 5, 5, 8):
        a = draw.order(length)
        yield "the same cycle", "same_cycle", {"a": a, "b": turned(a, draw.whole(0, length - 1))}
        yield "the same cycle", "same_cycle", {"a": a, "b": turned(a, length - 1)}
    for length in (3, 4, 6, 7):
        a = draw.order(length)
        yield "another cycle", "same_cycle", {"a": a, "b": a[::-1]}
        yield "another cycle", "same_cycle", {"a": [*a, 70, 71], "b": [a[1], a[0], *a[2:], 70, 71]}
        yield "another cycle", "same_cycle", {"a": a, "b": [*a[:-1], 99]}
        yield "another cycle", "same_cycle", {"a": a, "b": turned(a, 2)[:-1]}
        yield "another cycle", "same_cycle", {"a": a, "b": a + a[:1]}
        yield "another cycle", "same_cycle", {"a": [*a, a[0]], "b": [*a, a[1]]}
    for runs in (12, 30):
        outcomes = []
        for _ in range(runs):
            old = draw.order(4)
            new = draw.choice((None, None, [7, 8], [7, 8, 9], turned(old, 1), turned(old, 2), old))
            differed = draw.choice((True, True, False))
            outcomes.append((draw.choice((1, 2, 5, 20)), differed, old, new if differed else old))
        outcomes += [(1, True, [3, 4], [4, 3]), (2, True, [3, 4], None), (2, True, [1, 2], [5]), (3, False, [3, 4], [3, 4])]
        yield "the counts", "counts", {"outcomes": outcomes}


MUTANTS = [
    Mutant(
        "the last id whose sum is at most u is taken, not the first above it",
        "int((cumulative > u).int().argmax())",
        "max(0, int((cumulative <= u).sum()) - 1)",
    ),
    Mutant("the border is taken for above: with u = 0 an id of probability 0 is drawn", "cumulative > u", "cumulative >= u"),
    Mutant("the draws are greedy too: u is not used", "if u is None:", "if True:"),
    Mutant(
        "all tokens are drawn, none is greedy", "[*uniforms, *[None] * tokens]", "[*uniforms, *(uniforms or [0.5])[-1:] * tokens]"
    ),
    Mutant("greedy tokens come first, and draws behind them", "[*uniforms, *[None] * tokens]", "[*[None] * tokens, *uniforms]"),
    Mutant(
        "one uniform number is used for all draws",
        "[*uniforms, *[None] * tokens]",
        "[*uniforms[:1] * len(uniforms), *[None] * tokens]",
    ),
    Mutant(
        "the draws count among the `tokens`; these come behind them", "*[None] * tokens]", "*[None] * (tokens - len(uniforms))]"
    ),
    Mutant("the window is not used: the whole text is fed", "(ids + made)[-window:]", "ids + made"),
    Mutant("the window stays at the beginning of the text", "(ids + made)[-window:]", "(ids + made)[:window]"),
    Mutant("new tokens are not seen by later steps", "(ids + made)[-window:]", "ids[-window:]"),
    Mutant("the logits of the first position are used, not of the last", "[0, -1]", "[0, 0]"),
    Mutant(
        "the sum runs over the sorted probabilities; it is to run by id",
        "dim=-1).cumsum(-1)",
        "dim=-1).sort(descending=True).values.cumsum(-1)",
    ),
    Mutant("the logits are summed without softmax", "torch.softmax(logits.double(), dim=-1)", "logits.double()"),
    Mutant(
        "the text that was given grows",
        "    made = []\n",
        "    made, given = [], ids\n",
        (("    return made\n", "    given.extend(made)\n    return made\n"),),
    ),
    Mutant(
        "cycles are compared from their first id only; the same cycle may begin elsewhere",
        "any(a[i:] + a[:i] == b for i in range(len(a)))",
        "a == b",
    ),
    Mutant(
        "cycles are compared as sets of ids; their order counts",
        "any(a[i:] + a[:i] == b for i in range(len(a)))",
        "set(a) == set(b)",
    ),
    Mutant(
        "cycles are compared sorted; their order counts, even where each id is there as often",
        "any(a[i:] + a[:i] == b for i in range(len(a)))",
        "sorted(a) == sorted(b)",
    ),
    Mutant("a cycle read backwards counts as the same", "a[:i] == b for", "a[:i] in (b, b[::-1]) for"),
    Mutant("the last turn is left out", "for i in range(len(a))", "for i in range(max(1, len(a) - 1))"),
    Mutant("any cycle of the same length counts as the same", "any(a[i:] + a[:i] == b for i in range(len(a)))", "len(a) == len(b)"),
    Mutant("runs in which every draw was the greedy token are counted; they never left the cycle", "if differed:", "if True:"),
    Mutant("a text in no cycle counts as in one", "row[1] += new is not None", "row[1] += 1"),
    Mutant("every cycle counts as the old one", "new is not None and same_cycle(old, new)", "new is not None"),
    Mutant("runs that end in no cycle are not counted at all", "if differed:", "if differed and new is not None:"),
    Mutant(
        "these are shares, not counts",
        "    return found\n",
        "    return {n: [r[0], r[1] / r[0], r[2] / r[0]] for n, r in found.items()}\n",
    ),
]

RUBRIC = """
1 point: for each n how many runs, over several seeds, were in a cycle again within 200 tokens, and how many in the old one.
1 point: runs in which no draw differed from the greedy token are told apart.
1 point: gives counts with their number of draws, and calls no share of few draws a probability.
"""
