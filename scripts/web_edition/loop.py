"""The decoding loop that figure 26 shows line by line: the code that stands in the page is the code that runs here.

It is the loop of chapters 5 and 10 for one text. A test runs it beside chapter 5's `generate`.
"""

import inspect
import textwrap

import torch

from examples.ch05.sampling import choose
from examples.ch10.kv_cache import KVCache, forward_cached


def write_on(text, model, longest, temperature=0.0, top_k=None, top_p=None, generator=None, ends=()):
    """The ids [T] with new ones behind them, until they are `longest` or one of `ends` has come."""
    cache = None
    while len(text) < longest:
        new = text if cache is None else text[-1:]
        if cache is None:
            cache = KVCache(model)
        logits = forward_cached(new[None], model, cache)
        scores = logits[0, -1]
        id = choose(scores, temperature, top_k, top_p, generator)
        text = torch.cat([text, id[None]])
        if id.item() in ends:
            break
    return text


def loop_lines():
    """The lines of `write_on` between its docstring and its return, as they stand there."""
    source = inspect.getsource(write_on)
    return textwrap.dedent(source[source.index("    cache = None\n") : source.index("    return text")]).splitlines()
