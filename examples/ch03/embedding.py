"""Chapter 3: the embedding table: an id selects a row, the same as a product with a one-hot vector; and the table is the head, too.

    python examples/ch03/embedding.py
    python examples/ch03/embedding.py --text "To be, or not to be"

Shapes: T positions, V vocabulary, d width. The table is [V, d]. At the start of a pass an id selects one of its rows; at the end a
vector [d] is multiplied by every row, and the products are the scores, a logit for each id of the vocabulary. Where the two tables
are one, the head is "tied": the file holds it once, and the computation uses it twice.
"""

import sys
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import read_config
from examples.ch02.layout import embedding_name
from examples.ch02.model import load_config, load_for, run
from examples.ch03.tokens import embedding_share, encode, piece
from examples.lab.experiment import Experiment, largest, tolerance
from examples.lab.script import BadInput, Parser, answer, command, table

TEXT = "Good morrow, my"
BOUND = 1e-5  # of a score, as a part of the largest
_LLAMA = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_scaling": None}
OTHERS = {  # what two published config.json say, beside the GPT-2s of chapter 2
    "smollm2-135m": _LLAMA
    | {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
    | {"num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 100000.0}
    | {"tie_word_embeddings": True},
    "llama-3-8b": _LLAMA
    | {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
    | {"tie_word_embeddings": False},
}


def one_hot(ids: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """[T, V] of ids [T]: in each row a 1 at the id and 0 everywhere else."""
    rows = torch.zeros(len(ids), vocabulary)
    rows[torch.arange(len(ids)), ids] = 1.0
    return rows


def measure_lookup(model, text=TEXT):
    """The rows that ids select beside the product of their one-hot vectors with the table, for a text and for the vocabulary."""
    E = model.token_table.float()  # [V, d]
    ids = encode(text, model)[0]  # [T]
    parts = torch.arange(len(E)).split(1024)  # the whole square, [V, V], is 10 GB for SmolLM2
    return {
        "text": text,
        "tokens": len(ids),
        "vocabulary": E.shape[0],
        "width": E.shape[1],
        "same_bits_text": torch.equal(E[ids], one_hot(ids, len(E)) @ E),
        "same_bits_vocabulary": all(torch.equal(E[part], one_hot(part, len(E)) @ E) for part in parts),
        "numbers_read_by_row": len(ids) * E.shape[1],
        "flops_of_the_product": 2 * len(ids) * E.shape[0] * E.shape[1],
    }


def measure_shares():
    """The table's part of the parameters of published shapes: rows of {model, vocabulary, width, table, parameters, ...}."""
    names = ("embedded", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
    configs = {name: load_config(name) for name in names} | {name: read_config(fields, name) for name, fields in OTHERS.items()}
    rows = []
    for name, config in configs.items():
        size, total = embedding_share(config)
        tied = config.tie_word_embeddings
        rows.append({"model": name, "vocabulary": config.vocab_size, "width": config.n_embd, "table": size, "parameters": total})
        rows[-1] |= {
            "tied": tied,
            "share_percent": 100 * size / total,
            "with_head_percent": 100 * size * (1 if tied else 2) / total,
        }
    return {"models": rows}


def measure_tied(model, text=TEXT):
    """What happens to the logits [T, V] when one row of the table becomes zero: that of the best next token, which is not in the
    text, and that of the text's last token.

    Of each: how many logits are other numbers at the positions before the last one and at the last one, and what the row's own
    logit is then. Raises BadInput for a model whose head is a tensor of its own, and where the best next token is in the text.
    """
    file_name, name = embedding_name(model.config), next(iter(model.weights))
    if not model.config.tie_word_embeddings:
        raise BadInput("this model's head is not tied: it is a tensor of its own; take the embedded model")
    ids = encode(text, model)  # [1, T]
    before = run(model, ids)[0]  # [T, V]
    best, last = before[-1].argmax().item(), ids[0, -1].item()
    if best in ids or last in ids[0, :-1]:
        raise BadInput("the best next token is in the text already, or its last one stands there twice; give another text")
    found = {
        "text": text,
        "tokens": ids.shape[1],
        "vocabulary": len(before[0]),
        "in_the_file": [t["name"] for t in model.manifest["tensors"] if t["name"] in (file_name, "lm_head.weight")],
    }
    for key, id in (("not_in_the_text", best), ("in_the_text", last)):
        changed = model.token_table.clone()
        changed[id] = 0.0
        after = run(replace(model, weights=model.weights | {name: changed}), ids)[0]  # [T, V]
        other = after != before
        found[key] = {
            "piece": piece(id, model),
            "id": id,
            "changed_before_the_last": int(other[:-1].sum()),
            "changed_at_the_last": int(other[-1].sum()),
            "own_logits_are_zero": bool((after[:, id] == 0).all()),
        }
    return found


def measure_scores(model, text=TEXT):
    """One vector scored against the table: by a dot product with each row, in float64, and by one matrix product."""
    E = model.token_table.float()  # [V, d]
    x = E[encode(text, model)[0, -1]]  # [d], a row of the table itself: any vector of that width will do
    by_row = torch.stack([(row.double() * x.double()).sum() for row in E])  # [V]
    at_once = E @ x  # [V]
    worst = largest(at_once - by_row) / largest(by_row)
    return tolerance(BOUND, worst, scores=len(by_row))


def report(values):
    """Text of {"lookup", "scores", "shares", "tied"}."""
    v, tied, shares = values["lookup"], values["tied"], values["shares"]["models"]
    rows = [
        [r["model"], f"{r['vocabulary']:,}", f"{r['width']:,}", f"{r['table']:,}", f"{r['parameters']:,}"]
        + [f"{r['share_percent']:.1f}%", "tied" if r["tied"] else f"as much again, {r['with_head_percent']:.1f}%"]
        for r in shares
    ]
    same = "the same numbers, bit for bit" if v["same_bits_text"] and v["same_bits_vocabulary"] else "OTHER numbers"
    changes = [
        [f"{tied[key]['piece']!r}, {key.replace('_', ' ')}", tied[key]["changed_before_the_last"], tied[key]["changed_at_the_last"]]
        for key in ("not_in_the_text", "in_the_text")
    ]
    T, V = tied["tokens"], tied["vocabulary"]
    first, zero = tied["not_in_the_text"], all(tied[key]["own_logits_are_zero"] for key in ("not_in_the_text", "in_the_text"))
    lone = (first["changed_before_the_last"], first["changed_at_the_last"]) == (T - 1, 1)
    return "\n".join(
        [
            f"{v['text']!r}: {v['tokens']} ids, a table of V {v['vocabulary']:,} x d {v['width']:,}.",
            f"The rows that they select and the one-hot product [T, V] x [V, d] are {same};",
            f"the rows are {v['numbers_read_by_row']:,} numbers to read, the product {v['flops_of_the_product']:,} FLOPs.",
            f"Scores of one vector, row by row and at once: {values['scores']['worst']:.0e} apart, of the largest.",
            "",
            table(["table", "V", "d", "its parameters", "the model's", "share", "head"], rows),
            "",
            f"In the model's file: {' and '.join(tied['in_the_file'])}.",
            f"One row of it set to zero: the logits that are other numbers then, of {T - 1} x {V:,} and of {V:,}",
            "",
            table(["row", "before the last position", "at the last"], changes),
            "",
            f"A row that no id selects {'changes only its own logit' if lone else 'CHANGES OTHER LOGITS'} at each position"
            f"{', which is exactly 0 then' if zero else ''}:",
            "the row is a column of the head. One that an id selects changes what stands behind it as well.",
        ]
    )


def _experiment(id, kind, claim, limits, measure, headline, **more):
    return Experiment(f"ch03.{id}", kind, claim, limits, measure, headline=headline, movable=False, **more)


EXPERIMENTS = (
    _experiment(
        "lookup",
        "exact",
        "Selecting a row of the embedding table and multiplying a one-hot vector by it give the same numbers, bit for bit.",
        "The numbers alone; which of the two is faster is not timed.",
        measure_lookup,
        ("flops_of_the_product", "int"),
    ),
    _experiment(
        "shares",
        "exact",
        "The embedding table is about a third of GPT-2 small; the larger a model of the same vocabulary, the smaller its share.",
        "Counts from configs; of the four GPT-2s the vocabulary is the same, of the others it differs too.",
        measure_shares,
        ("models[model=gpt2].share_percent", "%1"),
        model="published configurations",
        loads=False,
    ),
    _experiment(
        "tied",
        "exact",
        "A tied table is stored once and used twice: as rows that ids select, and as columns of the head.",
        "Two rows of one model, on one text.",
        measure_tied,
        ("not_in_the_text.changed_at_the_last", "int"),
    ),
    _experiment(
        "scores",
        "tolerance",
        "A vector is scored by a dot product with each row of the table, and one matrix product gives all scores within 1e-5.",
        "One vector, a row of the table.",
        measure_scores,
        ("worst", "s1"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="embedding.py", description=__doc__, keys=__file__).add("model", "threads", "seed", "json")
    parser.add_argument("--text", default=TEXT, help="whose ids are looked up")
    return parser


@command
def main(argv=None):
    """Print the look-up two ways, the table's share, and what a row of it does."""
    args = options().parse_args(argv)
    model = load_for(args)
    values = {"lookup": measure_lookup(model, args.text), "scores": measure_scores(model, args.text)}
    answer(args, values | {"shares": measure_shares(), "tied": measure_tied(model, args.text)}, report)


if __name__ == "__main__":
    sys.exit(main())
