"""Checks of ch01.4: the loop on a model that is made up, with a cache and without."""

from scripts.grading.answers import Mutant

DRIVER = '''
import torch


def looped(module, table, head, requests):
    """serve on a model whose state at a position is a sum over the ids so far, the later the more; and what each pass was given."""
    found = []
    for request in requests:
        calls = []

        def forward(ids, cache):
            calls.extend([ids.shape[0], ids.shape[1], ids.dtype.itemsize, -1 if cache is None else len(cache)])
            state = torch.zeros(table.shape[1], dtype=table.dtype) if cache is None else cache[-1].clone()
            states = list(cache or [])
            for id in ids[0].tolist():
                state = torch.roll(0.7 * state, 1) + table[id]
                states.append(state)
            return (torch.stack(states[-ids.shape[1] :]) @ head.T)[None], states

        prompt = list(request["prompt"])
        new, fed = module.serve(forward, prompt, **{k: v for k, v in request.items() if k != "prompt"})
        fed = [(-n if stage == "prefill" else n if stage == "decode" else 0.5) for stage, n in fed]
        found.append([list(new), fed, calls, prompt])
    return found
'''


def cases(draw):
    V, d = 16, 12
    like = {"table": draw.normal(V, d), "head": draw.normal(V, d)}
    prompts = [draw.ids(V, n).tolist() for n in (1, 2, 5, 9)]
    counts = (1, 2, 6, 12)
    for cached in (True, False):
        check = "with a cache" if cached else "without a cache"
        requests = [{"prompt": p, "tokens": n, "cached": cached} for p, n in zip(prompts, counts, strict=True)]
        yield check, "looped", {**like, "requests": requests}
    many = [{"prompt": draw.ids(V, 3).tolist(), "tokens": 8, "end": draw.whole(0, V - 1), "cached": i % 2 == 0} for i in range(20)]
    yield "an id that ends the text", "looped", {**like, "requests": many}
    few = {"table": draw.normal(4, d), "head": draw.normal(2, d)[[0, 1, 0, 1]]}
    ties = [{"prompt": draw.ids(4, 4).tolist(), "tokens": 6, "cached": cached} for cached in (True, False)]
    yield "logits that are equal", "looped", {**few, "requests": ties}
    for n in (1, 2, 3, 4, 7, 8, 9, 20, 59):
        yield "the growth", "step_growth", {"times": [draw.uniform(0.5, 1) * (1 + i / 9) for i in range(n)]}


MUTANTS = [
    Mutant(
        "the last id is fed as well: one pass more than there are new ids",
        "        if len(new) == tokens or new[-1] == end:\n            return new, fed\n"
        "        step = [new[-1]] if cached else [*prompt, *new]",
        "        step = [new[-1]] if cached else [*prompt, *new]\n        if len(new) == tokens or new[-1] == end:\n"
        "            forward(torch.tensor([step]), cache if cached else None)\n"
        "            return new, [*fed, ('decode', len(step))]",
    ),
    Mutant("the id is chosen from the logits of the first position, not of the last", "logits[0, -1]", "logits[0, 0]"),
    Mutant(
        "the cache is not handed on: each step begins anew with one id",
        "cache if cached else None)\n        fed",
        "None)\n        fed",
    ),
    Mutant(
        "with a cache the whole text is fed again, and counts twice", "[new[-1]] if cached else [*prompt, *new]", "[*prompt, *new]"
    ),
    Mutant(
        "without a cache the newest id alone is fed, and what stood before it is lost",
        "[new[-1]] if cached else [*prompt, *new]",
        "[new[-1]]",
    ),
    Mutant("without a cache the new ids alone are fed; the prompt is lost", "[*prompt, *new]", "[*new]"),
    Mutant("without a cache one is handed on all the same", "cache if cached else None)\n        fed", "cache)\n        fed"),
    Mutant("one id too many is made", "len(new) == tokens or", "len(new) == tokens + 1 or"),
    Mutant("the id that ends the text does not end it", " or new[-1] == end", ""),
    Mutant(
        "the id that ends the text is dropped; it is kept",
        "            return new, fed",
        "            return [id for id in new if id != end], fed",
    ),
    Mutant("the id `end` ends the text also where the prompt holds it", "new[-1] == end", "end in [*prompt, *new]"),
    Mutant("every pass is called prefill", '"decode" if new else "prefill"', '"prefill"'),
    Mutant("what is counted is the text so far, not what the pass was fed", ", len(step)))", ", len(prompt) + len(new)))"),
    Mutant(
        "of equal logits the highest id is taken, not the lowest",
        "int(logits[0, -1].argmax())",
        "logits.shape[-1] - 1 - int(logits[0, -1].flip(0).argmax())",
    ),
    Mutant("the smallest logit is taken", "argmax", "argmin"),
    Mutant(
        "the prompt that was given has the new ids in it afterwards",
        "        if len(new)",
        "        prompt.append(new[-1])\n        if len(new)",
        (("[*prompt, *new]", "[*prompt]"),),
    ),
    Mutant(
        "the growth is upside down: the first quarter over the last",
        "(sum(times[-n:]) / n) / (sum(times[:n]) / n)",
        "(sum(times[:n]) / n) / (sum(times[-n:]) / n)",
    ),
    Mutant("the growth is that of the last step over the first one", "max(1, len(times) // 4)", "1"),
    Mutant("the growth is that of the second half over the first", "len(times) // 4", "len(times) // 2"),
]

RUBRIC = """
1 point: the two texts are the same, letter for letter; the record of both, with the same weights' digest.
1 point: one id a step with the cache, the whole text without: read from the code or the counts, not from the times.
1 point: whether the steps without a cache grow, by first and last steps or a figure, from one machine, and what is not shown.
"""
