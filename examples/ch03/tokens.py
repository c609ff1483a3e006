"""Chapter 3: text becomes ids, and each id selects one row of the embedding table.

    python examples/ch03/tokens.py                              # a line through the embedded model's tokenizer
    python examples/ch03/tokens.py --text "Good night" --model openai-community/gpt2
    python examples/ch03/tokens.py --model smollm2 --no-special-tokens  # without what a tokenizer puts before or behind a text

The tokenizer is the bundle's own. The embedded model's is a byte-level BPE, "byte-pair encoding": two pieces that often stand side
by side have become one. It has an id for every byte, so any text has ids and comes back from them unchanged; a piece need not be a
whole character.
"""

import math
import sys
from itertools import takewhile
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import Config, GPT2Config
from examples.ch02.layout import embedding_name, is_buffer, tensor_shapes
from examples.ch02.model import Model, check_finite, load, load_config, seeded
from examples.lab.script import BadInput, Parser, command, dump_json, finite, table

TEXT = "Good night, good night! parting is such sweet sorrow"
PROMPTS = (  # the book's, each of 5 to 18 tokens with the embedded tokenizer and with GPT-2's own
    "The king is dead.",
    "My lord, what news from the north?",
    "To be, or not to be, that is the question",
    "Good night, good night! parting is such sweet sorrow.",
)
PROMPT_LENGTHS = (5, 9, 13, 18)  # of random ids, for a model without a tokenizer
LONG = "Good night, good night! parting is such sweet sorrow,\nThat I shall say good night till it be morrow."  # cut to length


def encode(text: str, model: Model, special: bool = True) -> torch.Tensor:
    """ids [1, T] of `text` by the model's tokenizer, on its device.

    special: with what the tokenizer puts before or behind every text by itself, a token for the beginning say, as the model has
    been trained to see it. GPT-2's puts nothing. False for a text that goes on from another. Raises BadInput for a model without a
    tokenizer, or for text of no tokens.
    """
    return torch.tensor([_encoded(text, model, special).ids], device=model.device)


def _encoded(text, model, special):
    """What the tokenizer makes of the text: `ids`, and in `special_tokens_mask` which of them it has added."""
    if model.tokenizer is None:
        raise BadInput("this model has no tokenizer, so it takes no text (random weights have none); take another --model")
    check_text(text)
    try:
        found = model.tokenizer.encode(text, add_special_tokens=special)
    except Exception as error:  # the library raises plain Exception, for a word that it does not know say
        raise BadInput(f"this model's tokenizer cannot encode the text ({error}); give another text") from None
    if not found.ids:
        problem = "gives the tokenizer nothing to encode" if text else "is empty"
        raise BadInput(f"the text {problem}, and a model needs at least one token; give some text")
    return found


def check_text(text: str) -> None:
    """Raise BadInput for a text that UTF-8 cannot write."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput("the text is not valid UTF-8; give it in that encoding") from None


def decode(ids: torch.Tensor | list[int], model: Model) -> str:
    """The text of `ids` [T], a tensor or a list, or of one id; special tokens included. Bytes that are no UTF-8 become U+FFFD.

    Raises BadInput for a model without a tokenizer.
    """
    if model.tokenizer is None:
        raise BadInput("this model has no tokenizer, so its ids are no text (random weights have none); take another --model")
    ids = ids.flatten().tolist() if isinstance(ids, torch.Tensor) else list(ids)
    return model.tokenizer.decode(ids, skip_special_tokens=False)


def before_text(model: Model) -> list[int]:
    """The ids that the tokenizer puts before every text by itself: of many models one, of GPT-2 none."""
    found = _encoded("a", model, True)
    return [id for id, _ in takewhile(lambda pair: pair[1], zip(found.ids, found.special_tokens_mask, strict=True))]


def piece(id: int, model: Model) -> str:
    """The text of one id as it stands within a text: a SentencePiece tokenizer takes the space from the first piece of all."""
    text, spelt = decode([id], model), (model.tokenizer.id_to_token(id) or "").replace("▁", " ")
    return spelt if spelt == " " + text else text


def random_ids(model: Model, tokens: int, batch: int = 1, seed: int = 0) -> torch.Tensor:
    """Uniform ids [batch, tokens] of the model's vocabulary, from `seed`, on its device."""
    ids = torch.randint(model.config.vocab_size, (batch, tokens), generator=seeded(seed))
    return ids.to(model.device)


def default_ids(model: Model, tokens: int, seed: int = 0, text: str = LONG, special: bool = True) -> torch.Tensor:
    """ids [1, tokens] for an experiment that was given no text: the start of `text`, or random ids without a tokenizer.

    What the tokenizer puts before a text counts among them, what it puts behind one is cut off; special: as in `encode`. Shorter
    where the model takes fewer.
    """
    tokens = min(tokens, model.config.n_positions)
    if model.tokenizer is None:
        return random_ids(model, tokens, seed=seed)
    return encode(text, model, special)[:, :tokens]


