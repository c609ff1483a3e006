"""Chapter 5: from scores to one token, by temperature, top-k and top-p, and a single random number.

    python examples/ch05/sampling.py                                       # what is cut of five candidates, and by what
    python examples/ch05/sampling.py --logits 2,1,0 --temperature 0.5 --top-p 0.9

Each step is a function from logits [..., V] to logits [..., V]; a token that it cuts has minus infinity there, so that softmax
gives it exactly 0. The order is temperature, then top-k, then top-p on what top-k left. Nothing here has a state of its own.
"""

import argparse
import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from examples.lab.script import BadInput, Parser, answer, as_number, as_whole, command, or_off, table

CANDIDATES = ("mat", "rug", "floor", "sofa", "roof")  # for "the cat sat on the ...", with made-up scores
LOGITS = (4.0, 2.9, 1.4, 0.5, 0.0)
CANDIDATE_HEADINGS = ("logit", "probability", "kept or cut", "drawn with")
OFF = "--top-k off and --top-p off, or None in a function"


# ------------------------------------------------------------------------------------------------------------- the filters


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """The logits [..., V] less the largest of each row, divided by `temperature`: below 1 sharper, above 1 flatter.

    For temperatures above 0 only; 0 is the argmax, and `choose` takes it without a draw. The largest is taken off first, since
    10 / 1e-39 is infinite and 0 / 1e-39 is 0, and the division is in float64, where the smallest temperature is not yet 0.
    Raises BadInput for a temperature that is not a number above 0.
    """
    temperature = check_temperature(temperature)
    if temperature == 0:
        raise BadInput("a temperature of 0 leaves no probabilities; take the argmax")
    if temperature == 1:
        return logits
    below = logits - logits.amax(-1, keepdim=True)  # [..., V], 0 for the best
    return (below.double() / temperature).to(logits.dtype)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k best of each row [..., V] keep their logits; of equal ones the lower ids. A k above V cuts nothing.

    Raises BadInput unless k is a whole number from 1.
    """
    if (as_whole(k) or 0) < 1:
        raise BadInput(f"top-k is {k!r}; give how many tokens to keep, a whole number from 1, or turn it off: {OFF}")
    order = logits.argsort(dim=-1, descending=True, stable=True)  # [..., V] ids, best first; stable, so equal ones by id
    return logits.scatter(-1, order[..., k:], -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Only the smallest set of best tokens whose probability reaches p keep their logits [..., V]; of equal ones the lower ids.

    A token stays if the mass before it is below p, so the one that crosses p stays, and one always does; p = 1 cuts nothing.
    The test is done from the other end, which is where float32 adds most exactly: the mass from a token down to the last is
    above 1 - p. Holtzman et al., "The Curious Case of Neural Text Degeneration" (2020), section 3.1. Raises BadInput unless
    0 < p <= 1.
    """
    found = as_number(p)
    if found is None or not 0 < found <= 1:
        raise BadInput(f"top-p is {p!r}; give a probability above 0 and up to 1, or turn it off: {OFF}")
    p = found
    if p == 1:
        return logits
    order = logits.argsort(dim=-1, descending=True, stable=True).flip(-1)  # [..., V] ids, worst first
    from_below = torch.softmax(logits.gather(-1, order), dim=-1).cumsum(-1)  # [..., V], a token's own mass included
    cut = from_below <= 1 - p
    cut[..., -1] = False  # the best one
    return logits.masked_fill(cut.scatter(-1, order, cut), -math.inf)


def only(logits: Tensor, allowed: Tensor) -> Tensor:
    """Only the ids that `allowed` [V], of booleans, names keep their logits [..., V].

    A vocabulary may be padded to a round number; the ids behind the last real token have logits and mean nothing.
    """
    return logits.masked_fill(~allowed, -math.inf)


# ------------------------------------------------------------------------------------------------------------- the choice


