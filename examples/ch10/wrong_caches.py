"""Chapter 10: five ways to get a cache wrong that raise nothing, what each costs, and what would have stopped it.

    python examples/ch10/wrong_caches.py
    python examples/ch10/wrong_caches.py --model smollm2 --plot failures.svg

Each failure is a program that runs: a prompt is fed, then one token at a time, and every logit is compared with the oracle's.
"""

import math
import sys
from pathlib import Path
from textwrap import fill

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.families import program
from examples.ch02.model import load_for, run
from examples.ch03.tokens import decode
from examples.ch05.generate import generate
from examples.ch10.cache_parity import TEXT, some_ids, text_for
from examples.ch10.kv_cache import KVCache, check, feed, forward_cached, mask_after, positions
from examples.lab.experiment import Experiment, largest, worst
from examples.lab.figure import BLACK, PAGE, SMALL, check_target, new_panels, plain_ticks, style, write_figure
from examples.lab.script import BadInput, Parser, answer, command, progress_bar, table

PROMPT, CAPACITY = 12, 24  # of a text of 40 tokens the prompt, and what the ring buffer holds
NEW = 30  # tokens that each failure writes behind the prompt

# ------------------------------------------------------------------------------------------------------------ the failures


class RingCache(KVCache):
    """A cache that does not end: position t goes to slot t mod capacity, over whatever lives there. Here to be shown wrong.

    A layer with a window is left as it is: there it would be right to drop the oldest.
    """

    def check_room(self, new):
        pass

    def extend(self, layer, k, v):
        if self.room(layer) < self.capacity:
            return super().extend(layer, k, v)
        for i in range(k.shape[2]):
            slot = (self.length + i) % self.capacity
            self.keys[layer][:, :, slot] = k[:, :, i]
            self.values[layer][:, :, slot] = v[:, :, i]
        end = min(self.length + k.shape[2], self.capacity)
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, ids):
        self.keep_windows()
        for i in range(ids.shape[1]):
            self.ids[:, (self.length + i) % self.capacity] = ids[:, i]
        self.length += ids.shape[1]


class Wrong:
    """A `forward` for chapter 5's loop that feeds only the new ids, with one fault; it never complains.

    at, mask: functions that give positions and mask, as those of `kv_cache` do. cache: what to start with; its length is taken
    for a prefix of whatever text comes.
    """

    def __init__(self, model, at=positions, mask=mask_after, cache=None):
        self.model, self.at, self.mask = model, at, mask
        self.cache = KVCache(model) if cache is None else cache

    def __call__(self, ids):
        past = self.cache.length
        new = ids[:, past:]  # [1, T]: the prompt at first, then one token
        T, held = new.shape[1], min(past, self.cache.capacity)
        x = feed(new, self.model, self.cache, self.at(past, T), self.mask(held, T))
        return program(self.model).unembed(x, self.model.weights, self.model.config)


def always_zero(past, new):
    """Positions 0 for every token after the prompt."""
    return torch.zeros(new, dtype=torch.int64) if past else torch.arange(new)


def one_too_far(past, new):
    """Positions one too large after the prompt: the count of tokens in place of the position of the last."""
    return torch.arange(past, past + new) + (1 if past else 0)


def top_left(past, new):
    """The square causal mask of `new` tokens laid on the first columns of [new, past + new]; for a first chunk it is right."""
    return torch.full((new, past + new), -math.inf).triu(1)


FAILURES = ("position always 0", "position off by one", "ring buffer", "another prefix", "mask aligned top left")
GUARDS = {
    "position always 0": "positions come from the cache's length alone; `guarded` compares them with it",
    "position off by one": "positions come from the cache's length alone; `guarded` compares them with it",
    "ring buffer": "the cache refuses what does not fit",
    "another prefix": "the cache keeps the ids it was fed; `Cached` compares them",
    "mask aligned top left": "each new position must see itself and all before it; `guarded` counts them",
}


