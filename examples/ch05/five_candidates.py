"""Chapter 5: what temperature, top-k and top-p each do by themselves, on five candidates for the next word.

    python examples/ch05/five_candidates.py
    python examples/ch05/five_candidates.py --logits 2,1,0
    python examples/ch05/five_candidates.py --plot temperature.svg

The filters are those of sampling.py, which shows what they do together.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch05.sampling import CANDIDATES, LOGITS, candidates, logit_list, probabilities
from examples.lab.experiment import Experiment
from examples.lab.figure import bar_style, check_target, new_figure, write_figure
from examples.lab.script import Parser, answer, command, table

TEMPERATURES = (0.1, 0.5, 1.0, 2.0)
MASSES = (0.5, 0.9, 0.95, 1.0)  # top-p's


def measure(logits=LOGITS, names=CANDIDATES):
    """What each choice alone does to candidates with `logits` [V]: temperatures, top_k and top_p; p = 0.9 after a temperature;
    and under the name of the best of them, mat_percent, its share.

    Per cent to one decimal and probabilities to four decimals are what is meant here: the last bits of an exponential are those of
    one processor's library, and this record is the same on every machine.
    """
    logits = torch.tensor(logits, dtype=torch.float64)  # [V]
    best = candidates(logits, count=len(logits))
    leader, at_1 = best[0], probabilities(logits)  # [V]

    def percent(x):
        return round(100 * float(x), 1)

    def kept(**setting):
        return probabilities(logits, **setting) > 0  # [V]

    temperatures = []
    for temperature in TEMPERATURES:
        found = probabilities(logits, temperature).tolist()
        shares = {name: percent(x) for name, x in zip(names, found, strict=True)}
        temperatures.append({"temperature": temperature, **shares, "probabilities": [round(x, 4) for x in found]})
    by_k = {k: kept(top_k=k) for k in range(1, len(logits) + 1)}
    by_p = {p: kept(top_p=p) for p in MASSES}
    return {
        "candidates": [{"candidate": names[r["id"]], "logit": r["logit"], "percent": percent(r["probability"])} for r in best],
        f"{names[leader['id']]}_percent": percent(leader["probability"]),
        "temperatures": temperatures,
        "top_k": [{"k": k, "cut_percent": percent(at_1[~stays].sum())} for k, stays in by_k.items()],
        "top_p": [{"p": p, "kept": int(stays.sum()), "mass_percent": percent(at_1[stays].sum())} for p, stays in by_p.items()],
        "after_temperature_half_kept_at_p_0_9": int(kept(temperature=0.5, top_p=0.9).sum()),
        "after_temperature_2_kept_at_p_0_9": int(kept(temperature=2.0, top_p=0.9).sum()),
    }


def _names(values):
    """The candidates in the order of their ids."""
    return [key for key in values["temperatures"][0] if key not in ("temperature", "probabilities")]


def report(values):
    """Text of {"example": ...}."""
    found = values["example"]
    names = _names(found)
    by_temperature = [[r["temperature"], *(f"{r[name]:.1f}%" for name in names)] for r in found["temperatures"]]
    by_k = [[r["k"], f"{r['cut_percent']:.1f}%"] for r in found["top_k"]]
    by_p = [[r["p"], r["kept"], f"{r['mass_percent']:.1f}%"] for r in found["top_p"]]
    hot = found["after_temperature_2_kept_at_p_0_9"]
    first = next(r["kept"] for r in found["top_p"] if r["p"] == 0.9)  # a temperature that follows moves no candidate in or out
    return "\n".join(
        [
            table(
                ["candidate", "score", "probability"],
                [[r["candidate"], f"{r['logit']:.1f}", f"{r['percent']:.1f}%"] for r in found["candidates"]],
            ),
            "",
            "Temperature alone:",
            "",
            table(["temperature", *names], by_temperature),
            "",
            "Top-k alone, at temperature 1:",
            "",
            table(["k", "mass cut"], by_k),
            "",
            "Top-p alone, at temperature 1:",
            "",
            table(["p", "kept", "their mass"], by_p),
            "",
            f"The order matters: top-p 0.9 after a temperature of 2 keeps {hot} of {len(names)} candidates, before it {first}.",
        ]
    )


def draw(values, path):
    """The probabilities at each temperature, from what `measure` returns."""
    figure, axes = new_figure()
    names, rows = _names(values), values["temperatures"]
    width = 0.8 / len(rows)
    for i, row in enumerate(rows):
        places = [j + i * width for j in range(len(names))]
        axes.bar(places, row["probabilities"], width, label=f"τ = {row['temperature']:g}", **bar_style(i))
    axes.set_xticks([j + 0.4 - width / 2 for j in range(len(names))], names)
    axes.set(
        xlabel="candidate, the highest score first",
        ylabel="probability",
        title="A temperature τ flattens or sharpens, and never reorders",
    )
    axes.legend()
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch05.example",
        "exact",
        "Temperature reshapes probabilities and keeps their order; top-k cuts to a count, top-p to a mass.",
        "Five candidates with made-up scores, each filter alone unless it is said.",
        measure,
        model="five candidates",
        loads=False,
        movable=False,
        figures={"temperature.svg": draw},
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="five_candidates.py", description=__doc__, keys=__file__)
    parser.add_argument("--logits", type=logit_list, default=None, metavar="X,X", help="by default those of five candidates")
    return parser.add("plot", "json")


@command
def main(argv=None):
    """Print what each filter does by itself."""
    args = options().parse_args(argv)
    check_target(args.plot)
    if args.logits is None:
        values = {"example": measure()}
    else:
        values = {"example": measure(args.logits, [str(i) for i in range(len(args.logits))])}
    answer(args, values, report, lambda values, path: draw(values["example"], path))


if __name__ == "__main__":
    sys.exit(main())