def probabilities(logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """The probabilities [..., V] that a token is drawn with; exact zeros for what is cut, and at temperature 0 a single 1.

    Computed in float32 at least. Raises BadInput for what the filters refuse, for NaN or plus infinity among the logits, and
    for a row of nothing but minus infinity.
    """
    logits = check_logits(logits)
    check_filters(top_k, top_p)
    if check_temperature(temperature) == 0:
        return torch.zeros_like(logits).scatter_(-1, _argmax(logits).unsqueeze(-1), 1.0)
    logits = with_temperature(logits, temperature)
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return torch.softmax(logits, dim=-1)


def choose(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None, generator=None
) -> Tensor:
    """One id [...] for each row of logits [..., V]. Temperature 0 takes the largest, the lower id on a tie, and draws nothing.

    generator: a torch.Generator, from which each row takes one number; torch's global one is never used. Raises BadInput like
    `probabilities`, and for a draw without a generator.
    """
    if check_temperature(temperature) == 0:
        check_filters(top_k, top_p)
        return _argmax(logits)
    if generator is None:
        raise BadInput("drawing a token takes a generator; give torch.Generator().manual_seed(...)")
    return draw(probabilities(logits, temperature, top_k, top_p), generator)


def draw(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """One id [...] from each row of probabilities [..., V], which a uniform number u picks: the first id whose cumulative sum
    is above u. An id of probability 0 adds nothing to the sum, so it is never the first."""
    cumulative = probabilities.double().cumsum(-1)  # [..., V]
    u = torch.rand(cumulative.shape[:-1], generator=generator, dtype=torch.float64).to(cumulative.device)  # [...], below 1
    below = u * cumulative[..., -1]  # the sum is 1 only up to rounding; u is 1 - 2^-53 at most, so this stays below it
    return torch.searchsorted(cumulative, below.unsqueeze(-1), right=True).squeeze(-1)  # [...]


def check_temperature(temperature: float) -> float:
    """The temperature; raises BadInput unless it is a finite number from 0."""
    found = as_number(temperature)
    if found is None or not 0 <= found < math.inf:
        raise BadInput(f"the temperature is {temperature!r}; give a number from 0 (0 takes the most probable token)")
    return found


def check_filters(top_k: int | None, top_p: float | None) -> None:
    """Raises BadInput for a top-k or top-p that its filter would refuse; None is neither."""
    one = torch.zeros(1)
    if top_k is not None:
        keep_top_k(one, top_k)
    if top_p is not None:
        keep_top_p(one, top_p)


def check_logits(logits: Tensor) -> Tensor:
    """The logits [..., V] in float32 at least; raises BadInput where a row has no probabilities."""
    _argmax(logits)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _argmax(logits):
    """The id [...] of the largest of each row, the lower one on a tie; raises BadInput like `check_logits`."""
    if not logits.is_floating_point() or logits.ndim < 1 or logits.numel() == 0:
        raise BadInput(f"logits are {logits.dtype} of shape {list(logits.shape)}; give floating-point numbers [..., V]")
    ids = logits.argmax(-1)  # torch returns the first of equal ones, and NaN counts as the largest
    best = logits.gather(-1, ids.unsqueeze(-1))  # [..., 1]
    if not best.isfinite().all():
        what = "NaN" if best.isnan().any() else "plus infinity" if (best == math.inf).any() else "nothing but minus infinity"
        raise BadInput(f"the logits hold {what}, so no token has a probability; look for overflow in the model")
    return ids


def candidates(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None, count: int = 10
) -> list[dict]:
    """The best `count` of logits [V] as rows, best first, the lower id on a tie, and none that is impossible: what the choice sees.

    Each is {id, logit, probability, cut, final}: the probability at this temperature (at 0, at 1), the name of the filter that
    cuts it or None, and the probability that it is drawn with in the end.
    """
    logits = check_logits(logits)
    plain = torch.softmax(with_temperature(logits, temperature or 1.0), dim=-1)  # [V]
    final = probabilities(logits, temperature, top_k, top_p)
    by_k = probabilities(logits, temperature, top_k)
    order = logits.argsort(descending=True, stable=True)[:count].tolist()
    order = [i for i in order if logits[i] > -math.inf]

    def cut_by(i):
        if final[i] > 0 or plain[i] == 0:  # the latter: too improbable for float32
            return None
        if temperature == 0:
            return "temperature 0"
        return "top-p" if by_k[i] > 0 else "top-k"

    return [
        {"id": i, "logit": logits[i].item(), "probability": plain[i].item(), "cut": cut_by(i), "final": final[i].item()}
        for i in order
    ]


def candidate_cells(row):
    """A row of `candidates` as the cells under CANDIDATE_HEADINGS."""
    verdict = f"cut by {row['cut']}" if row["cut"] else "kept" if row["final"] > 0 else "probability 0"
    return [f"{row['logit']:.3f}", f"{row['probability']:.2%}", verdict, f"{row['final']:.2%}"]


# -------------------------------------------------------------------------------------------------------------- the script


def report(values):
    """Text of {"choice": ...}: the rows of `candidates`, each with its name."""
    rows = values["choice"]["candidates"]
    left = sum(row["final"] > 0 for row in rows)
    if left == 1:
        end = "Only one token is left, so it is chosen whatever the random number is."
    else:
        end = f"One of {left} tokens is drawn, each with its probability over the sum of what is left."
    shown = [[row["candidate"], *candidate_cells(row)] for row in rows]
    return "\n".join([table(["candidate", *CANDIDATE_HEADINGS], shown), "", end])


def logit_list(text):
    """An argparse type: numbers separated by commas that float32 holds."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not torch.tensor(found, dtype=torch.float32).isfinite().all():
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers; separate them by commas, say --logits=-1,2,0")
    return found


def _option(number, wanted):
    """An argparse type: `number` of the text, whose bounds the filter checks."""

    def convert(text):
        try:
            return number(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is neither {wanted} nor off") from None

    return convert


def add_sampling(parser, temperature=1.0, top_k=None, top_p=None):
    """Add the options of `choose` to a parser: --temperature, --top-k, --top-p, of which "off" turns either filter off."""
    parser.add_argument("--temperature", type=float, default=temperature, metavar="T", help="0 takes the most probable token")
    about = "keep the K most probable tokens; off keeps all"
    parser.add_argument("--top-k", type=or_off(_option(int, "a whole number from 1")), default=top_k, metavar="K", help=about)
    about = "keep the smallest set of the most probable that reaches P; off keeps all"
    parser.add_argument("--top-p", type=or_off(_option(float, "a number up to 1")), default=top_p, metavar="P", help=about)
    return parser


def options():
    """The script's argument parser."""
    parser = Parser(prog="sampling.py", description=__doc__, keys=__file__).add("json")
    parser.add_argument("--logits", type=logit_list, default=None, metavar="X,X", help="by default those of five candidates")
    return add_sampling(parser, top_p=0.9)


@command
def main(argv=None):
    """Print what the options leave of a few candidates."""
    args = options().parse_args(argv)
    logits = torch.tensor(LOGITS if args.logits is None else args.logits)  # [V]
    names = CANDIDATES if args.logits is None else [str(i) for i in range(len(logits))]
    rows = candidates(logits, args.temperature, args.top_k, args.top_p, len(logits))
    values = {"choice": {"candidates": [{"candidate": names[row["id"]], **row} for row in rows]}}
    head = f"temperature {args.temperature}, top-k {args.top_k or 'off'}, top-p {args.top_p or 'off'}:\n\n"
    answer(args, values, lambda values: head + report(values))


if __name__ == "__main__":
    sys.exit(main())