def wrong(model, name, ids, prompt, capacity):
    """The `Wrong` forward of this name for the text `ids` [1, T], whose first `prompt` tokens are the prompt."""
    if name == "position always 0":
        return Wrong(model, at=always_zero)
    if name == "position off by one":
        return Wrong(model, at=one_too_far)
    if name == "ring buffer":
        return Wrong(model, cache=RingCache(model, capacity=capacity))
    if name == "another prefix":
        cache, other = KVCache(model), ids[:, :prompt].clone()
        other[0, 0] = (ids[0, 0] + 1) % model.config.vocab_size  # a prompt of the same length that begins with another token
        forward_cached(other[:, : prompt - 1], model, cache)
        return Wrong(model, cache=cache)
    if name == "mask aligned top left":
        return Wrong(model, mask=top_left)
    raise KeyError(name)


def failure(model, name, ids, prompt, capacity, tolerance=1e-3):
    """What one failure does to the logits of `ids` [1, T], fed the prompt and then one by one: where, how much, how loudly.

    first: the first position whose logits leave the oracle's by more than `tolerance` of the largest, or None. at_first: how far
    they are from the oracle's there, of the largest logit; moved: positions whose argmax is another. raised: the exception that it
    ended with, or None.
    """
    whole = run(model, ids)[0]  # [T, V]
    forward, found, raised = wrong(model, name, ids, prompt, capacity), {}, None
    try:
        for t in range(prompt, ids.shape[1] + 1):
            logits = forward(ids[:, :t])[0]  # [T of the call, V]
            for i, row in enumerate(logits):
                found[t - len(logits) + i] = row
    except Exception as error:  # whatever it is: the point is to see whether there is one
        raised = f"{type(error).__name__}: {error}"
    top = largest(whole)
    off = {t: largest(row - whole[t]) / top for t, row in found.items()}
    first = next((t for t in sorted(off) if not off[t] <= tolerance), None)
    return {
        "failure": name,
        "first": first,
        "at_first": None if first is None else off[first],
        "largest": worst(off.values()),
        "moved": sum(not row.isfinite().all() or bool(row.argmax() != whole[t].argmax()) for t, row in found.items()),
        "positions": len(found),
        "raised": raised,
        "by_position": [off.get(t) for t in range(ids.shape[1])],
    }


def failure_text(model, name, ids, tokens, capacity):
    """The greedy continuation of the prompt `ids` [1, T] with this failure, as text; or why there is none."""
    try:
        made = generate(ids, model, tokens, end=None, forward=wrong(model, name, ids, ids.shape[1], capacity))
    except BadInput as error:  # a row that sees nothing has no numbers
        return f"({error})"
    return _written(made, model)


def _written(made, model):
    return decode(made.sequence(), model) if model.tokenizer else str(made.sequence())


def guarded(ids, config, cache, at, mask):
    """What `stream_cached` takes for granted, as checks of what a pass is about to do: raises BadInput for a wrong one.

    Positions are the cache's length and on; row i of the mask shows exactly the past, itself and the i before it; the ids fit.
    """
    check(ids, config, cache)
    past, T = cache.length, ids.shape[1]
    if at.tolist() != list(range(past, past + T)):
        raise BadInput(f"positions {at.tolist()[:3]} for new tokens, and the cache holds {past}; take them from its length")
    right = torch.arange(past + T) <= torch.arange(past, past + T)[:, None]  # [T, S], True: to be seen
    seen = torch.ones_like(right) if mask is None else mask == 0
    if not torch.equal(seen, right):
        raise BadInput(f"positions that the first new one sees: {int(seen[0].sum())}, not {past + 1}; align the mask bottom right")


