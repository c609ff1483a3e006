"""Chapter 3: the same id is the same row wherever it stands, and one word may be two ids: a blank belongs to the piece behind it.

    python examples/ch03/same_id.py
    python examples/ch03/same_id.py --sentence "a man is a man"

A row of the embedding table knows nothing of its place. What GPT-2 adds to it does: a row of the position table, one for each
position, so that the same token at two places starts from two vectors. Shapes: T positions, d width.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, require
from examples.ch03.held_text import held_text
from examples.ch03.tokens import TEXT, encode, piece
from examples.lab.experiment import Experiment, largest, sig
from examples.lab.script import BadInput, Parser, answer, command, table

SENTENCE = "the cat sat on the"


def _norm(x):
    """The length of a vector, summed in float64, to the four digits that are the same on any machine."""
    return sig(x.double().norm().item(), 4)


def measure_positions(model, text=TEXT):
    """The first id that a text has twice: its row at both places, before the position rows are added and after."""
    require(model.config, "gpt2", "adding position rows")
    ids = encode(text, model)[0]  # [T]
    twice = next((id for id in ids.tolist() if (ids == id).sum() > 1), None)
    if twice is None:
        raise BadInput("no id stands twice in the text; give one in which a word comes back")
    first, second = (ids == twice).nonzero().flatten().tolist()[:2]
    rows = model.weights["wte.weight"][ids]  # [T, d]
    places = model.weights["wpe.weight"][: len(ids)]  # [T, d]
    x = rows + places  # [T, d], the start of the pass
    return {
        "text": text,
        "tokens": len(ids),
        "piece": piece(twice, model),
        "id": twice,
        "positions": [first, second],
        "largest_difference_of_rows": largest(rows[first] - rows[second]),
        "largest_difference_with_positions": largest(x[first] - x[second]),
        "norm_of_the_row": _norm(rows[first]),
        "norms_of_the_position_rows": [_norm(places[first]), _norm(places[second])],
        "distance_with_positions": _norm(x[first] - x[second]),
    }


def measure_blank(model, sentence=SENTENCE):
    """The words of a sentence and its tokens; the id of its last word at the start of a text and behind a blank."""
    ids, words = encode(sentence, model, special=False)[0].tolist(), sentence.split()
    word = words[-1]
    alone, behind = (encode(text, model, special=False)[0].tolist() for text in (word, f" {word}"))
    apart = [encode(part, model, special=False)[0].tolist() for part in words]  # were a blank a token by itself
    found = {
        "sentence": sentence,
        "words": len(words),
        "tokens": len(ids),
        "pieces": [{"piece": piece(id, model), "id": id} for id in ids],
        "tokens_with_blanks_apart": sum(map(len, apart)) + len(words) - 1,
        "word": word,
        "ids_at_the_start": alone,
        "ids_behind_a_blank": behind,
    }
    if len(alone) == len(behind) == 1:
        held = encode(held_text(model), model, special=False)[0].tolist()
        one, other = (model.token_table[id[0]].double() for id in (alone, behind))
        found["times_at_the_start"], found["times_behind_a_blank"] = held.count(alone[0]), held.count(behind[0])
        found["cosine_of_the_rows"] = sig(torch.cosine_similarity(one, other, dim=0).item())
    return found


def report(values):
    """Text of {"same-row": ..., "leading-blank": ...}."""
    v, b = values.get("same-row"), values["leading-blank"]
    parts = _positions(v) if v else ["This family adds no position rows: places enter within attention, which chapter 14 shows.\n"]
    parts += [
        f"{b['sentence']!r}: {b['words']} words, {b['tokens']} tokens\n",
        table(["piece", "id"], [[repr(r["piece"]), r["id"]] for r in b["pieces"]]),
        f"\nWith each blank a token by itself there would be {b['tokens_with_blanks_apart']}.",
    ]
    alone, behind = (" ".join(map(str, b[key])) for key in ("ids_at_the_start", "ids_behind_a_blank"))
    if "times_at_the_start" in b:
        parts += [
            f"In the held-out text the id {alone} stands {b['times_at_the_start']} times, "
            f"the id {behind} {b['times_behind_a_blank']} times.",
            f"Their rows are two vectors, with a cosine of {b['cosine_of_the_rows']:.2f}.",
        ]
    parts += [f"{b['word']!r} is {alone} at the start of a text", f"and {behind} behind a blank: other ids, and so other rows."]
    return "\n".join(parts)


def _positions(v):
    """The lines about the id that stands in the text twice."""
    rows = [
        ["its row of the token table", f"{v['norm_of_the_row']:.3f}", f"{v['largest_difference_of_rows']:.3f}"],
        ["with the position's row added", "", f"{v['largest_difference_with_positions']:.3f}"],
    ]
    lengths = " and ".join(f"{n:.3f}" for n in v["norms_of_the_position_rows"])
    same = "the same row" if v["largest_difference_of_rows"] == 0 else "TWO ROWS"
    return [
        f"{v['text']!r}: {v['piece']!r}, id {v['id']}, at positions {' and '.join(map(str, v['positions']))}\n",
        table(["", "length", "largest difference"], rows),
        f"\nOne id is {same} at both; the position rows, of length {lengths},",
        "make two vectors of it.\n",
    ]


EXPERIMENTS = (
    Experiment(
        "ch03.same-row",
        "exact",
        "The same id at two positions is the same row, and the position rows alone make two vectors of it.",
        "One id of one text; what the model makes of the difference is chapter 4's matter.",
        measure_positions,
        movable=False,
        headline=("largest_difference_with_positions", "f3"),
    ),
    Experiment(
        "ch03.leading-blank",
        "exact",
        "A blank belongs to the piece behind it, so that one word has an id at the start of a text and another one within it.",
        "One sentence; byte-level BPE with GPT-2's words.",
        measure_blank,
        headline=("tokens", "int"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="same_id.py", description=__doc__, keys=__file__).add("model", "threads", "seed", "json")
    parser.add_argument("--text", default=TEXT, help="a text in which a token comes back")
    parser.add_argument("--sentence", default=SENTENCE, help="whose words and tokens are counted, and whose last word is looked up")
    return parser


@command
def main(argv=None):
    """Print one id at two positions, and one word with two ids."""
    args = options().parse_args(argv)
    model = load_for(args)
    if not args.sentence.split():
        raise BadInput("the sentence has no word; give one")
    values = {"leading-blank": measure_blank(model, args.sentence)}
    if model.config.model_type == "gpt2":
        values["same-row"] = measure_positions(model, args.text)
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
