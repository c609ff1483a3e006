"""Chapter 10: all that one token costs, in one table: parameters, FLOPs with a cache and without one, and bytes of cache.

    python examples/ch10/token_costs.py
    python examples/ch10/token_costs.py --config gpt2 llama-3-8b --prompt-tokens 100 --bytes 4

Counts from configs alone: the prompt goes through in one pass, and then a new token is fed, either by itself, behind the cache, or
with the whole text before it.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.families import formulas
from examples.ch02.model import load_config
from examples.ch10.cache_cost import flops_of_step
from examples.ch10.cache_memory import GPT3
from examples.ch10.kv_cache import cache_bytes
from examples.lab.experiment import Experiment
from examples.lab.script import BadInput, Parser, answer, command, table, whole_number

NAMES, PROMPT = ("gpt2", "gpt2-xl", "GPT-3"), 512

# --------------------------------------------------------------------------------------------------------- the measurement


def measure(names=NAMES, prompt=PROMPT, bytes_per_number=2):
    """What a token costs in each of `names`, a row each, after a prompt of `prompt` tokens.

    prefill_gflop: of a token of the prompt, the mean over the pass, logits at its last position only. decode_gflop: of the new
    token behind the cache; naive_gflop: of the pass over the whole text in its place. flop_per_weight_byte: of the prefill and of
    a decode step, over the bytes of all parameters. cache_kib_per_token: what the second position adds. cache_gib: with the new
    token. Raises BadInput for a config with no position for the new token.
    """
    rows = []
    for name in names:
        config = GPT3 if name.upper() in ("GPT-3", "GPT3") else load_config(name)
        if prompt + 1 > config.n_positions:
            raise BadInput(f"{prompt} tokens and a new one are more than the {config.n_positions} positions of {name}; give fewer")
        parameters = formulas(config).parameter_count(config)["total"]
        prefill, decode = flops_of_step(config, 0, prompt), flops_of_step(config, prompt, 1)
        naive, weights = flops_of_step(config, 0, prompt + 1), parameters * bytes_per_number
        one, two = (cache_bytes(config, tokens, 1, bytes_per_number) for tokens in (1, 2))
        rows.append(
            {
                **{"model": name, "parameters": parameters, "weight_gib": weights / 2**30},
                **{"prefill_gflop": prefill / prompt / 1e9, "decode_gflop": decode / 1e9, "naive_gflop": naive / 1e9},
                **{"naive_over_decode": naive / decode, "decode_flop_per_parameter": decode / parameters},
                **{"prefill_flop_per_weight_byte": prefill / weights, "decode_flop_per_weight_byte": decode / weights},
                "cache_kib_per_token": (two - one) / 2**10,
                "cache_gib": cache_bytes(config, prompt + 1, 1, bytes_per_number) / 2**30,
            }
        )
    return {"prompt": prompt, "bytes_per_number": bytes_per_number, "models": rows}


# --------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"token-costs": ...}."""
    v = values["token-costs"]
    rows = [
        [
            *(r["model"], f"{r['parameters']:,}", f"{r['weight_gib']:,.2f}"),
            *(f"{r[key]:.3g}" if r[key] < 1000 else f"{r[key]:,.0f}" for key in ("prefill_gflop", "decode_gflop", "naive_gflop")),
            *(f"{r['cache_kib_per_token']:,.5g}", f"{r['cache_gib']:,.3g}"),
        ]
        for r in v["models"]
    ]
    heads = ["model", "parameters", "weights, GiB", "prefill", "decode", "no cache", "KiB", "cache, GiB"]
    last = v["models"][-1]
    return "\n".join(
        [
            f"A prompt of {v['prompt']:,} tokens, and then a new one; {v['bytes_per_number']} bytes per number.",
            "GFLOP of each token of the prompt, of the new one behind the cache, and of it without a cache;",
            "KiB that a token adds to the cache.",
            "",
            table(heads, rows),
            "",
            f"In {last['model']} the new token costs {last['decode_flop_per_parameter']:.2f} FLOPs per parameter with a cache, and "
            f"{last['naive_over_decode']:,.0f} times that without.",
            f"For each byte of weights the prefill does {last['prefill_flop_per_weight_byte']:,.0f} FLOPs, and a decode step "
            f"{last['decode_flop_per_weight_byte']:.2f}.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch10.token-costs",
        "exact",
        "After 512 tokens of prompt a new one costs about 2 FLOPs per parameter with a cache, hundreds of times that without.",
        "Matmul FLOPs and bytes of three published shapes, one sequence; each weight is read once a pass; nothing is timed.",
        measure,
        headline=("models[model=gpt2].naive_over_decode", "f0"),
        model="published shapes (their configs; no weights)",
        loads=False,
        movable=False,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="token_costs.py", description=__doc__, keys=__file__)
    about = "GPT-3, a published shape as gpt2 or llama-3-8b, embedded, a folder or a config.json; several of them"
    parser.add_argument("--config", nargs="+", default=list(NAMES), metavar="NAME or FILE", help=about)
    parser.add_argument("--prompt-tokens", type=whole_number(1), default=PROMPT, metavar="P", help="tokens of the prompt")
    parser.add_argument("--bytes", type=int, choices=[1, 2, 4, 8], default=2, help="bytes of one number")
    return parser.add("json")


@command
def main(argv=None):
    """Print what a token costs."""
    args = options().parse_args(argv)
    answer(args, {"token-costs": measure(args.config, args.prompt_tokens, args.bytes)}, report)


if __name__ == "__main__":
    sys.exit(main())