def guard(model, name, ids, prompt, capacity):
    """The message with which this failure's guard stops it at the first wrong step, or None if it does not."""
    forward = wrong(model, name, ids, prompt, capacity)
    try:
        if name == "another prefix":
            held = forward.cache.shared_prefix(ids[:, :prompt])
            if held < forward.cache.length:
                raise BadInput(f"the cache holds {forward.cache.length} positions, and only {held} are of this text; truncate it")
        for t in range(prompt, ids.shape[1] + 1):
            past = forward.cache.length
            new = ids[:, past:t]
            if name == "ring buffer":
                KVCache.check_room(forward.cache, new.shape[1])
            else:
                guarded(new, model.config, forward.cache, forward.at(past, t - past), forward.mask(past, t - past))
            forward(ids[:, :t])
    except BadInput as error:
        return str(error)
    return None


# --------------------------------------------------------------------------------------------------------- the measurements


def measure(model, ids=None, prompt=PROMPT, capacity=CAPACITY, progress=lambda: None):
    """What each failure does to the logits of `ids` [1, T], by default of TEXT tokens, and what it writes behind the prompt.

    by_position: how far the logits are from the oracle's, of the largest; `first` is off by a thousandth or more.
    texts_as_right: of the texts, how many are the right one to the letter.
    """
    ids = some_ids(model, TEXT) if ids is None else ids
    new, start = min(NEW, model.config.n_positions - prompt), ids[:, :prompt]
    right, rows = _written(generate(start, model, new, end=None), model), []
    for name in FAILURES:
        found = failure(model, name, ids, prompt, capacity)
        rows.append(
            {
                "failure": name,
                "first": found["first"],
                "at_first_percent": None if found["first"] is None else 100 * found["at_first"],
                "largest_percent": 100 * found["largest"],
                "moved": found["moved"],
                "positions": found["positions"],
                "text": failure_text(model, name, start, new, capacity),
                "by_position": found["by_position"],
            }
        )
        progress()
    return {
        "tokens": ids.shape[1],
        "prompt": prompt,
        "ring_capacity": capacity,
        "right_text": right,
        "failures": rows,
        "smallest_at_first_percent": min((r["at_first_percent"] for r in rows if r["first"] is not None), default=None),
        "texts_as_right": sum(r["text"] == right for r in rows),
    }


def measure_guards(model, ids=None, prompt=PROMPT, capacity=CAPACITY, progress=lambda: None):
    """What each failure raises by itself, and with what message its guard stops it (None where it does not)."""
    ids, rows = some_ids(model, TEXT) if ids is None else ids, []
    for name in FAILURES:
        raised = failure(model, name, ids, prompt, capacity)["raised"]
        rows.append({"failure": name, "raised_unguarded": raised or "nothing", "guard": guard(model, name, ids, prompt, capacity)})
        progress()
    return {
        "failures": rows,
        "raised_unguarded": sum(r["raised_unguarded"] != "nothing" for r in rows),
        "stopped": sum(r["guard"] is not None for r in rows),
    }


# ---------------------------------------------------------------------------------------------------- the tables, the figure


def report(values):
    """Text of {"failures": ..., "guards": ...}."""
    v, guards = values["failures"], values["guards"]
    rows = [
        [
            r["failure"],
            "none" if r["first"] is None else r["first"],
            "" if r["first"] is None else _percent(r["at_first_percent"]),
            _percent(r["largest_percent"]),
            f"{r['moved']} of {r['positions']}",
            g["raised_unguarded"],
        ]
        for r, g in zip(v["failures"], guards["failures"], strict=True)
    ]
    count, off = len(rows), [r for r in v["failures"] if r["first"] is not None]
    texts = [f"The right continuation: {v['right_text']!r}", *(f"{r['failure']}: {r['text']!r}" for r in v["failures"])]
    return "\n".join(
        [
            f"{v['tokens']} tokens, a prompt of {v['prompt']} and then one by one; the ring buffer holds {v['ring_capacity']}.",
            "Off: the largest difference from the oracle's logits, of the largest logit.",
            "",
            table(["failure", "first wrong position", "off there", "off at most", "argmax moved", "raised"], rows),
            "",
            *(fill(line, 100, subsequent_indent="  ") for line in texts),
            "",
            "What stops each:",
            *(
                f"{g['failure']}: {GUARDS[g['failure']]}\n{fill(str(g['guard']), 96, initial_indent='  ', subsequent_indent='  ')}"
                for g in guards["failures"]
            ),
            "",
            f"{guards['raised_unguarded']} of the {count} raised anything by themselves, "
            f"and {v['texts_as_right']} wrote the right text;",
            f"a comparison with the oracle sees {len(off)}, and a check of a few integers or one mask stops {guards['stopped']}.",
        ]
    )


