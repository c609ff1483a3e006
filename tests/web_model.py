"""What test_web_model.py runs: the embedded model in a browser's page, and checks that hold it to the repository's own functions.

A check takes the page and raises AssertionError where the two differ; otherwise it returns what it found, for a table. The Python
side has the page's weights: those of the embedded model in float16, computed with in float32.
"""

import functools
import math
import random
import re
from pathlib import Path

import torch

from examples.ch02.model import run
from examples.ch03.tokens import decode, encode
from examples.ch04.causal_mask import influence
from examples.ch04.gpt2_from_scratch import Trace
from examples.ch04.residual_trace import residual_statistics
from examples.ch05 import sampling
from examples.ch05.generate import generate, whole_text
from examples.ch10.kv_cache import Cached, KVCache, forward_cached
from scripts.bench_web import SOURCES, model_page
from scripts.web_edition.model_files import rounded
from tests.support import loaded

READY = "window.model = lab.loadModel(book_model); window.tokenizer = lab.makeTokenizer(book_model.tokenizer);"
PROMPTS = ("HAMLET:\n", "The king is dead.", "é🙂", "Good night, good night! parting is such sweet sorrow.")
SETTINGS = (
    dict(temperature=0.8, top_k=50, seed=1),
    dict(temperature=1.0, top_p=0.9, seed=7),
    dict(temperature=1.3, seed=2**40 + 3),
    dict(temperature=0.7, top_k=20, top_p=0.8, seed=3),
)
IN_PAGE = {"temperature": "temperature", "top_k": "topK", "top_p": "topP", "seed": "seed"}


class Page:
    """The scripts in an empty page: `js(code, *arguments)` returns what the code returns."""

    def __init__(self, driver, folder: Path):
        """folder: where the page and its scripts are written."""
        self.driver = driver
        driver.get(model_page(folder).as_uri())
        self.js(READY)

    def js(self, code, *arguments):
        return self.driver.execute_script(code, *arguments)

    def run(self, name, text):
        """Run the text in the place of the script `name`, and load the model anew."""
        add = "const tag = document.createElement('script'); tag.textContent = arguments[0]; document.head.append(tag);"
        self.js(add, text)
        self.js(READY)


def source(name):
    """The text of a script of the page."""
    return (SOURCES / name).read_text(encoding="utf-8")


@functools.cache
def model():
    """The embedded model with the page's weights."""
    return rounded(loaded())


def random_ids(tokens):
    """ids [1, T], the same for the same T."""
    return torch.randint(model().config.vocab_size, (1, tokens), generator=torch.Generator().manual_seed(tokens))


def numbers(found, *shape):
    """A list of numbers from the page as float32 of a shape."""
    return torch.tensor(found, dtype=torch.float32).view(*shape)


def close(found, wanted, share, what):
    """The largest difference over the largest number wanted; raises AssertionError above `share`."""
    error = ((found - wanted).abs().max() / wanted.abs().max()).item()
    if not error <= share:  # a NaN too is no agreement
        raise AssertionError(f"{what}: {error:.3g} of the largest, and {share:g} is allowed")
    return error


def same(found, wanted, what):
    if found != wanted:
        raise AssertionError(f"{what}: {str(found)[:200]}, and Python has {str(wanted)[:200]}")


# -------------------------------------------------------------------------------------------------------------- the model


def weights(page):
    """Every weight bit for bit, by a checksum of each tensor."""
    code = """return Object.entries(model.weights).map(([name, values]) => {
      let sum = 0;
      for (const bits of new Uint32Array(values.buffer, values.byteOffset, values.length)) sum = (Math.imul(sum, 31) + bits) >>> 0;
      return [name, values.length, sum];
    });"""
    wanted = []
    for name, w in model().weights.items():
        sum = 0
        for bits in w.contiguous().view(torch.int32).flatten().tolist():
            sum = (sum * 31 + bits) & 0xFFFFFFFF
        wanted.append([name, w.numel(), sum])
    same(page.js(code), wanted, "weights")
    return sum_of(wanted)


def sum_of(rows):
    return sum(count for _, count, _ in rows)


@functools.cache
def _python_logits(tokens, causal=True):
    return run(model(), random_ids(tokens), causal=causal)[0]


def logits(page, lengths=(1, 2, 17, 255, 256)):
    """{tokens: the largest difference of a logit over the largest logit}; the argmax the same at all positions."""
    found = {}
    for T in lengths:
        wanted, ids = _python_logits(T), random_ids(T)[0].tolist()
        got = numbers(page.js("return Array.from(lab.forward(model, arguments[0]))", ids), T, -1)
        found[T] = close(got, wanted, 1e-4, f"logits at {T} tokens")
        same(got.argmax(-1).tolist(), wanted.argmax(-1).tolist(), f"argmax at {T} tokens")
        last = page.js("return Array.from(lab.forward(model, arguments[0], {last: true}))", ids)
        same(last, got[-1].tolist(), f"the last row alone at {T} tokens")
    return found


