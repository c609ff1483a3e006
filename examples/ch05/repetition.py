"""Chapter 5: how much of a text has been there before, by sampling policy.

    python examples/ch05/repetition.py                                          # four prompts, 60 tokens, one seed
    python examples/ch05/repetition.py --prompts 8 --tokens 240 --seeds 3       # as the book records it; many minutes
    python examples/ch05/repetition.py --plot repetition.svg

Counted are the new tokens that end a run of four tokens which the text already contained. Each step here computes the whole text
anew. The book's record, ch05.policies, is of the same measurement run with chapter 10's cache, which writes the same tokens far
sooner; it stands among that chapter's experiments, since a chapter imports only from earlier ones.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.ch02.model import load_for
from examples.ch05.cycles import PROMPTS, text_or_ids
from examples.ch05.generate import generate
from examples.lab.figure import PAGE, check_target, label_ends, new_panels, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, progress_bar, table, whole_number

WIDTH = 30  # new tokens in a stretch
SEEDS = (0, 100, 200)  # far apart: prompt r of a batch draws from seed + r
POLICIES = (
    {"policy": "greedy", "temperature": 0.0},
    {"policy": "temperature 0.3", "temperature": 0.3},
    {"policy": "temperature 0.7", "temperature": 0.7},
    {"policy": "temperature 1", "temperature": 1.0},
    {"policy": "temperature 1, top-p 0.9", "temperature": 1.0, "top_p": 0.9},
    {"policy": "temperature 1, top-k 40", "temperature": 1.0, "top_k": 40},
)


def repeated(ids, n=4):
    """For each token of a list of ids: whether the n tokens that end with it stood in the text before."""
    seen, found = set(), [False] * min(n - 1, len(ids))
    for t in range(n, len(ids) + 1):
        gram = tuple(ids[t - n : t])
        found.append(gram in seen)
        seen.add(gram)
    return found


def repeated_shares(model, policy, prompts, tokens, seed=0, width=WIDTH, forward=None, on_token=None):
    """The share of repeated tokens in each stretch of `width` new ones, over all `prompts`, lists of ids: [tokens / width] floats.

    All prompts run as one batch; `forward(model, batch)` makes another forward than the oracle.
    """
    settings = {key: value for key, value in policy.items() if key != "policy"}
    by = forward and forward(model, len(prompts))
    made = generate(prompts, model, tokens, **settings, seed=seed, end=None, forward=by, on_token=on_token)
    flags = [repeated(p + made.sequence(r))[-tokens:] for r, p in enumerate(prompts)]  # [prompts][tokens]
    return [sum(sum(row[i : i + width]) for row in flags) / (width * len(flags)) for i in range(0, tokens, width)]


# --------------------------------------------------------------------------------------------------------- the measurement


def room(model, prompts, width=WIDTH):
    """The most new tokens, in whole stretches, that the model's positions leave behind the longest of `prompts`."""
    return (model.config.n_positions - max(map(len, prompts)) + 1) // width * width


def measure_policies(
    model, forward=None, texts=PROMPTS, tokens=None, seeds=SEEDS, width=WIDTH, policies=POLICIES, progress=lambda: None
):
    """How much of a text repeats itself under each policy, without a window: per cent over all prompts and seeds, of one seed the
    least and the most, in the last stretch of `width` new tokens, and the share in each stretch.

    forward: called as forward(model, batch), it makes another forward than the oracle, one with a cache say. tokens: new ones, a
    multiple of `width`, by default up to the model's last position. progress: called for each token.
    The last two values are of the policies of those names, None where they are not among `policies`.
    """
    prompts = [text_or_ids(model, text) for text in texts]
    tokens = room(model, prompts, width) if tokens is None else tokens
    if tokens < width or tokens % width:
        raise BadInput(f"{tokens} new tokens are no whole stretches of {width}; give a multiple of {width}")
    rows = []
    for policy in policies:
        by_seed = [
            repeated_shares(model, policy, prompts, tokens, seed, width, forward, lambda *_: progress()) for seed in seeds
        ]  # [seeds][stretches]
        shares = [sum(x) / len(x) for x in zip(*by_seed, strict=True)]  # [stretches]
        of_a_seed = [100 * sum(x) / len(x) for x in by_seed]  # [seeds]
        rows.append(
            {
                "policy": policy["policy"],
                "percent": sum(of_a_seed) / len(of_a_seed),
                "least_percent": min(of_a_seed),
                "most_percent": max(of_a_seed),
                "last_percent": 100 * shares[-1],
                "shares": shares,
            }
        )
    last = {row["policy"]: row["last_percent"] for row in rows}
    return {
        "width": width,
        "prompts": len(prompts),
        "seeds": len(seeds),
        "tokens": tokens,
        "policies": rows,
        "greedy_last_percent": last.get("greedy"),
        "temperature_1_last_percent": last.get("temperature 1"),
    }