def prompt_batches(model: Model, texts: tuple[str, ...] = PROMPTS, seed: int = 0) -> list[torch.Tensor]:
    """ids [1, T] of each text; without a tokenizer, random ids of PROMPT_LENGTHS in place of PROMPTS.

    PROMPTS are cut to what the model takes; other texts, which somebody chose, are not.
    """
    full = model.config.n_positions
    if texts is not PROMPTS:
        return [encode(text, model) for text in texts]
    if model.tokenizer is None:
        return [random_ids(model, min(t, full), seed=seed + i) for i, t in enumerate(PROMPT_LENGTHS)]
    return [encode(text, model)[:, :full] for text in PROMPTS]


def ids_for(args, model: Model, tokens: int, text: str = LONG, special: bool = True) -> torch.Tensor:
    """ids [1, T] of a script's --prompt, whole; without one the first `tokens` of `text`, or random ids without a tokenizer."""
    if args.prompt is None:
        return default_ids(model, tokens, args.seed, text, special)
    return encode(args.prompt, model, special)


def shown(ids: torch.Tensor, model: Model, width: int = 64) -> str:
    """ids [1, T] for a person, in `width` characters: their text in quotation marks, or the ids themselves without a tokenizer."""
    text = repr(decode(ids[0], model)) if model.tokenizer else f"random ids {ids[0].tolist()}"
    return text if len(text) <= width else text[: width - 4] + " ..."


def embedding_share(config: GPT2Config | Config) -> tuple[int, int]:
    """(parameters of the token embedding table, V times d; parameters of the model): a tied head is in it already."""
    counts = {name: math.prod(shape) for name, shape in tensor_shapes(config).items() if not is_buffer(name)}
    return counts[embedding_name(config)], sum(counts.values())


def options():
    """The script's argument parser."""
    parser = Parser(prog="tokens.py", description=__doc__, keys=__file__).add("model", "json")
    parser.add_argument("--text", default=TEXT, help="what to encode")
    parser.add_argument(
        "--no-special-tokens", action="store_true", help="leave out the tokens that the tokenizer puts before or behind every text"
    )
    return parser


@command
def main(argv=None):
    """Print ids, pieces and the rows they select."""
    args = options().parse_args(argv)
    model = load(args.model, dtype=None)
    check_finite(model, args.model)
    found = _encoded(args.text, model, not args.no_special_tokens)
    ids, added = torch.tensor([found.ids]), [bool(mark) for mark in found.special_tokens_mask]  # [1, T], and of each id if added
    rows = model.token_table[ids[0]].float()  # [T, d]
    embedding, total = embedding_share(model.config)
    gpt2_embedding, gpt2_total = embedding_share(load_config("gpt2"))
    value = {
        "text": args.text,
        "ids": ids[0].tolist(),
        "pieces": [piece(i, model) for i in found.ids],
        "added": added,
        "rows": [{"first": r[:4].tolist(), "norm": r.norm().item()} for r in rows],
        "decoded": decode([i for i, mark in zip(found.ids, added, strict=True) if not mark], model),
        "vocab_size": model.config.vocab_size,
        "embedding_parameters": embedding,
        "parameters": total,
        "embedding_share": embedding / total,
        "gpt2": {"embedding_parameters": gpt2_embedding, "parameters": gpt2_total, "embedding_share": gpt2_embedding / gpt2_total},
    }
    if args.json:
        print(dump_json(finite(value)), end="")
        return
    sizes = f"{len(args.text)} characters, {len(args.text.encode())} bytes, {ids.shape[1]} tokens"
    by_itself = f", {sum(added)} of them added by the tokenizer (--no-special-tokens leaves them out)" if any(added) else ""
    print(f"{args.model}: {sizes}{by_itself}\n")
    print(
        table(
            ["piece", "position", "id = row", "first four of the row", "norm"],
            [
                [repr(text) + " (added)" * mark, i, id, " ".join(f"{x:+.3f}" for x in row["first"]), f"{row['norm']:.3f}"]
                for i, (text, mark, id, row) in enumerate(zip(value["pieces"], added, value["ids"], value["rows"], strict=True))
            ],
        )
    )
    same = "the same text" if value["decoded"] == args.text else f"other text: {value['decoded']!r}"
    print(f"\ndecoded again: {same}")
    print(
        f"the table: V {model.config.vocab_size:,} x d {model.config.n_embd:,} = {embedding:,} of {total:,} parameters, "
        f"{embedding / total:.1%}"
    )
    print(f"of GPT-2 small: {gpt2_embedding:,} of {gpt2_total:,}, {gpt2_embedding / gpt2_total:.1%}\n")
    print(repeated(value["ids"], value["pieces"]))


def repeated(ids, pieces):
    """What to see in the rows: the id that stands most often in the text, and that its row is the same wherever it stands."""
    id = max(ids, key=ids.count)
    at = [i for i, other in enumerate(ids) if other == id]
    if len(at) == 1:
        return "No id stands here twice; one that did would select the same row each time."
    *most, last = [*map(str, at[:4]), *(["others"] if len(at) > 4 else [])]
    return (
        f"{pieces[at[0]]!r} stands at positions {', '.join(most)} and {last} with one id, {id}, and so with one row:\n"
        "which row a token selects does not depend on where it stands."
    )


if __name__ == "__main__":
    sys.exit(main())
