"""The facts that the figures read as `book.data`, made by the chapters' own functions and records.

Each group of figures has a function of its own.
"""

from examples.ch02.model import PUBLISHED, load
from examples.ch03.tokens import encode, piece
from examples.ch05.bigram import bigram
from examples.ch05.generate import generate
from examples.ch05.sampling import CANDIDATES, LOGITS
from examples.ch10.cache_cost import published_shapes
from examples.lab.script import BadInput

PASSAGE, PASSAGE_TOKENS = "Good night, good", 8  # the text that figure 14 goes through, and the tokens that the model adds


def figure_data():
    """{name: plain JSON} of all figures; no name may stand in two groups."""
    found = {}
    for group in (data_01_08, data_09_17, data_18_28):
        for name, value in group().items():
            if name in found:
                raise BadInput(f"two groups of figures give book.data.{name}; give one another name")
            found[name] = value
    return found


def data_01_08():
    """Of figures 1 to 8: the fields of GPT-2's published config."""
    return {"gpt2": PUBLISHED["gpt2"]}


def data_09_17():
    """Of figures 9 to 17: chapter 5's five candidates, table of words and a greedy passage; the shapes of chapter 10's loops."""
    _, forward, words = bigram()
    counts = forward(list(range(len(words)))).exp()  # [V, V]: how often each word followed each
    model = load("embedded")
    ids = encode(PASSAGE, model)  # [1, T]
    made = generate(ids, model, PASSAGE_TOKENS, end=None).sequence()
    return {
        "candidates": {"names": list(CANDIDATES), "logits": list(LOGITS)},
        "bigram": {"words": words, "counts": [[round(n) for n in row] for row in counts.tolist()]},
        "passage": {"prompt": [piece(i, model) for i in ids[0].tolist()], "made": [piece(i, model) for i in made]},
        "loops": {
            name: {"prompt": prompt, "n_layer": config.n_layer, "n_embd": config.n_embd, "vocab_size": config.vocab_size}
            for name, (config, prompt, _) in published_shapes().items()
        },
    }


def data_18_28():
    """Of figures 18 to 28."""
    return {}
