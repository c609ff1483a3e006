"""The facts that the figures read as `book.data`, made by the chapters' own functions and records.

Each group of figures has a function of its own.
"""

from examples.ch02.model import PUBLISHED, load
from examples.ch03.same_id import SENTENCE
from examples.ch03.tokens import encode, piece
from examples.ch04.gpt2_from_scratch import PROMPT, next_tokens
from examples.ch05.bigram import SENTENCE as BIGRAM_SENTENCE
from examples.ch05.bigram import bigram
from examples.ch05.generate import generate
from examples.ch05.sampling import CANDIDATES, LOGITS
from examples.ch10.cache_cost import published_shapes
from examples.ch10.cache_memory import GPT3
from examples.ch11.accelerators import accelerator
from examples.lab.script import BadInput
from scripts.experiments import ROOT
from scripts.markers import load_records
from scripts.records import read_results, results_path
from scripts.web_edition.loop import loop_lines

TOY_ROWS = ((0.9, -0.3, 0.4, 0.1), (-0.2, 0.7, 0.0, -0.5), (0.6, 0.2, -0.8, 0.3), (-0.4, 0.1, 0.5, 0.8))  # of figure 1: a word each
TOY_WRITES = ((3, 0, 1, 2), (1, 2, 0, -1), (0, -1, 2, 1), (-1, 1, 0, 2))  # of figure 4: the embedding, then three blocks
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
    """Of figures 1 to 8: GPT-2's published config; a sentence's words, a toy table of them, and what two tokenizers make of the
    sentence; a pass of the embedded model; and what three toy blocks write."""
    model = load("embedded")
    words = SENTENCE.split()
    made = {"the embedded model": [{"id": i, "piece": piece(i, model)} for i in encode(SENTENCE, model)[0].tolist()]}
    made["SmolLM2"] = read_results(results_path(ROOT, "ch03"))["ch03.leading-blank@smollm2"]["values"]["pieces"]
    ids = encode(PROMPT, model)  # [1, T]
    best, config = next_tokens(model, ids, 1)[0], model.config
    return {
        "gpt2": PUBLISHED["gpt2"],
        "lookup": {
            "words": words,
            "table": [{"word": word, "row": row} for word, row in zip(sorted(set(words)), TOY_ROWS, strict=True)],
            "tokenizers": [{"name": name, "tokens": with_words(tokens)} for name, tokens in made.items()],
        },
        "pass": {
            **{"text": PROMPT, "tokens": ids.shape[1], "next": best["piece"], "percent": 100 * best["probability"]},
            **{"width": config.n_embd, "layers": config.n_layer, "vocabulary": config.vocab_size},
        },
        "writes": [list(row) for row in TOY_WRITES],
    }


def with_words(tokens):
    """Tokens [{id, piece}] with `word`, which of the text's words each is of: a piece that starts with a blank begins the next."""
    found, word = [], -1
    for i, token in enumerate(tokens):
        word += i == 0 or token["piece"].startswith(" ")
        found.append({"id": token["id"], "piece": token["piece"], "word": word})
    return found


def data_09_17():
    """Of figures 9 to 17: chapter 5's five candidates, table of words and a greedy passage; the shapes of chapter 10's loops."""
    _, forward, words = bigram()
    counts = forward(list(range(len(words)))).exp()  # [V, V]: how often each word followed each
    model = load("embedded")
    ids = encode(PASSAGE, model)  # [1, T]
    made = generate(ids, model, PASSAGE_TOKENS, end=None).sequence()
    return {
        "candidates": {"names": list(CANDIDATES), "logits": list(LOGITS)},
        "bigram": {
            **{"sentence": " ".join(BIGRAM_SENTENCE), "words": words},
            "counts": [[round(n) for n in row] for row in counts.tolist()],
        },
        "passage": {"prompt": [piece(i, model) for i in ids[0].tolist()], "made": [piece(i, model) for i in made]},
        "loops": {
            name: {"prompt": prompt, "n_layer": config.n_layer, "n_embd": config.n_embd, "vocab_size": config.vocab_size}
            for name, (config, prompt, _) in published_shapes().items()
        },
    }


def data_18_28():
    """Of figures 18 to 28: GPT-3's shape beside the family of GPT-2, three machines' ridges, the lines of a decoding loop.

    ridge: FLOPs a byte. The first two are of the processor that chapter 11's record is of, the third is by a data sheet.
    """
    record = load_records(ROOT)["ch11.machine"]["values"]
    rows = {(row["threads"], row["dtype"]): row["ridge_flop_per_byte"] for row in record["machine"]}
    h100 = accelerator("h100")
    machines = [
        {"name": f"{record['processor']}, one thread, {dtype}", "number": size, "ridge": rows[1, dtype]}
        for dtype, size in (("float32", 4), ("bfloat16", 2))
    ]
    sheet = {"name": f"{h100['name']}, 16 bits", "number": 2, "ridge": h100["flop_per_s"] / h100["bytes_per_s"]}
    return {
        "gpt3": {name: getattr(GPT3, name) for name in ("vocab_size", "n_positions", "n_embd", "n_layer")},
        "family": {name: fields for name, fields in PUBLISHED.items() if name.startswith("gpt2")},
        "machines": [*machines, sheet],
        "loop": loop_lines(),
    }
