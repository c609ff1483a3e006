"""Chapter 5: our decoding loop beside the library's, token by token, and a batch of unequal prompts beside each prompt alone.

    python examples/ch05/loop_agreement.py
    python examples/ch05/loop_agreement.py --tokens 60 --to-the-end 1          # the greedy runs that the book records
    python examples/ch05/loop_agreement.py --model smollm2 --tokens 20

Two right programs may part at a near tie, where rounding decides; from there on their texts have nothing in common. So tokens are
counted up to the first difference, and none is allowed. That a wrong program does differ is shown by faults that the tests plant.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for
from examples.ch03.tokens import PROMPTS, encode
from examples.ch04.library import library_model
from examples.ch05.generate import generate
from examples.lab.experiment import Experiment, tolerance
from examples.lab.script import Parser, answer, command, progress_bar, table, whole_number


def library_greedy(library, ids, tokens, end=None):
    """transformers' own `generate`, greedy with its cache: new ids of one prompt [1, T], as a list."""
    settings = dict(max_new_tokens=tokens, do_sample=False, use_cache=True, pad_token_id=0, eos_token_id=end)
    made = library.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return made[0, ids.shape[1] :].tolist()


def compare_greedy(model, texts, tokens, forward=None, library=None, progress=lambda: None):
    """Our greedy tokens beside transformers' from each text: [{text, prompt, tokens, same}], `same` up to the first difference.

    tokens: None goes to the model's last position. forward: makes the function for `generate` anew for each text.
    """
    library = library_model(model) if library is None else library
    rows = []
    for text in texts:
        ids = encode(text, model)  # [1, T]
        n = tokens or model.config.n_positions - ids.shape[1] + 1
        ours = generate(ids, model, n, end=None, forward=forward and forward(model)).sequence()
        theirs = library_greedy(library, ids, n)
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), n)
        rows.append({"text": text, "prompt": ids.shape[1], "tokens": n, "same": same})
        progress()
    return rows


def compare_sequences(model, texts, tokens, temperature, forward=None, seed=0, progress=lambda: None):
    """A batch of unequal prompts beside each alone, row r from seed + r: [{text, prompt, tokens, same}]."""
    prompts = [encode(text, model)[0] for text in texts]
    settings = dict(temperature=temperature, end=None)
    together = generate(prompts, model, tokens, **settings, seed=seed, forward=forward and forward(model, len(prompts)))
    rows = []
    for r, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
        alone = generate([prompt], model, tokens, **settings, seed=seed + r, forward=forward and forward(model, 1))
        same = sum(a == b for a, b in zip(together.sequence(r), alone.sequence(), strict=True))
        rows.append({"text": text, "prompt": len(prompt), "tokens": tokens, "same": same})
        progress()
    return rows


def all_same(rows, **values):
    """A `tolerance` of no differing token at all, from rows with `tokens` and `same`."""
    tokens, same = sum(r["tokens"] for r in rows), sum(r["same"] for r in rows)
    return tolerance(0, tokens - same, tokens=tokens, same=same, rows=rows, **values)


# -------------------------------------------------------------------------------------------------------- the measurements


def measure_greedy(model, texts=PROMPTS, tokens=60, to_the_end=1, library=None, progress=lambda: None):
    """Our greedy tokens beside transformers': the first `to_the_end` texts to the last position, the others for `tokens`."""
    library = library_model(model) if library is None else library
    rows = compare_greedy(model, texts[:to_the_end], None, None, library, progress)
    rows += compare_greedy(model, texts[to_the_end:], tokens, None, library, progress)
    return all_same(rows, positions=model.config.n_positions)


def measure_rows(model, texts=PROMPTS, tokens=40, temperature=0.8, seed=0, progress=lambda: None):
    """A sampled batch of unequal prompts beside each prompt alone."""
    rows = compare_sequences(model, texts, tokens, temperature, None, seed, progress)
    lengths = [r["prompt"] for r in rows]
    return all_same(rows, prompts=len(rows), longest=max(lengths), shortest=min(lengths))


def report(values):
    """Text of {"greedy": ..., "rows": ...}."""

    def rows(found):
        heads = ["prompt", "its tokens", "new tokens", "the same"]
        return table(heads, [[repr(r["text"]), r["prompt"], r["tokens"], r["same"]] for r in found["rows"]])

    greedy, batch = values["greedy"], values["rows"]
    return "\n".join(
        [
            "Greedy, beside transformers' generate; counted up to the first difference:",
            "",
            rows(greedy),
            "",
            f"A sampled batch of {batch['prompts']} prompts, beside each prompt alone:",
            "",
            rows(batch),
            "",
            f"{greedy['same']:,} of {greedy['tokens']:,} greedy tokens are the library's, "
            f"and {batch['same']:,} of {batch['tokens']:,} sampled ones are those of the row alone.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch05.greedy",
        "tolerance",
        "Greedy decoding by the oracle gives transformers' tokens, one by one, up to the model's last position.",
        "One prompt to the last position and three for 60 tokens; a near tie could part two right programs.",
        measure_greedy,
        headline=("same", "int"),
        seconds=10,
    ),
    Experiment(
        "ch05.rows",
        "tolerance",
        "In a batch of unequal prompts, sampled, each row has the tokens that it has alone.",
        "Four prompts, 40 tokens each; rounding differs between batches, so a near tie could part them.",
        measure_rows,
        headline=("same", "int"),
        seconds=4,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="loop_agreement.py", description=__doc__, keys=__file__)
    parser.add_argument("--tokens", type=whole_number(1), default=25, metavar="N", help="new tokens behind each prompt")
    about = "the first so many prompts go on greedily to the model's last position"
    parser.add_argument("--to-the-end", type=whole_number(0, len(PROMPTS)), default=0, metavar="N", help=about)
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T", help="of the sampled batch")
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print how many tokens of the two loops are the same."""
    args = options().parse_args(argv)
    model = load_for(args)
    with progress_bar("prompt", 2 * len(PROMPTS)) as bar:
        values = {
            "greedy": measure_greedy(model, PROMPTS, args.tokens, args.to_the_end, progress=bar.update),
            "rows": measure_rows(model, PROMPTS, args.tokens, args.temperature, args.seed, bar.update),
        }
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
