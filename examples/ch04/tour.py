"""Chapter 4, the tour: the next tokens, the agreement with the library, and what the mask does, in ten seconds.

python examples/ch04/tour.py
python examples/ch04/tour.py --model smollm2 --prompt "The capital of France is"
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import DTYPES, load_for, run
from examples.ch03.tokens import ids_for, shown
from examples.ch04.agreement import BOUND, agreement
from examples.ch04.causal_mask import change_last
from examples.ch04.gpt2_from_scratch import PROMPT, next_token_table, next_tokens
from examples.ch04.library import library_model
from examples.lab.experiment import worst
from examples.lab.script import Parser, answer, command


@torch.no_grad()
def measure(model, ids, library):
    """The next tokens after `ids` [1, T], how far our logits are from the library's, and what another last id changes."""
    change = change_last(model, ids)[0]
    return {
        "ids": ids[0].tolist(),
        "next_tokens": next_tokens(model, ids),
        "agreement": agreement(run(model, ids), library(ids, use_cache=False).logits),
        "mask_change_earlier": worst(change[:-1]),
        "mask_change_last": change[-1],
    }


def report(values):
    """Text of {"tour": ...}."""
    v = values["tour"]
    found = v["agreement"]
    off = found["relative_difference"]
    within = f"transformers' to within {BOUND}" if off <= BOUND else f"NOT transformers': they are {off:.1e} apart,"
    return "\n".join(
        [
            next_token_table(v["next_tokens"]),
            "",
            f"Agreement: our logits are {within} of the largest, {found['largest_logit']:.1f};",
            f"the same most probable token at {found['same_argmax']} of {found['positions']} positions.",
            f"The mask: with another last token the logits before it change by {v['mask_change_earlier']}, "
            f"those at it by {v['mask_change_last']:.2f}.",
            "",
            "Next: gpt2_from_scratch.py, in the same folder, is the program; agreement.py, rounding.py,",
            "causal_mask.py, residual_trace.py, component_timing.py, last_position.py, cost_model.py and",
            "tensor_sizes.py show one thing about it each.",
        ]
    )


def options():
    """The script's argument parser."""
    parser = Parser(prog="tour.py", description=__doc__, keys=__file__)
    return parser.add("model", "dtype", "device", "prompt", "threads", "seed", "json")


@command
def main(argv=None):
    """Show chapter 4 in one look."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = ids_for(args, model, 10, PROMPT)
    values = {"tour": measure(model, ids, library_model(model, DTYPES[args.dtype], args.device))}
    c = model.config
    fewer = f" with {c.kv_heads} of keys and values" if c.kv_heads < c.n_head else ""
    head = (
        f"The model: {args.model}, a {c.model_type} of {model.manifest['parameters']:,} parameters:\n"
        f"{c.n_layer} layers, width {c.n_embd}, {c.n_head} heads{fewer}.\n"
        f"The prompt: {shown(ids, model)}, {ids.shape[1]} tokens.\n\n"
    )
    answer(args, values, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
