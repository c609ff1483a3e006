"""Chapter 14: every family beside transformers, in tiny models that hide nothing; whole, and fed through a cache.

    python examples/ch14/family_agreement.py                     # all fourteen families, some twenty seconds
    python examples/ch14/family_agreement.py --family gemma2

transformers makes each tiny model and writes it to files; chapter 2 reads these, and the configurable forward runs what it read.
Random weights are cruel to a layout, since nothing in them is small or regular; how outliers of trained weights are rounded they do
not tell. An agreement says something only because it fails on a wrong program: for each of the ten choices the tests plant faults.
"""

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from examples.ch02.config import Config, Experts, Latent
from examples.ch02.families import VARIANTS
from examples.ch02.layout import tensor_shapes, weight_shapes
from examples.ch02.model import Model, general_form, random_tensor, run
from examples.ch03.tokens import random_ids
from examples.ch04.agreement import BOUND, agreement
from examples.ch04.causal_mask import above_diagonal, influence
from examples.ch04.gpt2_from_scratch import Trace, causal_mask
from examples.ch04.library import library_trace
from examples.ch04.residual_trace import OTHERS
from examples.ch10.kv_cache import KVCache, cache_bytes, forward_cached, stream_cached
from examples.ch14 import llama_from_scratch as llama
from examples.ch14 import peers, serving, variants
from examples.ch14.ablations import PLAY
from examples.ch14.costs import flops_per_token, kv_bytes_per_token, parameter_count
from examples.ch14.ten_choices import options_of
from examples.lab.experiment import Experiment, largest, median_after, tolerance, worst
from examples.lab.script import Parser, answer, command, progress_bar, table

