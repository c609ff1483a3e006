"""Chapter 10: what holds exactly of a cache, bit for bit: how much it holds, that no old pair changes, and that causality holds.

    python examples/ch10/cache_invariants.py
    python examples/ch10/cache_invariants.py --model smollm2          # any family

Agreement with the oracle is a matter of rounding; what stands here is not. Both runs of the causal test have the same chunks,
since another shape may sum in another order.
"""

import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.model import load_for
from examples.ch10.cache_parity import TEXT, in_chunks, some_ids, splits, text_for
from examples.ch10.kv_cache import KVCache, cache_bytes, forward_cached
from examples.lab.experiment import Experiment
from examples.lab.script import Parser, answer, command, progress_bar, table


def invariants(model, ids, sizes):
    """What holds exactly of a cache that `ids` [1, T] are fed to in chunks: {holds_t_pairs, old_pairs_kept, ...}, booleans.

    causal: with the last id of the text changed, the logits and pairs before it keep their bits.
    """
    cache = KVCache(model)
    layers = range(model.config.n_layer)
    counted, kept, fed = [], [], 0
    for size in sizes:
        old = [[x.clone() for x in cache.live(layer)] for layer in layers]
        forward_cached(ids[:, fed : fed + size], model, cache)
        for layer in layers:
            kept += [_same_old_pairs(new, x, size) for new, x in zip(cache.live(layer), old[layer], strict=True)]
        fed += size
        live = [cache.live(layer)[0] for layer in layers]  # keys, each [1, g, n, dh], which are not 0
        counted.append(cache.length == fed and all(x.shape[2] == min(fed, cache.room(i)) for i, x in enumerate(live)))
        counted.append(all(bool((x != 0).any(-1).all()) for x in live))
    other = ids.clone()
    other[0, -1] = (ids[0, -1] + 1) % model.config.vocab_size
    (a, one), (b, two) = (in_chunks(model, x, sizes) for x in (ids, other))
    last = ids.shape[1] - 1
    behind = [x[:, :, fed:] for x in (*cache.keys, *cache.values)]
    pairs = [(x[:, :, :-1], y[:, :, :-1]) for layer in layers for x, y in zip(one.live(layer), two.live(layer), strict=True)]
    return {
        "holds_t_pairs": all(counted),
        "nothing_behind_them": not any(x.any() for x in behind),
        "old_pairs_kept": all(kept),
        "causal_logits": torch.equal(a[:, :last], b[:, :last]) and not torch.equal(a[:, last], b[:, last]),
        "causal_pairs": all(torch.equal(x, y) for x, y in pairs),
        "bytes_as_counted": cache.nbytes == cache_bytes(model.config, cache.capacity, cache.batch, model.dtype.itemsize),
    }


def _same_old_pairs(new, old, size):
    """Whether what `new` [1, g, n, dh] still has of the positions in `old`, before `size` new ones, has the same bits."""
    both = max(0, new.shape[2] - size)
    return torch.equal(new[:, :, :both], old[:, :, old.shape[2] - both :])


def measure(model, ids=None, progress=lambda: None):
    """What holds exactly in all of `splits` of a text `ids` [1, T], by default of TEXT tokens; by_split: in each of them."""
    ids, rows = some_ids(model, TEXT) if ids is None else ids, []
    for name, sizes in splits(ids.shape[1]).items():
        rows.append({"fed": name, **invariants(model, ids, sizes)})
        progress()
    keys = [key for key in rows[0] if key != "fed"]
    held = {key: all(row[key] for row in rows) for key in keys}
    return held | {"splits": len(rows), "tokens": ids.shape[1], "by_split": rows}


def report(values):
    """Text of {"invariants": ...}."""
    v = values["invariants"]
    keys = [key for key in v if isinstance(v[key], bool)]
    rows, held = [], sum(v[key] for key in keys)
    for key in keys:
        broken = [row["fed"] for row in v["by_split"] if not row[key]]
        rows.append([key.replace("_", " "), f"{v['splits'] - len(broken)} of {v['splits']}", "; ".join(broken)])
    return "\n".join(
        [
            table(["holds exactly", "ways of feeding", "but not"], rows),
            "",
            f"{held} of {len(keys)} hold in all {v['splits']} ways of feeding {v['tokens']} tokens, to the last bit.",
        ]
    )


EXPERIMENTS = (
    Experiment(
        "ch10.invariants",
        "exact",
        "After t tokens the cache holds t pairs, old pairs keep their bits, and causality holds exactly through it.",
        "One text in five ways on a CPU; both runs of the causal test have the same chunks.",
        measure,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="cache_invariants.py", description=__doc__, keys=__file__)
    return parser.add("model", "threads", "seed", "json")


@command
def main(argv=None):
    """Print what holds exactly."""
    args = options().parse_args(argv)
    model = load_for(args)
    ids = text_for(args, model)
    with progress_bar("way of feeding", 5) as bar:
        values = {"invariants": measure(model, ids, bar.update)}
    answer(args, values, lambda values: f"{args.model}\n\n" + report(values))


if __name__ == "__main__":
    sys.exit(main())