def without_mask(page, tokens=17):
    """The same with the mask off."""
    ids = random_ids(tokens)[0].tolist()
    got = numbers(page.js("return Array.from(lab.forward(model, arguments[0], {mask: false}))", ids), tokens, -1)
    return close(got, _python_logits(tokens, False), 1e-4, "logits without the mask")


def cache(page, pieces=((1,) * 40, (3, 1, 17, 2, 64, 1), (256,))):
    """The cached pass, fed in pieces, beside the page's own plain pass and chapter 10's: the largest differences of a logit."""
    code = """const [ids, pieces] = arguments;
      const cache = lab.newCache(model);
      const found = [];
      for (const piece of pieces) {
        const logits = lab.forwardCached(model, ids.slice(cache.length, cache.length + piece), cache, {last: false});
        for (const x of logits) found.push(x);
      }
      return [found, Array.from(lab.forward(model, ids)), cache.length];"""
    worst = {"plain": 0.0, "python": 0.0}
    for lengths in pieces:
        T = sum(lengths)
        ids = random_ids(T)
        got, plain, length = page.js(code, ids[0].tolist(), lengths)
        same(length, T, "the cache's length")
        got, kept = numbers(got, T, -1), KVCache(model())
        wanted = torch.cat([forward_cached(piece, model(), kept)[0] for piece in ids.split(lengths, dim=1)])
        worst["plain"] = max(worst["plain"], close(got, numbers(plain, T, -1), 1e-5, f"a cache fed by {lengths}"))
        worst["python"] = max(worst["python"], close(got, wanted, 1e-4, f"a cache fed by {lengths}, and chapter 10's"))
    return worst


def traces(page, tokens=17):
    """Attention weights and the stream's sizes, with the mask and without it, beside chapter 4's: the largest differences."""
    config, worst = model().config, {"attention": 0.0, "sizes": 0.0}
    code = """const trace = {};
      lab.forward(model, arguments[0], {mask: arguments[1], trace});
      return [trace.attention.map((x) => Array.from(x)), trace.sizes.map((x) => Array.from(x))];"""
    for mask in (True, False):
        kept, ids = Trace("embedding", "residual", "A"), random_ids(tokens)
        run(model(), ids, causal=mask, trace=kept)
        attention, sizes = page.js(code, ids[0].tolist(), mask)
        same((len(attention), len(sizes)), (config.n_layer, config.n_layer + 1), "layers of the trace")
        for layer, found in enumerate(attention):
            found, wanted = numbers(found, config.n_head, tokens, tokens), kept["A", layer][0]
            worst["attention"] = max(worst["attention"], close(found, wanted, 1e-5, f"attention of layer {layer}"))
            same(found[wanted == 0].abs().sum().item(), 0.0, "attention paid to what is hidden")
        streams = [kept["embedding", None], *(kept["residual", layer] for layer in range(config.n_layer))]
        for layer, (found, stream) in enumerate(zip(sizes, streams, strict=True)):
            wanted = stream[0].square().mean(-1).sqrt()  # [T]
            worst["sizes"] = max(worst["sizes"], close(numbers(found, tokens), wanted, 1e-5, f"sizes after layer {layer}"))
        if mask:  # and over all positions, as chapter 4's table has them
            whole = [numbers(found, tokens).square().mean().sqrt().item() for found in sizes]
            wanted = [row["rms"] for row in residual_statistics(model(), ids)]
            close(torch.tensor(whole), torch.tensor(wanted), 1e-5, "sizes of the whole stream")
    return worst


def influences(page, text="Good night, good night!"):
    """Chapter 4's table of influence: exact zeros above the diagonal with the mask, and none without it."""
    ids, worst = encode(text, model()), 0.0
    T = ids.shape[1]
    for mask in (True, False):
        code = "return Array.from(lab.influence(model, arguments[0], {mask: arguments[1]}))"
        found = numbers(page.js(code, ids[0].tolist(), mask), T, T)
        above = found.triu(1)[torch.ones(T, T).triu(1) == 1]
        if above.any() if mask else not above.all():
            raise AssertionError(f"above the diagonal stand {above.tolist()[:5]} ..., and the mask is {'on' if mask else 'off'}")
        worst = max(worst, close(found, torch.tensor(influence(model(), ids, causal=mask)), 1e-4, "influence"))
    return worst