# (case, model_type, what differs from the tiny model): each family, and the options that a family has beside its own
CASES = (
    *((kind, kind, {}) for kind in peers.TINY),
    ("gpt2, exact GELU", "gpt2", {"activation_function": "gelu"}),
    ("gpt2, SiLU", "gpt2", {"activation_function": "silu"}),
    ("gpt2, untied", "gpt2", {"tie_word_embeddings": False}),
    ("gpt_bigcode, MHA", "gpt_bigcode", {"multi_query": False}),
    ("llama, MQA", "llama", {"num_key_value_heads": 1}),
    ("llama, biases", "llama", {"attention_bias": True, "mlp_bias": True}),
    ("qwen2, windows", "qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2}),
    ("qwen3, biases", "qwen3", {"attention_bias": True}),
    ("deepseek_v3, plain queries", "deepseek_v3", {"q_lora_rank": None}),
    ("mixtral, windows", "mixtral", {"sliding_window": 6}),
)
LENGTH = 20  # of the text that crosses every window
SPLITS = ([1] * LENGTH, [7, 1, 5, 7], [LENGTH - 1, 1])  # ways to feed a text of LENGTH tokens

# The ten choices and their options, each as the fields of Config that make it from a Llama-3-8B's.
BASE = "llama-3-8b"
OPTIONS = (  # (choice, option, the fields of Config that make it from the base)
    ("normalisation", "layer norm", {"norm": "layer"}),
    ("normalisation", "RMS norm", {}),
    ("its place", "pre", {}),
    ("its place", "post", {"norm_place": "post", "final_norm": False}),
    ("its place", "both", {"norm_place": "both"}),
    ("positions", "learned", {"positions": "learned"}),
    ("positions", "sinusoidal", {"positions": "sinusoidal"}),
    ("positions", "RoPE", {}),
    ("positions", "ALiBi", {"positions": "alibi"}),
    ("attention", "MHA", {"kv_heads": 32}),
    ("attention", "GQA", {}),
    ("attention", "MQA", {"kv_heads": 1}),
    ("attention", "MLA", {"latent": Latent(None, 512, 128, 64, 128)}),
    ("activation", "GELU, tanh form", {"activation": "gelu_new", "gated": False}),
    ("activation", "GELU, exact", {"activation": "gelu", "gated": False}),
    ("activation", "SiLU", {"gated": False}),
    ("activation", "gated SiLU", {}),
    ("activation", "gated GELU, tanh form", {"activation": "gelu_new"}),
    ("feed-forward", "dense", {}),
    ("feed-forward", "mixture of experts", {"experts": Experts(8, 2, 14336)}),
    ("head", "tied", {"tie_word_embeddings": True}),
    ("head", "untied", {}),
    ("biases", "present", {"biases": ("qkv", "o", "mlp")}),
    ("biases", "on q, k and v", {"biases": ("qkv",)}),
    ("biases", "absent", {}),
    ("window", "full", {}),
    ("window", "sliding", {"windows": (4096,) * 32}),
    ("window", "interleaved", {"windows": (4096, None) * 16}),
    ("q and k norm", "no", {}),
    ("q and k norm", "yes", {"qk_norm": True}),
)


def case_models(kind, changes, seed=0):
    """(library, model) of a case: transformers' tiny model, and ours in the general form, read from the files that it writes."""
    library = peers.library_tiny(kind, seed, **changes)
    return library, general_form(peers.by_files(library))


def in_absorbed_form(model):
    """The model with its latent attention in the other of the two forms."""
    return replace(model, config=replace(model.config, latent=replace(model.config.latent, absorbed=True)))


def case_shapes(config):
    """(B, T) that a case is compared on: one token, a batch of two across the windows, one more, and the whole context."""
    return ((1, 1), (2, LENGTH), (1, LENGTH + 1), (1, config.n_positions))


@torch.no_grad()
def case_agreement(case, kind, changes, seed=0):
    """One case beside transformers: logits, traced points, causality, parameters, and the options that it takes.

    worst: largest difference of a logit over the largest logit, over `case_shapes`. worst_point: the same of every tensor that both
    traces have. above_diagonal: the largest change of a logit before the token that changed; 0 is exact.
    """
    library, model = case_models(kind, changes, seed)
    rows = []
    for batch, tokens in case_shapes(model.config):
        ids = random_ids(model, tokens, batch, seed)
        rows.append(agreement(run(model, ids), library(ids, use_cache=False).logits))
    kept, ids = Trace(), random_ids(model, LENGTH, seed=seed)
    run(model, ids, trace=kept)
    points = [largest(kept[key] - right) / largest(right) for key, right in library_trace(library, ids).items()]
    return {
        "case": case,
        "model_type": kind,
        "worst": worst(r["relative_difference"] for r in rows),
        "worst_point": worst(points),
        "points": len(points),
        "same_argmax": sum(r["same_argmax"] for r in rows),
        "positions": sum(r["positions"] for r in rows),
        "above_diagonal": above_diagonal(influence(model, ids)),
        "parameters": parameter_count(model.config)["total"],
        "library_parameters": sum(w.numel() for w in library.parameters()),
        "options": options_of(model.config),
    }


def agreements(progress=lambda: None, cases=CASES, seed=0):
    """`case_agreement` of every case."""
    rows = []
    for case in cases:
        rows.append(case_agreement(*case, seed))
        progress()
    return rows


@torch.no_grad()
def cached_agreement(case, kind, changes, seed=0):
    """One case fed through its cache in each of SPLITS: {case, worst, same_argmax, positions, bytes_as_counted}.

    worst: the largest difference of a logit from the whole pass, over the largest logit; latent attention in both forms.
    bytes_as_counted: whether after every chunk the cache holds exactly what `cache_bytes` says.
    """
    _, model = case_models(kind, changes, seed)
    forms = [model] + ([in_absorbed_form(model)] if model.config.latent else [])
    ids, rows, counted = random_ids(model, LENGTH, 2, seed), [], True
    for form in forms:
        whole = run(form, ids)
        for sizes in SPLITS:
            cache, logits, start = KVCache(form, ids.shape[0], LENGTH), [], 0
            for size in sizes:
                logits.append(forward_cached(ids[:, start : start + size], form, cache))
                start += size
                live = sum(x.nbytes for layer in range(form.config.n_layer) for x in cache.live(layer))
                counted = counted and live == cache_bytes(form.config, start, 2)
            rows.append(agreement(torch.cat(logits, 1), whole))
    return {
        "case": case,
        "worst": worst(r["relative_difference"] for r in rows),
        "same_argmax": sum(r["same_argmax"] for r in rows),
        "positions": sum(r["positions"] for r in rows),
        "bytes_as_counted": counted,
    }


# ---- what other rooms of this chapter show

BEFORE = OTHERS[2]  # the text that stands before another one
SERVED = (8192, 32)  # tokens of each sequence, and sequences at once, in the comparison of options
LOADS = ((8192, 32), (8192, 1), (2000, 32), (2000, 1))  # (tokens of each sequence, sequences)


def users():
    """{(choice, option): [model_type]}: which families take an option, by the published configurations kept here."""
    found = {}
    for name in serving.published():
        config = serving.config_named(name)
        for choice, option in options_of(config).items():
            kinds = found.setdefault((choice, option), [])
            if config.model_type not in kinds:
                kinds.append(config.model_type)
    return found


def option_effects(load=SERVED):
    """What each option does to Llama-3-8B's shape, everything else as it is: parameters, cache, FLOPs, memory, bytes a step.

    One row for each of OPTIONS, at `load`, (tokens of each sequence, sequences), two bytes a number; families: its takers.
    """
    base, used, rows = serving.config_named(BASE), users(), []
    tokens, batch = load
    zero = serving.serving_row(BASE, base, tokens, batch)
    for choice, option, changes in OPTIONS:
        config = replace(base, **changes)
        assert options_of(config)[choice] == option, (choice, option, options_of(config))
        row = serving.serving_row(BASE, config, tokens, batch)
        rows.append(
            {
                **{"choice": choice, "option": option, "families": used.get((choice, option), []), "is_base": config == base},
                **{"parameters": row["parameters"], "parameters_change": row["parameters"] - zero["parameters"]},
                **{
                    "kv_bytes_per_token": kv_bytes_per_token(config),
                    "cache_bytes": cache_bytes(config, tokens, 1, 2),
                },
                **{"flops_per_token": flops_per_token(config, tokens)["total"]},
                "flops_change": flops_per_token(config, tokens)["total"] - flops_per_token(base, tokens)["total"],
                **{key: row[key] for key in ("memory_bytes", "step_bytes_per_token")},
            }
        )
    return rows


def verified(effects, cases):
    """`option_effects` with, for each option, the cases that take it and their worst agreement."""
    rows = []
    for r in effects:
        mine = [c for c in cases if c["options"][r["choice"]] == r["option"]]
        rows.append(r | {"cases": [c["case"] for c in mine], "worst": worst(c["worst"] for c in mine)})
    return rows


def ranking(rows=None):
    """The choices by how far apart their options are, widest first: a row of ratios each, and the cheapest and dearest option.

    Each ratio is that of the dearest option to the cheapest: bytes held, bytes read in a decode step, FLOPs.
    """
    rows, found = rows or option_effects(), []
    for choice in dict.fromkeys(r["choice"] for r in rows):
        mine = [r for r in rows if r["choice"] == choice]

        def ratio(key, mine=mine):
            return max(r[key] for r in mine) / min(r[key] for r in mine)

        def named(pick, mine=mine):  # all options that read as much
            at = pick(r["step_bytes_per_token"] for r in mine)
            return " = ".join(r["option"] for r in mine if r["step_bytes_per_token"] == at)

        same = ratio("step_bytes_per_token") == 1
        found.append(
            {
                **{"choice": choice, "step_ratio": ratio("step_bytes_per_token"), "memory_ratio": ratio("memory_bytes")},
                **{
                    "flops_ratio": ratio("flops_per_token"),
                    "cheapest": "all the same" if same else named(min),
                    "dearest": "" if same else named(max),
                },
            }
        )
    return sorted(found, key=lambda r: -r["step_ratio"])


def small_model(config, seed=0):
    """A `Model` of a general config: gains 1, biases 0, matrices normal with variance 1 / inputs, which keep a vector's size."""
    generator, weights = torch.Generator().manual_seed(seed), {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 2:
            weights[name] = torch.randn(shape, generator=generator) * shape[1] ** -0.5
        else:
            weights[name] = torch.ones(shape) if name.endswith("weight") else torch.zeros(shape)
    return Model(config, weights, module=VARIANTS)


def depth_config(norm_place, layers, width=64):
    """A small model for the comparison of norm places: post without a final norm, as the original has it."""
    sizes = dict(vocab_size=64, n_embd=width, n_layer=layers, n_head=4, kv_heads=4, head_width=width // 4, inner_width=4 * width)
    more = dict(n_positions=32, norm="layer", norm_place=norm_place, final_norm=norm_place != "post", positions="none")
    more["embedding_scale"] = width**0.5  # rows of variance 1 / d: with it the stream starts at a root mean square of 1
    return Config("depth", **sizes, **more, gated=False, norm_eps=1e-5)


def norms_on_the_path(config):
    """How many norms the stream itself goes through before the logits: 2 L in a post-norm model, else the final one alone."""
    return (2 * config.n_layer if config.norm_place == "post" else 0) + config.final_norm


def depth_row(norm_place, layers, seeds=range(9)):
    """A random model at one depth: the RMS of the last stream over the first, and gradients of the loss.

    Norms of gradients are L2, of the mean cross-entropy of random targets: at the embedding, over the stream [1, T, d], and in the
    last matrix of the last layer. Medians over seeds.
    """
    config, growth, gradients, lasts = depth_config(norm_place, layers), [], [], []
    for seed in seeds:
        model = small_model(config, seed)
        weights, ids = model.weights, random_ids(model, 33, seed=seed)
        streams = Trace("embedding", "residual")
        matrix = weights[f"model.layers.{layers - 1}.mlp.down_proj.weight"].requires_grad_()
        weights["model.embed_tokens.weight"].requires_grad_()
        logits = run(model, ids[:, :-1], trace=streams)
        first, *_, last = streams.values()
        first.retain_grad()
        torch.nn.functional.cross_entropy(logits[0], ids[0, 1:]).backward()
        growth.append((last.square().mean().sqrt() / first.square().mean().sqrt()).item())
        gradients.append(first.grad.norm().item())
        lasts.append(matrix.grad.norm().item())
    return {
        **{"norm_place": norm_place, "layers": layers, "norms_on_the_path": norms_on_the_path(config)},
        "growth": statistics.median(growth),
        "gradient": statistics.median(gradients),
        "last_gradient": statistics.median(lasts),
    }


def depths(layers=(2, 4, 8, 16, 32, 64), places=("pre", "post", "both")):
    """`depth_row` of each place and depth."""
    return [depth_row(place, n) for place in places for n in layers]


def training(norm_place, layers, seed=0, steps=150, rate=1e-3, width=64, warm_up=1):
    """A random model trained by Adam on the bytes of the held play: the mean loss of the last 20 steps, nats a byte.

    Batches of 8 sequences of 32 bytes, learned positions; the same batches for each place of the norms. warm_up: the steps over
    which the rate rises to its value.
    """
    text = torch.tensor(list(PLAY.read_bytes()))
    config = replace(depth_config(norm_place, layers, width), vocab_size=256, positions="learned")
    model = small_model(config, seed)
    adam = torch.optim.Adam([w.requires_grad_() for w in model.weights.values()], lr=rate)
    generator, losses = torch.Generator().manual_seed(seed), []
    for step in range(steps):
        adam.param_groups[0]["lr"] = rate * min(1, (step + 1) / warm_up)
        starts = torch.randint(len(text) - 33, (8,), generator=generator)
        batch = torch.stack([text[i : i + 33] for i in starts])  # [8, 33]
        logits = run(model, batch[:, :-1])  # [8, 32, 256]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return statistics.mean(losses[-20:])


def byte_entropy():
    """Nats a byte of the held play when each byte is guessed by its frequency in it."""
    share = torch.bincount(torch.tensor(list(PLAY.read_bytes()))).double()
    share = share[share > 0] / share.sum()
    return -(share * share.log()).sum().item()


def trainings(layers=(4, 12, 24), places=("pre", "post", "both"), seeds=(0, 1)):
    """`training` of each place and depth: [{norm_place, layers, loss, losses}], loss the mean over seeds."""
    rows = []
    for place in places:
        for n in layers:
            losses = [training(place, n, seed) for seed in seeds]
            rows.append({"norm_place": place, "layers": n, "loss": statistics.mean(losses), "losses": losses})
    return rows


def reach(window, layers, tokens=40, seed=0):
    """How far a token is felt in a random model of so many layers with this window: (farthest position changed, L (W - 1)).

    The id at position 0 changes, and all logits are compared exactly; the farthest one that is not bit for bit the same counts.
    """
    sizes = dict(vocab_size=53, n_embd=16, n_layer=layers, n_head=2, kv_heads=2, head_width=8, inner_width=32, n_positions=tokens)
    config = Config("window", **sizes, positions="none", windows=(window,) * layers)
    model = small_model(config, seed)
    ids = random_ids(model, tokens, seed=seed)
    other = ids.clone()
    other[0, 0] = (other[0, 0] + 1) % config.vocab_size
    changed = (run(model, ids) != run(model, other))[0].any(-1)  # [T]
    return {"window": window, "layers": layers, "farthest": int(changed.nonzero().max()), "formula": layers * (window - 1)}


def reaches(windows=(1, 2, 3, 4, 6), layers=(1, 2, 3, 4)):
    """`reach` for each window and depth."""
    return [reach(w, n) for w in windows for n in layers]


def forward_at(model, ids, at):
    """Logits [B, T, V] of `ids` [B, T] at positions `at` [T], by the configurable forward."""
    x = variants.pass_over(ids, model.weights, model.config, at, causal_mask(len(at), len(at), model.device))  # [B, T, d]
    return variants.unembed(x, model.weights, model.config)


def shift(model, ids, by):
    """The same text `by` positions later, with nothing before it: {worst, same_argmax, positions} of its logits beside those at 0.

    Learned positions must have as many rows. A family whose scores see differences of positions only gives the same logits.
    """
    model, at = general_form(model), torch.arange(ids.shape[1], device=model.device)
    found = agreement(forward_at(model, ids, at + by), forward_at(model, ids, at))
    return {"by": by, "worst": found["relative_difference"], "same_argmax": found["same_argmax"], "positions": found["positions"]}


def prefix_keys(model, before, ids):
    """Whether the cached keys and values of `ids` [1, T] are good after another text `before` [1, t] [{layer, keys, values}].

    Keys computed alone are turned on by t positions, which is all that RoPE needs; each entry is the largest difference from what
    the model computes for the whole text, over the largest value there.
    """
    model = general_form(model)
    config, alone, whole = model.config, Trace("k", "v"), Trace("k", "v")
    run(model, ids, trace=alone)
    run(model, torch.cat([before, ids], 1), trace=whole)
    t = before.shape[1]
    rows = []

    def on(keys, layer):
        """Keys [B, heads, T, width] turned on by t positions, by the layer's own rope; of latent ones the part that turns."""
        still, part = (0, keys.shape[-1]) if config.latent is None else (config.latent.plain, config.latent.turned)
        plain, turning = keys.split((still, part), dim=-1)
        turning = variants.turned(turning, config, layer, torch.tensor([t]))
        return torch.cat([plain, turning / variants.rope_of(config, layer).gain], dim=-1)  # the gain they have already

    for layer in range(config.n_layer):
        row = {"layer": layer}
        for point, name in (("k", "keys"), ("v", "values")):
            ours, right = alone[point, layer], whole[point, layer][:, :, t:]
            ours = on(ours, layer) if point == "k" else ours
            row[name] = largest(ours - right) / (largest(right) or 1)
        rows.append(row)
    return rows


def filled(model, batch, tokens):
    """A cache of `tokens` positions for `batch` sequences, full of noise: what a decode step costs does not depend on values."""
    cache, generator = KVCache(model, batch, tokens + 1), torch.Generator().manual_seed(0)
    for x in (*cache.keys, *cache.values):
        x.normal_(generator=generator)
    cache.length = tokens
    return cache


def one_step(model, cache, ids, tokens):
    """A function that feeds `ids` [B, 1] to a cache of `tokens` positions, makes the logits, and takes the token back."""

    def step():
        cache.truncate(tokens)
        return llama.unembed(stream_cached(ids, model, cache), model.weights, model.config)

    return step


def in_turns(steps, runs, timer=time.perf_counter):
    """{name: median seconds} of functions {name: function}, called in turn; the first call of each is discarded."""
    times = {name: [] for name in steps}
    for _ in range(runs + 1):
        for name, step in steps.items():
            start = timer()
            step()
            times[name].append(timer() - start)
    return {name: median_after(t) for name, t in times.items()}


def machine_rates(runs=5, timer=time.perf_counter):
    """This machine in float32, with the threads that are set: FLOP/s of a square matmul, bytes/s of a matrix times a vector."""
    a = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0))
    b = torch.randn(32768, 1024, generator=torch.Generator().manual_seed(1))  # 134 MB, more than a cache holds
    v = torch.randn(1024, generator=torch.Generator().manual_seed(2))
    seconds = in_turns({"matmul": lambda: a @ a, "matvec": lambda: b @ v}, runs, timer)
    return {"flop_per_s": 2 * 1024**3 / seconds["matmul"], "bytes_per_s": b.nbytes / seconds["matvec"]}


def decode_beside_trace(model, contexts=(16, 512, 2000), batch=1, runs=9, timer=time.perf_counter):
    """A measured decode step of a Llama beside what `serving.decode_step` says at this machine's rates: rows of milliseconds."""
    rates, rows = machine_rates(timer=timer), []
    for context in contexts:
        ids = random_ids(model, 1, batch)
        step = one_step(model, filled(model, batch, context), ids, context)
        measured = in_turns({"step": step}, runs, timer)["step"]
        traced = serving.decode_step(model.config, context, batch, bytes_per_number=4)
        said = serving.step_times(traced, rates["flop_per_s"], rates["bytes_per_s"])
        rows.append(
            {
                **{"context": context, "batch": batch, "mflop": traced["flops"] / 1e6, "mb": traced["bytes"] / 1e6},
                **{"compute_ms": 1e3 * said["compute_s"], "memory_ms": 1e3 * said["memory_s"], "measured_ms": 1e3 * measured},
                "measured_over_said": measured / max(said["compute_s"], said["memory_s"]),
            }
        )
    return {"gflop_per_s": rates["flop_per_s"] / 1e9, "gb_per_s": rates["bytes_per_s"] / 1e9, "steps": rows}


def random_llama(config, seed=0):
    """A `Model` of a Llama's config with random weights."""
    return Model(config, {n: random_tensor(n, s, seed) for n, s in tensor_shapes(config).items()})


def option_times(model, context=1000, batch=8, runs=7, timer=time.perf_counter):
    """A decode step of a Llama's shape with one option changed: [{option, ms, ratio, bytes_ratio}], ratios to the model as it is.

    bytes_ratio: what the bytes of `serving.decode_step` say. Random weights; the caches are full of noise; the kinds take turns.
    """
    base = model.config
    h = base.n_head
    kinds = {
        "as it is": (base, context),
        "MHA": (replace(base, kv_heads=h), context),
        "MQA": (replace(base, kv_heads=1), context),
        "a window of a quarter": (base, context // 4),
        "biases everywhere": (replace(base, biases=("qkv", "o", "mlp")), context),
        "half the feed-forward width": (replace(base, inner_width=base.inner_width // 2), context),
    }
    steps, said = {}, {}
    for name, (config, held) in kinds.items():
        other = random_llama(config)
        steps[name] = one_step(other, filled(other, batch, held), random_ids(other, 1, batch), held)
        said[name] = serving.decode_step(config, held, batch, 4)["bytes"]
    seconds = in_turns(steps, runs, timer)
    zero = "as it is"
    return [
        {"option": n, "ms": 1e3 * s, "ratio": s / seconds[zero], "bytes_ratio": said[n] / said[zero]} for n, s in seconds.items()
    ]


# --------------------------------------------------------------------------------------------------------- the measurements


def by_option(rows):
    """For each of OPTIONS, how many of the cases in `rows`, as `case_agreement` has them, take it, and their worst agreement."""
    found = []
    for choice, option, _ in OPTIONS:
        takers = [c for c in rows if c["options"][choice] == option]
        off = worst(c["worst"] for c in takers) if takers else None
        found.append({"choice": choice, "option": option, "takers": len(takers), "relative_difference": off})
    return found


def measure(cases=CASES, seed=0, progress=lambda: None):
    """Every case beside transformers: a `tolerance` of the largest logit, with a row for each case, and for each of OPTIONS.

    It holds where the argmax is the library's at every position, every traced point is within the bound of the largest value there,
    no change reaches an earlier position, and the closed formula counts the library's own parameters.
    """
    rows = agreements(progress, cases, seed)
    same, positions = sum(c["same_argmax"] for c in rows), sum(c["positions"] for c in rows)
    points = all(c["worst_point"] <= BOUND for c in rows)
    counted = all(c["parameters"] == c["library_parameters"] for c in rows)
    causal = worst(c["above_diagonal"] for c in rows)
    taken = by_option(rows)
    return tolerance(
        BOUND,
        worst(c["worst"] for c in rows),
        same == positions and points and counted and causal == 0,
        cases=[
            {
                **{key: c[key] for key in ("case", "model_type", "positions", "same_argmax", "points", "parameters")},
                "relative_difference": c["worst"],
                "relative_difference_at_points": c["worst_point"],
            }
            for c in rows
        ],
        count=len(rows),
        model_types=len({c["model_type"] for c in rows}),
        positions=positions,
        same_argmax=same,
        points_within_1e_5=points,
        parameters_as_the_library=counted,
        influence_above_diagonal=causal,
        options_verified=sum(r["takers"] > 0 for r in taken),
        options=len(taken),
        by_option=taken,
    )


def measure_cached(cases=CASES, seed=0, progress=lambda: None):
    """Every case through its cache in each of SPLITS, beside its own whole pass: a `tolerance` of the largest logit.

    It holds where the argmax is the same everywhere and the cache has after every chunk exactly the bytes that are counted.
    """
    rows = []
    for case in cases:
        rows.append(cached_agreement(*case, seed))
        progress()
    same, positions = sum(r["same_argmax"] for r in rows), sum(r["positions"] for r in rows)
    counted = all(r["bytes_as_counted"] for r in rows)
    return tolerance(
        BOUND,
        worst(r["worst"] for r in rows),
        counted and same == positions,
        cases=[{"case": r["case"], "positions": r["positions"], "relative_difference": r["worst"]} for r in rows],
        count=len(rows),
        splits=len(SPLITS),
        positions=positions,
        same_argmax=same,
        bytes_as_counted=counted,
    )


# ---------------------------------------------------------------------------------------------------------------- the table


def report(values):
    """Text of {"families": ..., "cached": ...}."""
    whole, cached = values["families"], values["cached"]
    rows = [
        [
            c["case"],
            f"{c['parameters']:,}",
            f"{c['relative_difference']:.1e}",
            f"{c['relative_difference_at_points']:.1e}",
            f"{c['same_argmax']} of {c['positions']}",
            f"{in_chunks['relative_difference']:.1e}",
        ]
        for c, in_chunks in zip(whole["cases"], cached["cases"], strict=True)
    ]
    taken = [
        [f"{r['choice']}: {r['option']}", r["takers"], f"{r['relative_difference']:.1e}"] for r in whole["by_option"] if r["takers"]
    ]
    held = "Within" if whole["held"] and cached["held"] else "OUTSIDE"
    return "\n".join(
        [
            "Tiny random models beside transformers', float32, eager: differences, over the largest value there.",
            f"In chunks: through the cache, in {cached['splits']} ways, beside the whole pass.",
            "",
            table(["case", "parameters", "logits", "points", "same argmax", "in chunks"], rows),
            "",
            table(["choice: option", "models that take it", "logits"], taken),
            "",
            f"The bytes that the caches hold are {'' if cached['bytes_as_counted'] else 'NOT '}those counted.",
            f"The largest change of a logit before the token that changed: {whole['influence_above_diagonal']:g}.",
            f"{held} the bounds (models: {whole['count']}, families: {whole['model_types']}): at most {whole['worst']:.1e} of the "
            f"largest logit apart,",
            f"and {whole['same_argmax']:,} of {whole['positions']:,} argmaxes the same.",
        ]
    )


TINY = dict(model="tiny models (random, seed 0)", loads=False, movable=False)
ONE_MACHINES_ROUNDING = ("relative_difference", "relative_difference_at_points")
EXPERIMENTS = (
    Experiment(
        "ch14.families",
        "tolerance",
        "One configurable forward has the logits of transformers' model of every family within 1e-5 of the largest, and is causal.",
        "Tiny random models, eager attention and eager experts, float32; four shapes each, the longest the model's context.",
        measure,
        leaves_out=ONE_MACHINES_ROUNDING,
        seconds=10,
        **TINY,
    ),
    Experiment(
        "ch14.cached",
        "tolerance",
        "Fed through its cache in chunks each family has the whole pass's logits within 1e-5, and exactly the counted bytes.",
        "The same tiny random models, a batch of two, three ways to feed 20 tokens; latent attention in both forms.",
        measure_cached,
        leaves_out=ONE_MACHINES_ROUNDING,
        seconds=4,
        **TINY,
    ),
)


def options():
    """The script's argument parser."""
    parser = Parser(prog="family_agreement.py", description=__doc__)
    about = f"only the cases of one model_type: {', '.join(peers.TINY)}"
    parser.add_argument("--family", choices=list(peers.TINY), default=None, metavar="KIND", help=about)
    return parser.add("threads", "seed", "json")


@command
def main(argv=None):
    """Print how far every family's passes are from transformers'."""
    args = options().parse_args(argv)
    torch.set_num_threads(args.threads)
    cases = [case for case in CASES if args.family in (None, case[1])]
    with progress_bar("pass", 2 * len(cases)) as bar:
        values = {
            "families": measure(cases, args.seed, bar.update),
            "cached": measure_cached(cases, args.seed, bar.update),
        }
    answer(args, values, report)


if __name__ == "__main__":
    sys.exit(main())
