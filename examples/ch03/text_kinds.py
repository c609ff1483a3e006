"""Chapter 3: how many tokens a text takes, by kind of text: a play, code, numbers, one sentence in four languages, emoji.

    python examples/ch03/text_kinds.py
    python examples/ch03/text_kinds.py --beside                 # SmolLM2's and GPT-2's tokenizers too, where they are on disk
    python examples/ch03/text_kinds.py --file notes.txt

A model is fed tokens: they fill its context, and each of them costs time, so a text of more tokens is more expensive. A tokenizer
has merges for what its training text was full of; the embedded model's has read plays and nothing else. A word is here what stands
between blanks; the Chinese sentence has none.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import Model, load, load_config
from examples.ch03.held_text import ESSAY, PLAY
from examples.ch03.tokens import encode
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table

TEXTS = Path(__file__).resolve().parent / "texts"  # all written for this book; the four languages say the same
KINDS = {"play": PLAY, "essay": ESSAY} | {
    name: TEXTS / f"{name}.txt" for name in ("code", "numbers", "english", "german", "greek", "chinese", "emoji")
}
BESIDE = {"smollm2": "SmolLM2", "openai-community/gpt2": "GPT-2"}


def counted(text: str, model: Model) -> dict:
    """The characters, bytes, words and tokens of a text, without what a tokenizer puts around one, and how they relate."""
    tokens, size, words = encode(text, model, special=False).shape[1], len(text.encode("utf-8")), len(text.split())
    return {
        "characters": len(text),
        "bytes": size,
        "words": words if words > 1 else None,
        "tokens": tokens,
        "tokens_per_word": tokens / words if words > 1 else None,
        "bytes_per_token": size / tokens,
        "characters_per_token": len(text) / tokens,
    }


def measure(model, files=None):
    """`counted` of each of the files {kind: path}, by default KINDS; the kinds whose tokens hold most bytes and fewest,
    and under `unmerged` those of which every byte is a token."""
    rows = []
    for kind, path in (files or KINDS).items():
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8; give a text") from None
        rows.append({"kind": kind} | counted(text, model))
    by_token = sorted(rows, key=lambda row: row["bytes_per_token"])
    return {
        "vocabulary": model.config.vocab_size,
        "texts": rows,
        "most_bytes_per_token": by_token[-1]["kind"],
        "fewest_bytes_per_token": by_token[0]["kind"],
        "unmerged": [row["kind"] for row in rows if row["tokens"] == row["bytes"]],
    }


def on_disk(source: str) -> Model | None:
    """The model, or GPT-2's config and tokenizer alone, where they are on disk; None else. Asks no network."""
    if source == "smollm2":
        try:
            return load(source, dtype=None)
        except BadInput:
            return None
    from huggingface_hub import try_to_load_from_cache
    from tokenizers import Tokenizer

    path = try_to_load_from_cache(source, "tokenizer.json")
    no_rows = {"wte.weight": torch.empty(0, 768)}  # the tokenizer is all that is wanted
    return Model(load_config("gpt2"), no_rows, Tokenizer.from_file(path)) if isinstance(path, str) else None


def report(values):
    """Text of {"text-kinds": ...}, and of {"beside": {name: the same}} where that is there."""
    v = values["text-kinds"]
    rows = [
        [r["kind"], r["characters"], r["bytes"], r["words"] or "-", r["tokens"]]
        + ["-" if r[key] is None else f"{r[key]:.2f}" for key in ("tokens_per_word", "bytes_per_token")]
        for r in v["texts"]
    ]
    heads = ["text", "characters", "bytes", "words", "tokens", "tokens per word", "bytes per token"]
    parts = [f"A vocabulary of {v['vocabulary']:,}:\n", table(heads, rows), ""]
    if "beside" in values:
        found = {"this model": v} | {name: other for name, other in values["beside"].items() if other}
        rows = [
            [row["kind"], *(f"{other['texts'][i]['bytes_per_token']:.2f}" for other in found.values())]
            for i, row in enumerate(v["texts"])
        ]
        heads = ["bytes per token", *(f"{name}, V {other['vocabulary']:,}" for name, other in found.items())]
        absent = [name for name, other in values["beside"].items() if not other]
        parts += [table(heads, rows), "", *(f"{name}'s tokenizer is not on disk here, and is left out." for name in absent)]
    most, fewest = (next(r for r in v["texts"] if r["kind"] == v[f"{k}_bytes_per_token"]) for k in ("most", "fewest"))
    if v["unmerged"]:
        parts.append(f"Every byte is a token of its own: {', '.join(v['unmerged'])}; no merge fits there.")
    end = f"A token holds {most['bytes_per_token']:.2f} bytes of {most['kind']}, the most, and {fewest['bytes_per_token']:.2f} of"
    return "\n".join([*parts, f"{end} {fewest['kind']}, the fewest."])


EXPERIMENTS = (
    Experiment(
        "ch03.text-kinds",
        "exact",
        "The kind of text decides how many bytes a token holds: one, where no merge fits, and two or three of English.",
        "One short text of each kind. The tokenizer was trained on plays, yet the play takes more tokens per byte than the essay.",
        measure,
        headline=("texts[kind=play].bytes_per_token", "f2"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="text_kinds.py", description=__doc__, keys=__file__)
    parser.add_argument("--file", type=Path, default=None, metavar="FILE", help="a text of yours beside the others")
    parser.add_argument("--beside", action="store_true", help="SmolLM2's and GPT-2's tokenizers too, where they are on disk")
    return parser.add("model", "json")


@command
def main(argv=None):
    """Print the counts of each kind of text."""
    args = options().parse_args(argv)
    files = KINDS | ({args.file.name: args.file} if args.file else {})
    args.file = args.file and str(args.file)
    values = {"text-kinds": measure(load(args.model, dtype=None), files)}
    if args.beside:
        others = {name: on_disk(source) for source, name in BESIDE.items()}
        values["beside"] = {name: other and measure(other, files) for name, other in others.items()}
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
