"""Checks of ch03.6: special tokens cut out of texts, -ln p of tokens, and mean losses of a window."""

import torch

from scripts.grading.answers import Mutant

SPECIAL = ["<|end|>", "<|end|>er", "[X]", "a+b", "|", "<|start|>", "(s)"]
PLAIN = ("Good night.", " ", "end", "<|en", "X", "aab", "[", "é 模型", "\n", "s", ".", "a+", "er")


def text(draw, count):
    return "".join(draw.choice(SPECIAL if draw.whole(0, 2) == 0 else PLAIN) for _ in range(count))


def cases(draw):
    for count in (3, 6, 12, 12):
        yield (
            "cutting special tokens out",
            "cut",
            {"text": text(draw, count), "special": [SPECIAL[i] for i in draw.order(len(SPECIAL))]},
        )
    for start in ("<|end|>", "[X][X]", "", "Good night."):
        some = start + draw.choice(PLAIN) * draw.whole(0, 2) + draw.choice(("<|start|>", "(s)"))
        yield "special tokens at the edges", "cut", {"text": some, "special": ["<|end|>", "[X]", "(s)", "<|start|>"]}
    for some, special in (
        ("", ["[X]"]),
        ("a night", []),
        ("", []),
        ("no [x] here", ["[X]"]),
        ("<|end|>er", ["<|end|>", "<|end|>er"]),
        ("<|end|>er", ["<|end|>er", "<|end|>"]),
        (" [X] a  [X]", ["[X]"]),
    ):
        yield "texts without one, and without any to look for", "cut", {"text": some, "special": special}
    yield "texts without one, and without any to look for", "cut", {"text": "aaaa", "special": ["aa", "aaa"]}
    for T, V in ((1, 4), (7, 5), (12, 30)):
        yield "-ln p", "nats", {"logits": draw.normal(T, V, scale=3.0), "ids": draw.ids(V, T)}
    yield "-ln p of large logits", "nats", {"logits": draw.normal(9, 6, scale=900.0), "ids": draw.ids(6, 9)}
    yield "-ln p of large logits", "nats", {"logits": 1000 + draw.normal(9, 6), "ids": draw.ids(6, 9)}
    double = draw.normal(9, 5, scale=2.0, dtype=torch.float64)
    yield "-ln p in float64", "nats", {"logits": double, "ids": draw.ids(5, 9)}
    for T in (3, 5, 12, 40):
        counts = sorted({1, T - 2, max(1, T // 2)})
        yield (
            "losses of a window",
            "window_losses",
            {"logits": draw.normal(T, 7, scale=2.0), "ids": draw.ids(7, T), "tokens": counts},
        )


TOLERANCE = {"-ln p in float64": 1e-12, "losses of a window": 1e-6}

MUTANTS = [
    Mutant("of two special tokens that begin alike the shorter is cut out", "key=len, reverse=True", "key=len"),
    Mutant("of two that begin alike the one that is named first is cut out", "sorted(special, key=len, reverse=True)", "special"),
    Mutant(
        "signs of a special token are read as a regular expression",
        "map(re.escape, longest_first)",
        "longest_first",
    ),
    Mutant("the special tokens are dropped, not cut out", "enumerate(parts) if part]", "enumerate(parts) if part and i % 2 == 0]"),
    Mutant("empty parts are left between the others", "enumerate(parts) if part]", "enumerate(parts)]"),
    Mutant("no part is said to be a special token", "i % 2 == 1]", "False]"),
    Mutant("which parts are special is the wrong way round", "i % 2 == 1]", "i % 2 == 0]"),
    Mutant("only the first special token of a text is cut out", '+ ")", text)', '+ ")", text, maxsplit=1)'),
    Mutant("capitals and small letters are taken for the same", '+ ")", text)', '+ ")", text, flags=re.IGNORECASE)'),
    Mutant("without special tokens the text is lost", "return [[text, False]] if text else []", "return []"),
    Mutant("blanks around a special token are lost", "[[part, i", "[[part.strip() or part, i"),
    Mutant(
        "the loss has the wrong sign",
        "return logits.logsumexp(-1) - logits.gather(-1, ids[:, None])[:, 0]",
        "return logits.gather(-1, ids[:, None])[:, 0] - logits.logsumexp(-1)",
    ),
    Mutant(
        "this is p, not -ln p",
        "return logits.logsumexp(-1) - logits.gather(-1, ids[:, None])[:, 0]",
        "return (logits.gather(-1, ids[:, None])[:, 0] - logits.logsumexp(-1)).exp()",
    ),
    Mutant(
        "the logarithm is that of base 2; nats want the natural one",
        "return logits.logsumexp(-1) - logits.gather(-1, ids[:, None])[:, 0]",
        "return (logits.logsumexp(-1) - logits.gather(-1, ids[:, None])[:, 0]) / 0.6931471805599453",
    ),
    Mutant("the exponentials of large logits run over", "logits.logsumexp(-1)", "logits.exp().sum(-1).log()"),
    Mutant(
        "the arithmetic is in float32",
        "logits = logits.double()",
        "logits = logits.float()",
        (("ids[:, None])[:, 0]", "ids[:, None])[:, 0].double()"),),
    ),
    Mutant("the logits are not turned into probabilities", "logits.logsumexp(-1) - logits", "0 - logits"),
    Mutant(
        "row t of the logits is compared with id t of the window: one place off",
        "nats(logits[:-1], ids[1:])",
        "nats(logits[:-1], ids[:-1])",
    ),
    Mutant("the first token of the window is counted as well", "behind = losses[1:]", "behind = losses"),
    Mutant("one token too many is left out", "behind = losses[1:]", "behind = losses[2:] if len(losses) > 2 else losses[1:]"),
    Mutant("the losses are summed; their mean is asked for", "behind[:n].mean()", "behind[:n].sum()"),
    Mutant("this is the loss of the n-th token alone, not the mean of the first n", "behind[:n].mean()", "behind[n - 1]"),
    Mutant("these are the last n tokens, not the first", "behind[:n]", "behind[-n:]"),
]

RANGES = {
    "newline_second": (3.255, 3.282),
    "newline_window": (3.068, 3.074),
    "stop_second": (5.58, 5.615),
    "stop_window": (3.082, 3.0875),
}
NONE = "this is without any token in front"
MISTAKES = {
    "newline_second": [
        (4.74, 4.76, NONE),
        (2.44, 2.45, "this is with <|endoftext|>"),
        (3.54, 3.547, "this is the first token's loss"),
    ],
    "stop_second": [
        (4.74, 4.76, NONE),
        (2.44, 2.45, "this is with <|endoftext|>"),
        (10.1, 10.12, "this is the first token's loss"),
    ],
    "newline_window": [(3.0595, 3.061, "this is with <|endoftext|>")],
    "stop_window": [(3.0595, 3.061, "this is with <|endoftext|>")],
}

RUBRIC = """
1 point: the table of the eight tokens, with and without, second token and window.
1 point: that one alone helps most, a newline a little, others hurt at the second token; over the window all are near none.
1 point: a training run whose documents have no such token before them, or another one, all else the same, seeds stated.
"""