def report(values):
    """Text of {"policies": ...}."""
    found = values["policies"]
    rows = [
        [r["policy"], *(f"{r[key]:.1f}%" for key in ("percent", "least_percent", "most_percent", "last_percent"))]
        for r in found["policies"]
    ]
    most = max(found["policies"], key=lambda r: r["percent"])
    heads = ["policy", "repeated", "least of a seed", "most of a seed", f"in the last {found['width']} tokens"]
    return "\n".join(
        [
            f"Of {found['tokens']} new tokens behind each prompt, those that end four tokens seen before "
            f"(prompts: {found['prompts']}, seeds: {found['seeds']}):",
            "",
            table(heads, rows),
            "",
            f"Most of the text repeats itself under the policy {most['policy']!r}: {most['percent']:.1f}%.",
        ]
    )


def draw_repetition(values, path):
    """The share of repeated tokens along the text, a line for each policy, from what `measure_policies` returns; a panel for those
    of a temperature alone and one for those that filter as well, beside the temperature without one."""
    rows = values["policies"]
    plain = [r for r in rows if "top" not in r["policy"]]
    filtered = [r for r in rows if "top" in r["policy"]]
    filtered += [r for r in plain if any(f["policy"].startswith(r["policy"] + ",") for f in filtered)]
    looks = {row["policy"]: style(i) for i, row in enumerate([*plain, *(r for r in filtered if r not in plain)])}
    figure, panels = new_panels(2, 1, (PAGE, 5.4), sharex=True, sharey=True)
    for axes, some, title in zip(panels, (plain, filtered), ("a temperature τ alone", "a filter as well"), strict=True):
        for row in some:
            places = [values["width"] * (j + 1) for j in range(len(row["shares"]))]
            label = row["policy"].replace("temperature", "τ =").replace(", ", ",\n")
            axes.plot(places, [100 * x for x in row["shares"]], label=label, **looks[row["policy"]], clip_on=False)
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("tokens repeated, per cent")
    panels[0].set_ylim(0, 100)
    panels[-1].set_xlabel("new tokens")
    figure.suptitle("How much of the text has been there before", x=0.01, ha="left")
    for axes in panels:
        label_ends(axes)
    write_figure(figure, path)


def options():
    """The script's argument parser."""
    parser = Parser(prog="repetition.py", description=__doc__, keys=__file__)
    count = whole_number(1, len(PROMPTS))
    parser.add_argument("--prompts", type=count, default=4, metavar="N", help=f"the last of the book's {len(PROMPTS)}")
    parser.add_argument("--tokens", type=whole_number(WIDTH), default=60, metavar="N", help=f"new ones, a multiple of {WIDTH}")
    parser.add_argument("--seeds", type=whole_number(1, 100), default=1, metavar="N", help="runs of each policy")
    return parser.add("model", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print how much repeats itself under each policy."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    texts, seeds = PROMPTS[-args.prompts :], [args.seed + 100 * i for i in range(args.seeds)]
    with progress_bar("token", len(POLICIES) * len(texts) * len(seeds) * args.tokens) as bar:
        found = measure_policies(model, None, texts, args.tokens, seeds, progress=bar.update)
    answer(args, {"policies": found}, report, lambda values, path: draw_repetition(values["policies"], path))


if __name__ == "__main__":
    sys.exit(main())
