"""What a pass costs beside arithmetic and bytes: the operators that it starts, what one costs, and how fast its matrices are read.

An operator is a call of one of torch's functions that does work: a product, a sum, a copy. A view, which only looks at the numbers
of another tensor in another shape, moves nothing and is counted apart. On an accelerator each operator is at least one kernel. The
passes are those of chapter 10's loop. Shapes: T new positions, d width, f feed-forward width, L layers.
"""

import contextlib
import functools
import os
import time
from collections import Counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from examples.ch02.config import GPT2Config
from examples.ch02.layout import embedding_name
from examples.ch02.model import Model, random_model
from examples.ch03.tokens import random_ids
from examples.ch10.kv_cache import Cached
from examples.lab.timing import in_turns

FAMILIES = ("gpt2", "llama")
LAYERS, VOCABULARY, POSITIONS, HEADS = 12, 256, 64, 4  # of the small models here
NARROW = 16  # the width of one that has next to nothing to compute
CACHED = 16  # positions cached when a decode step is timed
RUNS = 21


# ------------------------------------------------------------------------------------------------- how many operators there are


class _Counts(TorchDispatchMode):
    """Sees each operator as it is called. What torch itself puts together of others, a matmul say, it sees as those others."""

    def __init__(self):
        super().__init__()
        self.operators, self.views = Counter(), Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        results = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if not tensors and not results:  # a question about dtypes
            return result
        held = {x.untyped_storage().data_ptr() for x in tensors}
        is_view = results and not function._schema.is_mutable and all(x.untyped_storage().data_ptr() in held for x in results)
        (self.views if is_view else self.operators)[function._schema.name] += 1
        return result


@torch.no_grad()
def count(call) -> tuple[Counter, Counter]:
    """(operators, views), {name: how often}, that `call()` starts: told by whether the result lies in an operand's memory."""
    with _Counts() as seen:
        call()
    return seen.operators, seen.views


VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("alias", "as_strided", "detach", "expand", "permute", "select", "slice", "split", "squeeze", "t", "transpose"),
        *("unbind", "unsqueeze", "view", "_reshape_alias", "_unsafe_view", "lift_fresh"),
    )
)


