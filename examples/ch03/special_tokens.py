"""Chapter 3: special tokens: what a tokenizer adds, what typing one does, and what the token at a document's start is worth.

    python examples/ch03/special_tokens.py
    python examples/ch03/special_tokens.py --model smollm2

In training the embedded model saw `<|endoftext|>` before each play, and so where a document starts. A prompt does not have it
unless somebody puts it there: the two differ by one id. The losses here come from the model's own pass, which chapter 4 opens. A
loss is the mean of -log p over the tokens that come, in nats; lower is better.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, run
from examples.ch03.bpe import encode as encode_by_hand
from examples.ch03.bpe import read_bpe
from examples.ch03.held_text import held_text
from examples.ch03.tokens import before_text, decode, encode, piece
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table

START = "<|endoftext|>"
TYPED, PROMPT = f"Good night.{START}Good morrow.", "Good morrow, my"
MIDDLE, WINDOW = 400, 255  # the token at which a window in the middle of the text starts, and the tokens of a window
STRETCHES = (1, 3, 7, 15, 63, 254)  # how many tokens behind the first, to take the mean loss of


def start_id(model):
    """The id of START; raises BadInput for a tokenizer that does not have it as a special token."""
    whole = {} if model.tokenizer is None else {t.content: i for i, t in model.tokenizer.get_added_tokens_decoder().items()}
    if START not in whole:
        raise BadInput(f"this model's tokenizer has no special token {START}; take embedded or smollm2")
    return whole[START]


def measure_special(model, typed=TYPED):
    """The special tokens and what the tokenizer adds by itself; a text that spells START, as one id and as plain signs."""
    start, bpe = start_id(model), read_bpe(model)
    ids = encode(typed, model, special=False)[0].tolist()
    as_signs = encode_by_hand(typed, replace(bpe, whole={}))
    document = [start, *encode(PROMPT, model, special=False)[0].tolist()]
    return {
        "special_tokens": len(bpe.whole),
        "start": START,
        "start_id": start,
        "vocabulary": model.config.vocab_size,
        "added_before_a_text": len(before_text(model)),
        "typed": typed,
        "ids": ids,
        "pieces": [piece(id, model) for id in ids],
        "times_special": ids.count(start),
        "tokens_as_signs": len(as_signs),
        "times_special_as_signs": as_signs.count(start),
        "same_text_again": decode(ids, model) == decode(as_signs, model) == typed,
        "prompt_ids": document[1:],
        "document_ids": document,
    }


def nats(ids, model):
    """-log p [T - 1] of each of the ids [T] but the first, given those before it; float64."""
    logits = run(model, ids[None, :-1])[0].double()  # [T - 1, V]
    return logits.logsumexp(-1) - logits.gather(-1, ids[1:, None])[:, 0]


@torch.no_grad()
def measure_start(model, stretches=STRETCHES):
    """The loss with START before a window and without it: of a window at the start of the held-out text, and of one in its middle.

    Both are asked for the same tokens: all but the window's first, for which there is no prediction without START. Rows of
    {tokens, with_start, without}. And the best next token behind a prompt, with its probability either way.
    """
    start = torch.tensor([start_id(model)])
    text = encode(held_text(model), model, special=False)[0]
    found = {"stretches": list(stretches)}
    for name, at in (("document_start", 0), ("middle", MIDDLE)):
        window = text[at : at + min(WINDOW, model.config.n_positions - 1)]  # [T]
        having, without = nats(torch.cat([start, window]), model), nats(window, model)  # [T], [T - 1]
        rows = [
            {"tokens": n, "with_start": having[1 : 1 + n].mean().item(), "without": without[:n].mean().item()} for n in stretches
        ]
        found[name] = {"first_token": piece(window[0].item(), model), "p_first_token": (-having[0]).exp().item(), "rows": rows}
    prompt = encode(PROMPT, model, special=False)[0]
    plain, document = (run(model, ids[None])[0, -1].softmax(-1) for ids in (prompt, torch.cat([start, prompt])))
    best = plain.argmax().item()
    found["prompt"] = {
        "text": PROMPT,
        "next": piece(best, model),
        "p_without": plain[best].item(),
        "p_with_start": document[best].item(),
    }
    return found


def report(values):
    """Text of {"special": ..., "start": ...}."""
    s, v = values["special"], values["start"]
    rows = [
        [n] + [f"{v[where]['rows'][i][key]:.2f}" for where in ("document_start", "middle") for key in ("with_start", "without")]
        for i, n in enumerate(v["stretches"])
    ]
    heads = ["first tokens", "a document's start: with", "without", "its middle: with", "without"]
    first, prompt = v["document_start"], v["prompt"]
    gain = first["rows"][0]["without"] - first["rows"][0]["with_start"]
    left = first["rows"][-1]["without"] - first["rows"][-1]["with_start"]
    return "\n".join(
        [
            f"Special tokens: {s['special_tokens']}; {s['start']} is id {s['start_id']} of {s['vocabulary']:,}. "
            f"The tokenizer adds {s['added_before_a_text'] or 'nothing'} by itself.",
            f"{s['typed']!r}: {len(s['ids'])} tokens,",
            f"{s['start']} typed in it is {s['times_special']} of them; read as signs, the text has {s['tokens_as_signs']} tokens.",
            f"{prompt['text']!r} as a prompt: {s['prompt_ids']}",
            f"and as a document: {s['document_ids']}",
            "",
            f"Mean loss in nats, with {s['start']} before the window and without it:",
            "",
            table(heads, rows),
            "",
            f"Behind {s['start']} alone the model gives the document's first token, {first['first_token']!r}, "
            f"{100 * first['p_first_token']:.0f} per cent.",
            f"Behind {prompt['text']!r} it gives {prompt['next']!r} {100 * prompt['p_without']:.1f} per cent, "
            f"and {100 * prompt['p_with_start']:.1f} with {s['start']} before it.",
            f"At a document's start that id is worth {gain:.2f} nats at the second token, and {left:.2f} a token over "
            f"{v['stretches'][-1]}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch03.special",
        "exact",
        "A special token that somebody types becomes its one id, unless the text is read as signs alone.",
        "One special token; a server has to decide which texts may hold it.",
        measure_special,
        headline=("times_special", "int"),
    ),
    Experiment(
        "ch03.start",
        "observation",
        "The token before a document lowers the loss of its first tokens, and of a long window hardly changes it.",
        "One window at the start of one text, and one in its middle.",
        measure_start,
        headline=("document_start.rows[tokens=1].with_start", "f2"),
    ),
)


def options():
    """The script's argument parser."""
    return Parser(prog="special_tokens.py", description=__doc__, keys=__file__).add(
        "model", "dtype", "device", "threads", "seed", "json"
    )


@command
def main(argv=None):
    """Print what the special tokens do."""
    model = load_for(args := options().parse_args(argv))
    answer(args, {"special": measure_special(model), "start": measure_start(model)}, report)


if __name__ == "__main__":
    sys.exit(main())
