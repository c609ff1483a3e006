"""Chapter 5: our filters beside the library's, row by row, and the frequencies that ids are drawn with.

    python examples/ch05/sampling_agreement.py
    python examples/ch05/sampling_agreement.py --rows 5000 --draws 1000000 --seed 1

transformers has a processor for each of temperature, top-k and top-p. They run on the same logits: random rows of several sizes
and magnitudes, with impossible tokens and with ties. Shapes: V vocabulary.
"""

import math
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import seeded
from examples.ch05.sampling import CANDIDATES, LOGITS, draw, probabilities
from examples.lab.environment import import_transformers
from examples.lab.experiment import Experiment, largest, tolerance, worst
from examples.lab.script import Parser, answer, command, progress_bar, table, whole_number

ROWS = 1000
DRAWS = 100_000
BOUND = 1e-6  # of a probability: float32 beside float64
DEVIATIONS = 4  # standard deviations: of 16,000 right counts about one is further off
SETTINGS = [  # 120 of them: temperature, top-k, top-p
    (t, k, p) for t in (1.0, 0.7, 1.7, 0.05) for k in (None, 1, 3, 40, 5000) for p in (None, 0.1, 0.5, 0.9, 0.999, 1.0)
]


def library_probabilities(logits, temperature=1.0, top_k=None, top_p=None):
    """What transformers' own processors leave of logits [N, V]: probabilities [N, V]."""
    transformers = import_transformers()
    steps = [transformers.TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    steps += [transformers.TopKLogitsWarper(top_k)] if top_k is not None else []
    steps += [transformers.TopPLogitsWarper(top_p)] if top_p is not None else []
    for step in steps:
        logits = step(None, logits)
    return torch.softmax(logits, dim=-1)


def logits_rows(count, seed=0):
    """Rows of logits to try filters on, [count][V] of several V: flat, peaked, spread over magnitudes, some impossible tokens,
    some with equal values."""
    generator = seeded(seed)
    rows = []
    for i in range(count):
        V = (2, 5, 11, 50, 200, 1024)[i % 6]
        x = torch.randn(V, generator=generator)
        x = x * (0.01, 1.0, 3.0, 20.0, 300.0)[i % 5]
        if i % 7 == 1:
            x = x.round()  # many ties
        if i % 7 == 2:
            x[torch.rand(V, generator=generator) < 0.4] = -math.inf
            x[0] = 0.0
        if i % 7 == 3:
            x = x + 1e4
        rows.append(x)
    return rows


def setting(i):
    """The setting that row i is tried with; the stride of 37 has no factor in common with 120, and so comes by all of them."""
    return SETTINGS[(i * 37) % len(SETTINGS)]


def cuts_a_tie(logits, ours):
    """Whether the last token that `ours` [V] keeps has an equal among those it cuts: there the library may keep others."""
    kept = ours > 0
    cut = ~kept & (logits > -math.inf)
    if not cut.any():
        return False
    return bool(logits[kept].min() <= logits[cut].max())


def draw_frequencies(logits, draws, seed=0, **settings):
    """How often each id of logits [V] is drawn, beside its probability: [{id, probability, frequency, deviations}], the last in
    standard deviations of the count."""
    p = probabilities(logits, **settings).double()  # [V]
    generator = seeded(seed)
    counts = torch.bincount(draw(p.float().expand(draws, -1), generator), minlength=len(p))
    rows = []
    for i, (pi, n) in enumerate(zip(p.tolist(), counts.tolist(), strict=True)):
        spread = math.sqrt(pi * (1 - pi) / draws)
        deviations = (n / draws - pi) / spread if spread else 0.0  # where p is 0 or 1 the frequency has to be p itself
        rows.append({"id": i, "probability": pi, "frequency": n / draws, "deviations": deviations})
    return rows


# -------------------------------------------------------------------------------------------------------- the measurements


def compare_filters(rows=ROWS, seed=0, progress=lambda: None):
    """Our probabilities beside the library's on `rows` rows, each with one of SETTINGS: a `tolerance` of a probability, which holds
    where the kept sets are the same too.

    The kept sets are compared with the library on the same float32 logits; the probabilities with the library in float64, since
    it divides by the temperature before it takes the largest off, and loses digits where logits are large: by library_in_float32.
    """
    same, ties, farthest, library = 0, 0, 0.0, 0.0
    for i, logits in enumerate(logits_rows(rows, seed)):
        progress()
        ours = probabilities(logits, *setting(i))  # [V]
        if cuts_a_tie(logits, ours):
            ties += 1
            continue
        rounded = library_probabilities(logits[None], *setting(i))[0]
        theirs = library_probabilities(logits[None].double(), *setting(i))[0]
        same += bool(((ours > 0) == (rounded > 0)).all())
        farthest = worst([farthest, largest(ours.double() - theirs)])
        library = worst([library, largest(rounded.double() - theirs)])
    return tolerance(
        BOUND,
        farthest,
        same == rows - ties,  # the claim has two halves
        rows=rows,
        ties_cut=ties,
        compared=rows - ties,
        same_kept=same,
        settings=len({setting(i) for i in range(rows)}),
        library_in_float32=library,
        library_in_float32_strays_above_1e_4=library > 1e-4,
    )


def measure_draws(draws=DRAWS, seed=0):
    """The frequencies of the five candidates, drawn from all and from those that top-p at 0.9 keeps: a `tolerance` in standard
    deviations of a count, which holds where those that are cut are never drawn."""
    logits = torch.tensor(LOGITS)
    every, kept = draw_frequencies(logits, draws, seed), draw_frequencies(logits, draws, seed, top_p=0.9)
    never = all(r["frequency"] == 0 for r in kept if r["probability"] == 0)
    return tolerance(
        DEVIATIONS,
        worst(abs(r["deviations"]) for r in every + kept),
        never,
        draws=draws,
        candidates=len(every),
        cut_ones_never_drawn=never,
        frequencies=every,
        frequencies_top_p=kept,
    )


def report(values):
    """Text of {"filters": ..., "draws": ...}."""
    f, d = values["filters"], values["draws"]

    def cells(r):
        return [f"{r['probability']:.3%}", f"{r['frequency']:.3%}", f"{r['deviations']:+.2f}"]

    pairs = zip(CANDIDATES, d["frequencies"], d["frequencies_top_p"], strict=True)
    rows = [[name, *cells(one), *cells(two)] for name, one, two in pairs]
    return "\n".join(
        [
            f"{f['rows']:,} rows of random logits, {f['settings']} settings of temperature, top-k and top-p:",
            "",
            table(
                ["our filters beside transformers'", ""],
                [
                    ["rows left out, of which a tie is cut", f"{f['ties_cut']:,}"],
                    ["rows compared", f"{f['compared']:,}"],
                    ["of them with the same tokens kept", f"{f['same_kept']:,}"],
                    ["largest difference of a probability, theirs in float64", f"{f['worst']:.1e}"],
                    ["theirs in float32 beside theirs in float64", f"{f['library_in_float32']:.1e}"],
                ],
            ),
            "",
            f"{d['draws']:,} draws from the five candidates; deviations are in standard deviations of the count:",
            "",
            table(["", "probability", "drawn", "deviation", "with top-p 0.9", "drawn", "deviation"], rows),
            "",
            f"The same tokens are kept in {f['same_kept']:,} of {f['compared']:,} rows. Probabilities differ by at most "
            f"{f['worst']:.1e}, and",
            f"no frequency is further from its probability than {d['worst']:.1f} standard deviations.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch05.filters",
        "tolerance",
        "Our probabilities are those of transformers' processors within 1e-6, and the kept sets are the same.",
        "Rows whose last kept token has an equal among the cut ones are left out: there the two have different rules.",
        compare_filters,
        model="1,000 rows of random logits",
        loads=False,
        movable=False,
        leaves_out=("library_in_float32",),  # one machine's rounding
        seconds=2,
    ),
    Experiment(
        "ch05.draws",
        "tolerance",
        "The ids that are drawn have the frequencies that their probabilities say, within four standard deviations.",
        "One seed, five candidates; nothing about the generator's quality beyond this.",
        measure_draws,
        model="five candidates",
        loads=False,
        movable=False,
        leaves_out=("frequencies", "frequencies_top_p"),
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="sampling_agreement.py", description=__doc__, keys=__file__)
    parser.add_argument("--rows", type=whole_number(1, 10**6), default=ROWS, metavar="N", help="rows of random logits")
    parser.add_argument("--draws", type=whole_number(1, 10**6), default=DRAWS, metavar="N", help="draws of one id")
    return parser.add("threads", "seed", "json")


@command
def main(argv=None):
    """Print how far our filters and the library's are apart, and how often each id is drawn."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    with progress_bar("row", args.rows) as bar:
        filters = compare_filters(args.rows, args.seed, bar.update)
    answer(args, {"filters": filters, "draws": measure_draws(args.draws, args.seed)}, report)


if __name__ == "__main__":
    sys.exit(main())