@torch.no_grad()
def profiled(call) -> Counter:
    """The operators of `call()` by torch's profiler, {name: how often}: another count of the same, views left out by their names.

    The profiler also has what an operator calls within itself, and what is only put together of others. Counted is what stands
    highest among those that are not put together.
    """
    from torch.profiler import ProfilerActivity, profile

    with _quiet(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    found = Counter()
    for event in profiler.events():
        above, inner = event.cpu_parent, False
        while above is not None:
            inner, above = inner or not _put_together(above.name), above.cpu_parent
        if event.name.startswith("aten::") and not inner and not _put_together(event.name) and event.name not in VIEWS:
            found[event.name] += 1
    return found


def _put_together(name):
    """Whether torch makes the function `name` of others: in every form that it has, so that it has no code of its own."""
    return all(torch._C._dispatch_has_kernel_for_dispatch_key(form, "CompositeImplicitAutograd") for form in _forms().get(name, ()))


@functools.cache
def _forms():
    """{name of a function of torch: the full names of its forms, "aten::add.Tensor" say}."""
    forms = {}
    for full in torch._C._dispatch_get_all_op_names():
        forms.setdefault(full.partition(".")[0], []).append(full)
    return forms


@contextlib.contextmanager
def _quiet():
    """Without what the profiler's library writes to the process's stderr, past Python's own."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)


# ----------------------------------------------------------------------------------------------------------------- the passes


def cached_steps(model: Model, cached: int = CACHED) -> dict:
    """{"prefill", "decode"}: functions without arguments, each one call of chapter 10's `Cached`, logits at the last position.

    prefill feeds `cached` positions to an empty cache; decode feeds one to a cache of so many, and may be called again and again.
    """
    forward, text = Cached(model, capacity=cached + 1), random_ids(model, cached + 1)  # ids [1, T + 1]
    forward(text)  # fills the cache, and is the first call, which costs more

    def prefill():
        forward.cache.truncate(0)
        return forward(text[:, :cached])

    return {"prefill": prefill, "decode": lambda: forward(text)}


def pass_operators(model: Model, cached: int = 2) -> dict:
    """{"prefill": operators of a pass over several positions, "decode": of one over a single new one}; how many does not matter."""
    steps = cached_steps(model, cached)
    steps["prefill"](), steps["decode"]()  # so that the cache of the next decode is full
    return {name: count(call)[0].total() for name, call in steps.items()}


# --------------------------------------------------------------------------------------------------------- what one of them costs


def fields(family: str, width: int, layers: int = LAYERS) -> dict:
    """The fields of a config.json of a small model of `family`, with f = 4d or, of a llama, 3d, which are 12 or so d^2 a layer."""
    if family == "gpt2":
        sizes = dict(n_embd=width, n_layer=layers, n_head=HEADS, n_positions=POSITIONS)
        return dict(model_type="gpt2", vocab_size=VOCABULARY, **sizes)
    sizes = dict(hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, max_position_embeddings=POSITIONS)
    heads = dict(num_attention_heads=HEADS, num_key_value_heads=HEADS // 2)
    return dict(model_type="llama", vocab_size=VOCABULARY, **sizes, **heads, tie_word_embeddings=True)


def family_of(config) -> str:
    """The one of FAMILIES whose program is like that of `config`."""
    return "gpt2" if isinstance(config, GPT2Config) else "llama"


def operator_seconds(families=FAMILIES, runs: int = RUNS, timer=time.perf_counter) -> dict:
    """{family: seconds of an operator}: of a decode step of LAYERS layers that are NARROW, so that nothing else takes time.

    It is the step's time over its operators. So it holds what Python does between them, and the views.
    """
    models = {family: random_model(fields(family, NARROW)) for family in families}
    with torch.inference_mode():
        seconds = in_turns({family: cached_steps(model)["decode"] for family, model in models.items()}, runs, timer)
    return {family: seconds[family] / pass_operators(model)["decode"] for family, model in models.items()}


# --------------------------------------------------------------------------------------------------- how fast matrices are read


def products(model: Model) -> list[tuple[Tensor, Tensor]]:
    """(x [1, in], W [in, out]) for each product with a matrix in a decode step: W as the program has it, x of noise."""
    config, table = model.config, embedding_name(model.config)
    head = table if config.tie_word_embeddings else "lm_head.weight"
    skip = {"wpe.weight"} | ({table} - {head})
    operands = []
    for name, w in model.weights.items():
        if w.ndim == 2 and name not in skip:
            operands.append(w if isinstance(config, GPT2Config) and name != head else w.T)  # a GPT-2 stores [in, out]
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(1, w.shape[0], generator=generator).to(w.dtype), w) for w in operands]


def products_alone(model: Model):
    """(function, bytes): one that does the `products` of a model one after the other, with nothing between, and what it reads."""
    pairs = products(model)

    def all_of_them():
        for x, w in pairs:
            x @ w

    return all_of_them, sum(w.nbytes for _, w in pairs)


def large_matrix(numbers: int, size: int = 2**25) -> Tensor:
    """A matrix of ones, `size` of them, more than a cache of the processor holds, with so many in a row."""
    return torch.ones(size // numbers, numbers)


def row_rates(lengths, runs: int = 5, timer=time.perf_counter) -> dict:
    """{numbers in a row: bytes/s} at which one `large_matrix` with such rows is read when it multiplies a vector."""
    matrices = {n: large_matrix(n) for n in lengths}
    with torch.inference_mode():
        seconds = in_turns({n: lambda w=w: w @ w[0] for n, w in matrices.items()}, runs, timer)
    return {n: w.nbytes / seconds[n] for n, w in matrices.items()}