def _percent(x):
    """Per cent of the largest logit; where the logits are no numbers, these words."""
    return "no numbers" if math.isnan(x) else f"{x:.1f}%"


def draw(values, path):
    """How far each failure is from the oracle at each position, from what `measure` returns: a panel for each, on one logarithmic
    scale, which has no place for an exact 0."""
    figure, panels = new_panels(2, 3, (PAGE, 4.6), sharex=True, sharey=True)
    for i, (axes, row) in enumerate(zip(panels, values["failures"], strict=False)):
        seen = [(t, 100 * x) for t, x in enumerate(row["by_position"]) if x]
        axes.semilogy(*zip(*seen, strict=True), **style(i) | {"linestyle": "-", "markersize": 3.5, "linewidth": 1})
        axes.axvline(values["prompt"] - 0.5, color=BLACK, linestyle=":", linewidth=1)
        axes.set_title(fill(row["failure"], 26), fontsize=10)
        axes.tick_params(labelbottom=True)
        plain_ticks(axes.yaxis)
    for axes in panels[len(values["failures"]) :]:
        axes.set_axis_off()
    note = "Dotted: the prompt\nends here, and from\nhere on one position\nat a time is fed."
    panels[-1].text(0, 0.5, note, transform=panels[-1].transAxes)
    figure.suptitle("Five failures that raise nothing", x=0.01, ha="left")
    for axes in panels[2:5]:
        axes.set_xlabel("position")
    figure.supylabel("off, per cent of the largest logit", fontsize=SMALL)
    write_figure(figure, path)


EXPERIMENTS = (
    Experiment(
        "ch10.failures",
        "observation",
        "Five wrong caches leave the oracle at once or at the wrap, and some still write the right text.",
        "One text of 40 tokens on one small model; how much each costs depends on model and text.",
        measure,
        headline=("texts_as_right", "int"),
        digits={"by_position": 2},
        seconds=3,
        figures={"failures.svg": draw},
    ),
    Experiment(
        "ch10.guards",
        "exact",
        "None of the five wrong caches raises anything by itself, and each is stopped by a check of room, positions, mask or ids.",
        "These five faults; a guard checks what it was written for.",
        measure_guards,
        headline=("stopped", "int"),
        seconds=2,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="wrong_caches.py", description=__doc__, keys=__file__)
    return parser.add("model", "threads", "seed", "plot", "json")


@command
def main(argv=None):
    """Print what each failure costs, and what stops it."""
    args = options().parse_args(argv)
    check_target(args.plot)
    model = load_for(args)
    ids = text_for(args, model)
    share = ids.shape[1] / TEXT  # of a shorter text, a shorter prompt and a smaller ring
    prompt, capacity = max(2, int(PROMPT * share)), max(3, int(CAPACITY * share))
    with progress_bar("failure", 2 * len(FAILURES)) as bar:
        values = {
            "failures": measure(model, ids, prompt, capacity, bar.update),
            "guards": measure_guards(model, ids, prompt, capacity, bar.update),
        }
    head = f"{args.model}: "
    answer(args, values, lambda values: head + report(values), lambda values, path: draw(values["failures"], path))


if __name__ == "__main__":
    sys.exit(main())