# -------------------------------------------------------------------------------------------------------------- the tokenizer

# Whatever a text may hold: each entry is a list of texts that a random one is made of.
KINDS = (
    [chr(c) for c in range(32, 127)],
    ["the", " the", "'s", "'ll", "'LL", " night", "HAMLET:\n", "<|endoftext|>", "<|endoftext", "  ", " 's"],
    [chr(c) for c in range(0x20)] + [chr(c) for c in range(0x7F, 0xA1)],  # control characters, U+0085 and the hard blank with them
    [chr(c) for c in range(0xA1, 0x250)],
    list("αβγΩДжяאבגدرसकกขამაꙮ"),
    list("你好世界漢字かなカナ한국어𠀀𪛖"),
    list("٠١٢३४५৬๓௧ⅧⅫ½²①𝟘𝟙〇九"),
    ["🙂", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇬🇧", "\u200d", "\ufe0f"],
    ["ooo", "lll", "eee", "ss", "sss", " ", "..."],  # of equal pairs the first one is joined
    ["e\u0301", "\u0301", "\u0327", "a\u20d7", "\u093f", "\u05b0"],
    list(" \t\n\r\v\f\u00a0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u180e\u200b\u2060\ufeff"),
    list("\ufffd\uffff\ue000\U000f0000\U0010ffff"),
    ["\u088f", "\ua7ce", "\U00011de0", "\U000323b0", "\u1c89", "\u0558"],  # letters and digits of late versions of Unicode
    ["\ud83d", "\ude42", "\ud800", "\udfff"],  # halves of surrogate pairs
)


def random_texts(count, seed=17):
    """Texts of one to three kinds, as lists of UTF-16 code units, since half of a pair is no character that could be sent."""
    dice = random.Random(seed)
    texts = []
    for _ in range(count):
        kinds = [dice.choice(KINDS) for _ in range(dice.randint(1, 3))]
        text = "".join(dice.choice(dice.choice(kinds)) for _ in range(dice.randint(1, 40)))
        units = text.encode("utf-16-le", "surrogatepass")
        texts.append([units[i] | units[i + 1] << 8 for i in range(0, len(units), 2)])
    return texts


def as_python_gets_it(units):
    """The text of UTF-16 code units once it has been written in UTF-8: half of a pair is U+FFFD."""
    text = b"".join(unit.to_bytes(2, "little") for unit in units).decode("utf-16-le", "surrogatepass")
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def token_ids(page, count=2000):
    """Texts whose ids are those of the library, and which come back from them."""
    texts = random_texts(count)
    code = """return arguments[0].map((units) => {
      const ids = tokenizer.encode(String.fromCharCode(...units));
      return [ids, tokenizer.decode(ids)];
    });"""
    for units, (ids, back) in zip(texts, page.js(code, texts), strict=True):
        text = as_python_gets_it(units)
        same(ids, encode(text, model())[0].tolist(), f"ids of {text!r}")
        same(back, text, f"{text!r} decoded")
    return len(texts)


def decoded(page, count=500):
    """Random ids, whose bytes are seldom UTF-8, as text; and each id by itself."""
    V, dice = model().config.vocab_size, random.Random(3)
    rows = [[id] for id in range(V)] + [[dice.randrange(V) for _ in range(dice.randint(2, 12))] for _ in range(count)]
    rows += [[dice.randrange(256) for _ in range(dice.randint(2, 12))] for _ in range(count)]
    found = page.js("return arguments[0].map((ids) => tokenizer.decode(ids))", rows)
    for ids, text in zip(rows, found, strict=True):
        same(text, decode(ids, model()), f"the text of {ids}")
    return len(rows)


# ---------------------------------------------------------------------------------------------------------------- the loop


@functools.cache
def _python_text(prompt, settings):
    ids = encode(prompt, model())
    room = model().config.n_positions - ids.shape[1] + 1
    return ids[0].tolist(), room, generate(ids, model(), room, **dict(settings), forward=Cached(model())).sequence()


def _texts(page, settings, prompts, cached=True):
    tokens = 0
    for prompt in prompts:
        ids, room, wanted = _python_text(prompt, tuple(settings.items()))
        options = {IN_PAGE[name]: value for name, value in settings.items()} | {"cached": cached}
        found = page.js("return Array.from(lab.generate(model, ...arguments), (step) => step.id)", ids, room, options)
        same(found, wanted, f"the text behind {prompt!r} with {settings}")
        tokens += len(found)
    return tokens


def greedy(page, prompts=PROMPTS[:4]):
    """Tokens of greedy text, to the last position or an end, that are those of chapter 10's loop."""
    return _texts(page, dict(temperature=0.0), prompts)


def sampled(page):
    """The same of drawn text, by seed, with other settings for each prompt."""
    return sum(_texts(page, settings, [prompt]) for settings, prompt in zip(SETTINGS, PROMPTS, strict=False))


def uncached(page, prompts=PROMPTS[:1], tokens=20):
    """Tokens of the loop without a cache that are those of chapter 5's, greedy and drawn, and each step's positions."""
    for settings in (dict(temperature=0.0), SETTINGS[0]):
        for prompt in prompts:
            ids = encode(prompt, model())
            wanted = generate(ids, model(), tokens, **settings, forward=whole_text(model())).sequence()
            options = {IN_PAGE[name]: value for name, value in settings.items()}
            code = "return Array.from(lab.generate(model, ...arguments), (step) => [step.id, step.positions])"
            T = ids.shape[1]
            for cached in (False, True):
                steps = page.js(code, ids[0].tolist(), tokens, options | {"cached": cached})
                same([id for id, _ in steps], wanted, f"the text behind {prompt!r}, cached {cached}")
                positions = [T] + [1] * (tokens - 1) if cached else [*range(T, T + tokens)]
                same([n for _, n in steps], positions, "positions computed")
    return 2 * len(prompts) * tokens


# --------------------------------------------------------------------------------------------------------------- sampling


def filters(page, count=200):
    """Probabilities of random logits, with many ties, and of a few by hand: the same ones cut, the others equal to float32."""
    dice, cases = torch.Generator().manual_seed(5), []
    for i in range(count):
        row = torch.randn(64, generator=dice) * 3
        row = (row * 2).round() / 2 if i % 3 else row  # many equal ones
        options = dict(temperature=(0.5, 1.0, 1.7, 0.0)[i % 4])
        options |= dict(top_k=(None, 1, 5, 64, 80)[i % 5], top_p=(None, 0.5, 0.9, 1.0)[i // 5 % 4])
        cases.append((row, options))
    for probs in ((0.5, 0.25, 0.125, 0.125), (0.25,) * 4, (0.3, 0.1, 0.1, 0.5), (0.4, 0.3, 0.2, 0.1)):
        cases += [(torch.tensor(probs).log(), dict(top_p=p)) for p in (0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 1.0)]
        cases += [(torch.tensor(probs).log(), dict(top_k=k)) for k in (1, 2, 3, 9)]
    cases += [(torch.tensor(sampling.LOGITS), options) for options in (dict(temperature=1e-39), dict(top_p=1e-9))]
    code = """return arguments[0].map(([logits, options]) =>
      Array.from(lab.probabilities(Float32Array.from(logits), options)));"""
    sent = [[row.tolist(), {IN_PAGE[name]: x for name, x in options.items()}] for row, options in cases]
    for (row, options), found in zip(cases, page.js(code, sent), strict=True):
        wanted = sampling.probabilities(row, **options)
        found = [math.nan if x is None else x for x in found]  # JSON has no NaN
        same([x > 0 for x in found], (wanted > 0).tolist(), f"what {options} leaves of {row.tolist()}")
        close(numbers(found, -1), wanted, 1e-6, f"probabilities with {options}")
    return len(cases)


def draws(page, count=2000):
    """Ids drawn from one row by a seed, the numbers that draw them, and the end cases of a sum."""
    p = torch.softmax(torch.randn(64, generator=torch.Generator().manual_seed(1)) * 2, -1)
    for seed in (0, 1, 12345, 2**32 - 1, 2**32 + 5, 2**53 - 1):
        generator = torch.Generator().manual_seed(seed)
        wanted = [torch.rand((), generator=generator, dtype=torch.float64).item() for _ in range(count)]
        code = "const g = lab.generator(arguments[0]); return Array.from({length: arguments[1]}, () => g.uniform())"
        same(page.js(code, seed, count), wanted, f"numbers of seed {seed}")
        generator = torch.Generator().manual_seed(seed)
        wanted = [sampling.draw(p, generator).item() for _ in range(count)]
        code = """const [p, seed, count] = arguments;
          const g = lab.generator(seed);
          return Array.from({length: count}, () => lab.draw(Float64Array.from(p), g));"""
        same(page.js(code, p.double().tolist(), seed, count), wanted, f"ids that seed {seed} draws")
    code = "return arguments[0].map((u) => lab.draw(Float64Array.of(0, 0.5, 0, 0.5, 0), {uniform: () => u}))"
    same(page.js(code, [0, 0.25, 0.5, 1 - 2**-53]), [1, 1, 3, 3], "draws at the ends")  # never one of probability 0
    return 6 * count
